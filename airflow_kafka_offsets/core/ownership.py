"""Which window a run gets: its own, one that a dead run left behind, or a new one (DESIGN 5, rules 1 to 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_kafka_offsets.core.errors import IllegalStepError
from airflow_kafka_offsets.core.offsets import Offsets
from airflow_kafka_offsets.core.window import Claim, Held, State


@dataclass(frozen=True, slots=True)
class Position:
    """Where the next live window of a group starts, in which incarnation of each topic."""

    offsets: Offsets
    topic_ids: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GroupState:
    """What the ledger knows when a run asks for its window.

    Attributes:
        version: changes with every new window, abandon and reset; 0: the group is not there yet.
        position: where the next live window starts; None: there never was one.
        open: live windows that wait for their commit, oldest first.
        claimed: the window that the asking claim has, if any.
    """

    version: int = 0
    position: Position | None = None
    open: tuple[Held, ...] = ()
    claimed: Held | None = None


@dataclass(frozen=True, slots=True)
class Again:
    """The run asks again, and gets the window it had."""

    held: Held


@dataclass(frozen=True, slots=True)
class Adopt:
    """The run gets the open window as it is, if its holder is over."""

    held: Held


@dataclass(frozen=True, slots=True)
class Cut:
    """The run gets a new window that starts at this position (None: the group's very first)."""

    position: Position | None


def choose(state: GroupState) -> Again | Adopt | Cut:
    """Choose the window for a run that asks to plan live.

    Raises:
        IllegalStepError: the run's window was superseded by a reset: run again, it would write what others own now.
    """
    if state.claimed is not None and state.claimed.window.state is State.SUPERSEDED:
        raise IllegalStepError(
            f"Window {state.claimed.window.id} of this run was superseded by a reset: its offsets have other owners "
            "now. Trigger a new run instead of clearing this one."
        )
    # An abandoned window owns nothing any more: its run asks like a new one.
    if state.claimed is not None and state.claimed.window.state.owns:
        return Again(state.claimed)
    if state.open:
        return Adopt(state.open[0])
    return Cut(state.position)


def watermark(state: GroupState) -> Position | None:
    """Return the next offset that is not committed: where the oldest open window starts, or where the next one will.

    Offsets that were lost before the open window started count as done: nobody can commit them any more.
    """
    if state.open:
        oldest = state.open[0].window
        return Position(oldest.ranges.starts, oldest.topic_ids)
    return state.position


def is_free(held: Held, *, is_rerun: bool, holder_is_over: bool) -> bool:
    """Whether somebody who was refused a window need not wait for it any longer.

    Args:
        held: the window as it is now.
        is_rerun: whether it was committed when it was refused: then its rerun waits, and not the window behind it.
        holder_is_over: whether its holder is over.
    """
    if held.window.state in (State.ABANDONED, State.SUPERSEDED):
        return True  # its job may still run, but the next window has another id
    if held.window.state is State.COMMITTED and not is_rerun:
        return True
    return holder_is_over


def may_take(held: Held, claim: Claim, holder_is_over: bool) -> bool:
    """Whether a claim may work on a window now: nobody else does."""
    return held.holder == claim or holder_is_over
