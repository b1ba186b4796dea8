"""The first window above what is asked is found with few looks, however offsets grew."""

from __future__ import annotations

import math
import random
import statistics
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.log import IsolationLevel
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.replay import lies_above
from airflow_kafka_offsets.core.plan.search import MAX_GUESSES, Look, first_above
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.window import Draft, Window

IDS = {"orders": "1"}

Shape = Callable[[int, random.Random], int]
"""How many offsets a window has, by its number."""


def excerpt(seq: int, bounds: Mapping[int, tuple[int, int]]) -> Window:
    """Return a window by the start and end of its partitions."""
    ranges = OffsetRanges((TopicPartition("orders", p), OffsetRange(*found)) for p, found in bounds.items())
    return Draft(ranges, IDS, datetime(2026, 3, 1, tzinfo=UTC), IsolationLevel.READ_COMMITTED).named("lake", seq)


def asked_up_to(ends: Mapping[int, int]) -> OffsetRanges:
    """Ask for the offset before each end."""
    return OffsetRanges((TopicPartition("orders", p), OffsetRange(end - 1, end)) for p, end in ends.items())


class Looks:
    """How to look at a history, and how often someone did."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self.many = 0

    def __call__(self, seq: int) -> Window | None:
        self.many += 1
        return self._look(seq)


def newest_up_to(history: Sequence[Window], seq: int) -> Window | None:
    """Look at a history in which numbers may be missing."""
    older = bisect_right(history, seq, key=lambda window: window.seq)
    return history[older - 1] if older else None


def allowed(windows: int) -> int:
    """Return how many looks are allowed: steps that double, the guesses, and steps that halve."""
    return 2 * math.ceil(math.log2(windows + 1)) + MAX_GUESSES + 4


_SPANS = st.lists(st.one_of(st.integers(0, 3), st.integers(0, 10_000)), min_size=3, max_size=3)
_WINDOWS = st.lists(st.tuples(_SPANS, st.integers(1, 4)), min_size=1, max_size=120)


@given(_WINDOWS, st.lists(st.integers(0, 60), min_size=2, max_size=2), st.data())
def test_the_first_window_above_what_is_asked_is_found(
    windows: list[tuple[list[int], int]], joined: list[int], data: st.DataObject
) -> None:
    """Numbers between may be missing, and partitions may join later."""
    history: list[Window] = []
    at, seq = [0, 0, 0], 0
    for number, (spans, step) in enumerate(windows):
        seq += step
        named = [0, *(p for p in (1, 2) if joined[p - 1] <= number)]
        history.append(excerpt(seq, {p: (at[p], at[p] + spans[p]) for p in named}))
        at = [at[p] + spans[p] if p in named else at[p] for p in range(3)]
    newest = history[-1]
    asked = asked_up_to(
        {
            tp.partition: data.draw(st.integers(1, newest.ranges[tp].start))
            for tp in newest.ranges
            if newest.ranges[tp].start and (tp.partition == 0 or data.draw(st.booleans()))
        }
    )
    if not asked:
        return
    look, first = Looks(partial(newest_up_to, history)), data.draw(st.integers(1, history[0].seq))
    expected = min(window.seq for window in history if lies_above(window, asked, IDS))
    assert first_above(newest, first, asked, IDS, look) == expected
    assert look.many <= allowed(seq)


def even(number: int, _: random.Random) -> int:
    """Each window has as much."""
    return 700


def by_day(number: int, draw: random.Random) -> int:
    """Windows of a minute: much in the evening, little at night, and never twice the same."""
    return max(0, int(500 + 450 * math.sin(number * math.tau / 1_440) + draw.gauss(0, 100)))


def growing(number: int, draw: random.Random) -> int:
    """Twenty times as much at the end as in the beginning."""
    return 50 + number // 100 + draw.randrange(50)


def in_bursts(number: int, draw: random.Random) -> int:
    """Nothing for a long time, and then very much."""
    return 10**9 if number % 10_007 == 0 else 0


def one_jump(number: int, _: random.Random) -> int:
    """One window has more than all others together, many times over."""
    return 10**12 if number == 54_321 else 1


@pytest.mark.parametrize(
    ("shapes", "mean", "most"),
    [
        ([even], 2, 2),
        ([by_day], 10, 14),
        ([growing], 8, 12),
        ([in_bursts], 34, 40),
        ([one_jump], 22, 30),
        ([even, by_day, growing], 8, 12),
        ([in_bursts, even], 2, 2),
    ],
    ids=lambda given: "-".join(shape.__name__ for shape in given) if isinstance(given, list) else None,
)
def test_few_looks_are_needed_in_a_hundred_thousand_windows(shapes: list[Shape], mean: int, most: int) -> None:
    """Each partition grows in its own way; one offset of each is asked for, of about the same time."""
    draw = random.Random(17)
    starts = [[0, *accumulate(shape(number, draw) for number in range(100_000))] for shape in shapes]

    def window(seq: int) -> Window:
        return excerpt(seq, {p: (of[seq - 1], of[seq]) for p, of in enumerate(starts)})

    looks = []
    for _ in range(50):
        share = draw.random()
        ends = {p: 1 + int(share * (of[-2] - 1)) for p, of in enumerate(starts)}
        look = Looks(window)
        found = first_above(window(100_000), 1, asked_up_to(ends), IDS, look)
        assert all(starts[p][found - 1] >= end for p, end in ends.items())
        assert found == 1 or any(starts[p][found - 2] < end for p, end in ends.items())
        looks.append(look.many)
    assert max(looks) <= most
    assert statistics.mean(looks) <= mean
