"""Moving a watermark by hand: gaps are recorded, no window is cut, ownership is taken only knowingly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.errors import BadInputError, ConfirmationError, IllegalStepError
from airflow_kafka_offsets.core.plan.ownership import GroupState
from airflow_kafka_offsets.core.plan.reset import (
    check_confirmed,
    check_no_open_window,
    plan_reset,
    summary_of_reset,
    window_starts,
)
from airflow_kafka_offsets.core.window import Lane, State, Window, WindowRecord
from tests.core.examples import claim, log, position, ranges, tp, window

# Three committed windows, newest first, as the ledger returns them.
FIRST = window({tp(0): (0, 10), tp(1): (0, 5)}, 1)
SECOND = window({tp(0): (10, 20), tp(1): (5, 5)}, 2)
THIRD = window({tp(0): (20, 30), tp(1): (5, 9)}, 3)
WINDOWS = [THIRD, SECOND, FIRST]
BEFORE = position({tp(0): 30, tp(1): 9})
LOG = log({tp(0): (0, 100), tp(1): (0, 100)})


def test_forwards_leaves_a_recorded_gap() -> None:
    reset = plan_reset("lake", BEFORE, {tp(0): 50}, LOG, WINDOWS)
    assert reset.position.offsets == {tp(0): 50, tp(1): 9}
    assert reset.skipped == ranges({tp(0): (30, 50)})
    assert reset.superseded == ()
    check_confirmed("lake", reset, confirmed=False)


def test_a_partition_without_a_watermark_would_have_started_at_its_beginning() -> None:
    more = log({tp(0): (0, 100), tp(1): (0, 100), tp(2): (3, 100), tp(3): (3, 100)})
    reset = plan_reset("lake", BEFORE, {tp(2): 40, tp(3): 3}, more, WINDOWS)
    assert reset.moves == {tp(2): (None, 40), tp(3): (None, 3)}
    assert reset.skipped == ranges({tp(2): (3, 40)})
    assert reset.superseded == ()


def test_in_a_topic_that_was_recreated_all_is_skipped_that_lies_before_the_target() -> None:
    new = log({tp(0): (0, 7), tp(1): (2, 7)}, orders="new")
    reset = plan_reset("lake", BEFORE, {tp(0): 7, tp(1): 7}, new, WINDOWS)
    assert reset.skipped == ranges({tp(0): (0, 7), tp(1): (2, 7)})


def test_to_where_it_is_moves_nothing() -> None:
    reset = plan_reset("lake", BEFORE, {tp(0): 30, tp(1): 9}, LOG, WINDOWS)
    assert (reset.moves, dict(reset.skipped), reset.superseded) == ({}, {}, ())


def test_backwards_names_the_windows_that_it_supersedes_oldest_first() -> None:
    reset = plan_reset("lake", BEFORE, {tp(0): 10, tp(1): 5}, LOG, WINDOWS)
    assert [w.seq for w in reset.superseded] == [2, 3]
    assert reset.moves == {tp(0): (30, 10), tp(1): (9, 5)}
    assert not reset.skipped
    with pytest.raises(ConfirmationError, match="2 committed windows: lake-000002, lake-000003"):
        check_confirmed("lake", reset, confirmed=False)
    check_confirmed("lake", reset, confirmed=True)


def test_one_partition_alone_can_go_back_over_windows_that_own_nothing_else() -> None:
    only = [window({tp(0): (10, 20), tp(1): (5, 5)}, 2)]
    reset = plan_reset("lake", position({tp(0): 20, tp(1): 5}), {tp(0): 10}, LOG, only)
    assert [w.seq for w in reset.superseded] == [2]
    assert reset.position.offsets == {tp(0): 10, tp(1): 5}


def test_a_window_is_not_cut_and_the_oldest_is_named_as_the_way_out() -> None:
    with pytest.raises(IllegalStepError, match=r"lake-000002 owns orders-0 offsets \[10, 20\)") as raised:
        plan_reset("lake", BEFORE, {tp(0): 15, tp(1): 5}, LOG, WINDOWS)
    assert "kafka-offsets reset lake --to-window lake-000002 --why '...'" in str(raised.value)
    # The target fits the second window; the third would lose only a part: all partitions have to go back.
    with pytest.raises(IllegalStepError, match=r"lake-000003 owns orders-1 offsets \[5, 9\)") as raised:
        plan_reset("lake", BEFORE, {tp(0): 10}, LOG, WINDOWS)
    assert "where a window starts:\n    kafka-offsets" in str(raised.value)
    assert "--to-window lake-000002" in str(raised.value)


def test_the_way_out_is_a_window_that_kafka_still_holds() -> None:
    expired = log({tp(0): (12, 100), tp(1): (0, 100)})
    with pytest.raises(IllegalStepError, match=r"no longer holds an older start\):\n.*--to-window lake-000003"):
        plan_reset("lake", BEFORE, {tp(0): 12, tp(1): 5}, expired, WINDOWS)
    with pytest.raises(IllegalStepError, match="Use a group of another name"):
        plan_reset("lake", BEFORE, {tp(0): 25}, log({tp(0): (25, 100), tp(1): (6, 100)}), WINDOWS)


def test_empty_windows_in_between_do_not_end_the_search() -> None:
    windows = [window({tp(0): (10, 10)}, 2), window({tp(0): (0, 10)}, 1)]
    reset = plan_reset("lake", position({tp(0): 10}), {tp(0): 0}, LOG, windows)
    assert [w.seq for w in reset.superseded] == [1]


def test_history_is_read_only_as_far_back_as_needed() -> None:
    read: list[int] = []

    def history() -> Iterator[Window]:
        for seq in range(1000, 0, -1):
            read.append(seq)
            yield window({tp(0): (seq * 10, seq * 10 + 10)}, seq)

    reset = plan_reset("lake", position({tp(0): 10_010}), {tp(0): 9990}, log({tp(0): (0, 20_000)}), history())
    assert [w.seq for w in reset.superseded] == [999, 1000]
    assert read == [1000, 999, 998]


def test_a_recreated_topic_starts_anew_and_old_windows_keep_their_offsets() -> None:
    new = log({tp(0): (0, 7)}, orders="new")
    reset = plan_reset("lake", position({tp(0): 30, tp(1): 9}), {tp(0): 0}, new, WINDOWS)
    assert reset.position.offsets == {tp(0): 0}
    assert reset.position.topic_ids == {"orders": "new"}
    assert reset.moves == {tp(0): (None, 0)}
    assert (reset.superseded, dict(reset.skipped)) == ((), {})


def test_a_recreated_topic_wants_all_of_its_partitions_named() -> None:
    new = log({tp(0): (0, 7), tp(1): (0, 7)}, orders="new")
    with pytest.raises(
        BadInputError, match=r"Topic orders was recreated, so name all of its partitions\. Missing: orders-1"
    ):
        plan_reset("lake", BEFORE, {tp(0): 0}, new, WINDOWS)


def test_windows_of_the_topic_before_it_was_recreated_are_not_superseded() -> None:
    new = log({tp(0): (0, 50), tp(1): (0, 50)}, orders="new")
    windows = [window({tp(0): (0, 8), tp(1): (0, 0)}, 4, orders="new"), *WINDOWS]
    reset = plan_reset("lake", position({tp(0): 8, tp(1): 0}, orders="new"), {tp(0): 0}, new, windows)
    assert [w.seq for w in reset.superseded] == [4]


def test_other_topics_keep_their_place() -> None:
    refund = tp(0, "refunds")
    reset = plan_reset("lake", position({tp(0): 30, tp(1): 9, refund: 4}), {tp(0): 50, tp(1): 9}, LOG, WINDOWS)
    assert reset.position.offsets[refund] == 4
    assert reset.position.topic_ids["refunds"] == "id-of-refunds"


@pytest.mark.parametrize(("target", "what"), [({tp(7): 0}, "no partition orders-7"), ({tp(0): 101}, "end offset 100")])
def test_a_target_outside_of_the_log_is_refused(target: dict, what: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(BadInputError, match=what):
        plan_reset("lake", BEFORE, target, LOG, WINDOWS)


def test_an_open_window_comes_first() -> None:
    held = WindowRecord.of(window({tp(0): (30, 40)}, 4, State.PLANNED), claim())
    check_no_open_window(GroupState(3, BEFORE))
    with pytest.raises(IllegalStepError, match="kafka-offsets abandon lake-000004 --why"):
        check_no_open_window(GroupState(3, BEFORE, (held,)))


def test_the_start_of_a_window_is_a_target() -> None:
    assert window_starts(SECOND, BEFORE, WINDOWS) == {tp(0): 10, tp(1): 5}
    assert window_starts(THIRD, position({tp(0): 20, tp(1): 9}), WINDOWS) == {tp(1): 5}


def test_a_partition_that_came_later_goes_back_to_where_it_was_taken_up() -> None:
    fourth = window({tp(0): (30, 30), tp(1): (9, 9), tp(2): (3, 8)}, 4)
    before = position({tp(0): 30, tp(1): 9, tp(2): 8})
    target = window_starts(SECOND, before, [fourth, *WINDOWS])
    assert target == {tp(0): 10, tp(1): 5, tp(2): 3}
    more = log({tp(0): (0, 100), tp(1): (0, 100), tp(2): (0, 100)})
    reset = plan_reset("lake", before, target, more, [fourth, *WINDOWS])
    assert [w.seq for w in reset.superseded] == [2, 3, 4]


def test_a_window_of_an_earlier_topic_is_no_target() -> None:
    with pytest.raises(IllegalStepError, match="read an earlier topic orders"):
        window_starts(SECOND, position({tp(0): 30}, orders="new"), WINDOWS)


def test_what_goes_on_after_an_earlier_topic_is_a_command_for_a_topic_that_the_group_reads() -> None:
    before = position({tp(0): 4, CLICKS: 3}, orders="new", clicks="new")
    with pytest.raises(IllegalStepError, match="--topic orders --to earliest"):
        window_starts(BOTH, before, [BOTH], reads=["orders"])
    with pytest.raises(
        IllegalStepError, match=r"an earlier topic clicks, orders\. Use a group of another name for today's topic"
    ):
        window_starts(BOTH, before, [BOTH], reads=["payments"])


def test_the_summary_is_json() -> None:
    reset = plan_reset("lake", BEFORE, {tp(0): 50}, LOG, WINDOWS)
    facts = json.loads(json.dumps(summary_of_reset(reset)))
    assert facts == {"moves": {"orders-0": [30, 50]}, "skipped": {"orders-0": [30, 50]}, "superseded": []}


@given(st.integers(0, 40), st.integers(0, 15))
def test_whatever_the_target_no_offset_gets_a_second_owner(zero: int, one: int) -> None:
    try:
        reset = plan_reset("lake", BEFORE, {tp(0): zero, tp(1): one}, LOG, WINDOWS)
    except IllegalStepError:
        return
    gone = {w.seq for w in reset.superseded}
    for w in WINDOWS:
        for p, owned in w.ranges.without_empty().items():
            if w.seq in gone:
                assert reset.position.offsets[p] <= owned.start
            else:
                assert reset.position.offsets[p] >= owned.end


# What a replay has filled below the watermark.

FILLED = replace(window({tp(0): (0, 10)}, 4), lane=Lane.BACKFILL)
LATE = [replace(THIRD, seq=3), SECOND]  # the group started at 10


def test_backwards_takes_the_backfill_windows_in_its_way_along() -> None:
    reset = plan_reset("lake", BEFORE, {tp(0): 0, tp(1): 5}, LOG, LATE, [FILLED])
    assert [w.seq for w in reset.superseded] == [2, 3, 4]
    above = plan_reset("lake", BEFORE, {tp(0): 10, tp(1): 5}, LOG, LATE, [FILLED])
    assert [w.seq for w in above.superseded] == [2, 3]
    forwards = plan_reset("lake", BEFORE, {tp(0): 50}, LOG, LATE, [FILLED])
    assert forwards.superseded == ()


def test_a_backfill_window_is_not_cut_either() -> None:
    with pytest.raises(
        IllegalStepError,
        match=r"(?s)lake-000004 owns orders-0 offsets \[0, 10\).*repeat the refused command:\n.*--to-window lake-000002",
    ):
        plan_reset("lake", BEFORE, {tp(0): 5, tp(1): 5}, LOG, LATE, [FILLED])


def test_the_way_out_of_a_backfill_window_alone_is_its_offsets_because_no_live_window_may_start_there() -> None:
    with pytest.raises(IllegalStepError, match=r"""reset lake --to '\{"orders":\{"0":0\}\}' --why""") as raised:
        plan_reset("lake", position({tp(0): 10, tp(1): 5}), {tp(0): 4}, LOG, [], [FILLED])
    assert "--to-window" not in str(raised.value)
    assert plan_reset("lake", position({tp(0): 10, tp(1): 5}), {tp(0): 0}, LOG, [], [FILLED]).superseded == (FILLED,)
    with pytest.raises(IllegalStepError, match="Use a group of another name"):
        plan_reset("lake", position({tp(0): 10}), {tp(0): 4}, log({tp(0): (1, 100)}), [], [FILLED])


def test_a_backfill_window_that_is_open_is_in_the_way() -> None:
    waiting = replace(FILLED, state=State.PLANNED)
    with pytest.raises(
        IllegalStepError,
        match=r"(?s)lake-000004, which is planned.*abandon it first:\n    kafka-offsets abandon lake-000004",
    ):
        plan_reset("lake", BEFORE, {tp(0): 0, tp(1): 5}, LOG, LATE, [waiting])
    assert plan_reset("lake", BEFORE, {tp(0): 10, tp(1): 5}, LOG, LATE, [waiting]).superseded


# A window of two topics, one of which was recreated and reset since.

CLICKS = tp(0, "clicks")
BOTH = window({tp(0): (0, 10), CLICKS: (0, 5)}, 1, clicks="old")
ON_BOTH = window({tp(0): (10, 20), CLICKS: (0, 3)}, 2, clicks="new")
AFTER_BOTH = position({tp(0): 20, CLICKS: 3}, clicks="new")
READS = ["orders", "clicks"]


def test_what_a_window_owns_of_an_earlier_topic_does_not_hold_it_back_and_is_named_as_a_gap() -> None:
    before = position({tp(0): 10, CLICKS: 0}, clicks="new")
    reset = plan_reset("lake", before, {tp(0): 0}, log({tp(0): (0, 5)}), [BOTH], reads=READS)
    assert reset.superseded == (BOTH,)
    assert reset.position == position({tp(0): 0, CLICKS: 0}, clicks="new")
    assert reset.unread == {"lake-000001": ranges({CLICKS: (0, 5)})}
    assert summary_of_reset(reset)["unread"] == {"lake-000001": {"clicks-0": [0, 5]}}
    assert reset.irreplaceable == ("lake-000001 orders-0 [0, 10)",)
    with pytest.raises(
        ConfirmationError, match=r"lake-000001 clicks-0 \[0, 5\) again, as their topic was recreated: keep"
    ) as raised:
        check_confirmed("lake", reset, confirmed=False)
    assert "no longer reads" not in str(raised.value)


def test_what_is_of_an_earlier_topic_and_what_left_the_group_have_their_own_sentences() -> None:
    refunds = tp(0, "refunds")
    three = window({tp(0): (0, 10), CLICKS: (0, 5), refunds: (0, 2)}, 1, clicks="old")
    before = position({tp(0): 10, CLICKS: 0, refunds: 2}, clicks="new")
    reset = plan_reset("lake", before, {tp(0): 0}, log({tp(0): (0, 10)}), [three], reads=READS)
    with pytest.raises(
        ConfirmationError,
        match=r"(?s)clicks-0 \[0, 5\) again, as their topic was.*refunds-0 \[0, 2\) again, as the group no longer",
    ):
        check_confirmed("lake", reset, confirmed=False)


def test_the_start_of_a_window_leaves_out_what_is_of_an_earlier_topic() -> None:
    assert window_starts(BOTH, AFTER_BOTH, [ON_BOTH, BOTH]) == {tp(0): 0, CLICKS: 0}
    before = position({tp(0): 10, CLICKS: 0}, clicks="new")
    assert window_starts(BOTH, before, [BOTH]) == {tp(0): 0}
    later = window({tp(0): (10, 20), CLICKS: (5, 8)}, 2, clicks="old")
    third = window({tp(0): (20, 20), CLICKS: (2, 3)}, 3, clicks="new")
    assert window_starts(BOTH, AFTER_BOTH, [third, later, BOTH]) == {tp(0): 0, CLICKS: 2}


def test_an_earlier_topic_of_which_a_window_has_no_record_is_no_obstacle() -> None:
    quiet = window({tp(0): (0, 10), CLICKS: (5, 5)}, 1, clicks="old")
    assert window_starts(quiet, position({tp(0): 10, CLICKS: 3}, clicks="new"), [quiet]) == {tp(0): 0}


def test_a_window_of_earlier_topics_alone_names_the_way_to_the_one_of_today() -> None:
    alone = window({tp(0): (4, 4), CLICKS: (0, 5)}, 1, clicks="old")
    with pytest.raises(IllegalStepError, match="reset lake --topic clicks --to earliest --why"):
        window_starts(alone, position({tp(0): 4, CLICKS: 3}, clicks="new"), [alone])


def test_the_way_out_goes_by_the_topic_and_not_by_offsets_alone() -> None:
    seen = log(
        {tp(0): (0, 20), CLICKS: (2, 3)}, clicks="new"
    )  # [0, 2) of CLICKS have expired, which is nothing to BOTH
    windows = [window({tp(0): (10, 20), CLICKS: (2, 3)}, 2, clicks="new"), BOTH]
    with pytest.raises(IllegalStepError, match="--to-window lake-000001"):
        plan_reset("lake", AFTER_BOTH, {tp(0): 5, CLICKS: 2}, seen, windows, reads=READS)


def test_the_way_out_does_not_lead_to_where_a_later_window_took_up_what_has_expired_since() -> None:
    added = [window({tp(0): (10, 20), tp(1): (0, 3)}, 2), window({tp(0): (0, 10)}, 1)]
    seen = log({tp(0): (0, 20), tp(1): (2, 3)})
    with pytest.raises(IllegalStepError, match="Use a group of another name"):
        plan_reset("lake", position({tp(0): 20, tp(1): 3}), {tp(0): 5, tp(1): 2}, seen, added)
    anew = log({tp(0): (0, 20), CLICKS: (2, 3)}, clicks="new")
    with pytest.raises(IllegalStepError, match="Use a group of another name"):
        plan_reset("lake", AFTER_BOTH, {tp(0): 5, CLICKS: 2}, anew, [ON_BOTH, BOTH], reads=READS)


# A window of two topics, one of which was recreated and not reset yet.


def test_the_start_of_a_window_leaves_a_recreated_topic_to_its_own_reset() -> None:
    before = position({tp(0): 10, CLICKS: 5}, clicks="old")
    assert window_starts(BOTH, before, [BOTH], topic_ids={"orders": "id-of-orders", "clicks": "new"}) == {tp(0): 0}
    assert window_starts(BOTH, before, [BOTH], topic_ids={"orders": "id-of-orders"}) == {tp(0): 0, CLICKS: 0}
    with pytest.raises(IllegalStepError, match="read an earlier topic clicks, orders"):
        window_starts(BOTH, before, [BOTH], topic_ids={"orders": "new", "clicks": "new"})


def test_what_a_window_owns_of_a_recreated_topic_does_not_hold_it_back_before_that_topic_is_reset() -> None:
    before = position({tp(0): 10, CLICKS: 5}, clicks="old")
    seen = log({tp(0): (0, 20), CLICKS: (0, 9)}, clicks="new")
    reset = plan_reset("lake", before, {tp(0): 0}, seen, [BOTH], reads=READS)
    assert reset.superseded == (BOTH,)
    assert reset.position == position({tp(0): 0, CLICKS: 5}, clicks="old")
    assert reset.unread == {"lake-000001": ranges({CLICKS: (0, 5)})}
    with pytest.raises(
        ConfirmationError, match=r"lake-000001 clicks-0 \[0, 5\) again, as their topic was recreated: keep"
    ) as raised:
        check_confirmed("lake", reset, confirmed=False)
    assert "no longer reads" not in str(raised.value)


def test_the_way_out_goes_by_all_windows_since_and_not_only_by_those_that_would_be_superseded() -> None:
    added = window({tp(0): (20, 20), tp(2): (0, 3)}, 3)  # owns nothing of the partition that goes back
    windows = [window({tp(0): (20, 30), tp(2): (3, 3)}, 4), added, window({tp(0): (10, 20)}, 2)]
    seen = log({tp(0): (0, 100), tp(2): (2, 3)})
    with pytest.raises(IllegalStepError, match="--to-window lake-000004"):
        plan_reset("lake", position({tp(0): 30, tp(2): 3}), {tp(0): 15}, seen, windows)
