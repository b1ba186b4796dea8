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


def settle(
    cluster: Cluster, name: JobName, *, can_reconnect: bool, check: Callable[[], None], noted: str | None = None
) -> str | None:
    """Stop the window's jobs of other launches, wait until they end, and return the job to continue with.

    Args:
        cluster: where the jobs run.
        name: of the job to launch.
        can_reconnect: whether an existing job can be watched to its end.
        check: raises an error if the task was stopped.
        noted: the id of the job that an earlier try noted; None if none did.

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
                logger.warning(
                    "Window %s: job %s of an earlier launch is still running; stopping it", name.window_id, job
                )
                cluster.stop(job)
                stopped.add(job)
        if not step.stop and not step.unknown:
            return step.go_on_with
        if time.monotonic() > deadline:
            raise JobAliveError(_overdue(name, step))
        time.sleep(PAUSE)


def stop(cluster: Cluster, name: JobName) -> None:
    """Stop this job, if the cluster still has it."""
    from airflow_kafka_offsets.core.launch.jobs import JobState

    for job in cluster.jobs(name):
        if job.state is JobState.ALIVE and job.job == name.job:
            logger.info("Window %s: stopping job %s", name.window_id, job.id)
            cluster.stop(job.id)


def _overdue(name: JobName, step: Step) -> str:
    if step.stop:
        return (
            f"Window {name.window_id}: {', '.join(step.stop)} is still running, {PATIENCE:g} s after the request to stop it, so nothing "
            "was launched. Stop it on the cluster; the next try checks again"
        )
    return (
        f"Window {name.window_id}: {', '.join(step.unknown)} may be a job of this window (the driver waits for a worker, or its worker's page "
        "can't be reached), so nothing was launched. Let it start or end, or kill it; the next try checks again"
    )
