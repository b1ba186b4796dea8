"""The series of tries that an attempt belongs to."""

import sqlalchemy as sa

from airflow_kafka_offsets.ledger.steps import add_column

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the column. Existing attempts have no series, so no later try continues them."""
    add_column("kafka_offsets_attempts", sa.Column("series", sa.String(64)))
