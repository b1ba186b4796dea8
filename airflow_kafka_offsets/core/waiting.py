"""What a sensor waits for, and whether it is there: decided from what ledger and Kafka hold at one moment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Any

from airflow_kafka_offsets.core import ownership
from airflow_kafka_offsets.core.errors import MAX_NAMED, BadInputError, IllegalStepError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.log import Bounds, LogSnapshot
from airflow_kafka_offsets.core.offsets import OffsetRange, OffsetRanges, Offsets, TopicPartition, is_whole
from airflow_kafka_offsets.core.ownership import GroupState, Position
from airflow_kafka_offsets.core.planning import judge_all, plan_window
from airflow_kafka_offsets.core.starting import EPOCH
from airflow_kafka_offsets.core.window import State, Window, parse_window_id

OffsetsAt = Mapping[TopicPartition, int | None]
"""What the timestamp index says for one moment; None: no record has this timestamp or a later one."""


CALL_AGAIN_AFTER = timedelta(minutes=15)
"""When a run that was called for has not planned by then, and none works on a window, another one is called."""


@dataclass(frozen=True, slots=True)
class Enough:
    """Enough is unread, or something unread is old enough: Spark's minOffsetsPerTrigger and maxTriggerDelay.

    Attributes:
        group: whose watermark counts. Without one, all that Kafka holds is unread: whatever its starting offsets say, the
            first run comes sooner rather than never.
        min_span: unread offsets in sum over all partitions; None: their number does not matter.
        max_age: how old the oldest unread record may become, by Kafka's timestamps; None: its age does not matter.
    """

    group: KafkaGroup
    min_span: int | None = None
    max_age: timedelta | None = None

    def __post_init__(self) -> None:
        if self.min_span is None and self.max_age is None:
            raise BadInputError("Say when it is enough: min_span, max_age or both")
        if self.min_span is not None and not (is_whole(self.min_span) and self.min_span >= 1):
            raise BadInputError(f"min_span must be a whole number, at least 1, got {self.min_span!r}")
        _check_duration("max_age", self.max_age)


@dataclass(frozen=True, slots=True)
class Event:
    """What a group looked like when a run was called for.

    Attributes:
        position: where its next window would start; None: it had none yet.
        ends: the end offsets.
        at: the moment.
    """

    position: Offsets | None
    ends: Offsets
    at: datetime


@dataclass(frozen=True, slots=True)
class Arrived:
    """Enough has arrived that no run was ever called for.

    Attributes:
        enough: group and bounds. What an open window has is not counted again: only what the next one would read.
        last: the last call. As long as no run has planned since, only what came later counts; afterwards all that is
            left, so that a backlog is drained window by window. A call that leads to no plan is repeated after
            `CALL_AGAIN_AFTER`, unless a window is open: its run failed, or had to take a dead run's window over.
    """

    enough: Enough
    last: Event | None = None

    @property
    def group(self) -> KafkaGroup:
        """Whose topics."""
        return self.enough.group


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Kafka's time has passed a moment: each partition holds a record of that moment or later.

    Never before the wall clock says so, as a record may be dated in the future.

    Attributes:
        group: whose topics.
        until: the moment, with its zone.
        idle_after: a partition without a record for that long is not waited for any more; None: each one must speak.
    """

    group: KafkaGroup
    until: datetime
    idle_after: timedelta | None = None

    def __post_init__(self) -> None:
        _check_time(self.until)
        _check_duration("idle_after", self.idle_after)


@dataclass(frozen=True, slots=True)
class LagAtMost:
    """The lag, in sum over all partitions, is at most a bound; without a watermark, all that Kafka holds is lag."""

    group: KafkaGroup
    max_lag: int

    def __post_init__(self) -> None:
        if not (is_whole(self.max_lag) and self.max_lag >= 0):
            raise BadInputError(f"max_lag must be a whole number, at least 0, got {self.max_lag!r}")


@dataclass(frozen=True, slots=True)
class WindowCommitted:
    """One window is committed."""

    window_id: str
    ledger_conn_id: str | None = None

    def __post_init__(self) -> None:
        parse_window_id(self.window_id)


@dataclass(frozen=True, slots=True)
class CommittedUntil:
    """All that a group could read at a cut time is committed.

    The proof is a committed live window that was cut then or later and not capped, with no older live window open. A
    capped window left something of that time unread, and so a group that lags behind is waited for until it has caught up.
    """

    group_name: str
    until: datetime
    ledger_conn_id: str | None = None

    def __post_init__(self) -> None:
        _check_time(self.until)


LogCondition = Enough | Arrived | TimePassed | LagAtMost
"""What wants a look at Kafka; all but `TimePassed` at the ledger too."""

LedgerCondition = WindowCommitted | CommittedUntil
"""What only the ledger knows."""

Condition = LogCondition | LedgerCondition
_KINDS = {kind.__name__: kind for kind in (Enough, TimePassed, LagAtMost, WindowCommitted, CommittedUntil)}


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen for one condition on Kafka.

    Attributes:
        now: the moment.
        state: the group in the ledger.
        log: its topics.
        at: what the timestamp index says for each of the `lookup_times`.
        recovered: what a second look said of partitions that seemed to end before the watermark.
    """

    now: datetime
    state: GroupState
    log: LogSnapshot
    at: Mapping[datetime, OffsetsAt] = field(default_factory=dict)
    recovered: Mapping[TopicPartition, Bounds] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether a condition is met.

    Attributes:
        is_met: whether it is.
        facts: what was seen, in a few JSON-able values.
        event: what the next `Arrived` counts from.
    """

    is_met: bool
    facts: Mapping[str, Any]
    event: Event | None = None


def ledger_conn_id(condition: Condition) -> str | None:
    """Return the connection to the ledger that knows what a condition is about."""
    if isinstance(condition, LedgerCondition):
        return condition.ledger_conn_id
    return condition.group.ledger_conn_id


def position_for(condition: LogCondition, state: GroupState) -> Position | None:
    """Return where a condition begins to count; None: at the beginning of the log."""
    return state.position if isinstance(condition, Arrived) else ownership.watermark(state)


def lookup_times(condition: LogCondition, now: datetime) -> list[datetime]:
    """Return the moments that have to be looked up in Kafka's timestamp index."""
    match condition:
        case Enough(max_age=timedelta() as age) | Arrived(Enough(max_age=timedelta() as age)):
            return [_back(now, age)]
        case TimePassed(until=until, idle_after=idle) if now >= until:
            return [until] if idle is None else [until, _back(now, idle)]
        case _:
            return []


def decide(condition: LogCondition, seen: Seen) -> Answer:
    """Decide a condition on what Kafka holds.

    Raises:
        LogError: what planning would say: records are gone, a topic is missing or another one.
    """
    match condition:
        case Enough():
            return _enough(condition, _unread(condition, seen), seen)
        case Arrived():
            return _arrived(condition, seen)
        case TimePassed():
            return _time_passed(condition, seen)
        case LagAtMost():
            unread = _unread(condition, seen).without_empty()
            return Answer(unread.span <= condition.max_lag, {"lag": unread.span, **_behind(list(unread))})


def _unread(condition: LogCondition, seen: Seen) -> OffsetRanges:
    # What the next plan would read if it had no cap: with its verdicts, and so with its errors.
    group = replace(condition.group, max_offsets=None)
    first = {tp: bounds.beginning for tp, bounds in seen.log.bounds.items()}
    position = position_for(condition, seen.state)
    return plan_window(group, position, seen.log, first=first, recovered=seen.recovered).ranges


def _enough(condition: Enough, unread: OffsetRanges, seen: Seen) -> Answer:
    unread = unread.without_empty()
    old = _old(unread, seen.at[_back(seen.now, condition.max_age)]) if condition.max_age else []
    has_enough = condition.min_span is not None and unread.span >= condition.min_span
    facts = {"span": unread.span, **_behind(list(unread))}
    return Answer(has_enough or bool(old), facts | ({"too_old": _names(old)} if condition.max_age else {}))


def _old(unread: OffsetRanges, at: OffsetsAt) -> list[TopicPartition]:
    # Whatever lies before the first record of that moment or later is older.
    return [tp for tp, r in unread.items() if (first := at.get(tp)) is None or first > r.start]


def _arrived(condition: Arrived, seen: Seen) -> Answer:
    unread, last = _unread(condition, seen), condition.last
    position = seen.state.position.offsets if seen.state.position else None
    if last is not None and last.position == position and not _is_forgotten(last, seen):
        unread = OffsetRanges(
            (tp, OffsetRange(min(r.end, max(r.start, last.ends.get(tp, 0))), r.end)) for tp, r in unread.items()
        )
    return replace(_enough(condition.enough, unread, seen), event=Event(position, unread.ends, seen.now))


def _is_forgotten(last: Event, seen: Seen) -> bool:
    return not seen.state.open and seen.now - last.at >= CALL_AGAIN_AFTER


def _time_passed(condition: TimePassed, seen: Seen) -> Answer:
    judge_all(condition.group, None, seen.log)  # a topic that is missing would count as passed
    facts: dict[str, Any] = {"until": condition.until.isoformat(), "partitions": len(seen.log.bounds)}
    if seen.now < condition.until:
        return Answer(False, facts | {"held_back_by": ["the clock"]})
    silent = [tp for tp, first in sorted(seen.at[condition.until].items()) if first is None]
    recent = seen.at[_back(seen.now, condition.idle_after)] if condition.idle_after else None
    idle = [tp for tp in silent if recent is not None and recent[tp] is None]
    held_back = [tp for tp in silent if tp not in set(idle)]
    return Answer(not held_back, facts | {"idle": _names(idle), "held_back_by": _names(held_back)})


def decide_window(window: Window) -> Answer:
    """Decide whether a window is committed.

    Raises:
        IllegalStepError: it was given up, and never will be.
    """
    if not window.state.owns:
        raise IllegalStepError(f"Window {window.id} is {window.state} and will not be committed any more")
    return Answer(window.state is State.COMMITTED, {"window_id": window.id, "state": window.state.value})


def decide_until(condition: CommittedUntil, state: GroupState, committed: Sequence[Window]) -> Answer:
    """Decide whether all that a group could read at a cut time is committed.

    Args:
        condition: group and cut time.
        state: the group in the ledger.
        committed: its newest committed live windows that can prove it: not capped, and none older than they is open.
    """
    oldest_open = state.open[0].window.seq if state.open else None
    proofs = [w for w in committed if not w.is_capped and (oldest_open is None or w.seq < oldest_open)]
    proof = next((w for w in proofs if w.until >= condition.until), None)
    facts = {
        "until": condition.until.isoformat(),
        "window_id": proof.id if proof else None,
        "held_back_by": [held.window.id for held in state.open[:MAX_NAMED]] if proof is None else [],
    }
    return Answer(proof is not None, facts)


def condition_to_json(condition: Condition) -> dict[str, Any]:
    """Return a condition as JSON-able data, for triggers."""
    document: dict[str, Any] = {"kind": type(condition).__name__}
    for f in fields(condition):
        value = getattr(condition, f.name)
        match value:
            case KafkaGroup():
                value = value.to_json()
            case datetime():
                value = value.isoformat()
            case timedelta():
                value = value.total_seconds()
        document[f.name] = value
    plain: dict[str, Any] = json.loads(json.dumps(document))  # to Airflow, an enum is no text
    return plain


def condition_from_json(document: Mapping[str, Any]) -> Condition:
    """Rebuild a condition from `condition_to_json`; keys of a newer version are ignored."""
    kind = _KINDS[document["kind"]]
    values = {f.name: document[f.name] for f in fields(kind) if f.name in document}
    for name, value in values.items():
        if name == "group":
            values[name] = KafkaGroup.from_json(value)
        elif name == "until":
            values[name] = datetime.fromisoformat(value)
        elif name in ("max_age", "idle_after") and value is not None:
            values[name] = timedelta(seconds=value)
    return kind(**values)


def parse_moment(name: str, value: datetime | str) -> datetime:
    """Read a moment as a template renders it.

    >>> parse_moment("until", "2026-01-31 12:00:00+00:00")
    datetime.datetime(2026, 1, 31, 12, 0, tzinfo=datetime.timezone.utc)

    Raises:
        BadInputError: it is no time, or has no zone.
    """
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError as exc:
        raise BadInputError(
            f"{name} needs a time with its zone such as '2026-01-31T12:00:00+00:00', got {value!r} (a run that was not "
            "scheduled may have no data interval)"
        ) from exc
    _check_time(moment)
    return moment


def _check_time(moment: datetime) -> None:
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise BadInputError(f"A moment needs a zone, e.g. +00:00 behind it; got {moment!r}")
    if moment < EPOCH:
        raise BadInputError(f"Kafka knows no time before 1970, got {moment.isoformat()}")


def _check_duration(name: str, duration: timedelta | None) -> None:
    if duration is not None and not (isinstance(duration, timedelta) and duration > timedelta(0)):
        raise BadInputError(f"{name} must be a timedelta above zero, got {duration!r}")


def _back(now: datetime, duration: timedelta) -> datetime:
    return now - min(duration, now - EPOCH)


def _behind(partitions: Sequence[TopicPartition]) -> dict[str, Any]:
    return {"partitions": len(partitions), "behind": _names(partitions)}


def _names(partitions: Sequence[TopicPartition]) -> list[str]:
    return [str(tp) for tp in partitions[:MAX_NAMED]]
