"""What it means to take offsets from one place over to another: nothing invented, nothing lost without a word."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from airflow_kafka_offsets.core.errors import BadInputError, DataLossError, TopicRecreatedError, name_some
from airflow_kafka_offsets.core.log import LogSnapshot
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition, topics_of
from airflow_kafka_offsets.core.place.place import Found, Meaning, next_offsets
from airflow_kafka_offsets.core.plan.ownership import Position
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.window import Held


@dataclass(frozen=True, slots=True)
class Taken:
    """Offsets that a group takes over from a place.

    Attributes:
        found: the numbers as the place has them.
        meaning: what they say.
        target: where the group goes on: the next offset of each partition.
        lost: what it would have read next and retention has removed; the target lies behind it.
        unnamed: partitions that the place does not name; a group that is founded reads them from their beginning offset.
    """

    found: Offsets
    meaning: Meaning
    target: Offsets
    lost: OffsetRanges
    unnamed: tuple[TopicPartition, ...]

    def position(self, log: LogSnapshot) -> Position:
        """Return where a group that is founded begins."""
        beginnings = {tp: log.bounds[tp].beginning for tp in self.unnamed}
        return Position(dict(sorted({**beginnings, **self.target}.items())), dict(log.topic_ids))


def take(place: str, found: Found, meaning: Meaning, log: LogSnapshot, *, skip_lost: bool = False) -> Taken:
    """Hold the offsets of a place against what Kafka has.

    Args:
        place: where they are from, for messages.
        found: what it holds, of topics that are wanted.
        meaning: what its numbers say.
        log: what Kafka holds of these topics.
        skip_lost: go on at the beginning offset where retention has removed what would come next.

    Raises:
        BadInputError: a partition that Kafka does not have, or an offset above its end.
        TopicRecreatedError: the offsets are those of an earlier topic of that name.
        DataLossError: retention was faster, and `skip_lost` does not say that this is known.
    """
    target = next_offsets(found.offsets, meaning)
    if unknown := [str(tp) for tp in target if tp not in log.bounds]:
        raise BadInputError(
            f"{place} names {name_some(unknown, ', ')}, which Kafka does not have. Take a part of it with --topic, or look "
            "whether this is the right Kafka"
        )
    _refuse_recreated(place, found, target, log)
    _refuse_beyond(place, target, meaning, log)
    lost = OffsetRanges(
        (tp, OffsetRange(offset, log.bounds[tp].beginning))
        for tp, offset in target.items()
        if offset < log.bounds[tp].beginning
    )
    if lost and not skip_lost:
        raise _loss(place, lost)
    inside = {tp: max(offset, log.bounds[tp].beginning) for tp, offset in target.items()}
    unnamed = tuple(sorted(log.bounds.keys() - target.keys()))
    return Taken(dict(sorted(found.offsets.items())), meaning, inside, lost, unnamed)


def _refuse_recreated(place: str, found: Found, target: Offsets, log: LogSnapshot) -> None:
    topics = topics_of(target)
    if other := [topic for topic in topics if found.topic_ids.get(topic, log.topic_ids[topic]) != log.topic_ids[topic]]:
        raise TopicRecreatedError(
            f"{place} holds offsets of an earlier topic of the name {name_some(other, ', ')}: they mean nothing in the one of "
            "today. Take the other topics with --topic"
        )


def _refuse_beyond(place: str, target: Offsets, meaning: Meaning, log: LogSnapshot) -> None:
    beyond = [
        f"{tp}: {offset} lies above the end offset {log.bounds[tp].end}"
        for tp, offset in target.items()
        if offset > log.bounds[tp].end
    ]
    if beyond:
        off_by_one = " Perhaps its numbers are next offsets after all (--meaning next)." if meaning.step else ""
        raise BadInputError(
            f"{place} is ahead of Kafka: {name_some(beyond)}.{off_by_one} These may be offsets of another Kafka or of an "
            "earlier topic of that name, or of records in a transaction that is still open"
        )


def _loss(place: str, lost: OffsetRanges) -> DataLossError:
    sentences = {
        tp: f"{tp}: offsets {gone} expired before they were read (next offset {gone.start}, beginning offset {gone.end})"
        for tp, gone in lost.items()
    }
    return DataLossError(
        f"Behind the offsets of {place}, retention has removed records: {name_some(list(sentences.values()))}. To begin "
        "behind them, and record what was lost: add --skip-lost",
        sentences,
    )


def facts(taken: Taken) -> dict[str, object]:
    """Return what the ledger's record of the act says of them."""
    return {
        "found": {str(tp): number for tp, number in taken.found.items()},
        "lost": {str(tp): [gone.start, gone.end] for tp, gone in taken.lost.items()},
    }


def check_something(place: str, name: str, found: Found) -> None:
    """Refuse to go on from nothing.

    Raises:
        BadInputError: with the ways to find what was meant.
    """
    if not found.offsets:
        raise BadInputError(
            f"{place} holds no offsets under the name {name} for these topics. If it keeps them under another name: --as NAME"
        )


Moves = Mapping[TopicPartition, tuple[int | None, int]]
"""Old and new offset of each partition; old None: there was none."""


def moves(old: Offsets, new: Offsets) -> dict[TopicPartition, tuple[int | None, int]]:
    """Return what would change."""
    return {tp: (old.get(tp), offset) for tp, offset in sorted(new.items()) if old.get(tp) != offset}


def unlike(wanted: Offsets, found: Offsets) -> dict[TopicPartition, tuple[int, int | None]]:
    """Return what a store holds otherwise than was written: wanted, and found (None: nothing)."""
    return {tp: (new, found.get(tp)) for tp, new in sorted(wanted.items()) if found.get(tp) != new}


def left_open(helds: Sequence[Held], topics: Collection[str]) -> tuple[Held, ...]:
    """Return the windows with records of these topics: whoever goes on from the watermark before them reads these again."""
    return tuple(held for held in helds if any(tp.topic in topics for tp in held.window.ranges.without_empty()))


def left_open_note(helds: Sequence[Held]) -> tuple[str, ...]:
    """Return what to tell of windows that wait for their commit in the group that the offsets are taken from."""
    if not helds:
        return ()
    names = name_some([f"{h.window.id} ({h.window.state}, held by {h.holder})" for h in helds], ", ")
    return (
        f"not committed there: {names}. Their offsets are read again under new ids, so what was written under these has to go, "
        "and their runs must not go on: let them be committed before the import, or abandon them",
    )
