"""What is waited for, as values."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_kafka_offsets.core.conditions import (
    CommittedUntil,
    Condition,
    LagAtMost,
    TimePassed,
    UnreadAtLeast,
    WindowCommitted,
    WindowFree,
    condition_from_json,
    condition_to_json,
    parse_until,
)
from airflow_kafka_offsets.core.errors import BadInputError
from tests.core.examples import NOON, group

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: UnreadAtLeast(group()),
        lambda: UnreadAtLeast(group(), min_span=0),
        lambda: UnreadAtLeast(group(), min_span=True),
        lambda: UnreadAtLeast(group(), max_age=timedelta(0)),
        lambda: UnreadAtLeast(group(), max_age=60),  # type: ignore[arg-type]
        lambda: LagAtMost(group(), -1),
        lambda: TimePassed(group(), datetime(2026, 1, 1)),
        lambda: TimePassed(group(), NOON, idle_after=timedelta(0)),
        lambda: TimePassed(group(), datetime(1969, 1, 1, tzinfo=UTC)),
        lambda: CommittedUntil("lake", datetime(2026, 1, 1)),
        lambda: WindowCommitted("lake"),
        lambda: parse_until(""),
        lambda: parse_until("noon"),
        lambda: parse_until("2026-01-01T00:00:00"),
    ],
)
def test_nonsense_is_refused(wrong: Any) -> None:
    with pytest.raises(BadInputError):
        wrong()


@pytest.mark.parametrize(
    "condition",
    [
        UnreadAtLeast(group(starting_offsets=timedelta(hours=2)), min_span=5),
        UnreadAtLeast(group(), max_age=timedelta(minutes=1.5)),
        TimePassed(group(), NOON, HOUR),
        TimePassed(group(), NOON),
        LagAtMost(group(ledger_conn_id="ledger"), 0),
        WindowCommitted("lake-000001", "ledger"),
        WindowFree(("lake-000001", "lake-000002"), is_rerun=False),
        WindowFree(("lake-000001",), is_rerun=True, ledger_conn_id="ledger"),
        CommittedUntil("lake", NOON),
    ],
)
def test_a_condition_survives_the_way_to_the_triggerer(condition: Condition) -> None:
    document = condition_to_json(condition)
    assert condition_from_json(json.loads(json.dumps(document))) == condition
    assert all(type(value) in (str, int, float, bool, list, dict, type(None)) for value in document.values())
