"""What tests do to topics: make them, fill them, shrink them, replace them.

The first argument is always a broker of `tests.lab.kafka`.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.lab.processes import wait_until
from tests.lab.waiting import ANSWER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.lab.kafka import KafkaBroker


def create_topic(
    kafka: KafkaBroker,
    name: str,
    partitions: int = 1,
    config: Mapping[str, str] | None = None,
    *,
    on_brokers: Sequence[int] | None = None,
) -> str:
    """Create a topic, wait until it has leaders, and return its topic id.

    Args:
        kafka: The broker.
        name: Name of the topic.
        partitions: How many partitions.
        config: Topic settings such as `retention.ms`.
        on_brokers: Node id for each partition; None lets Kafka choose.
    """
    count = partitions if on_brokers is None else len(on_brokers)
    placement = {"replication_factor": 1} if on_brokers is None else {"replica_assignment": [[b] for b in on_brokers]}
    wanted = NewTopic(name, count, config=dict(config or {}), **placement)
    kafka.admin.create_topics([wanted], request_timeout=ANSWER)[name].result(ANSWER)
    wait_until(lambda: _leaders(kafka, name) == count, what=f"{name} has {count} leaders")
    # Another broker than the one that told of the leaders may hear of the topic later.
    return wait_until(lambda: _topic_id(kafka, name), what=f"{name} has an id") or ""


def topic_id(kafka: KafkaBroker, name: str) -> str:
    """Return the id that a topic of the same name does not share after delete and create."""
    described = kafka.admin.describe_topics(TopicCollection([name]), request_timeout=ANSWER)[name]
    return str(described.result(ANSWER).topic_id)


def delete_topic(kafka: KafkaBroker, name: str) -> None:
    """Delete a topic and wait until it is gone for every client."""
    kafka.admin.delete_topics([name], request_timeout=ANSWER)[name].result(ANSWER)
    wait_until(lambda: _leaders(kafka, name) == 0, what=f"{name} is gone")


def add_partitions(kafka: KafkaBroker, name: str, total: int) -> None:
    """Grow a topic to this number of partitions and wait until the new ones have leaders."""
    kafka.admin.create_partitions([NewPartitions(name, total)], request_timeout=ANSWER)[name].result(ANSWER)
    wait_until(lambda: _leaders(kafka, name) == total, what=f"{name} has {total} leaders")


def configure_topic(kafka: KafkaBroker, name: str, config: Mapping[str, str]) -> None:
    """Set some of a topic's settings, and wait until the broker tells them."""
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    kafka.admin.incremental_alter_configs([resource], request_timeout=ANSWER)[resource].result(ANSWER)

    def is_told() -> bool:
        told = kafka.admin.describe_configs([resource], request_timeout=ANSWER)[resource].result(ANSWER)
        return all(told[key].value == value for key, value in config.items())

    wait_until(is_told, what=f"{name} has its settings")


def delete_records(kafka: KafkaBroker, name: str, before: int, partition: int = 0) -> None:
    """Make `before` the beginning offset of a partition, as retention would."""
    wanted = TopicPartition(name, partition, before)
    kafka.admin.delete_records([wanted], request_timeout=ANSWER)[wanted].result(ANSWER)


def produce(
    kafka: KafkaBroker,
    name: str,
    count: int,
    *,
    partition: int = 0,
    first: int = 0,
    key: bytes | None = None,
    padding: int = 0,
    timestamp_ms: int = 0,
) -> None:
    """Append records with the values `first`, `first + 1`, ... to one partition and wait until they are acknowledged.

    Args:
        kafka: The broker.
        name: Name of the topic.
        count: How many records.
        partition: The partition that gets them all.
        first: The number in the first record's value.
        key: Key of all of them.
        padding: Bytes that are added to every value.
        timestamp_ms: Their time in epoch milliseconds; 0 is now.
    """
    producer = Producer({**kafka.client_config(), "linger.ms": 5})
    _send(producer, name, count, partition, first, key=key, padding=padding, timestamp_ms=timestamp_ms)


def produce_bytes(kafka: KafkaBroker, name: str, values: Sequence[bytes | None], **record: Any) -> None:
    """Append records with these values to partition 0, each with the same key or headers, and wait until they are acknowledged."""
    producer = Producer({**kafka.client_config(), "linger.ms": 5})
    for value in values:
        _enqueue(producer, name, value=value, **{"partition": 0, **record})
    if unsent := _flush(producer):
        raise RuntimeError(f"{unsent} records are unsent")


def produce_one_each(kafka: KafkaBroker, names: Sequence[str], partitions: int) -> None:
    """Append one record to each partition of topics that have as many, and wait until all are acknowledged."""
    producer = Producer(kafka.client_config())
    for name in names:
        for partition in range(partitions):
            _enqueue(producer, name, value=b"1", partition=partition)
    if unsent := _flush(producer):
        raise RuntimeError(f"{unsent} records are unsent")


class Transaction:
    """An open transaction with records in one partition; no one needs to end it.

    When no one does, the broker aborts it after its timeout.
    """

    def __init__(self, kafka: KafkaBroker, name: str, partition: int, *, timeout_ms: int) -> None:
        settings = {"transactional.id": f"tx-{uuid.uuid4().hex}", "transaction.timeout.ms": timeout_ms, "log_level": 0}
        self.producer = Producer({**kafka.client_config(), **settings})
        self.producer.init_transactions(ANSWER)
        self.producer.begin_transaction()
        self._kafka = kafka
        self._name = name
        self._partition = partition

    def append(self, count: int, first: int = 0) -> None:
        """Append records with the values `first`, `first + 1`, ... and wait until they are acknowledged."""
        _send(self.producer, self._name, count, self._partition, first)

    def commit(self) -> None:
        """Commit, and wait until the marker is in the partition: it takes one offset."""
        with self._one_more_offset():
            self.producer.commit_transaction(ANSWER)

    def abort(self) -> None:
        """Abort, and wait until the marker is in the partition: it takes one offset."""
        with self._one_more_offset():
            self.producer.abort_transaction(ANSWER)

    @contextlib.contextmanager
    def _one_more_offset(self) -> Iterator[None]:
        # The coordinator answers before the markers are written.
        before = end_offset(self._kafka, self._name, self._partition)
        yield
        wait_until(
            lambda: end_offset(self._kafka, self._name, self._partition) > before,
            what=f"{self._name}-{self._partition} has the transaction's marker",
        )


def commit_transaction(kafka: KafkaBroker, name: str, count: int, *, partition: int = 0, first: int = 0) -> None:
    """Append records in a transaction and commit it: `count` offsets, and one for the marker."""
    open_transaction(kafka, name, count, partition=partition, first=first).commit()


def abort_transaction(kafka: KafkaBroker, name: str, count: int, *, partition: int = 0, first: int = 0) -> None:
    """Append records in a transaction and abort it: `count` offsets, and one for the marker."""
    open_transaction(kafka, name, count, partition=partition, first=first).abort()


def open_transaction(
    kafka: KafkaBroker, name: str, count: int, *, partition: int = 0, first: int = 0, timeout_ms: int = 600_000
) -> Transaction:
    """Append records in a transaction and leave it open."""
    transaction = Transaction(kafka, name, partition, timeout_ms=timeout_ms)
    transaction.append(count, first)
    return transaction


def end_offset(kafka: KafkaBroker, name: str, partition: int = 0) -> int:
    """Return the offset that the next record gets (the high watermark, open transactions included)."""
    wanted = TopicPartition(name, partition)
    found = kafka.admin.list_offsets({wanted: OffsetSpec.latest()}, request_timeout=ANSWER)
    return int(found[wanted].result(ANSWER).offset)


def offsets_left(kafka: KafkaBroker, name: str, partition: int = 0) -> int:
    """Return how many offsets a partition still has."""
    wanted = TopicPartition(name, partition)
    found = kafka.admin.list_offsets({wanted: OffsetSpec.earliest()}, request_timeout=ANSWER)
    return end_offset(kafka, name, partition) - int(found[wanted].result(ANSWER).offset)


def _send(
    producer: Producer,
    name: str,
    count: int,
    partition: int,
    first: int,
    *,
    key: bytes | None = None,
    padding: int = 0,
    timestamp_ms: int = 0,
) -> None:
    failures: list[object] = []
    for number in range(first, first + count):
        _enqueue(
            producer,
            name,
            value=b"%d" % number + b" " * padding,
            key=key,
            partition=partition,
            timestamp=timestamp_ms,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    unsent = _flush(producer)
    if unsent or failures:
        raise RuntimeError(
            f"{name}-{partition}: {unsent} records are unsent, the first of {len(failures)} errors: {failures[:1]}"
        )


def _enqueue(producer: Producer, name: str, **record: object) -> None:
    while True:
        try:
            producer.produce(name, **record)
        except BufferError:  # the queue is full: wait for some acknowledgements
            producer.poll(0.5)
        else:
            producer.poll(0)
            return


def _topic_id(kafka: KafkaBroker, name: str) -> str | None:
    try:
        return topic_id(kafka, name)
    except KafkaException:
        return None


def _leaders(kafka: KafkaBroker, name: str) -> int:
    try:
        found = kafka.admin.list_topics(name, timeout=5).topics[name]
    except KafkaException:
        return -1
    # Not the length of a description: that lists partitions before they have a leader.
    return sum(partition.leader >= 0 for partition in found.partitions.values()) if found.error is None else 0


def _flush(producer: Producer) -> int:
    """Wait as long as records are acknowledged, and return how many are not when none was for a while."""
    left = len(producer)
    while left and (unsent := producer.flush(ANSWER)) < left:
        left = unsent
    return left
