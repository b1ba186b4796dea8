"""Which windows to look at, to find the first one that lies above what is requested. Few, however many there are.

It is an exponential search back from the newest window, until one step goes too far. Between the last two windows follows an interpolation
search: offsets mostly grow evenly, so their growth between the two suggests where to look. After a few such guesses it is a binary search.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count

from airflow_kafka_offsets.core.offsets import Offsets
from airflow_kafka_offsets.core.plan.replay import ever_planned, lies_above
from airflow_kafka_offsets.core.ranges import OffsetRanges
from airflow_kafka_offsets.core.window import Window

MAX_GUESSES = 8
"""How many looks between two windows go where the offsets should be. The ones after them halve what is left, however offsets grew."""

Look = Callable[[int], Window | None]
"""Return the newest window up to a number, back to the first one that is searched, or None if there is none."""


def first_above(newest: Window, first: int, requested: OffsetRanges, topic_ids: Mapping[str, str], look: Look) -> int:
    """Return a number from which on each window lies above all that is requested; the window before it does not, if there is one.

    Args:
        newest: the newest window that is searched; it lies above all that is requested.
        first: the smallest number that is searched. From here on, windows start in the order of their numbers.
        requested: offset ranges, see `replay.lies_above`.
        topic_ids: the ids that the requested offsets belong to.
        look: how to look at a window.
    """
    above, below, lower = _steps_back(newest, first, requested, topic_ids, look)
    guesses, factor = 0, 1
    while (left := above.seq - below) > 1:
        seq = (below + above.seq) // 2
        if lower and guesses < MAX_GUESSES and len(ever_planned(requested, lower, topic_ids)) == len(requested):
            seq = min(max(_between(requested, lower, above, factor), below + 1), above.seq - 1)
            guesses += 1
        found = look(seq)
        if found and lies_above(found, requested, topic_ids):
            above = found
        else:
            below, lower = seq, found
        # If less than half of what was left went away, the owner is far from the guess, on its other side: the next guesses go further.
        factor = 1 if factor > 1 and 2 * (above.seq - below) <= left else 2 * factor
    return above.seq


def _steps_back(
    newest: Window, first: int, requested: OffsetRanges, topic_ids: Mapping[str, str], look: Look
) -> tuple[Window, int, Window | None]:
    """Go back until one step goes too far.

    Returns:
        The oldest window seen that lies above all that is requested, a number up to which none does, and the newest window up to there.
    """
    above = newest
    later_seq, later = newest.seq + 1, newest.ranges.ends
    for steps in count():
        if above.seq <= first:
            break
        distance = _distance(requested, above, later_seq, later)
        # The first guess may be right. After it, to go too far is better than to creep: the window is between two others then.
        step = max(distance if steps == 0 else 2 * distance, 2 ** max(0, steps - 1))
        seq = max(first, above.seq - step)
        found = look(seq)
        if not (found and lies_above(found, requested, topic_ids)):
            return above, seq, found
        later_seq, later, above = above.seq, above.ranges.starts, found
    return above, first - 1, None


def _between(requested: OffsetRanges, lower: Window, above: Window, factor: int) -> int:
    """Return the number of the window that should be the first one above all that is requested.

    Args:
        requested: offset ranges.
        lower: a window that does not lie above them.
        above: a later one that does.
        factor: how many times as far from the nearer one of both, but at most half-way.
    """
    whole = above.seq - lower.seq
    back = _distance(requested, above, lower.seq, lower.ranges.starts)
    if factor == 1:
        return above.seq - back
    half = whole // 2
    return above.seq - min(factor * (back + 1), half) if back < half else lower.seq + min(factor * (whole - back), half)


def _distance(requested: OffsetRanges, window: Window, other_seq: int, other: Offsets) -> int:
    """Return how many windows before this one is the first one that starts at the end of all that is requested, or above it.

    Args:
        requested: offset ranges.
        window: a window that lies above them.
        other_seq: the number of another window, or the one after the newest.
        other: where windows from that number on start.

    Returns:
        By the partition that comes first, of those that grew from the one window to the other; 0 if none grew.
    """
    found = [
        (start - wanted.end) * (window.seq - other_seq) // (start - other[tp])
        for tp, wanted in requested.items()
        if (start := window.ranges[tp].start) != other[tp]
    ]
    return min(found, default=0)
