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

    If offsets are urgent, this is done three times: a tenth of the cap is shared out over all offsets, so that no partition
    starves; the rest over those that are urgent; and what is left of it over all.

    Args:
        ranges: what there is to read.
        max_offsets: the cap; None: there is none.
        urgent: of some partitions, the first offset that is not urgent; those before it are.
    """
    if max_offsets is None or ranges.span <= max_offsets:
        return ranges
    # A capped window moves the sum of all starts by the cap. So the turn goes round all partitions and leaves none out.
    turn = sum(ranges.starts.values())
    taken = ranges.starts
    if urgent:
        tenth = -(-max_offsets // ALWAYS_SHARED)
        taken = _filled(taken, ranges.ends, tenth, turn // max_offsets * tenth)
        before = {tp: min(urgent.get(tp, r.start), r.end) for tp, r in ranges.items()}
        taken = _filled(taken, before, max_offsets - tenth, turn)
    left = max_offsets - (sum(taken.values()) - turn)
    return OffsetRanges.between(ranges.starts, _filled(taken, ranges.ends, left, turn))


def left_over(ranges: OffsetRanges, taken: OffsetRanges) -> OffsetRanges:
    """Return what is left of ranges after the first part of each was taken."""
    return OffsetRanges((tp, OffsetRange(taken[tp].end, r.end)) for tp, r in ranges.items())


def _filled(taken: Offsets, ends: Offsets, amount: int, turn: int) -> dict[TopicPartition, int]:
    """Take an amount from where each partition was taken to, at most up to these ends."""
    shares = _water_fill({tp: max(0, ends[tp] - start) for tp, start in taken.items()}, amount, turn)
    return {tp: start + shares[tp] for tp, start in taken.items()}


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
    order = sorted(spans)
    first = turn % len(order)
    waiting = set(thirsty)
    lucky = [tp for tp in order[first:] + order[:first] if tp in waiting]
    return dict.fromkeys(lucky[:rest], share)
