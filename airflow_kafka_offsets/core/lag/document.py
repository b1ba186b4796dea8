"""Lag as programs get it: in ``status --output json``, on the page, in events. docs/reference/cli.md lists the keys."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from airflow_kafka_offsets.core.errors import MAX_NAMED
from airflow_kafka_offsets.core.lag.lag import GroupLag, PartitionLag
from airflow_kafka_offsets.core.offsets import TopicPartition


def lag_document(lag: GroupLag | None) -> dict[str, Any]:
    """Return the lag of a group without its partitions, with times as they are. All is null if `lag` is None."""
    if lag is None:
        return dict.fromkeys(_KEYS) | {"needs_rerun": [], "notes": []}
    return {
        "verdict": lag.verdict.value if lag.verdict else None,
        "reason": lag.reason,
        "lag": lag.lag,
        "lag_seconds": lag.lag_seconds,
        "headroom_seconds": lag.headroom_seconds,
        "headroom_offsets": lag.headroom_offsets,
        "headroom_is_estimate": lag.is_estimate,
        "headroom_is_unlimited": lag.is_unlimited,
        "needed_seconds": lag.needed_seconds,
        "lost": lag.lost,
        "last_commit_at": lag.pace.last_commit_at,
        "interval_seconds": lag.pace.interval_seconds,
        "looked_at": lag.at,
        "kafka_error": lag.error,
        "trouble": lag.trouble,
        "needs_rerun": list(lag.reruns),
        "notes": list(lag.notes),
    }


_KEYS = (
    *("verdict", "reason", "lag", "lag_seconds", "headroom_seconds", "headroom_offsets"),
    *("headroom_is_estimate", "headroom_is_unlimited", "needed_seconds", "lost", "last_commit_at"),
    *("interval_seconds", "looked_at", "kafka_error", "trouble"),
)


def partition_document(tp: TopicPartition, lag: PartitionLag) -> dict[str, Any]:
    """Return the lag of one topic-partition."""
    return {
        **tp._asdict(),
        "watermark": lag.watermark,
        "beginning": lag.beginning,
        "end": lag.end,
        "lag": lag.lag,
        "lag_seconds": lag.lag_seconds,
        "headroom_seconds": lag.headroom_seconds,
        "headroom_offsets": lag.headroom_offsets,
        "estimate": lag.estimate,
        "verdict": lag.verdict,
    }


def event_document(lag: GroupLag) -> dict[str, Any]:
    """Return the lag of a group for an event or an XCom: JSON-able, with the worst partitions by name."""
    document = {key: v.isoformat() if isinstance(v, datetime) else v for key, v in lag_document(lag).items()}
    unread = [(tp, p) for tp, p in lag.partitions.items() if p.lag or p.lost or p.hidden_to]
    worst = sorted(unread, key=lambda item: (_headroom(item[1]), -(item[1].lag or 0), item[0]))
    return {"group": lag.group, **document, "behind": [str(tp) for tp, _ in worst[:MAX_NAMED]]}


def _headroom(partition: PartitionLag) -> float:
    return float("inf") if partition.headroom_seconds is None else partition.headroom_seconds
