"""The Redis offset store from its address and an Airflow connection, read as Airflow's Redis hook reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.store_address import StoreAddress
from airflow_kafka_offsets.core.store_key import DEFAULT, KeyPattern
from airflow_kafka_offsets.wiring import find_connection, is_true

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_kafka_offsets.core.group import KafkaGroup
    from airflow_kafka_offsets.ports import OffsetStore

_PORT = 6379
_TLS = ("ssl_cert_reqs", "ssl_ca_certs", "ssl_keyfile", "ssl_certfile")
_TLS_SWITCHES = ("ssl", "ssl_check_hostname")


def open_redis(address: StoreAddress, group: KafkaGroup) -> OffsetStore:
    """Open the Redis behind a connection of type ``redis``.

    Raises:
        BadInputError: the connection is missing, of another type or names no host; the key does not do.
    """
    from airflow_kafka_offsets.adapters.stores.redis import RedisStore

    connection = find_connection(address.conn_id)
    if connection.conn_type != "redis":
        raise BadInputError(f"Connection {address.conn_id!r} has type {connection.conn_type!r}, not 'redis'")
    extra = connection.extra_dejson
    is_cluster = address.is_on("cluster") if "cluster" in address.options else is_true(extra.get("cluster"))
    settings = _settings(connection, extra)
    if is_cluster and settings["db"]:
        raise BadInputError(f"Connection {address.conn_id!r} chooses db {settings['db']}; Redis Cluster has only 0")
    return RedisStore(
        str(address),
        address.timeout,
        settings,
        key=KeyPattern(address.options.get("key", DEFAULT)),
        is_cluster=is_cluster,
        nodes=_nodes(extra.get("startup_nodes")),
    )


def _settings(connection: Connection, extra: Mapping[str, Any]) -> dict[str, Any]:
    if not connection.host:
        raise BadInputError(f"Connection {connection.conn_id!r} names no host")
    return {
        "host": connection.host,
        "port": connection.port or _PORT,
        "db": _number(extra.get("db"), f"Connection {connection.conn_id!r}: db") or 0,
        "username": connection.login or None,
        # Airflow's hook takes these words for "no password".
        "password": None if str(connection.password).lower() in ("none", "false", "") else connection.password,
        **{name: extra[name] for name in _TLS if extra.get(name)},
        **{name: is_true(extra[name]) for name in _TLS_SWITCHES if name in extra},
    }


def _number(value: object, what: str) -> int | None:
    if value is None or value == "":
        return None
    if not str(value).isdecimal():
        raise BadInputError(f"{what} must be a whole number, got {value!r}")
    return int(str(value))


def _nodes(text: object) -> list[tuple[str, int]]:
    nodes = []
    for entry in filter(None, (part.strip() for part in str(text or "").split(","))):
        host, _, port = entry.partition(":")
        nodes.append((host, _number(port, f"The port of startup node {entry!r}") or _PORT))
    return nodes
