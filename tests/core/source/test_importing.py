"""Taking offsets over, and comparing places."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_kafka_offsets.core.errors import BadInputError, DataLossError, TopicRecreatedError
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.ownership import GroupState
from airflow_kafka_offsets.core.source.importing import moves, to_import
from airflow_kafka_offsets.core.source.offsets import Meaning, SourceOffsets
from airflow_kafka_offsets.core.source.verifying import committing_note, compare, published
from airflow_kafka_offsets.core.store.advance import path
from airflow_kafka_offsets.core.window import Claim, State, WindowRecord
from tests.core.examples import log, position, ranges, tp, window

KAFKA = log({tp(0): (10, 100), tp(1): (0, 50)})


def test_next_offsets_are_taken_as_they_are() -> None:
    imported = to_import("x", SourceOffsets({tp(1): 50, tp(0): 10}), Meaning.NEXT, KAFKA)
    assert (imported.target, imported.unnamed) == ({tp(0): 10, tp(1): 50}, ())
    assert not imported.lost


def test_what_the_place_does_not_name_begins_at_the_beginning() -> None:
    imported = to_import("x", SourceOffsets({tp(1): 7}), Meaning.NEXT, KAFKA)
    assert imported.unnamed == (tp(0),)
    assert imported.position(KAFKA) == position({tp(0): 10, tp(1): 7})


def test_the_last_offset_that_was_read_may_be_the_last_one_there_is() -> None:
    assert to_import("x", SourceOffsets({tp(1): 49}), Meaning.LAST_READ, KAFKA).target == {tp(1): 50}
    with pytest.raises(BadInputError, match=r"orders-1: 51 is above the end offset 50 \(next offsets already"):
        to_import("x", SourceOffsets({tp(1): 50}), Meaning.LAST_READ, KAFKA)


def test_retention_was_faster() -> None:
    found = SourceOffsets({tp(0): 4, tp(1): 7})
    with pytest.raises(DataLossError, match=r"orders-0: offsets \[4, 10\) expired") as caught:
        to_import("x", found, Meaning.NEXT, KAFKA)
    assert set(caught.value.partitions) == {tp(0)}
    imported = to_import("x", found, Meaning.NEXT, KAFKA, skip_lost=True)
    assert imported.target == {tp(0): 10, tp(1): 7}
    assert imported.lost == ranges({tp(0): (4, 10)})
    assert imported.numbers == {tp(0): 4, tp(1): 7}


def test_the_last_offset_that_was_read_may_be_the_last_one_that_expired() -> None:
    assert not to_import("x", SourceOffsets({tp(0): 9}), Meaning.LAST_READ, KAFKA).lost
    with pytest.raises(DataLossError):
        to_import("x", SourceOffsets({tp(0): 9}), Meaning.NEXT, KAFKA)


def test_offsets_of_another_topic_of_that_name() -> None:
    with pytest.raises(TopicRecreatedError):
        to_import("x", SourceOffsets({tp(1): 7}, topic_ids={"orders": "another"}), Meaning.NEXT, KAFKA)
    to_import("x", SourceOffsets({tp(1): 7}, topic_ids={"orders": "id-of-orders", "clicks": "?"}), Meaning.NEXT, KAFKA)


def test_moves_are_the_offsets_that_differ() -> None:
    assert moves({tp(0): 1, tp(1): 2}, {tp(0): 1, tp(1): 3, tp(2): 0}) == {tp(1): (2, 3), tp(2): (None, 0)}
    assert moves({tp(0): 1, tp(1): 9}, {tp(0): 1}) == {}


def state(*committing: int, at: int = 20) -> GroupState:
    """Return a group whose partitions 0 and 1 stand at an offset; each end is that of a commit under way."""
    held, start = [], at
    for number, end in enumerate(committing, start=1):
        bounds = {tp(0): (start, end), tp(1): (at, at)}
        held.append(WindowRecord.of(window(bounds, number, State.COMMITTING), Claim("d", "r", "t")))
        start = end
    return GroupState(1, position({tp(0): start, tp(1): at}), tuple(held))


def steps(state: GroupState) -> list[dict[TopicPartition, int]]:
    return path([held.window for held in state.open])


def problems(*arguments: object, **more: object) -> dict[object, tuple[str, ...]]:
    return {d.tp: d.problems for d in compare(*arguments, **more)}  # type: ignore[arg-type]


def test_places_that_agree_have_no_difference() -> None:
    assert compare(state(), ["orders"], {tp(0): 20, tp(1): 20}, KAFKA) == []
    assert compare(state(), ["orders"], None, KAFKA) == []


def test_a_store_may_stand_behind_any_commit_that_is_under_way() -> None:
    begun = state(30, 45)
    for stands in (20, 30, 45):
        assert problems(begun, ["orders"], {tp(0): stands, tp(1): 20}, KAFKA, steps(begun)) == {}
    assert problems(begun, ["orders"], {tp(0): 31, tp(1): 20}, KAFKA, steps(begun)) == {tp(0): ("store ahead by 11",)}


def test_what_is_wrong_in_the_store_and_in_kafka_is_told_apart() -> None:
    [difference] = compare(state(), ["orders"], {tp(0): 7, tp(1): 20}, log({tp(0): (30, 100), tp(1): (0, 50)}))
    assert (difference.in_store, difference.in_kafka) == (("store behind by 13",), ("data loss",))
    assert difference.problems == ("store behind by 13", "data loss")


def test_a_commit_under_way_is_named_beside_the_watermark() -> None:
    assert committing_note(state()) == ()
    [note] = committing_note(state(30, 45))
    assert note.startswith("the commit of lake-000001 is under way")


def test_a_partition_that_a_later_open_window_is_the_first_to_have_stands_at_its_start() -> None:
    first = window({tp(0): (20, 30), tp(1): (20, 20)}, 1, State.PLANNED)
    second = window({tp(0): (30, 40), tp(1): (20, 20), tp(2): (0, 5)}, 2, State.PLANNED)
    open_ = tuple(WindowRecord.of(one, Claim("d", "r", "t")) for one in (first, second))
    waiting = GroupState(1, position({tp(0): 40, tp(1): 20, tp(2): 5}), open_)
    kafka = log({tp(0): (0, 100), tp(1): (0, 50), tp(2): (0, 50)})
    more = ((), None, (), (first, second))
    assert problems(waiting, ["orders"], {tp(0): 20, tp(1): 20, tp(2): 0}, kafka, *more) == {}
    assert problems(waiting, ["orders"], {tp(0): 30, tp(1): 20, tp(2): 5}, kafka, *more) == {
        tp(0): ("store ahead by 10",),
        tp(2): ("only in the store",),
    }


def test_what_was_lost_before_an_open_window_is_passed_with_its_commit() -> None:
    lossy = replace(window({tp(0): (20, 30), tp(1): (20, 20)}, 1, State.PLANNED), lost=ranges({tp(0): (15, 20)}))
    waiting = GroupState(1, position({tp(0): 30, tp(1): 20}), (WindowRecord.of(lossy, Claim("d", "r", "t")),))
    assert published(waiting, [lossy]) == {tp(0): 15, tp(1): 20}
    assert problems(waiting, ["orders"], {tp(0): 15, tp(1): 20}, KAFKA, later=[lossy]) == {}
    assert problems(waiting, ["orders"], {tp(0): 16, tp(1): 20}, KAFKA, later=[lossy]) == {
        tp(0): ("store behind by 4",)
    }


def test_each_difference_is_named() -> None:
    kafka = log({tp(0): (30, 100), tp(1): (0, 15)})
    assert problems(state(), ["orders"], {tp(0): 7, tp(0, "clicks"): 1}, kafka) == {
        tp(0): ("store behind by 13", "data loss"),
        tp(1): ("not in the store", "log truncated"),
        tp(0, "clicks"): ("only in the store",),
    }


def test_a_topic_that_the_group_reads_no_more_is_not_looked_up() -> None:
    assert problems(state(), ["clicks"], {tp(0): 20}, log({tp(0, "clicks"): (0, 1)})) == {tp(1): ("not in the store",)}


def test_what_kafka_no_longer_has_is_no_difference_of_ledger_and_store() -> None:
    assert problems(state(), ["orders"], {tp(0): 20, tp(1): 20, tp(2): 1}, KAFKA) == {}, (
        "a partition of before it was recreated"
    )
    assert problems(state(), ["orders"], {tp(0): 20}, log({tp(0): (0, 100)})) == {tp(1): ("missing",)}
    clicks = log({tp(0, "clicks"): (0, 1)})
    assert problems(state(), ["clicks"], {tp(0): 20}, clicks, (), None, {"orders"}) == {}, (
        "a consumer group can't have it"
    )
    assert problems(state(), ["clicks"], {tp(0): 7}, clicks, (), None, {"orders"}) == {tp(0): ("store behind by 13",)}
