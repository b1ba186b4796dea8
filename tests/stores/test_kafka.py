"""Offsets as those of a consumer group on a real broker: the contract, and the view of Kafka's own tools."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Kafkas
from confluent_kafka.admin import AclOperation

from airflow_kafka_offsets.adapters.stores import kafka as adapter
from airflow_kafka_offsets.adapters.stores.kafka import CLOSING, PREFIX, KafkaStore
from airflow_kafka_offsets.core.errors import (
    OUTCOME_OPEN,
    ConcurrentChangeError,
    StoreDriftError,
    StoreOutcomeUnknownError,
    StoreRefusedError,
    StoreUnavailableError,
)
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.store.guarantees import Compares
from airflow_kafka_offsets.ports import OffsetStore
from tests.lab.kafka import KafkaBroker, SecureKafkaBroker
from tests.lab.kafka_tools import kafka_consumer_groups
from tests.lab.processes import LOOPBACK, free_port, wait_until
from tests.lab.proxy import Proxy
from tests.lab.topics import create_topic, delete_topic, produce
from tests.lab.waiting import ANSWER, LONGEST
from tests.stores.contract import WRITERS, StoreContract, at

pytestmark = [pytest.mark.kafka, pytest.mark.server]


class ProxiedBroker(KafkaBroker):
    """A broker with one more listener, which is advertised at the port of a proxy."""

    def __init__(self, folder, inner: int, outer: int) -> None:  # type: ignore[no-untyped-def]
        super().__init__(folder)
        self._inner, self._outer = inner, outer

    def _listeners(self) -> dict[str, str]:
        settings = super()._listeners()
        return settings | {
            "listeners": f"{settings['listeners']},PROXIED://{LOOPBACK}:{self._inner}",
            "advertised.listeners": f"{settings['advertised.listeners']},PROXIED://{LOOPBACK}:{self._outer}",
            "listener.security.protocol.map": f"{settings['listener.security.protocol.map']},PROXIED:PLAINTEXT",
        }


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaBroker, Proxy]]:
    """Run a broker, and the proxy before its second listener."""
    inner = free_port()
    with Proxy(inner) as proxy, ProxiedBroker(tmp_path_factory.mktemp("behind"), inner, proxy.port) as broker:
        # The first commit and the first transaction make topics of Kafka's own: a busy machine needs longer than what some tests wait.
        create_topic(broker, "first", 1)
        KafkaStore("kafka://", broker.client_config(), ANSWER, is_transactional=True).advance(
            "first", at("first", 0), at("first", 1)
        )
        yield broker, proxy


@pytest.fixture(scope="module")
def broker(behind: tuple[KafkaBroker, Proxy]) -> KafkaBroker:
    """Return the broker of this module."""
    return behind[0]


MANY = 1_200
_PARTITIONS = {
    "test_of_competing_writers_one_wins": 20,
    "test_an_answer_that_is_lost_leaves_all_or_nothing": 50,
    "test_a_connection_that_is_cut_leaves_all_or_nothing": 50,
}


_NEVER_ANSWERED = {"test_a_server_that_refuses_connections", "test_a_server_that_hangs"}


@pytest.fixture(scope="module")
def large_topic(broker: KafkaBroker) -> str:
    """Make a topic of many partitions, once."""
    create_topic(broker, "large", MANY)
    return "large"


def plain_commit(broker: KafkaBroker, group: str, offsets: dict[TopicPartition, int]) -> None:
    """Commit as any consumer of the group would."""
    commits = [Kafkas(tp.topic, tp.partition, offset) for tp, offset in offsets.items()]
    with contextlib.closing(Consumer({**broker.client_config(), "group.id": group})) as consumer:
        consumer.commit(offsets=commits, asynchronous=False)


def metadata_of(broker: KafkaBroker, group: str, topic: str, count: int) -> list[str | None]:
    """Return the metadata of each offset."""
    wanted = [Kafkas(topic, number) for number in range(count)]
    with contextlib.closing(Consumer({**broker.client_config(), "group.id": group})) as consumer:
        return [tp.metadata for tp in consumer.committed(wanted, timeout=ANSWER)]


def closers() -> list[str]:
    """Return the names of the threads that still close a consumer."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(CLOSING)]


def _advances(
    store: KafkaStore, group: str, before: dict[TopicPartition, int], after: dict[TopicPartition, int]
) -> bool:
    try:
        store.advance(group, before, after)
    except StoreRefusedError:
        return False
    return True


def _catch(act: Callable[[], object], errors: list[BaseException]) -> None:
    try:
        act()
    except Exception as exc:
        errors.append(exc)


class KafkaContract(StoreContract):
    names_windows = True
    many = MANY
    """Not 10,000: a broker of this size needs 50 s to make so many (20 topics of 500), and half as long again for the first
    commit. There is no limit: measured by hand with 10,000, see docs/stores/kafka.md."""
    cut_partitions = 50
    cuts = (0, 1_500, 5_000)
    chatters = True
    is_transactional = True

    @pytest.fixture
    def topic(self, request: pytest.FixtureRequest, broker: KafkaBroker, group: str) -> str:
        """Make the topics of the contract: Kafka keeps offsets for partitions that exist only."""
        if request.function.__name__ == "test_ten_thousand_partitions":
            return str(request.getfixturevalue("large_topic"))
        topic = f"orders.v1-{group[-8:]}"
        create_topic(broker, topic, _PARTITIONS.get(request.function.__name__, 3))
        create_topic(broker, f"{topic}.other")
        return topic

    def settle(self) -> None:
        wait_until(lambda: not closers(), what="no consumer sends its commit any more")

    def test_a_commit_whose_outcome_is_not_told_may_be_written(
        self,
        proxied: tuple[KafkaStore, Proxy],
        store: KafkaStore,
        group: str,
        topic: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        through, proxy = proxied
        store.advance(group, {}, at(topic, 5, 5))
        look_again = adapter._Commit._check_written

        def after_the_commit(commit: adapter._Commit) -> None:
            proxy.swallow_answers()
            look_again(commit)

        with monkeypatch.context() as patch:
            patch.setattr(adapter._Commit, "_check_written", after_the_commit)
            with pytest.raises(StoreOutcomeUnknownError):
                through.advance(group, at(topic, 5, 5), at(topic, 6, 6))
        proxy.heal()
        assert store.read(group, [topic]) == at(topic, 6, 6)
        through.advance(group, at(topic, 5, 5), at(topic, 6, 6))

    @pytest.fixture
    def open_store(self, broker: KafkaBroker) -> Callable[[], KafkaStore]:
        return lambda: KafkaStore("kafka://", broker.client_config(), 30, is_transactional=self.is_transactional)

    @pytest.fixture
    def store(self, open_store: Callable[[], KafkaStore]) -> KafkaStore:
        return open_store()

    @pytest.fixture
    def proxied(
        self, request: pytest.FixtureRequest, behind: tuple[KafkaBroker, Proxy]
    ) -> Iterator[tuple[KafkaStore, Proxy]]:
        # Where no answer can come, none is waited for.
        seconds = 2 if request.function.__name__ in _NEVER_ANSWERED else 5
        proxy = behind[1]
        proxy.heal()
        settings = {"bootstrap.servers": f"{LOOPBACK}:{proxy.port}", "client.id": uuid.uuid4().hex}
        yield KafkaStore("kafka://", settings, seconds, is_transactional=self.is_transactional), proxy
        proxy.heal()

    @pytest.fixture
    def look_alike_topics(self, broker: KafkaBroker, topic: str) -> None:
        """Make them; Kafka itself refuses names that differ by dot and underscore only."""
        for name in self.look_alikes(topic)[1:]:
            create_topic(broker, name)

    def look_alikes(self, topic: str) -> list[str]:
        return [topic, f"{topic}-1", f"{topic}.1", topic.upper()]

    @pytest.mark.usefixtures("look_alike_topics")
    def test_names_that_look_alike_are_kept_apart(self, store: OffsetStore, group: str, topic: str) -> None:
        super().test_names_that_look_alike_are_kept_apart(store, group, topic)

    # What Kafka adds

    @pytest.mark.parametrize("protocol", ["classic", "consumer"])
    def test_a_group_with_members_is_refused_before_anything_is_written(
        self, store: KafkaStore, broker: KafkaBroker, group: str, topic: str, protocol: str
    ) -> None:
        store.advance(group, {}, at(topic, 5))
        settings = {**broker.client_config(), "group.id": group, "group.protocol": protocol, "log_level": 0}
        with contextlib.closing(Consumer(settings)) as member:
            member.subscribe([topic])
            wait_until(lambda: member.poll(0.1) or member.assignment(), what="the member has partitions")
            with pytest.raises(StoreRefusedError, match=f"{group} has members"):
                store.check_writable(group)
            with pytest.raises(StoreRefusedError, match=rf"{group} has members .*\n.*--members --group {group}"):
                store.advance(group, at(topic, 5), at(topic, 6))
            assert store.read(group, [topic]) == at(topic, 5)
        wait_until(lambda: _advances(store, group, at(topic, 5), at(topic, 6)), what="the member has left")
        assert store.read(group, [topic]) == at(topic, 6)

    def test_a_partition_that_does_not_exist_is_named(self, store: KafkaStore, group: str, topic: str) -> None:
        with pytest.raises(StoreRefusedError, match=f"no partition {topic}.absent-0, {topic}.absent-1"):
            store.advance(group, {}, at(f"{topic}.absent", 1, 1))
        assert store.read(group, [topic, f"{topic}.absent"]) == {}
        with pytest.raises(StoreRefusedError, match=f"no partition {topic}.absent-0"):
            store.advance(group, at(topic, 1), at(topic, 1) | at(f"{topic}.absent", 1))

    @pytest.fixture
    def gone(self, store: KafkaStore, broker: KafkaBroker, group: str, topic: str) -> str:
        """Name a topic that was deleted when the group was at 5 in its topic, and at 7 in this one."""
        gone = f"{topic}.other"
        store.advance(group, {}, at(topic, 5) | at(gone, 7))
        delete_topic(broker, gone)
        return gone

    def test_what_went_with_its_topic_and_does_not_move_is_left_out(
        self, store: KafkaStore, group: str, topic: str, gone: str
    ) -> None:
        store.advance(group, at(topic, 5) | at(gone, 7), at(topic, 6) | at(gone, 7))
        assert store.read(group, [topic, gone]) == at(topic, 6)
        store.advance(group, at(gone, 7), at(gone, 7))

    def test_what_a_window_read_of_a_topic_that_is_gone_holds_up_no_other_topic(
        self, store: KafkaStore, group: str, topic: str, gone: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        store.advance(group, at(topic, 5) | at(gone, 7), at(topic, 6) | at(gone, 8))
        assert store.read(group, [topic, gone]) == at(topic, 6)
        assert f"Kafka no longer has {gone}-0" in caplog.text
        store.advance(group, {}, at(topic, 6) | at(gone, 8))  # as a copy does
        with pytest.raises(StoreRefusedError, match=f"no partition {gone}-0"):
            store.advance(group, at(gone, 7), at(gone, 8))

    def test_each_window_renews_each_partition_and_leaves_its_id(
        self, store: KafkaStore, broker: KafkaBroker, group: str, topic: str
    ) -> None:
        store.advance(group, {}, at(topic, 5, 10), f"{group}-000001")
        store.advance(group, at(topic, 5, 10), at(topic, 6, 10), f"{group}-000002")
        assert metadata_of(broker, group, topic, 2) == [f"{group}-000002"] * 2
        store.advance(group, at(topic, 6, 10), at(topic, 6, 10), f"{group}-000003")
        assert metadata_of(broker, group, topic, 2) == [f"{group}-000003"] * 2

    def test_kafkas_own_tool_shows_offset_and_lag(
        self, store: KafkaStore, broker: KafkaBroker, group: str, topic: str
    ) -> None:
        produce(broker, topic, 100)
        store.advance(group, {}, at(topic, 36, 0), f"{group}-000001")
        shown = kafka_consumer_groups(broker, "--describe", "--group", group)
        rows = {
            int(row[2]): (row[3], row[4], row[5]) for line in shown.splitlines() if (row := line.split())[:1] == [group]
        }
        assert rows == {0: ("36", "100", "64"), 1: ("0", "0", "0")}

    def test_what_kafkas_own_tool_sets_is_read_and_is_drift(
        self, store: KafkaStore, broker: KafkaBroker, group: str, topic: str
    ) -> None:
        produce(broker, topic, 100)
        store.advance(group, {}, at(topic, 36, 0), f"{group}-000001")
        arguments = ["--reset-offsets", "--group", group, "--topic", f"{topic}:0", "--to-offset", "50", "--execute"]
        kafka_consumer_groups(broker, *arguments)
        assert store.read(group, [topic]) == at(topic, 50, 0)
        with pytest.raises(StoreDriftError, match=r"found 50, expected 36 \(the old offset\) or 40 \(the new one\)"):
            store.advance(group, at(topic, 36, 0), at(topic, 40, 0))

    def test_a_wrong_password_is_refused_and_not_shown(self, kafka_sasl: SecureKafkaBroker, group: str) -> None:
        settings = kafka_sasl.client_config("alice") | {"sasl.password": "hunter2"}
        store = KafkaStore("kafka://", settings, ANSWER, is_transactional=self.is_transactional)
        with pytest.raises(StoreRefusedError, match="login") as caught:
            store.advance(group, {}, at("any", 5))
        assert "hunter2" not in str(caught.value)

    def test_a_missing_right_to_the_group_is_named(self, kafka_sasl: SecureKafkaBroker, group: str) -> None:
        topic = f"rights-{group[-8:]}"
        create_topic(kafka_sasl, topic)
        kafka_sasl.allow("bob", AclOperation.READ, topic=topic)
        kafka_sasl.allow("bob", AclOperation.DESCRIBE, group=group)
        for operation in (AclOperation.WRITE, AclOperation.DESCRIBE):
            kafka_sasl.allow("bob", operation, transactional_id=PREFIX + group)
        store = KafkaStore("kafka://", kafka_sasl.client_config("bob"), ANSWER, is_transactional=self.is_transactional)
        with pytest.raises(StoreRefusedError, match=f"ACL Read on Group {group}"):
            store.advance(group, {}, at(topic, 5))
        assert store.read(group, [topic]) == {}

    def test_more_than_the_declared_limit_is_refused(self, store: KafkaStore) -> None:  # type: ignore[override]
        assert store.guarantees.limit is None


class TestTransactional(KafkaContract):
    def test_a_plain_commit_at_the_moment_of_ours_is_noticed(
        self, store: KafkaStore, broker: KafkaBroker, group: str, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Overtaken(Producer):
            def commit_transaction(self, *args: object) -> None:
                plain_commit(broker, group, {TopicPartition(topic, 1): 99})
                super().commit_transaction(*args)

        with monkeypatch.context() as patch:
            patch.setattr(adapter, "Producer", Overtaken)
            with pytest.raises(
                StoreOutcomeUnknownError, match=rf"moment of the commit: \S+-1: 99 instead of 10{OUTCOME_OPEN}$"
            ):
                store.advance(group, {}, at(topic, 5, 10))
        assert store.read(group, [topic]) == at(topic, 5, 99)
        with pytest.raises(StoreDriftError, match=r"-1: found 99, expected"):
            store.advance(group, {}, at(topic, 5, 10))

    def test_a_broker_that_can_not_say_how_our_commit_ended_as_another_writer_began_is_asked_again(
        self, store: KafkaStore, broker: KafkaBroker, group: str, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Confused(Producer):
            def commit_transaction(self, *_: object) -> None:
                # What Kafka 4.2 answered once, when two writers changed the transaction at one moment.
                Producer({**broker.client_config(), "transactional.id": PREFIX + group}).init_transactions(20)
                raise KafkaException(KafkaError(KafkaError.UNKNOWN, "EndTxn commit failed", False, False, True))

        tries = iter([Confused, Producer])
        monkeypatch.setattr(adapter, "Producer", lambda settings: next(tries)(settings))
        store.advance(group, {}, at(topic, 5, 10))
        assert store.read(group, [topic]) == at(topic, 5, 10)
        assert list(tries) == []

    def test_a_transaction_that_a_broker_neither_commits_nor_ends_may_be_written(
        self, store: KafkaStore, group: str, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Broken(Producer):
            def commit_transaction(self, *_: object) -> None:
                raise KafkaException(KafkaError(KafkaError.UNKNOWN, "EndTxn commit failed", False, False, True))

            def abort_transaction(self, *_: object) -> None:
                raise KafkaException(KafkaError(KafkaError.UNKNOWN, "EndTxn abort failed", False, False, True))

        monkeypatch.setattr(adapter, "Producer", Broken)
        with pytest.raises(StoreOutcomeUnknownError, match=rf"no answer to the commit of group .*\){OUTCOME_OPEN}$"):
            store.advance(group, {}, at(topic, 5, 10))

    def test_a_transaction_that_a_broker_does_not_commit_but_ends_was_not_written(
        self, store: KafkaStore, group: str, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Refused(Producer):
            def commit_transaction(self, *_: object) -> None:
                raise KafkaException(KafkaError(KafkaError.UNKNOWN, "EndTxn commit failed", False, False, True))

        with monkeypatch.context() as patch:
            patch.setattr(adapter, "Producer", Refused)
            with pytest.raises(StoreUnavailableError, match="EndTxn commit failed"):
                store.advance(group, {}, at(topic, 5, 10))
        assert store.read(group, [topic]) == {}

    def test_what_fails_within_a_transaction_without_an_answer_of_kafka_is_no_success(
        self, store: KafkaStore, group: str, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Closed(Producer):
            def send_offsets_to_transaction(self, *_: object) -> None:
                raise RuntimeError("Producer closed")

        with monkeypatch.context() as patch:
            patch.setattr(adapter, "Producer", Closed)
            with pytest.raises(RuntimeError, match="Producer closed"):
                store.advance(group, {}, at(topic, 5, 10))
        assert store.read(group, [topic]) == {}

    def test_a_coordinator_that_goes_away_within_a_transaction_is_waited_for_in_time(
        self,
        proxied: tuple[KafkaStore, Proxy],
        store: KafkaStore,
        group: str,
        topic: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        through, proxy = proxied
        store.advance(group, {}, at(topic, 5, 10))

        class Cut(Producer):
            def send_offsets_to_transaction(self, *args: object) -> None:
                proxy.cut_after(200)  # the group joins the transaction; its offsets reach no one
                super().send_offsets_to_transaction(*args)

        errors: list[BaseException] = []
        with monkeypatch.context() as patch:
            patch.setattr(adapter, "Producer", Cut)
            advance = partial(through.advance, group, at(topic, 5, 10), at(topic, 6, 11))
            # A thread that can be left behind: librdkafka itself would wait until the coordinator is back.
            writer = threading.Thread(target=_catch, args=(advance, errors), daemon=True)
            writer.start()
            wait_until(lambda: not writer.is_alive(), what="the writer gives up")
        [error] = errors
        assert isinstance(error, StoreUnavailableError), error
        assert "written" not in str(error)
        assert OUTCOME_OPEN not in str(error)
        proxy.heal()
        assert store.read(group, [topic]) == at(topic, 5, 10)
        store.advance(group, at(topic, 5, 10), at(topic, 6, 11))
        assert store.read(group, [topic]) == at(topic, 6, 11)

    def test_what_a_dead_writer_left_pending_hides_the_offsets_until_the_next_commit(
        self, store: KafkaStore, broker: KafkaBroker, group: str, topic: str
    ) -> None:
        store.advance(group, {}, at(topic, 5, 10))
        dead = Producer({**broker.client_config(), "transactional.id": PREFIX + group, "log_level": 0})
        dead.init_transactions(ANSWER)
        dead.begin_transaction()
        with contextlib.closing(Consumer({**broker.client_config(), "group.id": group})) as consumer:
            dead.send_offsets_to_transaction([Kafkas(topic, 0, 77)], consumer.consumer_group_metadata(), ANSWER)
        hurried = KafkaStore("kafka://", broker.client_config(), 3)
        with pytest.raises(StoreUnavailableError, match="a commit that died"):
            hurried.read(group, [topic])
        store.advance(group, at(topic, 5, 10), at(topic, 6, 11))
        assert store.read(group, [topic]) == at(topic, 6, 11)
        with pytest.raises(KafkaException):
            dead.commit_transaction(ANSWER)
        assert store.read(group, [topic]) == at(topic, 6, 11)

    def test_a_missing_right_to_transactions_is_named(self, kafka_sasl: SecureKafkaBroker, group: str) -> None:
        topic = f"rights-{group[-8:]}"
        create_topic(kafka_sasl, topic)
        kafka_sasl.allow("alice", AclOperation.READ, topic=topic)
        kafka_sasl.allow("alice", AclOperation.READ, group=group)
        store = KafkaStore("kafka://", kafka_sasl.client_config("alice"), ANSWER)
        with pytest.raises(StoreRefusedError, match=f"TransactionalId {PREFIX}{group}, or set commit=plain"):
            store.advance(group, {}, at(topic, 5))
        KafkaStore("kafka://", kafka_sasl.client_config("alice"), ANSWER, is_transactional=False).advance(
            group, {}, at(topic, 5)
        )
        assert store.read(group, [topic]) == at(topic, 5)
        for operation in (AclOperation.WRITE, AclOperation.DESCRIBE):
            kafka_sasl.allow("alice", operation, transactional_id=f"own-{group}")
        own = KafkaStore("kafka://", kafka_sasl.client_config("alice"), ANSWER, transactional_id=f"own-{group}")
        own.advance(group, at(topic, 5), at(topic, 6))
        assert own.read(group, [topic]) == at(topic, 6)


class TestPlain(KafkaContract):
    is_transactional = False

    def test_of_competing_writers_one_wins(
        self, store: OffsetStore, open_store: Callable[[], OffsetStore], group: str, topic: str
    ) -> None:
        """What remains without a transaction: each offset is one that was written, and no error is wrong about the past."""
        assert store.guarantees.compares is Compares.NO_ONE
        before = at(topic, *[0] * 20)
        store.advance(group, {}, before)
        start = threading.Barrier(WRITERS)

        def compete(number: int) -> bool:
            own, after = open_store(), dict.fromkeys(before, 100 + number)
            start.wait(LONGEST)
            try:
                own.advance(group, before, after)
            except (StoreDriftError, ConcurrentChangeError, StoreOutcomeUnknownError):
                return False
            return True

        with ThreadPoolExecutor(WRITERS) as pool:
            won = list(pool.map(compete, range(WRITERS)))
        offsets = set(store.read(group, [topic]).values())
        assert offsets <= {100 + number for number in range(WRITERS)}
        with pytest.raises(StoreDriftError):
            store.advance(group, before, dict.fromkeys(before, 999))
        assert sum(won) >= 1

    def test_a_coordinator_that_answers_no_more_is_not_waited_for_without_end(
        self,
        behind: tuple[KafkaBroker, Proxy],
        store: KafkaStore,
        group: str,
        topic: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """The client sends its commit again and again; the task gives up before that ends."""
        proxy = behind[1]
        proxy.heal()
        settings = {"bootstrap.servers": f"{LOOPBACK}:{proxy.port}", "socket.timeout.ms": 1500}
        through = KafkaStore("kafka://", settings, 1.5)
        first, commit = (adapter._Commit(through, group, at(topic, offset), "") for offset in (1, 2))
        monkeypatch.setattr(adapter._Commit, "_check_written", lambda _: None)
        errors: list[BaseException] = []
        for lost in [2, 3, 1] * 12:  # not always the same number of answers comes
            answers = proxy.answers
            first.plain(None)
            proxy.swallow_answers(after=max(0, proxy.answers - answers - lost))
            task = threading.Thread(target=_catch, args=(lambda: commit.plain(None), errors), daemon=True)
            task.start()
            try:
                wait_until(lambda task=task: not task.is_alive(), what="the commit gives up")  # type: ignore[misc]
            finally:
                proxy.heal()
            self.settle()
            if errors:
                break
        assert [type(error) for error in errors] == [StoreOutcomeUnknownError]
        assert str(errors[0]).endswith(OUTCOME_OPEN)
        assert store.read(group, [topic]) in (at(topic, 1), at(topic, 2))

    def test_a_plain_commit_at_the_moment_of_ours_is_noticed(
        self, store: KafkaStore, broker: KafkaBroker, group: str, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        look_again = adapter._Commit._check_written

        def overtaken(commit: adapter._Commit) -> None:
            plain_commit(broker, group, {TopicPartition(topic, 1): 99})
            look_again(commit)

        with monkeypatch.context() as patch:
            patch.setattr(adapter._Commit, "_check_written", overtaken)
            with pytest.raises(
                StoreOutcomeUnknownError, match=rf"moment of the commit: \S+-1: 99 instead of 10{OUTCOME_OPEN}$"
            ):
                store.advance(group, {}, at(topic, 5, 10))
        assert store.read(group, [topic]) == at(topic, 5, 99)

    def test_without_the_right_to_one_topic_the_others_may_be_written(
        self, kafka_sasl: SecureKafkaBroker, group: str
    ) -> None:
        mine, other = f"mine-{group[-8:]}", f"other-{group[-8:]}"
        for topic in (mine, other):
            create_topic(kafka_sasl, topic)
            kafka_sasl.allow("bob", AclOperation.DESCRIBE, topic=topic)
        kafka_sasl.allow("bob", AclOperation.READ, topic=mine)
        kafka_sasl.allow("bob", AclOperation.READ, group=group)
        store = KafkaStore("kafka://", kafka_sasl.client_config("bob"), 30, is_transactional=False)
        after = at(mine, 5) | at(other, 7)
        with pytest.raises(StoreRefusedError, match=r"some offsets may be written\. Grant the ACL Read on every topic"):
            store.advance(group, {}, after)
        assert store.read(group, [mine, other]) == at(mine, 5)
        kafka_sasl.allow("bob", AclOperation.READ, topic=other)
        store.advance(group, {}, after)
        assert store.read(group, [mine, other]) == after


def test_the_server_dies_and_comes_back_with_what_was_answered(tmp_path: Path) -> None:
    with KafkaBroker(tmp_path) as broker:
        create_topic(broker, "t", 2)
        store = KafkaStore("kafka://", broker.client_config(), 10)
        store.advance("g", {}, at("t", 5, 10))
        broker.kill()
        hurried = KafkaStore("kafka://", broker.client_config(), 1)
        for ask in (lambda: hurried.read("g", ["t"]), lambda: hurried.advance("g", at("t", 5, 10), at("t", 6, 11))):
            with pytest.raises(StoreUnavailableError) as caught:
                ask()
            assert "that died" not in str(caught.value)
        broker.start()
        store.advance("g", at("t", 5, 10), at("t", 6, 11))
        assert store.read("g", ["t"]) == at("t", 6, 11)
