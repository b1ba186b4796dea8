"""What Kafka's client says, in words for a person."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError

from airflow_kafka_offsets.core.errors import (
    name_some,
)
from airflow_kafka_offsets.core.secrets import is_secret

# What ends a lookup at once: no patience helps.
REFUSALS = {
    KafkaError._AUTHENTICATION: (
        "refused the login",
        "check sasl.mechanism, sasl.username and sasl.password of the connection",
    ),
    KafkaError._SSL: (
        "could not be reached over TLS",
        "check ssl.ca.location of the connection, and that the host in bootstrap.servers is in the broker's certificate",
    ),
}


def masked(text: str, config: Mapping[str, Any]) -> str:
    """Return a text without the values of the settings that are secret.

    >>> masked("bad password hunter2", {"sasl.password": "hunter2"})
    'bad password ***'
    """
    for name, value in config.items():
        if value and is_secret(name):
            text = text.replace(str(value), "***")
    return text


def refusal(heard: Iterable[KafkaError]) -> KafkaError | None:
    """Return what says that no patience will help, if no broker is left that could.

    Twice, for a broker that goes down in the middle of a login looks the same once.
    """
    heard = tuple(heard)
    causes = [error for error in heard if error.code() in REFUSALS]
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


def reason_of(error: KafkaError) -> str:
    return f"{error.name()} {error.str()}".rstrip(": ")
