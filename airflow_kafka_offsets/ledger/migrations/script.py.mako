"""${message}."""

import sqlalchemy as sa

from airflow_kafka_offsets.adapters.ledger.steps import add_column, create_index, create_table

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}
