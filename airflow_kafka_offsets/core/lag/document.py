"""Lag as programs get it: in ``status --output json``, on the page, in events. docs/reference/cli.md lists the keys."""

from __future__ import annotations

from typing import Any

from airflow_kafka_offsets.core.lag.lag import GroupLag, PartitionLag
from airflow_kafka_offsets.core.offsets import TopicPartition


def lag_document(found: GroupLag | None) -> dict[str, Any]:
    """Return the lag of a group without its partitions. Times stay what they are; None if no one looked, and all is null."""
    if found is None:
        return dict.fromkeys(_KEYS) | {"notes": []}
    return {
        "verdict": found.verdict.value if found.verdict else None,
        "reason": found.reason,
        "lag": found.lag,
        "lag_seconds": found.lag_seconds,
        "headroom_seconds": found.headroom_seconds,
        "headroom_offsets": found.headroom_offsets,
        "headroom_is_estimate": found.is_estimate,
        "headroom_is_unlimited": found.is_unlimited,
        "needed_seconds": found.needed_seconds,
        "lost": found.lost,
        "last_commit_at": found.pace.last_commit_at,
        "interval_seconds": found.pace.interval_seconds,
        "looked_at": found.at,
        "kafka_error": found.error,
        "trouble": found.trouble,
        "notes": list(found.notes),
    }


_KEYS = (
    *("verdict", "reason", "lag", "lag_seconds", "headroom_seconds", "headroom_offsets"),
    *("headroom_is_estimate", "headroom_is_unlimited", "needed_seconds", "lost", "last_commit_at"),
    *("interval_seconds", "looked_at", "kafka_error", "trouble"),
)


def partition_document(tp: TopicPartition, found: PartitionLag) -> dict[str, Any]:
    """Return the lag of one topic-partition."""
    return {
        **tp._asdict(),
        "watermark": found.watermark,
        "beginning": found.beginning,
        "end": found.end,
        "lag": found.lag,
        "lag_seconds": found.lag_seconds,
        "headroom_seconds": found.headroom_seconds,
        "headroom_offsets": found.headroom_offsets,
        "estimate": found.estimate,
        "verdict": found.verdict,
    }
