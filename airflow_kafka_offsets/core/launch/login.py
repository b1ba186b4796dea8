"""Translates a Kafka connection (librdkafka's settings) to the options of Spark's Kafka reader (Java's settings).

Secrets go into a file that the job's Kafka client reads through a config provider (KIP-297). Plan, UI, event log and argv
hold only a reference to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_kafka_offsets.core.errors import BadInputError

_SERVERS = "kafka.bootstrap.servers"
_JAAS = "kafka.sasl.jaas.config"
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_PROVIDERS = "kafka.config.providers"
_PROVIDER = "kafka_offsets_login"
_PROVIDER_CLASS = "org.apache.kafka.common.config.provider.FileConfigProvider"


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """What Spark's reader needs to reach Kafka.

    Attributes:
        options: the options without secrets.
        jaas: the login, which goes into a file that only the job can read, or None if there is none, or the user set a
            reference.
    """

    options: Mapping[str, str]
    jaas: str | None = field(repr=False)

    @property
    def servers(self) -> str:
        """Kafka's servers, with commas between them."""
        return spark_servers({}, self.options)

    def with_jaas_file(self, path: str) -> dict[str, str]:
        """Return the options with a reference to the file that holds the login."""
        if self.jaas is None:
            return dict(self.options)
        # Add to the user's providers, so that the user's references still work.
        providers = {name: value for name, value in self.options.items() if name.lower() == _PROVIDERS}
        others = {name: value for name, value in self.options.items() if name not in providers}
        return {
            **others,
            _PROVIDERS: ",".join([*providers.values(), _PROVIDER]),
            f"{_PROVIDERS}.{_PROVIDER}.class": _PROVIDER_CLASS,
            _JAAS: f"${{{_PROVIDER}:{path}:jaas}}",
        }


def spark_servers(connection: Mapping[str, Any], spark_options: Mapping[str, str]) -> str:
    """Return the Kafka servers that Spark gets: those of the user's option, whatever its case, or else of the connection.

    >>> spark_servers({"bootstrap.servers": "kafka:9092"}, {"kafka.Bootstrap.servers": "inside:9094"})
    'inside:9094'
    """
    chosen = [value for name, value in spark_options.items() if name.lower() == _SERVERS]
    return chosen[0] if chosen else str(connection["bootstrap.servers"])


def reader_options(connection: Mapping[str, Any], spark_options: Mapping[str, str]) -> ReaderOptions:
    """Translate a connection. Options that the user set for Spark take precedence.

    Args:
        connection: librdkafka's settings, as in the extra of an Airflow connection of type ``kafka``.
        spark_options: the group's own options for the reader.

    Raises:
        BadInputError: a setting can't be translated, and spark_options does not replace it.
    """
    chosen = {name.lower() for name in spark_options}
    derived = {_SERVERS: str(connection["bootstrap.servers"])}
    protocol = str(connection.get("security.protocol", "plaintext")).upper()
    if protocol != "PLAINTEXT":
        derived["kafka.security.protocol"] = protocol
    if protocol.endswith("SSL"):
        derived |= _tls(connection, chosen)
    jaas = None
    if protocol.startswith("SASL"):
        mechanism = str(connection.get("sasl.mechanism") or connection.get("sasl.mechanisms") or "GSSAPI").upper()
        derived["kafka.sasl.mechanism"] = mechanism
        jaas = _jaas(mechanism, connection) if _JAAS not in chosen else None
    options = {name: value for name, value in derived.items() if name not in chosen} | dict(spark_options)
    return ReaderOptions(options, jaas)


def _tls(connection: Mapping[str, Any], chosen: set[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    if "ssl.ca.location" in connection and "kafka.ssl.truststore.location" not in chosen:
        options["kafka.ssl.truststore.type"] = "PEM"
        options["kafka.ssl.truststore.location"] = str(connection["ssl.ca.location"])
    if str(connection.get("ssl.endpoint.identification.algorithm", "https")).lower() == "none":
        options["kafka.ssl.endpoint.identification.algorithm"] = ""
    has_certificate = any(name.startswith(("ssl.certificate", "ssl.key", "ssl.keystore")) for name in connection)
    if has_certificate and not any(name.startswith("kafka.ssl.keystore") for name in chosen):
        raise BadInputError(
            "The Kafka connection has a client certificate, which Java reads from a keystore only. "
            "Set kafka.ssl.keystore.type and kafka.ssl.keystore.location in spark_options"
        )
    return options


def _jaas(mechanism: str, connection: Mapping[str, Any]) -> str:
    module = _LOGIN_MODULES.get(mechanism)
    if module is None:
        raise BadInputError(
            f"SASL {mechanism} can't be translated for Spark. Set kafka.sasl.jaas.config in spark_options, with references for secrets"
        )
    user, password = (_quote(str(connection.get(f"sasl.{name}", ""))) for name in ("username", "password"))
    return f"{module} required username={user} password={password};"


def _quote(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
