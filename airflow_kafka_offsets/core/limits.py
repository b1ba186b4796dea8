"""Sharing a cap out over partitions."""

from __future__ import annotations

from airflow_kafka_offsets.core.offsets import OffsetRange, OffsetRanges, TopicPartition


def cap(ranges: OffsetRanges, max_offsets: int | None) -> OffsetRanges:
    """Shorten ranges so that their span is at most the cap, exactly.

    Small partitions are served whole and the others are filled up to one common level, like connected vessels. What the
    level leaves over goes to the largest backlogs, one offset each: a partition that got nothing grows until it is one
    of them, so none starves.
    """
    if max_offsets is None or ranges.span <= max_offsets:
        return ranges
    shares = _water_fill({tp: r.span for tp, r in ranges.items()}, max_offsets)
    return OffsetRanges((tp, OffsetRange(r.start, r.start + shares[tp])) for tp, r in ranges.items())


def _water_fill(spans: dict[TopicPartition, int], amount: int) -> dict[TopicPartition, int]:
    shares: dict[TopicPartition, int] = {}
    by_span = sorted(spans, key=lambda tp: (spans[tp], tp))
    for i, tp in enumerate(by_span):
        thirsty = len(by_span) - i
        if spans[tp] * thirsty > amount:
            return shares | _level(by_span[i:], amount)
        shares[tp] = spans[tp]
        amount -= spans[tp]
    return shares


def _level(by_span: list[TopicPartition], amount: int) -> dict[TopicPartition, int]:
    level, rest = divmod(amount, len(by_span))
    largest = set(by_span[len(by_span) - rest :]) if rest else set()
    return {tp: level + (tp in largest) for tp in by_span}
