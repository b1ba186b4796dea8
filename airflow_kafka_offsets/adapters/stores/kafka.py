"""Offsets of a Kafka consumer group, as kafka-consumer-groups, Burrow and lag exporters read them.

A transaction makes the commit all or nothing, and its ``transactional.id`` fences earlier writers (KIP-98, KIP-447). Each
window commits all partitions again, because each offset expires by itself.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException, Producer

from airflow_kafka_offsets.adapters.kafka.client import client_config, opened
from airflow_kafka_offsets.adapters.kafka.log import CHUNK, KafkaLog
from airflow_kafka_offsets.adapters.kafka.messages import UNSUPPORTED, hint, masked
from airflow_kafka_offsets.adapters.stores.swapping import swap
from airflow_kafka_offsets.core.errors import (
    OUTCOME_OPEN,
    KafkaAnswerError,
    KafkaLacksError,
    KafkaRefusedError,
    KafkaUnavailableError,
    StoreError,
    StoreOutcomeUnknownError,
    StoreRefusedError,
    StoreUnavailableError,
    name_some,
)
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition, topics_of
from airflow_kafka_offsets.core.store.guarantees import Compares, Guarantees, check_advance

logger = logging.getLogger(__name__)

PREFIX = "airflow-kafka-offsets-"
"""The prefix of a group's ``transactional.id``, unless the address names one."""

CLOSING = "closing the consumer of "
"""The prefix of the name of a thread that closes a consumer."""


_IDLE = {ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD, ConsumerGroupState.UNKNOWN}
_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
# Errors of the whole group. All other errors concern single partitions, and Kafka writes the other partitions.
_OF_THE_GROUP = {KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_MEMBER_ID}
_SOME = ", and some offsets may be written"
# A dead writer's transaction hides the group's offsets for this long, unless the next writer ends it.
_SHORTEST_TRANSACTION = 10.0
_TICK = 0.05
_LONGEST_PAUSE = 1.0


class KafkaStore:
    """Committed offsets of the consumer group whose name is the group's; `ports.OffsetStore`.

    Args:
        name: its address, for messages.
        config: librdkafka's settings, as in the extra of an Airflow connection of type ``kafka``.
        timeout: seconds after which a request gives up.
        is_transactional: whether to commit in transactions. Plain commits promise less; they are for clusters without transactions.
        transactional_id: for clusters that allow only certain ids; empty: `PREFIX` and the group.
    """

    def __init__(
        self,
        name: str,
        config: Mapping[str, Any],
        timeout: float,
        *,
        is_transactional: bool = True,
        transactional_id: str = "",
    ) -> None:
        self.name = name
        self.guarantees = _TRANSACTIONAL if is_transactional else _PLAIN
        self._config = client_config(config)
        self._timeout = timeout
        self._is_transactional = is_transactional
        self._transactional_id = transactional_id
        self._log = KafkaLog(config, timeout)

    def read(self, group: str, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Return the committed offset of each topic-partition. A topic that does not exist has none."""
        with self._translated():
            partitions = self._log.partitions(topics)
        return {tp: offset for tp, (offset, _) in self._commits(group, partitions).items()}

    def window_ids(self, group: str, topics: Sequence[str]) -> Collection[str]:
        """Return the metadata of the commits, which is the window's id if this package committed."""
        with self._translated():
            partitions = self._log.partitions(topics)
        return {metadata for _, metadata in self._commits(group, partitions).values()}

    def check_writable(self, group: str) -> None:
        """Refuse a group with members.

        Raises:
            StoreRefusedError: it has some.
        """
        # While a group has members, Kafka accepts a transaction's offsets also from a client that is not one of them.
        with self._translated():
            state = self._log.group_state(group)
        if state is not None and state not in _IDLE:
            raise self._has_members(group, f"state {state.name.lower()}")

    def check_rights(self, group: str, topics: Sequence[str]) -> None:
        """Try what a commit needs, and write no offset. A commit that runs at this moment is fenced, and begins again.

        Raises:
            StoreRefusedError: a right is missing, or the group has members.
            StoreUnavailableError: Kafka did not answer.
        """
        self.check_writable(group)
        self.read(group, topics)
        with self._translated():
            rights = self._log.group_rights(group)
            if rights is not None and "READ" not in rights:
                raise self._error(group, KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
            if self._is_transactional:
                _Commit(self, group, {}, "")._fence()

    def advance(self, group: str, before: Offsets, after: Offsets, window_id: str = "") -> None:
        """Commit `after`, each partition with the window's id as its metadata, if the group is at `before`.

        Raises:
            StoreRefusedError: the group has members, none of the partitions that should move exists, or a right is missing.
        """
        check_advance(before, after)
        absent = self._absent(before, after)
        before, after = _without(before, absent), _without(after, absent)
        if after:
            commit = _Commit(self, group, after, window_id)
            write = commit.transactional if self._is_transactional else commit.plain
            with self._translated():
                swap(self.name, group, before, after, commit.read, write)

    # What the commits need

    def _commits(self, group: str, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, tuple[int, str]]:
        with self._translated(f" (a commit that died hides them for {self._transaction_seconds + 10:.0f} s)"):
            return self._log.commits(group, partitions)

    def _absent(self, before: Offsets, after: Offsets) -> set[TopicPartition]:
        """Return the partitions that no longer exist: Kafka deleted their offsets with them.

        Raises:
            StoreRefusedError: none of those that should move exists: it may be another Kafka.
        """
        with self._translated():
            existing = set(self._log.partitions(topics_of(after)))
        moving = {tp for tp, offset in after.items() if before.get(tp) != offset}
        absent = moving - existing
        if absent and not moving & existing:
            raise StoreRefusedError(
                f"{self.name}: Kafka has no partition {name_some(sorted(absent), ', ')}. "
                "Correct the address, or remove offset_store if the topic is gone"
            )
        if absent:
            logger.warning("%s: Kafka no longer has %s", self.name, name_some(sorted(absent), ", "))
        return set(after.keys() - existing)

    def _has_members(self, group: str, why: str, outcome: str = "") -> StoreRefusedError:
        return StoreRefusedError(
            f"{self.name}: group {group} has members ({why}){outcome}. Stop them, or rename this group; to see them:\n"
            f"    kafka-consumer-groups --bootstrap-server ... --describe --members --group {group}"
        )

    @contextmanager
    def _translated(self, note: str = "") -> Iterator[None]:
        try:
            yield
        except (KafkaRefusedError, KafkaLacksError) as exc:
            raise StoreRefusedError(f"{self.name}: {exc}") from exc
        except KafkaUnavailableError as exc:
            raise StoreUnavailableError(f"{self.name}: {exc}{note}") from exc

    @property
    def _transaction_seconds(self) -> float:
        return max(_SHORTEST_TRANSACTION, 3 * self._timeout)

    def _refused(self, group: str, error: KafkaError, outcome: str = "") -> StoreRefusedError | None:
        """Return the error for a missing right or a group with members; None if it is another error."""
        if error.code() == KafkaError.UNKNOWN_MEMBER_ID:
            return self._has_members(group, error.name(), outcome)
        needs = {
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
                f"Write on TransactionalId {self._id_of(group)}, or set commit=plain"
            ),
            KafkaError.CLUSTER_AUTHORIZATION_FAILED: "IdempotentWrite on Cluster",
            KafkaError.GROUP_AUTHORIZATION_FAILED: f"Read on Group {group}",
            KafkaError.TOPIC_AUTHORIZATION_FAILED: "Read on every topic",
        }.get(error.code())
        if needs is None:
            return None
        return StoreRefusedError(f"{self.name}: {error.name()} for group {group}{outcome}. Grant the ACL {needs}")

    def _id_of(self, group: str) -> str:
        return self._transactional_id or PREFIX + group

    def _error(self, group: str, error: KafkaError, reports: Sequence[KafkaError] = ()) -> StoreError:
        """Return the store's error for a failure after which nothing was written."""
        return self._refused(group, error) or StoreUnavailableError(
            f"{self.name}: no commit of group {group} within {self._timeout:g} s: {self._reason(error)}. "
            f"{masked(hint(reports), self._config)}"
        )

    def _unknown(self, group: str, error: KafkaError) -> StoreOutcomeUnknownError:
        outcome = "" if self._is_transactional else _SOME
        return StoreOutcomeUnknownError(
            f"{self.name}: no answer to the commit of group {group} ({self._reason(error)}){outcome}{OUTCOME_OPEN}"
        )

    def _reason(self, error: KafkaError) -> str:
        return masked(f"{error.name()} {error.str()}", self._config)


class _Commit:
    """One advance: the read, and the two ways to write."""

    def __init__(self, store: KafkaStore, group: str, after: Offsets, window_id: str) -> None:
        self._store = store
        self._group = group
        self._after = after
        self._window_id = window_id
        self._reports: deque[KafkaError] = deque(maxlen=100)
        self._pause = _TICK

    def read(self) -> tuple[dict[TopicPartition, int], Producer | None]:
        """Return the committed offsets, and the producer that fenced all earlier ones; None if another writer fenced it."""
        self._store.check_writable(self._group)
        # Fence first: if another writer changes an offset after this, the commit fails.
        producer = self._fence() if self._store._is_transactional else None
        commits = self._store._commits(self._group, list(self._after))
        return {
            tp: offset for tp, (offset, window_id) in commits.items() if not self._is_old(tp, offset, window_id)
        }, producer

    def _is_old(self, tp: TopicPartition, offset: int, window_id: str) -> bool:
        # The right offset, but an earlier window committed it: commit it again, or it expires.
        return bool(self._window_id) and offset == self._after[tp] and window_id != self._window_id

    def transactional(self, producer: Producer | None) -> bool:
        """Commit in one transaction. Return False if another writer fenced this one."""
        if producer is None:
            return self._overtaken()
        try:
            producer.begin_transaction()
            with closing(opened(Consumer, self._consumer_settings)) as consumer:
                metadata = consumer.consumer_group_metadata()
            for chunk in self._chunks():
                self._step(producer.send_offsets_to_transaction, chunk, metadata)
        except KafkaException as exc:
            return self._failed(producer, exc)
        try:
            self._step(producer.commit_transaction)
        except KafkaException as exc:
            error = exc.args[0]
            if error.code() in _FENCED or error.txn_requires_abort():
                return self._failed(producer, exc, is_commit=True)
            raise self._store._unknown(self._group, error) from exc
        self._check_written()
        return True

    def plain(self, _: None) -> bool:
        """Commit chunk by chunk. No other writer can fence this one."""
        answers: list[tuple[KafkaError | None, list[confluent_kafka.TopicPartition]]] = []
        settings = {
            **self._consumer_settings,
            "on_commit": lambda error, done: answers.append((error, done)),
            # For this long, a commit looks for its coordinator.
            "session.timeout.ms": int(self._store._timeout * 1000),
        }
        with _closing_in_time(opened(Consumer, settings), self._group, self._store._timeout) as consumer:
            for number, chunk in enumerate(self._chunks()):
                answers.clear()
                consumer.commit(offsets=chunk, asynchronous=True)
                self._check_answer(self._wait(consumer, answers), is_first=number == 0)
        self._check_written()
        return True

    def _wait(self, consumer: Consumer, answers: list[Any]) -> KafkaError | None:
        give_up = time.monotonic() + self._store._timeout
        while not answers:
            if time.monotonic() > give_up:
                return KafkaError(KafkaError._TIMED_OUT)
            consumer.poll(_TICK)
        error, done = answers[0]
        return error or next((tp.error for tp in done if tp.error), None)

    def _check_answer(self, error: KafkaError | None, *, is_first: bool) -> None:
        if error is None:
            return
        outcome = "" if is_first and error.code() in _OF_THE_GROUP else _SOME
        if refusal := self._store._refused(self._group, error, outcome):
            raise refusal
        raise self._store._unknown(self._group, error)

    def _fence(self) -> Producer | None:
        store = self._store
        try:
            producer = opened(
                Producer,
                {
                    # A request's time-out must not exceed the transaction's. Without the setting, librdkafka ensures this.
                    **{name: value for name, value in store._config.items() if name != "socket.timeout.ms"},
                    "transactional.id": store._id_of(self._group),
                    "transaction.timeout.ms": int(store._transaction_seconds * 1000),
                    "error_cb": self._reports.append,
                },
            )
            self._step(producer.init_transactions)
        except KafkaException as exc:
            error = exc.args[0]
            if error.code() in _FENCED:
                return None
            if error.code() in UNSUPPORTED:
                raise StoreRefusedError(
                    f"{store.name}: this Kafka has no transactions: add commit=plain to the address"
                ) from exc
            raise store._error(self._group, error, tuple(self._reports)) from exc
        return producer

    def _failed(self, producer: Producer, exc: KafkaException, *, is_commit: bool = False) -> bool:
        """End a transaction that can't be committed. Return False if another writer began one."""
        error = exc.args[0]
        if error.code() in _FENCED:
            return self._overtaken()
        try:
            self._step(producer.abort_transaction)
        except KafkaException as failure:
            # If two writers change a transaction at the same moment, the broker may answer UNKNOWN. Only a read shows the outcome.
            if failure.args[0].code() in _FENCED:
                return self._overtaken()
            if is_commit:
                raise self._store._unknown(self._group, error) from exc
            # Nothing is committed: the open transaction ends with its time-out, or with the next writer.
        raise self._store._error(self._group, error, tuple(self._reports)) from exc

    def _step(self, call: Callable[..., None], *arguments: Any) -> None:
        """Take a step of the transaction, with the store's time-out, and wait for it at most twice as long.

        While the group's coordinator is away, librdkafka ignores the time-out of send_offsets_to_transaction (its issue 5456).
        What such a step sends later is never committed. Only a commit that comes back later may be written.
        """
        raised: list[Exception] = []

        def step() -> None:
            try:
                call(*arguments, self._store._timeout)
            except Exception as exc:  # any error: silence would count as success
                raised.append(exc)

        if not _ends_in_time(step, f"transaction of {self._group}", 2 * self._store._timeout):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))
        if raised:
            raise raised[0]

    def _overtaken(self) -> bool:
        # Without a random pause, two writers could fence each other again and again.
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        time.sleep(random.uniform(0, self._pause))
        return False

    def _check_written(self) -> None:
        """Read the offsets back: another tool's plain commit overrides a transaction that is under way."""
        store = self._store
        try:
            commits = store._log.commits(self._group, list(self._after))
        except KafkaAnswerError as exc:
            raise StoreOutcomeUnknownError(
                f"{store.name}: group {self._group} was committed, but not read back: {exc}{OUTCOME_OPEN}"
            ) from exc
        overwritten = [
            f"{tp}: {commits[tp][0] if tp in commits else 'nothing'} instead of {offset}"
            for tp, offset in sorted(self._after.items())
            if tp not in commits or commits[tp][0] != offset
        ]
        if overwritten:
            raise StoreOutcomeUnknownError(
                f"{store.name}: another tool wrote group {self._group} at the moment of the commit: "
                f"{name_some(overwritten)}{OUTCOME_OPEN}"
            )

    @property
    def _consumer_settings(self) -> dict[str, Any]:
        return {**self._store._config, "group.id": self._group, "enable.auto.commit": False}

    def _chunks(self) -> Iterator[list[confluent_kafka.TopicPartition]]:
        commits = [
            confluent_kafka.TopicPartition(tp.topic, tp.partition, offset, metadata=self._window_id)
            for tp, offset in sorted(self._after.items())
        ]
        for start in range(0, len(commits), CHUNK):
            yield commits[start : start + CHUNK]


def _ends_in_time(step: Callable[[], None], name: str, seconds: float) -> bool:
    """Take a step in a thread of its own, and return whether it ended in time. A late thread is left behind."""
    thread = threading.Thread(target=step, name=name, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


@contextmanager
def _closing_in_time(consumer: Consumer, group: str, seconds: float) -> Iterator[Consumer]:
    """Close the consumer at the end, and wait at most `seconds` for it.

    If a coordinator never answers, librdkafka repeats a commit, and close() waits without end. If the coordinator comes back
    while this process lives, that commit still succeeds.
    """
    try:
        yield consumer
    finally:
        if not _ends_in_time(consumer.close, f"{CLOSING}{group}", seconds):
            logger.warning("Group %s: Kafka's client repeats a commit until this process ends", group)


def _without(offsets: Offsets, absent: set[TopicPartition]) -> dict[TopicPartition, int]:
    return {tp: offset for tp, offset in offsets.items() if tp not in absent}


_TRANSACTIONAL = Guarantees(is_atomic=True, compares=Compares.COOPERATING)
_PLAIN = Guarantees(is_atomic=False, compares=Compares.NO_ONE)
