"""Which job a launch goes on with, and which it stops first: one window, one driver at a time."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from airflow_kafka_offsets.core.launch.spark_conf import CONF_JOB

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.window import Claim, Window

YARN_TAGS = "spark.yarn.tags"
DRIVER_LABEL = "spark.kubernetes.driver.label."
WINDOW_LABEL = "kafka-offsets-window"
JOB_LABEL = "kafka-offsets-job"
ID_LABEL = "kafka-offsets-window-id"

_LONGEST_YARN_TAG = 100
_LONGEST_LABEL = 63


class JobState(StrEnum):
    """What a cluster says of a job, as far as a launch must know."""

    ALIVE = "alive"
    SUCCEEDED = "succeeded"
    OVER = "over"
    """Failed, killed or lost: there is nothing to wait for, and no result."""


@dataclass(frozen=True, slots=True)
class JobName:
    """How a cluster knows a job, though nobody noted its id.

    Attributes:
        window_id: for people.
        window: the same for all jobs of one window, and for no other window of any ledger.
        job: also tells who launched it, and after which clear: the retries of one task have one name.
        planned_at: when the window was written down, in UTC: its jobs are younger.
    """

    window_id: str
    window: str
    job: str
    planned_at: datetime


@dataclass(frozen=True, slots=True)
class Job:
    """A job as its cluster has it.

    Attributes:
        id: what the cluster calls it.
        state: what it says of it.
        job: see `JobName`; None: the cluster can't say which job it is, or of which window.
    """

    id: str
    state: JobState
    job: str | None


@dataclass(frozen=True, slots=True)
class Step:
    """What a launch does before it submits anything.

    Attributes:
        stop: jobs that have to be over first.
        unknown: jobs at work that may be of this window, which nobody can tell.
        go_on_with: the job that this task launched before: wait for its end, or take its result; None: submit.
    """

    stop: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    go_on_with: str | None = None


def job_name(window: Window, planned_at: datetime, claim: Claim, first_attempt: int) -> JobName:
    """Name the job of a task on a window.

    Args:
        window: what it reads.
        planned_at: when the window was written down. Two ledgers can have a window of one id, on one cluster.
        claim: who launches it.
        first_attempt: the ledger's number of the attempt that its retries repeat: see `core.tries`.
    """
    of_window = _digest(window.id, planned_at.isoformat(), sorted(window.topic_ids.items()))
    of_claim = [claim.dag_id, claim.run_id, claim.task_id, claim.map_index]
    return JobName(window.id, of_window, _digest(of_window, of_claim, first_attempt), planned_at)


def next_step(jobs: Sequence[Job], name: JobName, *, can_reconnect: bool, noted: str | None = None) -> Step:
    """Decide from what a cluster has of a window.

    Args:
        jobs: the window's jobs, oldest first, and those that may be of it.
        name: who asks.
        can_reconnect: whether a job that is found can be watched to its end; if not, none goes on.
        noted: the id that an earlier try of this task noted: what the cluster can't tell of that job is known.
    """
    jobs = [replace(job, job=name.job) if job.id == noted and job.job is None else job for job in jobs]
    mine = [job for job in jobs if job.job == name.job] if can_reconnect else []
    alive, done = (_first(mine, state) for state in (JobState.ALIVE, JobState.SUCCEEDED))
    # A result makes a job that is still at work a twin, whoever launched it.
    go_on_with = done or alive
    others = [job for job in jobs if job.state is JobState.ALIVE and job.id != go_on_with]
    return Step(
        stop=tuple(job.id for job in others if job.job is not None),
        unknown=tuple(job.id for job in others if job.job is None) if go_on_with is None else (),
        go_on_with=go_on_with,
    )


def _first(jobs: Sequence[Job], state: JobState) -> str | None:
    return next((job.id for job in jobs if job.state is state), None)


def tags(master: str, name: JobName, conf: Mapping[str, object]) -> dict[str, str]:
    """Return the Spark properties by which a cluster finds the job again; a user's own tags stay.

    Args:
        master: as in ``--master``.
        name: of the job.
        conf: the user's Spark properties.
    """
    if "yarn" in master:
        own = [tag for tag in str(conf.get(YARN_TAGS) or "").split(",") if tag.strip()]
        # YARN stores tags in lower case, and refuses long ones.
        readable = [name.window_id.lower()] if len(name.window_id) <= _LONGEST_YARN_TAG else []
        return {YARN_TAGS: ",".join([*own, *readable, yarn_tag(name.window), yarn_tag(name.job)])}
    if "k8s" in master:
        labels = {WINDOW_LABEL: name.window, JOB_LABEL: name.job, ID_LABEL: label_value(name.window_id)}
        return {f"{DRIVER_LABEL}{label}": value for label, value in labels.items()}
    return {CONF_JOB: f"{name.window}.{name.job}"} if master.startswith("spark://") else {}


def yarn_tag(digest: str) -> str:
    """Return the tag that only jobs of ours have."""
    return f"kafka-offsets-{digest}"


def label_value(text: str) -> str:
    """Return what Kubernetes takes as the value of a label: the end of a text that is too long, where its number stands.

    >>> label_value("lake.orders-000012")
    'lake.orders-000012'
    >>> label_value("_" * 60 + "orders-000012")
    'orders-000012'
    """
    return re.sub(r"^[^A-Za-z0-9]+|[^A-Za-z0-9]+$", "", re.sub(r"[^A-Za-z0-9_.-]", "-", text)[-_LONGEST_LABEL:])


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]
