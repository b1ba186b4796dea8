"""The cap: exact, serves small partitions whole, starves none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.planning import cap
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from tests.core.examples import ranges, tp

backlogs = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 300)), min_size=1, max_size=12)


def _ranges(backlog: list[tuple[int, int]]) -> OffsetRanges:
    return OffsetRanges((tp(i), OffsetRange(start, start + span)) for i, (start, span) in enumerate(backlog))


@given(backlogs, st.integers(1, 4000))
def test_the_cap_is_exact(backlog: list[tuple[int, int]], amount: int) -> None:
    full = _ranges(backlog)
    capped = cap(full, amount)
    assert capped.span == min(amount, full.span)
    assert capped.starts == full.starts
    assert all(capped[p].end <= full[p].end for p in full)


@given(backlogs, st.integers(1, 4000))
def test_nobody_gets_more_than_one_offset_above_a_partition_that_was_cut(
    backlog: list[tuple[int, int]], amount: int
) -> None:
    full = _ranges(backlog)
    capped = cap(full, amount)
    cut = [capped[p].span for p in full if capped[p].span < full[p].span]
    assert all(capped[p].span <= least + 1 for least in cut for p in full)


def test_small_partitions_are_served_whole() -> None:
    full = ranges({tp(0): (0, 1000), tp(1): (50, 53), tp(2): (0, 500), tp(3): (9, 9)})
    assert cap(full, 103).ends == {tp(0): 50, tp(1): 53, tp(2): 50, tp(3): 9}


def test_without_a_cap_or_below_it_nothing_is_cut() -> None:
    full = ranges({tp(0): (0, 10)})
    assert cap(full, None) is full
    assert cap(full, 10) is full


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 40)), min_size=2, max_size=10), st.integers(1, 9), st.data()
)
def test_no_partition_starves_below_a_cap_smaller_than_their_number(
    start: list[tuple[int, int]], amount: int, data: Any
) -> None:
    """A quiet partition gets its turn, although busy ones always have the larger backlog."""
    starts = {tp(i): s for i, (s, _) in enumerate(start)}
    ends = {tp(i): s + span for i, (s, span) in enumerate(start)}
    busy = data.draw(st.sets(st.sampled_from(sorted(ends))))
    waiting: dict[TopicPartition, int] = dict.fromkeys(ends, 0)
    for _ in range(60):
        ends |= {p: ends[p] + 100 for p in busy}
        capped = cap(OffsetRanges.between(starts, ends), amount)
        for p, r in capped.items():
            waiting[p] = 0 if r.span or starts[p] == ends[p] else waiting[p] + 1
            assert waiting[p] <= 2 * len(ends), f"{p} got nothing for {waiting[p]} windows"
        starts = capped.ends


@pytest.mark.parametrize("number", [1000, 8000])
def test_sharing_out_sorts_and_does_not_search(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    original = TopicPartition.__lt__

    def counting(self: TopicPartition, other: TopicPartition) -> bool:
        nonlocal compared
        compared += 1
        return original(self, other)

    full = OffsetRanges((tp(i), OffsetRange(0, 1 + i % 7)) for i in range(number))
    monkeypatch.setattr(TopicPartition, "__lt__", counting)
    cap(full, number // 2)
    assert compared < 60 * number
