"""Decides whether a group has a verdict that someone waits for."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from airflow_kafka_offsets.core.conditions import VerdictIn
from airflow_kafka_offsets.core.errors import MAX_NAMED, rebuilt
from airflow_kafka_offsets.core.lag.document import lag_document
from airflow_kafka_offsets.core.lag.lag import GroupLag
from airflow_kafka_offsets.core.plan.waiting import Decision


def decide_verdict(condition: VerdictIn, found: GroupLag) -> Decision:
    """Decide on a look at the group; its facts are the document of the lag, and the worst partitions by name.

    Raises:
        KafkaOffsetsError: that of the look: the verdict is not known.
    """
    if found.error is not None:
        raise rebuilt(found.error_kind or "KafkaOffsetsError", found.error)
    return Decision(found.verdict in condition.verdicts, facts_of(found))


def facts_of(found: GroupLag) -> dict[str, Any]:
    """Return what an event or an XCom tells of a look: JSON-able, and small whatever the number of partitions is."""
    document = {name: _plain(value) for name, value in lag_document(found).items()}
    unread = [(tp, p) for tp, p in found.partitions.items() if p.lag or p.lost or p.hidden_to]
    worst = sorted(unread, key=lambda item: (_headroom(item[1].headroom_seconds), -(item[1].lag or 0), item[0]))
    return {"group": found.group, **document, "behind": [str(tp) for tp, _ in worst[:MAX_NAMED]]}


def _headroom(seconds: float | None) -> float:
    return float("inf") if seconds is None else seconds


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
