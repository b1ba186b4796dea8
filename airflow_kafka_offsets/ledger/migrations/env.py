"""Alembic's entry: runs on the connection that `schema.upgrade` opened."""

from alembic import context

from airflow_kafka_offsets.ledger.schema import VERSION_TABLE
from airflow_kafka_offsets.ledger.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
context.run_migrations()
