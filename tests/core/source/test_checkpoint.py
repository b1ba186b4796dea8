"""What a checkpoint of Structured Streaming says, and when it says nothing that can be believed."""

from __future__ import annotations

import pytest

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.source.checkpoint import Batches, find_batches, log_lines, planned_note, read_offsets
from tests.core.examples import tp

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1502872590006,"conf":{"spark.sql.shuffle.partitions":"200"}}'


def log(*lines: str, version: str = "v1") -> str:
    return "\n".join((version, METADATA, *lines))


def test_the_newest_committed_batch_counts() -> None:
    assert find_batches("x", ["0", "1", "2"], ["0", "1", "2"]) == Batches(2, ())
    assert find_batches("x", ["0", "1", "10", "9"], ["0", "9", "1"]) == Batches(9, (10,))


def test_old_batches_are_purged_and_some_are_never_written() -> None:
    assert find_batches("x", ["7", "8", "12", "15"], ["7", "12"]) == Batches(12, (15,))


def test_what_writers_leave_behind_is_no_batch() -> None:
    left = [".12.crc", ".12.0f3a.tmp", "12.tmp", "_tmp", "012", "-1", "12 ", "¹²", ""]
    assert find_batches("x", ["0", *left], ["0", *left]) == Batches(0, ())


@pytest.mark.parametrize(
    ("offsets", "commits", "message"),
    [
        (
            [],
            [],
            "has no committed batch$",
        ),
        (["0"], [], r"has no committed batch \(batch 0 was planned only\)"),
        (["0", "2"], ["0", "1"], r"committed batch 1, but no offsets/1: take a complete copy"),
        ([], ["1"], "no offsets/1"),
    ],
)
def test_logs_that_do_not_belong_together(offsets: list[str], commits: list[str], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        find_batches("x", offsets, commits)


def test_batches_that_were_planned_only_are_named() -> None:
    assert planned_note(Batches(3, ())) == ()
    assert planned_note(Batches(3, (4,)))[0].startswith("batch 4 was planned but not committed")
    assert planned_note(Batches(3, (4, 5, 6, 7)))[0].startswith("batches 4, 5, 6, ... were planned")


def test_one_kafka_source() -> None:
    found = read_offsets("x", log('{"orders":{"1":7,"0":5},"clicks":{"0":2}}'))
    assert found.offsets == {tp(0): 5, tp(1): 7, tp(0, "clicks"): 2}
    assert found.notes == ()


def test_a_source_without_offsets_is_left_out() -> None:
    found = read_offsets("x", log("-", '{"orders":{"0":5}}'))
    assert found.offsets == {tp(0): 5}
    assert found.notes == ("source 0 does not read Kafka: '-'",)


@pytest.mark.parametrize(
    "other",
    [
        '{"logOffset":7}',
        '{"sourceVersion":1,"reservoirId":"a","reservoirVersion":3,"index":-1,"isStartingVersion":false}',
        '{"0":{"value":5,"runTimeMs":1502872590006}}',
        "51",
    ],
)
def test_other_kinds_of_sources_are_told_apart_by_their_json(other: str) -> None:
    found = read_offsets("x", log(other, '{"orders":{"0":5}}'))
    assert found.offsets == {tp(0): 5}
    assert "source 0 does not read Kafka" in found.notes[0]
    with pytest.raises(BadInputError, match="x has no source that reads Kafka"):
        read_offsets("x", log(other))


def test_sources_of_different_topics_are_merged() -> None:
    found = read_offsets("x", log('{"orders":{"0":5}}', '{"clicks":{"0":2}}'))
    assert found.offsets == {tp(0): 5, tp(0, "clicks"): 2}


def test_sources_that_stand_at_the_same_offsets_are_one() -> None:
    assert read_offsets("x", log('{"orders":{"0":5}}', '{"orders":{"0":5}}')).offsets == {tp(0): 5}


@pytest.mark.parametrize("second", ['{"orders":{"1":3}}', '{"orders":{"0":5,"1":3}}'])
def test_sources_that_share_a_topic_are_merged_by_partition(second: str) -> None:
    assert read_offsets("x", log('{"orders":{"0":5}}', second)).offsets == {tp(0): 5, tp(1): 3}


@pytest.mark.parametrize("second", ['{"orders":{"0":6}}', '{"orders":{"0":6,"1":3}}'])
def test_sources_that_stand_differently_in_one_partition_are_refused_and_one_can_be_chosen(second: str) -> None:
    text = log('{"orders":{"0":5}}', '{"clicks":{"0":9}}', second)
    with pytest.raises(BadInputError, match=r"sources 0 and 2 differ for orders-0 \(5, 6\).* as \?source=2"):
        read_offsets("x", text)
    assert read_offsets("x", text, "0").offsets == {tp(0): 5}
    assert read_offsets("x", text, "1").offsets == {tp(0, "clicks"): 9}
    with pytest.raises(BadInputError, match="x has no source 3; it has 0, 1, 2"):
        read_offsets("x", text, "3")


def test_version_2_names_its_sources() -> None:
    text = log('0:{"orders":{"0":5}}', "files:-", 'clicks-in:{"clicks":{"0":2}}', version="v2")
    assert read_offsets("x", text).offsets == {tp(0): 5, tp(0, "clicks"): 2}
    assert read_offsets("x", text, "clicks-in").offsets == {tp(0, "clicks"): 2}
    with pytest.raises(BadInputError, match="a line without a source's name: '-'"):
        read_offsets("x", log("-", version="v2"))


def test_windows_line_ends_and_a_last_empty_line_mean_nothing() -> None:
    assert read_offsets("x", log('{"orders":{"0":5}}').replace("\n", "\r\n") + "\n").offsets == {tp(0): 5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x is empty"),
        ("\n", "x is empty"),
        ("v3\n{}\n{}", "x has version 3, above 2"),
        ("v0\n{}\n{}", "begins with 'v0'"),
        ("{}\n{}", "begins with '{}'"),
        ("v1", "x is cut off"),
        ("v1\n{}", "x is cut off"),
        ('v1\n{}\n{"orders":{"0":', "x, source 0 is not JSON: "),
        ('v1\n{}\n{"clicks":{"0":1}}\n{"orders":{"0":', "x, source 1 is not JSON"),
        ("v1\n{}\n" + "[" * 100_000, "source 0 is not JSON"),
    ],
)
def test_a_damaged_or_unknown_log_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        read_offsets("x", text)


def test_a_commit_is_looked_at_too() -> None:
    log_lines("x", 'v1\n{"nextBatchWatermarkMs":0}')
    log_lines("x", 'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{}}')
    for text in ("", "v3\n{}", "x"):
        with pytest.raises(BadInputError):
            log_lines("x", text)
