"""A task that waits for a moment: deferred, or in its worker if a deferral that short could fail it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from airflow_kafka_offsets.airflow_versions import TaskDeferred
from airflow_kafka_offsets.operators.window import PlanWindowOperator
from airflow_kafka_offsets.task import plan
from tests.core.examples import group


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return for how long the worker sleeps, which takes no time here."""
    seconds: list[float] = []
    monkeypatch.setattr(plan.time, "sleep", seconds.append)
    return seconds


def wait(seconds: float) -> None:
    """Wait for a moment that is so many seconds away."""
    moment = datetime.now(UTC) + timedelta(seconds=seconds)
    plan._wait_until(PlanWindowOperator(task_id="plan", group=group()), moment)


@pytest.mark.parametrize(("heartbeat", "longest"), [("5", 10), ("30", 35)])
def test_a_wait_is_deferred_only_if_it_is_longer_than_the_shortest_deferral(
    slept: list[float], monkeypatch: pytest.MonkeyPatch, heartbeat: str, longest: int
) -> None:
    monkeypatch.setenv("AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL", heartbeat)
    wait(longest - 0.1)
    [seconds] = slept
    assert 0 < seconds < longest
    with pytest.raises(TaskDeferred) as deferred:
        wait(longest + 300)
    assert deferred.value.trigger.moment > datetime.now(UTC) + timedelta(seconds=longest)
    assert slept == [seconds]


def test_a_moment_that_has_passed_is_not_waited_for(slept: list[float]) -> None:
    wait(-1)
    assert slept == []
