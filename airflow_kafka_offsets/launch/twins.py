"""No twin jobs: what is done about the jobs that a cluster has of a window, before another one is submitted."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_kafka_offsets.core.errors import JobAliveError

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.launch.jobs import JobName, Step
    from airflow_kafka_offsets.ports import Cluster

log = logging.getLogger(__name__)

PATIENCE = 180.0
"""Seconds for which a launch waits for the end of a job that it stopped, and for a word on which job it is."""

PAUSE = 1.0


def settle(
    cluster: Cluster, name: JobName, *, can_reconnect: bool, check: Callable[[], None], noted: str | None = None
) -> str | None:
    """Stop the window's jobs of other launches, wait until they are over, and return the job to go on with.

    Args:
        cluster: where they run.
        name: of the job that is to be launched.
        can_reconnect: whether a job that is found can be watched to its end.
        check: raises when the task was stopped.
        noted: the id of the job that an earlier try noted; None: none did.

    Returns:
        None: there is none; nothing is at work, and one can be submitted.

    Raises:
        JobAliveError: a job does not end, or nobody can tell whether it is the window's.
        ClusterUnavailableError: the cluster did not answer.
    """
    from airflow_kafka_offsets.core.launch.jobs import next_step

    asked: set[str] = set()
    deadline = time.monotonic() + PATIENCE
    while True:
        check()
        step = next_step(cluster.jobs(name), name, can_reconnect=can_reconnect, noted=noted)
        for job in step.stop:
            if job not in asked:
                log.warning("Window %s: job %s of an earlier launch is still at work; stopping it", name.window_id, job)
                cluster.stop(job)
                asked.add(job)
        if not step.stop and not step.unknown:
            return step.go_on_with
        if time.monotonic() > deadline:
            raise JobAliveError(_overdue(name, step))
        time.sleep(PAUSE)


def stop(cluster: Cluster, name: JobName) -> None:
    """Ask for the end of this very job, wherever it got to."""
    from airflow_kafka_offsets.core.launch.jobs import JobState

    for job in cluster.jobs(name):
        if job.state is JobState.ALIVE and job.job == name.job:
            log.info("Window %s: stopping job %s", name.window_id, job.id)
            cluster.stop(job.id)


def _overdue(name: JobName, step: Step) -> str:
    if step.stop:
        return (
            f"Window {name.window_id}: {', '.join(step.stop)} was told to stop {PATIENCE:g} s ago and is still at work. "
            "Nothing was launched beside it. Stop it on the cluster; the next try looks again"
        )
    return (
        f"Window {name.window_id}: nobody can tell whether {', '.join(step.unknown)} is a job of this window: the driver "
        "waits for a worker, or the page of its worker can't be reached from here. Nothing was launched beside it. Let it "
        "start or end, or kill it; the next try looks again"
    )
