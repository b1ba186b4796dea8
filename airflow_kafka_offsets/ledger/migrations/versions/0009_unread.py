"""The lag of a group when each of its windows was cut."""

import sqlalchemy as sa

from airflow_kafka_offsets.ledger.steps import add_column

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the column. Of existing windows it is not known: what Kafka held at that time is written nowhere."""
    add_column("kafka_offsets_windows", sa.Column("unread", sa.BigInteger))
