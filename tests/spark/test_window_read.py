"""A window read by Spark from a real broker."""

from __future__ import annotations

import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from airflow_kafka_offsets.spark import counting
from airflow_kafka_offsets.spark.errors import IncompleteReadError, ReaderOptionError, UnfinishedReadError
from airflow_kafka_offsets.spark.observing import Observed
from tests.lab.topics import (
    abort_transaction,
    add_partitions,
    commit_transaction,
    create_topic,
    delete_records,
    end_offset,
    produce,
)
from tests.lab.waiting import LONGEST

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.lab.kafka import KafkaBroker
    from tests.spark.conftest import MakeWindow

LOST = "Some data may have been lost"

# Everything is compacted within seconds, up to the last record.
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "100",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "100",
}


def offsets(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def run(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def test_reads_exactly_the_window(kafka: KafkaBroker, topic: str, make_window: MakeWindow) -> None:
    create_topic(kafka, topic, 3)
    for partition in range(3):
        produce(kafka, topic, 20, partition=partition)
    window = make_window({topic: {0: (5, 9), 1: (7, 7), 2: (0, 20)}})
    assert offsets(window.read()) == [(0, n) for n in range(5, 9)] + [(2, n) for n in range(20)]
    window.check()
    assert window.records == window.span == 24


@pytest.mark.parametrize(("topics", "partitions", "tasks"), [(1, 7, 60), (3, 5, 100), (40, 1, 150)])
@pytest.mark.parametrize("by_partition", [True, False])
def test_counts_are_exact_however_many_tasks_read_a_partition(
    spark: SparkSession,
    topics: int,
    partitions: int,
    tasks: int,
    by_partition: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counting, "MAX_MERGED", 10**6 if by_partition else 0)
    topic = f"concat('t', lpad(string(floor(id / {partitions}) % {topics}), 2, '0')) as topic"
    frame = spark.range(0, 3000, 1, tasks).selectExpr(topic, f"int(id % {partitions}) as partition", "id as offset")
    frame = frame.filter("hash(id) % 3 = 0")
    there = Counter((row.topic, row.partition) for row in frame.collect())
    read = counting.CountedRead({tp: (0, records) for tp, records in there.items()}, tasks)
    run(read.attach(frame))
    counts = read.counts(timeout=30)
    assert len(counts.read) == (topics * partitions if by_partition else topics)
    assert counts.read == counts.planned


@pytest.mark.parametrize(("most", "strays"), [(3, 1), (2, 0)])
def test_what_lies_outside_is_looked_at_up_to_so_many_partitions_also_of_topics_with_one_each(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, most: int, strays: int
) -> None:
    monkeypatch.setattr(counting, "MAX_BOUNDS", most)
    frame = spark.range(0, 4, 1, 1).selectExpr("string(id % 3) as topic", "0 as partition", "id as offset")
    read = counting.CountedRead({("0", 0): (0, 4), ("1", 0): (0, 3), ("2", 0): (0, 2)}, 1, looks_outside=True)
    run(read.attach(frame))
    assert read.counts(timeout=30).strays == strays


def test_who_asks_spark_for_the_counts_at_the_same_time_gets_them_all(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow
) -> None:
    create_topic(kafka, topic, 20)
    for partition in range(20):
        produce(kafka, topic, 2, partition=partition)
    window = make_window({topic: dict.fromkeys(range(20), (0, 2))})
    frame = window.read()
    assert len(frame.collect()) == 40
    # As Spark Connect's own thread does, and the listeners' one.
    execution = frame._jdf.queryExecution()
    with ThreadPoolExecutor(8) as pool:
        told = set(pool.map(lambda _: execution.observedMetrics().toString(), range(2000)))
    read = window._unchecked
    assert read is not None
    for text in told:  # its end may be blank, and the total counts then
        assert "[40," in text
        read._observed = Observed(SimpleNamespace(get={"records": 40, "histogram": text}))  # type: ignore[arg-type]
        counts = read.counts(timeout=0)
        assert counts.read == counts.planned, text


def test_a_partition_that_was_added_after_planning_is_left_alone(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow
) -> None:
    create_topic(kafka, topic, 2)
    produce(kafka, topic, 5, partition=1)
    window = make_window({topic: {0: (0, 0), 1: (0, 5)}})
    frame = window.read()
    add_partitions(kafka, topic, 3)
    produce(kafka, topic, 5, partition=2)
    assert offsets(frame) == [(1, n) for n in range(5)]
    window.check()


def test_several_topics_are_counted_by_partition(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow, tmp_path: Path
) -> None:
    for number, name in enumerate((f"{topic}-a", f"{topic}-b", f"{topic}-c")):
        create_topic(kafka, name, 2)
        produce(kafka, name, 10 + number, partition=0)
        produce(kafka, name, 5, partition=1)
    report = tmp_path / "report.json"
    ranges = {f"{topic}-a": {0: (0, 10), 1: (0, 5)}, f"{topic}-b": {0: (0, 11)}, f"{topic}-c": {0: (1, 12), 1: (4, 5)}}
    window = make_window(ranges, report=str(report))
    run(window.read())
    window.check()
    assert json.loads(report.read_text()) == {
        "window_id": window.id,
        "records": 38,
        "counts": {f"{topic}-a": {"0": 10, "1": 5}, f"{topic}-b": {"0": 11}, f"{topic}-c": {"0": 11, "1": 1}},
        "written": None,
        "bad": None,
    }


def test_headers_are_there_when_asked_for(kafka: KafkaBroker, topic: str, make_window: MakeWindow) -> None:
    create_topic(kafka, topic)
    produce(kafka, topic, 3)
    full = make_window({topic: {0: (0, 3)}}).read(includeHeaders=True)
    empty = make_window({topic: {0: (3, 3)}}).read(includeHeaders=True)
    assert "headers" in full.columns
    assert full.schema == empty.schema


def test_an_empty_window_is_an_empty_frame_and_kafka_is_not_asked(make_window: MakeWindow, topic: str) -> None:
    window = make_window({topic: {0: (7, 7)}}, options={})  # without a broker Spark's reader would refuse to load
    frame = window.read()
    assert frame.count() == 0
    window.check()
    assert window.records == 0
    full = make_window({topic: {0: (7, 8)}}, options={"kafka.bootstrap.servers": "127.0.0.1:1"})
    assert frame.schema == full.read().schema


def test_a_split_partition_is_counted_as_one(kafka: KafkaBroker, topic: str, make_window: MakeWindow) -> None:
    create_topic(kafka, topic)
    produce(kafka, topic, 100)
    window = make_window({topic: {0: (0, 100)}})
    frame = window.read(minPartitions=4)
    assert frame.rdd.getNumPartitions() == 4
    run(frame)
    window.check()


def test_options_of_the_call_win_over_those_of_the_group(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow
) -> None:
    create_topic(kafka, topic)
    patient = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafkaConsumer.pollTimeoutMs": "900000"}
    window = make_window({topic: {0: (0, 5)}}, options=patient)
    with pytest.raises(ReaderOptionError, match="StartingOffsets"):
        window.read(StartingOffsets="earliest")
    started = time.monotonic()
    with pytest.raises(Exception, match=LOST):  # the window has five records, Kafka none
        run(window.read(**{"KAFKACONSUMER.POLLTIMEOUTMS": 300}))
    assert time.monotonic() - started < 800, "the group's 900 s were used"


@pytest.mark.parametrize("peek", ["limit", "show", "isEmpty", "first"])
def test_a_first_action_that_takes_a_part_is_noticed(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow, peek: str
) -> None:
    create_topic(kafka, topic, 4)
    for partition in range(4):
        produce(kafka, topic, 50, partition=partition)
    window = make_window({topic: dict.fromkeys(range(4), (0, 50))})
    frame = window.read()
    run(frame.limit(5)) if peek == "limit" else getattr(frame, peek)()
    with pytest.raises(
        IncompleteReadError, match=rf"of 200 planned offsets were read\. Read .*\n    {topic}-\d: \d+ of 50"
    ):
        window.check()
    assert window.is_unchecked


def test_a_spark_that_is_gone_at_the_end_of_the_block_is_no_error(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(kafka, topic)
    produce(kafka, topic, 3)
    window = make_window({topic: {0: (0, 3)}})

    def gone(_: DataFrame) -> None:
        raise ConnectionError("the session is closed")

    with window.persisted() as frame:
        monkeypatch.setattr(type(frame), "unpersist", gone)
    monkeypatch.undo()
    assert window.records == frame.unpersist().count() == 3


@pytest.mark.usefixtures("adaptive")
def test_looking_into_a_persisted_frame_is_fine(kafka: KafkaBroker, topic: str, make_window: MakeWindow) -> None:
    create_topic(kafka, topic, 2)
    produce(kafka, topic, 50)
    window = make_window({topic: {0: (0, 50)}})
    frame = window.read().persist()
    assert frame.count() == 50
    assert not frame.isEmpty()
    run(frame.limit(3))
    window.check()


@pytest.mark.usefixtures("adaptive")
def test_a_filter_an_aggregate_and_a_join_with_itself_leave_the_count_alone(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow
) -> None:
    create_topic(kafka, topic, 2)
    produce(kafka, topic, 50)
    window = make_window({topic: {0: (0, 50)}})
    frame = window.read()
    some = frame.filter("offset % 2 = 0").select("offset", "value")
    joined = some.join(frame.select("offset", "timestamp"), "offset").groupBy("offset").count()
    assert len(joined.collect()) == 25
    window.check()
    assert window.records == 50


def test_a_frame_that_was_never_run_is_an_error_and_no_hanging(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow
) -> None:
    window = make_window({topic: {0: (0, 5)}})
    with pytest.raises(IncompleteReadError, match="nothing was read"):
        window.check()
    window.read()
    with pytest.raises(IncompleteReadError, match=r"reported no action .*\n    with window\.persisted\(\) as frame:$"):
        window.check(timeout=0.2)
    with pytest.raises(UnfinishedReadError, match="was not checked"):
        window.read()


def test_after_a_failed_action_the_check_fails(kafka: KafkaBroker, topic: str, make_window: MakeWindow) -> None:
    create_topic(kafka, topic)
    produce(kafka, topic, 10)
    window = make_window({topic: {0: (0, 10)}})
    with pytest.raises(Exception, match="USER_RAISED_EXCEPTION"):
        run(window.read().selectExpr("raise_error('no')"))
    with pytest.raises(IncompleteReadError):
        window.check(timeout=5)


def test_a_window_can_be_read_again_after_a_check(kafka: KafkaBroker, topic: str, make_window: MakeWindow) -> None:
    create_topic(kafka, topic)
    produce(kafka, topic, 10)
    window = make_window({topic: {0: (0, 10)}})
    for _ in range(2):
        run(window.read())
        window.check()
    run(window.read().limit(1))
    with pytest.raises(IncompleteReadError):
        window.check()


def test_records_that_retention_removed_fail_the_read(kafka: KafkaBroker, topic: str, make_window: MakeWindow) -> None:
    create_topic(kafka, topic)
    produce(kafka, topic, 100)
    delete_records(kafka, topic, before=60)
    window = make_window({topic: {0: (10, 90)}})
    with pytest.raises(Exception, match=LOST):
        run(window.read())


def test_transactions_need_expect_gaps(kafka: KafkaBroker, topic: str, make_window: MakeWindow) -> None:
    create_topic(kafka, topic)
    commit_transaction(kafka, topic, 10)
    abort_transaction(kafka, topic, 5)
    produce(kafka, topic, 5)
    assert end_offset(kafka, topic) == 22
    plain = make_window({topic: {0: (0, 22)}})
    run(plain.read())
    with pytest.raises(IncompleteReadError, match=r"(?s)15 of 22 .*expect_gaps=True.*-0: 15 of 22") as caught:
        plain.check()
    assert caught.value.missing == {f"{topic}-0": (15, 22)}

    gappy = make_window({topic: {0: (0, 22)}}, expect_gaps=True)
    assert len(offsets(gappy.read())) == 15
    gappy.check()
    assert gappy.records == 15

    # Nothing but aborted records and markers.
    hollow = make_window({topic: {0: (10, 17)}}, expect_gaps=True)
    assert offsets(hollow.read()) == []
    hollow.check()
    assert hollow.records == 0


def test_the_isolation_level_is_the_one_handed_over(kafka: KafkaBroker, topic: str, make_window: MakeWindow) -> None:
    create_topic(kafka, topic)
    abort_transaction(kafka, topic, 5)
    window = make_window({topic: {0: (0, 6)}}, expect_gaps=True, isolation_level="read_uncommitted")
    assert len(offsets(window.read())) == 5


def test_compaction_needs_expect_gaps(kafka: KafkaBroker, topic: str, make_window: MakeWindow) -> None:
    create_topic(kafka, topic, config=COMPACTED)
    for first in range(0, 400, 100):
        produce(kafka, topic, 100, first=first, key=b"same")
    deadline = time.monotonic() + LONGEST
    while True:
        time.sleep(0.3)
        produce(kafka, topic, 1, key=b"other")  # rolls the segment: the one being written is never compacted
        window = make_window({topic: {0: (0, 400)}}, expect_gaps=True)
        found = len(offsets(window.read()))
        window.check()
        assert window.records == found
        if found < 400:
            break
        assert time.monotonic() < deadline, "the broker did not compact"
    plain = make_window({topic: {0: (0, 400)}})
    run(plain.read())
    with pytest.raises(IncompleteReadError, match="of 400 planned"):
        plain.check()


def test_many_partitions_are_read_and_counted(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow, tmp_path: Path
) -> None:
    create_topic(kafka, topic, 300)
    for partition in range(0, 300, 50):
        produce(kafka, topic, 4, partition=partition)
    report = tmp_path / "report.json"
    # The others are read too, so that there are 300 tasks: an end beyond the log would be noticed.
    ranges = {p: (0, 4 if p % 50 == 0 else 0) for p in range(300)}
    window = make_window({topic: ranges}, report=str(report))
    run(window.read())
    window.check()
    assert json.loads(report.read_text())["counts"] == {topic: {str(p): 4 for p in range(0, 300, 50)}}


def test_more_partitions_than_are_counted_singly_are_counted_by_topic(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "MAX_MERGED", 2)
    for name in (f"{topic}-a", f"{topic}-b"):
        create_topic(kafka, name, 2)
        produce(kafka, name, 10, partition=0)
        produce(kafka, name, 20, partition=1)
    report = tmp_path / "report.json"
    window = make_window({f"{topic}-{x}": {0: (0, 10), 1: (0, 20)} for x in "ab"}, report=str(report))
    run(window.read())
    window.check()
    assert json.loads(report.read_text())["records"] == 60
    assert json.loads(report.read_text())["counts"] == {}
    run(window.read().filter(f"topic = '{topic}-a'").limit(3))
    with pytest.raises(IncompleteReadError, match=rf"\n    {topic}-a: \d+ of 30$"):
        window.check()
