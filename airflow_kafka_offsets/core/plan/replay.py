"""Which windows own the offsets of a replay: windows that are run again, and new backfill windows for what no one owned.

docs/design.md, rules 6 and 7.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

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
from airflow_kafka_offsets.core.log import LogSnapshot
from airflow_kafka_offsets.core.offsets import TopicPartition, topics_of
from airflow_kafka_offsets.core.plan.ownership import NOWHERE, GroupState, Position, watermark
from airflow_kafka_offsets.core.plan.planning import Plan, cap, left_over
from airflow_kafka_offsets.core.plan.request import TimeSpan
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.window import Lane, State, Window, WindowRecord

MAX_BACKFILL_WINDOWS = 10_000
"""How many windows one replay may cut."""

Gaps = Mapping[TopicPartition, Sequence[OffsetRange]]


@dataclass(frozen=True, slots=True)
class Owned:
    """What the ledger has of the offsets or windows that a run names.

    Attributes:
        windows: the windows that run, oldest first.
        gaps: offsets that no window owns.
        owners: windows that own records of the asked time, although they belong to another time.
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
        raise NotYetError(
            f"Group {group} has not planned yet, so nothing lies below its watermark. Let an ordinary run of its DAG "
            "plan first (starting_offsets='latest' begins with new records and leaves older ones to a replay)"
        )


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
            f"Window {window.id} is {window.state}, and its offsets are at or above the watermark: the live lane is about "
            "to read them. The next ordinary run of its DAG adopts it when the run that has it is over"
        )
    raise IllegalStepError(
        f"Window {window.id} was {window.state}, and no longer owns anything. Name the time span or the offsets instead: that "
        "finds the windows that own them now, and reads what no one owns"
    )


def between_times(
    starts: Mapping[TopicPartition, int | None], ends: Mapping[TopicPartition, int | None], log: LogSnapshot
) -> OffsetRanges:
    """Return the offsets between two times. Consecutive time spans tile the log, whatever the order of timestamps.

    Args:
        starts: the first offset of the first time or later, by the timestamp index; None: there is none.
        ends: the same for the second time.
        log: what Kafka holds.
    """
    bounds = log.bounds
    at = {tp: [bounds[tp].end if o is None else o for o in (starts[tp], ends[tp])] for tp in starts}
    return OffsetRanges((tp, OffsetRange(start, max(start, end))) for tp, (start, end) in at.items())


def overlapping(
    asked: OffsetRanges, owners: Iterable[WindowRecord], topic_ids: Mapping[str, str]
) -> list[WindowRecord]:
    """Return the windows that own any of these offsets, in today's topics.

    Args:
        asked: offset ranges.
        owners: windows that own their offsets.
        topic_ids: the ids that the asked offsets belong to.
    """
    wanted = asked.without_empty()
    return [held for held in owners if any(_shared(held.window, wanted, topic_ids))]


def left_to_find(asked: OffsetRanges, window: Window, topic_ids: Mapping[str, str]) -> OffsetRanges:
    """Return what is asked of the partitions of which a window before a live one may still own something.

    Live windows of one incarnation of a topic tile its log. Once one starts at the beginning of what is asked or before it, no older one has any
    of it. Before a window of an earlier incarnation, there is none of today's.
    """
    planned = ever_planned(asked, window, topic_ids)
    return OffsetRanges(
        (tp, wanted)
        for tp, wanted in asked.items()
        if tp not in window.ranges or (tp in planned and window.ranges[tp].start > wanted.start)
    )


def ever_planned(asked: OffsetRanges, window: Window, topic_ids: Mapping[str, str]) -> OffsetRanges:
    """Return what is asked of the partitions that a live window names, in the topics of today.

    A live window names every partition of each earlier one, if only as an empty range. So what it does not name no earlier one owns.
    """
    named = window.ranges
    return OffsetRanges(
        (tp, wanted)
        for tp, wanted in asked.items()
        if tp in named and window.topic_ids.get(tp.topic) == topic_ids.get(tp.topic)
    )


def lies_above(window: Window, asked: OffsetRanges, topic_ids: Mapping[str, str]) -> bool:
    """Whether a live window, and so each later one, starts at the end of all that is asked or above it.

    Args:
        window: the window.
        asked: offset ranges of partitions that the newest live window names, see `ever_planned`.
        topic_ids: the ids that the asked offsets belong to.
    """
    here = ever_planned(asked, window, topic_ids)
    return len(here) == len(asked) and all(window.ranges[tp].start >= wanted.end for tp, wanted in here.items())


def _shared(
    window: Window, asked: OffsetRanges, topic_ids: Mapping[str, str]
) -> Iterator[tuple[TopicPartition, OffsetRange]]:
    for tp, wanted in asked.items():
        owned = window.ranges.get(tp)
        if owned is None or window.topic_ids.get(tp.topic) != topic_ids.get(tp.topic):
            continue
        if shared := owned.shared_with(wanted):
            yield tp, shared


def without_owner(asked: OffsetRanges, owners: Iterable[Window], topic_ids: Mapping[str, str]) -> Gaps:
    """Return the asked ranges without what these windows own."""
    free = {tp: [wanted] for tp, wanted in asked.without_empty().items()}
    for window in owners:
        for tp, owned in _shared(window, asked, topic_ids):
            free[tp] = [rest for piece in free[tp] for rest in _minus(piece, owned)]
    return {tp: sorted(pieces, key=lambda r: r.start) for tp, pieces in free.items() if pieces}


def _minus(piece: OffsetRange, taken: OffsetRange) -> list[OffsetRange]:
    if taken.end <= piece.start or piece.end <= taken.start:
        return [piece]
    before = [OffsetRange(piece.start, taken.start)] if piece.start < taken.start else []
    after = [OffsetRange(taken.end, piece.end)] if taken.end < piece.end else []
    return before + after


def below_watermark(asked: OffsetRanges, state: GroupState) -> OffsetRanges:
    """Leave out what the live lane will still read."""
    marks = (watermark(state) or NOWHERE).offsets
    return OffsetRanges(
        (tp, OffsetRange(r.start, max(r.start, min(r.end, marks[tp])))) for tp, r in asked.items() if tp in marks
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
    ids, epochs = {topic: log.topic_ids[topic] for topic in topics_of(gaps)}, to_note(None, log)
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
        wait = "Let an ordinary run of the DAG read them"
        if state.open:
            open_id = state.open[0].id
            wait = f"Window {open_id} is open and holds the watermark: let it be committed, then ask again"
        raise NotYetError(
            f"A replay can only read below the watermark, and these offsets are above it: {name_some(above)}. {wait}, or ask for an earlier end"
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
        raise TopicRecreatedError(
            f"{name_some(changed.values())}. Its earlier records are gone: ask for offsets of other topics", changed
        )
    gone = {
        tp: f"{tp}: offsets [{pieces[0].start}, {min(pieces[-1].end, b.beginning)}) (beginning offset {b.beginning})"
        for tp, pieces in gaps.items()
        if pieces[0].start < (b := log.bounds[tp]).beginning
    }
    if gone:
        why = "No one owns these offsets, and retention has removed them"
        raise DataLossError(f"{why}: {name_some(gone.values())}. Ask for offsets from the beginning offset on", gone)


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
        why = "No one owns these offsets, and the log ends before them although it once was longer"
        raise LogTruncatedError(f"{why}: {name_some(gone.values())}. Ask for offsets below the end offset", gone)


def _is_another(topic: str, log: LogSnapshot, position: Position) -> bool:
    known = position.topic_ids.get(topic)
    return known is not None and log.topic_ids.get(topic) != known


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
                    f"With max_offsets={max_offsets} this replay makes more than {MAX_BACKFILL_WINDOWS} windows: ask for "
                    "less at a time"
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
        raise BadInputError(
            f"This run's data interval starts and ends at {span.start.isoformat()}, so no window belongs to it. With "
            "schedule='@hourly' or another cron text, Airflow 3 gives each run an interval that starts and ends at the same moment. For backfills use "
            "CronDataIntervalTimetable('@hourly', timezone='UTC') or CronTriggerTimetable(..., interval=timedelta(hours=1))"
        )


def nothing_to_replay(what: str, owners: Sequence[Window] = ()) -> BadInputError:
    """Return the error for an answer without any offset.

    Args:
        what: what was asked.
        owners: windows that own the records of the asked time, but were cut at another time.
    """
    hint = "kafka-offsets windows lists what there is, with each planned-until time"
    if owners:
        named = name_some([window.id for window in owners], ", ")
        hint = (
            f"The records of that time belong to windows with another planned-until time. Name these windows: {named}"
        )
    return BadInputError(f"There is nothing to replay: {what}. {hint}")
