"""The ZooKeeper offset store from its address and an Airflow connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.store_address import StoreAddress
from airflow_kafka_offsets.wiring.connections import connection_of_type, is_true

if TYPE_CHECKING:
    from airflow.sdk import Connection

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
    from airflow_kafka_offsets.adapters.stores.zookeeper import (
        MAX_REQUEST_BYTES,
        Access,
        JsonLayout,
        NodeLayout,
        ZooKeeperStore,
    )

    connection = connection_of_type(address.conn_id, "zookeeper", "generic", host_of="ZooKeeper")
    hosts, chroot = _servers(connection)
    return ZooKeeperStore(
        str(address),
        address.timeout,
        hosts,
        chroot=address.path or connection.extra_dejson.get("chroot") or chroot,
        login=(connection.login, connection.password or "") if connection.login else None,
        tls=_tls(connection.extra_dejson),
        layout=JsonLayout if address.choice("layout", "nodes", "json") == "json" else NodeLayout,
        access=Access(address.choice("acl", *Access)) if "acl" in address.options else None,
        max_request_bytes=_bytes(address.options.get("max_request_bytes", str(MAX_REQUEST_BYTES))),
    )


def _servers(connection: Connection) -> tuple[str, str]:
    # As Kafka's zookeeper.connect: host1:port1,host2:port2/chroot
    servers, slash, chroot = (connection.host or "").partition("/")
    hosts = [host.strip() for host in servers.split(",") if host.strip()]
    port = connection.port or _PORT
    return ",".join(host if ":" in host else f"{host}:{port}" for host in hosts), slash + chroot


def _tls(extra: Mapping[str, Any]) -> dict[str, Any]:
    if not is_true(extra.get("ssl")):
        return {}
    files = {ours: extra[name] for name, ours in _TLS.items() if extra.get(name)}
    return {"use_ssl": True, "check_hostname": is_true(extra.get("ssl_check_hostname", True)), **files}


def _bytes(text: str) -> int:
    if not text.isdecimal() or int(text) < _SMALLEST:
        raise BadInputError(f"max_request_bytes must be a whole number, at least {_SMALLEST}, got {text!r}")
    return int(text)
