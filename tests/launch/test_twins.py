"""A window's other jobs are over before another one is submitted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_kafka_offsets.core.errors import ClusterUnavailableError, JobAliveError, KafkaOffsetsError
from airflow_kafka_offsets.core.launch.jobs import Job, JobName, JobState
from airflow_kafka_offsets.launch import twins
from airflow_kafka_offsets.launch.twins import settle, stop
from airflow_kafka_offsets.task.airflow import Task
from airflow_kafka_offsets.task.definition import Stop
from tests.operators.test_on_kill import at_work, clusters, operator_in
from tests.task.airflow import context_of

__all__ = ["clusters"]

NAME = JobName("lake-000001", "w", "mine", datetime(2026, 1, 1, tzinfo=UTC))


class Cluster:
    """Jobs in memory. Each ends some looks after the request to stop it."""

    def __init__(self, *jobs: Job, looks: int = 2) -> None:
        self.found = {job.id: job for job in jobs}
        self.looks = looks
        self.stopped: list[str] = []

    def check(self) -> None:
        pass

    def jobs(self, name: JobName) -> Sequence[Job]:
        self.looks -= bool(self.stopped)
        if self.looks <= 0:
            for job in self.stopped:
                self.found[job] = Job(job, JobState.OVER, self.found[job].job)
        return list(self.found.values())

    def knows(self, job_id: str) -> bool:
        return job_id in self.found

    def stop(self, job_id: str) -> None:
        self.stopped.append(job_id)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twins, "PAUSE", 0)
    monkeypatch.setattr(twins, "PATIENCE", 0.2)


def settled(cluster: Cluster, stop: Stop | None = None) -> str | None:
    return settle(cluster, NAME, can_reconnect=True, check=(stop or Stop()).check)


def test_another_launchs_job_is_stopped_once_and_waited_for() -> None:
    cluster = Cluster(Job("1", JobState.ALIVE, "older"), Job("2", JobState.ALIVE, "mine"), looks=4)
    assert settled(cluster) == "2"
    assert cluster.stopped == ["1"]
    assert cluster.found["1"].state is JobState.OVER


def test_a_job_that_does_not_end_lets_nothing_start_beside_it() -> None:
    with pytest.raises(JobAliveError, match="1 still runs"):
        settled(Cluster(Job("1", JobState.ALIVE, "older"), looks=10**9))


def test_a_driver_that_may_be_the_windows_lets_nothing_start_beside_it() -> None:
    with pytest.raises(JobAliveError, match="1 may be a job of this window"):
        settled(Cluster(Job("1", JobState.ALIVE, None)))


def test_a_task_that_is_stopped_waits_no_more() -> None:
    stop = Stop()
    stop.set()
    with pytest.raises(KafkaOffsetsError, match="nothing more is launched"):
        settled(Cluster(Job("1", JobState.ALIVE, "older")), stop)


def test_a_kill_stops_this_job_only() -> None:
    alive = [Job("1", JobState.ALIVE, "older"), Job("2", JobState.ALIVE, "mine"), Job("3", JobState.OVER, "mine")]
    cluster = Cluster(*alive)
    stop(cluster, NAME)
    assert cluster.stopped == ["2"]


@pytest.mark.parametrize(
    ("status", "durable", "goes_on"),
    [
        ("RUNNING", True, True),
        ("FINISHED", True, True),
        ("FAILED", True, False),  # a job that was submitted since, and not noted, may be at work
        ("RUNNING", False, False),
    ],
)
def test_a_cluster_that_can_not_be_asked_for_jobs_lets_nothing_start_beside_them(
    monkeypatch: pytest.MonkeyPatch, status: str, durable: bool, goes_on: bool
) -> None:
    operator = operator_in("cluster")
    operator.durable = durable
    monkeypatch.setattr(operator, "get_job_status", lambda *_: status)

    def unreachable(_: JobName) -> Any:
        raise ClusterUnavailableError("the master's page does not answer")

    state: dict[str, Any] = {}
    hook = at_work(operator, store=state)
    hook.cluster = SimpleNamespace(jobs=unreachable)
    state[hook.id_key] = "driver-1"
    task = Task(operator, context_of(task_state_store=state))
    if goes_on:
        operator._settle(task, hook)
        return
    with pytest.raises(ClusterUnavailableError):
        operator._settle(task, hook)
