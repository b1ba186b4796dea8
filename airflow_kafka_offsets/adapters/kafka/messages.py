"""The errors of Kafka's client, in words for a person."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError

from airflow_kafka_offsets.core.errors import name_some
from airflow_kafka_offsets.spark.shared import is_secret

# Errors that end a lookup at once: a retry does not help.
REFUSALS = {
    KafkaError._AUTHENTICATION: (
        "refused the login",
        "check sasl.mechanism, sasl.username and sasl.password; or for OAUTHBEARER, oauth_cb and sasl.oauthbearer.*",
    ),
    KafkaError._SSL: (
        "could not be reached over TLS",
        "check ssl.ca.location and the certificate's host",
    ),
}

UNSUPPORTED = {
    KafkaError._UNSUPPORTED_FEATURE,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}
"""Errors of a broker that lacks something: an older one, or one of another maker."""


def masked(text: str, config: Mapping[str, Any]) -> str:
    """Return a text without the values of secret settings.

    >>> masked("bad password hunter2", {"sasl.password": "hunter2"})
    'bad password ***'
    """
    for name, value in config.items():
        if value and is_secret(name, str(value)):
            text = text.replace(str(value), "***")
    return text


def code_of(error: KafkaError) -> int:
    """Return the code of a report: that of TLS also for a handshake that librdkafka reports as lost transport."""
    # It does so if the first call of OpenSSL fails: with a quick broker.
    is_tls = error.code() == KafkaError._TRANSPORT and "SSL routines" in error.str()
    code: int = KafkaError._SSL if is_tls else error.code()
    return code


def refusal(reports: Iterable[KafkaError]) -> KafkaError | None:
    """Return the report of a refusal, if there are two and all brokers are down: a retry then does not help.

    One report is not enough: a broker that stops in the middle of a login causes the same report once.
    """
    reports = tuple(reports)
    causes = [error for error in reports if code_of(error) in REFUSALS]
    are_all_down = any(error.code() == KafkaError._ALL_BROKERS_DOWN for error in reports)
    return causes[-1] if are_all_down and len(causes) > 1 else None


def last_cause(reports: Iterable[KafkaError]) -> KafkaError | None:
    """Return the last report that gives a reason. "All brokers are down" gives none."""
    causes = [error for error in reports if error.code() != KafkaError._ALL_BROKERS_DOWN]
    return causes[-1] if causes else None


def hint(reports: Sequence[KafkaError]) -> str:
    """Return advice from librdkafka's reports."""
    cause = last_cause(reports)
    if cause:
        return f"{cause.str()}. Check bootstrap.servers, security.protocol and the brokers"
    return "Kafka closed every connection: check security.protocol" if reports else "Check the brokers"


def by_reason(defects: Mapping[Any, str]) -> str:
    """Return a sentence that names each reason once, with the partitions it concerns."""
    concerned: dict[str, list[str]] = {}
    for what, why in sorted(defects.items()):
        concerned.setdefault(why, []).append(str(what))
    return name_some([f"{why} ({name_some(names, ', ')})" for why, names in concerned.items()])


def reason_of(error: KafkaError) -> str:
    return f"{error.name()} {error.str()}".rstrip(": ")
