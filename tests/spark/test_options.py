"""The options of Spark's reader: what the window fixes stays fixed."""

from __future__ import annotations

import pytest

from airflow_kafka_offsets.core import group
from airflow_kafka_offsets.spark.errors import ReaderOptionError
from airflow_kafka_offsets.spark.options import DEFAULTS, FIXED, reader_options, schema

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


@pytest.mark.parametrize("name", sorted(FIXED))
def test_what_the_window_fixes_is_refused_in_any_case(name: str) -> None:
    for spelled in (name, name.upper(), name.title()):
        with pytest.raises(ReaderOptionError, match=spelled):
            reader_options(RANGES, "read_committed", {}, {spelled: "x"})
        with pytest.raises(ReaderOptionError, match=spelled):
            reader_options(RANGES, "read_committed", {spelled: "x"}, {})


def test_planner_and_job_refuse_the_same_options() -> None:
    assert group.FIXED_OPTIONS == FIXED


def test_the_call_wins_over_the_group_and_the_group_over_the_defaults_in_any_case() -> None:
    options = reader_options(
        RANGES,
        "read_committed",
        {"KAFKA.max.poll.records": "7", "minPartitions": "3"},
        {"MinPartitions": 8, "kafkaconsumer.polltimeoutms": 1000, "includeHeaders": True},
    )
    of_interest = {name: value for name, value in options.items() if name.lower() not in FIXED}
    untouched = {name: DEFAULTS[name] for name in DEFAULTS if "fetch" in name or "buffer" in name}
    assert of_interest == untouched | {
        "KAFKA.max.poll.records": "7",
        "MinPartitions": "8",
        "kafkaconsumer.polltimeoutms": "1000",
        "includeHeaders": "true",
    }


def test_headers_are_a_column_only_when_asked_for() -> None:
    assert "headers" not in schema({"includeHeaders": False})
    assert "headers" in schema({"INCLUDEHEADERS": "True"})
