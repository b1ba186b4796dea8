"""The note of an output about its window, and whose output a window may replace."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_kafka_offsets.spark.errors import OtherWindowError
from airflow_kafka_offsets.spark.label import Label, label_of, read_note
from tests.spark.conftest import handoff

RANGES = {"orders": {0: (0, 50)}}
ID = {"orders": "tpid-1"}


def label(ranges: Any = RANGES, **values: Any) -> Label:
    return label_of(handoff(ranges, **values))


def test_a_window_replaces_what_it_wrote_itself() -> None:
    for mine in (label(), label(topic_ids=ID)):
        mine.refuse_other("lake", mine.note)


def test_what_an_older_launcher_wrote_without_topic_ids_is_the_windows_own() -> None:
    label(topic_ids=ID).refuse_other("lake", label().note)
    label().refuse_other("lake", label(topic_ids=ID).note)


@pytest.mark.parametrize(
    "other",
    [
        {"ranges": {"orders": {0: (80, 100)}}, "topic_ids": ID},
        {"planned_until": "2026-03-01T00:00:00+00:00", "topic_ids": ID},
        {"topic_ids": {"orders": "tpid-2"}},
    ],
    ids=["other ranges", "another planned-until time", "a topic of the same name"],
)
@pytest.mark.parametrize("is_rerun", [False, True])
def test_output_of_another_window_of_the_same_id_is_refused_and_the_log_has_both_digests(
    other: dict[str, Any], is_rerun: bool, caplog: pytest.LogCaptureFixture
) -> None:
    mine, found = label(topic_ids=ID, is_rerun=is_rerun), label(**other)
    with caplog.at_level("DEBUG"), pytest.raises(OtherWindowError) as refused:
        mine.refuse_other("s3a://lake/orders", found.note)
    message = str(refused.value)
    for part in (
        "s3a://lake/orders",
        mine.window_id,
        "restored from an older copy",
        "may hold records that no window will write again",
    ):
        assert part in message
    for part in (mine.digest, found.digest, found.ranges):
        assert str(part) in caplog.text
        assert str(part) not in message


def test_without_a_note_the_ledgers_word_counts() -> None:
    label(is_rerun=True).refuse_other("lake", None)
    with pytest.raises(OtherWindowError, match="without a digest"):
        label(is_rerun=False).refuse_other("lake", None)


def test_the_first_ledger_marks_a_target_and_another_one_is_refused_whatever_the_windows_are() -> None:
    assert label(ledgers=["a"]).must_mark("lake", None)
    assert not label(ledgers=["a"]).must_mark("lake", "a")
    with pytest.raises(
        OtherWindowError, match=r"output of group lake\.orders from another ledger, a: .*two-environments"
    ):
        label(ledgers=["b"]).must_mark("lake", "a")
    assert label(ledgers=["a"]).note["ledger"] == "a"


def test_a_ledger_that_inherits_output_puts_its_own_mark_there() -> None:
    assert label(ledgers=["b", "a"]).must_mark("lake", "a")
    assert label(ledgers=["b", "a"]).note["ledger"] == "b"


def test_without_an_id_of_the_ledger_nothing_is_marked() -> None:
    assert not label().must_mark("lake", None)
    assert not label().must_mark("lake", "a")
    assert "ledger" not in label().note


def test_windows_of_many_partitions_are_told_apart_without_their_ranges() -> None:
    many = {"orders": dict.fromkeys(range(101), (0, 1))}
    assert label(many).ranges is None
    assert "ranges" not in label(many).note
    assert label(many).digest != label({"orders": {**many["orders"], 100: (0, 2)}}).digest


def test_a_note_is_json_and_somebody_elses_words_are_none() -> None:
    assert read_note(json.dumps(label().note)) == label().note
    assert [read_note(text) for text in (None, "", "half a n", "7")] == [None] * 4
