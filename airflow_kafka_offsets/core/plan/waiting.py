"""Decides whether a sensor's condition is met, by ledger and Kafka at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from airflow_kafka_offsets.core.conditions import (
    Arrived,
    CommittedUntil,
    Event,
    LagAtMost,
    LogCondition,
    TimePassed,
    UnreadAtLeast,
)
from airflow_kafka_offsets.core.errors import MAX_NAMED, IllegalStepError
from airflow_kafka_offsets.core.fields import EPOCH
from airflow_kafka_offsets.core.history import Frontier
from airflow_kafka_offsets.core.log import Bounds, LogSnapshot
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan import ownership
from airflow_kafka_offsets.core.plan.matching import check_there
from airflow_kafka_offsets.core.plan.ownership import NOWHERE, GroupState, Position
from airflow_kafka_offsets.core.plan.planning import plan_all
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.window import State, WindowRecord

OffsetsAt = Mapping[TopicPartition, int | None]
"""The timestamp index for one moment. None if no record has this timestamp or a later one."""


CALL_AGAIN_AFTER = timedelta(minutes=15)
"""If no run has planned this long after the trigger asked for one, and no window is open, it asks for another one."""


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A group and its log at one moment, for a condition on Kafka.

    Attributes:
        now: the moment.
        state: the group in the ledger.
        log: its topics.
        at: the timestamp index for each of the `lookup_times`.
        recovered: a second look at partitions that seemed to end before the watermark.
    """

    now: datetime
    state: GroupState
    log: LogSnapshot
    at: Mapping[datetime, OffsetsAt] = field(default_factory=dict)
    recovered: Mapping[TopicPartition, Bounds] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a condition is met.

    Attributes:
        is_met: whether it is.
        facts: the numbers behind it, in a few JSON-able values.
        event: what the next `Arrived` counts from.
    """

    is_met: bool
    facts: Mapping[str, Any]
    event: Event | None = None


def position_for(condition: LogCondition, state: GroupState) -> Position | None:
    """Return where a condition begins to count, or None for the beginning of the log."""
    return state.position if isinstance(condition, Arrived) else ownership.watermark(state)


def lookup_times(condition: LogCondition, now: datetime) -> list[datetime]:
    """Return the moments that have to be looked up in Kafka's timestamp index."""
    match condition:
        case UnreadAtLeast(max_age=timedelta() as age) | Arrived(UnreadAtLeast(max_age=timedelta() as age)):
            return [_back(now, age)]
        case TimePassed(until=until, idle_after=idle) if now >= until:
            return [until] if idle is None else [until, _back(now, idle)]
        case _:
            return []


def decide_log(condition: LogCondition, snapshot: GroupSnapshot) -> Decision:
    """Decide a condition on what Kafka holds.

    Raises:
        LogError: planning would raise it, too: records are gone, or a topic is missing or was recreated.
    """
    match condition:
        case UnreadAtLeast():
            return _enough(condition, _unread(condition, snapshot), snapshot)
        case Arrived():
            return _arrived(condition, snapshot)
        case TimePassed():
            return _time_passed(condition, snapshot)
        case LagAtMost():
            unread = _unread(condition, snapshot).without_empty()
            return Decision(unread.span <= condition.max_lag, {"lag": unread.span, **_behind(list(unread))})


def _unread(condition: LogCondition, snapshot: GroupSnapshot) -> OffsetRanges:
    # What the next plan would read without a cap, with the same verdicts and errors.
    first = {tp: bounds.beginning for tp, bounds in snapshot.log.bounds.items()}
    position = position_for(condition, snapshot.state)
    return plan_all(
        condition.group, position, snapshot.log, until=snapshot.now, first=first, recovered=snapshot.recovered
    ).ranges


def _enough(condition: UnreadAtLeast, unread: OffsetRanges, snapshot: GroupSnapshot) -> Decision:
    unread = unread.without_empty()
    old = _old(unread, snapshot.at[_back(snapshot.now, condition.max_age)]) if condition.max_age else []
    has_enough = condition.min_span is not None and unread.span >= condition.min_span
    facts = {"span": unread.span, **_behind(list(unread))}
    return Decision(has_enough or bool(old), facts | ({"too_old": _names(old)} if condition.max_age else {}))


def _old(unread: OffsetRanges, at: OffsetsAt) -> list[TopicPartition]:
    # Whatever lies before the first record of that moment or later is older.
    return [tp for tp, r in unread.items() if (first := at.get(tp)) is None or first > r.start]


def _arrived(condition: Arrived, snapshot: GroupSnapshot) -> Decision:
    unread, last = _unread(condition, snapshot), condition.last
    position = snapshot.state.position.offsets if snapshot.state.position else None
    if last is not None and last.position == position and not _is_forgotten(last, snapshot):
        unread = OffsetRanges(
            (tp, OffsetRange(min(r.end, max(r.start, last.ends.get(tp, 0))), r.end)) for tp, r in unread.items()
        )
    return replace(_enough(condition.enough, unread, snapshot), event=Event(position, unread.ends, snapshot.now))


def _is_forgotten(last: Event, snapshot: GroupSnapshot) -> bool:
    return not snapshot.state.open and snapshot.now - last.at >= CALL_AGAIN_AFTER


def _time_passed(condition: TimePassed, snapshot: GroupSnapshot) -> Decision:
    check_there(condition.group, NOWHERE, snapshot.log)  # otherwise a missing topic would count as passed
    facts: dict[str, Any] = {"until": condition.until.isoformat(), "partitions": len(snapshot.log.bounds)}
    if snapshot.now < condition.until:
        return Decision(False, facts | {"held_back_by": ["the clock"]})
    silent = [tp for tp, first in sorted(snapshot.at[condition.until].items()) if first is None]
    recent = snapshot.at[_back(snapshot.now, condition.idle_after)] if condition.idle_after else None
    idle = [tp for tp in silent if recent is not None and recent[tp] is None]
    held_back = [tp for tp in silent if tp not in set(idle)]
    return Decision(not held_back, facts | {"idle": _names(idle), "held_back_by": _names(held_back)})


def decide_window(window: WindowRecord) -> Decision:
    """Decide whether a window is committed.

    Raises:
        IllegalStepError: it was abandoned or superseded, so it never will be.
    """
    if not window.state.owns:
        raise IllegalStepError(f"Window {window.id} is {window.state} and will never be committed")
    return Decision(window.state is State.COMMITTED, {"window_id": window.id, "state": window.state.value})


def decide_until(condition: CommittedUntil, frontier: Frontier, now: datetime) -> Decision:
    """Decide whether all that a group could read at a planned-until time is committed.

    Raises:
        IllegalStepError: the window of that time was abandoned, and left a gap.
    """
    until = condition.until
    for gap in frontier.gaps:
        if until <= gap.until and (gap.after is None or until > gap.after):
            raise IllegalStepError(
                f"Window {gap.window_id} was abandoned and left a gap, so what the group could read until {until.isoformat()} is not all "
                "committed. After a replay of the gap, mark this task as success"
            )
    has_come = now >= until
    is_met = has_come and frontier.planned_until is not None and frontier.planned_until >= until
    waits_for = list(frontier.open[:MAX_NAMED]) if has_come else ["the clock"]
    facts = {
        "until": until.isoformat(),
        "window_id": frontier.window_id if is_met else None,
        "held_back_by": [] if is_met else waits_for,
    }
    return Decision(is_met, facts)


def _back(now: datetime, duration: timedelta) -> datetime:
    return now - min(duration, now - EPOCH)


def _behind(partitions: Sequence[TopicPartition]) -> dict[str, Any]:
    return {"partitions": len(partitions), "behind": _names(partitions)}


def _names(partitions: Sequence[TopicPartition]) -> list[str]:
    return [str(tp) for tp in partitions[:MAX_NAMED]]
