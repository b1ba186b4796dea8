"""What a task returns about its windows."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.errors import counted
from airflow_kafka_offsets.core.evidence import NO_REPORT, Report
from airflow_kafka_offsets.core.window import Window
from airflow_kafka_offsets.launch.job_files import ranges_by_topic

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.group import KafkaGroup
    from airflow_kafka_offsets.service.plan import Planned

logger = logging.getLogger(__name__)

MAX_RANGES_IN_XCOM = 1000
"""If a result has more ranges than this, over all its windows, they stay in the ledger."""

_IN_EVENT = ("window_id", "seq", "lane", "planned_until", "is_rerun", "span", "records", "ranges")

_JSON_OF_SPARK = ("assign", "starting_offsets", "ending_offsets")


def window_result(group: KafkaGroup, planned: Planned, report: Report = NO_REPORT) -> dict[str, Any]:
    """Return what downstream tasks get: small, JSON, free of secrets."""
    ranges = planned.window.ranges.without_empty()
    is_small = len(ranges) <= MAX_RANGES_IN_XCOM
    window = planned.window
    return {
        "window_id": window.id,
        "group": window.group,
        "seq": window.seq,
        "lane": window.lane.value,
        "planned_until": window.planned_until.isoformat(),
        "is_rerun": planned.is_rerun,
        "partitions": len(ranges),
        "span": window.span,
        "records": report.records,
        "ranges": _by_topic(window) if is_small else None,
        "counts": report.counts if is_small else None,
        "written": report.written,
        "bad": report.bad,
        "warnings": list(planned.warnings),
        "ledger_conn_id": group.ledger_conn_id,
    }


def _by_topic(window: Window) -> dict[str, dict[str, list[int]]]:
    # Lists, because XCom returns tuples as tuples, and JSON has none.
    return {topic: {p: list(r) for p, r in found.items()} for topic, found in ranges_by_topic(window).items()}


def small_together(results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the results of several windows. What grows with their partitions is left out if it is too much for one XCom.

    Then Spark's JSON of the offsets is missing rather than None, so that a launcher that needs it fails before it starts.
    """
    if sum(result["partitions"] for result in results) <= MAX_RANGES_IN_XCOM:
        return [dict(result) for result in results]
    logger.info("The ranges of %s stay in the ledger: they are too many for XCom", counted(len(results), "window"))
    kept = [{name: value for name, value in result.items() if name not in _JSON_OF_SPARK} for result in results]
    return [{**result, "ranges": None, "counts": None} for result in kept]


def event_extra(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what an asset event says: the group, and each window with its ranges and whether it was run again."""
    return {"group": results[0]["group"], "windows": [{key: result[key] for key in _IN_EVENT} for result in results]}


def task_result(group: KafkaGroup, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what the task returns: the window, or for a replay of several ``{"group": ..., "windows": [...]}``."""
    return results[0] if len(results) == 1 else {"group": group.name, "windows": list(results)}
