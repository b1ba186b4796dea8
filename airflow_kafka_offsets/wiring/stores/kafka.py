"""The Kafka store from an Airflow connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.store_address import StoreAddress
from airflow_kafka_offsets.wiring.connections import kafka_config

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.group import KafkaGroup
    from airflow_kafka_offsets.ports import OffsetStore

CALLBACKS = frozenset(
    {"error_cb", "log_cb", "logger", "oauth_cb", "on_commit", "on_delivery", "stats_cb", "throttle_cb"}
)
"""The settings of confluent-kafka that are Python functions."""


def open_kafka(address: StoreAddress, group: KafkaGroup, config: Mapping[str, Any] | None = None) -> OffsetStore:
    """Open the consumer group of a connection of type ``kafka``; see docs/stores/kafka.md.

    Args:
        address: the address, which may name a connection.
        group: the group whose Kafka is used if the address names no connection.
        config: librdkafka's settings for the group's own Kafka; None: those of its connection.
    """
    from airflow_kafka_offsets.adapters.stores.kafka import KafkaStore

    if address.conn_id or config is None:
        config = kafka_config(address.conn_id or group.kafka_conn_id)
    return KafkaStore(
        str(address),
        config,
        address.timeout,
        is_transactional=address.choice("commit", "transactional", "plain") == "transactional",
        transactional_id=address.options.get("transactional_id", ""),
    )
