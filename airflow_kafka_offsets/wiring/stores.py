"""Offset stores from their addresses and Airflow's connections. A missing client library names the extra to install."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.store_address import StoreAddress
from airflow_kafka_offsets.wiring import find_connection, kafka_config, sqlalchemy_url
from airflow_kafka_offsets.wiring.redis import open_redis
from airflow_kafka_offsets.wiring.zookeeper import open_zookeeper

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.group import KafkaGroup
    from airflow_kafka_offsets.ports import OffsetStore

EXTRA_OF_MODULE: Mapping[str, str] = {
    "happybase": "hbase",
    "kazoo": "zookeeper",
    "redis": "redis",
}
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


def _hbase(address: StoreAddress, group: KafkaGroup) -> OffsetStore:
    from airflow_kafka_offsets.adapters.stores.hbase import FAMILY, STATE_FAMILY, TABLE, HBaseStore

    connection = find_connection(address.conn_id)
    if connection.conn_type not in ("hbase", "generic"):
        raise BadInputError(
            f"Connection {address.conn_id!r} has type {connection.conn_type!r}; the offset store {address} needs one of "
            "type hbase or generic, with host and port of HBase's Thrift 1 gateway"
        )
    if not connection.host:
        raise BadInputError(f"Connection {address.conn_id!r} names no host: that of HBase's Thrift 1 gateway")
    options, extra = address.options, connection.extra_dejson
    return HBaseStore(
        str(address),
        host=connection.host,
        port=connection.port or 9090,
        timeout=address.timeout,
        table=address.path.strip("/") or TABLE,
        family=options.get("family", FAMILY),
        state_family=options.get("state_family", STATE_FAMILY),
        transport=extra.get("transport", "buffered"),
        protocol=extra.get("protocol", "binary"),
    )


_OPENERS: Mapping[str, Callable[[StoreAddress, KafkaGroup], OffsetStore]] = {
    "hbase": _hbase,
    "kafka": _kafka,
    "redis": open_redis,
    "sql": _sql,
    "zookeeper": open_zookeeper,
}
