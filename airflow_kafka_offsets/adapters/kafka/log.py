"""What Kafka holds, asked through confluent-kafka's AdminClient.

Every lookup describes its topics first, then lists offsets: the description gives topic ids and leaders, and it is what
refreshes librdkafka's metadata. Without it, a new partition is unknown for minutes and a moved leader for ever.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, OffsetSpec
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_before_delay, wait_random_exponential

from airflow_kafka_offsets.core.errors import (
    BadInputError,
    KafkaRefusedError,
    KafkaUnavailableError,
    may_pass,
    name_some,
)
from airflow_kafka_offsets.core.leader_epochs import EpochEnds, PartitionEpoch
from airflow_kafka_offsets.core.log import Bounds, IsolationLevel, LogSnapshot
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.secrets import is_secret

log = logging.getLogger(__name__)

_T = TypeVar("_T")

CHUNK = 1000
"""Partitions in one call: the time of a call grows with their square, and smaller ones cost more requests."""

MAX_CLIENTS = 32
"""Clients that one process keeps; each has a thread per broker. Rotated passwords make new ones."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Below a millisecond, list_offsets corrupts librdkafka's heap; above an hour, it is refused.
_SHORTEST, _LONGEST = 1.0, 3600.0
# A cold client may need seconds for its first answer: with less, every attempt would begin from the start.
_PATIENCE = 5.0
# How often a waiting lookup hears what librdkafka reports.
_TICK = 0.05
# How long after its own time-out a request may still be silent: it always is after a fork.
_GRACE = 0.5

# How much later a topic that seems absent is looked for again.
_SECOND_LOOK = 0.5

# An offset that no log has, and a group that nothing joins: a consumer must name one.
_BEHIND_ALL = 2**62
_NO_GROUP = "airflow-kafka-offsets-looks"
# librdkafka tells it in words only: rd_kafka_toppar_handle_OffsetForLeaderEpoch in rdkafka_offset.c.
_EPOCH_END = re.compile(r"broker end offset is (\d+) \(offset leader epoch \d+\)")

_TELLING = ("error_cb", "stats_cb", "throttle_cb")

_NO_OFFSET = -1  # Kafka: no record has this timestamp or a later one

# Settings of consumers and producers, by librdkafka's CONFIGURATION.md. An AdminClient warns about the former or refuses
# them, and some of the latter act: idempotence and transactions want a producer id, a right that no lookup needs.
_NOT_OURS = re.compile(
    r"(auto|batch|check|compression|consume|coordinator|delivery|fetch|group|heartbeat|isolation|linger|offset|produce)\..*"
    r"|(queued|queuing|queue\.buffering|session|share|sticky|transaction)\..*|enable\.(auto|gapless|idempotence|partition)\b.*"
    r"|max\.(partition|poll)\..*|message\.(send|timeout)\..*|request\.(required|timeout)\..*|partition(er|\.).*"
    r"|acks|default\.topic\.config|log_cb|logger|on_commit|on_delivery|retries|transactional\.id"
)

# What ends a lookup at once: no patience helps.
_REFUSALS = {
    KafkaError._AUTHENTICATION: (
        "refused the login",
        "check sasl.mechanism, sasl.username and sasl.password of the connection",
    ),
    KafkaError._SSL: (
        "could not be reached over TLS",
        "check ssl.ca.location of the connection, and that the host in bootstrap.servers is in the broker's certificate",
    ),
}


_UNAUTHORIZED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}


class KafkaLog:
    """Look up topic ids, bounds, timestamps and committed offsets; `ports.LogOffsets`.

    It holds no client: all logs of one connection share one in each process, also after a fork.

    Args:
        config: librdkafka's settings, as the extra of an Airflow connection of type ``kafka`` has them.
        timeout: seconds after which a lookup gives up, 1 to 3600; what is under way then may take 2 s more.
    """

    def __init__(self, config: Mapping[str, Any], timeout: float) -> None:
        self._config = client_config(config)
        self._timeout = min(max(timeout, _SHORTEST), _LONGEST)

    def snapshot(self, topics: Sequence[str], isolation_level: IsolationLevel) -> LogSnapshot:
        """Return ids and bounds of topics; one that does not exist is simply not in the answer."""
        return self._ask(lambda lookup: lookup.snapshot(topics, isolation_level)) if topics else LogSnapshot({}, {})

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        """Return the ids of topics, without looking at their logs; one that does not exist is not in the answer."""
        return self._ask(lambda lookup: lookup.topic_ids(topics)) if topics else {}

    def bounds(
        self, partitions: Sequence[TopicPartition], isolation_level: IsolationLevel
    ) -> Mapping[TopicPartition, Bounds]:
        """Return the bounds of partitions that exist."""
        return self._ask(lambda lookup: lookup.bounds(partitions, isolation_level)) if partitions else {}

    def offsets_at(
        self, partitions: Sequence[TopicPartition], time: datetime, isolation_level: IsolationLevel
    ) -> Mapping[TopicPartition, int | None]:
        """Return each partition's first offset whose record has this timestamp or a later one; None: there is none.

        Raises:
            BadInputError: the time has no zone, or lies before 1970.
        """
        moment = epoch_milliseconds(time)
        return self._ask(lambda lookup: lookup.offsets_at(partitions, moment, isolation_level)) if partitions else {}

    def epoch_ends(self, wanted: Collection[PartitionEpoch]) -> EpochEnds:
        """Return where the records of leader epochs, and of all before them, end; what Kafka did not say is not there."""
        return self._ask(lambda lookup: lookup.epoch_ends(wanted)) if wanted else {}

    def committed(self, group_id: str, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        """Return what a Kafka consumer group has committed; None: nothing for that partition."""
        return self._ask(lambda lookup: lookup.committed(group_id, partitions)) if partitions else {}

    def partitions(self, topics: Sequence[str]) -> list[TopicPartition]:
        """Return the topic-partitions of topics; one that does not exist has none."""
        return self._ask(lambda lookup: lookup.partitions(topics)) if topics else []

    def commits(self, group_id: str, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, tuple[int, str]]:
        """Return what a Kafka consumer group has committed: offset and metadata; what it has not is not there."""
        return self._ask(lambda lookup: lookup.commits(group_id, partitions)) if partitions else {}

    def group_state(self, group_id: str) -> confluent_kafka.ConsumerGroupState | None:
        """Return the state of a Kafka consumer group; None: there is none, or this user may not see it."""
        return self._ask(lambda lookup: lookup.group_state(group_id))

    def _ask(self, question: Callable[[_Lookup], _T]) -> _T:
        # Everything but a refusal is asked again: librdkafka calls only some of what passes "retriable".
        retrying = Retrying(
            retry=retry_if_exception(may_pass),
            stop=stop_before_delay(self._timeout),
            wait=wait_random_exponential(multiplier=0.2, max=3),
            before_sleep=_tell,
            reraise=True,
        )
        return retrying(question, _Lookup(_Line(self._config, self._timeout)))


def _tell(state: RetryCallState) -> None:
    assert state.outcome
    assert state.next_action
    log.info("%s. Asking again in %.1f s", state.outcome.exception(), state.next_action.sleep)


class _Lookup:
    """What is asked and what the answers mean; each method is one attempt, and fails unless every partition is answered."""

    def __init__(self, line: _Line) -> None:
        self._line = line

    def snapshot(self, topics: Sequence[str], isolation_level: IsolationLevel) -> LogSnapshot:
        described = self._describe_twice(topics)
        leaders = _leaders(described)
        self._line.fail_for(_leaderless(leaders))
        return LogSnapshot(_topic_ids(described), self._bounds(list(leaders), isolation_level))

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        return _topic_ids(self._describe_twice(topics))

    def bounds(
        self, partitions: Sequence[TopicPartition], isolation_level: IsolationLevel
    ) -> dict[TopicPartition, Bounds]:
        self._refresh(partitions)
        return self._bounds(partitions, isolation_level)

    def offsets_at(
        self, partitions: Sequence[TopicPartition], moment: int, isolation_level: IsolationLevel
    ) -> dict[TopicPartition, int | None]:
        self._refresh(partitions)
        [found] = self._list_offsets(partitions, [OffsetSpec.for_timestamp(moment)], isolation_level)
        self._line.fail_for({tp: why for tp, answer in found.items() if (why := _defect(answer, lowest=_NO_OFFSET))})
        return {tp: None if answer.offset == _NO_OFFSET else answer.offset for tp, answer in found.items()}

    def partitions(self, topics: Sequence[str]) -> list[TopicPartition]:
        return list(_leaders(self._describe_twice(topics)))

    def group_state(self, group_id: str) -> Any:
        # The list of all, for to describe one may end the process, see _fetch_committed.
        [answer] = self._line.ask(lambda admin, s: {"": admin.list_consumer_groups(request_timeout=s)}).values()
        what = f"groups, {group_id} among them"
        if isinstance(answer, KafkaError):
            raise self._line.unavailable({what: _reason(answer)})
        states = [listed.state for listed in answer.valid if listed.group_id == group_id]
        if not states and answer.errors:
            # The broker that knows it may be one that did not answer.
            raise self._line.unavailable({what: str(answer.errors[0])})
        return states[0] if states else None

    def committed(self, group_id: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | None]:
        found = self.commits(group_id, partitions)
        return {tp: found[tp][0] if tp in found else None for tp in partitions}

    def commits(self, group_id: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, str]]:
        # A consumer says "timed out" to a wrong password too; what is described here says which it was.
        self._describe([tp.topic for tp in partitions])
        answers = {_ours(tp): tp for tp in self._fetch_committed(group_id, partitions)}
        self._line.fail_for({tp: _reason(answer.error) for tp, answer in answers.items() if answer.error})
        return {tp: (answer.offset, answer.metadata or "") for tp, answer in answers.items() if answer.offset >= 0}

    def epoch_ends(self, wanted: Collection[PartitionEpoch]) -> dict[PartitionEpoch, int]:
        overdue = time.monotonic() + self._line.request_seconds()
        found: dict[PartitionEpoch, int] = {}
        for asked in one_of_each(wanted):
            found |= self._fetch_epoch_ends(asked, overdue)
        return found

    def _fetch_epoch_ends(self, asked: Collection[PartitionEpoch], overdue: float) -> dict[PartitionEpoch, int]:
        """Ask for one epoch of each partition, all at once.

        The only one in librdkafka that asks OffsetForLeaderEpoch is a consumer, which does it before it reads at an offset
        of an earlier leader. So one is told to read far behind all ends, which no log confirms: its error says where the
        epoch ends, and nothing is ever read. It wants no more than the ACL Describe.
        """
        settings = {
            **self._line.config,
            "group.id": _NO_GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
        waiting = {epoch.partition: epoch for epoch in asked}
        found: dict[PartitionEpoch, int] = {}
        try:
            with closing(Consumer(settings)) as consumer:
                consumer.assign([_far_behind(epoch) for epoch in asked])
                while waiting and time.monotonic() < overdue:
                    message = consumer.poll(_TICK)
                    # What is said of the whole client has no topic.
                    if message is None or not message.topic():
                        continue
                    epoch = waiting.pop(TopicPartition(message.topic(), message.partition()), None)
                    end = epoch_end(message.error().str()) if message.error() else None
                    if epoch and end is not None:
                        found[epoch] = end
        except KafkaException as exc:
            log.info("Kafka was not asked where leader epochs end: %s", self._line.masked(_reason(exc.args[0])))
        return found

    def _refresh(self, partitions: Sequence[TopicPartition]) -> None:
        leaders = _leaders(self._describe([tp.topic for tp in partitions]))
        self._line.fail_for({tp: "no such partition" for tp in partitions if tp not in leaders})
        self._line.fail_for(_leaderless({tp: leaders[tp] for tp in partitions}))

    def _describe_twice(self, topics: Sequence[str]) -> dict[str, Any]:
        # A broker that comes back, or is slow to hear of a new topic, says "unknown" for a moment.
        described = self._describe(topics)
        absent = set(topics) - described.keys()
        if absent:
            time.sleep(_SECOND_LOOK)
            described |= self._describe(absent)
        return described

    def _describe(self, topics: Iterable[str]) -> dict[str, Any]:
        """Return the description of each topic that exists."""
        wanted = TopicCollection(sorted(set(topics)))
        answers = self._line.ask(lambda admin, seconds: admin.describe_topics(wanted, request_timeout=seconds))
        errors = {topic: answer for topic, answer in answers.items() if isinstance(answer, KafkaError)}
        self._line.refuse_unauthorized("Topic", errors)
        absent = {topic for topic, error in errors.items() if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART}
        self._line.fail_for({topic: _reason(error) for topic, error in errors.items() if topic not in absent})
        return {topic: answer for topic, answer in answers.items() if topic not in errors}

    def _fetch_committed(self, group_id: str, partitions: Sequence[TopicPartition]) -> list[Any]:
        # Never through an AdminClient: when a group's coordinator moves or hangs, its questions about groups end the
        # whole process (librdkafka #4605 describe_consumer_groups, #5040 list_consumer_group_offsets).
        settings = {**self._line.config, "group.id": group_id, "enable.auto.commit": False}
        wanted = [confluent_kafka.TopicPartition(tp.topic, tp.partition) for tp in partitions]
        try:
            with closing(Consumer(settings)) as consumer:
                return self._wait_for_committed(consumer, group_id, wanted)
        except KafkaException as exc:
            raise self._line.unavailable({f"group {group_id}": _reason(exc.args[0])}) from exc

    def _wait_for_committed(self, consumer: Consumer, group_id: str, wanted: list[Any]) -> list[Any]:
        seconds = self._line.request_seconds()
        try:
            return list(consumer.committed(wanted, timeout=_SHORTEST))
        except KafkaException:
            # That a user may not see the group is no answer: it comes where records would come.
            message = consumer.poll(0)
            if message is not None and message.error():
                self._line.refuse_unauthorized("Group", {group_id: message.error()})
            if seconds < 2 * _SHORTEST:
                raise
        return list(consumer.committed(wanted, timeout=seconds - _SHORTEST))

    def _bounds(
        self, partitions: Sequence[TopicPartition], isolation_level: IsolationLevel
    ) -> dict[TopicPartition, Bounds]:
        specs = [OffsetSpec.earliest(), OffsetSpec.latest()]
        beginnings, ends = self._list_offsets(partitions, specs, isolation_level)
        self._line.fail_for({tp: why for tp in beginnings if (why := _defect(beginnings[tp]) or _defect(ends[tp]))})
        # Records that are deleted under an open transaction leave the last stable offset behind the beginning.
        return {tp: Bounds(b.offset, max(b.offset, ends[tp].offset), _epoch(ends[tp])) for tp, b in beginnings.items()}

    def _list_offsets(
        self, partitions: Sequence[TopicPartition], specs: Sequence[Any], isolation_level: IsolationLevel
    ) -> list[dict[TopicPartition, Any]]:
        """Return for each spec the answer for each partition: an offset with its timestamp, or a KafkaError.

        Everything is under way before the first answer is waited for. One call takes one spec of a partition: of two,
        it forgets the first without a word.
        """
        wanted = [confluent_kafka.TopicPartition(tp.topic, tp.partition) for tp in partitions]
        chunks = [wanted[start : start + CHUNK] for start in range(0, len(wanted), CHUNK)]
        level = _theirs(isolation_level)

        def request(admin: Any, seconds: float) -> dict[int, Any]:
            ask = partial(admin.list_offsets, isolation_level=level, request_timeout=seconds)
            calls = [(chunk, ask(dict.fromkeys(chunk, spec))) for spec in specs for chunk in chunks]
            return dict(enumerate(futures[tp] for chunk, futures in calls for tp in chunk))

        answers = iter(self._line.ask(request).values())
        return [dict(zip(partitions, answers, strict=False)) for _ in specs]


class _Line:
    """One lookup's line to Kafka: how long it may take, what librdkafka reports meanwhile, and how a failure reads."""

    def __init__(self, config: Mapping[str, Any], timeout: float) -> None:
        self.config = config
        self._timeout = timeout
        self._started = time.monotonic()
        self.heard: deque[KafkaError] = deque(maxlen=100)

    def request_seconds(self) -> float:
        """Return how long the next request may take."""
        # Not all the time that is left: where a broker hangs, a second look may find another one.
        left = self._started + self._timeout - time.monotonic()
        return max(_SHORTEST, min(left, max(_PATIENCE, self._timeout / 3)))

    def ask(self, request: Callable[[Any, float], Mapping[_T, Any]]) -> dict[_T, Any]:
        """Send a request and return what each of its futures brought: a result or a KafkaError."""
        shared = _shared_client(self.config)
        try:
            client = shared.get(self.config)
        except (KafkaException, TypeError, ValueError) as exc:
            raise self._unusable(exc) from None  # its text may repeat a secret
        try:
            with client.heard_by(self):
                answers = self._collect(client.admin, request)
        except KafkaRefusedError:
            shared.forget(client)
            raise
        client.has_answered |= any(_is_from_broker(answer) for answer in answers.values())
        # A client whose controller hangs asks only that one, for minutes; a new client finds another broker.
        if any(
            isinstance(answer, KafkaError) and answer.code() == KafkaError._TIMED_OUT for answer in answers.values()
        ):
            shared.forget(client)
        return answers

    def _collect(self, admin: Any, request: Callable[[Any, float], Mapping[_T, Any]]) -> dict[_T, Any]:
        seconds = self.request_seconds()
        futures = request(admin, seconds)
        overdue = time.monotonic() + seconds + _GRACE
        return {key: self._wait(admin, future, overdue) for key, future in futures.items()}

    def _wait(self, admin: Any, future: Any, overdue: float) -> Any:
        while True:
            try:
                return future.result(_TICK)
            except KafkaException as exc:
                return exc.args[0]
            except TimeoutError:
                # Only here does librdkafka tell what it hides behind "timed out".
                admin.poll(0)
                if cause := refusal(self.heard):
                    raise self._refused(cause) from None
                if time.monotonic() > overdue:
                    return KafkaError(KafkaError._TIMED_OUT)

    def refuse_unauthorized(self, kind: str, errors: Mapping[str, KafkaError]) -> None:
        """Raise KafkaRefusedError for the topics or groups that this user may not look at."""
        names = sorted(name for name, error in errors.items() if error.code() in _UNAUTHORIZED)
        if names:
            raise KafkaRefusedError(
                f"Kafka at {self._servers} does not let this user look at {kind.lower()} {name_some(names, ', ')}: "
                f"that needs the ACL Describe on {kind} (Read includes it)"
            )

    def fail_for(self, defects: Mapping[Any, str]) -> None:
        """Raise KafkaUnavailableError if there is anything without an answer."""
        if defects:
            raise self.unavailable(defects)

    def unavailable(self, defects: Mapping[Any, str]) -> KafkaUnavailableError:
        """Return the error for what has no answer; a refusal, if that is what librdkafka reported last."""
        cause = last_cause(self.heard)
        if cause and cause.code() in _REFUSALS:
            return self._refused(cause)
        seconds = time.monotonic() - self._started
        return KafkaUnavailableError(
            f"Kafka at {self._servers} did not answer within {seconds:.1f} s: {by_reason(defects)}. "
            + self.masked(hint(self.heard))
        )

    def _refused(self, cause: KafkaError) -> KafkaRefusedError:
        what, remedy = _REFUSALS[cause.code()]
        return KafkaRefusedError(f"Kafka at {self._servers} {what} ({self.masked(cause.str())}): {remedy}")

    def _unusable(self, exc: Exception) -> KafkaRefusedError:
        why = exc.args[0].str() if isinstance(exc, KafkaException) else str(exc)
        return KafkaRefusedError(f"The settings for Kafka at {self._servers} can't be used: {self.masked(why)}")

    def masked(self, text: str) -> str:
        """Return a text without the connection's secrets."""
        return masked(text, self.config)

    @property
    def _servers(self) -> str:
        return str(self.config.get("bootstrap.servers") or self.config.get("metadata.broker.list"))


class _Client:
    """An AdminClient and the lookups that want to hear what it reports.

    Attributes:
        has_answered: whether a broker ever answered it.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        reported: deque[KafkaError] = deque(maxlen=100)
        listeners: list[_Line] = []
        users_own = config.get("error_cb")

        # Not a method: a cycle would leave the client of a process to the garbage collector of its fork.
        def report(error: KafkaError) -> None:
            reported.append(error)
            for line in tuple(listeners):
                line.heard.append(error)
            if users_own:
                users_own(error)

        self._reported = reported
        self._listeners = listeners
        self.has_answered = False
        self.admin = AdminClient({**config, "error_cb": report})

    @contextmanager
    def heard_by(self, line: _Line) -> Iterator[None]:
        """Tell a lookup what is reported from now on; before the first answer, all since the beginning."""
        if not self.has_answered:
            # Much is told only once: that all brokers are down, for instance.
            line.heard.extend(tuple(self._reported))
        elif not self._listeners:
            self.admin.poll(0)  # what happened while nobody asked would look like news
        self._listeners.append(line)
        try:
            yield
        finally:
            self._listeners.remove(line)


class _SharedClient:
    """The one client of a connection in this process, opened when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.client: _Client | None = None

    def get(self, config: Mapping[str, Any]) -> _Client:
        with self._lock:
            if self.client is None:
                self.client = _Client(config)
            return self.client

    def forget(self, client: _Client) -> None:
        """Let the next lookup open a new client; lookups under way keep this one until they are done."""
        with self._lock:
            if self.client is client:
                self.client = None


# By process and connection: after a fork, the futures of an inherited client never complete.
_shared: dict[tuple[int, str], _SharedClient] = {}


def _shared_client(config: Mapping[str, Any]) -> _SharedClient:
    _keep_inherited_clients()
    pid = os.getpid()
    # One step, without a lock: a fork would inherit that as it is, taken.
    shared = _shared.setdefault((pid, digest(config)), _SharedClient())
    for key in [key for key in tuple(_shared) if key[0] == pid][:-MAX_CLIENTS]:
        _shared.pop(key, None)
    return shared


@cache
def _keep_inherited_clients() -> None:
    """Make forks never destroy a client of their parent: that waits for threads which they lack, then crashes."""

    def keep() -> None:
        for shared in tuple(_shared.values()):
            # One reference too many, so that not even the end of the interpreter destroys it.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(shared.client))

    os.register_at_fork(after_in_child=keep)


def client_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that an AdminClient can use, and silence librdkafka's stderr: errors tell what it would.

    >>> client_config({"bootstrap.servers": "kafka:9092", "group.id": "g", "error_cb": "a.function"})
    {'log_level': 0, 'bootstrap.servers': 'kafka:9092'}
    """
    return {"log_level": 0} | {name: value for name, value in config.items() if _is_ours(name, value)}


def _is_ours(name: str, value: Any) -> bool:
    # In a connection's extra, a callback is the name of a function, which Airflow's own hooks look up: none that we need.
    is_name = name in _TELLING and not callable(value)
    return not is_name and not _NOT_OURS.fullmatch(name)


def digest(config: Mapping[str, Any]) -> str:
    """Return a name for a connection that tells its settings apart and shows none of them."""
    known = "\n".join(f"{name}={_identity(value)}" for name, value in sorted(config.items()))
    return hashlib.sha256(known.encode()).hexdigest()


def _identity(value: Any) -> str:
    # Hooks make a new callback for each login; what it is and was given says whether it is the same login.
    if isinstance(value, partial):
        return f"{_identity(value.func)} of {value.args!r} {value.keywords!r}"
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
    return repr(value)


def masked(text: str, config: Mapping[str, Any]) -> str:
    """Return a text without the values of the settings that are secret.

    >>> masked("bad password hunter2", {"sasl.password": "hunter2"})
    'bad password ***'
    """
    for name, value in config.items():
        if value and is_secret(name):
            text = text.replace(str(value), "***")
    return text


def epoch_milliseconds(moment: datetime) -> int:
    """Return the first millisecond that is not before a moment: Kafka's timestamps have no fractions.

    Raises:
        BadInputError: it has no zone, or lies before 1970: Kafka gives negative timestamps another meaning.
    """
    if moment.tzinfo is None:
        raise BadInputError(f"A time needs a zone, got {moment.isoformat()}")
    if moment < _EPOCH:
        raise BadInputError(f"Kafka knows no time before 1970, got {moment.isoformat()}")
    return -((_EPOCH - moment) // timedelta(milliseconds=1))


def refusal(heard: Iterable[KafkaError]) -> KafkaError | None:
    """Return what says that no patience will help, if no broker is left that could.

    Twice, for a broker that goes down in the middle of a login looks the same once.
    """
    heard = tuple(heard)
    causes = [error for error in heard if error.code() in _REFUSALS]
    is_alone = any(error.code() == KafkaError._ALL_BROKERS_DOWN for error in heard)
    return causes[-1] if is_alone and len(causes) > 1 else None


def last_cause(heard: Iterable[KafkaError]) -> KafkaError | None:
    """Return the last report that says why; that all brokers are down says only what."""
    causes = [error for error in heard if error.code() != KafkaError._ALL_BROKERS_DOWN]
    return causes[-1] if causes else None


def hint(heard: Sequence[KafkaError]) -> str:
    """Return what a person can look at, from what librdkafka reported."""
    cause = last_cause(heard)
    if cause:
        return f"The last error of a connection was: {cause.str()}. Check bootstrap.servers and security.protocol, and that the brokers run"
    if heard:
        return "Every connection was closed without a reason: check that security.protocol is that of the listener"
    return "No connection reported an error: look at the brokers themselves"


def by_reason(defects: Mapping[Any, str]) -> str:
    """Return a sentence that names each reason once, with what it concerns."""
    concerned: dict[str, list[str]] = {}
    for what, why in sorted(defects.items()):
        concerned.setdefault(why, []).append(str(what))
    return name_some([f"{why} ({name_some(names, ', ')})" for why, names in concerned.items()])


def _is_from_broker(answer: Any) -> bool:
    # librdkafka's own errors are negative.
    return not isinstance(answer, KafkaError) or answer.code() > 0


def _defect(answer: Any, lowest: int = 0) -> str | None:
    if isinstance(answer, KafkaError):
        return _reason(answer)
    # librdkafka reports success with offset -1001 for each partition of a leader that did not answer.
    return None if answer.offset >= lowest else "no answer from its leader"


def _reason(error: KafkaError) -> str:
    return f"{error.name()} {error.str()}".rstrip(": ")


def one_of_each(wanted: Iterable[PartitionEpoch]) -> list[list[PartitionEpoch]]:
    """Divide epochs into lists that each name a partition once.

    >>> first, second = PartitionEpoch(TopicPartition("orders", 0), 3), PartitionEpoch(TopicPartition("orders", 0), 5)
    >>> one_of_each([first, second]) == [[first], [second]]
    True
    """
    by_partition: dict[TopicPartition, list[PartitionEpoch]] = {}
    for epoch in wanted:
        by_partition.setdefault(epoch.partition, []).append(epoch)
    most = max(map(len, by_partition.values()), default=0)
    return [[epochs[number] for epochs in by_partition.values() if number < len(epochs)] for number in range(most)]


def epoch_end(error: str) -> int | None:
    """Return where a leader epoch ends, from what a consumer says of an offset that it could not confirm; None: not known.

    >>> epoch_end("Partition log truncation detected at ...: broker end offset is 60 (offset leader epoch 0). Reset to INVALID.")
    60
    >>> epoch_end("No epoch found less or equal to ...: broker end offset is -1 (offset leader epoch -1).")
    """
    found = _EPOCH_END.search(error)
    return int(found.group(1)) if found else None


def _far_behind(epoch: PartitionEpoch) -> confluent_kafka.TopicPartition:
    tp = epoch.partition
    return confluent_kafka.TopicPartition(tp.topic, tp.partition, _BEHIND_ALL, leader_epoch=epoch.leader_epoch)


def _epoch(answer: Any) -> int | None:
    known = answer.leader_epoch
    return known if known is not None and known >= 0 else None


def _topic_ids(described: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(topic.topic_id) for name, topic in described.items()}


def _leaders(described: Mapping[str, Any]) -> dict[TopicPartition, Any]:
    return {
        TopicPartition(name, partition.id): partition.leader
        for name, topic in described.items()
        for partition in topic.partitions
    }


def _leaderless(leaders: Mapping[TopicPartition, Any]) -> dict[TopicPartition, str]:
    return {tp: "no leader" for tp, leader in leaders.items() if leader is None}


def _ours(partition: confluent_kafka.TopicPartition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)


def _theirs(isolation_level: IsolationLevel) -> confluent_kafka.IsolationLevel:
    return confluent_kafka.IsolationLevel[isolation_level.name]
