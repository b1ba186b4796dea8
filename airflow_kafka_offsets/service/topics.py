"""Which topics a group reads at this moment. Only a group with a pattern has to ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import first_ids
from airflow_kafka_offsets.core.log import UNKNOWN_ID
from airflow_kafka_offsets.core.plan.matching import topics_to_ask_for
from airflow_kafka_offsets.core.plan.ownership import NOWHERE, Position
from airflow_kafka_offsets.ports import LogOffsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_kafka_offsets.core.window import Window
    from airflow_kafka_offsets.ledger.ledger import Ledger


def topics_now(kafka: LogOffsets, group: KafkaGroup, position: Position | None) -> tuple[str, ...]:
    """Return the topics of a group, of which Kafka is asked.

    Args:
        kafka: its Kafka.
        group: the group.
        position: where the next live window starts, or None if there was none.
    """
    return topics_to_ask_for(group, kafka.topics() if group.topics_pattern is not None else (), position)


def topics_to_take(kafka: LogOffsets, group: KafkaGroup, position: Position | None) -> tuple[str, ...]:
    """Return the topics whose offsets are taken over: those of `topics_now`, and all of which the group has a watermark.

    A topic that has left the pattern keeps its watermark, so it is taken over, too.
    """
    known = position.topic_ids if position else ()
    return tuple(sorted({*topics_now(kafka, group, position), *group.topics, *known}))


def as_last_planned(ledger: Ledger, group: KafkaGroup, *, has_planned: bool) -> KafkaGroup:
    """Return a group with the topics that it read when it last planned. A list of topics stays as it is.

    Args:
        ledger: the ledger.
        group: the group, as a DAG defines it.
        has_planned: whether it has; otherwise, the ledger does not have it.
    """
    if group.topics_pattern is None or not has_planned:
        return group
    return group.having_matched(ledger.group(group.name).topics)


def learned_ids(ledger: Ledger, windows: Iterable[Window]) -> Mapping[str, str]:
    """Return what the unknown topic ids of windows of one group stand for: the first id that the group knew of each topic.

    A topic is missing, or has an unknown id, if Kafka has not given one since. Without a window that needs it, the ledger is not asked.
    """
    blind = next((window for window in windows if UNKNOWN_ID in window.topic_ids.values()), None)
    if blind is None:
        return {}
    position = ledger.load(blind.group).position or NOWHERE
    return first_ids(position.topic_ids, (act.details for act in ledger.moves(blind.group)))
