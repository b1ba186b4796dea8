"""Short ways to write the values that the tests of the core speak of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.log import Bounds, IsolationLevel, LogSnapshot
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.ownership import Position
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.window import Claim, Draft, State, Window, WindowRecord

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def tp(partition: int = 0, topic: str = "orders") -> TopicPartition:
    """Name a partition of the topic `orders`, unless told otherwise."""
    return TopicPartition(topic, partition)


def group(name: str = "lake", **options: Any) -> KafkaGroup:
    """Define a group that reads `orders`."""
    return KafkaGroup(name, **{"topics": ["orders"], **options})


def ids(partitions: Mapping[TopicPartition, Any]) -> dict[str, str]:
    """Give every topic the id that it has as long as no one recreates it."""
    return {p.topic: f"id-of-{p.topic}" for p in partitions}


def position(offsets: Mapping[TopicPartition, int], **topic_ids: str) -> Position:
    """Put a group at these offsets."""
    return Position(dict(offsets), ids(offsets) | topic_ids)


def log(bounds: Mapping[TopicPartition, tuple[int, int]], **topic_ids: str) -> LogSnapshot:
    """Let Kafka hold these partitions: beginning and end."""
    return LogSnapshot(ids(bounds) | topic_ids, {p: Bounds(*b) for p, b in bounds.items()})


def ranges(bounds: Mapping[TopicPartition, tuple[int, int]]) -> OffsetRanges:
    """Build ranges from pairs."""
    return OffsetRanges((p, OffsetRange(*b)) for p, b in bounds.items())


def window(
    bounds: Mapping[TopicPartition, tuple[int, int]],
    seq: int = 1,
    state: State = State.COMMITTED,
    **topic_ids: str,
) -> Window:
    """Make a live window of the group `lake`."""
    draft = Draft(ranges(bounds), ids(bounds) | topic_ids, NOON, IsolationLevel.READ_COMMITTED)
    return replace(draft.named("lake", seq), state=state)


def standing(state: State, seq: int = 1) -> WindowRecord:
    """Let another run have a live window of the group `lake`."""
    return WindowRecord.of(window({TopicPartition("orders", 0): (0, 5)}, seq, state), claim("other"))


def claim(run: str = "run-1", task: str = "load", **more: Any) -> Claim:
    """Let a task of a run ask."""
    return Claim("dag", run, task, **more)
