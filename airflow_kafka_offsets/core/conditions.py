"""What a sensor or a trigger waits for, as values. `waiting` decides whether it is there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from airflow_kafka_offsets.core.errors import BadInputError, short
from airflow_kafka_offsets.core.fields import A_TIME, CONN_ID, DURATION, Kinds, check_attributes, moment, or_none, whole
from airflow_kafka_offsets.core.group import GROUP, KafkaGroup
from airflow_kafka_offsets.core.lag.words import GroupVerdict
from airflow_kafka_offsets.core.offsets import Offsets
from airflow_kafka_offsets.core.window_id import check_group_name, parse_window_id


@dataclass(frozen=True, slots=True)
class UnreadAtLeast:
    """Enough is unread, or something unread is old enough, like Spark's minOffsetsPerTrigger and maxTriggerDelay.

    Attributes:
        group: the group whose watermark counts. Without a watermark, all that Kafka holds counts as unread, whatever the
            starting offsets are: the first run then comes too early rather than never.
        min_span: unread offsets, summed over all partitions; None means their number does not matter.
        max_age: how old the oldest unread record may become, by Kafka's timestamps, or None if its age does not matter.
    """

    group: KafkaGroup
    min_span: int | None = None
    max_age: timedelta | None = None

    def __post_init__(self) -> None:
        if self.min_span is None and self.max_age is None:
            raise BadInputError("Set min_span, max_age or both")
        check_attributes(self, {"group": GROUP, "min_span": or_none(whole(1)), "max_age": or_none(DURATION)})


@dataclass(frozen=True, slots=True)
class Event:
    """What a group looked like when the trigger asked for a run.

    Attributes:
        position: where its next window would start, or None if it had no position yet.
        ends: the end offsets.
        at: the moment.
    """

    position: Offsets | None
    ends: Offsets
    at: datetime


@dataclass(frozen=True, slots=True)
class Arrived:
    """Enough has arrived to ask for another run.

    Attributes:
        enough: group and bounds. Only what the next window would read counts, and not what an open window has.
        last: the last time that a run was asked for. Until a run has planned, only what came later counts. After that, all
            that is left counts, so that runs read a backlog window by window. If no run plans, another one is asked for after
            `waiting.CALL_AGAIN_AFTER`, unless a window is open: its run failed, or had to adopt a dead run's window.
    """

    enough: UnreadAtLeast
    last: Event | None = None

    @property
    def group(self) -> KafkaGroup:
        """The group whose topics are looked at."""
        return self.enough.group


TIME_PASSED: Kinds = {"group": GROUP, "idle_after": or_none(DURATION)}
"""The attributes of a `TimePassed` without its time, which a sensor has only in a run."""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Kafka's time has passed a moment: each partition holds a record of that moment or later.

    The condition is never met before the wall clock has passed the moment, because a record may be dated in the future.

    Attributes:
        group: the group whose topics are meant.
        until: the moment, with its zone.
        idle_after: a partition without a record for this long no longer counts; None means every partition counts.
    """

    group: KafkaGroup
    until: datetime
    idle_after: timedelta | None = None

    def __post_init__(self) -> None:
        check_attributes(self, TIME_PASSED)
        object.__setattr__(self, "until", parse_until(self.until))  # the dataclass is frozen


@dataclass(frozen=True, slots=True)
class LagAtMost:
    """The lag, summed over all partitions, is at most a bound.

    Without a watermark, all that Kafka holds is lag, whatever the starting offsets are. So a group that has never planned, or whose ledger
    is not here, has not caught up.
    """

    group: KafkaGroup
    max_lag: int

    def __post_init__(self) -> None:
        check_attributes(self, {"group": GROUP, "max_lag": whole(0)})


@dataclass(frozen=True, slots=True)
class VerdictIn:
    """A group has one of some verdicts.

    Attributes:
        group: the group.
        verdicts: any of these will do.
        horizon: a group with less headroom than this is at risk; None means see `core.lag.verdict.needed_seconds`.
    """

    group: KafkaGroup
    verdicts: tuple[GroupVerdict, ...]
    horizon: timedelta | None = None

    def __post_init__(self) -> None:
        check_attributes(self, {"group": GROUP, "horizon": or_none(DURATION)})
        object.__setattr__(self, "verdicts", checked_verdicts(self.verdicts))  # the dataclass is frozen

    def __hash__(self) -> int:
        """A group is not hashable: its options are a mapping."""
        return hash((self.group.name, self.verdicts, self.horizon))


def checked_verdicts(verdicts: Sequence[str]) -> tuple[GroupVerdict, ...]:
    """Read verdicts.

    >>> checked_verdicts(["AT RISK", "LOST"])
    (<GroupVerdict.AT_RISK: 'AT RISK'>, <GroupVerdict.LOST: 'LOST'>)

    Raises:
        BadInputError: it is no sequence of verdicts.
    """
    words = [verdict.value for verdict in GroupVerdict]
    if isinstance(verdicts, str) or not isinstance(verdicts, Sequence) or not verdicts or set(verdicts) - set(words):
        raise BadInputError(f"verdicts must be a list of some of {', '.join(words)}; got {short(verdicts)}")
    return tuple(map(GroupVerdict, verdicts))


@dataclass(frozen=True, slots=True)
class WindowCommitted:
    """One window is committed."""

    window_id: str
    ledger_conn_id: str | None = None

    def __post_init__(self) -> None:
        check_attributes(self, {"ledger_conn_id": or_none(CONN_ID)})
        parse_window_id(self.window_id)


@dataclass(frozen=True, slots=True)
class WindowFree:
    """Whoever was refused these windows can ask again: the holder of one is over, or one is committed or abandoned.

    Attributes:
        window_ids: the windows.
        is_rerun: whether the window was already committed when the run was refused. Then its rerun must end.
        ledger_conn_id: connection of the ledger; None means the configured one.
    """

    window_ids: tuple[str, ...]
    is_rerun: bool
    ledger_conn_id: str | None = None


@dataclass(frozen=True, slots=True)
class CommittedUntil:
    """All that a group could read at a planned-until time is committed.

    The proof is a committed live window that was cut then or later and was not capped, while no older live window is open. A
    capped window leaves some records of that time unread. So this condition is met only after a group that lags has caught up.
    """

    group_name: str
    until: datetime
    ledger_conn_id: str | None = None

    def __post_init__(self) -> None:
        check_attributes(self, {"ledger_conn_id": or_none(CONN_ID)})
        check_group_name(self.group_name)
        object.__setattr__(self, "until", parse_until(self.until))  # the dataclass is frozen


LogCondition = UnreadAtLeast | Arrived | TimePassed | LagAtMost
"""Conditions that need Kafka. All but `TimePassed` need the ledger, too."""

LedgerCondition = WindowCommitted | WindowFree | CommittedUntil
"""Conditions that do not need Kafka. They need the ledger, and `WindowFree` also needs Airflow."""

Looked = LogCondition | LedgerCondition
"""Conditions that `service.watch` decides."""

Condition = Looked | VerdictIn


@dataclass(frozen=True, slots=True)
class DriverOver:
    """A Spark driver on a cluster has ended, with whatever result, or its cluster no longer has it.

    Attributes:
        cluster: leads to the cluster: see `launch.submit_hook.cluster_of`.
        driver: the driver's id there.
    """

    cluster: Mapping[str, str | None]
    driver: str


_KINDS = {
    kind.__name__: kind
    for kind in (UnreadAtLeast, TimePassed, LagAtMost, VerdictIn, WindowCommitted, WindowFree, CommittedUntil)
}


def ledger_conn_id(condition: Condition) -> str | None:
    """Return the connection to the ledger that a condition is about."""
    if isinstance(condition, LedgerCondition):
        return condition.ledger_conn_id
    return condition.group.ledger_conn_id


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
    plain: dict[str, Any] = json.loads(json.dumps(document))  # Airflow does not take an enum as a text
    return plain


def condition_from_json(document: Mapping[str, Any]) -> Condition:
    """Rebuild a condition from `condition_to_json`; keys of a newer version are ignored."""
    kind = _KINDS[document["kind"]]
    values = {f.name: document[f.name] for f in fields(kind) if f.name in document}
    for name, value in values.items():
        if name == "group":
            values[name] = KafkaGroup.from_json(value)
        elif name in ("max_age", "idle_after", "horizon") and value is not None:
            values[name] = timedelta(seconds=value)
        elif name in ("window_ids", "verdicts"):
            values[name] = tuple(value)
    return kind(**values)


def parse_until(value: datetime | str) -> datetime:
    """Read the moment of `until`, also as a template renders it.

    Raises:
        BadInputError: it is not a time, or Kafka can't have it.
    """
    return moment("until", value, f"{A_TIME} (only a scheduled run has a data interval)")
