"""The Kafka store from an Airflow connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.store_address import StoreAddress
from airflow_kafka_offsets.wiring import kafka_config

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.group import KafkaGroup
    from airflow_kafka_offsets.ports import OffsetStore


def open_kafka(address: StoreAddress, group: KafkaGroup) -> OffsetStore:
    """Open the consumer group behind a connection of type ``kafka``; see docs/stores/kafka.md."""
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
