"""Chooses adapters from Airflow connections, configuration or URLs. No other package does this."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.store_address import parse_store_address
from airflow_kafka_offsets.ports import OffsetStore, SchemaRegistry
from airflow_kafka_offsets.service.windows import WindowService
from airflow_kafka_offsets.wiring.connections import find_connection, sqlalchemy_url

if TYPE_CHECKING:
    from airflow_kafka_offsets.adapters.kafka.log import KafkaLog
    from airflow_kafka_offsets.ledger.ledger import Ledger

SECTION = "kafka_offsets"
"""This package's section of Airflow's configuration."""

_T = TypeVar("_T")


class _Late:
    def __init__(self, open_it: Callable[[], object], attributes: dict[str, object]) -> None:
        self.__dict__.update(attributes)
        self._open = cache(open_it)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._open(), name)


def late(open_it: Callable[[], _T], **attributes: object) -> _T:
    """Stand in for something that is opened when it is first used: abandon works while Kafka is down.

    Args:
        open_it: opens it. What it raises is raised by the first use.
        attributes: what can be read without opening it.
    """
    return cast("_T", _Late(open_it, attributes))


def open_service(group: KafkaGroup) -> WindowService:
    """Return the use cases on the group's ledger and Kafka."""
    ledger, store = open_ledger(group.ledger_conn_id), open_offset_store(group)
    return WindowService(ledger, open_log(group), store=store, output=group.output_tables, registry=registry_of(group))


def open_service_for(group: str, ledger_conn_id: str | None = None) -> WindowService:
    """Return the use cases for a group, by its definition in the ledger.

    Raises:
        UnknownGroupError: the ledger has no such group.
    """
    ledger = open_ledger(ledger_conn_id)
    definition = ledger.group(group)
    store = open_offset_store(definition)
    return WindowService(ledger, open_log(definition), store=store, output=definition.output_tables)


def open_offset_store(group: KafkaGroup) -> OffsetStore | None:
    """Open the group's offset store, without a connection to its server yet, or None if it has none.

    Raises:
        BadInputError: its connection is missing or of another type, or its client library is not installed.
    """
    if group.offset_store is None:
        return None
    from airflow_kafka_offsets.wiring.stores.opening import open_store

    return open_store(parse_store_address(group.offset_store), group)


def registry_of(group: KafkaGroup) -> SchemaRegistry | None:
    """Return the group's schema registry, or None if it has none. A window whose schemas are frozen needs neither it nor its connection."""
    registry = group.schema_registry
    if registry is None:
        return None

    def open_it() -> SchemaRegistry:
        from airflow_kafka_offsets.wiring.registry import open_registry

        return open_registry(registry.conn_id)

    return late(open_it)


def open_ledger(conn_id: str | None = None) -> Ledger:
    """Open the ledger behind an Airflow connection, or else the configured one, or else SQLite under AIRFLOW_HOME.

    Raises:
        BadInputError: the connection is missing or not that of a database which can hold the ledger.
        LedgerError: the database does not answer, or its tables are not current.
    """
    from airflow_kafka_offsets.ledger.ledger import Ledger

    url = ledger_url(conn_id)
    return Ledger(url, create=url == default_ledger_url())


def open_ledger_at(url: str, *, patience: int | None = None) -> Ledger:
    """Open a ledger by SQLAlchemy's URL. Nothing is made.

    Args:
        url: the URL.
        patience: for pages that people wait for, opened again and again: seconds until a server that does not answer is an
            error, 2 at least. It replaces the time-out in the URL.

    Raises:
        LedgerSchemaError: the tables do not exist, or are not current.
        LedgerUnavailableError: the database does not answer.
    """
    from sqlalchemy import make_url

    from airflow_kafka_offsets.ledger.ledger import Ledger

    if patience is None:
        return Ledger(url)
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        parsed = parsed.update_query_dict({"connect_timeout": str(patience)})
    return Ledger(parsed.render_as_string(hide_password=False), is_asked_often=True)


def ledger_revisions(url: str) -> tuple[str | None, str]:
    """Return the revision of a ledger's tables (None if there are none) and the one that this package requires.

    Raises:
        LedgerUnavailableError: the database does not answer.
    """
    from airflow_kafka_offsets.ledger import schema
    from airflow_kafka_offsets.ledger.engine import open_engine

    return schema.current_revision(open_engine(url)), schema.REVISION


def upgrade_ledger(url: str, *, beside_others: bool = False) -> tuple[str | None, str]:
    """Make a ledger's tables, and return the revision before (None if there were none) and after.

    Args:
        url: SQLAlchemy's URL.
        beside_others: also in a SQLite file that holds other tables only.

    Raises:
        LedgerSchemaError: another version of this package made the tables, or the file belongs to another application.
        LedgerUnavailableError: the database does not answer.
    """
    from airflow_kafka_offsets.ledger import schema
    from airflow_kafka_offsets.ledger.engine import open_engine

    database = open_engine(url)
    before = schema.current_revision(database)
    return before, schema.upgrade(database, beside_others=beside_others)


def ledger_url(conn_id: str | None = None) -> str:
    """Return SQLAlchemy's URL of the ledger, which may hold a password."""
    from airflow_kafka_offsets.airflow_versions import conf

    chosen = conn_id or conf.get(SECTION, "ledger_conn_id", fallback=None)
    if not chosen:
        return default_ledger_url()
    return sqlalchemy_url(find_connection(chosen, "postgres"))


def default_ledger_url() -> str:
    """Return the URL of the SQLite file that is the ledger if none is configured."""
    # Airflow's rule for its home (airflow.configuration.get_airflow_home), without importing Airflow.
    home = Path(os.path.expandvars(os.environ.get("AIRFLOW_HOME", "~/airflow"))).expanduser()
    return f"sqlite:///{home.absolute() / 'kafka_offsets.db'}"


def open_log(group: KafkaGroup, config: Mapping[str, Any] | None = None) -> KafkaLog:
    """Open Kafka by the group's connection, or by librdkafka's settings instead of it.

    Raises:
        BadInputError: the connection is missing, of another type or names no servers.
    """
    from airflow_kafka_offsets.adapters.kafka.log import KafkaLog

    if config is None:
        # Not before: it imports Airflow, which takes seconds and sets how this process logs.
        from airflow_kafka_offsets.wiring.kafka_login import kafka_config

        config = kafka_config(group.kafka_conn_id)
    return KafkaLog(config, group.kafka_timeout)
