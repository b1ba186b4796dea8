"""Whether the holder of a window is over: the decision, state by state."""

from __future__ import annotations

import pytest

from airflow_kafka_offsets.core.window import Claim, Scope
from airflow_kafka_offsets.operators.runs import task_is_over

WORKING = [None, "scheduled", "queued", "running", "restarting", "deferred", "up_for_retry", "up_for_reschedule"]
ENDED = ["failed", "skipped", "upstream_failed", "removed"]


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("state", WORKING)
def test_a_task_that_may_still_work_keeps_its_window(scope: Scope, state: str | None) -> None:
    assert not task_is_over(Claim("d", "r", "t", scope=scope), {"t": state})


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("state", ENDED)
def test_a_task_that_ended_badly_is_over(scope: Scope, state: str) -> None:
    assert task_is_over(Claim("d", "r", "t", scope=scope), {"t": state})


def test_a_green_task_is_over_but_a_green_plan_task_leaves_the_window_to_its_run() -> None:
    assert task_is_over(Claim("d", "r", "t", scope=Scope.TASK), {"t": "success"})
    assert not task_is_over(Claim("d", "r", "t", scope=Scope.RUN), {"t": "success"})


def test_a_task_that_is_no_longer_part_of_its_run_is_over() -> None:
    assert task_is_over(Claim("d", "r", "t"), {})
    assert task_is_over(Claim("d", "r", "t"), {"other": "running"})


def test_a_mapped_task_is_asked_for_by_its_index() -> None:
    states = {"t_0": "failed", "t_1": "running"}
    assert task_is_over(Claim("d", "r", "t", 0), states)
    assert not task_is_over(Claim("d", "r", "t", 1), states)
