"""The ZooKeeper offset store from its address and an Airflow connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.store_address import StoreAddress
from airflow_kafka_offsets.wiring.connections import connection_of_type, is_true

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_kafka_offsets.adapters.stores.zookeeper import Access, JsonLayout, NodeLayout
    from airflow_kafka_offsets.ports import OffsetStore

_PORT = 2181
_SMALLEST = 1024
# The same names as in Airflow's Redis connections, and kazoo's names.
_TLS = {"ssl_ca_certs": "ca", "ssl_certfile": "certfile", "ssl_keyfile": "keyfile"}


def open_zookeeper(address: StoreAddress) -> OffsetStore:
    """Open the ensemble of a connection of type ``zookeeper`` or ``generic``.

    Raises:
        BadInputError: the connection is missing, has another type or names no host; or an option is not valid.
    """
    from airflow_kafka_offsets.adapters.stores.zookeeper import MAX_REQUEST_BYTES, ZooKeeperStore

    connection = connection_of_type(address.conn_id, "zookeeper", "generic")
    hosts, chroot = _servers(connection)
    return ZooKeeperStore(
        str(address),
        address.timeout,
        hosts,
        chroot=address.path or connection.extra_dejson.get("chroot") or chroot,
        login=(connection.login, connection.password or "") if connection.login else None,
        tls=_tls(connection.extra_dejson),
        layout=_layout(address.options.get("layout", "nodes")),
        access=_access(address.options.get("acl")),
        max_request_bytes=_bytes(address.options.get("max_request_bytes", str(MAX_REQUEST_BYTES))),
    )


def _servers(connection: Connection) -> tuple[str, str]:
    # As Kafka's zookeeper.connect: host1:port1,host2:port2/chroot
    servers, slash, chroot = (connection.host or "").partition("/")
    hosts = [host.strip() for host in servers.split(",") if host.strip()]
    if not hosts:
        raise BadInputError(f"Connection {connection.conn_id!r} names no host")
    port = connection.port or _PORT
    return ",".join(host if ":" in host else f"{host}:{port}" for host in hosts), slash + chroot


def _tls(extra: Mapping[str, Any]) -> dict[str, Any]:
    if not is_true(extra.get("ssl")):
        return {}
    files = {ours: extra[name] for name, ours in _TLS.items() if extra.get(name)}
    return {"use_ssl": True, "check_hostname": is_true(extra.get("ssl_check_hostname", True)), **files}


def _layout(name: str) -> type[NodeLayout | JsonLayout]:
    from airflow_kafka_offsets.adapters.stores.zookeeper import JsonLayout, NodeLayout

    layouts: dict[str, type[NodeLayout | JsonLayout]] = {"nodes": NodeLayout, "json": JsonLayout}
    if name not in layouts:
        raise BadInputError(f"The layout of offsets in ZooKeeper must be 'nodes' or 'json', got {name!r}")
    return layouts[name]


def _access(name: str | None) -> Access | None:
    from airflow_kafka_offsets.adapters.stores.zookeeper import Access

    try:
        return Access(name) if name is not None else None
    except ValueError as exc:
        raise BadInputError(
            f"The acl of offsets in ZooKeeper must be one of {', '.join(Access)}, got {name!r}"
        ) from exc


def _bytes(text: str) -> int:
    if not text.isdecimal() or int(text) < _SMALLEST:
        raise BadInputError(f"max_request_bytes must be a whole number, at least {_SMALLEST}, got {text!r}")
    return int(text)
