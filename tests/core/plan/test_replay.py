"""Who owns the offsets of a replay: the laws of taking away, cutting and refusing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.errors import (
    BadInputError,
    DataLossError,
    IllegalStepError,
    LogTruncatedError,
    NotYetError,
    TopicRecreatedError,
)
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan import replay
from airflow_kafka_offsets.core.plan.ownership import GroupState
from airflow_kafka_offsets.core.plan.replay import (
    MAX_BACKFILL_WINDOWS,
    Gaps,
    between_times,
    check_below_watermark,
    check_divides,
    check_in_log,
    check_not_truncated,
    check_replayable,
    cut_backfill,
    left_to_find,
    may_replay,
    nothing_to_replay,
    overlapping,
    without_owner,
)
from airflow_kafka_offsets.core.plan.request import TimeSpan
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.window import Lane, State, Window, WindowRecord
from tests.core.examples import NOON, claim, group, log, position, ranges, tp, window

IDS = {"orders": "id-of-orders"}
Record = tuple[TopicPartition, int]


def spelled(gaps: Gaps) -> list[Record]:
    """Spell out all offsets."""
    return [(p, offset) for p, pieces in gaps.items() for r in pieces for offset in range(r.start, r.end)]


def records(asked: OffsetRanges) -> list[Record]:
    """Spell out ranges."""
    return spelled({p: [r] for p, r in asked.items()})


def gaps_of(*pieces: tuple[int, int], partition: int = 0) -> dict[TopicPartition, list[OffsetRange]]:
    """Name gaps of one partition."""
    return {tp(partition): [OffsetRange(*piece) for piece in pieces]}


def backfill(bounds: dict[TopicPartition, tuple[int, int]], seq: int, state: State = State.COMMITTED) -> Window:
    """Make a window that a replay cut."""
    return replace(window(bounds, seq, state), lane=Lane.BACKFILL)


@st.composite
def histories(draw: st.DrawFn) -> tuple[OffsetRanges, list[Window], list[Window]]:
    """Draw what is asked, live windows that tile two partitions with gaps, and backfill windows in some of the gaps."""
    live, filled = [], []
    at = {tp(0): draw(st.integers(0, 8)), tp(1): draw(st.integers(0, 8))}
    if draw(st.booleans()) and any(at.values()):
        filled.append({p: (0, end) for p, end in at.items()})
    for _ in range(draw(st.integers(0, 6))):
        gap = {p: (start, start + draw(st.integers(0, 4))) for p, start in at.items()}
        if draw(st.booleans()):
            filled.append(gap)
        bounds = {p: (start, start + draw(st.integers(0, 6))) for p, (_, start) in gap.items()}
        live.append(bounds)
        at = {p: end for p, (_, end) in bounds.items()}
    numbers = iter(range(1, 100))
    windows = [window(b, next(numbers)) for b in live]
    fills = [backfill(b, next(numbers)) for b in filled]
    low = {p: draw(st.integers(0, 20)) for p in at}
    asked = OffsetRanges((p, OffsetRange(s, s + draw(st.integers(0, 25)))) for p, s in low.items())
    return asked, windows, fills


@given(histories())
def test_what_is_asked_is_what_windows_own_and_what_nobody_does(
    history: tuple[OffsetRanges, list[Window], list[Window]],
) -> None:
    asked, live, filled = history
    everything = [WindowRecord.of(w, claim()) for w in [*filled, *reversed(live)]]
    owners = [held.window for held in overlapping(asked, everything, IDS)]
    gaps = without_owner(asked, owners, IDS)
    wanted, owned = set(records(asked)), [r for w in [*live, *filled] for r in records(w.ranges)]
    assert len(owned) == len(set(owned))
    assert sorted(spelled(gaps)) == sorted(wanted - set(owned))
    by_hand = {w.id for w in [*live, *filled] if wanted & set(records(w.ranges))}
    assert {w.id for w in owners} == by_hand
    assert all(pieces for pieces in gaps.values())
    assert all(a.end <= b.start for pieces in gaps.values() for a, b in pairwise(pieces))


@given(histories(), st.none() | st.integers(1, 30))
def test_gaps_are_cut_into_windows_exactly(
    history: tuple[OffsetRanges, list[Window], list[Window]], max_offsets: int | None
) -> None:
    asked, live, filled = history
    gaps = without_owner(asked, [*live, *filled], IDS)
    cuts = cut_backfill(gaps, max_offsets)
    cut = [record for ranges_ in cuts for record in records(ranges_)]
    assert sorted(cut) == sorted(spelled(gaps))
    assert all(0 < c.span <= (max_offsets or c.span) for c in cuts)
    assert all(r.span for c in cuts for r in c.values())


@given(st.integers(1, 100), st.integers(1, 20))
def test_the_cap_is_exact_and_only_the_last_window_is_smaller(span: int, max_offsets: int) -> None:
    cuts = cut_backfill({tp(0): [OffsetRange(3, 3 + span)], tp(1): [OffsetRange(0, 2 * span)]}, max_offsets)
    assert [c.span for c in cuts[:-1]] == [max_offsets] * (len(cuts) - 1)
    assert len(cuts) == -(-3 * span // max_offsets)


def test_a_partition_with_several_gaps_has_one_range_in_a_window() -> None:
    gaps = gaps_of((0, 5), (10, 12), (20, 21)) | gaps_of((7, 9), partition=1)
    assert cut_backfill(gaps, None) == [
        ranges({tp(0): (0, 5), tp(1): (7, 9)}),
        ranges({tp(0): (10, 12)}),
        ranges({tp(0): (20, 21)}),
    ]
    assert cut_backfill({}, 5) == []


def test_a_replay_that_makes_too_many_windows_is_refused() -> None:
    assert len(cut_backfill(gaps_of((0, MAX_BACKFILL_WINDOWS)), 1)) == MAX_BACKFILL_WINDOWS
    with pytest.raises(BadInputError, match="With max_offsets=1 this replay makes more than 10000 windows"):
        cut_backfill(gaps_of((0, MAX_BACKFILL_WINDOWS + 1)), 1)


def test_windows_of_an_earlier_topic_of_the_name_own_nothing_today() -> None:
    old = WindowRecord.of(window({tp(): (0, 10)}, orders="old"), claim())
    asked = ranges({tp(): (0, 5)})
    assert overlapping(asked, [old], IDS) == []
    assert without_owner(asked, [old.window], IDS) == gaps_of((0, 5))
    assert overlapping(asked, [old], {"orders": "old"}) == [old]


def test_the_search_ends_for_a_partition_at_the_live_window_that_starts_before_all_that_is_asked() -> None:
    asked = ranges({tp(0): (10, 25), tp(1): (5, 6)})
    assert left_to_find(asked, window({tp(0): (20, 30)}, 3), IDS) == asked
    assert left_to_find(asked, window({tp(0): (10, 20)}, 2), IDS) == ranges({tp(1): (5, 6)})
    of_another_topic = window({tp(0): (0, 20), tp(1): (0, 9)}, 1, orders="old")
    assert left_to_find(asked, of_another_topic, IDS) == ranges({})


# Refused, with numbers.


def state(watermark: dict[TopicPartition, int], *open_windows: Window) -> GroupState:
    """Let the next live window start here, with some open ones before."""
    return GroupState(1, position(watermark), tuple(WindowRecord.of(w, claim()) for w in open_windows))


def test_offsets_at_or_above_the_watermark_are_refused_with_the_numbers() -> None:
    now = log({tp(0): (0, 100), tp(1): (0, 100)})
    check_below_watermark(gaps_of((0, 50)), state({tp(0): 50}), now)
    with pytest.raises(BadInputError) as raised:
        check_below_watermark(
            gaps_of((0, 5), (40, 60)) | gaps_of((70, 80), partition=1), state({tp(0): 50, tp(1): 50}), now
        )
    assert "orders-0: offsets [50, 60) (watermark 50); orders-1: offsets [70, 80) (watermark 50)." in str(raised.value)


def test_the_watermark_is_that_of_the_oldest_open_window() -> None:
    now = log({tp(0): (0, 100)})
    open_window = window({tp(0): (30, 50)}, 3, State.PLANNED)
    check_below_watermark(gaps_of((0, 30)), state({tp(0): 50}, open_window), now)
    with pytest.raises(BadInputError, match=r"orders-0: offsets \[30, 31\) \(watermark 30\)"):
        check_below_watermark(gaps_of((0, 31)), state({tp(0): 50}, open_window), now)


def test_a_partition_that_the_group_does_not_know_yet_is_the_live_lanes_from_its_beginning() -> None:
    with pytest.raises(BadInputError, match=r"orders-7: offsets \[4, 6\) \(watermark 4\)"):
        check_below_watermark(gaps_of((4, 6), partition=7), state({tp(0): 50}), log({tp(0): (0, 9), tp(7): (4, 9)}))


def test_expired_offsets_are_refused_with_the_numbers() -> None:
    here, now = position({tp(0): 50, tp(1): 50}), log({tp(0): (20, 100), tp(1): (20, 100)})
    check_in_log(gaps_of((20, 30)), now, here)
    with pytest.raises(DataLossError) as raised:
        check_in_log(gaps_of((3, 5), (15, 30)) | gaps_of((1, 9), partition=1), now, here)
    assert str(raised.value) == (
        "orders-0: offsets [3, 20) (beginning offset 20); orders-1: offsets [1, 9) (beginning offset 20). "
        "These offsets expired without an owner: ask for later ones"
    )
    assert set(raised.value.partitions) == {tp(0), tp(1)}


def test_offsets_behind_the_end_of_a_truncated_log_are_refused_with_the_numbers() -> None:
    now = log({tp(0): (0, 20)})
    check_not_truncated(gaps_of((5, 20)), now)
    with pytest.raises(LogTruncatedError, match=r"orders-0: offsets \[20, 25\) \(end offset 20\)"):
        check_not_truncated(gaps_of((5, 7), (10, 25)), now)


def test_what_is_above_the_watermark_is_not_lost_although_the_log_ends_before_it() -> None:
    now = log({tp(0): (0, 20)})
    with pytest.raises(NotYetError, match=r"orders-0: offsets \[20, 30\) \(watermark 20\)"):
        replay.backfill(group(), gaps_of((5, 30)), state({tp(0): 20}), now, NOON)
    with pytest.raises(DataLossError, match=r"orders-0: offsets \[5, 10\)"):
        replay.backfill(group(), gaps_of((5, 30)), state({tp(0): 20}), log({tp(0): (10, 20)}), NOON)


def test_a_draft_has_the_topics_of_its_ranges_whatever_else_was_looked_at() -> None:
    now = log({tp(0): (0, 20), tp(0, "refunds"): (0, 5)})
    drafts = replay.backfill(group(max_offsets=10), gaps_of((5, 20)), state({tp(0): 20}), now, NOON)
    assert [draft.ranges for draft in drafts] == [ranges({tp(0): (5, 15)}), ranges({tp(0): (15, 20)})]
    assert {tuple(draft.topic_ids) for draft in drafts} == {("orders",)}
    assert {(draft.lane, draft.planned_until) for draft in drafts} == {(Lane.BACKFILL, NOON)}


def test_partitions_that_are_not_there_and_topics_that_were_recreated_are_refused() -> None:
    here = position({tp(0): 50})
    with pytest.raises(BadInputError, match="Kafka has no partition orders-5, orders-6"):
        check_in_log(gaps_of((0, 1), partition=6) | gaps_of((0, 1), partition=5), log({tp(0): (0, 9)}), here)
    with pytest.raises(TopicRecreatedError, match="orders-0: topic orders was recreated"):
        check_in_log(gaps_of((0, 1)), log({tp(0): (0, 9)}, orders="new"), here)


@pytest.mark.parametrize(
    ("lane", "state", "may"),
    [
        (Lane.LIVE, State.PLANNED, False),
        (Lane.LIVE, State.COMMITTING, False),
        (Lane.LIVE, State.COMMITTED, True),
        (Lane.LIVE, State.ABANDONED, False),
        (Lane.LIVE, State.SUPERSEDED, False),
        (Lane.BACKFILL, State.PLANNED, True),
        (Lane.BACKFILL, State.COMMITTING, True),
        (Lane.BACKFILL, State.COMMITTED, True),
        (Lane.BACKFILL, State.ABANDONED, False),
        (Lane.BACKFILL, State.SUPERSEDED, False),
    ],
)
def test_which_windows_a_replay_may_run(lane: Lane, state: State, may: bool) -> None:
    one = replace(window({tp(): (0, 5)}, 4, state), lane=lane)
    assert may_replay(one) is may
    if may:
        check_replayable(one)
        return
    why = "An ordinary run" if state.is_open else "no longer owns anything"
    with pytest.raises(IllegalStepError, match=f"lake-000004 (is|was) {state}.*{why}"):
        check_replayable(one)


# By time.


@given(
    st.dictionaries(
        st.integers(0, 3).map(tp), st.tuples(st.integers(0, 5), st.lists(st.integers(0, 20), max_size=30)), min_size=1
    ),
    st.lists(st.integers(-1, 22), min_size=2, max_size=6, unique=True).map(sorted),
)
def test_spans_that_follow_each_other_tile_the_log_whatever_the_order_of_timestamps(
    logs: dict[TopicPartition, tuple[int, list[int]]], times: list[int]
) -> None:
    now = log({p: (min(b, len(stamps)), len(stamps)) for p, (b, stamps) in logs.items()})

    def at(time: int) -> dict[TopicPartition, int | None]:
        return {
            p: next((o for o in range(now.bounds[p].beginning, len(stamps)) if stamps[o] >= time), None)
            for p, (_, stamps) in logs.items()
        }

    spans = [between_times(at(start), at(end), now) for start, end in pairwise(times)]
    whole = between_times(at(times[0]), at(times[-1]), now)
    for p, r in whole.items():
        assert [s[p].start for s in spans] + [spans[-1][p].end] == [r.start] + [s[p].end for s in spans]
        assert (spans[0][p].start, spans[-1][p].end) == (r.start, r.end)
    if times[0] == -1 and times[-1] == 22:
        assert whole.span == sum(b.end - b.beginning for b in now.bounds.values())


def test_a_partition_without_records_in_the_span_is_an_empty_range() -> None:
    now = log({tp(0): (0, 10), tp(1): (5, 5), tp(2): (0, 10)})
    found = between_times({tp(0): 3, tp(1): None, tp(2): None}, {tp(0): 3, tp(1): None, tp(2): None}, now)
    assert found == ranges({tp(0): (3, 3), tp(1): (5, 5), tp(2): (10, 10)})


def test_an_index_that_is_newer_than_the_end_offset_is_an_empty_range() -> None:
    assert between_times({tp(): 12}, {tp(): None}, log({tp(): (0, 10)})) == ranges({tp(): (12, 12)})


def test_an_interval_without_width_is_refused_and_the_timetable_named() -> None:
    check_divides(TimeSpan(NOON, NOON + timedelta(seconds=1), is_interval=True))
    with pytest.raises(
        BadInputError, match=r"starts and ends at 2026-01-31T12:00:00\+00:00.*CronDataIntervalTimetable"
    ):
        check_divides(TimeSpan(NOON, NOON, is_interval=True))


def test_nothing_to_replay_names_the_windows_that_own_the_records() -> None:
    assert "kafka-offsets windows GROUP" in str(nothing_to_replay("no window was cut then"))
    text = str(nothing_to_replay("no window was cut then", [window({tp(): (0, 1)}, 7)]))
    assert text == (
        "There is nothing to replay: no window was cut then. Other windows own the records of that time. Name these windows: lake-000007"
    )


def test_errors_stay_readable_with_20000_partitions() -> None:
    many = {tp(i): [OffsetRange(0, 10)] for i in range(20_000)}
    now = log(dict.fromkeys(many, (5, 10)))
    for check in (
        lambda: check_in_log(many, now, position({tp(0): 5})),
        lambda: check_in_log(many, log({}), position({tp(0): 5})),
        lambda: check_in_log(many, log(dict.fromkeys(many, (0, 10)), orders="new"), position({tp(0): 5})),
        lambda: check_below_watermark(many, state(dict.fromkeys(many, 5)), now),
    ):
        with pytest.raises(Exception, match="and 19990 more") as raised:
            check()
        assert len(str(raised.value)) < 3000


def test_pieces_of_many_partitions_share_windows() -> None:
    gaps = {tp(i): [OffsetRange(20 * j, 20 * j + 10) for j in range(10)] for i in range(1000)}
    assert [len(cut) for cut in cut_backfill(gaps, None)] == [1000] * 10
