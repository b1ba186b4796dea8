"""What Kafka holds, in memory: a `LogOffsets` for tests, with the things that happen to real topics.

It passes the same contract as the adapter over confluent-kafka.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from airflow_kafka_offsets.core.errors import KafkaUnavailableError
from airflow_kafka_offsets.core.lag.retention import Retention, retention_of
from airflow_kafka_offsets.core.lag.search import Hit, Hits, Known, Place, Probe
from airflow_kafka_offsets.core.leader_epochs import PartitionEpoch
from airflow_kafka_offsets.core.log import Bounds, IsolationLevel, LogSnapshot
from airflow_kafka_offsets.core.offsets import TopicPartition

DEFAULTS = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
"""Settings of a topic on which no test has an opinion: nothing expires."""


def _milliseconds(moment: datetime) -> int:
    """Return the first millisecond that is not before a moment, as the adapter asks Kafka."""
    return -((datetime(1970, 1, 1, tzinfo=UTC) - moment) // timedelta(milliseconds=1))


@dataclass
class _Partition:
    """A log: one entry per offset ever written."""

    beginning: int = 0
    times: list[int] = field(default_factory=list)  # milliseconds since 1970
    open_from: int | None = None  # first offset of an open transaction
    epoch_starts: list[int] = field(default_factory=lambda: [0])  # by leader epoch

    def end(self, isolation_level: IsolationLevel) -> int:
        if isolation_level is IsolationLevel.READ_COMMITTED and self.open_from is not None:
            return max(self.open_from, self.beginning)
        return len(self.times)

    def bounds(self, isolation_level: IsolationLevel) -> Bounds:
        return Bounds(self.beginning, self.end(isolation_level), len(self.epoch_starts) - 1)

    def first(self, time_ms: int) -> Hit | None:
        found = (o for o in range(self.beginning, len(self.times)) if self.times[o] >= time_ms)
        offset = next(found, None)
        return None if offset is None else Hit(offset, self.times[offset])

    def end_of_epoch(self, epoch: int) -> int | None:
        starts = self.epoch_starts
        if epoch >= len(starts):
            return None
        return starts[epoch + 1] if epoch + 1 < len(starts) else len(self.times)


class MemoryLog:
    """Topics in memory. What a test does to them has plain verbs; the questions are those of `LogOffsets`."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._ids: dict[str, str] = {}
        self._elsewhere: dict[tuple[str, str], dict[TopicPartition, _Partition]] = {}
        self._born = 0
        self._committed: dict[tuple[str, TopicPartition], int] = {}
        self._by_append_time: set[str] = set()
        self._fallen_back: dict[TopicPartition, list[int]] = {}
        self.calls: list[str] = []
        self.found_times: dict[Place, Known] = {}
        self.tells_ids = True
        self.tells_leader_epochs = True
        self.knows_epoch_ends = True
        self.tells_configs = True
        self._configs: dict[str, dict[str, str]] = {}

    def create(self, topic: str, partitions: int = 1, *, append_time: bool = False) -> None:
        """Create a topic under an id of its own; with `append_time` its records have the time of their arrival."""
        assert topic not in self._ids
        if append_time:
            self._by_append_time.add(topic)
        self._born += 1
        self._ids[topic] = f"id-{self._born}"
        self.add_partitions(topic, partitions)

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        logs = {tp: p for tp, p in self._partitions.items() if tp.topic == topic}
        self._elsewhere[topic, self._ids.pop(topic)] = logs
        self._partitions = {tp: p for tp, p in self._partitions.items() if tp.topic != topic}

    def recreate(self, topic: str, partitions: int = 1) -> None:
        """Delete a topic and make it again: the same name, another id."""
        self.delete(topic)
        self.create(topic, partitions)

    def earlier_ids(self, topic: str) -> list[str]:
        """Return the ids of the topics of this name that are no longer there."""
        return [id_ for name, id_ in self._elsewhere if name == topic and id_ != self._ids.get(topic)]

    def bring_back(self, topic: str, topic_id: str) -> None:
        """Let a topic be the one of an earlier id again, as where the connection leads back to the first of two clusters."""
        if topic in self._ids:
            self.delete(topic)
        self._ids[topic] = topic_id
        self._partitions |= self._elsewhere[topic, topic_id]

    def add_partitions(self, topic: str, number: int = 1) -> None:
        """Add partitions behind those that are there."""
        there = sum(tp.topic == topic for tp in self._partitions)
        for i in range(there, there + number):
            self._partitions[TopicPartition(topic, i)] = _Partition()

    def produce(self, tp: TopicPartition, number: int = 1, at: datetime | None = None) -> None:
        """Append records, all with one timestamp."""
        at = datetime.now(UTC) if tp.topic in self._by_append_time else at
        self._partitions[tp].times += [_milliseconds(at) if at else 0] * number

    def open_transaction(self, tp: TopicPartition) -> None:
        """Let everything from here on belong to a transaction that is not committed."""
        partition = self._partitions[tp]
        partition.open_from = len(partition.times)

    def commit_transaction(self, tp: TopicPartition, at: datetime | None = None) -> None:
        """Commit the transaction; its marker takes an offset and has a time."""
        partition = self._partitions[tp]
        partition.times.append(_milliseconds(at) if at else 0)
        partition.open_from = None

    def expire(self, tp: TopicPartition, before: int) -> None:
        """Let retention remove the records below an offset."""
        partition = self._partitions[tp]
        partition.beginning = max(partition.beginning, min(before, len(partition.times)))

    def restore(self, tp: TopicPartition, beginning: int) -> None:
        """Let a log begin earlier than it did. No Kafka does that by itself, but a copy of a cluster that is restored may."""
        partition = self._partitions[tp]
        partition.beginning = min(partition.beginning, beginning)

    def truncate(self, tp: TopicPartition, end: int) -> None:
        """Lose the records from an offset on, as an unclean leader election does."""
        partition = self._partitions[tp]
        del partition.times[end:]
        partition.beginning = min(partition.beginning, end)
        partition.epoch_starts = [min(start, end) for start in partition.epoch_starts]
        self.elect(tp)

    def elect(self, tp: TopicPartition) -> None:
        """Let another broker that has all records lead a partition."""
        partition = self._partitions[tp]
        partition.epoch_starts.append(len(partition.times))

    def fall_back_once(self, tp: TopicPartition, end: int) -> None:
        """Answer the next question, or the one after those before, with an end offset of before, as a leader that lags does."""
        self._fallen_back.setdefault(tp, []).append(end)

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of a consumer group."""
        self._committed |= {(group_id, tp): offset for tp, offset in offsets.items()}

    def topics(self) -> frozenset[str]:
        """Return the names of all topics."""
        self.calls.append("topics")
        return frozenset(self._ids)

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Return the ids of topics that exist."""
        self.calls.append("topic_ids")
        return {topic: self._id(topic) for topic in topics if topic in self._ids}

    def _id(self, topic: str) -> str:
        # What a broker says that is older than topic ids, through Kafka's client.
        return self._ids[topic] if self.tells_ids else "AAAAAAAAAAAAAAAAAAAAAA"

    def snapshot(self, topics: Sequence[str], isolation_level: IsolationLevel) -> LogSnapshot:
        """Return ids and bounds of topics that exist."""
        self.calls.append("snapshot")
        there = {topic: self._id(topic) for topic in topics if topic in self._ids}
        partitions = [tp for tp in self._partitions if tp.topic in there]
        return LogSnapshot(there, self._bounds(partitions, isolation_level))

    def bounds(
        self, partitions: Sequence[TopicPartition], isolation_level: IsolationLevel
    ) -> Mapping[TopicPartition, Bounds]:
        """Return the bounds of partitions."""
        self.calls.append("bounds")
        return self._bounds(partitions, isolation_level)

    def _bounds(
        self, partitions: Sequence[TopicPartition], isolation_level: IsolationLevel
    ) -> dict[TopicPartition, Bounds]:
        self._check_there(partitions)
        found = {}
        for tp in sorted(partitions):
            bounds = self._partitions[tp].bounds(isolation_level)
            epoch = bounds.leader_epoch if self.tells_leader_epochs else None
            fallen_back = self._fallen_back.get(tp)
            found[tp] = Bounds(bounds.beginning, fallen_back.pop(0) if fallen_back else bounds.end, epoch)
        return found

    def _check_there(self, partitions: Sequence[TopicPartition]) -> None:
        if absent := [str(tp) for tp in partitions if tp not in self._partitions]:
            raise KafkaUnavailableError(f"no such partition ({', '.join(absent)})")

    def offsets_at(
        self, partitions: Sequence[TopicPartition], time: datetime, isolation_level: IsolationLevel
    ) -> Mapping[TopicPartition, int | None]:
        """Return the first offset whose record has this timestamp or a later one."""
        self.calls.append("offsets_at")
        self._check_there(partitions)
        wanted = _milliseconds(time)
        found: dict[TopicPartition, int | None] = {}
        for tp in partitions:
            partition = self._partitions[tp]
            visible = range(partition.beginning, partition.end(isolation_level))
            found[tp] = next((o for o in visible if partition.times[o] >= wanted), None)
        return found

    def configure(self, topic: str, **values: str) -> None:
        """Set a topic's configuration, with ``_`` for each dot."""
        self._configs.setdefault(topic, {}).update({name.replace("_", "."): value for name, value in values.items()})

    def first_records(self, wanted: Collection[Probe]) -> Hits:
        """Return the first record that each probe finds."""
        if not wanted:
            return {}
        self.calls.append("first_records")
        self._check_there([probe.partition for probe in wanted])
        return {probe: self._partitions[probe.partition].first(probe.time_ms) for probe in wanted}

    def retentions(self, topics: Sequence[str]) -> Mapping[str, Retention]:
        """Return what removes the records of topics, if this user may know it."""
        self.calls.append("retentions")
        there = [topic for topic in topics if topic in self._ids and self.tells_configs]
        return {topic: retention_of(DEFAULTS | self._configs.get(topic, {})) for topic in there}

    def epoch_ends(self, wanted: Collection[PartitionEpoch]) -> Mapping[PartitionEpoch, int]:
        """Return where the records of leader epochs, and of all before them, end."""
        if not wanted:
            return {}
        self.calls.append("epoch_ends")
        there = [asked for asked in wanted if self.knows_epoch_ends and asked.partition in self._partitions]
        ends = {asked: self._partitions[asked.partition].end_of_epoch(asked.leader_epoch) for asked in there}
        return {asked: end for asked, end in ends.items() if end is not None}

    def committed(self, group_id: str, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        """Return what a consumer group has committed."""
        self.calls.append("committed")
        return {tp: self._committed.get((group_id, tp)) for tp in partitions}


class NoTimes(MemoryLog):
    """A Kafka that stops answering after the snapshot."""

    def first_records(self, wanted: Collection[Probe]) -> Hits:
        """Fail."""
        raise KafkaUnavailableError("no answer about times")
