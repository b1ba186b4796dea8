"""What Kafka holds, from a dictionary: for tests of the command line that need no broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from airflow_kafka_offsets.core.errors import KafkaUnavailableError
from airflow_kafka_offsets.core.log import Bounds, IsolationLevel, LogSnapshot
from airflow_kafka_offsets.core.offsets import TopicPartition


class MemoryLog:
    """`ports.LogOffsets` without Kafka. Its records have no timestamps: any time lies behind them."""

    def __init__(self, **topics: list[tuple[int, int]]) -> None:
        """Take for each topic the beginning and end offset of its partitions."""
        self.topic_ids = {topic: f"id-of-{topic}" for topic in topics}
        self.all = {
            TopicPartition(topic, i): Bounds(*bounds)
            for topic, partitions in topics.items()
            for i, bounds in enumerate(partitions)
        }
        self.is_down = False

    def put(self, topic: str, partition: int, beginning: int, end: int) -> None:
        """Change the bounds of a partition."""
        self.all[TopicPartition(topic, partition)] = Bounds(beginning, end)

    def delete(self, topic: str) -> None:
        """Remove a topic."""
        del self.topic_ids[topic]
        self.all = {tp: bounds for tp, bounds in self.all.items() if tp.topic != topic}

    def snapshot(self, topics: Sequence[str], isolation_level: IsolationLevel) -> LogSnapshot:
        """Return ids and bounds."""
        if self.is_down:
            raise KafkaUnavailableError("Kafka at nowhere:9092 did not answer within 1.0 s")
        ids = {topic: topic_id for topic, topic_id in self.topic_ids.items() if topic in topics}
        return LogSnapshot(ids, {tp: bounds for tp, bounds in self.all.items() if tp.topic in ids})

    def bounds(
        self, partitions: Sequence[TopicPartition], isolation_level: IsolationLevel
    ) -> Mapping[TopicPartition, Bounds]:
        """Return the bounds."""
        return {tp: self.all[tp] for tp in partitions}

    def offsets_at(
        self, partitions: Sequence[TopicPartition], time: datetime, isolation_level: IsolationLevel
    ) -> Mapping[TopicPartition, int | None]:
        """Know no record of that time or later."""
        return dict.fromkeys(partitions)

    def committed(self, group_id: str, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        """Know no consumer group."""
        return dict.fromkeys(partitions)
