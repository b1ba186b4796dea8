"""Shares a cap out over partitions."""

from __future__ import annotations

from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges


def cap(ranges: OffsetRanges, max_offsets: int | None) -> OffsetRanges:
    """Return the first part of each range, together exactly `max_offsets` if there is more to read.

    Small partitions get all of their offsets, and the others are filled up to one common level, like connected vessels. The
    rest goes out one offset at a time, round robin over all partitions. If the cap is below the number of partitions, the
    level is zero, and a quiet partition still gets its turn although busy ones have larger backlogs.

    Args:
        ranges: what there is to read.
        max_offsets: the cap; None: there is none.
    """
    if max_offsets is None or ranges.span <= max_offsets:
        return ranges
    spans = {tp: r.span for tp, r in ranges.items()}
    level, rest = _level(sorted(spans.values()), max_offsets)
    order = sorted(spans)
    # A capped window moves the sum of all starts by the cap. So the turn goes round all partitions and leaves none out.
    first = sum(ranges.starts.values()) % len(order)
    cut = [tp for tp in order[first:] + order[:first] if spans[tp] > level]
    shares = {tp: min(span, level) for tp, span in spans.items()} | dict.fromkeys(cut[:rest], level + 1)
    return OffsetRanges((tp, OffsetRange(start, start + shares[tp])) for tp, start in ranges.starts.items())


def _level(spans: list[int], amount: int) -> tuple[int, int]:
    """Return the level up to which an amount fills spans, smallest first, and what is left of the amount then."""
    for position, span in enumerate(spans):
        share = amount // (len(spans) - position)
        if span > share:
            return share, amount - share * (len(spans) - position)
        amount -= span
    return spans[-1], 0


def left_over(ranges: OffsetRanges, taken: OffsetRanges) -> OffsetRanges:
    """Return what is left of ranges after the first part of each was taken."""
    return OffsetRanges((tp, OffsetRange(taken[tp].end, r.end)) for tp, r in ranges.items())
