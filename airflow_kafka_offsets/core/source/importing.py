"""Takes offsets over from a source into a group: none is invented, and none is lost silently."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from airflow_kafka_offsets.core.errors import BadInputError, DataLossError, TopicRecreatedError, name_some
from airflow_kafka_offsets.core.leader_epochs import to_note
from airflow_kafka_offsets.core.log import LogSnapshot, may_be_same, noted_ids
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition, topics_of
from airflow_kafka_offsets.core.plan.ownership import Position
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges, named_ranges
from airflow_kafka_offsets.core.source.offsets import Meaning, SourceOffsets, next_offsets
from airflow_kafka_offsets.core.window import WindowRecord

_CHOOSE = "Choose topics with --topic"


@dataclass(frozen=True, slots=True)
class ImportedOffsets:
    """Offsets that a group takes over from a source.

    Attributes:
        numbers: as the source has them.
        meaning: whether these are next offsets or last offsets read.
        target: where the group continues: the next offset of each partition.
        lost: the offsets that the group would read next, but retention has removed. The target is after them.
        unnamed: partitions that the source does not name. A new group reads them from their beginning offset.
        topic_ids: the ids of the topics, as far as the source or Kafka knows them.
    """

    numbers: Offsets
    meaning: Meaning
    target: Offsets
    lost: OffsetRanges
    unnamed: tuple[TopicPartition, ...]
    topic_ids: Mapping[str, str]

    def position(self, log: LogSnapshot) -> Position:
        """Return where a new group begins."""
        beginnings = {tp: log.bounds[tp].beginning for tp in self.unnamed}
        return Position(dict(sorted({**beginnings, **self.target}.items())), self.topic_ids, to_note(None, log))


def to_import(
    source: str, stored: SourceOffsets, meaning: Meaning, log: LogSnapshot, *, skip_lost: bool = False
) -> ImportedOffsets:
    """Compare the offsets of a source with what Kafka has.

    Args:
        source: where the offsets are from, for messages.
        stored: what the source holds of the chosen topics.
        meaning: whether its numbers are next offsets or last offsets read.
        log: what Kafka holds of these topics.
        skip_lost: continue at the beginning offset where retention has removed the next records.

    Raises:
        BadInputError: Kafka does not have a partition, or an offset is above its end offset.
        TopicRecreatedError: the offsets are those of an earlier topic of that name.
        DataLossError: retention has removed the next records, and `skip_lost` is not set.
    """
    target = next_offsets(stored.offsets, meaning)
    if absent := [str(tp) for tp in target if tp not in log.bounds]:
        raise BadInputError(f"{source} names {name_some(absent, ', ')}, which this Kafka does not have. {_CHOOSE}")
    _refuse_recreated(source, stored, target, log)
    _refuse_beyond(source, target, meaning, log)
    lost = OffsetRanges(
        (tp, OffsetRange(offset, log.bounds[tp].beginning))
        for tp, offset in target.items()
        if offset < log.bounds[tp].beginning
    )
    if lost and not skip_lost:
        raise _loss(source, lost)
    inside = {tp: max(offset, log.bounds[tp].beginning) for tp, offset in target.items()}
    unnamed = tuple(sorted(log.bounds.keys() - target.keys()))
    known = {topic: id_ for topic, id_ in stored.topic_ids.items() if topic in log.topic_ids}
    ids = noted_ids(known, log.topic_ids)
    return ImportedOffsets(dict(sorted(stored.offsets.items())), meaning, inside, lost, unnamed, ids)


def _refuse_recreated(source: str, stored: SourceOffsets, target: Offsets, log: LogSnapshot) -> None:
    topics = topics_of(target)
    if other := [
        topic
        for topic in topics
        if not may_be_same(stored.topic_ids.get(topic, log.topic_ids[topic]), log.topic_ids[topic])
    ]:
        raise TopicRecreatedError(f"{source} holds offsets of an earlier topic {name_some(other, ', ')}. {_CHOOSE}")


def _refuse_beyond(source: str, target: Offsets, meaning: Meaning, log: LogSnapshot) -> None:
    beyond = [
        f"{tp}: {offset} is above the end offset {log.bounds[tp].end}"
        for tp, offset in target.items()
        if offset > log.bounds[tp].end
    ]
    if beyond:
        off_by_one = " (next offsets already? Then --meaning next)" if meaning.step else ""
        raise BadInputError(
            f"{source} is ahead of Kafka: {name_some(beyond)}{off_by_one}. See docs/reference/errors.md#badinputerror"
        )


def _loss(source: str, lost: OffsetRanges) -> DataLossError:
    sentences = {tp: f"{tp}: offsets {gone} expired before they were read" for tp, gone in lost.items()}
    return DataLossError(
        f"{source}: {name_some(list(sentences.values()))}. To record them as lost: add --skip-lost", sentences
    )


def facts(imported: ImportedOffsets) -> dict[str, object]:
    """Return what the ledger records about the imported offsets."""
    return {
        "found": {str(tp): number for tp, number in imported.numbers.items()},
        "lost": named_ranges(imported.lost),
    }


def check_something(source: str, name: str, stored: SourceOffsets) -> None:
    """Refuse a source without offsets.

    Raises:
        BadInputError: the source holds no offsets under that name.
    """
    if not stored.offsets:
        raise BadInputError(f"{source} holds no offsets of these topics under the name {name} (--as NAME)")


Moves = Mapping[TopicPartition, tuple[int | None, int]]
"""Old (None if there was none) and new offset of each partition."""


def moves(old: Offsets, new: Offsets) -> Moves:
    """Return the partitions whose offset changes."""
    return {tp: (old.get(tp), offset) for tp, offset in sorted(new.items()) if old.get(tp) != offset}


def left_open(windows: Sequence[WindowRecord], topics: Collection[str]) -> tuple[WindowRecord, ...]:
    """Return the windows with records of these topics. A group that continues before them reads these again."""
    return tuple(w for w in windows if any(tp.topic in topics for tp in w.window.ranges.without_empty()))


def left_open_notes(windows: Sequence[WindowRecord]) -> list[str]:
    """Return the warnings about later windows of the group that the offsets come from."""
    waiting = [f"{w.id} ({w.state}, held by {w.holder})" for w in windows if w.state.is_open]
    done = _committed(windows)
    notes = []
    if waiting:
        notes.append(
            f"not committed there: {name_some(waiting, ', ')}. The new group reads them again: commit or abandon them first"
        )
    if done:
        notes.append(
            f"committed there behind an open window: {name_some(done, ', ')}. The new group reads them again: remove their "
            "output, or import later"
        )
    return notes


def committed_behind_note(windows: Sequence[WindowRecord]) -> list[str]:
    """Return the warning about windows that a reader who continues from the group's watermark reads again."""
    done = _committed(windows)
    if not done:
        return []
    return [f"committed behind an open window: {name_some(done, ', ')}. A reader that continues here reads them again"]


def _committed(windows: Sequence[WindowRecord]) -> list[str]:
    return [record.id for record in windows if not record.state.is_open]
