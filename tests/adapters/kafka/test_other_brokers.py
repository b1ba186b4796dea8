"""Brokers of other versions and makers: what they lack, and what happens then."""

from __future__ import annotations

import logging
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_kafka_offsets.adapters.kafka.log import KafkaLog
from airflow_kafka_offsets.adapters.stores.kafka import KafkaStore
from airflow_kafka_offsets.core.errors import KafkaRefusedError, StoreRefusedError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.log import UNKNOWN_ID, IsolationLevel
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.window import Window
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.service.freshness import look
from airflow_kafka_offsets.service.windows import WindowService
from tests.adapters.kafka.test_log_contract import InKafka, LogContract, Topics
from tests.core.examples import claim
from tests.lab import api_proxy
from tests.lab.api_proxy import ApiProxy
from tests.lab.jars import KAFKA_3
from tests.lab.kafka import KafkaBroker, OldKafkaBroker
from tests.lab.topics import create_topic, produce

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.kafka

LEVEL = IsolationLevel.READ_COMMITTED


class World:
    """A group on a topic of a broker, with a ledger of its own."""

    def __init__(self, folder: Path, kafka: KafkaBroker, topic: str, config: dict[str, str] | None = None) -> None:
        self.kafka, self.topic = kafka, topic
        self.config = config or kafka.client_config()
        self.ledger = Ledger(f"sqlite:///{folder / 'ledger.db'}", create=True)
        self.group = KafkaGroup("lake", topics=[topic])
        self.runs = 0
        create_topic(kafka, topic, 2)

    @property
    def log(self) -> KafkaLog:
        """What planning looks with."""
        return KafkaLog(self.config, 10)

    def run(self) -> tuple[Window, tuple[str, ...]]:
        """Plan a window and commit it; return it with the warnings of the plan."""
        self.runs += 1
        service, run = WindowService(self.ledger, self.log), claim(f"run-{self.runs}")
        [planned] = service.plan(self.group, run, lambda _: True)
        attempt = service.start_attempt(planned.window, run)
        service.end_attempt(attempt, service_succeeded(), planned.window.span)
        service.check_same_topics(planned.window)
        service.commit(planned.window.id, run, attempt)
        return planned.window, planned.warnings


def service_succeeded() -> Any:
    """Return the outcome of a job that ended well."""
    from airflow_kafka_offsets.core.window import Outcome

    return Outcome.SUCCEEDED


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """Return a topic's name for the test."""
    return f"t-{abs(hash(request.node.nodeid)):x}"


# Kafka 2.8 and 3.7.


@pytest.fixture(scope="module")
def old(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OldKafkaBroker]:
    """Run a broker that is older than topic ids."""
    with OldKafkaBroker(tmp_path_factory.mktemp("kafka-2"), zookeeper) as broker:
        yield broker


class TestKafkaWithoutTopicIds(LogContract):
    """Kafka 2.8 with the protocol of 2.7."""

    @pytest.fixture
    def topics(self, old: OldKafkaBroker) -> Topics:
        """Return topics of the broker."""
        return InKafka(old)

    def test_a_snapshot_has_ids_and_the_bounds_of_every_partition(self, topics: Topics, topic: str) -> None:
        topics.create(topic, 2)
        snapshot = topics.log.snapshot([topic], LEVEL)
        assert snapshot.topic_ids == {topic: UNKNOWN_ID}
        assert len(snapshot.bounds) == 2

    def test_a_recreated_topic_has_another_id_and_a_new_log(self, topics: Topics, topic: str) -> None:
        topics.create(topic)
        topics.delete(topic)
        topics.create(topic)
        assert topics.log.topic_ids([topic]) == {topic: UNKNOWN_ID}


class TestKafka37(LogContract):
    """Kafka 3.7, the last minor version with ZooKeeper and its own controller alike."""

    @pytest.fixture(scope="class")
    def broker(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
        """Run it."""
        with KafkaBroker(tmp_path_factory.mktemp("kafka-3"), jars=KAFKA_3) as broker:
            yield broker

    @pytest.fixture
    def topics(self, broker: KafkaBroker) -> Topics:
        """Return topics of the broker."""
        return InKafka(broker)


def test_a_group_goes_on_through_the_upgrade_that_brings_topic_ids(
    zookeeper: ZooKeeperServer, tmp_path: Path, topic: str
) -> None:
    with OldKafkaBroker(tmp_path / "kafka", zookeeper) as kafka:
        world = World(tmp_path, kafka, topic)
        produce(kafka, topic, 5)
        window, warnings = world.run()
        assert window.topic_ids == {topic: UNKNOWN_ID}
        assert [text for text in warnings if f"Kafka gives no id of {topic}" in text]
        kafka.upgrade()
        produce(kafka, topic, 3)
        window, warnings = world.run()
        assert (window.span, warnings) == (3, ())
        assert window.topic_ids == world.log.topic_ids([topic]) != {topic: UNKNOWN_ID}


# What brokers of other makers lack.


@pytest.fixture(scope="module")
def proxy() -> Iterator[ApiProxy]:
    """Run the door that takes kinds of requests away."""
    with ApiProxy() as proxy:
        yield proxy


@pytest.fixture(scope="module")
def behind(proxy: ApiProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """Run a broker of today behind that door; its own clients come by it, too."""
    broker = KafkaBroker(tmp_path_factory.mktemp("behind"), properties=proxy.properties)
    proxy.open_to(broker.port)
    with broker:
        yield broker


@pytest.fixture
def world(behind: KafkaBroker, proxy: ApiProxy, tmp_path: Path, topic: str) -> Iterator[World]:
    """Return a group there."""
    proxy.without({})
    made = World(tmp_path, behind, topic, {**behind.client_config(), "client.id": topic})
    produce(behind, topic, 5)
    yield made
    proxy.without({})


def test_without_topic_ids_leader_epochs_and_their_ends_a_window_is_planned(world: World, proxy: ApiProxy) -> None:
    proxy.without({api_proxy.METADATA: 9, api_proxy.LIST_OFFSETS: 3, api_proxy.OFFSET_FOR_LEADER_EPOCH: None})
    window, warnings = world.run()
    assert (window.span, window.topic_ids, window.leader_epochs) == (5, {world.topic: UNKNOWN_ID}, {})
    assert [text for text in warnings if "Kafka gives no id of" in text]
    produce(world.kafka, world.topic, 2)
    assert world.run() == (world.ledger.window("lake-000002").window.to(), ())
