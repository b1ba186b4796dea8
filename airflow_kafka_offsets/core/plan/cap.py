"""Shares a cap out over partitions."""

from __future__ import annotations

from types import MappingProxyType

from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges

NOTHING_URGENT: Offsets = MappingProxyType({})

ALWAYS_SHARED = 10
"""One in so many offsets of a cap is shared out whatever is urgent."""


def cap(ranges: OffsetRanges, max_offsets: int | None, urgent: Offsets = NOTHING_URGENT) -> OffsetRanges:
    """Shorten ranges so that their span is at most the cap, exactly.

    Small partitions get all of their offsets, and the others are filled up to one common level, like connected vessels. The
    rest goes out one offset at a time, round robin over all partitions. If the cap is below the number of partitions, the
    level is zero, and a quiet partition still gets its turn although busy ones have larger backlogs.

    If offsets are urgent, the level rises three times: a tenth of the cap is for all offsets, so that no partition starves; the
    rest is for those that are urgent; and what is left of it is for all.

    Args:
        ranges: what there is to read.
        max_offsets: the cap; None: there is none.
        urgent: of some partitions, the first offset that is not urgent; those before it are.
    """
    if max_offsets is None or ranges.span <= max_offsets:
        return ranges
    starts, spans = ranges.starts, {tp: r.span for tp, r in ranges.items()}
    # A capped window moves the sum of all starts by the cap. So the turn goes round all partitions and leaves none out.
    turn = sum(starts.values())
    shares = dict.fromkeys(spans, 0)
    if urgent:
        tenth = -(-max_offsets // ALWAYS_SHARED)
        shares = _filled(shares, spans, tenth, turn // max_offsets * tenth)
        first = {tp: min(urgent.get(tp, r.start), r.end) - r.start for tp, r in ranges.items()}
        shares = _filled(shares, {tp: max(share, first[tp]) for tp, share in shares.items()}, max_offsets, turn)
    shares = _filled(shares, spans, max_offsets, turn)
    return OffsetRanges((tp, OffsetRange(start, start + shares[tp])) for tp, start in starts.items())


def left_over(ranges: OffsetRanges, taken: OffsetRanges) -> OffsetRanges:
    """Return what is left of ranges after the first part of each was taken."""
    return OffsetRanges((tp, OffsetRange(taken[tp].end, r.end)) for tp, r in ranges.items())


def _filled(
    shares: dict[TopicPartition, int], limits: dict[TopicPartition, int], amount: int, turn: int
) -> dict[TopicPartition, int]:
    """Raise the smallest shares to one level, each at most to its limit, until their sum is the amount, or all are at their limits."""
    level, rest = _level([*shares.values()], [*limits.values()], amount - sum(shares.values()))
    filled = {tp: min(limits[tp], max(share, level)) for tp, share in shares.items()}
    order = sorted(shares)
    first = turn % len(order)
    thirsty = [tp for tp in order[first:] + order[:first] if shares[tp] <= level < limits[tp]]
    return filled | dict.fromkeys(thirsty[:rest], level + 1)


def _level(shares: list[int], limits: list[int], amount: int) -> tuple[int, int]:
    """Return the level up to which an amount raises shares, and what is left of the amount then."""
    bends = sorted([*((share, 1) for share in shares), *((limit, -1) for limit in limits)])
    level, rising = 0, 0
    for bend, more in bends:
        if rising * (bend - level) > amount:
            return level + amount // rising, amount % rising
        amount -= rising * (bend - level)
        level, rising = bend, rising + more
    return level, 0
