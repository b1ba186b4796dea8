"""What planning does about records that retention may remove before their window has run.

A record is at risk if its partition's verdict would be AT RISK without the wait for the next run (`core.lag.verdict`). Kafka is asked
one question for each partition: which is the first record that is not at risk? If it lies at or below the start of the window, that is
all. Else a search finds how long the records before it have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from airflow_kafka_offsets.core.errors import AtRiskError, name_some
from airflow_kafka_offsets.core.group import KafkaGroup, OnAtRisk
from airflow_kafka_offsets.core.lag.lag import PartitionLag
from airflow_kafka_offsets.core.lag.measure import to_ms
from airflow_kafka_offsets.core.lag.pace import Pace
from airflow_kafka_offsets.core.lag.retention import Retention
from airflow_kafka_offsets.core.lag.search import Hits, Probe
from airflow_kafka_offsets.core.lag.verdict import needed_seconds
from airflow_kafka_offsets.core.lag.words import length
from airflow_kafka_offsets.core.log import LogSnapshot
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.ownership import Position
from airflow_kafka_offsets.core.plan.planning import Plan
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.window import Draft


@dataclass(frozen=True, slots=True)
class Danger:
    """Records that retention may remove soon.

    Attributes:
        offsets: the records, of one partition.
        headroom_seconds: how long until the first of them may go.
        needed_seconds: how much headroom their window needs.
    """

    offsets: OffsetRange
    headroom_seconds: float
    needed_seconds: float

    def __str__(self) -> str:
        when = f"in {length(self.headroom_seconds)}" if self.headroom_seconds >= 1 else "at any moment"
        return f"offsets {self.offsets} {when}"


def needed(pace: Pace, retention: Retention) -> float | None:
    """Return how much headroom a window needs that begins now, in seconds; None if its records do not age.

    It is the limit of the verdict, without the time from run to run: the run has come.
    """
    if retention.time is None:
        return None
    return needed_seconds(PartitionLag(None, None, None, retention=retention), replace(pace, interval_seconds=None))


def probes(
    ranges: OffsetRanges, retentions: Mapping[str, Retention], pace: Pace, now_ms: int
) -> dict[TopicPartition, Probe]:
    """Return for each partition with something to read whose records age: which is the first record that is not at risk?"""
    found: dict[TopicPartition, Probe] = {}
    for tp in ranges.without_empty():
        retention = retentions.get(tp.topic)
        seconds = needed(pace, retention) if retention else None
        if retention is not None and retention.time is not None and seconds is not None:
            found[tp] = Probe(tp, max(0, now_ms + int((seconds - retention.time.total_seconds()) * 1000)))
    return found


def local_probes(
    ranges: OffsetRanges, retentions: Mapping[str, Retention], now: datetime
) -> dict[TopicPartition, Probe]:
    """Return for each partition with a remote tier: which is the first record that is young enough for the broker's own disk?"""
    kept = {topic: retention.local for topic, retention in retentions.items() if retention.local is not None}
    return {tp: Probe(tp, max(0, to_ms(now - kept[tp.topic]))) for tp in ranges if tp.topic in kept}


def remote_note(windows: Iterable[Draft], probes: Mapping[TopicPartition, Probe], hits: Hits) -> str | None:
    """Return what to say of windows whose records lie in a remote tier; None if none do."""
    parts = [(w.ranges, {tp: probe for tp, probe in probes.items() if tp in w.ranges}) for w in windows]
    old, span = sum(endangered(*part, hits).span for part in parts), sum(ranges.span for ranges, _ in parts)
    topics = sorted({tp.topic for tp in probes})
    return (
        f"{old} of {span} offsets are older than local.retention.ms of {name_some(topics, ', ')}. Kafka reads them from its remote "
        "tier, which takes longer"
        if old
        else None
    )


def endangered(ranges: OffsetRanges, probes: Mapping[TopicPartition, Probe], hits: Hits) -> OffsetRanges:
    """Return the records before the ones that the probes find."""
    found: dict[TopicPartition, OffsetRange] = {}
    for tp, probe in probes.items():
        hit, offsets = hits[probe], ranges[tp]
        safe = offsets.end if hit is None else min(hit.offset, offsets.end)
        if safe > offsets.start:
            found[tp] = OffsetRange(offsets.start, safe)
    return OffsetRanges(found)


def dangers(
    endangered: OffsetRanges, ages: Mapping[TopicPartition, float], retentions: Mapping[str, Retention], pace: Pace
) -> dict[TopicPartition, Danger]:
    """Return the records at risk, those that expire first at the start.

    Args:
        endangered: the records, whose topics have a retention by time.
        ages: how old the first record of each partition is, in seconds; one without records is missing.
        retentions: those of the topics.
        pace: how fast the group commits.
    """
    found: dict[TopicPartition, Danger] = {}
    for tp, age in ages.items():
        retention = retentions[tp.topic]
        seconds = needed(pace, retention)
        assert retention.time is not None
        assert seconds is not None
        found[tp] = Danger(endangered[tp], max(0.0, retention.time.total_seconds() - age), seconds)
    return dict(sorted(found.items(), key=lambda item: (item[1].headroom_seconds, item[0])))


def together(windows: Iterable[Draft]) -> OffsetRanges:
    """Return the offsets from the first to the last one of some windows, without partitions of which they read nothing."""
    found: dict[TopicPartition, OffsetRange] = {}
    for window in windows:
        for tp, offsets in window.ranges.without_empty().items():
            range_so_far = found.get(tp, offsets)
            found[tp] = OffsetRange(min(range_so_far.start, offsets.start), max(range_so_far.end, offsets.end))
    return OffsetRanges(found)


def warn_of_risk(
    group: KafkaGroup,
    plans: Sequence[Plan],
    at_risk: Mapping[TopicPartition, Danger],
    position: Position | None,
    log: LogSnapshot,
) -> list[Plan]:
    """Return new windows with warnings about records at risk.

    Args:
        group: its policy.
        plans: the windows, as they were cut.
        at_risk: the unread records at risk.
        position: where the first of them starts; None if it is the group's first window.
        log: what Kafka holds.

    Raises:
        AtRiskError: retention may come first, and the policy is ``fail``.
    """
    if not at_risk:
        return list(plans)
    # What is read from the log's beginning on is never refused: retention removes records there all the time, and waiting saves none.
    refused = {
        tp: danger
        for tp, danger in at_risk.items()
        if position is not None and danger.offsets.start > log.bounds[tp].beginning
    }
    if refused and group.on_at_risk is OnAtRisk.FAIL:
        raise _refusal(refused)
    warnings = [warning_of(["this window"], at_risk)]
    ends = plans[-1].ranges.ends
    if left := {tp: danger for tp, danger in at_risk.items() if ends.get(tp, danger.offsets.end) < danger.offsets.end}:
        warnings.append(
            f"max_offsets={group.max_offsets} leaves out records that retention may remove: {_named(left)}. "
            "To read faster, raise it or max_open_windows"
        )
    return [replace(plans[0], warnings=(*plans[0].warnings, *warnings)), *plans[1:]]


def warning_of(windows: Sequence[str], at_risk: Mapping[TopicPartition, Danger]) -> str:
    """Return the warning about windows, by their names."""
    return (
        f"retention may remove records of {name_some(windows, ', ')} before a job has read them: "
        f"{_named(at_risk)}. {_more_time(at_risk)}"
    )


def _named(at_risk: Mapping[TopicPartition, Danger]) -> str:
    return name_some([f"{tp} {danger}" for tp, danger in at_risk.items()], ", ")


def _refusal(at_risk: Mapping[TopicPartition, Danger]) -> AtRiskError:
    return AtRiskError.naming(
        {
            tp: f"{tp}: retention may remove {danger}, and a window needs {length(danger.needed_seconds)}"
            for tp, danger in at_risk.items()
        },
        f"To read what can still be read: KafkaGroup(on_at_risk='warn'). {_more_time(at_risk)}",
    )


def _more_time(partitions: Collection[TopicPartition]) -> str:
    topics = sorted({tp.topic for tp in partitions})
    return (
        f"To gain time, raise retention.ms of {name_some(topics, ', ')} until the window is committed:\n"
        f"    kafka-configs --bootstrap-server ... --alter --entity-type topics --entity-name {topics[0]} "
        "--add-config retention.ms=..."
    )
