"""What every `LogOffsets` promises: Kafka itself, and the topics in memory that the service's tests use in its place."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaTopicPartition

from airflow_kafka_offsets.adapters.kafka.log import KafkaLog, epoch_milliseconds
from airflow_kafka_offsets.core.errors import KafkaUnavailableError
from airflow_kafka_offsets.core.lag.retention import Retention
from airflow_kafka_offsets.core.lag.search import Hit, Probe
from airflow_kafka_offsets.core.leader_epochs import PartitionEpoch
from airflow_kafka_offsets.core.log import Bounds, IsolationLevel, LogSnapshot
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.ports import LogOffsets
from tests.lab import topics as lab
from tests.lab.kafka import KafkaBroker
from tests.service.memory_log import MemoryLog

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
BASE = datetime(2024, 3, 1, tzinfo=UTC)


class Topics(Protocol):
    """What a test does to topics, and the log that it looks at."""

    log: LogOffsets
    impatient: LogOffsets  # the same, and it gives up after a second

    def create(self, topic: str, partitions: int = 1, *, append_time: bool = False) -> None:
        """Create a topic; its records have their producers' times, or those of the broker."""

    def delete(self, topic: str) -> None:
        """Delete a topic."""

    def add_partitions(self, topic: str, total: int) -> None:
        """Let a topic have so many partitions."""

    def produce(self, tp: TopicPartition, number: int, at: datetime) -> None:
        """Append records of one time."""

    def begin(self, tp: TopicPartition, number: int) -> Any:
        """Append records of now in a transaction; the answer can `commit` and `abort`."""

    def expire(self, tp: TopicPartition, before: int) -> None:
        """Let records be gone."""

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of a consumer group."""

    def configure(self, topic: str, **values: str) -> None:
        """Set a topic's configuration, with ``_`` for each dot."""


class InKafka:
    """Topics of a broker."""

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker
        self.log: LogOffsets = KafkaLog(broker.client_config(), 20)
        self.impatient: LogOffsets = KafkaLog(broker.client_config(), 1)

    def create(self, topic: str, partitions: int = 1, *, append_time: bool = False) -> None:
        """Create a topic that keeps records of any age."""
        kind = "LogAppendTime" if append_time else "CreateTime"
        lab.create_topic(self._broker, topic, partitions, {"retention.ms": "-1", "message.timestamp.type": kind})

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        lab.delete_topic(self._broker, topic)

    def add_partitions(self, topic: str, total: int) -> None:
        """Let a topic have so many partitions."""
        lab.add_partitions(self._broker, topic, total)

    def produce(self, tp: TopicPartition, number: int, at: datetime) -> None:
        """Append records of one time."""
        lab.produce(self._broker, tp.topic, number, partition=tp.partition, timestamp_ms=epoch_milliseconds(at))

    def begin(self, tp: TopicPartition, number: int) -> lab.Transaction:
        """Append records of now in a transaction."""
        return lab.open_transaction(self._broker, tp.topic, number, partition=tp.partition)

    def expire(self, tp: TopicPartition, before: int) -> None:
        """Let records be gone."""
        lab.delete_records(self._broker, tp.topic, before, tp.partition)

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of a consumer group."""
        consumer = Consumer({**self._broker.client_config(), "group.id": group_id})
        positions = [KafkaTopicPartition(tp.topic, tp.partition, offset) for tp, offset in offsets.items()]
        consumer.commit(offsets=positions, asynchronous=False)
        consumer.close()

    def configure(self, topic: str, **values: str) -> None:
        """Set a topic's configuration."""
        lab.configure_topic(self._broker, topic, {name.replace("_", "."): value for name, value in values.items()})


class InMemory:
    """Topics of a `MemoryLog`."""

    def __init__(self) -> None:
        self._memory = MemoryLog()
        self.log: LogOffsets = self._memory
        self.impatient = self.log

    def create(self, topic: str, partitions: int = 1, *, append_time: bool = False) -> None:
        """Create a topic."""
        self._memory.create(topic, partitions, append_time=append_time)

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self._memory.delete(topic)

    def add_partitions(self, topic: str, total: int) -> None:
        """Let a topic have so many partitions."""
        self._memory.add_partitions(topic, total - len(self._memory.snapshot([topic], UNCOMMITTED).bounds))

    def produce(self, tp: TopicPartition, number: int, at: datetime) -> None:
        """Append records of one time."""
        self._memory.produce(tp, number, at)

    def begin(self, tp: TopicPartition, number: int) -> _MemoryTransaction:
        """Append records of now in a transaction."""
        self._memory.open_transaction(tp)
        self._memory.produce(tp, number, datetime.now(UTC))
        return _MemoryTransaction(self._memory, tp)

    def expire(self, tp: TopicPartition, before: int) -> None:
        """Let records be gone."""
        self._memory.expire(tp, before)

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of a consumer group."""
        self._memory.commit(group_id, offsets)

    def configure(self, topic: str, **values: str) -> None:
        """Set a topic's configuration."""
        self._memory.configure(topic, **values)


class _MemoryTransaction:
    def __init__(self, memory: MemoryLog, tp: TopicPartition) -> None:
        self._memory = memory
        self._tp = tp

    def commit(self) -> None:
        """Commit; to a lookup, an abort looks the same."""
        self._memory.commit_transaction(self._tp, datetime.now(UTC))

    abort = commit


def seconds(number: float) -> datetime:
    """Name a moment by its distance from BASE."""
    return BASE + timedelta(seconds=number)


class LogContract:
    """Each subclass has a fixture `topics`."""

    def test_a_snapshot_has_ids_and_the_bounds_of_every_partition(self, topics: Topics, topic: str) -> None:
        other = f"{topic}-other"
        topics.create(topic, 3)
        topics.create(other)
        topics.produce(TopicPartition(topic, 1), 7, BASE)
        snapshot = topics.log.snapshot([topic, other, f"{topic}-absent"], COMMITTED)
        assert snapshot.bounds == {
            TopicPartition(topic, 0): Bounds(0, 0),
            TopicPartition(topic, 1): Bounds(0, 7),
            TopicPartition(topic, 2): Bounds(0, 0),
            TopicPartition(other, 0): Bounds(0, 0),
        }
        assert snapshot.topic_ids.keys() == {topic, other}
        assert len(set(snapshot.topic_ids.values())) == 2
        assert topics.log.topic_ids([topic, f"{topic}-absent"]) == {topic: snapshot.topic_ids[topic]}
        assert topics.log.bounds([TopicPartition(topic, 1)], COMMITTED) == {TopicPartition(topic, 1): Bounds(0, 7)}

    def test_the_list_of_topics_has_each_that_is_there_now(self, topics: Topics, topic: str) -> None:
        topics.create(topic, 2)
        topics.create(f"{topic}-other")
        assert {topic, f"{topic}-other"} <= set(topics.log.topics())
        topics.delete(topic)
        assert topic not in topics.log.topics()

    def test_a_topic_that_does_not_exist_is_not_in_the_answer(self, topics: Topics, topic: str) -> None:
        assert topics.log.snapshot([topic], COMMITTED) == LogSnapshot({}, {})
        assert topics.log.topic_ids([topic]) == {}

    def test_nothing_asked_is_nothing_answered(self, topics: Topics) -> None:
        assert topics.log.snapshot([], COMMITTED) == LogSnapshot({}, {})
        assert topics.log.topic_ids([]) == {}
        assert topics.log.bounds([], COMMITTED) == {}
        assert topics.log.offsets_at([], BASE, COMMITTED) == {}
        assert topics.log.committed("group", []) == {}
        assert topics.log.epoch_ends([]) == {}

    def test_a_partition_that_does_not_exist_is_an_error(self, topics: Topics, topic: str) -> None:
        topics.create(topic)
        absent = [TopicPartition(topic, 7)]
        with pytest.raises(KafkaUnavailableError, match=f"{topic}-7"):
            topics.impatient.bounds(absent, COMMITTED)
        with pytest.raises(KafkaUnavailableError, match=f"{topic}-7"):
            topics.impatient.offsets_at(absent, BASE, COMMITTED)
        with pytest.raises(KafkaUnavailableError, match=f"{topic}-7"):
            topics.impatient.first_records([Probe(absent[0], 0)])

    def test_it_is_known_where_the_records_of_a_leader_epoch_end(self, topics: Topics, topic: str) -> None:
        p0, p1 = (TopicPartition(topic, i) for i in range(2))
        topics.create(topic, 2)
        topics.produce(p0, 7, BASE)
        bounds = topics.log.bounds([p0, p1], COMMITTED)
        epochs = {tp: bounds[tp].leader_epoch for tp in (p0, p1)}
        assert epochs == {p0: 0, p1: 0}
        wanted = [PartitionEpoch(tp, epoch) for tp, epoch in epochs.items() if epoch is not None]
        assert topics.log.epoch_ends(wanted) == {PartitionEpoch(p0, 0): 7, PartitionEpoch(p1, 0): 0}

    def test_of_a_leader_epoch_that_never_was_nothing_is_known(self, topics: Topics, topic: str) -> None:
        tp = TopicPartition(topic, 0)
        topics.create(topic)
        topics.produce(tp, 7, BASE)
        never, was = PartitionEpoch(tp, 77), PartitionEpoch(tp, 0)
        assert topics.log.epoch_ends([never, was]) == {was: 7}

    def test_of_a_partition_that_does_not_exist_no_leader_epoch_is_known(self, topics: Topics, topic: str) -> None:
        topics.create(topic)
        absent = [PartitionEpoch(TopicPartition(name, 7), 0) for name in (topic, f"{topic}-absent")]
        assert topics.impatient.epoch_ends(absent) == {}

    def test_a_recreated_topic_has_another_id_and_a_new_log(self, topics: Topics, topic: str) -> None:
        tp = TopicPartition(topic, 0)
        topics.create(topic)
        topics.produce(tp, 9, BASE)
        before = topics.log.snapshot([topic], COMMITTED)
        topics.delete(topic)
        assert topics.log.snapshot([topic], COMMITTED) == LogSnapshot({}, {})
        topics.create(topic)
        after = topics.log.snapshot([topic], COMMITTED)
        assert before.topic_ids[topic] != after.topic_ids[topic]
        assert (before.bounds[tp], after.bounds[tp]) == (Bounds(0, 9), Bounds(0, 0))

    def test_an_added_partition_is_there_at_once(self, topics: Topics, topic: str) -> None:
        topics.create(topic, 2)
        assert len(topics.log.snapshot([topic], COMMITTED).bounds) == 2
        topics.add_partitions(topic, 3)
        topics.produce(TopicPartition(topic, 2), 4, BASE)
        assert topics.log.snapshot([topic], COMMITTED).bounds[TopicPartition(topic, 2)] == Bounds(0, 4)

    def test_expired_records_move_the_beginning_alone(self, topics: Topics, topic: str) -> None:
        tp = TopicPartition(topic, 0)
        topics.create(topic)
        topics.produce(tp, 10, BASE)
        topics.expire(tp, 4)
        assert topics.log.bounds([tp], COMMITTED)[tp] == Bounds(4, 10)
        topics.expire(tp, 10)
        assert topics.log.bounds([tp], COMMITTED)[tp] == Bounds(10, 10)
        assert topics.log.offsets_at([tp], BASE, COMMITTED) == {tp: None}

    def test_an_open_transaction_ends_the_log_of_read_committed_and_its_marker_takes_an_offset(
        self, topics: Topics, topic: str
    ) -> None:
        tp = TopicPartition(topic, 0)
        topics.create(topic)
        topics.produce(tp, 5, BASE)
        transaction = topics.begin(tp, 3)
        topics.produce(tp, 2, BASE)
        assert topics.log.bounds([tp], COMMITTED)[tp] == Bounds(0, 5)
        assert topics.log.bounds([tp], UNCOMMITTED)[tp] == Bounds(0, 10)
        transaction.commit()
        assert topics.log.bounds([tp], COMMITTED)[tp] == Bounds(0, 11)
        topics.begin(tp, 3).abort()
        assert topics.log.bounds([tp], COMMITTED)[tp] == Bounds(0, 15)

    def test_records_expired_under_an_open_transaction_leave_bounds_in_order(self, topics: Topics, topic: str) -> None:
        tp = TopicPartition(topic, 0)
        topics.create(topic)
        transaction = topics.begin(tp, 10)
        topics.expire(tp, 6)
        assert topics.log.bounds([tp], COMMITTED)[tp] == Bounds(6, 6)
        assert topics.log.bounds([tp], UNCOMMITTED)[tp] == Bounds(6, 10)
        transaction.abort()

    def test_a_time_is_the_first_offset_that_is_not_earlier_whatever_the_order(
        self, topics: Topics, topic: str
    ) -> None:
        tp, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
        topics.create(topic, 2)
        for second in (0, 5, 1, 9, 3):
            topics.produce(tp, 1, seconds(second))
        expected = {-1: 0, 0: 0, 0.0005: 1, 1: 1, 5: 1, 5.001: 3, 9: 3, 9.0005: None, 9.001: None}
        offsets = {t: topics.log.offsets_at([tp, empty], seconds(t), COMMITTED) for t in expected}
        assert offsets == {t: {tp: offset, empty: None} for t, offset in expected.items()}
        # What expired is no answer any more.
        topics.expire(tp, 2)
        expected = {0: 2, 1: 2, 3: 3, 9: 3, 10: None}
        assert {t: topics.log.offsets_at([tp], seconds(t), COMMITTED)[tp] for t in expected} == expected

    def test_with_log_append_time_the_brokers_clock_counts(self, topics: Topics, topic: str) -> None:
        tp = TopicPartition(topic, 0)
        topics.create(topic, append_time=True)
        before = datetime.now(UTC) - timedelta(minutes=5)
        topics.produce(tp, 3, BASE)
        topics.produce(tp, 3, BASE - timedelta(days=1))
        assert topics.log.offsets_at([tp], BASE + timedelta(days=1), COMMITTED) == {tp: 0}
        assert topics.log.offsets_at([tp], before, COMMITTED) == {tp: 0}
        assert topics.log.offsets_at([tp], datetime.now(UTC) + timedelta(hours=1), COMMITTED) == {tp: None}

    def test_a_time_is_looked_up_at_the_isolation_level(self, topics: Topics, topic: str) -> None:
        tp = TopicPartition(topic, 0)
        topics.create(topic)
        topics.produce(tp, 2, BASE)
        transaction = topics.begin(tp, 3)
        topics.produce(tp, 1, datetime.now(UTC))
        later = BASE + timedelta(days=1)
        assert topics.log.offsets_at([tp], later, COMMITTED) == {tp: None}
        assert topics.log.offsets_at([tp], later, UNCOMMITTED) == {tp: 2}
        assert topics.log.offsets_at([tp], BASE, COMMITTED) == {tp: 0}
        transaction.abort()
        # The records of an aborted transaction are in the index all the same.
        assert topics.log.offsets_at([tp], later, COMMITTED) == {tp: 2}

    def test_the_marker_of_a_transaction_has_a_time_too(self, topics: Topics, topic: str) -> None:
        tp = TopicPartition(topic, 0)
        topics.create(topic)
        began = datetime.now(UTC) - timedelta(hours=1)
        transaction = topics.begin(tp, 3)
        transaction.commit()
        topics.expire(tp, 3)
        assert topics.log.bounds([tp], COMMITTED) == {tp: Bounds(3, 4)}
        assert topics.log.offsets_at([tp], began, COMMITTED) == {tp: 3}

    def test_a_probe_finds_the_first_record_with_its_time(self, topics: Topics, topic: str) -> None:
        tp, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
        topics.create(topic, 2)
        for second in (0, 5, 1, 9, 3):
            topics.produce(tp, 1, seconds(second))
        expected_hits = {0: (0, 0), 1: (1, 5), 5: (1, 5), 6: (3, 9), 10: None}
        # Several questions about one partition at once.
        probes = {second: Probe(tp, epoch_milliseconds(seconds(second))) for second in expected_hits}
        hits = topics.log.first_records([*probes.values(), Probe(tp, 0), Probe(empty, 0)])
        expected = {
            second: Hit(hit[0], epoch_milliseconds(seconds(hit[1]))) if hit else None
            for second, hit in expected_hits.items()
        }
        assert {second: hits[probe] for second, probe in probes.items()} == expected
        assert (hits[Probe(tp, 0)], hits[Probe(empty, 0)]) == (expected[0], None)
        topics.expire(tp, 2)
        assert topics.log.first_records([Probe(tp, 0)]) == {Probe(tp, 0): Hit(2, epoch_milliseconds(seconds(1)))}
        assert topics.log.first_records([]) == {}

    def test_a_probe_sees_records_of_open_transactions_as_retention_does(self, topics: Topics, topic: str) -> None:
        tp = TopicPartition(topic, 0)
        topics.create(topic)
        topics.produce(tp, 2, BASE)
        transaction = topics.begin(tp, 3)
        later = Probe(tp, epoch_milliseconds(BASE + timedelta(days=1)))
        hit = topics.log.first_records([later])[later]
        assert hit is not None
        assert hit.offset == 2
        transaction.abort()

    def test_retention_is_that_of_the_topic(self, topics: Topics, topic: str) -> None:
        topics.create(topic)
        topics.configure(topic, retention_ms="3600000", retention_bytes="7000000")
        assert topics.log.retentions([topic, f"{topic}-absent"]) == {topic: Retention(timedelta(hours=1), 7_000_000)}
        topics.configure(topic, retention_ms="-1", cleanup_policy="compact,delete")
        assert topics.log.retentions([topic]) == {topic: Retention(None, 7_000_000, is_compacted=True)}
        topics.configure(topic, cleanup_policy="compact")
        assert topics.log.retentions([topic]) == {topic: Retention(None, None, is_compacted=True)}
        assert topics.log.retentions([]) == {}

    def test_committed_offsets_are_those_of_the_group(self, topics: Topics, topic: str) -> None:
        p0, p1, absent = (TopicPartition(topic, i) for i in (0, 1, 9))
        topics.create(topic, 2)
        topics.produce(p0, 5, BASE)
        group = f"group-{uuid.uuid4().hex[:8]}"
        topics.commit(group, {p0: 3})
        assert topics.log.committed(group, [p0, p1, absent]) == {p0: 3, p1: None, absent: None}
        assert topics.log.committed(f"other-{group}", [p0]) == {p0: None}


class TestMemoryLog(LogContract):
    """The one that the service's tests use."""

    @pytest.fixture
    def topics(self) -> Topics:
        """Return topics in memory."""
        return InMemory()


class TestKafkaLog(LogContract):
    """The real one, on a real broker."""

    @pytest.fixture
    def topics(self, kafka: KafkaBroker) -> Topics:
        """Return topics of the broker."""
        return InKafka(kafka)
