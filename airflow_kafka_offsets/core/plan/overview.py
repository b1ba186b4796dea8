"""Where a group stands, for people."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_kafka_offsets.core.history import Act, WindowRow
from airflow_kafka_offsets.core.plan.ownership import GroupState


@dataclass(frozen=True, slots=True)
class Overview:
    """What the ledger says of a group.

    Attributes:
        state: the group.
        last_committed: the newest committed live window; None: there is none.
        open: the open windows of both lanes, newest first: the newest 50 of them.
        acts: what people did to the group, oldest first.
        pruned_before: windows with smaller numbers were pruned; 1: none was.
    """

    state: GroupState
    last_committed: WindowRow | None = None
    open: tuple[WindowRow, ...] = ()
    acts: tuple[Act, ...] = ()
    pruned_before: int = 1
