"""How fast a group commits, from the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from airflow_kafka_offsets.core.group import KafkaGroup, Until
from airflow_kafka_offsets.core.plan.ownership import GroupState

MAX_COMMITS = 11
"""How many of the newest commits tell the pace: ten intervals."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed live window, without its ranges.

    Attributes:
        seq: its number.
        planned_at, committed_at: in UTC.
        is_capped: whether it left something unread when it was planned.
        seconds: how long its job took: the last attempt that succeeded, or without one from planning to commit.
    """

    seq: int
    planned_at: datetime
    committed_at: datetime
    is_capped: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a group commits, by its newest committed live windows.

    Attributes:
        last_commit_at: when the newest of them was committed; None: there is none.
        interval_seconds: the usual time between two commits: the median of the last 10; None: there are fewer than two commits.
        longest_seconds: the longest time that a job took, of the last 10 windows; None: there is none.
        caught_up_at: a moment up to which all records are committed, whatever their timestamps are; None: not known.
    """

    last_commit_at: datetime | None = None
    interval_seconds: float | None = None
    longest_seconds: float | None = None
    caught_up_at: datetime | None = None


def pace_of(group: KafkaGroup, state: GroupState, commits: Sequence[Commit]) -> Pace:
    """Work out the pace of a group.

    Args:
        group: its definition.
        state: where it stands.
        commits: its newest committed live windows.
    """
    at = sorted(commit.committed_at for commit in commits)
    gaps = sorted((later - earlier).total_seconds() for earlier, later in pairwise(at))
    took = [commit.seconds for commit in commits[: MAX_COMMITS - 1]]
    return Pace(
        last_commit_at=at[-1] if at else None,
        interval_seconds=gaps[len(gaps) // 2] if gaps else None,
        longest_seconds=max(0.0, *took) if took else None,
        caught_up_at=_caught_up_at(group, state, commits),
    )


def _caught_up_at(group: KafkaGroup, state: GroupState, commits: Sequence[Commit]) -> datetime | None:
    """Return when the window that ends at the watermark was planned, if it left nothing unread."""
    if group.until is not Until.NOW:
        return None  # it may end before the end offset of that moment
    first_open = min((held.window.seq for held in state.open), default=None)
    before = [commit for commit in commits if first_open is None or commit.seq < first_open]
    last = max(before, key=lambda commit: commit.seq, default=None)
    return last.planned_at if last is not None and not last.is_capped else None
