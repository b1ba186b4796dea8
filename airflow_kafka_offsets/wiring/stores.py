"""Offset stores from their addresses and Airflow's connections. A missing client library names the extra to install."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.store_address import StoreAddress
from airflow_kafka_offsets.wiring import find_connection, kafka_config, sqlalchemy_url

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.group import KafkaGroup
    from airflow_kafka_offsets.ports import OffsetStore

EXTRA_OF_MODULE: Mapping[str, str] = {}
"""Which extra of this package installs a client library, by its top-level module."""


def open_store(address: StoreAddress, group: KafkaGroup) -> OffsetStore:
    """Open a store; nothing is asked of its server yet.

    Args:
        address: where it is.
        group: the group whose offsets it keeps.

    Raises:
        BadInputError: the connection is missing or of another type, or the client library is not installed.
    """
    try:
        return _OPENERS[address.kind](address, group)
    except ModuleNotFoundError as exc:
        extra = EXTRA_OF_MODULE.get((exc.name or "").partition(".")[0])
        if extra is None:
            raise
        raise BadInputError(
            f"The offset store {address} needs the Python module {exc.name}: "
            f"pip install 'airflow-provider-kafka-offsets[{extra}]'"
        ) from exc


def _sql(address: StoreAddress, group: KafkaGroup) -> OffsetStore:
    from airflow_kafka_offsets.adapters.stores.sql import Layout, SqlStore

    if not address.conn_id:
        raise BadInputError(
            "The address of an offset store sql names the connection to its database: sql://postgres_default"
        )
    options = dict(address.options)
    columns = {name.removesuffix("_column"): options[name] for name in options if name.endswith("_column")}
    if table := address.path.strip("/"):
        columns["table"] = table
    url = sqlalchemy_url(find_connection(address.conn_id), what="offset store")
    layout = Layout(schema=options.get("schema", ""), **columns)
    return SqlStore(str(address), url, address.timeout, layout, create=_is_true(address, "create"))


def _kafka(address: StoreAddress, group: KafkaGroup) -> OffsetStore:
    from airflow_kafka_offsets.adapters.stores.kafka import KafkaStore

    commit = address.options.get("commit", "transactional")
    if commit not in ("transactional", "plain"):
        raise BadInputError(f"The option commit of {address} must be transactional or plain")
    return KafkaStore(
        str(address),
        kafka_config(address.conn_id or group.kafka_conn_id),
        address.timeout,
        is_transactional=commit == "transactional",
        transactional_id=address.options.get("transactional_id", ""),
    )


def _is_true(address: StoreAddress, option: str) -> bool:
    text = address.options.get(option, "false").lower()
    if text not in ("true", "false"):
        raise BadInputError(f"The option {option} of {address} must be true or false")
    return text == "true"


_OPENERS: Mapping[str, Callable[[StoreAddress, KafkaGroup], OffsetStore]] = {"kafka": _kafka, "sql": _sql}
