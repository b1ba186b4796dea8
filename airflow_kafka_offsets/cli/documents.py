"""What programs get: JSON-able documents with stable keys (docs/reference/cli.md lists them)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from airflow_kafka_offsets.core.history import Act, Attempt, WindowRow
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.ownership import Owner
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.window import Claim, Window

Document = dict[str, Any]


def moment(value: datetime | None) -> str | None:
    """Return a time with its zone as ISO 8601."""
    return value.isoformat() if value is not None else None


def claim_document(claim: Claim) -> Document:
    """Return who works, or worked, on a window."""
    return {
        "dag_id": claim.dag_id,
        "run_id": claim.run_id,
        "task_id": claim.task_id,
        "map_index": claim.map_index,
    }


def owner_document(owner: Owner | None) -> Document | None:
    """Return the task that a group belongs to."""
    return asdict(owner) if owner is not None else None


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


def window_document(row: WindowRow) -> Document:
    """Return a window in short."""
    window = row.held.window
    return {
        "id": window.id,
        "group": window.group,
        "seq": window.seq,
        "lane": window.lane.value,
        "state": window.state.value,
        "until": moment(window.until),
        "isolation_level": window.isolation_level.value,
        "partitions": len(window.ranges.without_empty()),
        "span": window.span,
        "is_capped": window.is_capped,
        "records": row.records,
        "attempts": row.attempts,
        "held_by": claim_document(row.held.holder),
        "planned_at": moment(row.planned_at),
        "committed_at": moment(row.committed_at),
    }


def window_detail(row: WindowRow, attempts: Sequence[Attempt]) -> Document:
    """Return a window with everything that the ledger knows about it."""
    window: Window = row.held.window
    return window_document(row) | {
        "topic_ids": dict(window.topic_ids),
        "ranges": ranges_document(window.ranges),
        "lost": ranges_document(window.lost),
        "history": [attempt_document(attempt, number) for number, attempt in enumerate(attempts, 1)],
    }


def act_document(act: Act) -> Document:
    """Return what a person did to a group."""
    return {
        "kind": act.kind,
        "who": act.who,
        "why": act.why,
        "at": moment(act.at),
        "details": dict(act.details),
    }


def attempt_document(attempt: Attempt, number: int) -> Document:
    """Return one try of one run: its number within the window, and the ledger's own (``attempt``)."""
    return {
        "number": number,
        "attempt": attempt.id,
        "run": claim_document(attempt.claim),
        "try_number": attempt.try_number,
        "outcome": attempt.outcome.value,
        "records": attempt.records,
        "started_at": moment(attempt.started_at),
        "ended_at": moment(attempt.ended_at),
    }
