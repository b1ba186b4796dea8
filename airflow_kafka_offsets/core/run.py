"""What Airflow says about one try of a task, read once as the try begins; and which earlier tries it continues (docs/adr/0008).

A retry continues what the tries before it did; a clear begins again. Airflow does not say which of the two a try is. It sets
`max_tries` when it makes a run. Each clear of this very task changes it to the number of the last try plus the retries that the task has
at that moment; a retry does not change it. So two tries with different `max_tries` have a clear between them. The reverse fails in one case:
after an edit of `retries`, a clear can set the same number as before. Two more facts settle that case: the number of each try, which only
grows, and the start of the run. A clear changes this start if the run has ended, and another run under the same id has another start.

In doubt, the try begins again: that costs a job, and the other mistake costs records. Two clears still look like a retry, and no fact that
Airflow has distinguishes them. One is a clear while the run is still at work, if `retries` was lowered before it and raised again after it.
The other is a clear after the worker died, because Airflow changes `max_tries` only after the worker's process has ended well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from airflow_kafka_offsets.core.errors import IllegalStepError, WindowBusyError
from airflow_kafka_offsets.core.history import Attempt
from airflow_kafka_offsets.core.window import Claim, Outcome, Scope, State, WindowRecord, check_owns


@dataclass(frozen=True, slots=True)
class Try:
    """One try of a task, as Airflow reports it.

    Attributes:
        number: counts the tries of the task in its run, from 1. It grows with retries and with clears.
        max_tries: changed by a clear of this very task; not by its retry, and not by the clear of another task.
        retries: those of the task as it is now. An edit of the DAG may change them between two tries.
        run_started: when the run began, or began again after it had ended, or None if Airflow does not report it.
        bundle_version: the version of the DAG's bundle whose code the try runs, or None if the run is tied to none.
        is_resumed: it has launched a driver, given its worker slot back, and now continues.
    """

    number: int = 1
    max_tries: int = 0
    retries: int = 0
    run_started: datetime | None = None
    bundle_version: str | None = None
    is_resumed: bool = False

    @property
    def series(self) -> str:
        """What all automatic retries share with the try that they repeat."""
        started = "" if self.run_started is None else self.run_started.astimezone(UTC).isoformat()
        return f"{self.max_tries} {started}".rstrip()

    @property
    def last_clear(self) -> int:
        """The number of the last try before the last clear, computed from the current `retries`; 0: never cleared."""
        return max(0, self.max_tries - self.retries)

    @property
    def is_first_after_clear(self) -> bool:
        """Whether a clear began it, and no automatic retry."""
        return self.last_clear > 0 and self.number == self.last_clear + 1

    def is_before(self, other: Attempt) -> bool:
        """Whether another try of the same task began after this one. A run that was deleted and made again counts its tries from 1."""
        started, others = self.series.partition(" ")[2], other.series.partition(" ")[2]
        return (started, self.number) < (others, other.try_number)

    def continues(self, earlier: Attempt) -> bool:
        """Whether this try is a retry of an earlier one of the same task: Airflow reports no clear between them."""
        return earlier.series == self.series and earlier.try_number > self.last_clear

    def resumes(self, attempt: Attempt) -> bool:
        """Whether an attempt is that of this very try, which goes on with it."""
        is_own = (attempt.series, attempt.try_number) == (self.series, self.number)
        return self.is_resumed and is_own and attempt.outcome is Outcome.RUNNING


@dataclass(frozen=True, slots=True)
class Run:
    """One try of a task, in one run of its DAG, as Airflow reports it.

    Attributes:
        claim: who asks for windows.
        this_try: which try of the task it is.
        kind: Airflow's name for the kind of run: scheduled, manual, backfill, asset_triggered, ...
        interval: start and end of the data interval, or of the partition, in UTC, or None if the run has neither.
        partition: the key of the run's partition, or None if it has none.
        conf: what the run was triggered with.
        params: the values of the DAG's params in this run.
        declared: the names of the DAG's params.
        groups: the names of the groups that the tasks of the DAG read.
        has_retry_policy: the task has a retry policy, which can refuse a retry.
        keeps_state: Airflow keeps values for the task between its tries.
    """

    claim: Claim
    this_try: Try = field(default_factory=Try)
    kind: str = "manual"
    interval: tuple[datetime, datetime] | None = None
    partition: str | None = None
    conf: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    declared: Set[str] = frozenset()
    groups: Set[str] = frozenset()
    has_retry_policy: bool = False
    keeps_state: bool = False

    @property
    def next_try(self) -> int | None:
        """The number of the try that Airflow starts after a failure of this one, or None if no retry is left."""
        return None if self.this_try.number > self.this_try.max_tries else self.this_try.number + 1


def check_attempt(window: WindowRecord, claim: Claim, this_try: Try, newest: Attempt | None) -> None:
    """Refuse an attempt of a process that Airflow counts as dead: another task may be working on its window.

    Args:
        window: the window, as it is now.
        claim: who begins.
        this_try: the try that begins.
        newest: the newest attempt of this claim in the group, at whatever window, or None if there is none.

    Raises:
        WindowBusyError: another run has the window.
        IllegalStepError: a later try of the same task has begun to work, or the window no longer owns its offsets.
    """
    check_owns(window)
    # If another launcher runs the job, the task that commits records the attempt; the plan task holds the window.
    is_around = claim.scope is Scope.RUN and window.holder.lets_commit(claim)
    if window.holder != claim and not is_around:
        raise WindowBusyError(window.id, window.holder, is_rerun=window.state is State.COMMITTED)
    if newest is not None and this_try.is_before(newest):
        raise IllegalStepError(
            f"Window {window.id}: try {newest.try_number} of this task has begun since, and only that one works on its windows"
        )


def first_of_series(this_try: Try, begun: Sequence[Attempt]) -> Attempt:
    """Return the oldest try that a try continues, or the try itself if it begins again.

    Args:
        this_try: the try.
        begun: the attempts that the task has begun, oldest first; one of them is that of the try.
    """
    continued = [one for one in begun if this_try.continues(one)]
    itself = [one for one in begun if one.try_number == this_try.number]
    return continued[0] if continued else itself[-1]


def unseen_before(begun: Sequence[Attempt]) -> Attempt | None:
    """Return the attempt before the newest one if no end of it was reported, so that its job may still run, or None.

    Args:
        begun: the attempts at one window, oldest first. The newest one has made what was running ``lost``.
    """
    before = begun[-2] if len(begun) > 1 else None
    return before if before is not None and before.outcome is Outcome.LOST else None


def records_read(attempts: Sequence[Attempt]) -> int | None:
    """Return how many records the newest successful attempt with a count has read, or None if there is no such attempt."""
    counts = [a.records for a in attempts if a.outcome is Outcome.SUCCEEDED and a.records is not None]
    return counts[-1] if counts else None
