"""KafkaLog on real brokers: its answers, and its errors, which come in time."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import time
import traceback
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AclOperation, AdminClient

from airflow_kafka_offsets.adapters.kafka import client as kafka_client
from airflow_kafka_offsets.adapters.kafka import log as kafka_log
from airflow_kafka_offsets.adapters.kafka import messages
from airflow_kafka_offsets.adapters.kafka.log import KafkaLog
from airflow_kafka_offsets.core.errors import BadInputError, KafkaAnswerError, KafkaRefusedError, KafkaUnavailableError
from airflow_kafka_offsets.core.lag.retention import Retention
from airflow_kafka_offsets.core.lag.search import Hit, Probe
from airflow_kafka_offsets.core.leader_epochs import PartitionEpoch
from airflow_kafka_offsets.core.log import Bounds, IsolationLevel, LogSnapshot
from airflow_kafka_offsets.core.offsets import TopicPartition
from tests.lab.kafka import KafkaBroker
from tests.lab.processes import free_port, wait_until
from tests.lab.topics import (
    abort_transaction,
    add_partitions,
    commit_transaction,
    create_topic,
    delete_records,
    delete_topic,
    open_transaction,
    produce,
)
from tests.lab.waiting import run_to_end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.lab.kafka import SecureKafkaBroker

COMMITTED = IsolationLevel.READ_COMMITTED
UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED
BASE = datetime(2024, 3, 1, tzinfo=UTC)

LOGIN, DOWN, TRANSPORT = KafkaError._AUTHENTICATION, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT

REPORTED_LATE = 2.0
"""What a lookup may take beyond its time-out."""


class Recorder(AdminClient):
    """An AdminClient that counts its requests."""

    made: list[Recorder]

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self.calls: list[str] = []
        type(self).made.append(self)

    def describe_topics(self, *args: Any, **kwargs: Any) -> Any:
        """Count, then ask."""
        self.calls.append("describe_topics")
        return super().describe_topics(*args, **kwargs)

    def list_offsets(self, *args: Any, **kwargs: Any) -> Any:
        """Count, then ask."""
        self.calls.append("list_offsets")
        return super().list_offsets(*args, **kwargs)


class ForgetfulOnce(Recorder):
    """An AdminClient whose first question meets a broker without the topic."""

    def describe_topics(self, topics: Any, **kwargs: Any) -> Any:
        """Ask for another topic."""
        if self.calls:
            return super().describe_topics(topics, **kwargs)
        [future] = super().describe_topics(TopicCollection(["absent"]), **kwargs).values()
        return dict.fromkeys(topics.topic_names, future)


class SilentOnce(Recorder):
    """An AdminClient whose first ListOffsets meets a leader that does not answer, as librdkafka reports it."""

    def list_offsets(self, *args: Any, **kwargs: Any) -> Any:
        """Report success without an offset."""
        answers = super().list_offsets(*args, **kwargs)
        return answers if self.calls.count("list_offsets") > 2 else {tp: _no_offset() for tp in answers}


def _no_offset() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(SimpleNamespace(offset=-1001, timestamp=-1, leader_epoch=None))
    return future


@pytest.fixture(autouse=True)
def fresh_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test find a client of another one."""
    monkeypatch.setattr(kafka_client, "_shared", {})


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[Recorder]:
    """Return the clients that are made from now on."""
    Recorder.made = []
    monkeypatch.setattr(kafka_client, "AdminClient", Recorder)
    return Recorder.made


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaBroker, KafkaBroker]]:
    """Run two brokers of one cluster; the second one can be stopped."""
    folder = tmp_path_factory.mktemp("pair")
    with KafkaBroker(folder / "first") as first, KafkaBroker(folder / "second", joins=first) as second:
        yield first, second


def log_of(broker: KafkaBroker, timeout: float = 60) -> KafkaLog:
    """Return a log whose user may do everything."""
    return KafkaLog(broker.client_config(), timeout)


def place(pair: tuple[KafkaBroker, KafkaBroker], topic: str, on_brokers: Sequence[int]) -> None:
    """Create a topic and wait until both brokers have it."""

    def created() -> bool:
        # Again, as a broker that was just resumed may be fenced still, and then takes no partition.
        with contextlib.suppress(KafkaException, TimeoutError):
            create_topic(pair[0], topic, on_brokers=on_brokers)
        return _has(pair[0], topic)

    wait_until(created, what=f"{topic} is created on {on_brokers}")
    wait_until(partial(_has, pair[1], topic), what=f"the second broker has {topic}")


def _has(broker: KafkaBroker, topic: str) -> bool:
    # A new client: it asks the broker that it was given.
    try:
        topics = AdminClient(broker.client_config()).list_topics(timeout=5).topics
    except KafkaException:
        return False
    return topic in topics and all(partition.leader >= 0 for partition in topics[topic].partitions.values())


def partitions_of(topic: str, *numbers: int) -> list[TopicPartition]:
    """Return some partitions of a topic, 0 if no number is given."""
    return [TopicPartition(topic, number) for number in numbers or (0,)]


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Fail if the block takes more than ten times as long, which is no matter of a busy machine."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < 10 * seconds


# What Kafka holds


def test_a_snapshot_has_the_topics_id_and_the_bounds_of_every_partition(kafka: KafkaBroker, topic: str) -> None:
    topic_id = create_topic(kafka, topic, 3)
    produce(kafka, topic, 7, partition=1)

    snapshot = log_of(kafka).snapshot([topic], COMMITTED)

    empty = Bounds(0, 0)
    p0, p1, p2 = partitions_of(topic, 0, 1, 2)
    assert snapshot == LogSnapshot({topic: topic_id}, {p0: empty, p1: Bounds(0, 7), p2: empty})


def test_a_topic_that_does_not_exist_is_left_out_and_not_created(kafka: KafkaBroker, topic: str) -> None:
    create_topic(kafka, topic)
    absent = f"{topic}-absent"
    for _ in range(2):
        assert set(log_of(kafka).snapshot([topic, absent], COMMITTED).topic_ids) == {topic}
    assert log_of(kafka).snapshot([absent], COMMITTED) == LogSnapshot({}, {})


def test_topic_ids_are_told_without_a_look_at_the_logs(kafka: KafkaBroker, topic: str, clients: list[Recorder]) -> None:
    topic_id = create_topic(kafka, topic)
    assert log_of(kafka).topic_ids([topic, f"{topic}-absent"]) == {topic: topic_id}
    assert set(clients[0].calls) == {"describe_topics"}


def test_a_topic_that_one_broker_does_not_know_yet_is_looked_for_again(
    kafka: KafkaBroker, topic: str, clients: list[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_client, "AdminClient", ForgetfulOnce)
    create_topic(kafka, topic)
    assert set(log_of(kafka).snapshot([topic], COMMITTED).topic_ids) == {topic}
    assert clients[0].calls == [*["describe_topics"] * 2, *["list_offsets"] * 2]
    monkeypatch.setattr(kafka_client, "_shared", {})
    assert set(log_of(kafka).topic_ids([topic])) == {topic}


def test_nothing_asked_is_answered_without_kafka() -> None:
    nowhere = KafkaLog({"bootstrap.servers": "127.0.0.1:1"}, 1)
    assert nowhere.snapshot([], COMMITTED) == LogSnapshot({}, {})
    assert nowhere.topic_ids([]) == {}
    assert nowhere.bounds([], COMMITTED) == {}
    assert nowhere.offsets_at([], BASE, COMMITTED) == {}
    assert nowhere.committed("group", []) == {}


def test_the_end_follows_the_isolation_level_while_a_transaction_is_open(kafka: KafkaBroker, topic: str) -> None:
    create_topic(kafka, topic)
    [tp] = partitions_of(topic)
    produce(kafka, topic, 5)
    transaction = open_transaction(kafka, topic, 10)
    produce(kafka, topic, 5)

    assert log_of(kafka).bounds([tp], COMMITTED)[tp] == Bounds(0, 5)
    assert log_of(kafka).bounds([tp], UNCOMMITTED)[tp] == Bounds(0, 20)
    assert log_of(kafka).snapshot([topic], COMMITTED).bounds[tp] == Bounds(0, 5)
    assert log_of(kafka).snapshot([topic], UNCOMMITTED).bounds[tp] == Bounds(0, 20)
    transaction.abort()


def test_markers_of_commits_and_aborts_take_an_offset_each(kafka: KafkaBroker, topic: str) -> None:
    create_topic(kafka, topic)
    [tp] = partitions_of(topic)
    commit_transaction(kafka, topic, 3)
    abort_transaction(kafka, topic, 2)
    assert log_of(kafka).bounds([tp], COMMITTED)[tp] == Bounds(0, 7)
    assert log_of(kafka).bounds([tp], UNCOMMITTED)[tp] == Bounds(0, 7)


def test_deleted_records_move_the_beginning(kafka: KafkaBroker, topic: str) -> None:
    create_topic(kafka, topic)
    [tp] = partitions_of(topic)
    produce(kafka, topic, 10)
    delete_records(kafka, topic, before=4)
    assert log_of(kafka).bounds([tp], COMMITTED)[tp] == Bounds(4, 10)


def test_records_deleted_under_an_open_transaction_leave_bounds_in_order(kafka: KafkaBroker, topic: str) -> None:
    create_topic(kafka, topic)
    [tp] = partitions_of(topic)
    transaction = open_transaction(kafka, topic, 10)
    delete_records(kafka, topic, before=6)
    assert log_of(kafka).bounds([tp], COMMITTED)[tp] == Bounds(6, 6)
    transaction.abort()


def test_an_added_partition_is_seen_at_once_by_a_client_that_knew_the_topic(kafka: KafkaBroker, topic: str) -> None:
    create_topic(kafka, topic, 2)
    log = log_of(kafka)
    assert len(log.snapshot([topic], COMMITTED).bounds) == 2
    add_partitions(kafka, topic, 3)
    produce(kafka, topic, 4, partition=2)

    added = TopicPartition(topic, 2)
    assert log.bounds([added], COMMITTED) == {added: Bounds(0, 4)}
    assert log.snapshot([topic], COMMITTED).bounds[added] == Bounds(0, 4)


def test_a_recreated_topic_has_another_id_and_the_bounds_of_its_new_log(kafka: KafkaBroker, topic: str) -> None:
    create_topic(kafka, topic)
    produce(kafka, topic, 9)
    log = log_of(kafka)
    before = log.snapshot([topic], COMMITTED)
    delete_topic(kafka, topic)
    gone = log.snapshot([topic], COMMITTED)
    create_topic(kafka, topic)
    produce(kafka, topic, 2)
    after = log.snapshot([topic], COMMITTED)

    [tp] = partitions_of(topic)
    assert gone == LogSnapshot({}, {})
    assert before.topic_ids[topic] != after.topic_ids[topic]
    assert (before.bounds[tp], after.bounds[tp]) == (Bounds(0, 9), Bounds(0, 2))


# Timestamps


@pytest.fixture(scope="module")
def stamped(kafka: KafkaBroker) -> TopicPartition:
    """Return a partition whose records have the timestamps 0, 5, 1 and 9 s after BASE; its neighbour is empty."""
    topic = f"stamped-{uuid.uuid4().hex[:12]}"
    create_topic(kafka, topic, 2, {"retention.ms": "-1"})
    for seconds in (0, 5, 1, 9):
        produce(kafka, topic, 1, timestamp_ms=kafka_log.epoch_milliseconds(BASE + timedelta(seconds=seconds)))
    return TopicPartition(topic, 0)


@pytest.mark.parametrize(
    ("seconds", "offset"),
    [
        pytest.param(-1, 0, id="before the first"),
        pytest.param(0, 0, id="exact"),
        pytest.param(0.0005, 1, id="half a millisecond after a record"),
        pytest.param(1, 1, id="out of order: the first that is not earlier"),
        pytest.param(5.001, 3, id="between"),
        pytest.param(9, 3, id="the last"),
        pytest.param(9.001, None, id="after the last"),
    ],
)
def test_a_time_is_the_first_offset_that_is_not_earlier(
    kafka: KafkaBroker, stamped: TopicPartition, seconds: float, offset: int | None
) -> None:
    moment = BASE + timedelta(seconds=seconds)
    assert log_of(kafka).offsets_at([stamped], moment, COMMITTED) == {stamped: offset}


def test_an_empty_partition_has_no_offset_at_any_time(kafka: KafkaBroker, stamped: TopicPartition) -> None:
    empty = TopicPartition(stamped.topic, 1)
    assert log_of(kafka).offsets_at([stamped, empty], BASE, COMMITTED) == {stamped: 0, empty: None}


def test_a_time_is_looked_up_at_the_isolation_level(kafka: KafkaBroker, topic: str) -> None:
    create_topic(kafka, topic)
    [tp] = partitions_of(topic)
    started = datetime.now(UTC) - timedelta(hours=1)
    transaction = open_transaction(kafka, topic, 3)
    assert log_of(kafka).offsets_at([tp], started, COMMITTED) == {tp: None}
    assert log_of(kafka).offsets_at([tp], started, UNCOMMITTED) == {tp: 0}
    transaction.abort()


@pytest.mark.parametrize("moment", [datetime(1969, 12, 31, tzinfo=UTC), datetime(2024, 1, 1)])
def test_a_time_that_kafka_would_misread_is_refused(moment: datetime) -> None:
    with pytest.raises(BadInputError, match=r"1970|zone"):
        KafkaLog({"bootstrap.servers": "127.0.0.1:1"}, 1).offsets_at(partitions_of("orders"), moment, COMMITTED)


# Consumer groups


def test_committed_offsets_are_those_of_the_group_and_none_where_there_is_none(kafka: KafkaBroker, topic: str) -> None:
    create_topic(kafka, topic, 2)
    produce(kafka, topic, 5)
    consumer = Consumer({**kafka.client_config(), "group.id": f"group-{topic}"})
    consumer.commit(offsets=[KafkaTopicPartition(topic, 0, 3)], asynchronous=False)
    consumer.close()

    p0, p1, absent = partitions_of(topic, 0, 1, 9)
    assert log_of(kafka).committed(f"group-{topic}", [p0, p1, absent]) == {p0: 3, p1: None, absent: None}
    assert log_of(kafka).committed(f"other-{topic}", [p0]) == {p0: None}


def test_a_commit_that_is_not_decided_is_no_answer(kafka: KafkaBroker, topic: str) -> None:
    create_topic(kafka, topic)
    group = f"group-{topic}"
    consumer = Consumer({**kafka.client_config(), "group.id": group})
    producer = Producer({**kafka.client_config(), "transactional.id": topic})
    producer.init_transactions(20)
    producer.begin_transaction()
    offsets = [KafkaTopicPartition(topic, 0, 1)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 20)

    [tp] = partitions_of(topic)
    with at_most(1 + REPORTED_LATE), pytest.raises(KafkaUnavailableError, match=group):
        log_of(kafka, timeout=1).committed(group, [tp])
    producer.commit_transaction(20)
    assert log_of(kafka).committed(group, [tp]) == {tp: 1}
    consumer.close()


# How it asks


def test_a_thousand_partitions_are_asked_for_in_a_few_calls(
    kafka: KafkaBroker, topic: str, clients: list[Recorder]
) -> None:
    create_topic(kafka, topic, 1100)
    produce(kafka, topic, 3, partition=1099)
    log_of(kafka).snapshot(
        [topic], COMMITTED
    )  # as often as it takes until the new leaders answer, and by as many clients
    client = clients[-1]
    client.calls.clear()

    snapshot = log_of(kafka).snapshot([topic], COMMITTED)

    assert len(snapshot.bounds) == 1100
    assert snapshot.bounds[TopicPartition(topic, 1099)] == Bounds(0, 3)
    assert clients[-1] is client
    assert client.calls == ["describe_topics", *["list_offsets"] * 4]


def test_every_lookup_describes_its_topics_first(kafka: KafkaBroker, topic: str, clients: list[Recorder]) -> None:
    create_topic(kafka, topic)
    log = log_of(kafka)
    log.bounds(partitions_of(topic), COMMITTED)
    log.offsets_at(partitions_of(topic), BASE, COMMITTED)
    [client] = clients
    assert client.calls == ["describe_topics", "list_offsets", "list_offsets", "describe_topics", "list_offsets"]


def test_a_leader_that_did_not_answer_is_asked_again_and_its_minus_1001_is_no_offset(
    kafka: KafkaBroker, topic: str, clients: list[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_client, "AdminClient", SilentOnce)
    create_topic(kafka, topic)
    [tp] = partitions_of(topic)
    assert log_of(kafka).bounds([tp], COMMITTED) == {tp: Bounds(0, 0)}
    assert clients[0].calls == ["describe_topics", "list_offsets", "list_offsets"] * 2


def test_a_time_that_no_leader_answered_is_an_error_and_not_none(
    kafka: KafkaBroker, topic: str, clients: list[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SilentOnce, "list_offsets", lambda *args, **_: {tp: _no_offset() for tp in args[1]})
    monkeypatch.setattr(kafka_client, "AdminClient", SilentOnce)
    create_topic(kafka, topic)
    with pytest.raises(KafkaUnavailableError, match=f"no answer from its leader .{topic}-0"):
        log_of(kafka, timeout=1).offsets_at(partitions_of(topic), BASE, COMMITTED)


def test_all_lookups_of_a_connection_share_one_client(kafka: KafkaBroker, topic: str, clients: list[Recorder]) -> None:
    create_topic(kafka, topic)

    def look(_: int) -> LogSnapshot:
        return log_of(kafka).snapshot([topic], COMMITTED)

    with ThreadPoolExecutor(8) as pool:
        assert len({str(snapshot) for snapshot in pool.map(look, range(40))}) == 1
    assert len(clients) == 1
    KafkaLog({**kafka.client_config(), "client.id": "other"}, 20).snapshot([topic], COMMITTED)
    assert len(clients) == 2


def test_a_process_keeps_a_limited_number_of_clients(
    kafka: KafkaBroker, topic: str, clients: list[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_client, "MAX_CLIENTS", 2)
    for number in range(4):
        KafkaLog({**kafka.client_config(), "client.id": str(number)}, 20).snapshot([topic], COMMITTED)
    assert len(clients) == 4
    assert len(kafka_client._shared) == 2


_FORKING = """
import os, sys
from airflow_kafka_offsets.adapters.kafka.log import KafkaLog
from airflow_kafka_offsets.core.log import IsolationLevel

# Two of them: one could still be destroyed by a child that ends.
logs = [KafkaLog({"bootstrap.servers": sys.argv[1], "client.id": name}, 120) for name in "ab"]
expected = [log.snapshot([sys.argv[2]], IsolationLevel.READ_COMMITTED) for log in logs]
child = os.fork()
answers = [log.snapshot([sys.argv[2]], IsolationLevel.READ_COMMITTED) for log in logs]
if child == 0:
    sys.exit(0 if answers == expected else 3)
_, status = os.waitpid(child, 0)
sys.exit(0 if status == 0 and answers == expected else f"the child ended with status {status}")
"""


def test_a_forked_process_uses_a_client_of_its_own_and_ends_well(kafka: KafkaBroker, topic: str) -> None:
    create_topic(kafka, topic)
    command = [sys.executable, "-c", _FORKING, kafka.bootstrap_servers, topic]
    done = run_to_end(command)
    assert (done.returncode, done.stderr) == (0, "")


def test_settings_of_consumers_and_producers_in_the_connection_do_no_harm(
    kafka: KafkaBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(kafka, topic)
    foreign = {
        "group.id": "group",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "max.poll.interval.ms": 1000,
        "session.timeout.ms": 500,
        "isolation.level": "read_uncommitted",
        "acks": "all",
        "linger.ms": 5,
        "enable.idempotence": True,
        "transactional.id": "tx",
        "partitioner": "murmur2_random",
        "on_commit": print,
        "log_cb": print,
    }
    settings = kafka_log.client_config({**kafka.client_config(), **foreign})
    assert settings == {"log_level": 0, **kafka.client_config()}
    log = KafkaLog({**kafka.client_config(), **foreign}, 20)
    assert topic in log.snapshot([topic], COMMITTED).topic_ids
    assert log.committed("group", partitions_of(topic)) == {TopicPartition(topic, 0): None}


@pytest.mark.slow
def test_the_users_own_error_callback_still_hears_everything() -> None:
    heard: list[KafkaError] = []
    config = {"bootstrap.servers": f"127.0.0.1:{free_port()}", "error_cb": heard.append}
    with pytest.raises(KafkaUnavailableError):
        KafkaLog(config, 1).snapshot(["orders"], COMMITTED)
    assert KafkaError._TRANSPORT in {error.code() for error in heard}


@pytest.mark.slow
def test_a_lookup_hears_all_about_a_new_client_and_no_old_news_about_a_used_one() -> None:
    client = kafka_client._Client({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    first, second, third = (kafka_client.KafkaRequests({}, 1) for _ in range(3))
    time.sleep(0.5)  # no one asks, librdkafka reports all the same: that all brokers are down, only once
    with client.reporting_to(first):
        client.admin.poll(0)
    with client.reporting_to(second):
        assert DOWN in {error.code() for error in second.reports}
        assert list(second.reports) == list(first.reports)
    client.has_answered = True
    time.sleep(0.5)
    with client.reporting_to(third):
        assert not third.reports
        assert client.admin.poll(0) == 0


def test_a_client_has_answered_when_a_broker_said_anything(kafka: KafkaBroker) -> None:
    server = f"127.0.0.1:{free_port()}"
    for servers, has_answered in ((server, False), (kafka.bootstrap_servers, True)):
        requests = kafka_client.KafkaRequests({"bootstrap.servers": servers, "log_level": 0}, 1)
        client = kafka_client.shared_client(requests.config).get(requests.config)
        wanted = TopicCollection(["absent"])
        requests.send("Metadata", lambda admin, s, wanted=wanted: admin.describe_topics(wanted, request_timeout=s))
        assert client.has_answered == has_answered


# Refusals


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sasl.password": "hunter2"}, ["refused the login", "invalid credentials", "check sasl.mechanism"]),
        ({"sasl.username": "no one"}, ["refused the login", "invalid credentials", "sasl.username"]),
        ({"sasl.mechanism": "PLAIN"}, ["refused the login", "SCRAM-SHA-512", "sasl.mechanism"]),
        ({"ssl.ca.location": "other-ca.crt"}, ["TLS", "certificate verify failed", "ssl.ca.location"]),
        ({"ssl.ca.location": "absent.crt"}, ["The settings of Kafka", "ssl.ca.location"]),
        ({"security.protocol": "SASL_SLL"}, ["The settings of Kafka", "SASL_SLL"]),
    ],
    ids=["wrong password", "unknown user", "wrong mechanism", "untrusted CA", "no CA file", "no such protocol"],
)
def test_a_connection_that_is_wrong_is_refused_at_once(
    kafka_sasl: SecureKafkaBroker, change: dict[str, str], words: list[str]
) -> None:
    if "ssl.ca.location" in change:
        change = {"ssl.ca.location": str(kafka_sasl.tls / change["ssl.ca.location"])}
    log = KafkaLog({**kafka_sasl.client_config("alice"), **change}, 30)
    for _ in range(2):  # the second one must not find the first one's client, and nothing to hear
        with at_most(5), pytest.raises(KafkaRefusedError) as caught:
            log.snapshot(["orders"], COMMITTED)
        assert all(word in str(caught.value) for word in (kafka_sasl.bootstrap_servers, *words))
        assert "hunter2" not in str(caught.value)


def test_a_topic_without_acl_is_refused_with_what_it_needs(kafka_sasl: SecureKafkaBroker, topic: str) -> None:
    create_topic(kafka_sasl, topic)
    log = KafkaLog(kafka_sasl.client_config("alice"), 30)
    lookups = [
        partial(log.snapshot, [topic], COMMITTED),
        partial(log.topic_ids, [topic]),
        partial(log.bounds, partitions_of(topic), COMMITTED),
        partial(log.offsets_at, partitions_of(topic), BASE, COMMITTED),
    ]
    for look in lookups:
        with (
            at_most(5),
            pytest.raises(KafkaRefusedError, match=f"topic {topic}\\. Grant the ACL Describe on Topic") as caught,
        ):
            look()
        assert caught.value.topics == {topic}


def test_committed_offsets_need_rights_on_group_and_topic(kafka_sasl: SecureKafkaBroker, topic: str) -> None:
    create_topic(kafka_sasl, topic)
    log = KafkaLog(kafka_sasl.client_config("bob"), 30)
    group = f"group-{topic}"
    with at_most(5), pytest.raises(KafkaRefusedError, match=f"topic {topic}\\. Grant the ACL Describe on Topic"):
        log.committed(group, partitions_of(topic))
    kafka_sasl.allow("bob", AclOperation.DESCRIBE, topic=topic)
    with at_most(5), pytest.raises(KafkaRefusedError, match=f"group {group}\\. Grant the ACL Describe on Group"):
        log.committed(group, partitions_of(topic))
    kafka_sasl.allow("bob", AclOperation.DESCRIBE, group=group)
    assert log.committed(group, partitions_of(topic)) == {TopicPartition(topic, 0): None}
    assert log.snapshot([topic], COMMITTED).bounds == {TopicPartition(topic, 0): Bounds(0, 0)}


def test_times_need_describe_and_the_configuration_a_right_of_its_own(
    kafka_sasl: SecureKafkaBroker, topic: str
) -> None:
    # Records of today: a broker deletes a segment that is older than the retention, at a moment of its own.
    create_topic(kafka_sasl, topic, config={"retention.ms": str(24 * 3600 * 1000)})
    now_ms = int(time.time() * 1000)
    produce(kafka_sasl, topic, 7, timestamp_ms=now_ms)
    log, probe = KafkaLog(kafka_sasl.client_config("bob"), 30), Probe(TopicPartition(topic, 0), 0)
    with at_most(5), pytest.raises(KafkaRefusedError, match=f"topic {topic}\\. Grant the ACL Describe on Topic"):
        log.first_records([probe])
    kafka_sasl.allow("bob", AclOperation.DESCRIBE, topic=topic)
    assert log.first_records([probe]) == {probe: Hit(0, now_ms)}
    assert log.retentions([topic]) == {}
    kafka_sasl.allow("bob", AclOperation.DESCRIBE_CONFIGS, topic=topic)
    assert log.retentions([topic]) == {topic: Retention(timedelta(days=1))}


def test_to_ask_for_the_end_of_a_leader_epoch_needs_no_more_than_describe(
    kafka_sasl: SecureKafkaBroker, topic: str
) -> None:
    create_topic(kafka_sasl, topic)
    produce(kafka_sasl, topic, 7)
    log = KafkaLog(kafka_sasl.client_config("alice"), 30)
    kafka_sasl.allow("alice", AclOperation.DESCRIBE, topic=topic)
    epoch = PartitionEpoch(TopicPartition(topic, 0), 0)
    assert log.epoch_ends([epoch]) == {epoch: 7}


@pytest.mark.slow
def test_a_kafka_that_can_not_be_asked_for_the_end_of_a_leader_epoch_is_no_error() -> None:
    nobody = KafkaLog({"bootstrap.servers": f"127.0.0.1:{free_port()}"}, 1)
    assert nobody.epoch_ends([PartitionEpoch(TopicPartition("orders", 0), 0)]) == {}


def test_no_secret_is_in_an_error_its_traceback_a_log_line_or_a_repr(
    kafka_sasl: SecureKafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    config = {**kafka_sasl.client_config("alice"), "sasl.password": "hunter2", "ssl.key.password": "hunter3"}
    shown = [repr(KafkaLog(config, 1)), kafka_client.digest(config)]
    # The text of librdkafka repeats the last one.
    for change in ({}, {"bootstrap.servers": f"127.0.0.1:{free_port()}"}, {"security.protocol": "hunter2"}):
        with pytest.raises(KafkaAnswerError) as caught:
            KafkaLog({**config, **change}, 1).snapshot(["orders"], COMMITTED)
        shown += [repr(caught.value), *traceback.format_exception(caught.value)]
    assert "hunter" not in " ".join([*shown, caplog.text])
    assert "***" in str(caught.value)


# No answer


def unreachable(secure: SecureKafkaBroker, plain: KafkaBroker) -> dict[str, dict[str, str]]:
    """Return connections that lead nowhere."""
    login = secure.client_config("alice")
    return {
        "refused": {"bootstrap.servers": f"127.0.0.1:{free_port()}"},
        "unresolvable": {"bootstrap.servers": "no-such-host.invalid:9092"},
        "plaintext to SASL_SSL": {"bootstrap.servers": secure.bootstrap_servers},
        "SSL to SASL_SSL": {**login, "security.protocol": "SSL"},
        "SASL_SSL to plaintext": {**login, "bootstrap.servers": plain.bootstrap_servers},
    }


def failure(look: Callable[[], object], timeout: float) -> KafkaUnavailableError:
    """Return the error that a lookup raises, in time."""
    with at_most(timeout + REPORTED_LATE), pytest.raises(KafkaUnavailableError) as caught:
        look()
    return caught.value


@pytest.fixture(scope="module")
def unreached(kafka_sasl: SecureKafkaBroker, kafka: KafkaBroker) -> dict[str, KafkaUnavailableError]:
    """Return the error of each connection that leads nowhere: they are waited for side by side."""
    connections = unreachable(kafka_sasl, kafka)
    looks = [partial(KafkaLog(config, 10).snapshot, ["orders"], COMMITTED) for config in connections.values()]
    with ThreadPoolExecutor(len(looks)) as pool:
        return dict(zip(connections, pool.map(partial(failure, timeout=10), looks), strict=True))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("refused", "Connection refused"),
        ("unresolvable", "Failed to resolve 'no-such-host.invalid:9092'"),
        # "check" is our word, the other ones those of a librdkafka that gives a reason, as 2.6 does.
        ("plaintext to SASL_SSL", r"(check|incorrect) security\.protocol"),
        ("SSL to SASL_SSL", r"(check|verify that) security\.protocol"),
        # "SSL handshake failed", or "... reset by peer (... in state SSL_HANDSHAKE)": who closes first is chance.
        ("SASL_SSL to plaintext", "SSL.handshake"),
    ],
)
def test_a_broker_that_is_not_reached_is_unavailable_and_the_error_says_why(
    unreached: dict[str, KafkaUnavailableError], name: str, why: str
) -> None:
    error = unreached[name]
    assert re.search(why, str(error), re.IGNORECASE)
    assert "orders" in str(error)


@pytest.mark.slow
def test_every_lookup_is_bounded() -> None:
    server = f"127.0.0.1:{free_port()}"
    log = KafkaLog({"bootstrap.servers": server}, 1)
    [tp] = partitions_of("orders")
    looks = [
        partial(log.bounds, [tp], COMMITTED),
        partial(log.offsets_at, [tp], BASE, COMMITTED),
        partial(log.committed, "group", [tp]),
    ]
    with ThreadPoolExecutor(len(looks)) as pool:
        errors = list(pool.map(partial(failure, timeout=1), looks))
    assert all(f"Kafka at {server}" in str(error) for error in errors)
    assert all("Connection refused" in str(error) for error in errors)


@pytest.mark.parametrize("address", ["no-such-host.invalid:9092", "127.0.0.1:1"])
def test_one_wrong_address_among_good_ones_does_no_harm(kafka: KafkaBroker, topic: str, address: str) -> None:
    create_topic(kafka, topic)
    for servers in (f"{address},{kafka.bootstrap_servers}", f"{kafka.bootstrap_servers},{address}"):
        assert KafkaLog({"bootstrap.servers": servers}, 20).snapshot([topic], COMMITTED).topic_ids


def test_a_partition_that_does_not_exist_is_named(kafka: KafkaBroker, topic: str) -> None:
    create_topic(kafka, topic)
    expected = pytest.raises(KafkaUnavailableError, match=rf"no such partition \({topic}-7\)")
    with at_most(1 + REPORTED_LATE), expected as caught:
        log_of(kafka, timeout=1).bounds(partitions_of(topic, 0, 7), COMMITTED)
    assert caught.value.topics == {topic}


@pytest.mark.kafka
def test_a_broker_that_hangs_is_an_error_and_answers_again_afterwards(
    pair: tuple[KafkaBroker, KafkaBroker], topic: str
) -> None:
    first, second = pair
    place(pair, topic, [1])
    log = log_of(first, timeout=2)
    before = log.snapshot([topic], COMMITTED)
    first.suspend()
    second.suspend()
    try:
        with at_most(2 + REPORTED_LATE), pytest.raises(KafkaUnavailableError, match="did not answer within"):
            log.snapshot([topic], COMMITTED)
        with at_most(2 + REPORTED_LATE), pytest.raises(KafkaUnavailableError, match="did not answer within"):
            log.committed("group", partitions_of(topic))
    finally:
        first.resume()
        second.resume()
    assert log_of(first).snapshot([topic], COMMITTED) == before


@pytest.mark.kafka
def test_a_leader_that_hangs_fails_the_lookup_and_gives_no_offset(
    pair: tuple[KafkaBroker, KafkaBroker], topic: str
) -> None:
    first, second = pair
    place(pair, topic, [1, 2])
    log = log_of(first, timeout=3)
    before = log.snapshot([topic], COMMITTED)
    second.suspend()
    try:
        with at_most(3 + REPORTED_LATE), pytest.raises(KafkaUnavailableError, match=topic):
            log.snapshot([topic], COMMITTED)
        p0, _ = partitions_of(topic, 0, 1)
        assert log_of(first, timeout=10).bounds([p0], COMMITTED) == {p0: Bounds(0, 0)}
    finally:
        second.resume()
    assert log_of(first).snapshot([topic], COMMITTED) == before


@pytest.mark.kafka
def test_a_partition_without_leader_is_named_until_its_broker_is_back(
    pair: tuple[KafkaBroker, KafkaBroker], topic: str
) -> None:
    first, second = pair
    place(pair, topic, [1, 2])
    log = log_of(first)
    before = log.snapshot([topic], COMMITTED)
    second.stop()
    with ThreadPoolExecutor(1) as pool:
        try:
            # Longer than one request: the client may first ask the broker that is gone.
            with at_most(8 + REPORTED_LATE), pytest.raises(KafkaUnavailableError, match=rf"no leader \({topic}-1\)"):
                log_of(first, timeout=8).snapshot([topic], COMMITTED)
            assert log_of(first).topic_ids([topic]) == before.topic_ids
        finally:
            back = pool.submit(second.start)
        # Asked while the broker starts: the lookup waits for it.
        assert log_of(first, timeout=60).snapshot([topic], COMMITTED) == before
        back.result()


# Rules without a broker


def reported(*codes: int) -> list[KafkaError]:
    """Return reports as librdkafka makes them."""
    return [KafkaError(code, f"report {number}") for number, code in enumerate(codes)]


@pytest.mark.parametrize(
    ("codes", "is_refused"),
    [
        ((LOGIN, DOWN, LOGIN), True),
        ((LOGIN, DOWN), False),
        ((LOGIN, LOGIN, LOGIN), False),
        ((TRANSPORT, DOWN, TRANSPORT), False),
        ((), False),
    ],
    ids=["twice", "once: it may be going down", "others may answer", "it may come back", "nothing"],
)
def test_only_a_refusal_by_all_that_was_repeated_ends_a_lookup_early(codes: tuple[int, ...], is_refused: bool) -> None:
    assert bool(messages.refusal(reported(*codes))) == is_refused


def test_a_handshake_that_fails_at_once_is_a_refusal_although_its_code_is_that_of_lost_transport() -> None:
    at_once = KafkaError(TRANSPORT, "error:0A000086:SSL routines::certificate verify failed (after 11ms)")
    assert messages.refusal([at_once, KafkaError(DOWN), at_once]) is at_once
    lookup = kafka_client.KafkaRequests({"bootstrap.servers": "kafka:9093"}, 5)
    lookup.reports.append(at_once)
    assert "could not be reached over TLS" in str(lookup.unavailable({"orders": "no answer"}))


def test_the_hint_names_the_last_cause_and_not_that_all_are_down() -> None:
    assert "report 1" in messages.hint(reported(TRANSPORT, TRANSPORT, DOWN))
    assert "security.protocol" in messages.hint(reported(DOWN))
    assert "Check the brokers" in messages.hint([])


def test_an_error_names_each_reason_once_and_counts_what_it_does_not_name() -> None:
    many = {TopicPartition("orders", number): "no leader" for number in range(12)}
    sentence = messages.by_reason({**many, TopicPartition("orders", 12): "no answer"})
    assert sentence.startswith("no leader (orders-0, orders-1, ")
    assert "orders-9, and 2 more); no answer (orders-12)" in sentence


def test_a_connection_is_known_by_what_its_callbacks_are_and_were_given() -> None:
    def token(region: str, config: str) -> tuple[str, float]:
        return region + config, 0.0

    def of(**settings: object) -> str:
        return kafka_client.digest(settings)

    assert of(oauth_cb=partial(token, "eu")) == of(oauth_cb=partial(token, "eu"))
    assert of(oauth_cb=partial(token, "eu")) != of(oauth_cb=partial(token, "us"))
    assert of(a=1, b=2) == of(b=2, a=1) != of(a=2, b=1)


def test_a_timeout_is_never_one_that_librdkafka_can_not_bear() -> None:
    for timeout in (0, 0.0001, 1, 5000):
        requests = kafka_client.KafkaRequests({}, KafkaLog({}, timeout)._timeout)
        assert 1 <= requests.request_seconds() <= 3600
    past = kafka_client.KafkaRequests({}, -10)
    assert past.request_seconds() == 1


def test_times_are_rounded_up_to_kafkas_milliseconds() -> None:
    moments: Mapping[int, timedelta] = {0: timedelta(), 1: timedelta(microseconds=1), 1500: timedelta(seconds=1.5)}
    for milliseconds, moment in moments.items():
        assert kafka_log.epoch_milliseconds(datetime(1970, 1, 1, tzinfo=UTC) + moment) == milliseconds
