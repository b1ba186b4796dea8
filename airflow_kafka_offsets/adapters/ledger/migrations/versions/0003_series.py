"""Which series of tries an attempt is of."""

import sqlalchemy as sa

from airflow_kafka_offsets.adapters.ledger.steps import add_column

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the column; what is there already is of no series, and is not continued."""
    add_column("kafka_offsets_attempts", sa.Column("series", sa.String(64)))
