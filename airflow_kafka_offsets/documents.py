"""What programs get: documents with stable keys (docs/reference/cli.md lists them).

A time, a run and an owner stay what they are until one is printed: `as_json` has their form for programs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from airflow_kafka_offsets.core.history import Attempt, WindowRow
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges

Document = dict[str, Any]


def as_json(document: Document) -> str:
    """Return a document as JSON; a time has its zone, as ISO 8601."""
    return json.dumps(document, indent=2, default=_plain)


def _plain(value: Any) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    # Of a claim, the scope says what it has, and not who it is.
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


def window_document(row: WindowRow) -> Document:
    """Return a window in short."""
    window = row.held.window
    return {
        "id": window.id,
        "group": window.group,
        "seq": window.seq,
        "lane": window.lane.value,
        "state": window.state.value,
        "until": window.until,
        "isolation_level": window.isolation_level.value,
        "partitions": len(window.ranges.without_empty()),
        "span": window.span,
        "is_capped": window.is_capped,
        "records": row.records,
        "attempts": row.attempts,
        "held_by": row.held.holder,
        "planned_at": row.planned_at,
        "committed_at": row.committed_at,
    }


def window_detail(row: WindowRow, attempts: Sequence[Attempt]) -> Document:
    """Return a window with everything that the ledger knows about it."""
    window = row.held.window
    return window_document(row) | {
        "topic_ids": dict(window.topic_ids),
        "ranges": ranges_document(window.ranges),
        "lost": ranges_document(window.lost),
        "history": [attempt_document(attempt, number) for number, attempt in enumerate(attempts, 1)],
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
        "started_at": attempt.started_at,
        "ended_at": attempt.ended_at,
    }
