"""Finds the next window's ranges from a position and the log: one verdict per topic-partition (docs/design.md, Planning)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from airflow_kafka_offsets.core.errors import (
    DataLossError,
    LogTruncatedError,
    MissingPartitionError,
    TopicRecreatedError,
    counted,
    name_some,
)
from airflow_kafka_offsets.core.group import KafkaGroup, OnDataLoss
from airflow_kafka_offsets.core.log import UNKNOWN_ID, Bounds, IsolationLevel, LogSnapshot, may_be_same, noted_ids
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition, topics_of
from airflow_kafka_offsets.core.plan.matching import check_there, way_out_of_missing
from airflow_kafka_offsets.core.plan.ownership import (
    ANOTHER_GROUP,
    KEEP_OUTPUT,
    NOWHERE,
    Position,
    reset_command,
    reset_to,
)
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.window import Draft


class Verdict(StrEnum):
    """The verdict of planning on one topic-partition."""

    CONTINUE = "continue"
    FIRST = "first"
    NEW_PARTITION = "new partition"
    DATA_LOSS = "data loss"
    TRUNCATED = "log truncated"
    RECREATED = "topic recreated"
    MISSING = "missing"
    LEFT_GROUP = "left the group"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Draft):
    """The next window before it has a name.

    Partitions of topics that the group no longer reads keep their place as empty ranges.

    Attributes:
        verdicts: the verdict on each partition; empty in the backfill lane.
        warnings: sentences for the log.
    """

    verdicts: Mapping[TopicPartition, Verdict] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def judge(tp: TopicPartition, position: Position | None, log: LogSnapshot, recovered: Bounds | None = None) -> Verdict:
    """Return the verdict on one topic-partition that the group reads.

    Args:
        tp: the topic-partition.
        position: where the group's next live window starts; None before the first one.
        log: what Kafka holds.
        recovered: the partition's log up to the high watermark, or None if Kafka was not asked again.
    """
    bounds = log.bounds.get(tp)
    if position is None:
        return Verdict.MISSING if bounds is None else Verdict.FIRST
    noted_id, topic_id = position.topic_ids.get(tp.topic), log.topic_ids.get(tp.topic)
    if noted_id is not None and topic_id is not None and not may_be_same(noted_id, topic_id):
        return Verdict.RECREATED
    if bounds is None:
        return Verdict.MISSING
    start = position.offsets.get(tp)
    if start is None:
        return Verdict.NEW_PARTITION
    if bounds.beginning > start:
        return Verdict.DATA_LOSS
    # Records that an open transaction hides, or that a slow leader does not show yet, are not lost.
    if max(bounds.end, recovered.end if recovered else 0) < start:
        return Verdict.TRUNCATED
    return Verdict.CONTINUE


def judge_all(
    group: KafkaGroup,
    position: Position | None,
    log: LogSnapshot,
    recovered: Mapping[TopicPartition, Bounds] | None = None,
) -> dict[TopicPartition, Verdict]:
    """Judge every partition that the group reads or has a position for.

    Args:
        group: its topics.
        position: where the group's next live window starts; None before the first one.
        log: what Kafka holds.
        recovered: the logs of the `suspects` up to their high watermarks, by a second look.
    """
    recovered = recovered or {}
    partitions = sorted({**(position or NOWHERE).offsets, **log.bounds})  # almost sorted already: a set would lose that
    reads = group.reads
    read = {topic for topic in topics_of(partitions) if topic in reads}
    return {
        tp: judge(tp, position, log, recovered.get(tp)) if tp.topic in read else Verdict.LEFT_GROUP for tp in partitions
    }


SECOND_LOOK_LEVEL = IsolationLevel.READ_UNCOMMITTED
"""The level for the second look at `suspects`: the high watermark shows what Kafka lost, and no transaction changes it."""


def suspects(position: Position | None, log: LogSnapshot) -> list[TopicPartition]:
    """Return the partitions whose log seems to be truncated. Look again, at `SECOND_LOOK_LEVEL`, before you believe it."""
    return [tp for tp in log.bounds if judge(tp, position, log) is Verdict.TRUNCATED]


def plan_all(
    group: KafkaGroup,
    position: Position | None,
    log: LogSnapshot,
    *,
    until: datetime,
    first: Offsets | None = None,
    recovered: Mapping[TopicPartition, Bounds] | None = None,
    ends: Mapping[TopicPartition, int | None] | None = None,
) -> Plan:
    """Plan one live window of all that there is to read, without the cap. It may be empty.

    Args:
        group: topics and policy.
        position: where the window starts; None before the first one.
        log: what Kafka holds.
        until: the planned-until time.
        first: the resolved starting offsets; needed when there is no position.
        recovered: the logs of the `suspects` up to their high watermarks, by a second look.
        ends: where a window ends at the latest, by the timestamp index; None for a partition without a later record.

    Raises:
        DataLossError: retention was faster than the group, and its policy is ``fail``.
        LogTruncatedError: a log ends before the position, on the second look too.
        TopicRecreatedError: a topic has another id than recorded.
        MissingPartitionError: a topic or partition is gone.
    """
    before = position or NOWHERE
    check_there(group, before, log)
    verdicts = judge_all(group, position, log, recovered)
    _refuse(group, before, log, verdicts, recovered or {})
    starts = {tp: _start(tp, verdict, before, log, first or {}) for tp, verdict in verdicts.items()}
    by_time = ends or {}
    ranges = OffsetRanges(
        (tp, _range(start, verdicts[tp], log.bounds.get(tp), by_time.get(tp))) for tp, start in starts.items()
    )
    lost = OffsetRanges(
        (tp, OffsetRange(before.offsets[tp], log.bounds[tp].beginning))
        for tp, verdict in verdicts.items()
        if verdict is Verdict.DATA_LOSS
    )
    fell_back = [tp for tp in suspects(position, log) if verdicts[tp] is Verdict.CONTINUE]
    return Plan(
        ranges,
        noted_ids(before.topic_ids, log.topic_ids),
        until,
        group.isolation_level,
        lost,
        unread=_unread(ranges, verdicts, log),
        verdicts=verdicts,
        warnings=(*_warnings(fell_back, lost), *_held_back(ranges, by_time, log), *_without_ids(before, log)),
    )


def cut(whole: Plan, number: int, max_offsets: int | None) -> list[Plan]:
    """Cut a plan into windows, one after the other, each at most the cap. There is at least one, even if it is empty.

    All of them come from one look at the log: a later window is what the cap left over, so it is not judged again.

    Args:
        whole: what there is to read.
        number: how many windows at most; what they leave over is not planned.
        max_offsets: the cap, or None if there is none.
    """
    plans = [_capped(whole, max_offsets)]
    while len(plans) < number and plans[-1].is_capped:
        taken = plans[-1]
        left = left_over(whole.ranges, taken.ranges)
        unread = None if taken.unread is None else taken.unread - taken.span
        plans.append(
            _capped(replace(whole, ranges=left, unread=unread, lost=OffsetRanges({}), warnings=()), max_offsets)
        )
    return plans


def _capped(plan: Plan, max_offsets: int | None) -> Plan:
    ranges = cap(plan.ranges, max_offsets)
    return replace(plan, ranges=ranges, is_capped=ranges.span < plan.span)


def _range(start: int, verdict: Verdict, bounds: Bounds | None, end: int | None) -> OffsetRange:
    if verdict is Verdict.LEFT_GROUP or bounds is None:
        return OffsetRange(start, start)
    # Beginning, end and timestamp index were not looked up in one moment, and so an end may lie before the start.
    return OffsetRange(start, max(start, bounds.end if end is None else min(end, bounds.end)))


def _unread(ranges: OffsetRanges, verdicts: Mapping[TopicPartition, Verdict], log: LogSnapshot) -> int:
    """Return how many offsets the group has not read, from the starts of ranges to the ends of the logs, whatever ends a window earlier."""
    read = {tp: r.start for tp, r in ranges.items() if verdicts[tp] is not Verdict.LEFT_GROUP}
    return sum(max(0, log.bounds[tp].end - start) for tp, start in read.items() if tp in log.bounds)


def _warnings(fell_back: list[TopicPartition], lost: OffsetRanges) -> tuple[str, ...]:
    warnings = []
    if fell_back:
        warnings.append(
            f"the end offset is before the watermark but nothing is lost, so this window reads nothing of {name_some(fell_back, ', ')}: "
            "its leader lags, or an open transaction hides records that were read uncommitted before"
        )
    if lost:
        gaps = name_some([f"{tp} {r}" for tp, r in lost.items()], ", ")
        warnings.append(f"offsets expired before they were read and are recorded as lost: {gaps}")
    return tuple(warnings)


def _held_back(ranges: OffsetRanges, ends: Mapping[TopicPartition, int | None], log: LogSnapshot) -> tuple[str, ...]:
    """Warn if a window that ends by time is empty while records wait: one dated in the future holds its partition back."""
    if ranges.span:
        return ()
    waiting = {
        tp: f"{tp} at offset {end} ({counted(log.bounds[tp].end - max(end, ranges[tp].start), 'offset')} waiting there)"
        for tp, end in sorted(ends.items())
        if end is not None and tp in ranges and max(end, ranges[tp].start) < log.bounds[tp].end
    }
    if not waiting:
        return ()
    return (
        f"this window is empty, as a record dated in the future holds back {name_some(waiting.values(), ', ')}. A run that is triggered "
        "by hand reads past it",
    )


def _without_ids(position: Position, log: LogSnapshot) -> tuple[str, ...]:
    """Warn of topics without an id, unless the last window has noted that."""
    noted = position.topic_ids
    if blind := sorted(topic for topic, id_ in log.topic_ids.items() if UNKNOWN_ID == id_ != noted.get(topic)):
        return (
            f"Kafka gives no id of {name_some(blind, ', ')}, so a topic that is deleted and made again can't be told from the one before",
        )
    return ()


def _start(tp: TopicPartition, verdict: Verdict, position: Position, log: LogSnapshot, first: Offsets) -> int:
    match verdict:
        case Verdict.FIRST:
            return first[tp]
        case Verdict.NEW_PARTITION | Verdict.DATA_LOSS:
            return log.bounds[tp].beginning
        case _:
            return position.offsets[tp]


def _refuse(
    group: KafkaGroup,
    position: Position,
    log: LogSnapshot,
    verdicts: Mapping[TopicPartition, Verdict],
    recovered: Mapping[TopicPartition, Bounds],
) -> None:
    by_verdict: dict[Verdict, list[TopicPartition]] = {}
    for tp, verdict in verdicts.items():
        by_verdict.setdefault(verdict, []).append(tp)
    if gone := by_verdict.get(Verdict.RECREATED):
        raise TopicRecreatedError.naming(
            {
                tp: f"{tp}: topic {tp.topic} was recreated (id {position.topic_ids[tp.topic]}, now {log.topic_ids[tp.topic]}; watermark "
                f"{position.offsets.get(tp, 'none')})"
                for tp in gone
            },
            "To read the new topic from its beginning:"
            + reset_command(group.name, f"--topic {gone[0].topic} --to earliest"),
        )
    if gone := by_verdict.get(Verdict.MISSING):
        raise MissingPartitionError.naming(
            {tp: f"{tp}: gone from Kafka (watermark {position.offsets[tp]})" for tp in gone},
            _made_again(position, log, gone) or way_out_of_missing(group),
        )
    if gone := by_verdict.get(Verdict.TRUNCATED):
        ends = {tp: recovered.get(tp, log.bounds[tp]).end for tp in gone}
        raise LogTruncatedError.naming(
            {
                tp: f"{tp}: the log ends at {end}, before the watermark {position.offsets[tp]}"
                for tp, end in ends.items()
            },
            _may_be_another(position, log, gone) + KEEP_OUTPUT + _past_truncated(group, ends, log),
        )
    if (gone := by_verdict.get(Verdict.DATA_LOSS)) and group.on_data_loss is OnDataLoss.FAIL:
        raise DataLossError.naming(
            {
                tp: f"{tp}: offsets [{position.offsets[tp]}, {log.bounds[tp].beginning}) expired before they were read"
                for tp in gone
            },
            "To record the gap and continue: KafkaGroup(on_data_loss='skip'), or once:"
            + reset_to(group.name, {tp: log.bounds[tp].beginning for tp in gone}),
        )


def _made_again(position: Position, log: LogSnapshot, gone: Iterable[TopicPartition]) -> str | None:
    """Return what to do about a topic without an id that lost a partition; None if there is none."""
    topic = _without_id(position, log, gone)
    if topic is None:
        return None
    return (
        f"Kafka removes no single partition, so topic {topic} was made again, and without topic ids the windows of both can't be "
        f"told apart. {ANOTHER_GROUP}"
    )


def _may_be_another(position: Position, log: LogSnapshot, gone: Iterable[TopicPartition]) -> str:
    topic = _without_id(position, log, gone)
    if topic is None:
        return ""
    return f"Without topic ids, {topic} may be another topic of that name: if so, {ANOTHER_GROUP[0].lower()}{ANOTHER_GROUP[1:]}. If not: "


def _without_id(position: Position, log: LogSnapshot, gone: Iterable[TopicPartition]) -> str | None:
    """Return the first topic there that Kafka has, and of which the group or Kafka does not know the id; None if there is none."""
    there = (topic for topic in topics_of(gone) if topic in log.topic_ids)
    return next((t for t in there if UNKNOWN_ID in (position.topic_ids.get(t), log.topic_ids[t])), None)


def _past_truncated(group: KafkaGroup, ends: Offsets, log: LogSnapshot) -> str:
    # A reset goes at most to the last stable offset. While a transaction is open, windows would lose offsets that Kafka still has.
    hidden: dict[TopicPartition, int] = {}
    if group.isolation_level is IsolationLevel.READ_COMMITTED:
        hidden = {tp: log.bounds[tp].end for tp, end in ends.items() if log.bounds[tp].end < end}
    way_out = ""
    if hidden:
        names = [f"{tp} [{start}, {ends[tp]})" for tp, start in hidden.items()]
        way_out += f". An open transaction hides {name_some(names, ', ')}: run the task again after its end"
    if to := {tp: end for tp, end in ends.items() if tp not in hidden}:
        way_out += f". To continue at the log's end:{reset_to(group.name, to)}"
    return way_out


def cap(ranges: OffsetRanges, max_offsets: int | None) -> OffsetRanges:
    """Return the first part of each range, together exactly `max_offsets` if there is more to read.

    Small partitions get all of their offsets, and the others are filled up to one common level, like connected vessels. The
    rest goes out one offset at a time, round robin over all partitions. If the cap is below the number of partitions, the
    level is zero, and a quiet partition still gets its turn although busy ones have larger backlogs.

    Args:
        ranges: what there is to read.
        max_offsets: the cap, or None if there is none.
    """
    if max_offsets is None or ranges.span <= max_offsets:
        return ranges
    spans = {tp: r.span for tp, r in ranges.items()}
    level, rest = _level(sorted(spans.values()), max_offsets)
    order = sorted(spans)
    # A capped window moves the sum of all starts by the cap. So the turn goes round all partitions and leaves none out.
    first = sum(ranges.starts.values()) % len(order)
    cut = [tp for tp in order[first:] + order[:first] if spans[tp] > level]
    shares = {tp: min(span, level) for tp, span in spans.items()} | dict.fromkeys(cut[:rest], level + 1)
    return OffsetRanges((tp, OffsetRange(start, start + shares[tp])) for tp, start in ranges.starts.items())


def _level(spans: list[int], amount: int) -> tuple[int, int]:
    """Return the level up to which an amount fills spans, smallest first, and what is left of the amount then."""
    for number, span in enumerate(spans):
        share = amount // (len(spans) - number)
        if span > share:
            return share, amount - share * (len(spans) - number)
        amount -= span
    return spans[-1], 0


def left_over(ranges: OffsetRanges, taken: OffsetRanges) -> OffsetRanges:
    """Return what is left of ranges after the first part of each was taken."""
    return OffsetRanges((tp, OffsetRange(taken[tp].end, r.end)) for tp, r in ranges.items())
