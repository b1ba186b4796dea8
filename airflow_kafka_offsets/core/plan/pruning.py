"""Which windows may leave the ledger, and what is kept of them (docs/design.md, rule 13).

Windows leave from the oldest on, without a hole: the first one that has to stay keeps all after it. So one number separates them.
Only a window whose offsets Kafka no longer holds may leave. So an offset that Kafka holds has the owner that it had.

Two things are kept. The floor of each partition: owners of offsets below it are forgotten, so no one may own these again, even if
Kafka ever has them again. And a number for each claim that had a window: a run that asks again gets no new one, in any group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from airflow_kafka_offsets.core.errors import (
    DataLossError,
    IllegalStepError,
    PrunedWindowError,
    UnknownWindowError,
    name_some,
    no_window,
)
from airflow_kafka_offsets.core.log import UNKNOWN_ID, LogSnapshot, may_be_same
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition
from airflow_kafka_offsets.core.plan.ownership import ANOTHER_GROUP
from airflow_kafka_offsets.core.ranges import OffsetRange
from airflow_kafka_offsets.core.window import Lane, State, Window, WindowRecord
from airflow_kafka_offsets.core.window_id import name_window

Floors = Mapping[str, Mapping[int, int]]
"""By topic id and partition: the ledger has forgotten who owned the offsets below this one."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """What the ledger keeps of the windows of a group that were pruned: whoever needs one of these asks here.

    Attributes:
        group: its name.
        first: the number of the first window that was not; 1 if none was.
        planned_until: the latest one of a pruned window that could have been replayed, or None if there was none.
        proof: the number and the planned-until time of the pruned window that proved most of how far the group has come in time (see
            `core.history.Frontier`), or None if there was none.
        floors: see `Floors`. They do not concern another topic of the same name.
    """

    group: str
    first: int = 1
    planned_until: datetime | None = None
    proof: tuple[int, datetime] | None = None
    floors: Floors = field(default_factory=dict)

    def floors_of(self, topic_ids: Mapping[str, str]) -> dict[TopicPartition, int]:
        """Return the floors of the partitions of topics; a partition without one is missing."""
        of_topics = ((topic, self.floors.get(topic_id, {})) for topic, topic_id in topic_ids.items())
        return {TopicPartition(topic, p): floor for topic, of_topic in of_topics for p, floor in of_topic.items()}

    def check_windows(self, seqs: Iterable[int]) -> None:
        """Refuse windows that are gone.

        Raises:
            PrunedWindowError: with their names.
        """
        if gone := [seq for seq in seqs if seq < self.first]:
            raise absent(self.group, gone, self.first)

    def check_span(self, start: datetime) -> None:
        """Refuse a time span that may have windows that are gone: a replay of the rest would pass for a replay of all.

        Raises:
            PrunedWindowError: with the time from which on the ledger has all windows.
        """
        if self.planned_until is not None and start < self.planned_until:
            raise PrunedWindowError(
                f"The windows before {name_window(self.group, self.first)} were pruned. Ask for a time span that starts at "
                f"{self.planned_until.isoformat()} or later"
            )

    def check_gaps(self, gaps: Mapping[TopicPartition, Sequence[OffsetRange]], topic_ids: Mapping[str, str]) -> None:
        """Refuse offsets that seem to be without an owner, because windows that may have owned them are gone.

        Raises:
            DataLossError: with the partitions and numbers.
        """
        floors = self.floors_of(topic_ids)
        gone = {
            tp: f"{tp}: offsets [{pieces[0].start}, {min(pieces[-1].end, floor)}) (ask for offsets from {floor} on)"
            for tp, pieces in sorted(gaps.items())
            if pieces[0].start < (floor := floors.get(tp, 0))
        }
        if gone:
            raise DataLossError(
                f"The windows of these offsets were pruned from the ledger: {name_some(gone.values())}", gone
            )

    def check_reset(self, target: Offsets, topic_ids: Mapping[str, str]) -> None:
        """Refuse a watermark below a floor: pruned windows may own what would be read again.

        Raises:
            IllegalStepError: with the partitions and numbers.
        """
        floors = self.floors_of(topic_ids)
        below = [
            f"{tp}: offset {offset} (possible from {floor} on)"
            for tp, offset in sorted(target.items())
            if offset < (floor := floors.get(tp, 0))
        ]
        if below:
            raise IllegalStepError(
                f"The windows before {name_window(self.group, self.first)} were pruned, and it is unknown whose output to remove "
                f"if these offsets are read again: {name_some(below)}. {ANOTHER_GROUP}"
            )


@dataclass(frozen=True, slots=True)
class Limits:
    """What decides whether a window may leave.

    Attributes:
        idle_since: nothing may have happened to it since then.
        keep_from: the number of the first window that the ledger needs in any case, or None if it needs none.
        topic_ids: the id of each topic in the group's position.
        are_deleted: whether a person vouches that topics which Kafka does not have under their last known id are deleted.
    """

    idle_since: datetime
    keep_from: int | None
    topic_ids: Mapping[str, str]
    are_deleted: bool = False


def why_kept(old: WindowRecord, limits: Limits, log: LogSnapshot) -> str | None:
    """Return why a window has to stay, as the end of a sentence, or None if it may leave.

    Args:
        old: the window.
        limits: see `Limits`.
        log: what Kafka holds of its topics.
    """
    window = old.window
    if window.state.is_open:
        return f"it is {window.state} (docs/howto/prune.md#it-stops-too-early)"
    if old.rerun is not None:
        return "it needs another run, or runs again: kafka-offsets status"
    if limits.keep_from is not None and window.seq >= limits.keep_from:
        return "the watermark or the last commit rests on it"
    if old.last_used > limits.idle_since:
        return f"it was used at {old.last_used.isoformat(timespec='seconds')}"
    return _why_held(window, limits, log)


def _why_held(window: Window, limits: Limits, log: LogSnapshot) -> str | None:
    held = []
    for tp, owned in window.ranges.without_empty().items():
        noted, now = window.topic_ids.get(tp.topic), log.topic_ids.get(tp.topic)
        is_unknown = noted in (None, UNKNOWN_ID)
        if is_unknown and now is not None:
            return f"the id of topic {tp.topic} is unknown, so what Kafka still holds of it is, too"
        if may_be_same(noted, now):
            bounds = log.bounds.get(tp)
            if bounds is None or owned.end > bounds.beginning:
                beginning = "unknown" if bounds is None else bounds.beginning
                held.append(f"{tp} offsets {owned} (beginning offset {beginning})")
        elif not (limits.are_deleted or (now is not None and now == limits.topic_ids.get(tp.topic))):
            with_id = "" if is_unknown else f" with the id {noted}"
            return (
                f"Kafka has no topic {tp.topic}{with_id}: make sure that this is the right Kafka, and if the topic was deleted, "
                "add --deleted-topics"
            )
    return f"Kafka may still hold some of its offsets: {name_some(held, ', ')}" if held else None


def without(windows: Sequence[Window], before: Pruned) -> Pruned:
    """Return what is kept after these windows have left, the oldest first."""
    owners = [window for window in windows if window.state.owns and window.span]
    times = [window.planned_until for window in owners]
    ends = [
        ({tp: owned.end for tp, owned in window.ranges.without_empty().items()}, window.topic_ids) for window in owners
    ]
    until = max(times if before.planned_until is None else [*times, before.planned_until], default=None)
    proofs = [(window.seq, window.planned_until) for window in windows if _proves(window)]
    proof = max([before.proof, *proofs] if before.proof else proofs, key=lambda proof: proof[1], default=None)
    return replace(
        before, first=windows[-1].seq + 1, planned_until=until, proof=proof, floors=_raised(before.floors, ends)
    )


def _proves(window: Window) -> bool:
    return window.state is State.COMMITTED and window.lane is Lane.LIVE and not window.is_capped


def _raised(floors: Floors, more: Iterable[tuple[Offsets, Mapping[str, str]]]) -> Floors:
    raised = {topic_id: dict(of_topic) for topic_id, of_topic in floors.items()}
    for offsets, topic_ids in more:
        for tp, offset in offsets.items():
            if (topic_id := topic_ids.get(tp.topic)) not in (None, UNKNOWN_ID) and offset:
                of_topic = raised.setdefault(topic_id, {})
                of_topic[tp.partition] = max(offset, of_topic.get(tp.partition, 0))
    return raised


def absent(group: str, seqs: Iterable[int], first: int) -> UnknownWindowError:
    """Return the error for windows that the ledger does not have: they were pruned, or never existed.

    Args:
        group: their group.
        seqs: their numbers.
        first: the number of the first window that the ledger has.
    """
    seqs = sorted(seqs)
    gone = [seq for seq in seqs if 0 < seq < first]
    names = name_some([name_window(group, seq) for seq in gone or seqs], ", ")
    if not gone:
        return no_window(names, group)
    windows = f"Window {names} was" if len(gone) == 1 else f"Windows {names} were"
    return PrunedWindowError(
        f"{windows} pruned from the ledger: Kafka no longer held these offsets. The ledger has the windows from "
        f"{name_window(group, first)} on"
    )
