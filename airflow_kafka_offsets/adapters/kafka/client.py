"""Kafka's client: one for all looks with the same settings, in each process."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from airflow_kafka_offsets.adapters.kafka.messages import REFUSALS, by_reason, hint, last_cause, masked, refusal
from airflow_kafka_offsets.core.errors import (
    KafkaAnswerError,
    KafkaRefusedError,
    KafkaUnavailableError,
    name_some,
)

_T = TypeVar("_T")

MAX_CLIENTS = 32
"""Clients that one process keeps; each has a thread per broker. Rotated passwords make new ones."""

# Below a millisecond, list_offsets corrupts librdkafka's heap; above an hour, it is refused.
SHORTEST, LONGEST = 1.0, 3600.0

# A cold client may need seconds for its first answer: with less, every attempt would begin from the start.
_PATIENCE = 5.0

# How often a waiting lookup hears what librdkafka reports.
TICK = 0.05

# How long after its own time-out a request may still be silent: it always is after a fork.
_GRACE = 0.5

_TELLING = ("error_cb", "stats_cb", "throttle_cb")

# Settings of consumers and producers, by librdkafka's CONFIGURATION.md. An AdminClient warns about the former or refuses
# them, and some of the latter act: idempotence and transactions want a producer id, a right that no lookup needs.
_NOT_OURS = re.compile(
    r"(auto|batch|check|compression|consume|coordinator|delivery|fetch|group|heartbeat|isolation|linger|offset|produce)\..*"
    r"|(queued|queuing|queue\.buffering|session|share|sticky|transaction)\..*|enable\.(auto|gapless|idempotence|partition)\b.*"
    r"|max\.(partition|poll)\..*|message\.(send|timeout)\..*|request\.(required|timeout)\..*|partition(er|\.).*"
    r"|acks|default\.topic\.config|log_cb|logger|on_commit|on_delivery|retries|transactional\.id"
)

_UNAUTHORIZED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}


class Line:
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
        return max(SHORTEST, min(left, max(_PATIENCE, self._timeout / 3)))

    def ask(self, request: Callable[[Any, float], Mapping[_T, Any]]) -> dict[_T, Any]:
        """Send a request and return what each of its futures brought: a result or a KafkaError."""
        shared = shared_client(self.config)
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
                return future.result(TICK)
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
        """Raise the error of `unavailable` if there is anything without an answer."""
        if defects:
            raise self.unavailable(defects)

    def unavailable(self, defects: Mapping[Any, str]) -> KafkaAnswerError:
        """Return the error for what has no answer; a refusal, if that is what librdkafka reported last."""
        cause = last_cause(self.heard)
        if cause and cause.code() in REFUSALS:
            return self._refused(cause)
        seconds = time.monotonic() - self._started
        return KafkaUnavailableError(
            f"Kafka at {self._servers} did not answer within {seconds:.1f} s: {by_reason(defects)}. "
            + self.masked(hint(self.heard))
        )

    def _refused(self, cause: KafkaError) -> KafkaRefusedError:
        what, remedy = REFUSALS[cause.code()]
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
        listeners: list[Line] = []
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
    def heard_by(self, line: Line) -> Iterator[None]:
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


class SharedClient:
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
_shared: dict[tuple[int, str], SharedClient] = {}


def shared_client(config: Mapping[str, Any]) -> SharedClient:
    _keep_inherited_clients()
    pid = os.getpid()
    # One step, without a lock: a fork would inherit that as it is, taken.
    shared = _shared.setdefault((pid, digest(config)), SharedClient())
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


def _is_from_broker(answer: Any) -> bool:
    # librdkafka's own errors are negative.
    return not isinstance(answer, KafkaError) or answer.code() > 0
