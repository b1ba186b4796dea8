"""Airflow connections, translated for each client."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.errors import BadInputError, NoConnectionError, NotYetError, did_you_mean, short
from airflow_kafka_offsets.spark.shared import is_secret

if TYPE_CHECKING:
    from airflow.sdk import Connection

_SERVERS = "bootstrap.servers"


def bad_connection(connection: Connection | str, problem: str) -> BadInputError:
    """Return the error about an Airflow connection, or about the one of this id."""
    conn_id = connection if isinstance(connection, str) else connection.conn_id
    return BadInputError(f"Connection {conn_id!r}: {problem}")


def _check_type(connection: Connection, types: Collection[str]) -> None:
    if connection.conn_type not in types:
        raise bad_connection(connection, f"it has type {connection.conn_type!r}, not {' or '.join(map(repr, types))}")


def sqlalchemy_url(connection: Connection) -> str:
    """Translate an Airflow connection of a database into SQLAlchemy's URL.

    Raises:
        BadInputError: the connection is not of type postgres, mysql or sqlite.
    """
    from sqlalchemy import URL

    backends = {"postgres": "postgresql", "postgresql": "postgresql", "mysql": "mysql", "sqlite": "sqlite"}
    _check_type(connection, backends)
    backend = backends[str(connection.conn_type)]
    if backend == "sqlite":
        return URL.create(backend, database=connection.host or connection.schema).render_as_string()
    url = URL.create(
        backend,
        username=connection.login,
        password=connection.password,
        host=connection.host,
        port=connection.port,
        database=connection.schema,
        query=_url_query(connection),
    )
    return url.render_as_string(hide_password=False)


def _url_query(connection: Connection) -> dict[str, str]:
    # Only the settings of TLS. The rest of an extra (cursors, IAM, ...) is for Airflow's own hooks.
    extra = connection.extra_dejson
    return {
        name: str(extra[name]) for name in ("sslmode", "sslrootcert", "sslcert", "sslkey", "ssl_ca") if name in extra
    }


def kafka_extra(conn_id: str) -> dict[str, Any]:
    """Return the extra of a connection of type ``kafka``, as a person wrote it: what a job's login is translated from.

    Raises:
        BadInputError: the connection is missing, of another type or names no servers.
    """
    return dict(kafka_connection(conn_id).extra_dejson)


def kafka_connection(conn_id: str) -> Connection:
    """Return a connection of type ``kafka`` that names its servers.

    Raises:
        BadInputError: the connection is missing, of another type or names no servers. What looks like their setting is named.
    """
    connection = connection_of_type(conn_id, "kafka")
    extra = connection.extra_dejson
    servers = extra.get(_SERVERS)
    if servers and isinstance(servers, str):
        return connection
    if servers:
        raise bad_connection(connection, f"{_SERVERS} must be a text in its extra, such as host:9092,host2:9092")
    near = [name for name in extra if name == "metadata.broker.list" or did_you_mean(name, [_SERVERS])]
    if near:
        raise bad_connection(connection, f"rename {short(near[0])} to {_SERVERS} in its extra")
    if connection.host:
        raise bad_connection(
            connection, f"its extra lacks {_SERVERS}. Put that there: host and port of a Kafka connection are not read"
        )
    raise bad_connection(connection, f"its extra lacks {_SERVERS}")


def connection_of_type(conn_id: str, *types: str, host_of: str = "") -> Connection:
    """Return an Airflow connection of one of these types. From now on, Airflow's log masks the secrets in its extra.

    Args:
        conn_id: its id.
        types: the types that it may have.
        host_of: the server whose host it must name, for the message; empty if it needs no host.

    Raises:
        BadInputError: there is no connection of this name, it has another type, or it names no host.
    """
    connection = find_connection(conn_id, types[0])
    _check_type(connection, types)
    mask_secrets(connection.extra_dejson)
    # There may be several, with commas between them and a path after them.
    if host_of and not (connection.host or "").partition("/")[0].strip(", "):
        raise bad_connection(conn_id, f"it names no host of {host_of}")
    return connection


def mask_secrets(config: Mapping[str, Any]) -> None:
    """Let Airflow's log mask a connection's secrets. Airflow does not know Kafka's names for secrets."""
    for name, value in config.items():
        if isinstance(value, str) and is_secret(name, value):
            mask(value)


def mask(secret: str | None) -> None:
    """Let Airflow's log mask a secret."""
    from airflow_kafka_offsets.airflow_versions import mask_secret

    if secret:
        mask_secret(secret)


def without_secrets(text: str | None) -> str | None:
    """Return a text as Airflow's log would show it."""
    from airflow_kafka_offsets.airflow_versions import redact

    return None if text is None else str(redact(text))


def is_true(value: object) -> bool:
    """Read a true-or-false value. In a connection that was written as a URI it is text, and "false" is not true.

    >>> [is_true(value) for value in (True, "True", "1", "false", "", None)]
    [True, True, True, False, False, False]
    """
    return str(value).lower() in ("true", "1", "yes", "on")


_EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "kafka": {"extra": {"bootstrap.servers": "host:9092"}},
    "spark": {"host": "local[*]"},
    "postgres": {"host": "host", "login": "user", "schema": "offsets"},
    "aws": {"extra": {"region_name": "eu-central-1"}},
}
"""An example connection of each type, without a password: it is shown in a command line. A type that is not listed has a host."""


def find_connection(conn_id: str, kind: str) -> Connection:
    """Return an Airflow connection.

    Args:
        conn_id: its id.
        kind: a possible type, for the example in the error.

    Raises:
        NotYetError: there is no connection of this name, or a secrets backend did not answer: Airflow reports both the same way.
    """
    from airflow.sdk import BaseHook

    from airflow_kafka_offsets.airflow_versions import AirflowNotFoundException

    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as exc:
        if "://" in conn_id or "@" in conn_id:
            # Airflow's own error would show it.
            raise NotYetError("This connection id looks like a URL: put that into a connection") from None
        example = {"conn_type": kind, **_EXAMPLES.get(kind, {"host": "host"})}
        raise NoConnectionError(conn_id, json.dumps(example)) from exc
