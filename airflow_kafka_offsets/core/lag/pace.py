"""How fast a group commits, from the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from airflow_kafka_offsets.core.group import KafkaGroup, Until
from airflow_kafka_offsets.core.plan.ownership import GroupState

MAX_JOBS = 10
"""How many of the newest windows show how long a job takes."""

OUTLIER_FROM = 5
"""From so many jobs on, the longest one does not count: it may be a first backlog, or a weekend without a launcher."""

MAX_RUNS = 11
"""The windows of so many of the newest runs show the pace: ten intervals."""

MAX_COMMITS = 200
"""No more commits are read for that, as long as they are those of three runs."""


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
        last_commit_at: when the newest of them was committed; None if there is none.
        interval_seconds: the usual time from run to run: the median between the last 11 moments at which such windows were planned. Windows
            that one run planned together count once. None if there are fewer than two moments.
        longest_seconds: the longest time that a job took, of the last 10 windows, without the slowest one if there are at least 5; None if there
            is none.
        caught_up_at: a moment up to which all records may be committed, whatever their timestamps are; None if that is not known.
        caught_up_by: the number of the window that shows this: see `core.lag.measure.read_to_the_end`.
        began_at: when the group began; None if it is not in the ledger yet, or was reset since.
    """

    last_commit_at: datetime | None = None
    interval_seconds: float | None = None
    longest_seconds: float | None = None
    caught_up_at: datetime | None = None
    caught_up_by: int | None = None
    began_at: datetime | None = None


def commits_wanted(group: KafkaGroup) -> int:
    """Return how many of the newest commits show the pace of a group. A run may plan as many windows as may be open."""
    most = group.max_open_windows
    return min(MAX_RUNS * most, max(MAX_COMMITS, 3 * most))


def pace_of(group: KafkaGroup, state: GroupState, commits: Sequence[Commit]) -> Pace:
    """Work out the pace of a group.

    Args:
        group: its definition.
        state: the group in the ledger.
        commits: its newest committed live windows, newest first: see `commits_wanted`.
    """
    planned = sorted({commit.planned_at for commit in commits})[-MAX_RUNS:]
    caught_up = _caught_up(group, state, commits)
    gaps = sorted((later - earlier).total_seconds() for earlier, later in pairwise(planned))
    return Pace(
        last_commit_at=max((commit.committed_at for commit in commits), default=None),
        began_at=state.began_at,
        interval_seconds=gaps[len(gaps) // 2] if gaps else None,
        longest_seconds=_longest([_seconds(group, commit) for commit in commits[:MAX_JOBS]]),
        caught_up_at=caught_up.planned_at if caught_up else None,
        caught_up_by=caught_up.seq if caught_up else None,
    )


def _seconds(group: KafkaGroup, commit: Commit) -> float:
    # A window that is one of several may wait for its turn.
    waited = (commit.committed_at - commit.planned_at).total_seconds()
    return max(0.0, commit.seconds if group.max_open_windows == 1 else waited)


def _longest(took: Sequence[float]) -> float | None:
    if len(took) < OUTLIER_FROM:
        return max(took, default=None)
    return sorted(took)[-2]


def _caught_up(group: KafkaGroup, state: GroupState, commits: Sequence[Commit]) -> Commit | None:
    """Return the newest window below the watermark, if it may have left nothing unread."""
    if group.until is not Until.NOW:
        return None  # it may end before the end offset of that moment
    first_open = min((held.seq for held in state.open), default=None)
    before = [commit for commit in commits if first_open is None or commit.seq < first_open]
    last = max(before, key=lambda commit: commit.seq, default=None)
    return last if last is not None and not last.is_capped else None
