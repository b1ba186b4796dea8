"""Leader epochs show when offsets that were read belong to other records now.

A log may be cut back (an unclean leader election, a lost disk) and then grow past the watermark. Then its offsets look like
those of any other log. But each new leader of a partition writes under its own epoch, one higher than the last, and Kafka
reports where the records of an epoch, and of all epochs before it, end (KIP-101, KIP-320).

So a window notes the epoch of the leader that reported its end offsets: all that it reads was written under this epoch or an
earlier one. As long as that leader leads, it loses nothing. When another one leads, Kafka is asked where the records of the
noted epoch end. If that is before the window's end, the rest was cut off, and other records have its offsets now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from airflow_kafka_offsets.core.errors import LogTruncatedError, name_some
from airflow_kafka_offsets.core.log import LogSnapshot, may_be_same
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition
from airflow_kafka_offsets.core.plan.ownership import KEEP_OUTPUT, Position, reset_to
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.window import Window

LeaderEpochs = Mapping[TopicPartition, int]
"""The noted leader epoch of each topic-partition. One is missing if Kafka reported no epoch for it."""


class PartitionEpoch(NamedTuple):
    """A leader epoch of one topic-partition. Kafka can be asked where its records end."""

    partition: TopicPartition
    leader_epoch: int


EpochEnds = Mapping[PartitionEpoch, int]
"""Where the records of a leader epoch, and of all before it, end. An epoch is missing if its end is not known."""


def doubtful(noted: LeaderEpochs, topic_ids: Mapping[str, str], log: LogSnapshot) -> list[PartitionEpoch]:
    """Return the noted epochs of the partitions that have another leader now.

    Args:
        noted: the epochs.
        topic_ids: the ids of their topics. In a topic that was recreated, the epochs mean nothing.
        log: what Kafka holds.
    """
    return [
        PartitionEpoch(tp, epoch)
        for tp, epoch in noted.items()
        if _epoch_now(log, tp) not in (None, epoch)
        and may_be_same(topic_ids.get(tp.topic), log.topic_ids.get(tp.topic))
    ]


def replaced(ends: Offsets, noted: LeaderEpochs, epoch_ends: EpochEnds) -> OffsetRanges:
    """Return the offsets that belong to other records now than when they were looked up.

    Args:
        ends: the end offsets of that look.
        noted: the epochs of that look.
        epoch_ends: where the `doubtful` epochs end.
    """
    cuts = {
        epoch.partition: end for epoch, end in epoch_ends.items() if noted.get(epoch.partition) == epoch.leader_epoch
    }
    return OffsetRanges((tp, OffsetRange(cut, ends[tp])) for tp, cut in cuts.items() if cut < ends.get(tp, 0))


def check_position(group: str, position: Position, log: LogSnapshot, epoch_ends: EpochEnds) -> None:
    """Refuse to plan after records that were replaced.

    Raises:
        LogTruncatedError: with what a person can do.
    """
    gone = replaced(position.offsets, position.leader_epochs, epoch_ends)
    if not gone:
        return
    why = {
        tp: f"{tp}: offsets {offsets} are other records now than those that were read (leader epoch {position.leader_epochs[tp]} ended "
        f"at {offsets.start}, epoch {_epoch_now(log, tp)} goes on to {log.bounds[tp].end})"
        for tp, offsets in gone.items()
    }
    # Retention may have passed the watermark, and no reset can go back to offsets that are gone.
    on = {tp: max(offsets.end, log.bounds[tp].beginning) for tp, offsets in gone.items()}
    back = {tp: max(offsets.start, log.bounds[tp].beginning) for tp, offsets in gone.items()}
    to_read = f"\nTo read these, too, first put that output aside:{reset_to(group, back)}" if back != on else ""
    raise LogTruncatedError.naming(
        why, f"{KEEP_OUTPUT}. To continue without the new records:{reset_to(group, on)}{to_read}"
    )


def to_note(
    position: Position | None, log: LogSnapshot, unanswered: Collection[PartitionEpoch] = ()
) -> dict[TopicPartition, int]:
    """Return the epochs that the next window notes.

    An epoch stays noted if Kafka did not report its end, or if its partition was not looked up. Then the next plan asks
    again.
    """
    noted = position.leader_epochs if position else {}
    current = {tp: bounds.leader_epoch for tp, bounds in log.bounds.items() if bounds.leader_epoch is not None}
    return {**noted, **current, **dict(unanswered)}


def after_reset(
    before: Position,
    target: Collection[TopicPartition],
    log: LogSnapshot,
    unanswered: Collection[PartitionEpoch] = (),
) -> dict[TopicPartition, int]:
    """Return the epochs of a position after some of its watermarks were moved to where a person looked.

    An epoch whose end Kafka did not report stays noted, as in `to_note`: see `still_unchecked`.
    """
    looked_up = to_note(None, log)
    kept = {tp: epoch for tp, epoch in before.leader_epochs.items() if tp not in target}
    return {**kept, **{tp: looked_up[tp] for tp in target if tp in looked_up}, **dict(unanswered)}


def still_unchecked(
    unanswered: Collection[PartitionEpoch], target: Offsets, log: LogSnapshot
) -> tuple[PartitionEpoch, ...]:
    """Return the epochs that may still hide replaced records after a move. From the log's beginning on, all is read again."""
    return tuple(
        epoch
        for epoch in unanswered
        if epoch.partition in target and target[epoch.partition] > log.bounds[epoch.partition].beginning
    )


def asked_again(position: Position, unanswered: Collection[PartitionEpoch]) -> Position:
    """Return a position that has these epochs noted, or smaller ones: the next plan asks where their records end."""
    noted = dict(position.leader_epochs)
    # The records up to a smaller epoch end no later: to ask for its end misses nothing.
    noted |= {tp: min(epoch, noted.get(tp, epoch)) for tp, epoch in unanswered}
    return replace(position, leader_epochs=noted)


def left_behind(before: Position, target: Offsets, epoch_ends: EpochEnds) -> OffsetRanges:
    """Return the offsets below moved watermarks that belong to other records now: no window will read these records."""
    gone = replaced(before.offsets, before.leader_epochs, epoch_ends)
    below = {tp: OffsetRange(r.start, max(r.start, min(r.end, target[tp]))) for tp, r in gone.items() if tp in target}
    return OffsetRanges(below).without_empty()


def one_of_each(some: Iterable[PartitionEpoch]) -> tuple[PartitionEpoch, ...]:
    """Return one epoch of each partition: the smallest, as in `asked_again`."""
    newest_first = sorted(some, reverse=True)
    return tuple(sorted({epoch.partition: epoch for epoch in newest_first}.values()))


def unanswered(asked: Collection[PartitionEpoch], epoch_ends: EpochEnds) -> list[PartitionEpoch]:
    """Return the epochs whose end Kafka did not report."""
    return [epoch for epoch in asked if epoch not in epoch_ends]


def unchecked_details(silent: Collection[PartitionEpoch]) -> dict[str, list[str]]:
    """Return the facts for the record of an act about partitions that were not checked."""
    return {"unchecked": [str(epoch.partition) for epoch in silent]} if silent else {}


def warning(silent: Collection[PartitionEpoch]) -> str:
    """Return the warning about leader epochs whose ends are not known."""
    names = name_some([epoch.partition for epoch in silent], ", ")
    return f"Kafka did not report the ends of leader epochs, so whether records were replaced is checked by the next plan: {names}"


def of_windows(windows: Collection[Window], log: LogSnapshot) -> list[PartitionEpoch]:
    """Return the epochs to ask about before windows are run again."""
    epochs: dict[PartitionEpoch, None] = {}
    for window in windows:
        wanted = window.ranges.without_empty()
        noted = {tp: epoch for tp, epoch in window.leader_epochs.items() if tp in wanted}
        epochs |= dict.fromkeys(doubtful(noted, window.topic_ids, log))
    return list(epochs)


def replaced_in(window: Window, epoch_ends: EpochEnds) -> dict[TopicPartition, str]:
    """Return a sentence for each partition of a window whose offsets belong to other records now."""
    wanted = window.ranges.without_empty()
    gone = replaced(wanted.ends, window.leader_epochs, epoch_ends)
    parts = {tp: OffsetRange(max(offsets.start, wanted[tp].start), offsets.end) for tp, offsets in gone.items()}
    return {
        tp: f"{tp}: offsets {part} are other records now than when the window was cut" for tp, part in parts.items()
    }


def _epoch_now(log: LogSnapshot, tp: TopicPartition) -> int | None:
    bounds = log.bounds.get(tp)
    return bounds.leader_epoch if bounds else None
