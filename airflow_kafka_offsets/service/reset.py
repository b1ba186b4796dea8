"""What a reset and an import ask ledger and Kafka: both move a watermark by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_kafka_offsets.core.errors import MissingPartitionError, name_some
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.leader_epochs import doubtful, unanswered
from airflow_kafka_offsets.core.log import LogSnapshot
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.kept import kept_parts
from airflow_kafka_offsets.core.plan.matching import way_out_of_missing
from airflow_kafka_offsets.core.plan.ownership import Position
from airflow_kafka_offsets.core.plan.pruning import check_reset
from airflow_kafka_offsets.core.plan.reset import Reset, back_in, end_of, founded_at, left_in, plan_reset, recreated_in
from airflow_kafka_offsets.core.window import OWNING, Lane, State, Window
from airflow_kafka_offsets.ports import LogOffsets
from airflow_kafka_offsets.service.replay import pages, stretches_of

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger


def work_out(
    ledger: Ledger,
    kafka: LogOffsets,
    group: KafkaGroup,
    before: Position,
    target: Mapping[TopicPartition, int],
    log: LogSnapshot,
) -> Reset:
    """Work out a reset against the windows of the ledger. Writes nothing; see `core.plan.reset.plan_reset`.

    Args:
        ledger: the ledger.
        kafka: the group's Kafka.
        group: the group.
        before: where the next live window would have started.
        target: the new watermarks.
        log: what Kafka holds of the topics of `target`. Kafka is asked for the other topics of the group's windows.
    """
    # A window that loses its offsets in a topic that is back loses those in the others that are back with it.
    whole = _with_others(kafka, group, before, log)
    at = where_it_was(ledger, group.name, before, whole.topic_ids)
    asked = doubtful(at.leader_epochs, at.topic_ids, log)
    epoch_ends = kafka.epoch_ends(asked)
    acts = [act.details for act in ledger.acts(group.name)]
    committed, backfill = committed_windows(ledger, group.name), _backfill_windows(ledger, group.name)
    found = plan_reset(
        group.name,
        at,
        target,
        whole,
        committed,
        backfill,
        epoch_ends=epoch_ends,
        reads=group.reads,
        noted=before,
        kept_so_far=kept_parts(acts),
        unchecked=unanswered(asked, epoch_ends),
        founded=founded_at(acts),
    )
    # After the search for windows, as some may have left meanwhile.
    check_reset(group.name, target, ledger.pruned(group.name), log.topic_ids)
    return found


def where_it_was(ledger: Ledger, group: str, position: Position, topic_ids: Mapping[str, str]) -> Position:
    """Return a position that goes on with topics that are back, as where a connection leads back to the first of two clusters.

    Kafka has such a topic under an id that the group has read before. So the windows of that time own their offsets, as before, and the
    topic stands where they end.

    Args:
        ledger: the ledger.
        group: the group's name.
        position: where the next live window would start.
        topic_ids: the ids that Kafka has now.
    """
    at = position
    for act in reversed(ledger.acts(group) if recreated_in(at, topic_ids) else ()):
        at = back_in(at, left_in(act.details, _away(at, topic_ids)), topic_ids)
    return _by_windows(ledger, group, at, topic_ids)


def _away(position: Position, topic_ids: Mapping[str, str]) -> dict[str, str]:
    return {topic: topic_ids[topic] for topic in recreated_in(position, topic_ids)}


def _by_windows(ledger: Ledger, group: str, position: Position, topic_ids: Mapping[str, str]) -> Position:
    """Return the same for topics that the group has left in an earlier version, whose acts do not say where it stood: behind all owners."""
    away = _away(position, topic_ids)
    if not away:
        return position
    at, newest = position, next(committed_windows(ledger, group), None)
    for first, end in stretches_of(ledger, group, newest.seq + 1) if newest else ():
        still_away = _away(at, topic_ids)
        if not still_away:
            break
        # An empty one may lie above what a reset back took from others, and owns nothing.
        live = pages(ledger, group, states=[State.COMMITTED], lane=Lane.LIVE, since=first, before=end)
        if owner := next((held.window for held in live if held.window.span), None):
            at = back_in(at, end_of(owner), still_away)
    # Perhaps all live windows of that time have lost their offsets, and only those of replays still own theirs.
    for window in _backfill_windows(ledger, group):
        at = back_in(at, end_of(window), away)
    # After the search for windows, as some may have left meanwhile. Below a floor, there were owners, too.
    floors = ledger.pruned(group).floors_of(away)
    return back_in(at, Position(floors, {tp.topic: away[tp.topic] for tp in floors}), away)


def _with_others(kafka: LogOffsets, group: KafkaGroup, before: Position, log: LogSnapshot) -> LogSnapshot:
    """Add the topics that stay where they are: a window that loses its offsets loses those in these topics, too."""
    others = [topic for topic in read_before(group, before) if topic not in log.topic_ids]
    if not others:
        return log
    rest = kafka.snapshot(others, group.isolation_level)
    return LogSnapshot({**rest.topic_ids, **log.topic_ids}, {**rest.bounds, **log.bounds})


def read_before(group: KafkaGroup, position: Position) -> list[str]:
    """Return the topics that a group reads and has a watermark for."""
    reads = group.reads
    return sorted(topic for topic in position.topic_ids if topic in reads)


def _backfill_windows(ledger: Ledger, group: str) -> Iterator[Window]:
    return (held.window for held in pages(ledger, group, states=tuple(OWNING), lane=Lane.BACKFILL))


def committed_windows(ledger: Ledger, group: str) -> Iterator[Window]:
    """Return the committed live windows, newest first."""
    return (held.window for held in pages(ledger, group, states=[State.COMMITTED], lane=Lane.LIVE))


def snapshot_of_all(
    kafka: LogOffsets, group: KafkaGroup, topics: Sequence[str], position: Position | None
) -> LogSnapshot:
    """Return what Kafka holds of topics. All of them have to be there.

    Args:
        kafka: the group's Kafka.
        group: the group.
        topics: the topics.
        position: where the next live window would have started; None: the group is new.

    Raises:
        MissingPartitionError: one is not there.
    """
    snapshot = kafka.snapshot(topics, group.isolation_level)
    if absent := [topic for topic in topics if topic not in snapshot.topic_ids]:
        was_read = position is not None and any(topic in position.topic_ids for topic in absent)
        # Windows own offsets of it, and so --topic alone may not help.
        deleted = f". {way_out_of_missing(group)}, let a run plan, and repeat the command" if was_read else ""
        raise MissingPartitionError(
            f"Kafka has no topic {name_some(absent, ', ')}: choose others with --topic, or check that this is the right Kafka{deleted}"
        )
    return snapshot
