"""The only place that picks adapters, from Airflow connections, configuration or URLs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.errors import BadInputError, NoConnectionError, NotYetError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.secrets import is_secret
from airflow_kafka_offsets.core.store_address import parse_store_address
from airflow_kafka_offsets.ports import Ledger, OffsetStore
from airflow_kafka_offsets.service.windows import WindowService

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_kafka_offsets.adapters.kafka.log import KafkaLog

SECTION = "kafka_offsets"
"""Our section of Airflow's configuration."""


def open_service(group: KafkaGroup) -> WindowService:
    """Return the use cases on the group's ledger and Kafka."""
    ledger = open_ledger(group.ledger_conn_id)
    return WindowService(ledger, open_log(group), store=open_offset_store(group), output=group.output_tables)


def open_service_for(group: str, ledger_conn_id: str | None = None) -> WindowService:
    """Return the use cases for a group as the ledger knows it.

    Raises:
        UnknownWindowError: the ledger has no such group.
    """
    ledger = open_ledger(ledger_conn_id)
    known = ledger.group(group)
    return WindowService(ledger, open_log(known), store=open_offset_store(known), output=known.output_tables)


def open_offset_store(group: KafkaGroup) -> OffsetStore | None:
    """Open the group's offset store; None: it has none. Nothing is asked of its server yet.

    Raises:
        BadInputError: its connection is missing or of another type, or its client library is not installed.
    """
    if group.offset_store is None:
        return None
    from airflow_kafka_offsets.wiring.stores.opening import open_store

    return open_store(parse_store_address(group.offset_store), group)


def open_ledger(conn_id: str | None = None) -> Ledger:
    """Open the ledger behind an Airflow connection, or else the configured one, or else SQLite under AIRFLOW_HOME.

    Raises:
        BadInputError: the connection is missing or not that of a database which can hold the ledger.
        LedgerError: the database does not answer, or its tables are not current.
    """
    from airflow_kafka_offsets.adapters.ledger.sql_ledger import SqlLedger

    url = ledger_url(conn_id)
    return SqlLedger(url, create=url == default_ledger_url())


def open_ledger_at(url: str) -> Ledger:
    """Open a ledger by SQLAlchemy's URL; nothing is made.

    Raises:
        LedgerSchemaError: the tables are not there, or not current.
        LedgerUnavailableError: the database does not answer.
    """
    from airflow_kafka_offsets.adapters.ledger.sql_ledger import SqlLedger

    return SqlLedger(url)


def ledger_revisions(url: str) -> tuple[str | None, str]:
    """Return the revision of a ledger's tables (None: there are none) and the one that this package needs.

    Raises:
        LedgerUnavailableError: the database does not answer.
    """
    from airflow_kafka_offsets.adapters.ledger import schema
    from airflow_kafka_offsets.adapters.ledger.engine import open_engine

    return schema.current_revision(open_engine(url)), schema.REVISION


def check_ledger(url: str) -> None:
    """Refuse a database that holds no ledger which this package can use.

    Raises:
        LedgerSchemaError: with what is there, and the command that helps.
        LedgerUnavailableError: the database does not answer.
    """
    from airflow_kafka_offsets.adapters.ledger import schema
    from airflow_kafka_offsets.adapters.ledger.engine import open_engine

    schema.check_revision(open_engine(url))


def upgrade_ledger(url: str, *, beside_others: bool = False) -> tuple[str | None, str]:
    """Make or upgrade a ledger's tables, and return the revision before (None: there were none) and after.

    Args:
        url: SQLAlchemy's.
        beside_others: also in a SQLite file that only holds what is not ours.

    Raises:
        LedgerSchemaError: the tables are newer than this package, or the file is another application's.
        LedgerUnavailableError: the database does not answer.
    """
    from airflow_kafka_offsets.adapters.ledger import schema
    from airflow_kafka_offsets.adapters.ledger.engine import open_engine

    database = open_engine(url)
    before = schema.current_revision(database)
    return before, schema.upgrade(database, beside_others=beside_others)


def ledger_url(conn_id: str | None = None) -> str:
    """Return SQLAlchemy's URL of the ledger; it may hold a password."""
    from airflow.sdk.configuration import conf

    chosen = conn_id or conf.get(SECTION, "ledger_conn_id", fallback=None)
    if not chosen:
        return default_ledger_url()
    return sqlalchemy_url(find_connection(chosen, "postgres"))


def default_ledger_url() -> str:
    """Return the URL of the SQLite file that is the ledger when nobody configured another."""
    # Airflow's own rule for its home (airflow.configuration.get_airflow_home), without importing Airflow.
    home = Path(os.path.expandvars(os.environ.get("AIRFLOW_HOME", "~/airflow"))).expanduser()
    return f"sqlite:///{home.absolute() / 'kafka_offsets.db'}"


def sqlalchemy_url(connection: Connection, what: str = "ledger") -> str:
    """Translate an Airflow connection of a database into SQLAlchemy's URL.

    Args:
        connection: of type postgres, mysql or sqlite.
        what: what the database holds, for messages.

    Raises:
        BadInputError: it is of another type.
    """
    from sqlalchemy import URL

    backends = {"postgres": "postgresql", "postgresql": "postgresql", "mysql": "mysql", "sqlite": "sqlite"}
    backend = backends.get(connection.conn_type or "")
    if backend is None:
        raise BadInputError(
            f"Connection {connection.conn_id!r} has type {connection.conn_type!r}; the {what} needs one of type "
            "postgres, mysql or sqlite (where Airflow has no provider for that type, its command line keeps the type only "
            "with: airflow connections add ... --conn-json)"
        )
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
    # What TLS needs; the rest of an extra (cursors, IAM, ...) is for Airflow's own hooks.
    extra = connection.extra_dejson
    return {
        name: str(extra[name]) for name in ("sslmode", "sslrootcert", "sslcert", "sslkey", "ssl_ca") if name in extra
    }


def open_log(group: KafkaGroup, config: Mapping[str, Any] | None = None) -> KafkaLog:
    """Open what Kafka holds, by the group's connection or by librdkafka's settings instead of it.

    Raises:
        BadInputError: the connection is missing, of another type or names no servers.
    """
    from airflow_kafka_offsets.adapters.kafka.log import KafkaLog

    return KafkaLog(kafka_config(group.kafka_conn_id) if config is None else config, group.kafka_timeout)


def kafka_config(conn_id: str) -> dict[str, Any]:
    """Return librdkafka's settings from a connection of type ``kafka``: its extra, as the Kafka provider defines it.

    Raises:
        BadInputError: the connection is missing, of another type or names no servers.
    """
    config = dict(connection_of_type(conn_id, "kafka").extra_dejson)
    if not config.get("bootstrap.servers"):
        raise BadInputError(
            f'Connection {conn_id!r} names no servers: put {{"bootstrap.servers": "host:9092"}} into its extra'
        )
    return config


def connection_of_type(conn_id: str, *types: str) -> Connection:
    """Return an Airflow connection of one of these types; Airflow's log knows the secrets in its extra from now on.

    Raises:
        BadInputError: there is none of this name, or it is of another type.
    """
    connection = find_connection(conn_id, types[0])
    if connection.conn_type not in types:
        wanted = " or ".join(map(repr, types))
        raise BadInputError(f"Connection {conn_id!r} has type {connection.conn_type!r}, not {wanted}")
    mask_secrets(connection.extra_dejson)
    return connection


def mask_secrets(config: Mapping[str, Any]) -> None:
    """Tell Airflow's log which values must never appear: it does not know Kafka's names for secrets."""
    from airflow.sdk.log import mask_secret

    for name, value in config.items():
        if is_secret(name) and isinstance(value, str):
            mask_secret(value)


def mask(secret: str | None) -> None:
    """Tell Airflow's log a secret that must never appear."""
    from airflow.sdk.log import mask_secret

    if secret:
        mask_secret(secret)


def without_secrets(text: str | None) -> str | None:
    """Return a text as Airflow's log would show it."""
    # Airflow's own deprecation names this place; it offers no other.
    from airflow.sdk._shared.secrets_masker import redact

    return None if text is None else str(redact(text))


def is_true(value: object) -> bool:
    """Read a switch; in a connection that was written as a URI it is text, and "false" is not true.

    >>> [is_true(value) for value in (True, "True", "1", "false", "", None)]
    [True, True, True, False, False, False]
    """
    return str(value).lower() in ("true", "1", "yes", "on")


_EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "kafka": {"extra": {"bootstrap.servers": "host:9092"}},
    "spark": {"host": "local[*]"},
    "postgres": {"host": "host", "login": "user", "password": "...", "schema": "offsets"},
    "aws": {"login": "key id", "password": "..."},
}
"""What a connection of a type looks like; one of another type has a host at least."""


def find_connection(conn_id: str, kind: str) -> Connection:
    """Return an Airflow connection.

    Args:
        conn_id: its id.
        kind: a type that would do, for the example in the error.

    Raises:
        NotYetError: there is none of this name, or a secrets backend did not answer: Airflow does not tell these apart.
    """
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as exc:
        if "://" in conn_id or "@" in conn_id:
            # Airflow's words would repeat it.
            raise NotYetError(
                "Airflow has no connection of the id that is given, which looks like a URL. It is not shown here, as it may hold "
                "a password. Put the URL into a connection, and name the id of that"
            ) from None
        example = {"conn_type": kind, **_EXAMPLES.get(kind, {"host": "host"})}
        raise NoConnectionError(conn_id, json.dumps(example)) from exc
