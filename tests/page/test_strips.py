"""Strips are rectangles: their layout is tested without a browser."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.window import Lane, State, Window
from airflow_kafka_offsets.page import strips
from airflow_kafka_offsets.page.strips import READ, Axis, Block, Kind, Part
from tests.core.examples import NOON, ranges, tp, window

HOUR = timedelta(hours=1)


def live(seq: int, start: int, end: int, state: State = State.COMMITTED, hours: float | None = None) -> Window:
    """Make a live window of one partition, cut an hour after the one before it."""
    return replace(
        window({tp(): (start, end)}, seq, state), planned_until=NOON + (seq if hours is None else hours) * HOUR
    )


def backfill(seq: int, start: int, end: int, state: State = State.COMMITTED) -> Window:
    """Make a backfill window of one partition."""
    return replace(live(seq, start, end, state), lane=Lane.BACKFILL)


def drawn(
    windows: Iterable[Window], axis: Axis = Axis.OFFSET, part: Part = strips.ALL
) -> list[tuple[str, float, float]]:
    """Return kind, place and width of the blocks of the only strip, from left to right."""
    [strip] = strips.figure(list(windows), axis, part).strips
    return [(b.kind.value, b.x, b.width) for b in sorted(strip.blocks, key=lambda b: (b.x, b.start))]


def test_blocks_are_the_share_of_the_log() -> None:
    strip = drawn([live(1, 0, 100), live(2, 100, 150), live(3, 150, 200, State.PLANNED)])
    assert strip == [("committed", 0, 45), ("committed", 45, 22.5), ("open", 67.5, 22.5)]


def test_neighbors_have_different_shades() -> None:
    [strip] = strips.figure([live(1, 0, 10), live(2, 10, 20), live(3, 20, 30)]).strips
    assert [block.is_odd for block in sorted(strip.blocks, key=lambda b: b.x)] == [True, False, True]


def test_what_no_one_owns_is_a_gap() -> None:
    assert drawn([live(1, 0, 50), live(2, 70, 100)]) == [
        ("committed", 0, 45),
        ("gap", 45, 18),
        ("committed", 63, 27),
    ]


def test_a_backfill_closes_a_gap() -> None:
    kinds = [kind for kind, _, _ in drawn([live(1, 0, 50), live(2, 70, 100), backfill(3, 50, 70)])]
    assert kinds == ["committed", "backfill", "committed"]


def test_lost_offsets_are_no_gap_and_lie_before_the_window_that_lost_them() -> None:
    lossy = replace(live(2, 70, 100), lost=ranges({tp(): (50, 70)}))
    assert [kind for kind, _, _ in drawn([live(1, 0, 50), lossy])] == ["committed", "lost", "committed"]


def test_superseded_windows_leave_a_trace_and_own_nothing() -> None:
    strip = drawn([live(1, 0, 50), live(2, 50, 100, State.SUPERSEDED), live(3, 50, 80)])
    assert strip == [("committed", 0, 45), ("committed", 45, 27), ("superseded", 45, 45)]


def test_an_abandoned_window_is_not_drawn() -> None:
    assert [kind for kind, _, _ in drawn([live(1, 0, 50), live(2, 50, 100, State.ABANDONED)])] == ["committed"]


def test_a_partition_that_nothing_was_read_of_has_an_empty_strip_where_its_next_window_starts() -> None:
    both = window({tp(0): (0, 5), tp(1): (7, 7)})
    assert [(s.tp, len(s.blocks), s.first, s.last) for s in strips.figure([both]).strips] == [
        (tp(0), 1, 0, 5),
        (tp(1), 0, 7, 7),
    ]
    starts = {tp(0): 5, tp(1): 7, tp(2): 40}
    assert [(s.tp, s.first, s.last) for s in strips.figure([both], starts=starts).strips][1:] == [
        (tp(1), 7, 7),
        (tp(2), 40, 40),
    ]


@pytest.mark.parametrize("axis", Axis)
def test_a_page_between_keeps_the_strip_of_a_partition_whose_blocks_it_cuts_off(axis: Axis) -> None:
    windows = [
        replace(window({tp(0): (n * 10, n * 10 + 10), tp(1): (50, 50)}, n), planned_until=NOON + n * HOUR)
        for n in (7, 8)
    ] + [replace(window({tp(1): (0, 10)}, 30), lane=Lane.BACKFILL)]
    part = Part(has_oldest=False, has_newest=False)
    drawn_strips = strips.figure(windows, axis, part, {tp(0): 90, tp(1): 50}).strips
    assert [(strip.tp, bool(strip.blocks)) for strip in drawn_strips] == [(tp(0), True), (tp(1), False)]


def test_after_a_reset_backwards_the_next_window_starts_before_the_end_of_what_was_superseded() -> None:
    windows = [live(1, 0, 50), live(2, 50, 100, State.SUPERSEDED)]
    [strip] = strips.figure(windows, starts={tp(): 50}).strips
    assert (strip.first, strip.last, strip.next) == (0, 100, 50)
    assert [block.kind for block in strip.blocks] == [Kind.COMMITTED, Kind.SUPERSEDED]


def test_what_a_reset_forwards_left_out_is_a_gap_at_once() -> None:
    windows = [live(1, 0, 50), live(2, 50, 60)]
    [strip] = strips.figure(windows, starts={tp(): 90}).strips
    assert [(block.kind, block.start, block.end) for block in strip.blocks][-1] == (Kind.GAP, 60, 90)
    assert (strip.last, strip.next) == (90, 90)
    [older] = strips.figure(windows, starts={tp(): 90}, part=Part(has_newest=False)).strips
    assert Kind.GAP not in [block.kind for block in older.blocks]
    [filled] = strips.figure([backfill(9, 0, 10)], starts={tp(): 90}).strips
    assert Kind.GAP not in [block.kind for block in filled.blocks], "live windows that are not shown may own it"


def test_what_needs_a_look_is_seen_even_if_it_is_thin() -> None:
    thin = replace(live(2, 1_000_001, 2_000_000), lost=ranges({tp(): (1_000_000, 1_000_001)}))
    [width] = [width for kind, _, width in drawn([live(1, 0, 1_000_000), thin]) if kind == "lost"]
    assert width == strips.LEAST


def test_by_time_a_window_lies_between_two_cuts() -> None:
    strip = drawn([live(1, 0, 10), live(2, 10, 500), live(3, 500, 510, hours=5)], Axis.TIME)
    assert strip == [("committed", 0, 22.5), ("committed", 22.5, 67.5)]


def test_by_time_all_strips_have_one_axis() -> None:
    windows = [
        replace(window({tp(0): (n * 7, n * 7 + 7), tp(1): (n, n + 1)}, n + 1), planned_until=NOON + n * HOUR)
        for n in range(4)
    ]
    first, second = strips.figure(windows, Axis.TIME).strips
    assert [(b.x, b.width) for b in first.blocks] == [(b.x, b.width) for b in second.blocks]


def test_one_window_alone_is_drawn_by_offset() -> None:
    assert strips.figure([live(1, 0, 5)], Axis.TIME).axis is Axis.OFFSET


def test_an_older_page_cuts_off_what_lies_below_it() -> None:
    windows = [live(7, 700, 800), live(8, 800, 900), backfill(9, 0, 100)]
    assert [kind for kind, _, _ in drawn(windows, part=Part(has_oldest=False))] == ["committed", "committed"]
    assert [kind for kind, _, _ in drawn(windows)] == ["backfill", "gap", "committed", "committed"]


def test_a_page_between_cuts_off_what_lies_above_it() -> None:
    windows = [live(7, 700, 800), live(8, 800, 900), backfill(30, 2_000, 2_500)]
    assert [kind for kind, _, _ in drawn(windows, part=Part(has_newest=False))] == ["committed", "committed"]


def test_what_pruned_windows_may_have_owned_is_no_gap() -> None:
    windows = [backfill(9, 0, 100), live(8, 700, 800)]
    strip = drawn(windows, part=Part(floors={tp(): 400}))
    assert [kind for kind, _, _ in strip] == ["backfill", "pruned", "gap", "committed"]
    assert [kind for kind, _, _ in drawn(windows, part=Part(floors={tp(): 700}))] == ["backfill", "pruned", "committed"]
    assert [kind for kind, _, _ in drawn(windows, part=Part(floors={tp(1): 700}))] == ["backfill", "gap", "committed"]


def test_a_span_of_time_is_the_axis_and_its_first_window_has_its_width() -> None:
    hours = Part(has_oldest=False, start=NOON + HOUR, end=NOON + 5 * HOUR)
    strip = drawn([live(2, 10, 20), live(3, 20, 30)], Axis.TIME, hours)
    assert strip == [("committed", 0, 22.5), ("committed", 22.5, 22.5)]


def test_one_window_of_a_span_is_drawn_by_time() -> None:
    figure = strips.figure([live(3, 20, 30)], Axis.TIME, Part(start=NOON, end=NOON + 6 * HOUR))
    assert figure.axis is Axis.TIME
    assert [(block.x, block.width) for block in figure.strips[0].blocks] == [(0, 45)]


@pytest.mark.parametrize(
    ("hours", "first", "step"),
    [(5, NOON, HOUR), (48, NOON, 12 * HOUR), (24 * 30, NOON.replace(month=2, day=2, hour=0), 7 * 24 * HOUR)],
)
def test_ticks_are_round(hours: int, first: datetime, step: timedelta) -> None:
    ticks = strips.ticks(NOON, NOON + hours * HOUR)
    assert ticks[0].at == first
    assert {b.at - a.at for a, b in itertools.pairwise(ticks)} == {step}
    assert len(ticks) <= 7
    assert all(0 <= tick.x <= READ for tick in ticks)


spans = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=30)


def tiled(steps: list[tuple[int, int]]) -> list[Window]:
    """Return windows, each after a gap of some length, maybe none."""
    windows: list[Window] = []
    reached = 0
    for seq, (gap, span) in enumerate(steps, 1):
        windows.append(live(seq, reached + gap, reached + gap + span))
        reached += gap + span
    return windows


@given(spans)
def test_pieces_tile_what_they_reach_over(steps: list[tuple[int, int]]) -> None:
    windows = tiled(steps)
    some = strips.pieces_of(tp(), strips.layers_of(windows))
    assert some[0].start == windows[0].ranges[tp()].start
    assert some[-1].end == windows[-1].ranges[tp()].end
    assert all(a.end == b.start for a, b in itertools.pairwise(some))
    assert [piece.seq for piece in some if piece.kind is Kind.COMMITTED] == [w.seq for w in windows]


@given(spans, st.integers(0, 2_000))
def test_pruned_offsets_and_gaps_meet_at_the_floor(steps: list[tuple[int, int]], floor: int) -> None:
    some = strips.pieces_of(tp(), strips.layers_of(tiled(steps)), floor)
    assert all(a.end == b.start for a, b in itertools.pairwise(some))
    assert all(piece.end <= floor for piece in some if piece.kind is Kind.PRUNED)
    assert all(piece.start >= floor for piece in some if piece.kind is Kind.GAP)


@given(spans, st.sampled_from(Axis))
def test_blocks_stay_in_the_strip_in_the_order_of_their_offsets(steps: list[tuple[int, int]], axis: Axis) -> None:
    figure = strips.figure(tiled(steps), axis)
    for strip in figure.strips:
        blocks: list[Block] = sorted(strip.blocks, key=lambda block: block.start)
        assert all(block.x >= 0 and block.x + block.width <= READ + 0.01 for block in blocks)
        assert all(a.x <= b.x + strips.LEAST for a, b in itertools.pairwise(blocks))


def test_the_strips_are_in_the_order_of_their_partitions() -> None:
    both = window({TopicPartition("b", 0): (0, 5), TopicPartition("a", 11): (0, 5), TopicPartition("a", 2): (0, 5)})
    assert [str(strip.tp) for strip in strips.figure([both]).strips] == ["a-2", "a-11", "b-0"]
