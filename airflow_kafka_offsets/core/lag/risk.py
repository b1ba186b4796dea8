"""What planning does about records that retention may remove before their window has run.

Kafka is asked one question for each partition: which is the first record that will still be there after the headroom that the
group needs? If it lies at or below the start of the window, nothing is in danger, and that is all. Else the records before it may
expire. They are read first if `max_offsets` cuts the window, and a search tells how long they have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_kafka_offsets.core.errors import AtRiskError, counted, name_some
from airflow_kafka_offsets.core.group import KafkaGroup, OnAtRisk
from airflow_kafka_offsets.core.lag.lag import PartitionLag
from airflow_kafka_offsets.core.lag.pace import Pace
from airflow_kafka_offsets.core.lag.retention import Retention
from airflow_kafka_offsets.core.lag.search import Hits, Probe
from airflow_kafka_offsets.core.lag.verdict import RESERVE, TRIES, needed_seconds
from airflow_kafka_offsets.core.lag.words import length
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.planning import Plan
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.window import Draft

SHORTEST_RUN = 600.0
"""Seconds that a window may take until its job has read all of it, however quick the last ones were."""


@dataclass(frozen=True, slots=True)
class Danger:
    """Records of a window that retention may remove soon.

    Attributes:
        start, until: the records ``start <= offset < until`` of one partition.
        headroom_seconds: how long until the first of them may go.
        run_seconds: how long the window may take until all of it is read.
    """

    start: int
    until: int
    headroom_seconds: float
    run_seconds: float

    @property
    def comes_first(self) -> bool:
        """Whether retention may come before the job has read all."""
        return self.headroom_seconds < self.run_seconds

    def __str__(self) -> str:
        when = f"in {length(self.headroom_seconds)}" if self.headroom_seconds >= 1 else "at any moment"
        return f"offsets {self.start} to {self.until - 1} {when}"


@dataclass(frozen=True, slots=True)
class Question:
    """The one question about a partition.

    Attributes:
        probe: the question.
        retention: how long the partition's records stay, in seconds.
        run_seconds: how long the window may take.
    """

    probe: Probe
    retention: float
    run_seconds: float


def run_seconds(pace: Pace, retention: float) -> float:
    """Return how long a window may take until all of it is read: three times the longest of the last ten jobs.

    Without any, it is a tenth of the retention.
    """
    if pace.longest_seconds is None:
        return RESERVE * retention
    return max(SHORTEST_RUN, TRIES * pace.longest_seconds)


def together(windows: Iterable[Draft]) -> OffsetRanges:
    """Return the offsets from the first to the last one of some windows, without partitions of which they read nothing."""
    found: dict[TopicPartition, OffsetRange] = {}
    for window in windows:
        for tp, offsets in window.ranges.without_empty().items():
            known = found.get(tp, offsets)
            found[tp] = OffsetRange(min(known.start, offsets.start), max(known.end, offsets.end))
    return OffsetRanges(found)


def questions(
    ranges: OffsetRanges, retentions: Mapping[str, Retention], pace: Pace, now_ms: int
) -> dict[TopicPartition, Question]:
    """Return the question about each partition that has something to read, and whose records age."""
    found: dict[TopicPartition, Question] = {}
    for tp, offsets in ranges.items():
        retention = retentions.get(tp.topic)
        if not offsets.span or retention is None or retention.time is None:
            continue
        needed = needed_seconds(PartitionLag(None, None, None, retention=retention), pace)
        seconds = retention.time.total_seconds()
        run = run_seconds(pace, seconds)
        at = now_ms + int((max(needed, run) - seconds) * 1000)
        found[tp] = Question(Probe(tp, max(0, at)), seconds, run)
    return found


def endangered(ranges: OffsetRanges, asked: Mapping[TopicPartition, Question], hits: Hits) -> dict[TopicPartition, int]:
    """Return for each partition with records in danger the first offset that is not."""
    found: dict[TopicPartition, int] = {}
    for tp, question in asked.items():
        hit, offsets = hits[question.probe], ranges[tp]
        safe = offsets.end if hit is None else min(hit.offset, offsets.end)
        if safe > offsets.start:
            found[tp] = safe
    return found


def dangers(
    ranges: OffsetRanges,
    asked: Mapping[TopicPartition, Question],
    safe_from: Mapping[TopicPartition, int],
    ages: Mapping[TopicPartition, float],
) -> dict[TopicPartition, Danger]:
    """Return what is in danger, what expires first at first.

    Args:
        ranges: what is to be read.
        asked: the questions.
        safe_from: see `endangered`.
        ages: of each of these partitions, how old the first record is by the timestamp index, in seconds.
    """
    found = {
        tp: Danger(ranges[tp].start, safe, max(0.0, asked[tp].retention - ages[tp]), asked[tp].run_seconds)
        for tp, safe in safe_from.items()
    }
    return dict(sorted(found.items(), key=lambda item: (item[1].headroom_seconds, item[0])))


def with_urgent(plan: Plan, found: Mapping[TopicPartition, Danger]) -> Plan:
    """Return a plan that is cut so that what expires first is read first."""
    return replace(plan, urgent={tp: danger.until for tp, danger in found.items()}) if found else plan


def told(
    group: KafkaGroup, plans: Sequence[Plan], found: Mapping[TopicPartition, Danger], *, is_first: bool
) -> list[Plan]:
    """Return the windows with warnings about what is in danger.

    Args:
        group: its policy.
        plans: the windows, as they were cut.
        found: what is in danger.
        is_first: whether the group has no watermark. Its first window begins where retention removes records all the time.

    Raises:
        AtRiskError: retention may come first, and the policy is ``fail``.
    """
    coming = {tp: danger for tp, danger in found.items() if danger.comes_first}
    if coming and group.on_at_risk is OnAtRisk.FAIL and not is_first:
        raise _refusal(group, coming)
    warnings = [_warning("this window before its job has", coming)] if coming else []
    ends = plans[-1].ranges
    if left := {tp: danger for tp, danger in found.items() if tp in ends and ends[tp].end < danger.until}:
        warnings.append(_warning_of_cap(group, len(plans), left))
    if not warnings:
        return list(plans)
    return [replace(plans[0], warnings=(*plans[0].warnings, *warnings)), *plans[1:]]


def _refusal(group: KafkaGroup, coming: Mapping[TopicPartition, Danger]) -> AtRiskError:
    return AtRiskError.naming(
        {
            tp: f"{tp}: retention may remove {danger}, and a window of this group may take {length(danger.run_seconds)} until it is read"
            for tp, danger in coming.items()
        },
        f"Nothing was planned. {_more_time(coming)} To read what can still be read: KafkaGroup(on_at_risk='warn') for group "
        f"{group.name}",
    )


def warning_of(window_ids: Sequence[str], found: Mapping[TopicPartition, Danger]) -> str | None:
    """Return the warning about windows that run as they are: adopted ones, and those that run again. None: all have time."""
    coming = {tp: danger for tp, danger in found.items() if danger.comes_first}
    return _warning(f"{name_some(window_ids, ', ')} before a job has", coming) if coming else None


def _warning(whose: str, coming: Mapping[TopicPartition, Danger]) -> str:
    return (
        f"retention may remove records of {whose} read them: "
        f"{name_some([f'{tp} {danger}' for tp, danger in coming.items()], ', ')}. {_more_time(coming)}"
    )


def _warning_of_cap(group: KafkaGroup, number: int, left: Mapping[TopicPartition, Danger]) -> str:
    return (
        f"with max_offsets={group.max_offsets}, {counted(number, 'window')} can't hold all that retention may remove soon: "
        f"{name_some([f'{tp} {danger}' for tp, danger in left.items()], ', ')}. What expires first is read first. To read faster, "
        "raise max_offsets, or let several windows run at once with max_open_windows"
    )


def _more_time(partitions: Collection[TopicPartition]) -> str:
    topics = sorted({tp.topic for tp in partitions})
    return (
        f"To gain time, raise retention.ms of {name_some(topics, ', ')} until the window is committed: kafka-configs --bootstrap-server ... --alter "
        f"--entity-type topics --entity-name {topics[0]} --add-config retention.ms=..."
    )
