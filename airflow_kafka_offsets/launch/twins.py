"""Prevents twin jobs: stops the jobs that a cluster has of a window, before another one is submitted."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_kafka_offsets.core.errors import JobAliveError

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.launch.jobs import JobName, Step
    from airflow_kafka_offsets.ports import Cluster

logger = logging.getLogger(__name__)

PATIENCE = 180.0
"""Seconds that a launch waits for a job that it stopped to end, or for the cluster to identify a job."""

PAUSE = 1.0

STOPPING = "Window %s: stopping %s"


def settle(
    cluster: Cluster, name: JobName, *, can_reconnect: bool, check: Callable[[], None], noted: str | None = None
) -> str | None:
    """Stop the window's jobs of other launches, wait until they end, and return the job to continue with.

    Args:
        cluster: where the jobs run.
        name: the job to launch.
        can_reconnect: whether an existing job can be watched to its end.
        check: raises an error if the task was stopped.
        noted: the id of the job that an earlier try noted, or None if none did.

    Returns:
        The id, or None if no job is running, so that one can be submitted.

    Raises:
        JobAliveError: a job does not end, or may be the window's.
        ClusterUnavailableError: the cluster did not answer.
    """
    from airflow_kafka_offsets.core.launch.jobs import next_step

    stopped: set[str] = set()
    deadline = time.monotonic() + PATIENCE
    while True:
        check()
        step = next_step(cluster.jobs(name), name, can_reconnect=can_reconnect, noted=noted)
        for job in step.stop:
            if job not in stopped:
                logger.warning(STOPPING, name.window_id, f"job {job} of an earlier launch")
                cluster.stop(job)
                stopped.add(job)
        if not step.stop and not step.unknown:
            return step.go_on_with
        if time.monotonic() > deadline:
            raise JobAliveError(_unsettled(name, step))
        time.sleep(PAUSE)


def stop(cluster: Cluster, name: JobName) -> None:
    """Stop this job, if the cluster still has it."""
    from airflow_kafka_offsets.core.launch.jobs import JobState

    for job in cluster.jobs(name):
        if job.state is JobState.ALIVE and job.job == name.job:
            logger.info(STOPPING, name.window_id, f"job {job.id}")
            cluster.stop(job.id)


_NEXT_TRY = "the next try checks again"


def overdue(window_id: str, job: str, way_out: str = "Stop it on the cluster") -> str:
    """Return the message about a job that was asked to stop and did not end."""
    return f"Window {window_id}: {job} still runs {PATIENCE:g} s after the request to stop it. {way_out}; {_NEXT_TRY}"


def _unsettled(name: JobName, step: Step) -> str:
    if step.stop:
        return overdue(name.window_id, ", ".join(step.stop))
    jobs = ", ".join(step.unknown)
    return f"Window {name.window_id}: {jobs} may be a job of this window. Let it start or end, or kill it; {_NEXT_TRY}"
