"""Where a group stands, for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from airflow_kafka_offsets.core.history import Act
from airflow_kafka_offsets.core.log import IsolationLevel
from airflow_kafka_offsets.core.plan.ownership import GroupState, Owner
from airflow_kafka_offsets.core.window import Claim, Lane, State, WindowRecord
from airflow_kafka_offsets.core.window_id import name_window

MAX_RECENT = 12
"""How many of the newest windows an outline has."""


MAX_OF_RUN = 500
"""How many windows are listed of one run."""


@dataclass(frozen=True, slots=True)
class WindowLine:
    """A window without its ranges: one line of a list.

    Attributes:
        group, seq, lane, state, span, planned_until, holder: as in `core.window`.
        planned_at, committed_at: in UTC; committed_at None: it is not committed.
    """

    group: str
    seq: int
    lane: Lane
    state: State
    span: int
    planned_until: datetime
    planned_at: datetime
    committed_at: datetime | None
    holder: Claim

    @property
    def id(self) -> str:
        """The window's name."""
        return name_window(self.group, self.seq)


@dataclass(frozen=True, slots=True)
class WindowSummary(WindowLine):
    """A window in short: how much it has, and not what.

    Attributes:
        isolation_level, is_capped, unread: as in `core.window`.
        partitions: how many have something to read.
        attempts, records: as in `core.history.WindowRecord`.
    """

    isolation_level: IsolationLevel
    is_capped: bool
    unread: int | None
    partitions: int
    attempts: int
    records: int | None


def summary_of(row: WindowRecord) -> WindowSummary:
    """Return a window in short."""
    window = row.window
    return WindowSummary(
        group=window.group,
        seq=window.seq,
        lane=window.lane,
        state=window.state,
        span=window.span,
        planned_until=window.planned_until,
        planned_at=row.planned_at,
        committed_at=row.committed_at,
        holder=row.holder,
        isolation_level=window.isolation_level,
        is_capped=window.is_capped,
        unread=window.unread,
        partitions=sum(1 for offsets in window.ranges.values() if offsets.span),
        attempts=row.attempts,
        records=row.records,
    )


@dataclass(frozen=True, slots=True)
class Overview:
    """What the ledger says of a group.

    Attributes:
        state: the group as `Ledger.load_all` gives it.
        last_committed: the newest committed live window; None: there is none.
        open: the open windows of both lanes, newest first: the newest 50 of them.
        acts: what people did to the group, oldest first.
        pruned_before: windows with smaller numbers were pruned; 1: none was.
    """

    state: GroupState
    last_committed: WindowSummary | None = None
    open: tuple[WindowSummary, ...] = ()
    acts: tuple[Act, ...] = ()
    pruned_before: int = 1

    @property
    def dag_ids(self) -> set[str]:
        """The DAGs that have, or had, these windows last."""
        last = () if self.last_committed is None else (self.last_committed,)
        return {window.holder.dag_id for window in (*self.open, *last)}


@dataclass(frozen=True, slots=True)
class Outline:
    """A group in one line, without any ranges.

    Attributes:
        group: its name.
        given: how many windows it ever had.
        owner: the task that it belongs to; None: it will belong to the first task that plans live.
        open: how many windows wait for their commit, in each lane that has some.
        oldest: the oldest of them in each of these lanes.
        last_committed: the newest committed live window; None: there is none.
        unread: of its newest live windows, at most `MAX_RECENT`, oldest first, the lag when each was cut (`core.window.Draft.unread`);
            windows of which it is not known are left out.
        dag_ids: the DAG that the group belongs to, and those that held one of its newest `MAX_RECENT` windows last, or one of the above.
    """

    group: str
    given: int
    owner: Owner | None = None
    open: Mapping[Lane, int] = field(default_factory=dict)
    oldest: Mapping[Lane, WindowLine] = field(default_factory=dict)
    last_committed: WindowLine | None = None
    unread: tuple[int, ...] = ()
    dag_ids: frozenset[str] = frozenset()

    @property
    def first_open(self) -> WindowLine | None:
        """See `first_open`."""
        return first_open(self.oldest)


def first_open(oldest: Mapping[Lane, WindowLine]) -> WindowLine | None:
    """Return the oldest open live window, or else the oldest open backfill window; None: nothing is open."""
    return oldest.get(Lane.LIVE) or oldest.get(Lane.BACKFILL)
