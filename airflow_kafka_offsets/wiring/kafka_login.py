"""The Kafka provider's hook, which makes librdkafka's settings from a connection: its callbacks, and the logins of MSK and of Google.

Only this module uses the provider. tests/wiring/test_kafka_login.py asks each supported version what this needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.apache.kafka.hooks.base import KafkaBaseHook

from airflow_kafka_offsets.airflow_versions import AirflowOptionalProviderFeatureException
from airflow_kafka_offsets.core.errors import error_in_short
from airflow_kafka_offsets.wiring.connections import bad_connection, kafka_connection, without_secrets

if TYPE_CHECKING:
    from airflow.sdk import Connection

_ALLOWED = "callback_allowlist"
_GOOGLE, _MSK = "apache-airflow-providers-google", "'apache-airflow-providers-apache-kafka[msk]'"


class _SettingsHook(KafkaBaseHook):
    """The provider's hook, for the settings in place of a client."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection.conn_id)  # type: ignore[no-untyped-call]
        self._connection = connection

    def get_connection(self, conn_id: str) -> Connection:  # type: ignore[override]
        """Return the connection, which was looked up already."""
        return self._connection

    def _get_client(self, config: dict[str, Any]) -> dict[str, Any]:
        return config


def kafka_config(conn_id: str) -> dict[str, Any]:
    """Return librdkafka's settings from a connection of type ``kafka``, as the Kafka provider's own hooks get them.

    Raises:
        BadInputError: the connection is missing, of another type, or names no servers; a callback is not allowed or can't be imported; or
            a package is missing for the login.
    """
    connection = kafka_connection(conn_id)
    try:
        return dict(_SettingsHook(connection).get_conn)
    except AirflowOptionalProviderFeatureException as exc:
        package = _GOOGLE if "google" in str(exc) else _MSK
        raise bad_connection(
            connection, f"its login needs a package. Install where Airflow runs:\n    pip install {package}"
        ) from exc
    except Exception as exc:  # the module of a callback may raise anything
        is_refused = _ALLOWED in str(exc)
        why = str(without_secrets(str(exc) if is_refused else error_in_short(exc))).rstrip(".")
        remedy = (
            "List the whole path of each callback that you trust there"
            if is_refused
            else "Correct its path in the extra"
        )
        raise bad_connection(connection, f"a callback can't be used: {why}. {remedy}") from exc
