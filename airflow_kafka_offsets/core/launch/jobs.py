"""Which job a launch continues with, and which it stops first: one driver at a time for each window."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.window import Claim, Window

CONF_JOB = "spark.kafka_offsets.job"
"""Spark property with the name of the job, for clusters that have no tags: ``<window>.<job>``."""

SPARK_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
"""The class that a driver of a standalone cluster runs to submit a Python application in client mode."""

YARN_WAITS = "spark.yarn.submit.waitAppCompletion"
"""Spark property: whether spark-submit waits for the end of its job in YARN's cluster mode."""

YARN_TAGS = "spark.yarn.tags"
DRIVER_LABEL = "spark.kubernetes.driver.label."
WINDOW_LABEL = "kafka-offsets-window"
JOB_LABEL = "kafka-offsets-job"
ID_LABEL = "kafka-offsets-window-id"

_LONGEST_YARN_TAG = 100
_LONGEST_LABEL = 63


class JobState(StrEnum):
    """The state of a job, as its cluster reports it."""

    ALIVE = "alive"
    SUCCEEDED = "succeeded"
    OVER = "over"
    """Failed, killed or lost: it has ended without a result."""


SILENT_LOOKS = 10
"""How many looks at a driver may go without an answer. As the provider's at YARN and at a standalone cluster."""


@dataclass(frozen=True, slots=True)
class JobName:
    """How a job is found on its cluster if its id was not recorded.

    Attributes:
        window_id: the window's id, for people.
        window: see `window_digest`.
        job: a digest of the window, the claim that launched the job, and the first attempt since its last clear. All retries of one task have the same.
        planned_at: when the window was written down, in UTC. Its jobs are younger.
    """

    window_id: str
    window: str
    job: str
    planned_at: datetime


@dataclass(frozen=True, slots=True)
class Job:
    """A job as its cluster reports it.

    Attributes:
        id: its id in the cluster.
        state: its state.
        job: see `JobName`, or None if the cluster does not report which job or window it is.
    """

    id: str
    state: JobState
    job: str | None


@dataclass(frozen=True, slots=True)
class Step:
    """What a launch does before it submits anything.

    Attributes:
        stop: jobs that must end first.
        unknown: running jobs that may be of this window.
        go_on_with: the job that this task launched earlier, to wait for or to take the result of; None to submit a new one.
    """

    stop: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    go_on_with: str | None = None


def job_name(window: Window, planned_at: datetime, claim: Claim, first_attempt: int) -> JobName:
    """Name the job of a task on a window.

    Args:
        window: the window that it reads.
        planned_at: when the window was written down. It distinguishes windows of the same id from two ledgers.
        claim: the task that launches it.
        first_attempt: the ledger's number of the attempt that the task's retries repeat: see `core.run`.
    """
    of_window = window_digest(window, planned_at)
    of_claim = [claim.dag_id, claim.run_id, claim.task_id, claim.map_index]
    return JobName(window.id, of_window, _digest(of_window, of_claim, first_attempt), planned_at)


def window_digest(window: Window, planned_at: datetime) -> str:
    """Return what all jobs of a window have in their name, and no job of another window in any ledger."""
    return _digest(window.id, planned_at.isoformat(), sorted(window.topic_ids.items()))


def next_step(jobs: Sequence[Job], name: JobName, *, can_reconnect: bool, noted: str | None = None) -> Step:
    """Decide what a launch does with the jobs that a cluster has.

    Args:
        jobs: the window's jobs, oldest first, and those that may be of it.
        name: the job to launch.
        can_reconnect: whether an existing job can be watched to its end; if not, the launch continues with none.
        noted: the id that an earlier try of this task noted, which names its job where the cluster does not.
    """
    jobs = [replace(job, job=name.job) if job.id == noted and job.job is None else job for job in jobs]
    own = [job for job in jobs if job.job == name.job] if can_reconnect else []
    oldest = {job.state: job.id for job in reversed(own)}
    # If one job has a result, every other running job of the window is a duplicate.
    go_on_with = oldest.get(JobState.SUCCEEDED) or oldest.get(JobState.ALIVE)
    others = [job for job in jobs if job.state is JobState.ALIVE and job.id != go_on_with]
    return Step(
        stop=tuple(job.id for job in others if job.job is not None),
        unknown=tuple(job.id for job in others if job.job is None) if go_on_with is None else (),
        go_on_with=go_on_with,
    )


def tags(master: str, name: JobName, conf: Mapping[str, object]) -> dict[str, str]:
    """Return the Spark properties by which a cluster finds the job again. The user's own tags stay.

    Args:
        master: as in ``--master``.
        name: the job's name.
        conf: the user's Spark properties.
    """
    if "yarn" in master:
        own = [tag for tag in str(conf.get(YARN_TAGS) or "").split(",") if tag.strip()]
        # YARN stores tags in lower case and refuses long ones.
        readable = [name.window_id.lower()] if len(name.window_id) <= _LONGEST_YARN_TAG else []
        return {YARN_TAGS: ",".join([*own, *readable, yarn_tag(name.window), yarn_tag(name.job)])}
    if "k8s" in master:
        labels = {WINDOW_LABEL: name.window, JOB_LABEL: name.job, ID_LABEL: label_value(name.window_id)}
        return {f"{DRIVER_LABEL}{label}": value for label, value in labels.items()}
    return {CONF_JOB: f"{name.window}.{name.job}"} if master.startswith("spark://") else {}


def yarn_tag(digest: str) -> str:
    """Return a tag that only jobs of this package have."""
    return f"kafka-offsets-{digest}"


def label_value(text: str) -> str:
    """Return a valid value of a Kubernetes label: if the text is too long, its end, which has the window's number.

    >>> label_value("lake.orders-000012")
    'lake.orders-000012'
    >>> label_value("_" * 60 + "orders-000012")
    'orders-000012'
    """
    return re.sub(r"^[^A-Za-z0-9]+|[^A-Za-z0-9]+$", "", re.sub(r"[^A-Za-z0-9_.-]", "-", text)[-_LONGEST_LABEL:])


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]
