"""The state of a group, for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_kafka_offsets.core.history import Act
from airflow_kafka_offsets.core.plan.ownership import GroupState, Owner
from airflow_kafka_offsets.core.window import Lane, WindowRecord

MAX_RECENT = 12
"""How many of the newest windows an outline has."""


MAX_OF_RUN = 500
"""How many windows are listed of one run."""


@dataclass(frozen=True, slots=True)
class Overview:
    """What the ledger has of a group.

    Attributes:
        state: the group as `Ledger.load_all` gives it.
        last_committed: the newest committed live window, or None if there is none.
        open: the open windows of both lanes, newest first: the newest 50 of them.
        acts: what people did to the group, oldest first.
        first: the number of the first window that the ledger has: older ones have left.
    """

    state: GroupState
    last_committed: WindowRecord | None = None
    open: tuple[WindowRecord, ...] = ()
    acts: tuple[Act, ...] = ()
    first: int = 1

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
        first: the number of the first window that the ledger has: older ones have left.
        owner: the task that it belongs to, or None before a task has planned live.
        open: how many windows wait for their commit, in each lane that has some.
        oldest: the oldest of them in each of these lanes.
        last_committed: the newest committed live window, or None if there is none.
        unread: the lag (`core.window.Draft.unread`) when each of its newest live windows was cut, at most `MAX_RECENT`, oldest first,
            without windows that do not have it.
        dag_ids: the DAG that the group belongs to, and those that held one of its newest `MAX_RECENT` windows last, or one of the above.
    """

    group: str
    given: int
    first: int = 1
    owner: Owner | None = None
    open: Mapping[Lane, int] = field(default_factory=dict)
    oldest: Mapping[Lane, WindowRecord] = field(default_factory=dict)
    last_committed: WindowRecord | None = None
    unread: tuple[int, ...] = ()
    dag_ids: frozenset[str] = frozenset()

    @property
    def first_open(self) -> WindowRecord | None:
        """See `first_open`."""
        return first_open(self.oldest)


def first_open(oldest: Mapping[Lane, WindowRecord]) -> WindowRecord | None:
    """Return the oldest open live window, or else the oldest open backfill window, or None."""
    return oldest.get(Lane.LIVE) or oldest.get(Lane.BACKFILL)
