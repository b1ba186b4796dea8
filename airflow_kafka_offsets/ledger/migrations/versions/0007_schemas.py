"""The schemas that are frozen with windows."""

import sqlalchemy as sa

from airflow_kafka_offsets.ledger.steps import add_column, big, create_table, document

revision = "0007"
down_revision = "0006"

_SCHEMAS = "kafka_offsets_schemas"


def upgrade() -> None:
    """Add the table, and the column that refers to it. Existing windows have no schemas: these are frozen when one is run again."""
    create_table(
        _SCHEMAS,
        sa.Column("id", big(), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("content", document(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=f"pk_{_SCHEMAS}"),
        sa.UniqueConstraint("digest", name=f"uq_{_SCHEMAS}_digest"),
    )
    add_column("kafka_offsets_windows", sa.Column("schemas", sa.BigInteger))
