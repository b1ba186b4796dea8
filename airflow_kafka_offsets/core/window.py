"""A window: the offset ranges that one Spark batch reads; its life, and who works on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from enum import StrEnum

from airflow_kafka_offsets.core.errors import IllegalStepError, NoEvidenceError, WindowBusyError
from airflow_kafka_offsets.core.log import UNKNOWN_ID, IsolationLevel
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.ranges import OffsetRanges
from airflow_kafka_offsets.core.window_id import name_window


class Lane(StrEnum):
    """Live windows tile the log and move the watermark. Backfill windows own offsets below it that no one owned."""

    LIVE = "live"
    BACKFILL = "backfill"


class State(StrEnum):
    """Where a window is in its life."""

    PLANNED = "planned"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABANDONED = "abandoned"
    SUPERSEDED = "superseded"

    @property
    def is_open(self) -> bool:
        """Whether the window still waits for its commit."""
        return self in OPEN

    @property
    def owns(self) -> bool:
        """Whether the window owns its offsets: no other window may have them."""
        return self in OWNING


COMMITTING_HINT = (
    ": the next try or run finishes the commit. If the offset store is wrong or gone: "
    "docs/reference/errors.md#illegalsteperror"
)

OPEN = frozenset({State.PLANNED, State.COMMITTING})
OWNING = OPEN | {State.COMMITTED}

# All that can ever happen to a window.
LIFE: Mapping[State, frozenset[State]] = {
    State.PLANNED: frozenset({State.COMMITTING, State.ABANDONED}),
    State.COMMITTING: frozenset({State.COMMITTED}),
    State.COMMITTED: frozenset({State.SUPERSEDED}),
    State.ABANDONED: frozenset(),
    State.SUPERSEDED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class Draft:
    """A window before it has a name.

    Attributes:
        ranges: what it reads, the empty ranges of quiet partitions included.
        topic_ids: the id of each topic when the window was cut.
        planned_until: its time. The window belongs to the time span that contains this moment.
        isolation_level: which records it reads.
        lost: offsets that retention had removed before this window started, recorded instead of read.
        lane: live or backfill.
        is_capped: whether ``max_offsets`` cut something off when it was planned: there was more to read up to its `planned_until`.
            Never in the backfill lane.
        leader_epochs: the epoch of the leader that reported the end of each partition's log, see `core.leader_epochs`.
        schemas: the ledger's number of the schemas that are frozen with it, or None if there are none; see `core.schemas`.
        unread: the group's lag when the window was cut, before it took its part: the offsets from its starts to the ends of the logs
            that planning saw; None in the backfill lane.
    """

    ranges: OffsetRanges
    topic_ids: Mapping[str, str]
    planned_until: datetime
    isolation_level: IsolationLevel
    lost: OffsetRanges = field(default_factory=lambda: OffsetRanges({}))
    lane: Lane = Lane.LIVE
    is_capped: bool = False
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    schemas: int | None = None
    unread: int | None = None

    @property
    def span(self) -> int:
        """An upper bound on its records."""
        return self.ranges.span

    @property
    def partitions(self) -> int:
        """How many partitions have something to read."""
        return sum(1 for offsets in self.ranges.values() if offsets.span)

    def named(self, group: str, seq: int) -> Window:
        """Return the planned window that this becomes; it notes the epochs of its own partitions only."""
        values = {f.name: getattr(self, f.name) for f in fields(Draft)}
        values["leader_epochs"] = {tp: epoch for tp, epoch in self.leader_epochs.items() if tp in self.ranges}
        return Window(**values, group=group, seq=seq, state=State.PLANNED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(Draft):
    """Offset ranges under a name, forever.

    Attributes:
        group: the name of the group.
        seq: grows by one within the group; never used twice.
        state: where it is in its life; the only attribute that ever changes.
    """

    group: str
    seq: int
    state: State

    @property
    def id(self) -> str:
        """The name under which its output is stored, e.g. ``lake.orders-000012``."""
        return name_window(self.group, self.seq)

    def identified(self, ids: Mapping[str, str]) -> Window:
        """Return it with topic ids that were unknown when it was cut, for comparisons: its digest has those of then."""
        known = {t: ids.get(t, id_) if id_ == UNKNOWN_ID else id_ for t, id_ in self.topic_ids.items()}
        return self if known == self.topic_ids else replace(self, topic_ids=known)

    def to(self, *states: State) -> Window:
        """Take steps of a window's life.

        Raises:
            IllegalStepError: its state does not allow this step.
        """
        check_steps(self.id, self.state, *states)
        return replace(self, state=states[-1])


def check_steps(name: str, state: State, *steps: State) -> None:
    """Refuse steps that a window's state does not allow.

    Args:
        name: the window's id.
        state: where it is.
        steps: what it would become, one after the other.

    Raises:
        IllegalStepError: its state does not allow this step.
    """
    for step in steps:
        if step not in LIFE[state]:
            hint = COMMITTING_HINT if state is State.COMMITTING else ""
            what = f"{state} already" if step is state else f"{state} and can't become {step}"
            raise IllegalStepError(f"Window {name} is {what}{hint}")
        state = step


class Scope(StrEnum):
    """What has to be over before someone else may take the window."""

    TASK = "task"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Claim:
    """What ties a run to its windows. A retry, a clear and a reprocessed run have the claim of the first try.

    Attributes:
        dag_id, run_id, task_id, map_index: who asks; -1: not a mapped task.
        scope: whether the task itself works on the window, or other tasks of its run do. Claims that differ only in this are
            equal: a task is still the same task after its operator was changed.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1
    scope: Scope = field(default=Scope.TASK, compare=False)

    def __str__(self) -> str:
        mapped = f"[{self.map_index}]" if self.map_index >= 0 else ""
        return f"{self.dag_id}/{self.run_id}/{self.task_id}{mapped}"

    def is_same_run(self, other: Claim) -> bool:
        """Whether both belong to one DAG run."""
        return (self.dag_id, self.run_id) == (other.dag_id, other.run_id)

    def lets_commit(self, other: Claim) -> bool:
        """Whether another claim may commit what this one holds: for a plan task, every task of its run may; otherwise only the task itself."""
        return self == other if self.scope is Scope.TASK else self.is_same_run(other)


_NEVER = datetime.min.replace(tzinfo=UTC)


class Outcome(StrEnum):
    """How an attempt ended.

    ``killed``: the task was stopped from outside, by a person or by Airflow (a clear, a heartbeat time-out, the stop of its
    worker). ``running``: no end is reported yet. ``lost``: none was reported, and then
    a later try of the task began, or another claim got the window.
    """

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    KILLED = "killed"
    LOST = "lost"


def condition(state: str, rerun: str | None) -> str:
    """Return the state of a window in words, with what its newest attempt makes of it if that began after the commit.

    >>> condition("planned", None), condition("committed", "failed")
    ('planned', 'committed, needs another run')
    >>> condition("committed", "running")
    'committed, its rerun has not ended'
    """
    if rerun is None:
        return str(state)
    return f"{state}, {'its rerun has not ended' if rerun == Outcome.RUNNING else 'needs another run'}"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class WindowRecord:
    """A window as the ledger has it, with its holder and some of its history.

    Two records are equal if the window and its hold are.

    Attributes:
        group, seq, lane, state, span, planned_until, isolation_level, is_capped, unread, schemas: those of the window.
        partitions: how many partitions have something to read.
        holder: the claim that works on it, or worked on it last.
        holds: a fencing token. It grows when a claim gets the window and when an attempt begins, so a change that was decided before loses.
        committed_at: when it was committed, in UTC, or None if it is not.
        planned_at: when it was planned, in UTC.
        attempts: how many there were; 0 also if this was not read.
        records: how many records the last successful attempt read, or None if it reported none, or this was not read.
        bundle_version: that of the last attempt (`core.run.Try`), or None if it had none, or this was not read.
        rerun: how the newest attempt at it ended if it was committed before that began, and is not committed again; or None, or this was
            not read.
        last_attempt: when the last attempt began, in UTC, or None if there was none, or this was not read.
        decode: returns the window, and does its work once, or None if the record was read without its ranges.
    """

    group: str
    seq: int
    lane: Lane
    state: State
    span: int
    planned_until: datetime
    isolation_level: IsolationLevel
    is_capped: bool
    unread: int | None
    schemas: int | None
    partitions: int
    holder: Claim
    holds: int
    committed_at: datetime | None
    planned_at: datetime
    decode: Callable[[], Window] | None = None
    attempts: int = 0
    records: int | None = None
    bundle_version: str | None = None
    rerun: Outcome | None = None
    last_attempt: datetime | None = None

    @classmethod
    def of(
        cls,
        window: Window,
        holder: Claim,
        *,
        holds: int = 0,
        planned_at: datetime = _NEVER,
    ) -> WindowRecord:
        """Return the record of a window that is not committed."""
        return cls(
            group=window.group,
            seq=window.seq,
            lane=window.lane,
            state=window.state,
            span=window.span,
            planned_until=window.planned_until,
            isolation_level=window.isolation_level,
            is_capped=window.is_capped,
            unread=window.unread,
            schemas=window.schemas,
            partitions=window.partitions,
            holder=holder,
            holds=holds,
            committed_at=None,
            planned_at=planned_at,
            decode=lambda: window,
        )

    @property
    def window(self) -> Window:
        """The window. With 20,000 partitions its ranges take longest to read, so they are decoded on first use.

        Raises:
            LookupError: the record was read without its ranges.
        """
        if self.decode is None:
            raise LookupError(f"{self.id} was read without its ranges")
        return self.decode()

    @property
    def id(self) -> str:
        """The window's name."""
        return name_window(self.group, self.seq)

    @property
    def condition(self) -> str:
        """Its state in words, also if it needs another run."""
        return condition(self.state, self.rerun)

    @property
    def last_used(self) -> datetime:
        """The last moment at which something happened to it. Its `planned_until` counts, too."""
        times = (self.planned_until, self.planned_at, self.committed_at, self.last_attempt)
        return max(time for time in times if time is not None)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WindowRecord):
            return NotImplemented
        have_ranges = self.decode is not None and other.decode is not None
        is_alike = all(getattr(self, name) == getattr(other, name) for name in _COMPARED)
        return is_alike and (not have_ranges or self.window == other.window)

    __hash__ = None  # type: ignore[assignment]


_COMPARED = (
    *("group", "seq", "lane", "state", "span", "planned_until", "isolation_level", "is_capped", "unread", "schemas"),
    *("partitions", "holder", "holds", "committed_at"),
)


def check_owns(window: WindowRecord) -> None:
    """Refuse to work on a window that no longer owns its offsets.

    Raises:
        IllegalStepError: it was abandoned or superseded.
    """
    if not window.state.owns:
        raise IllegalStepError(f"Window {window.id} was {window.state} and owns nothing. Plan again")


def check_commit(window: WindowRecord, claim: Claim, outcome: Outcome | None) -> bool:
    """Decide whether a commit may happen.

    Args:
        window: its record, which needs no ranges.
        claim: who commits.
        outcome: how the attempt ended that is the evidence, or None if another launcher ran the job, and the green task is the
            only evidence, or there was nothing to run.

    Returns:
        Whether to commit it: it is planned, or committing. If not, it is committed already, and this was a rerun.

    Raises:
        WindowBusyError: another run, or another task that works on it itself, has adopted the window.
        NoEvidenceError: our launcher ran the job and did not record its success.
        IllegalStepError: the window was abandoned or superseded in the meantime.
    """
    is_own_work = window.holder.scope is Scope.TASK
    if not window.holder.lets_commit(claim):
        raise WindowBusyError(window.id, window.holder, is_rerun=window.state is State.COMMITTED)
    if is_own_work and window.span > 0 and outcome is not Outcome.SUCCEEDED:
        raise no_evidence(window.id, outcome)
    if window.state is State.COMMITTED:
        return False
    rest = (State.COMMITTED,) if window.state is State.COMMITTING else (State.COMMITTING, State.COMMITTED)
    check_steps(window.id, window.state, *rest)
    return True


def no_evidence(window_id: str, outcome: Outcome | None) -> NoEvidenceError:
    """Return the error for a window whose attempt ended like this."""
    if outcome is Outcome.LOST:
        cause = "Airflow counted this task as dead, and a later attempt has started. Only that one commits"
    else:
        cause = f"its job has no recorded success ({outcome or 'unknown'}). Clear the task to run it again"
    return NoEvidenceError(f"Window {window_id}: {cause}")
