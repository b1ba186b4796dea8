"""What jobs staged for tables in the ledger's database."""

import sqlalchemy as sa

from airflow_kafka_offsets.ledger.steps import big, create_index, create_table, document, moment, name

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the table."""
    create_table(
        "kafka_offsets_staged",
        sa.Column("id", big(), nullable=False),
        sa.Column("window_id", name(255), nullable=False),
        sa.Column("target", name(255), nullable=False),
        sa.Column("staging", name(64)),
        sa.Column("column_names", document(), nullable=False),
        sa.Column("row_count", sa.BigInteger(), nullable=False),
        sa.Column("attempt_id", sa.BigInteger()),
        sa.Column("published_at", moment()),
        sa.PrimaryKeyConstraint("id", name="pk_kafka_offsets_staged"),
    )
    create_index("ix_kafka_offsets_staged_window_id", "kafka_offsets_staged", ["window_id"])
    create_index("ix_kafka_offsets_staged_staging", "kafka_offsets_staged", ["staging"])
