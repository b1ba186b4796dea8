"""The options of Spark's reader: what the window fixes stays fixed."""

from __future__ import annotations

import pytest

from airflow_kafka_offsets.spark.errors import ReaderOptionError
from airflow_kafka_offsets.spark.options import (
    DEFAULTS,
    FREE_SLICE,
    MIN_SLICE,
    MOST_TOGETHER,
    TASKS_A_CORE,
    Layout,
    is_split_by_user,
    layout,
    reader_options,
    schema,
    source_version,
)
from airflow_kafka_offsets.spark.shared import FIXED_OPTIONS

RANGES = {"orders": {10: (7, 9), 2: (5, 6)}, "a": {0: (0, 1)}}


def test_the_window_is_assigned_never_subscribed_and_data_loss_fails() -> None:
    assert reader_options(RANGES, "read_committed", {"kafka.bootstrap.servers": "h:9092"}, {}) == {
        **DEFAULTS,
        "kafka.bootstrap.servers": "h:9092",
        "assign": '{"orders": [2, 10], "a": [0]}',
        "startingOffsets": '{"a":{"0":0},"orders":{"2":5,"10":7}}',
        "endingOffsets": '{"a":{"0":1},"orders":{"2":6,"10":9}}',
        "failOnDataLoss": "true",
        "kafka.isolation.level": "read_committed",
    }


@pytest.mark.parametrize("name", sorted(FIXED_OPTIONS))
def test_what_the_window_fixes_is_refused_in_any_case(name: str) -> None:
    for spelled in (name, name.upper(), name.title()):
        with pytest.raises(ReaderOptionError, match=spelled):
            reader_options(RANGES, "read_committed", {}, {spelled: "x"})
        with pytest.raises(ReaderOptionError, match=spelled):
            reader_options(RANGES, "read_committed", {spelled: "x"}, {})


def test_the_call_wins_over_the_group_and_the_group_over_the_defaults_in_any_case() -> None:
    options = reader_options(
        RANGES,
        "read_committed",
        {"KAFKA.max.poll.records": "7", "minPartitions": "3"},
        {"MinPartitions": 8, "kafkaconsumer.polltimeoutms": 1000, "includeHeaders": True},
    )
    of_interest = {name: value for name, value in options.items() if name.lower() not in FIXED_OPTIONS}
    untouched = {name: DEFAULTS[name] for name in DEFAULTS if "fetch" in name or "buffer" in name}
    assert of_interest == untouched | {
        "KAFKA.max.poll.records": "7",
        "MinPartitions": "8",
        "kafkaconsumer.polltimeoutms": "1000",
        "includeHeaders": "true",
    }


def test_a_fetch_may_wait_long_only_where_it_waits_for_no_byte() -> None:
    for group, call in (({}, {}), ({"kafka.Fetch.min.bytes": "0"}, {})):
        assert reader_options(RANGES, "read_committed", group, call)["kafka.fetch.max.wait.ms"] == "20000"
    for group, call in (({"kafka.fetch.min.bytes": "1"}, {}), ({}, {"KAFKA.fetch.min.bytes": 1})):
        assert "kafka.fetch.max.wait.ms" not in reader_options(RANGES, "read_committed", group, call)
    chosen = {"kafka.fetch.min.bytes": "1", "kafka.fetch.max.wait.ms": "30"}
    assert reader_options(RANGES, "read_committed", {}, chosen)["kafka.fetch.max.wait.ms"] == "30"


def test_headers_are_a_column_only_when_asked_for() -> None:
    assert "headers" not in schema({"includeHeaders": False})
    assert "headers" in schema({"INCLUDEHEADERS": "True"})


@pytest.mark.parametrize("parallelism", [1, 2, 7, 64, 500, None])
@pytest.mark.parametrize("spans", [[9_000_000] + [125_000] * 8, [10**9], [3_000_000, 1], [10**12] * 3])
def test_a_skewed_window_is_cut_so_that_no_core_waits_long(spans: list[int], parallelism: int | None) -> None:
    chosen = layout(spans, parallelism)
    share = FREE_SLICE if parallelism is None else sum(spans) / parallelism / TASKS_A_CORE * 1.1
    assert chosen.max_records is not None
    assert MIN_SLICE <= chosen.max_records <= max(MIN_SLICE, share)
    assert chosen.tasks == sum(-(-span // chosen.max_records) for span in spans)


@pytest.mark.parametrize("parallelism", [1, 2, 8])
@pytest.mark.parametrize("spans", [[1_000_000] * 32, [1_000_000, 900_000] * 20, [1] * 8, [MIN_SLICE]])
def test_an_even_window_and_a_small_one_are_left_as_they_are(spans: list[int], parallelism: int) -> None:
    assert layout(spans, parallelism).max_records is None
    assert layout(spans, parallelism).tasks >= min(len(spans), parallelism * TASKS_A_CORE)


@pytest.mark.parametrize("parallelism", [1, 4, 64, None])
@pytest.mark.parametrize("span", [1, 50, 5_000])
def test_many_tiny_ranges_share_tasks_not_too_many_and_no_core_is_without_one(
    span: int, parallelism: int | None
) -> None:
    chosen = layout([span] * 20_000, parallelism)
    assert chosen.max_records is None
    assert (parallelism or 1) * TASKS_A_CORE <= chosen.tasks <= 1_000
    assert chosen.tasks >= 20_000 / MOST_TOGETHER


def test_one_large_range_keeps_its_tiny_neighbours_out_of_its_tasks() -> None:
    # Neighbours are put together by their number: with one large one among them, some task would get all of its slices.
    assert layout([10] * 20_000 + [10**9], 4).tasks > 20_000


@pytest.mark.parametrize("name", ["minPartitions", "MAXRECORDSPERPARTITION"])
def test_who_says_how_to_split_is_obeyed(name: str) -> None:
    assert is_split_by_user(reader_options(RANGES, "read_committed", {name: "1"}, {}))
    assert is_split_by_user(reader_options(RANGES, "read_committed", {}, {name: 1}))
    assert not is_split_by_user(reader_options(RANGES, "read_committed", {"kafka.max.poll.records": "1"}, {}))
    assert Layout(None, 3) == layout([10, 10, 10], 4)


def test_a_cut_is_said_in_the_words_of_spark_4_and_of_spark_3() -> None:
    assert Layout(100, 19).options == {"maxRecordsPerPartition": "100", "minPartitions": "19"}
    assert Layout(None, 3).options == {}


def test_the_version_of_the_source_is_no_option_of_spark_and_the_call_wins_over_the_group() -> None:
    assert source_version({}, {}) == 2
    assert source_version({"SOURCEVERSION": "1"}, {}) == 1
    assert source_version({"sourceVersion": "1"}, {"sourceversion": 2}) == 2
    with pytest.raises(ReaderOptionError, match="must be 1 or 2"):
        source_version({"sourceVersion": "V2"}, {})
    chosen = reader_options(RANGES, "read_committed", {"SourceVersion": "1"}, {"sourceVersion": 1})
    assert "sourceversion" not in {name.lower() for name in chosen}


def test_another_cluster_is_refused_for_one_call_and_not_for_the_group() -> None:
    ranges = {"orders": {0: (0, 5)}}
    servers = {"kafka.Bootstrap.servers": "other:9092"}
    assert reader_options(ranges, "read_committed", servers, {})["kafka.Bootstrap.servers"] == "other:9092"
    with pytest.raises(ReaderOptionError, match="another address of the same cluster"):
        reader_options(ranges, "read_committed", {}, servers)
