"""The Redis offset store from its address and an Airflow connection, read as Airflow's Redis hook reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.store.redis_key import DEFAULT, KeyPattern
from airflow_kafka_offsets.core.store_address import StoreAddress
from airflow_kafka_offsets.wiring.connections import bad_connection, connection_of_type, is_true

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_kafka_offsets.ports import OffsetStore

_PORT = 6379
_TLS = ("ssl_cert_reqs", "ssl_ca_certs", "ssl_keyfile", "ssl_certfile")


def open_redis(address: StoreAddress) -> OffsetStore:
    """Open the Redis of a connection of type ``redis``.

    Raises:
        BadInputError: the connection is missing, has another type or names no host; or the key pattern is not valid.
    """
    from airflow_kafka_offsets.adapters.stores.redis import RedisStore

    connection = connection_of_type(address.conn_id, "redis", host_of="Redis")
    extra = connection.extra_dejson
    is_cluster = address.is_on("cluster") if "cluster" in address.options else is_true(extra.get("cluster"))
    settings = redis_settings(connection)
    if is_cluster and settings["db"]:
        raise bad_connection(connection, f"db {settings['db']}; Redis Cluster has only 0")
    return RedisStore(
        str(address),
        address.timeout,
        settings,
        key=KeyPattern(address.options.get("key", DEFAULT)),
        is_cluster=is_cluster,
        nodes=_nodes(extra.get("startup_nodes")),
    )


def redis_settings(connection: Connection) -> dict[str, Any]:
    """Return redis-py's settings from a connection. With TLS, the server's name is checked by default.

    Raises:
        BadInputError: its database is not a number.
    """
    extra = connection.extra_dejson
    return {
        "host": connection.host,
        "port": connection.port or _PORT,
        "db": _number(extra.get("db"), f"Connection {connection.conn_id!r}: db") or 0,
        "username": connection.login or None,
        # Airflow's hook reads these words as "no password".
        "password": None if str(connection.password).lower() in ("none", "false", "") else connection.password,
        **(_tls(extra) if is_true(extra.get("ssl")) else {}),
    }


def _tls(extra: Mapping[str, Any]) -> dict[str, Any]:
    # By default, redis-py before 6 does not check the name. It can't check it without checking the certificate.
    is_checked = extra.get("ssl_cert_reqs") != "none" and is_true(extra.get("ssl_check_hostname", True))
    return {"ssl": True, "ssl_check_hostname": is_checked, **{name: extra[name] for name in _TLS if extra.get(name)}}


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
