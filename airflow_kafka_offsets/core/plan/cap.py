"""Shares a cap out over partitions."""

from __future__ import annotations

from types import MappingProxyType

from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges

NOTHING_URGENT: Offsets = MappingProxyType({})


def cap(ranges: OffsetRanges, max_offsets: int | None, urgent: Offsets = NOTHING_URGENT) -> OffsetRanges:
    """Shorten ranges so that their span is at most the cap, exactly.

    Partitions in `urgent` get theirs first, one after the other, each up to the offset that stands there. What is left of the
    cap is shared out.

    Small partitions get all of their offsets, and the others are filled up to one common level, like connected vessels. The
    rest goes out one offset at a time, round robin over all partitions. If the cap is below the number of partitions, the
    level is zero, and a quiet partition still gets its turn although busy ones have larger backlogs.
    """
    if max_offsets is None or ranges.span <= max_offsets:
        return ranges
    first = _first(ranges, max_offsets, urgent)
    spans = {tp: r.span - first.get(tp, 0) for tp, r in ranges.items()}
    shares = _water_fill(spans, max_offsets - sum(first.values()), turn=sum(ranges.starts.values()))
    return OffsetRanges((tp, OffsetRange(r.start, r.start + first.get(tp, 0) + shares[tp])) for tp, r in ranges.items())


def _first(ranges: OffsetRanges, amount: int, urgent: Offsets) -> dict[TopicPartition, int]:
    shares: dict[TopicPartition, int] = {}
    for tp, until in urgent.items():
        if tp in ranges:
            shares[tp] = min(amount, max(0, min(until, ranges[tp].end) - ranges[tp].start))
            amount -= shares[tp]
    return shares


def left_over(ranges: OffsetRanges, taken: OffsetRanges) -> OffsetRanges:
    """Return what is left of ranges after the first part of each was taken."""
    return OffsetRanges((tp, OffsetRange(taken[tp].end, r.end)) for tp, r in ranges.items())


def _water_fill(spans: dict[TopicPartition, int], amount: int, turn: int) -> dict[TopicPartition, int]:
    shares: dict[TopicPartition, int] = {}
    by_span = sorted(spans, key=lambda tp: (spans[tp], tp))
    for i, tp in enumerate(by_span):
        thirsty = len(by_span) - i
        if spans[tp] * thirsty > amount:
            level, rest = divmod(amount, thirsty)
            return shares | dict.fromkeys(by_span[i:], level) | _rest(spans, by_span[i:], level + 1, rest, turn)
        shares[tp] = spans[tp]
        amount -= spans[tp]
    return shares


def _rest(
    spans: dict[TopicPartition, int], thirsty: list[TopicPartition], share: int, rest: int, turn: int
) -> dict[TopicPartition, int]:
    # A capped window moves the sum of all starts by the cap. So the turn goes round all partitions and leaves none out.
    order = sorted(spans)
    first = turn % len(order)
    waiting = set(thirsty)
    lucky = [tp for tp in order[first:] + order[:first] if tp in waiting]
    return dict.fromkeys(lucky[:rest], share)
