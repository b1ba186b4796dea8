"""Brokers of other versions and makers: what they lack, and what happens then."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from airflow_kafka_offsets.adapters.kafka.log import KafkaLog
from airflow_kafka_offsets.adapters.stores.kafka import KafkaStore
from airflow_kafka_offsets.core.conditions import UnreadAtLeast
from airflow_kafka_offsets.core.errors import KafkaLacksError, StoreRefusedError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.lag.lag import GroupLag
from airflow_kafka_offsets.core.lag.search import MOST_LOOKUPS
from airflow_kafka_offsets.core.leader_epochs import PartitionEpoch
from airflow_kafka_offsets.core.log import UNKNOWN_ID, IsolationLevel
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.waiting import Decision
from airflow_kafka_offsets.core.window import Outcome, Window
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.service import watch
from airflow_kafka_offsets.service.freshness import look
from airflow_kafka_offsets.service.windows import WindowService
from tests.adapters.kafka.test_log_contract import InKafka, LogContract, Topics
from tests.core.examples import claim
from tests.lab import api_proxy
from tests.lab.api_proxy import ApiProxy
from tests.lab.jars import KAFKA_3
from tests.lab.kafka import KafkaBroker, OldKafkaBroker
from tests.lab.topics import create_topic, produce
from tests.lab.waiting import wait_until

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

    def look(self) -> GroupLag:
        """Look how far behind the group is."""
        return look([self.group], self.ledger, lambda _: self.log)[self.group.name]

    def poke(self) -> bool:
        """Look whether a record has waited for a day, as a sensor does."""
        condition = UnreadAtLeast(self.group, max_age=timedelta(days=1))
        [answer] = watch.ask([condition], lambda: self.ledger, lambda: self.log)
        assert isinstance(answer, Decision), answer
        return answer.is_met

    def run(self) -> tuple[Window, tuple[str, ...]]:
        """Plan a window and commit it; return it with the warnings of the plan."""
        self.runs += 1
        service, run = WindowService(self.ledger, self.log), claim(f"run-{self.runs}")
        [planned] = service.plan(self.group, run, lambda _: True)
        attempt = service.start_attempt(planned.window, run)
        service.end_attempt(attempt, Outcome.SUCCEEDED, planned.window.span)
        service.check_same_topics(planned.window)
        service.commit(planned.window.id, run, attempt)
        return planned.window, planned.warnings


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
        # On ZooKeeper, a topic is gone for clients before its name is free.
        wait_until(lambda: _is_created(topics, topic), what="the topic is made again")
        assert topics.log.topic_ids([topic]) == {topic: UNKNOWN_ID}


def _is_created(topics: Topics, topic: str) -> bool:
    try:
        topics.create(topic)
    except KafkaException as exc:
        if exc.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise
    return True


def test_a_topic_whose_message_format_has_no_times_is_named_and_harms_no_other(
    old: OldKafkaBroker, tmp_path: Path, topic: str
) -> None:
    world, without = World(tmp_path, old, topic), f"{topic}-without"
    create_topic(old, without, 1, {"message.format.version": "0.9.0"})
    groups = [world.group, KafkaGroup("without", topics=[without])]
    for name, group in zip((topic, without), groups, strict=True):
        WindowService(world.ledger, world.log).plan(group, claim(group.name), lambda _: True)
        produce(old, name, 5)
    started = time.monotonic()
    with pytest.raises(KafkaLacksError, match=rf"ListOffsets by time for {without} \(UNSUPPORTED_FOR_MESSAGE_FORMAT"):
        world.log.offsets_at([TopicPartition(name, 0) for name in (topic, without)], datetime.now(UTC), LEVEL)
    assert time.monotonic() - started < 5
    found = look(groups, world.ledger, lambda _: world.log)
    assert (found["lake"].lag, found["lake"].error) == (5, None)
    assert found["lake"].lag_seconds is not None
    assert (found["without"].lag, found["without"].lag_seconds) == (5, None)
    assert without in str(found["without"].error)


@pytest.fixture(scope="module")
def kafka_3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """Run a broker of version 3.7."""
    with KafkaBroker(tmp_path_factory.mktemp("kafka-3"), jars=KAFKA_3) as broker:
        yield broker


class TestKafka37(LogContract):
    """Kafka 3.7, which many still run."""

    @pytest.fixture
    def topics(self, kafka_3: KafkaBroker) -> Topics:
        """Return topics of the broker."""
        return InKafka(kafka_3)


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
    window, warnings = world.run()
    assert (window.span, warnings) == (2, ())


def test_without_the_ends_of_leader_epochs_none_is_known_and_nobody_waits(world: World, proxy: ApiProxy) -> None:
    proxy.without({api_proxy.OFFSET_FOR_LEADER_EPOCH: None})
    started = time.monotonic()
    assert world.log.epoch_ends([PartitionEpoch(TopicPartition(world.topic, 0), 0)]) == {}
    assert time.monotonic() - started < 5


def test_without_describe_configs_the_retention_is_unknown_and_can_be_set(world: World, proxy: ApiProxy) -> None:
    world.run()
    produce(world.kafka, world.topic, 5)
    proxy.without({api_proxy.DESCRIBE_CONFIGS: None})
    found = world.look()
    assert (found.lag, found.verdict, found.headroom_seconds) == (5, "OK", None)
    assert [note for note in found.notes if "if Kafka does not support that, set KafkaGroup(retention=...)" in note]
    world.group = replace(world.group, retention=timedelta(days=7))
    assert world.look().headroom_seconds


def test_without_lookups_by_time_lag_is_known_and_whoever_needs_a_time_is_refused_at_once(
    world: World, proxy: ApiProxy
) -> None:
    world.run()
    produce(world.kafka, world.topic, 5)
    proxy.without({api_proxy.LIST_OFFSETS: 5})
    proxy.refuses_times = True
    found = world.look()
    assert (found.lag, found.lag_seconds) == (5, None)
    assert "does not support ListOffsets by time (UNSUPPORTED_VERSION)" in str(found.error)
    started = time.monotonic()
    with pytest.raises(KafkaLacksError, match=r"does not support ListOffsets by time.*compatibility.md"):
        world.log.offsets_at([TopicPartition(world.topic, 0)], datetime(2024, 3, 1, tzinfo=UTC), LEVEL)
    assert time.monotonic() - started < 5
    assert world.run()[0].span == 5, "a plan that needs no time is made"


def test_without_transactions_a_store_says_what_to_set_and_plain_commits_work(world: World, proxy: ApiProxy) -> None:
    proxy.without(dict.fromkeys(api_proxy.TRANSACTIONS))
    after = {TopicPartition(world.topic, 0): 3}
    with pytest.raises(StoreRefusedError, match="no transactions: add commit=plain to the address"):
        KafkaStore("kafka://", world.config, 5).advance(world.topic, {}, after, "w")
    plain = KafkaStore("kafka://?commit=plain", world.config, 5, is_transactional=False)
    plain.advance(world.topic, {}, after, "w")
    assert plain.read(world.topic, [world.topic]) == after


def test_without_a_list_of_groups_a_store_says_so_at_once(world: World, proxy: ApiProxy) -> None:
    proxy.without({api_proxy.LIST_GROUPS: None})
    with pytest.raises(StoreRefusedError, match="does not support ListGroups"):
        KafkaStore("kafka://", world.config, 20).check_writable(world.topic)


# What looks cost.


def test_a_look_again_at_a_thousand_partitions_asks_for_no_time_again_and_a_sensor_for_one(
    world: World, proxy: ApiProxy
) -> None:
    wide = f"{world.topic}-wide"
    create_topic(world.kafka, wide, 1000, {"retention.ms": "-1"})
    base = datetime.now(UTC) - timedelta(days=3)
    fill_evenly(world.kafka, wide, 1000, base)
    world.group = replace(world.group, topics=[wide], max_offsets=20_000)
    world.run()
    counts = []
    for _ in range(3):
        proxy.requests.clear()
        found = world.look()
        assert found.lag == 20_000
        assert found.lag_seconds == pytest.approx(1.5 * 86_400, rel=0.2)
        counts.append(proxy.requests[api_proxy.LIST_OFFSETS])
    first, *again = counts
    assert 2 < first <= MOST_LOOKUPS + 1, "the bounds are two requests"
    assert again == [2, 2]
    proxy.requests.clear()
    assert world.poke()
    assert proxy.requests[api_proxy.LIST_OFFSETS] == 3, "the bounds, and the one time that the sensor waits for"


def fill_evenly(kafka: KafkaBroker, topic: str, partitions: int, since: datetime) -> None:
    """Write 40 records into each partition, from a moment up to now."""
    producer, step = Producer({**kafka.client_config(), "linger.ms": 50}), (datetime.now(UTC) - since) / 40
    for number in range(40):
        at = int((since + number * step).timestamp() * 1000)
        for partition in range(partitions):
            producer.produce(topic, b"1", partition=partition, timestamp=at)
            producer.poll(0)
        assert not producer.flush(60)
