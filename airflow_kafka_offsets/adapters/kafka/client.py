"""Kafka's client. In each process, all lookups with the same settings share one."""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, TypeVar
from weakref import WeakSet

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from airflow_kafka_offsets.adapters.kafka.messages import (
    REFUSALS,
    UNSUPPORTED,
    by_reason,
    code_of,
    hint,
    last_cause,
    masked,
    refusal,
)
from airflow_kafka_offsets.adapters.kafka.settings import SETTINGS
from airflow_kafka_offsets.core.errors import (
    KafkaAnswerError,
    KafkaLacksError,
    KafkaRefusedError,
    KafkaUnavailableError,
    did_you_mean,
    error_in_short,
    name_some,
)
from airflow_kafka_offsets.core.offsets import TopicPartition

_T = TypeVar("_T")
_C = TypeVar("_C", bound=Any)

MAX_CLIENTS = 32
"""How many clients one process keeps. Each has a thread per broker, and each rotated password makes a new one."""

# A time-out below a millisecond corrupts librdkafka's heap in list_offsets; librdkafka refuses one above an hour.
SHORTEST, LONGEST = 1.0, 3600.0

# A new client may need seconds for its first answer. With less time, each attempt would start from the beginning.
_PATIENCE = 5.0

# Seconds between two looks at librdkafka's reports during a lookup.
TICK = 0.05

# Seconds after its own time-out until a request counts as dead. After a fork, requests of the old client never answer.
_GRACE = 0.5

# Settings of consumers and producers, from librdkafka's CONFIGURATION.md. An AdminClient warns about those of consumers or
# refuses them. Idempotence and transactions request a producer id, a right that no lookup needs.
_NOT_OURS = re.compile(
    r"(auto|batch|check|compression|consume|coordinator|delivery|fetch|group|heartbeat|isolation|linger|offset|produce)\..*"
    r"|(queued|queuing|queue\.buffering|session|share|sticky|transaction)\..*|enable\.(auto|gapless|idempotence|partition)\b.*"
    r"|max\.(partition|poll)\..*|message\.(send|timeout)\..*|request\.(required|timeout)\..*|partition(er|\.).*"
    r"|acks|default\.topic\.config|log_cb|logger|on_commit|on_delivery|retries|transactional\.id"
)

_UNAUTHORIZED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}


class KafkaRequests:
    """The requests of one lookup: they share a time limit, librdkafka's reports and the form of the errors.

    Attributes:
        config: librdkafka's settings.
        reports: the errors that librdkafka has reported during this lookup.
    """

    def __init__(self, config: Mapping[str, Any], timeout: float) -> None:
        self.config = config
        self._timeout = timeout
        self._started = time.monotonic()
        self.reports: deque[KafkaError] = deque(maxlen=100)

    def request_seconds(self) -> float:
        """Return how long the next request may take."""
        # Not all of the remaining time: if a broker hangs, a second attempt may find another one.
        left = self._started + self._timeout - time.monotonic()
        return max(SHORTEST, min(left, max(_PATIENCE, self._timeout / 3)))

    def send(
        self,
        what: str,
        request: Callable[[Any, float], Mapping[_T, Any]],
        topic_of: Callable[[_T], str] | None = None,
    ) -> dict[_T, Any]:
        """Send a request and return the outcome of each of its futures: a result or a KafkaError.

        Args:
            what: the kind of request, in Kafka's words.
            request: sends it.
            topic_of: returns the topic of a future by its key, or None if they belong to no topics.

        Raises:
            KafkaLacksError: the broker does not support it, or not for some topics.
        """
        shared = shared_client(self.config)
        try:
            client = shared.get(self.config)
        except (KafkaException, TypeError, ValueError) as exc:
            raise self._unusable(exc) from None  # its text may repeat a secret
        try:
            with client.reporting_to(self):
                answers = self._collect(client, request)
        except KafkaRefusedError:
            shared.forget(client)
            raise
        client.has_answered |= any(_is_from_broker(answer) for answer in answers.values())
        # If the controller hangs, a client asks only that broker for minutes. A new client finds another one.
        if any(
            isinstance(answer, KafkaError) and answer.code() == KafkaError._TIMED_OUT for answer in answers.values()
        ):
            shared.forget(client)
        self.refuse_unsupported(what, answers, topic_of)
        return answers

    def refuse_unsupported(
        self, what: str, answers: Mapping[_T, Any], topic_of: Callable[[_T], str] | None = None
    ) -> None:
        """Raise KafkaLacksError if an answer says that the broker does not support this kind of request; with its topics, see `send`."""
        lacking = {
            key: answer
            for key, answer in answers.items()
            if isinstance(answer, KafkaError) and answer.code() in UNSUPPORTED
        }
        if lacking:
            topics = sorted({topic_of(key) for key in lacking}) if topic_of else []
            # A topic of an old message format lacks what the other topics have.
            only = f" for {name_some(topics, ', ')}" if topics and len(lacking) < len(answers) else ""
            raise KafkaLacksError(
                f"Kafka at {self._servers} does not support {what}{only} ({next(iter(lacking.values())).name()}). What needs it, and "
                "what goes without it: docs/compatibility.md#kafka-and-brokers-of-other-makers",
                topics=topics,
            )

    def _collect(self, client: _Client, request: Callable[[Any, float], Mapping[_T, Any]]) -> dict[_T, Any]:
        seconds = self.request_seconds()
        futures = request(client.admin, seconds)
        overdue = time.monotonic() + seconds + _GRACE
        return {key: self._wait(client, future, overdue) for key, future in futures.items()}

    def _wait(self, client: _Client, future: Any, overdue: float) -> Any:
        while True:
            try:
                return future.result(TICK)
            except KafkaException as exc:
                return exc.args[0]
            except TimeoutError:
                # librdkafka reports the reason for "timed out" only here.
                client.admin.poll(0)
                if cause := refusal(self.reports):
                    raise self._refused(cause) from None
                if time.monotonic() > overdue:
                    return KafkaError(KafkaError._TIMED_OUT)

    def refuse_unauthorized(self, kind: str, errors: Mapping[str, KafkaError]) -> None:
        """Raise KafkaRefusedError for topics or groups that this user may not see."""
        names = sorted(name for name, error in errors.items() if error.code() in _UNAUTHORIZED)
        if names:
            raise KafkaRefusedError(
                f"Kafka at {self._servers}: no access to {kind.lower()} {name_some(names, ', ')}. Grant the ACL Describe on {kind}",
                topics=names if kind == "Topic" else (),
            )

    def fail_for(self, defects: Mapping[TopicPartition, str] | Mapping[str, str]) -> None:
        """Raise the error of `unavailable` if partitions or topics have no answer."""
        if defects:
            raise self.unavailable(defects, {what if isinstance(what, str) else what.topic for what in defects})

    def unavailable(self, defects: Mapping[Any, str], topics: Collection[str] = ()) -> KafkaAnswerError:
        """Return the error for missing answers: a KafkaRefusedError if librdkafka last reported a refusal.

        Args:
            defects: why there is no answer, by partition or topic.
            topics: those that it concerns.
        """
        cause = last_cause(self.reports)
        if cause and code_of(cause) in REFUSALS:
            return self._refused(cause)
        seconds = time.monotonic() - self._started
        return KafkaUnavailableError(
            f"Kafka at {self._servers} did not answer within {seconds:.1f} s: {by_reason(defects)}. "
            + self.masked(hint(self.reports)),
            topics=topics,
        )

    def _refused(self, cause: KafkaError) -> KafkaRefusedError:
        what, remedy = REFUSALS[code_of(cause)]
        return KafkaRefusedError(f"Kafka at {self._servers} {what} ({self.masked(cause.str())}): {remedy}")

    def _unusable(self, exc: Exception) -> KafkaRefusedError:
        why = exc.args[0].str() if isinstance(exc, KafkaException) else str(exc)
        unknown = re.search(r'No such configuration property: "(.*)"', why)
        near = did_you_mean(unknown[1], SETTINGS) if unknown else ""
        return KafkaRefusedError(f"The settings of Kafka at {self._servers}: {self.masked(why)}{near}")

    def masked(self, text: str) -> str:
        """Return a text without the connection's secrets."""
        return masked(text, self.config)

    @property
    def _servers(self) -> str:
        return _servers(self.config)


def _servers(config: Mapping[str, Any]) -> str:
    return str(config.get("bootstrap.servers") or config.get("metadata.broker.list"))


class _Client:
    """An AdminClient, and the lookups that get its reports.

    Attributes:
        admin: the AdminClient. Nothing else refers to it for longer than one call: errors and their frames may stay until the end.
        has_answered: whether a broker has ever answered it.
        pid: the process whose threads it has.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        reported: deque[KafkaError] = deque(maxlen=100)
        listeners: list[KafkaRequests] = []
        users_own = config.get("error_cb")

        # Not a method: a reference cycle would leave the client to the garbage collector, also in a fork of this process.
        def report(error: KafkaError) -> None:
            reported.append(error)
            for requests in tuple(listeners):
                requests.reports.append(error)
            if users_own:
                users_own(error)

        self._reported = reported
        self._listeners = listeners
        self.has_answered = False
        self.pid = os.getpid()
        self.admin: Any = opened(AdminClient, {**config, "error_cb": report})
        _open.add(self)

    @property
    def is_idle(self) -> bool:
        return not self._listeners

    @contextmanager
    def reporting_to(self, requests: KafkaRequests) -> Iterator[None]:
        """Pass reports to a lookup from now on. Before the first answer of a broker, pass all earlier ones, too."""
        if not self.has_answered:
            # librdkafka reports some errors only once, for example that all brokers are down.
            requests.reports.extend(tuple(self._reported))
        elif not self._listeners:
            self.admin.poll(0)  # drop what was reported between two lookups
        self._listeners.append(requests)
        try:
            yield
        finally:
            self._listeners.remove(requests)


class SharedClient:
    """The one client of a connection in this process. It is opened when it is first needed.

    Attributes:
        found_times: see `ports.LogOffsets`.
    """

    def __init__(self) -> None:
        self.found_times: dict[Any, Any] = {}
        self._lock = threading.Lock()
        self.client: _Client | None = None

    def get(self, config: Mapping[str, Any]) -> _Client:
        with self._lock:
            if self.client is None:
                self.client = _Client(config)
            return self.client

    def forget(self, client: _Client) -> None:
        """Let the next lookup open a new client. Lookups that are running keep this one."""
        with self._lock:
            if self.client is client:
                self.client = None


_open: WeakSet[_Client] = WeakSet()


@atexit.register
def _close_clients() -> None:
    """End the threads of librdkafka before the process ends: one that logs in then would crash, as OpenSSL is gone."""
    for client in tuple(_open):
        if client.is_idle and client.pid == os.getpid():
            client.admin = None


# By process and connection: after a fork, the futures of an inherited client never complete.
_shared: dict[tuple[int, str], SharedClient] = {}


def shared_client(config: Mapping[str, Any]) -> SharedClient:
    _keep_inherited_clients()
    pid = os.getpid()
    # In one step, without a lock: a fork could inherit the lock while it is held.
    shared = _shared.setdefault((pid, digest(config)), SharedClient())
    for key in [key for key in tuple(_shared) if key[0] == pid][:-MAX_CLIENTS]:
        _shared.pop(key, None)
    return shared


@cache
def _keep_inherited_clients() -> None:
    """Keep forks from destroying a client of their parent: that waits for threads which a fork does not have, and crashes."""

    def keep() -> None:
        for shared in tuple(_shared.values()):
            # One reference more than there are, so that even the end of the interpreter does not destroy it.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(shared.client))

    os.register_at_fork(after_in_child=keep)


def client_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that an AdminClient can use. librdkafka's stderr is off: errors report the same.

    >>> client_config({"bootstrap.servers": "kafka:9092", "group.id": "g"})
    {'log_level': 0, 'bootstrap.servers': 'kafka:9092'}
    """
    return {"log_level": 0} | {name: value for name, value in config.items() if not _NOT_OURS.fullmatch(name)}


def opened(make: Callable[[dict[str, Any]], _C], config: Mapping[str, Any]) -> _C:
    """Open a client of confluent-kafka; where the login takes a token from a callback, with the first token at hand.

    Raises:
        KafkaUnavailableError: the callback failed. confluent-kafka would wait for it for 10 s, and hide the reason.
    """
    others = {name: value for name, value in config.items() if name != "oauth_cb"}
    fetch = config.get("oauth_cb") if _takes_token(config) else None
    if fetch is None:
        return make(others)  # with a callback, confluent-kafka would wait for a token, whatever the login
    try:
        first = [fetch(config.get("sasl.oauthbearer.config", ""))]
    except Exception as exc:  # anything that a callback raises
        raise KafkaUnavailableError(
            f"No token for the login to Kafka at {_servers(config)}: {masked(error_in_short(exc), config)}. "
            "Check the credentials that its oauth_cb uses"
        ) from None
    client = make({**others, "oauth_cb": lambda given: first.pop() if first else fetch(given)})
    client.poll(0)  # some versions of confluent-kafka call back only then
    return client


def _takes_token(config: Mapping[str, Any]) -> bool:
    mechanisms = (config.get("sasl.mechanism"), config.get("sasl.mechanisms"))
    return str(config.get("security.protocol")).upper().startswith("SASL") and "OAUTHBEARER" in mechanisms


def digest(config: Mapping[str, Any]) -> str:
    """Return a digest of a connection's settings, which shows none of them."""
    settings = "\n".join(f"{name}={_identity(value)}" for name, value in sorted(config.items()))
    return hashlib.sha256(settings.encode()).hexdigest()


def _identity(value: Any) -> str:
    # Hooks make a new callback for each login. Its function and what it was made with decide whether it is the same login.
    if isinstance(value, partial):
        return f"{_identity(value.func)} of {value.args!r} {value.keywords!r}"
    if callable(value) and hasattr(value, "__qualname__"):
        enclosed = [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
        return f"{value.__module__}.{value.__qualname__} {enclosed!r}"
    return repr(value)


def _is_from_broker(answer: Any) -> bool:
    # librdkafka's own errors are negative.
    return not isinstance(answer, KafkaError) or answer.code() > 0
