"""What programs get: documents with stable keys (docs/reference/cli.md lists them).

A time, a run and an owner stay what they are until one is printed: `as_json` has their form for programs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import Attempt
from airflow_kafka_offsets.core.lag.document import lag_document, partition_document
from airflow_kafka_offsets.core.lag.lag import GroupLag, PartitionLag
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.overview import Overview
from airflow_kafka_offsets.core.plan.ownership import watermark
from airflow_kafka_offsets.core.plan.planning import Plan
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.schemas import Frozen
from airflow_kafka_offsets.core.window import Window, WindowRecord

Document = dict[str, Any]


def as_json(document: Document, indent: int | None = 2) -> str:
    """Return a document as JSON; a time has its zone, as ISO 8601. Without an indent it is one line."""
    return json.dumps(document, indent=indent, default=_plain)


def _plain(value: Any) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    # The scope of a claim is no part of who it is.
    return {key: part for key, part in asdict(value).items() if key != "scope"}


def ranges_document(ranges: OffsetRanges) -> list[Document]:
    """Return offset ranges, one for each topic-partition; ``end`` is one past the last offset."""
    return [range_document(tp, offsets) for tp, offsets in ranges.items()]


def range_document(tp: TopicPartition, offsets: OffsetRange) -> Document:
    """Return offsets of one topic-partition."""
    return {
        **tp._asdict(),
        "start": offsets.start,
        "end": offsets.end,
        "span": offsets.span,
    }


def group_document(group: KafkaGroup, overview: Overview, lag: GroupLag | None) -> Document:
    """Return the state of a group; lag is None if no one asked Kafka."""
    state = overview.state
    position = watermark(state)
    partitions = lag.partitions if lag else {}
    if not partitions and position:
        partitions = {tp: PartitionLag(offset, None, None) for tp, offset in sorted(position.offsets.items())}
    committed = overview.last_committed
    return {
        "group": group.name,
        "topics": list(group.topics),
        "topics_pattern": group.topics_pattern,
        "owner": state.owner,
        "kafka_conn_id": group.kafka_conn_id,
        "isolation_level": group.isolation_level.value,
        **lag_document(lag),
        "open_windows": [window_document(window) for window in reversed(overview.open)],
        "last_committed": window_document(committed) if committed else None,
        "refused": state.refused,
        "acts": [asdict(act) for act in overview.acts],
        "pruned_before": overview.first if overview.first > 1 else None,
        "partitions": [partition_document(tp, partition) for tp, partition in partitions.items()],
    }


def window_document(window: WindowRecord) -> Document:
    """Return a window in short."""
    return {
        "id": window.id,
        "group": window.group,
        "seq": window.seq,
        "lane": window.lane.value,
        "state": window.state.value,
        "planned_until": window.planned_until,
        "isolation_level": window.isolation_level.value,
        "partitions": window.partitions,
        "span": window.span,
        "is_capped": window.is_capped,
        "unread": window.unread,
        "records": window.records,
        "attempts": window.attempts,
        "bundle_version": window.bundle_version,
        "rerun": None if window.rerun is None else window.rerun.value,
        "held_by": window.holder,
        "planned_at": window.planned_at,
        "committed_at": window.committed_at,
    }


def replay_document(group: str, windows: Sequence[Window], drafts: Sequence[Plan]) -> Document:
    """Return the windows that a replay would run: existing ones, and new ones for offsets without an owner."""
    return {
        "group": group,
        "again": [
            {"id": w.id, "lane": w.lane.value, "state": w.state.value, "planned_until": w.planned_until, "span": w.span}
            for w in windows
        ],
        "new": [
            {"planned_until": d.planned_until, "span": d.ranges.span, "ranges": ranges_document(d.ranges)}
            for d in drafts
        ],
    }


def window_detail(row: WindowRecord, attempts: Sequence[Attempt]) -> Document:
    """Return a window with everything that the ledger has about it."""
    window = row.window
    return window_document(row) | {
        "topic_ids": dict(window.topic_ids),
        "ranges": ranges_document(window.ranges),
        "lost": ranges_document(window.lost),
        "history": [attempt_document(attempt, number) for number, attempt in enumerate(attempts, 1)],
    }


def window_with_schemas(row: WindowRecord, attempts: Sequence[Attempt], frozen: Frozen | None) -> Document:
    """Return `window_detail`, and the schemas that are frozen with the window: for each subject the kind, the latest id and all ids.

    Args:
        row: the window.
        attempts: the attempts at it, oldest first.
        frozen: its schemas, or None if it has none. A subject without any was not there.
    """
    return {**window_detail(row, attempts), "schemas": None if frozen is None else _schemas_document(frozen)}


def _schemas_document(frozen: Frozen) -> Document:
    return {
        name: {"kind": subject.kind, "latest": subject.latest, "ids": sorted(subject.schemas)} if subject else None
        for name, subject in frozen.items()
    }


def attempt_document(attempt: Attempt, number: int) -> Document:
    """Return one try of one run: its number within the window, and the ledger's own (``attempt``)."""
    return {
        "number": number,
        "attempt": attempt.id,
        "run": attempt.claim,
        "try_number": attempt.try_number,
        "outcome": attempt.outcome.value,
        "records": attempt.records,
        "bundle_version": attempt.bundle_version,
        "started_at": attempt.started_at,
        "ended_at": attempt.ended_at,
    }
