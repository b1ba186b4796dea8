"""Turns offsets and times of ledger and Kafka into lag and headroom. `service.freshness` looks them up, `search` finds times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from airflow_kafka_offsets.core.errors import LogError, name_some
from airflow_kafka_offsets.core.fields import EPOCH
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.lag.lag import PartitionLag
from airflow_kafka_offsets.core.lag.retention import Retention
from airflow_kafka_offsets.core.lag.search import Hit, Hits, Probe, Search
from airflow_kafka_offsets.core.lag.verdict import GONE
from airflow_kafka_offsets.core.lag.words import OPEN_FOR
from airflow_kafka_offsets.core.log import Bounds, IsolationLevel, may_be_same
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.matching import check_there
from airflow_kafka_offsets.core.plan.ownership import NOWHERE, watermark
from airflow_kafka_offsets.core.plan.planning import Verdict, judge_all
from airflow_kafka_offsets.core.plan.waiting import GroupSnapshot
from airflow_kafka_offsets.core.window import Window

RATE_OVER = timedelta(hours=1)
"""The time over which the rate of new offsets is measured, for topics that are limited in size. A log may hold less than this."""

BY_SIZE = "by retention.bytes and the last hour"
ASSUMED = "by the group's own retention"


@dataclass(frozen=True, slots=True)
class Times:
    """The answers of one Kafka about time.

    Attributes:
        now_ms: the present, in milliseconds since 1970.
        searches: the search for each partition and offset from which it is unread.
        hits: the answers to `rate_probe`.
        retentions: what removes the records of topics, as far as this user may read it.
    """

    now_ms: int
    searches: Mapping[tuple[TopicPartition, int], Search] = field(default_factory=dict)
    hits: Hits = field(default_factory=dict)
    retentions: Mapping[str, Retention] = field(default_factory=dict)


def to_ms(moment: datetime) -> int:
    """Return a moment in milliseconds since 1970."""
    return (moment - EPOCH) // timedelta(milliseconds=1)


def lag_of(group: KafkaGroup, snapshot: GroupSnapshot) -> dict[TopicPartition, PartitionLag]:
    """Return the lag in offsets of each partition."""
    position = watermark(snapshot.state)
    known = position.offsets if position else {}
    verdicts = judge_all(group, position, snapshot.log, snapshot.recovered)
    bounds = snapshot.log.bounds
    return {tp: _lag(known.get(tp), bounds.get(tp), verdicts.get(tp)) for tp in sorted({**known, **bounds})}


def never_was(group: KafkaGroup, snapshot: GroupSnapshot) -> LogError | None:
    """Return the error of `check_there`, or None if it refuses nothing."""
    try:
        check_there(group, watermark(snapshot.state) or NOWHERE, snapshot.log)
    except LogError as exc:
        return exc
    return None


def _lag(watermark: int | None, bounds: Bounds | None, verdict: Verdict | None) -> PartitionLag:
    if bounds is None:
        return PartitionLag(watermark, None, None, verdict)
    start = bounds.beginning if watermark is None and verdict is Verdict.NEW_PARTITION else watermark
    # Offsets of another topic of the same name can't be compared, nor those that were given again after a log was cut back.
    if start is None or verdict in (Verdict.RECREATED, Verdict.TRUNCATED, Verdict.LEFT_GROUP):
        return PartitionLag(watermark, bounds.beginning, bounds.end, verdict)
    return PartitionLag(
        watermark,
        bounds.beginning,
        bounds.end,
        verdict,
        # An open transaction may put the end offset below the watermark: nothing is left to read there.
        lag=max(0, bounds.end - start),
        headroom_offsets=start - bounds.beginning,
    )


def may_hide(group: KafkaGroup, partitions: Mapping[TopicPartition, PartitionLag]) -> list[TopicPartition]:
    """Return the partitions in which an open transaction may hide records from a group that has read all others.

    Where a group has lag, its headroom is that of the oldest unread record, whatever comes after it.
    """
    if group.isolation_level is IsolationLevel.READ_UNCOMMITTED:
        return []
    return [tp for tp, lag in partitions.items() if lag.lag == 0 and lag.verdict not in GONE]


def with_hidden(
    group: KafkaGroup, partitions: Mapping[TopicPartition, PartitionLag], hidden_to: Mapping[TopicPartition, int]
) -> dict[TopicPartition, PartitionLag]:
    """Return the lag of partitions with where the records end that an open transaction hides."""
    hidden = {tp: hidden_to[tp] for tp in may_hide(group, partitions) if tp in hidden_to}
    return {**partitions, **{tp: replace(partitions[tp], hidden_to=end) for tp, end in hidden.items()}}


def unread_from(lag: PartitionLag) -> int | None:
    """Return the first unread offset that Kafka still holds, or None if nothing is unread or Kafka reported no offsets."""
    if lag.lag is None or lag.beginning is None:
        return None
    start = max(lag.beginning, lag.watermark or 0)
    return start if start < unread_to(lag) else None


def unread_to(lag: PartitionLag) -> int:
    """Return where the records end that a group has not read, also those that an open transaction hides from it."""
    return max(lag.end or 0, lag.hidden_to or 0)


def rate_probe(tp: TopicPartition, now_ms: int) -> Probe:
    """Return the probe for the first offset of the last hour."""
    return Probe(tp, max(0, now_ms - RATE_OVER // timedelta(milliseconds=1)))


def timed(tp: TopicPartition, lag: PartitionLag, times: Times) -> PartitionLag:
    """Return the lag of a partition with seconds and headroom.

    Args:
        tp: the partition.
        lag: its lag in offsets.
        times: the answers about time.
    """
    retention = times.retentions.get(tp.topic)
    start, hidden_to = unread_from(lag), lag.hidden_to
    lag = replace(lag, retention=retention, lag_seconds=0.0 if lag.lag == 0 else None, hidden_to=None)
    search = times.searches.get((tp, start)) if start is not None else None
    if search is None:
        return lag
    if search.is_empty:
        return replace(lag, lag_seconds=0.0)
    if search.low_offset is None:
        return lag
    age = (times.now_ms - search.low) / 1000
    if not lag.lag and age <= OPEN_FOR.total_seconds():
        return lag
    left, estimate = headroom(tp, lag, age, times)
    lag = replace(lag, headroom_seconds=left, estimate=estimate, hidden_to=hidden_to)
    if not lag.lag or search.is_ahead:
        return lag
    return replace(lag, lag_seconds=age)


def older_than(partitions: Mapping[TopicPartition, PartitionLag], seconds: float) -> dict[TopicPartition, PartitionLag]:
    """Return the partitions with lag whose oldest unread record seems to wait for longer than this."""
    return {tp: p for tp, p in partitions.items() if p.lag and p.lag_seconds is not None and p.lag_seconds > seconds}


def read_to_the_end(
    window: Window, partitions: Mapping[TopicPartition, PartitionLag], topic_ids: Mapping[str, str]
) -> list[TopicPartition]:
    """Return the partitions that a window read to the end of its moment of planning.

    Their unread records arrived later, whatever their timestamps are.

    Args:
        window: the newest window below the watermark.
        partitions: of these.
        topic_ids: the ids of the topics whose offsets the watermarks are.
    """
    if window.unread != window.span:
        return []
    named = {tp.topic for tp in window.ranges}
    # It also has the partitions of topics that the group had left, and these are empty there.
    was_read = {tp.topic for tp, r in window.ranges.items() if r.span} if len(named) > 1 else named
    same = {topic for topic in was_read if may_be_same(window.topic_ids.get(topic), topic_ids.get(topic))}
    # A reset may have moved a watermark since.
    return [
        tp
        for tp, lag in partitions.items()
        if tp.topic in same and tp in window.ranges and window.ranges[tp].end == lag.watermark
    ]


def notes_on(partitions: Mapping[TopicPartition, PartitionLag], times: Times) -> tuple[str, ...]:
    """Return sentences on hidden records and on unknown ages and headrooms.

    Args:
        partitions: as `timed` returns them.
        times: the answers about time.
    """
    unread = {tp: (lag, start) for tp, lag in partitions.items() if (start := unread_from(lag)) is not None}
    hidden = [f"{tp} from offset {start} on" for tp, (lag, start) in unread.items() if lag.hidden_to is not None]
    ahead = [str(tp) for tp, (_, start) in unread.items() if _is_ahead(times.searches.get((tp, start)))]
    by_size = [str(tp) for tp, (lag, _) in unread.items() if _is_kept_by_size(lag)]
    notes = (
        (hidden, "an open transaction hides records"),
        (ahead, "a record dated in the future hides the age of those after it"),
        (by_size, "the headroom by retention.bytes is not known yet"),
    )
    return tuple(f"{text}: {name_some(names, ', ')}" for names, text in notes if names)


def _is_ahead(search: Search | None) -> bool:
    return search is not None and search.is_ahead


def _is_kept_by_size(lag: PartitionLag) -> bool:
    retention = lag.retention
    return lag.headroom_seconds is None and retention is not None and retention.size is not None


def headroom(tp: TopicPartition, lag: PartitionLag, age: float, times: Times) -> tuple[float | None, str | None]:
    """Return the seconds until retention reaches the first unread record, and why that is an estimate; None if it is not one.

    Args:
        tp: the partition.
        lag: its lag in offsets, with its retention.
        age: the age of that record, by the timestamp index.
        times: the answers about time.
    """
    retention = lag.retention
    if retention is None:
        return None, None
    left = max(0.0, retention.time.total_seconds() - age) if retention.time is not None else None
    by_size = _until_full(tp, lag, times)
    if by_size is not None and (left is None or by_size < left):
        return by_size, BY_SIZE
    return left, ASSUMED if retention.is_assumed and left is not None else None


def _until_full(tp: TopicPartition, lag: PartitionLag, times: Times) -> float | None:
    """Estimate the seconds until retention by size reaches the first unread record, as if the log had reached its limit.

    This is no bound. Kafka removes a segment when all after it is as large as the limit, so even at a steady pace the record may go
    sooner or later, by as much as a segment holds. And it goes sooner if more, or larger, records arrive than before.
    """
    hit = times.hits.get(rate_probe(tp, times.now_ms))
    # A log that still begins at 0 has never reached its limit.
    if lag.retention is None or lag.retention.size is None or not lag.beginning or lag.end is None or hit is None:
        return None
    arrived = lag.end - hit.offset
    over = _measured_over(hit, lag.beginning, times.now_ms)
    return max(0, lag.headroom_offsets or 0) / arrived * over if arrived > 0 else None


def _measured_over(hit: Hit, beginning: int, now_ms: int) -> float:
    """Return the seconds in which the offsets from an answer to `rate_probe` on arrived."""
    age = (now_ms - hit.time_ms) / 1000
    # If the log holds less than the hour, what else arrived in it is gone.
    return age if hit.offset <= beginning and age > 0 else RATE_OVER.total_seconds()
