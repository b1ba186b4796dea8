"""The SQL store from an Airflow connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_kafka_offsets.core.store_address import StoreAddress
from airflow_kafka_offsets.wiring.connections import find_connection, sqlalchemy_url

if TYPE_CHECKING:
    from airflow_kafka_offsets.ports import OffsetStore


def open_sql(address: StoreAddress) -> OffsetStore:
    """Open the table of a database connection; see docs/stores/sql.md."""
    from airflow_kafka_offsets.adapters.stores.sql import Layout, SqlStore

    options = dict(address.options)
    columns = {name.removesuffix("_column"): options[name] for name in options if name.endswith("_column")}
    if table := address.path.strip("/"):
        columns["table"] = table
    url = sqlalchemy_url(find_connection(address.conn_id, "postgres"), what="offset store")
    layout = Layout(schema=options.get("schema", ""), **columns)
    return SqlStore(str(address), url, address.timeout, layout, create=address.is_on("create"))
