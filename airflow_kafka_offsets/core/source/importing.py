"""Takes over offsets from one source to another: none is invented, and none is lost silently."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from airflow_kafka_offsets.core.errors import BadInputError, DataLossError, TopicRecreatedError, name_some
from airflow_kafka_offsets.core.leader_epochs import to_note
from airflow_kafka_offsets.core.log import LogSnapshot
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition, topics_of
from airflow_kafka_offsets.core.plan.ownership import Position
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges, named_ranges
from airflow_kafka_offsets.core.source.offsets import Meaning, SourceOffsets, next_offsets
from airflow_kafka_offsets.core.window import WindowRecord


@dataclass(frozen=True, slots=True)
class ImportedOffsets:
    """Offsets that a group takes over from a source.

    Attributes:
        found: the numbers as the source has them.
        meaning: whether these are next offsets or last offsets read.
        target: where the group continues: the next offset of each partition.
        lost: the offsets that the group would read next, but retention has removed. The target is after them.
        unnamed: partitions that the source does not name. A new group reads them from their beginning offset.
    """

    found: Offsets
    meaning: Meaning
    target: Offsets
    lost: OffsetRanges
    unnamed: tuple[TopicPartition, ...]

    def position(self, log: LogSnapshot) -> Position:
        """Return where a new group begins."""
        beginnings = {tp: log.bounds[tp].beginning for tp in self.unnamed}
        return Position(dict(sorted({**beginnings, **self.target}.items())), dict(log.topic_ids), to_note(None, log))


def to_import(
    source: str, found: SourceOffsets, meaning: Meaning, log: LogSnapshot, *, skip_lost: bool = False
) -> ImportedOffsets:
    """Compare the offsets of a source with what Kafka has.

    Args:
        source: where the offsets are from, for messages.
        found: what the source holds of the chosen topics.
        meaning: whether its numbers are next offsets or last offsets read.
        log: what Kafka holds of these topics.
        skip_lost: continue at the beginning offset where retention has removed the next records.

    Raises:
        BadInputError: Kafka does not have a partition, or an offset is above its end offset.
        TopicRecreatedError: the offsets are those of an earlier topic of that name.
        DataLossError: retention has removed the next records, and `skip_lost` is not set.
    """
    target = next_offsets(found.offsets, meaning)
    if unknown := [str(tp) for tp in target if tp not in log.bounds]:
        raise BadInputError(
            f"{source} names {name_some(unknown, ', ')}, which Kafka does not have. Check that this is "
            "the right Kafka, or choose topics with --topic"
        )
    _refuse_recreated(source, found, target, log)
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
    return ImportedOffsets(dict(sorted(found.offsets.items())), meaning, inside, lost, unnamed)


def _refuse_recreated(source: str, found: SourceOffsets, target: Offsets, log: LogSnapshot) -> None:
    topics = topics_of(target)
    if other := [topic for topic in topics if found.topic_ids.get(topic, log.topic_ids[topic]) != log.topic_ids[topic]]:
        raise TopicRecreatedError(
            f"{source} holds offsets of an earlier topic of the name {name_some(other, ', ')}. Choose the "
            "other topics with --topic"
        )


def _refuse_beyond(source: str, target: Offsets, meaning: Meaning, log: LogSnapshot) -> None:
    beyond = [
        f"{tp}: {offset} is above the end offset {log.bounds[tp].end}"
        for tp, offset in target.items()
        if offset > log.bounds[tp].end
    ]
    if beyond:
        off_by_one = ", or next offsets already (then --meaning next)" if meaning.step else ""
        raise BadInputError(
            f"{source} is ahead of Kafka: {name_some(beyond)}. Is it another Kafka, an earlier topic or "
            f"an open transaction{off_by_one}"
        )


def _loss(source: str, lost: OffsetRanges) -> DataLossError:
    sentences = {
        tp: f"{tp}: offsets {gone} expired before they were read (next offset {gone.start}, beginning offset {gone.end})"
        for tp, gone in lost.items()
    }
    return DataLossError(
        f"Retention has removed records after the offsets of {source}: {name_some(list(sentences.values()))}. "
        "To record them as lost: add --skip-lost",
        sentences,
    )


def facts(imported: ImportedOffsets) -> dict[str, object]:
    """Return what the ledger records about the imported offsets."""
    return {
        "found": {str(tp): number for tp, number in imported.found.items()},
        "lost": named_ranges(imported.lost),
    }


def check_something(source: str, name: str, found: SourceOffsets) -> None:
    """Refuse a source without offsets.

    Raises:
        BadInputError: the source holds no offsets under that name.
    """
    if not found.offsets:
        raise BadInputError(
            f"{source} holds no offsets of these topics under the name {name}. For another name: --as NAME"
        )


Moves = Mapping[TopicPartition, tuple[int | None, int]]
"""Old and new offset of each partition; old None: there was none."""


def moves(old: Offsets, new: Offsets) -> Moves:
    """Return the partitions whose offset changes."""
    return {tp: (old.get(tp), offset) for tp, offset in sorted(new.items()) if old.get(tp) != offset}


def left_open(windows: Sequence[WindowRecord], topics: Collection[str]) -> tuple[WindowRecord, ...]:
    """Return the windows with records of these topics. A group that continues from the watermark before them reads these again."""
    return tuple(held for held in windows if any(tp.topic in topics for tp in held.window.ranges.without_empty()))


def left_open_notes(windows: Sequence[WindowRecord]) -> list[str]:
    """Return the warnings about windows of the group that the offsets come from: open ones, and those that were committed behind them."""
    waiting = [f"{held.id} ({held.state}, held by {held.holder})" for held in windows if _is_open(held)]
    done = [held.id for held in windows if not _is_open(held)]
    notes = []
    if waiting:
        notes.append(
            f"not committed there: {name_some(waiting, ', ')}. The new group reads their offsets again: "
            "commit or abandon them first, or remove what their runs write"
        )
    if done:
        notes.append(
            f"committed there behind an open window: {name_some(done, ', ')}. The new group reads their "
            "offsets again: remove what they wrote, or import later"
        )
    return notes


def committed_behind_note(windows: Sequence[WindowRecord]) -> list[str]:
    """Return the warning about offsets that someone who goes on from the watermark of a group reads a second time."""
    done = [held.id for held in windows if not _is_open(held)]
    if not done:
        return []
    return [
        f"{name_some(done, ', ')} {'is' if len(done) == 1 else 'are'} committed behind an open window: "
        "a reader that continues from here reads their records again"
    ]


def _is_open(held: WindowRecord) -> bool:
    return held.state.is_open
