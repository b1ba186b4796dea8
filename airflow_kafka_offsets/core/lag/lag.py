"""Lag and headroom of topic-partitions and groups, as values.

`service.freshness.look` makes them for many groups at once, and `core.lag.document.lag_document` is their form for programs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from airflow_kafka_offsets.core.lag.pace import Pace
from airflow_kafka_offsets.core.lag.retention import Retention
from airflow_kafka_offsets.core.lag.words import GroupVerdict as GroupVerdict
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.planning import Verdict


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far behind a group is in one topic-partition.

    Attributes:
        watermark: the next offset that is not committed; None if the group has none here yet, and begins at `beginning`.
        beginning, end: the bounds of the log at the group's isolation level; None if Kafka has no such partition.
        verdict: that of planning, or None if planning can't judge any partition.
        lag: end offset minus watermark, in offsets, never below 0; None if the two can't be compared.
        lag_seconds: how long the oldest unread record has waited; 0 without lag. It is rarely more than 1 s or 2 % too large, and too
            small only after an open transaction. None means not known, e.g. because a record before it is dated in the future.
        headroom_seconds: how long until retention by time reaches the watermark. It is never too large, and too small by at most one
            segment of the log and what `lag_seconds` is too large. 0: it may happen at any moment. None if nothing is unread, retention by time
            never removes records here, or it is not known.
        headroom_offsets: how many read offsets retention removes before it reaches the watermark: watermark minus beginning offset. Below 0:
            as many unread offsets are gone. None if the two can't be compared.
        estimate: why `headroom_seconds` is only an estimate; None if it is not one.
        retention: how Kafka removes records of the topic; None means not known.
        hidden_to: up to here, an open transaction hides records from a group that has read all others, and does so for longer than is usual; None if none
            does, or that was not asked.
    """

    watermark: int | None
    beginning: int | None
    end: int | None
    verdict: Verdict | None = None
    lag: int | None = None
    lag_seconds: float | None = None
    headroom_seconds: float | None = None
    headroom_offsets: int | None = None
    estimate: str | None = None
    retention: Retention | None = None
    hidden_to: int | None = None

    @property
    def is_unlimited(self) -> bool:
        """Whether Kafka reports that retention never removes records of the topic."""
        return self.retention is not None and self.retention.time is None and self.retention.size is None

    @property
    def lost(self) -> int:
        """How many unread offsets retention has removed."""
        return max(0, -self.headroom_offsets) if self.headroom_offsets is not None else 0


_NOT_COMPARED = {
    Verdict.RECREATED: "a topic was recreated",
    Verdict.MISSING: "a partition is gone",
    Verdict.TRUNCATED: "a log was cut back",
}


def why_unread_unknown(verdicts: Iterable[Verdict | None]) -> str | None:
    """Return why the verdicts of planning make the lag of some partitions meaningless; None if they do not.

    Such a partition has other records now than those that the group has read, so its lag means nothing.

    >>> why_unread_unknown([Verdict.CONTINUE, Verdict.MISSING]), why_unread_unknown([Verdict.DATA_LOSS, None])
    ('a partition is gone', None)
    """
    present = set(verdicts)
    return next((why for verdict, why in _NOT_COMPARED.items() if verdict in present), None)


def sum_of_lags(partitions: Collection[PartitionLag]) -> int | None:
    """Return the sum of the lags. None without any, or if all are 0 and the lag of another partition is meaningless (`why_unread_unknown`)."""
    lags = [p.lag for p in partitions if p.lag is not None]
    total = sum(lags)
    is_known = total or (lags and why_unread_unknown(p.verdict for p in partitions) is None)
    return total if is_known else None


def longest_wait(partitions: Collection[PartitionLag]) -> float | None:
    """Return the largest `lag_seconds`, or None if a partition with lag has none, or `sum_of_lags` is None."""
    if any(p.lag_seconds is None for p in partitions if p.lag) or sum_of_lags(partitions) is None:
        return None
    return max((p.lag_seconds for p in partitions if p.lag_seconds is not None), default=None)


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How far behind a group is.

    Attributes:
        group: its name.
        at: the moment of the look.
        verdict: in one word, or None if it is not known; see `error`.
        reason: the verdict in one sentence, with numbers.
        partitions: each topic-partition that the group reads or has read; empty if Kafka refused, did not answer, or was not asked. If it
            answered in part, times are missing.
        pace: how fast it commits.
        tightest: the partition that decides the headroom of the group: the first one at risk that retention reaches, else the one that
            may be at risk soonest; None if none has headroom in seconds.
        needed_seconds: with less headroom than this, that partition puts the group at risk; None if there is none.
        error: why Kafka did not answer, or only in part; None if it answered in full.
        error_kind: the name of the error's class in `core.errors`.
        trouble: what planning would refuse, in one sentence; None means nothing.
        notes: sentences on what is not known, e.g. that the topic's configuration may not be read.
        reruns: the ids of the committed windows that need another run.
    """

    group: str
    at: datetime
    verdict: GroupVerdict | None
    reason: str
    partitions: Mapping[TopicPartition, PartitionLag] = field(default_factory=dict)
    pace: Pace = field(default_factory=Pace)
    tightest: TopicPartition | None = None
    needed_seconds: float | None = None
    error: str | None = None
    error_kind: str | None = None
    trouble: str | None = None
    notes: tuple[str, ...] = ()
    reruns: tuple[str, ...] = ()

    @property
    def lag(self) -> int | None:
        """The sum over all partitions, in offsets, or None; see `sum_of_lags`."""
        return sum_of_lags(self.partitions.values())

    @property
    def lag_seconds(self) -> float | None:
        """The largest of all partitions, or None; see `longest_wait`."""
        return longest_wait(self.partitions.values())

    @property
    def headroom_seconds(self) -> float | None:
        """That of `tightest`, or None if no partition has headroom in seconds."""
        return self.partitions[self.tightest].headroom_seconds if self.tightest is not None else None

    @property
    def headroom_offsets(self) -> int | None:
        """The smallest of all partitions with lag, or None if no such partition has one."""
        values = (p.headroom_offsets for p in self.partitions.values() if p.lag and p.headroom_offsets is not None)
        return min(values, default=None)

    @property
    def is_estimate(self) -> bool:
        """Whether `headroom_seconds` is an estimate."""
        return self.tightest is not None and self.partitions[self.tightest].estimate is not None

    @property
    def is_unlimited(self) -> bool:
        """Whether records are unread, and retention never removes any of these."""
        unread = [p for p in self.partitions.values() if p.lag]
        return bool(unread) and self.headroom_seconds is None and all(p.is_unlimited for p in unread)

    @property
    def lost(self) -> int:
        """How many unread offsets retention has removed."""
        return sum(p.lost for p in self.partitions.values())
