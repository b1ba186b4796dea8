"""What planning does about records that retention may remove before their window has run.

Kafka is asked one question for each partition: which is the first record that will still be there after the headroom that the
group needs? If it lies at or below the start of the window, nothing is in danger, and that is all. Else the records before it may
expire. A search tells how long they have. If `max_offsets` cuts the window, those that may expire before the next window is done are read
first.
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
from airflow_kafka_offsets.core.lag.verdict import MOST, RESERVE, needed_seconds, tries_seconds
from airflow_kafka_offsets.core.lag.words import length
from airflow_kafka_offsets.core.log import LogSnapshot
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition
from airflow_kafka_offsets.core.plan.ownership import Position
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
        can_wait_from: the first record that is still there when the next window is done; those before it can't wait for that window.
    """

    start: int
    until: int
    headroom_seconds: float
    run_seconds: float
    can_wait_from: int

    @property
    def comes_first(self) -> bool:
        """Whether retention may come before the job has read all."""
        return self.headroom_seconds < self.run_seconds

    def __str__(self) -> str:
        when = f"in {length(self.headroom_seconds)}" if self.headroom_seconds >= 1 else "at any moment"
        return f"offsets [{self.start}, {self.until}) {when}"


@dataclass(frozen=True, slots=True)
class Question:
    """The question about a partition, and the one about what is in danger there.

    Attributes:
        probe: which is the first record that is not in danger?
        wait_probe: which is the first record that can wait for the next window?
        retention: how long the partition's records stay, in seconds.
        run_seconds: how long the window may take.
    """

    probe: Probe
    wait_probe: Probe
    retention: float
    run_seconds: float


def run_seconds(pace: Pace, retention: float) -> float:
    """Return how long a window may take until all of it is read: three times the longest of the last jobs, at least ten minutes.

    It is at most half of the retention, so that records which have just arrived are never in danger. Without any job, it is a tenth of the
    retention.
    """
    if pace.longest_seconds is None:
        return RESERVE * retention
    return max(min(SHORTEST_RUN, MOST * retention), tries_seconds(pace, retention))


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
    """Return the questions about each partition that has something to read, and whose records age."""
    found: dict[TopicPartition, Question] = {}
    for tp, offsets in ranges.items():
        retention = retentions.get(tp.topic)
        if not offsets.span or retention is None or retention.time is None:
            continue
        seconds = retention.time.total_seconds()
        run = run_seconds(pace, seconds)
        next_is_done = (pace.interval_seconds or 0.0) + run
        needed = max(needed_seconds(PartitionLag(None, None, None, retention=retention), pace), next_is_done)
        probe, wait_probe = (_still_there(tp, now_ms, seconds, after) for after in (needed, next_is_done))
        found[tp] = Question(probe, wait_probe, seconds, run)
    return found


def _still_there(tp: TopicPartition, now_ms: int, retention: float, after: float) -> Probe:
    """Return the probe for the first record that retention has left after some seconds."""
    return Probe(tp, max(0, now_ms + int((after - retention) * 1000)))


def endangered(ranges: OffsetRanges, probes: Mapping[TopicPartition, Probe], hits: Hits) -> dict[TopicPartition, int]:
    """Return for each partition with records before the one that a probe finds the offset of that one."""
    found: dict[TopicPartition, int] = {}
    for tp, probe in probes.items():
        hit, offsets = hits[probe], ranges[tp]
        safe = offsets.end if hit is None else min(hit.offset, offsets.end)
        if safe > offsets.start:
            found[tp] = safe
    return found


def dangers(
    ranges: OffsetRanges,
    asked: Mapping[TopicPartition, Question],
    safe_from: Offsets,
    can_wait_from: Offsets,
    ages: Mapping[TopicPartition, float],
) -> dict[TopicPartition, Danger]:
    """Return what is in danger, what expires first at first.

    Args:
        ranges: what is to be read.
        asked: the questions.
        safe_from: the first record of each partition that is not in danger.
        can_wait_from: the first one that can wait for the next window, if those before it can't.
        ages: of each of these partitions, how old the first record is by the timestamp index, in seconds.
    """
    found = {
        tp: Danger(
            ranges[tp].start,
            safe_from[tp],
            max(0.0, asked[tp].retention - age),
            asked[tp].run_seconds,
            can_wait_from.get(tp, ranges[tp].start),
        )
        for tp, age in ages.items()
    }
    return dict(sorted(found.items(), key=lambda item: (item[1].headroom_seconds, item[0])))


def with_urgent(plan: Plan, found: Mapping[TopicPartition, Danger]) -> Plan:
    """Return a plan that is cut so that what can't wait for the next window is read first."""
    urgent = {tp: danger.can_wait_from for tp, danger in found.items() if danger.can_wait_from > danger.start}
    return replace(plan, urgent=urgent) if urgent else plan


def read_from_the_beginning(
    found: Mapping[TopicPartition, Danger], position: Position | None, log: LogSnapshot
) -> set[TopicPartition]:
    """Return the partitions in danger that are read from where retention removes records all the time, so that waiting saves none.

    They begin at the log's beginning offset: after a loss, after a reset, or because nothing before the watermark is left. So does, usually, all of a
    first window.
    """
    return {tp for tp, danger in found.items() if position is None or danger.start <= log.bounds[tp].beginning}


def told(
    group: KafkaGroup,
    plans: Sequence[Plan],
    found: Mapping[TopicPartition, Danger],
    never_refused: Collection[TopicPartition] = (),
) -> list[Plan]:
    """Return the windows with warnings about what is in danger.

    Args:
        group: its policy.
        plans: the windows, as they were cut.
        found: what is in danger.
        never_refused: see `read_from_the_beginning`.

    Raises:
        AtRiskError: retention may come first, and the policy is ``fail``.
    """
    coming = {tp: danger for tp, danger in found.items() if danger.comes_first}
    refused = {tp: danger for tp, danger in coming.items() if tp not in never_refused}
    if refused and group.on_at_risk is OnAtRisk.FAIL:
        raise _refusal(group, refused)
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
        f"{name_some([f'{tp} {danger}' for tp, danger in left.items()], ', ')}. What can't wait for the next window is read first. To read "
        "faster, raise max_offsets, or let several windows run at once with max_open_windows"
    )


def _more_time(partitions: Collection[TopicPartition]) -> str:
    topics = sorted({tp.topic for tp in partitions})
    return (
        f"To gain time, raise retention.ms of {name_some(topics, ', ')} until the window is committed: kafka-configs --bootstrap-server ... --alter "
        f"--entity-type topics --entity-name {topics[0]} --add-config retention.ms=..."
    )
