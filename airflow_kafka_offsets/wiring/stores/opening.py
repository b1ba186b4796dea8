"""Opens offset stores from their addresses and Airflow's connections. If a client library is missing, the error names the extra to install."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.store_address import StoreAddress
from airflow_kafka_offsets.wiring.stores.files import open_files, open_hdfs, open_s3
from airflow_kafka_offsets.wiring.stores.hbase import open_hbase
from airflow_kafka_offsets.wiring.stores.kafka import open_kafka
from airflow_kafka_offsets.wiring.stores.redis import open_redis
from airflow_kafka_offsets.wiring.stores.sql import open_sql
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


def open_store(address: StoreAddress, group: KafkaGroup, kafka_config: Mapping[str, Any] | None = None) -> OffsetStore:
    """Open a store, without a connection to its server yet.

    Args:
        address: its address.
        group: the group whose offsets it holds.
        kafka_config: librdkafka's settings for the group's own Kafka; None: those of its connection.

    Raises:
        BadInputError: the connection is missing or of another type, or the client library is not installed.
    """
    try:
        if address.kind == "kafka":
            return open_kafka(address, group, kafka_config)
        return _OPENERS[address.kind](address)
    except ModuleNotFoundError as exc:
        extra = EXTRA_OF_MODULE.get((exc.name or "").partition(".")[0])
        if extra is None:
            raise
        raise BadInputError(
            f"The offset store {address} needs the Python module {exc.name}:\n"
            f"    pip install 'airflow-kafka-offsets[{extra}]'"
        ) from exc


_OPENERS: Mapping[str, Callable[[StoreAddress], OffsetStore]] = {
    "files": open_files,
    "hbase": open_hbase,
    "hdfs": open_hdfs,
    "redis": open_redis,
    "s3": open_s3,
    "sql": open_sql,
    "zookeeper": open_zookeeper,
}
