"""Opens offset stores from their addresses and Airflow's connections. If a client library is missing, the error names the extra to install."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.store_address import StoreAddress
from airflow_kafka_offsets.wiring.connections import (
    connection_of_type,
    find_connection,
    sqlalchemy_url,
)
from airflow_kafka_offsets.wiring.stores.files import open_files, open_hdfs, open_s3
from airflow_kafka_offsets.wiring.stores.redis import open_redis
from airflow_kafka_offsets.wiring.stores.zookeeper import open_zookeeper

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.group import KafkaGroup
    from airflow_kafka_offsets.ports import OffsetStore

EXTRA_OF_MODULE: Mapping[str, str] = {
    "happybase": "hbase",
    "kazoo": "zookeeper",
    "redis": "redis",
    "boto3": "s3",
    "botocore": "s3",
    "hdfs": "hdfs",
    "requests_kerberos": "hdfs-kerberos",
}
"""The extra of this package that installs a client library, by the library's top-level module."""

CALLBACKS = frozenset(
    {"error_cb", "log_cb", "logger", "oauth_cb", "on_commit", "on_delivery", "stats_cb", "throttle_cb"}
)
"""The settings of confluent-kafka that are Python functions."""


def open_store(address: StoreAddress, group: KafkaGroup, config: Mapping[str, Any] | None = None) -> OffsetStore:
    """Open a store, without a connection to its server yet.

    Args:
        address: its address.
        group: the group whose offsets it holds.
        config: librdkafka's settings for the group's own Kafka; None means those of its connection.

    Raises:
        BadInputError: the connection is missing or of another type, or the client library is not installed.
    """
    try:
        if address.kind == "kafka":
            return open_kafka(address, group, config)
        return _OPENERS[address.kind](address)
    except ModuleNotFoundError as exc:
        extra = EXTRA_OF_MODULE.get((exc.name or "").partition(".")[0])
        if extra is None:
            raise
        raise BadInputError(
            f"{address} needs the Python module {exc.name}:\n    pip install 'airflow-kafka-offsets[{extra}]'"
        ) from exc


def open_kafka(address: StoreAddress, group: KafkaGroup, config: Mapping[str, Any] | None = None) -> OffsetStore:
    """Open the consumer group of a connection of type ``kafka``, or on the group's own Kafka."""
    from airflow_kafka_offsets.adapters.stores.kafka import KafkaStore

    if address.conn_id or config is None:
        from airflow_kafka_offsets.wiring.kafka_login import kafka_config

        config = kafka_config(address.conn_id or group.kafka_conn_id)
    return KafkaStore(
        str(address),
        config,
        address.timeout,
        is_transactional=address.choice("commit", "transactional", "plain") == "transactional",
        transactional_id=address.options.get("transactional_id", ""),
    )


def open_hbase(address: StoreAddress) -> OffsetStore:
    """Open the table of a connection of type ``hbase`` or ``generic``; see docs/stores/hbase.md."""
    from airflow_kafka_offsets.adapters.stores.hbase import FAMILY, STATE_FAMILY, TABLE, HBaseStore

    connection = connection_of_type(address.conn_id, "hbase", "generic", host_of="HBase's Thrift 1 gateway")
    options, extra = address.options, connection.extra_dejson
    return HBaseStore(
        str(address),
        host=str(connection.host),
        port=connection.port or 9090,
        timeout=address.timeout,
        table=address.path.strip("/") or TABLE,
        family=options.get("family", FAMILY),
        state_family=options.get("state_family", STATE_FAMILY),
        transport=extra.get("transport", "buffered"),
        protocol=extra.get("protocol", "binary"),
    )


def open_sql(address: StoreAddress) -> OffsetStore:
    """Open the table of a database connection; see docs/stores/sql.md."""
    from airflow_kafka_offsets.adapters.stores.sql import Layout, SqlStore

    options = dict(address.options)
    columns = {name.removesuffix("_column"): options[name] for name in options if name.endswith("_column")}
    if table := address.path.strip("/"):
        columns["table"] = table
    url = sqlalchemy_url(find_connection(address.conn_id, "postgres"))
    layout = Layout(schema=options.get("schema", ""), **columns)
    return SqlStore(str(address), url, address.timeout, layout, create=address.is_on("create"))


_OPENERS: Mapping[str, Callable[[StoreAddress], OffsetStore]] = {
    "files": open_files,
    "hbase": open_hbase,
    "hdfs": open_hdfs,
    "redis": open_redis,
    "s3": open_s3,
    "sql": open_sql,
    "zookeeper": open_zookeeper,
}
