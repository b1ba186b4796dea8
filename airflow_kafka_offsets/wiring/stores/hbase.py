"""The HBase store from an Airflow connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_kafka_offsets.core.store_address import StoreAddress
from airflow_kafka_offsets.wiring.connections import connection_of_type

if TYPE_CHECKING:
    from airflow_kafka_offsets.ports import OffsetStore


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
