"""Which windows own the offsets of a replay: windows that are run again, and new backfill windows for what no one owned.

docs/design.md, rules 6 and 7.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from airflow_kafka_offsets.core.errors import (
    BadInputError,
    DataLossError,
    IllegalStepError,
    LogTruncatedError,
    NotYetError,
    TopicRecreatedError,
    name_some,
)
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.leader_epochs import to_note
from airflow_kafka_offsets.core.log import LogSnapshot, may_be_same, noted_ids
from airflow_kafka_offsets.core.offsets import TopicPartition, topics_of
from airflow_kafka_offsets.core.plan.ownership import NOWHERE, GroupState, Position, watermark
from airflow_kafka_offsets.core.plan.planning import Plan, cap, left_over
from airflow_kafka_offsets.core.plan.request import WITH_INTERVALS, TimeSpan
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.window import Lane, State, Window, WindowRecord

MAX_BACKFILL_WINDOWS = 10_000
"""How many windows one replay may cut."""

Gaps = Mapping[TopicPartition, Sequence[OffsetRange]]


@dataclass(frozen=True, slots=True)
class Owned:
    """What the ledger has for a replay.

    Attributes:
        windows: the windows that run, oldest first.
        gaps: offsets that no window owns.
        owners: windows that own records of the requested time, although they belong to another time.
    """

    windows: Sequence[WindowRecord] = ()
    gaps: Gaps = field(default_factory=dict)
    owners: Sequence[WindowRecord] = ()


def check_has_planned(group: str, state: GroupState) -> None:
    """Refuse a replay of a group without a watermark.

    Raises:
        NotYetError: nothing lies below it.
    """
    if state.position is None:
        raise NotYetError(f"Group {group} has not planned yet. Let an ordinary run plan first")


def may_replay(window: Window) -> bool:
    """Whether a replay may run the window: it is committed, or a backfill window that an earlier replay left open."""
    return window.state is State.COMMITTED or (window.lane is Lane.BACKFILL and window.state.is_open)


def has_replay(window: Window) -> bool:
    """Whether a replay of the window would read something."""
    return may_replay(window) and window.span > 0


def check_replayable(window: Window) -> None:
    """Refuse a window that a person named and that can't be replayed.

    Raises:
        IllegalStepError: it is an open live window, or no longer owns anything.
    """
    if may_replay(window):
        return
    if window.state.is_open:
        raise IllegalStepError(
            f"Window {window.id} is {window.state}, so it is not below the watermark yet. An ordinary run of its DAG reads it"
        )
    raise IllegalStepError(
        f"Window {window.id} was {window.state} and no longer owns anything. Name the time span or the offsets instead"
    )


def between_times(
    starts: Mapping[TopicPartition, int | None], ends: Mapping[TopicPartition, int | None], log: LogSnapshot
) -> OffsetRanges:
    """Return the offsets between two times. Consecutive time spans tile the log, whatever the order of timestamps.

    Args:
        starts: the first offset of the first time or later, by the timestamp index, or None if there is none.
        ends: the same for the second time.
        log: what Kafka holds.
    """
    bounds = log.bounds
    at = {tp: [bounds[tp].end if o is None else o for o in (starts[tp], ends[tp])] for tp in starts}
    return OffsetRanges((tp, OffsetRange(start, max(start, end))) for tp, (start, end) in at.items())


def overlapping(
    requested: OffsetRanges,
    owners: Iterable[WindowRecord],
    topic_ids: Mapping[str, str],
    ids: Mapping[str, str] = MappingProxyType({}),
) -> list[WindowRecord]:
    """Return the windows that own any of these offsets, in today's topics.

    Args:
        requested: offset ranges.
        owners: windows that own their offsets.
        topic_ids: the ids of their topics.
        ids: what a window's unknown ids stand for, see `core.history.first_ids`.
    """
    wanted = requested.without_empty()
    return [held for held in owners if any(_shared(held.window.identified(ids), wanted, topic_ids))]


def left_to_find(requested: OffsetRanges, window: Window, topic_ids: Mapping[str, str]) -> OffsetRanges:
    """Return the requested offsets that a window before a live one may own.

    Live windows of one incarnation of a topic tile its log. Once one starts at the beginning of the request or before it, no older window owns
    any of it. Before a window of an earlier incarnation, no window is of today's.
    """
    planned = ever_planned(requested, window, topic_ids)
    return OffsetRanges(
        (tp, wanted)
        for tp, wanted in requested.items()
        if tp not in window.ranges or (tp in planned and window.ranges[tp].start > wanted.start)
    )


def ever_planned(requested: OffsetRanges, window: Window, topic_ids: Mapping[str, str]) -> OffsetRanges:
    """Return the requested offsets in the partitions that a live window names, in the topics of today.

    A live window names every partition of each earlier one, if only as an empty range. So no earlier one owns a partition that it does not name.
    """
    named = window.ranges
    return OffsetRanges(
        (tp, wanted)
        for tp, wanted in requested.items()
        if tp in named and may_be_same(window.topic_ids.get(tp.topic), topic_ids.get(tp.topic))
    )


def lies_above(window: Window, requested: OffsetRanges, topic_ids: Mapping[str, str]) -> bool:
    """Whether a live window, and so each later one, starts at the end of all requested offsets or above it.

    Args:
        window: the window.
        requested: offset ranges of partitions that the newest live window names, see `ever_planned`.
        topic_ids: the ids of their topics.
    """
    planned = ever_planned(requested, window, topic_ids)
    return len(planned) == len(requested) and all(
        window.ranges[tp].start >= wanted.end for tp, wanted in planned.items()
    )


def _shared(
    window: Window, requested: OffsetRanges, topic_ids: Mapping[str, str]
) -> Iterator[tuple[TopicPartition, OffsetRange]]:
    for tp, wanted in requested.items():
        owned = window.ranges.get(tp)
        if owned is None or not may_be_same(window.topic_ids.get(tp.topic), topic_ids.get(tp.topic)):
            continue
        if shared := owned.shared_with(wanted):
            yield tp, shared


def without_owner(requested: OffsetRanges, owners: Iterable[Window], topic_ids: Mapping[str, str]) -> Gaps:
    """Return the requested ranges without those that these windows own."""
    free = {tp: [wanted] for tp, wanted in requested.without_empty().items()}
    for window in owners:
        for tp, owned in _shared(window, requested, topic_ids):
            free[tp] = [rest for piece in free[tp] for rest in _minus(piece, owned)]
    return {tp: sorted(pieces, key=lambda r: r.start) for tp, pieces in free.items() if pieces}


def _minus(piece: OffsetRange, taken: OffsetRange) -> list[OffsetRange]:
    if taken.end <= piece.start or piece.end <= taken.start:
        return [piece]
    before = [OffsetRange(piece.start, taken.start)] if piece.start < taken.start else []
    after = [OffsetRange(taken.end, piece.end)] if taken.end < piece.end else []
    return before + after


def below_watermark(requested: OffsetRanges, state: GroupState) -> OffsetRanges:
    """Leave out what the live lane will still read."""
    marks = (watermark(state) or NOWHERE).offsets
    return OffsetRanges(
        (tp, OffsetRange(r.start, max(r.start, min(r.end, marks[tp])))) for tp, r in requested.items() if tp in marks
    )


def backfill(group: KafkaGroup, gaps: Gaps, state: GroupState, log: LogSnapshot, until: datetime) -> list[Plan]:
    """Plan backfill windows for offsets without an owner.

    Raises:
        BadInputError, LogError: Kafka does not hold them, the live lane will read them, or they are too many.
    """
    assert state.position
    check_in_log(gaps, log, state.position)
    # Offsets above both the watermark and the log's end are not lost: no one has written them yet.
    check_below_watermark(gaps, state, log)
    check_not_truncated(gaps, log)
    noted, epochs = noted_ids(state.position.topic_ids, log.topic_ids), to_note(None, log)
    ids = {topic: noted[topic] for topic in topics_of(gaps)}
    cuts, level, lane = cut_backfill(gaps, group.max_offsets), group.isolation_level, Lane.BACKFILL
    return [Plan(ranges, ids, until, level, lane=lane, leader_epochs=epochs) for ranges in cuts]


def check_below_watermark(gaps: Gaps, state: GroupState, log: LogSnapshot) -> None:
    """Refuse offsets without an owner that the live lane will read. It reads a new partition from its beginning.

    Raises:
        BadInputError: with the partitions and numbers.
    """
    marks = (watermark(state) or NOWHERE).offsets
    above = []
    for tp, pieces in sorted(gaps.items()):
        bounds = log.bounds.get(tp)
        mark = marks.get(tp, bounds.beginning if bounds else 0)
        if pieces[-1].end > mark:
            above.append(f"{tp}: offsets [{max(pieces[-1].start, mark)}, {pieces[-1].end}) (watermark {mark})")
    if above:
        reader = f"open window {state.open[0].id}" if state.open else "an ordinary run"
        raise NotYetError(
            f"A replay can only read below the watermark: {name_some(above)}. Let {reader} read them, or ask for an earlier end"
        )


def check_in_log(gaps: Gaps, log: LogSnapshot, position: Position) -> None:
    """Refuse offsets without an owner that Kafka does not hold.

    Raises:
        BadInputError: there is no such partition.
        TopicRecreatedError: the topic is not the one that the group reads.
        DataLossError: retention removed some of them.
    """
    if unknown := sorted(gaps.keys() - log.bounds.keys()):
        raise BadInputError(f"Kafka has no partition {name_some(unknown, ', ')}")
    if changed := {tp: f"{tp}: topic {tp.topic} was recreated" for tp in gaps if _is_another(tp.topic, log, position)}:
        raise TopicRecreatedError.naming(changed, "Ask for offsets of other topics")
    gone = {
        tp: f"{tp}: offsets [{pieces[0].start}, {min(pieces[-1].end, b.beginning)}) (beginning offset {b.beginning})"
        for tp, pieces in gaps.items()
        if pieces[0].start < (b := log.bounds[tp]).beginning
    }
    if gone:
        raise DataLossError.naming(gone, "These offsets expired without an owner: ask for later ones")


def check_not_truncated(gaps: Gaps, log: LogSnapshot) -> None:
    """Refuse offsets below the watermark that lie beyond the end of their log.

    Raises:
        LogTruncatedError: with the numbers.
    """
    gone = {
        tp: f"{tp}: offsets [{max(pieces[-1].start, b.end)}, {pieces[-1].end}) (end offset {b.end})"
        for tp, pieces in gaps.items()
        if pieces[-1].end > (b := log.bounds[tp]).end
    }
    if gone:
        raise LogTruncatedError.naming(gone, "Kafka lost these offsets, which have no owner: ask for earlier ones")


def _is_another(topic: str, log: LogSnapshot, position: Position) -> bool:
    noted_id = position.topic_ids.get(topic)
    return noted_id is not None and not may_be_same(noted_id, log.topic_ids.get(topic))


def cut_backfill(gaps: Gaps, max_offsets: int | None) -> list[OffsetRanges]:
    """Cut gaps into windows. Each has at most one range of a partition, and none is larger than the cap.

    Raises:
        BadInputError: that makes too many windows.
    """
    cuts: list[OffsetRanges] = []
    for left in _layers(gaps):
        while left.span:
            if len(cuts) >= MAX_BACKFILL_WINDOWS:
                raise BadInputError(
                    f"With max_offsets={max_offsets} this replay makes more than {MAX_BACKFILL_WINDOWS} windows: ask for less at a time"
                )
            piece = cap(left, max_offsets)
            cuts.append(piece.without_empty())
            left = left_over(left, piece)
    return cuts


def _layers(gaps: Gaps) -> Iterator[OffsetRanges]:
    for depth in range(max(map(len, gaps.values()), default=0)):
        yield OffsetRanges((tp, pieces[depth]) for tp, pieces in gaps.items() if depth < len(pieces))


def check_divides(span: TimeSpan) -> None:
    """Refuse a data interval that can't contain a window's planned-until time.

    Raises:
        BadInputError: it has no width.
    """
    if span.start == span.end:
        raise BadInputError(f"This run's data interval starts and ends at {span.start.isoformat()}. {WITH_INTERVALS}")


def nothing_to_replay(what: str, owners: Sequence[Window] = ()) -> BadInputError:
    """Return the error for an answer without any offset.

    Args:
        what: the request.
        owners: windows that own the records of the requested time, but have another planned-until time.
    """
    hint = "To list the windows and their times:\n    kafka-offsets windows GROUP"
    if owners:
        named = name_some([window.id for window in owners], ", ")
        hint = f"Other windows own the records of that time. Name these windows: {named}"
    return BadInputError(f"There is nothing to replay: {what}. {hint}")
