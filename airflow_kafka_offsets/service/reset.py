"""What a reset and an import ask ledger and Kafka: both move a watermark by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_kafka_offsets.core.errors import MissingPartitionError, name_some
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import first_ids, founded_at
from airflow_kafka_offsets.core.leader_epochs import doubtful, unanswered
from airflow_kafka_offsets.core.log import LogSnapshot, noted_ids
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.matching import way_out_of_missing
from airflow_kafka_offsets.core.plan.ownership import GroupState, Position
from airflow_kafka_offsets.core.plan.reset import Reset, check_never_left, plan_reset
from airflow_kafka_offsets.core.window import OWNING, Lane, State, Window
from airflow_kafka_offsets.ports import LogOffsets
from airflow_kafka_offsets.service.replay import pages

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger


def work_out(
    ledger: Ledger,
    kafka: LogOffsets,
    group: KafkaGroup,
    state: GroupState,
    target: Mapping[TopicPartition, int],
    log: LogSnapshot,
) -> Reset:
    """Work out a reset against the windows of the ledger. Writes nothing; see `core.plan.reset.plan_reset`.

    Args:
        ledger: the ledger.
        kafka: the group's Kafka.
        group: the group.
        state: the group, which has a position.
        target: the new watermarks.
        log: what Kafka holds of the topics of `target`. Kafka is asked for the other topics of the group's windows.
    """
    before = state.position
    assert before is not None
    whole = _with_others(kafka, group, before, log)
    moves = [act.details for act in ledger.moves(group.name)]
    check_never_left(group.name, before, log.topic_ids, moves)
    ids = first_ids(before.topic_ids, moves)
    asked = doubtful(before.leader_epochs, before.topic_ids, log)
    epoch_ends = kafka.epoch_ends(asked)
    reset = plan_reset(
        group.name,
        before,
        target,
        whole,
        committed_windows(ledger, group.name, ids),
        (held.window.identified(ids) for held in pages(ledger, group.name, states=tuple(OWNING), lane=Lane.BACKFILL)),
        epoch_ends=epoch_ends,
        unchecked=unanswered(asked, epoch_ends),
        reads=group.reads,
        founded=founded_at(moves),
    )
    # After the search for windows, as some may have left meanwhile.
    ledger.pruned(group.name).check_reset(target, noted_ids(before.topic_ids, log.topic_ids))
    return replace(reset, owner=state.owner)


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


def committed_windows(ledger: Ledger, group: str, ids: Mapping[str, str]) -> Iterator[Window]:
    """Return the committed live windows, newest first, with these ids for the topics whose ids were unknown."""
    return (held.window.identified(ids) for held in pages(ledger, group, states=[State.COMMITTED], lane=Lane.LIVE))


def snapshot_of_all(
    kafka: LogOffsets, group: KafkaGroup, topics: Sequence[str], position: Position | None
) -> LogSnapshot:
    """Return what Kafka holds of topics. All of them have to be there.

    Args:
        kafka: the group's Kafka.
        group: the group.
        topics: the topics.
        position: where the next live window would have started, or None if the group is new.

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
