"""What jobs staged for tables in the ledger's database."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from airflow_kafka_offsets.adapters.ledger.steps import create_index, create_table

revision = "0002"
down_revision = "0001"

MYSQL = ("mysql", "mariadb")


def _name(length: int) -> sa.String:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, *MYSQL)


def upgrade() -> None:
    """Create the table."""
    create_table(
        "kafka_offsets_staged",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("window_id", _name(255), nullable=False),
        sa.Column("target", _name(255), nullable=False),
        sa.Column("staging", _name(64)),
        sa.Column("column_names", sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4"), *MYSQL), nullable=False),
        sa.Column("row_count", sa.BigInteger(), nullable=False),
        sa.Column("attempt_id", sa.BigInteger()),
        sa.Column("published_at", sa.DateTime().with_variant(mysql.DATETIME(fsp=6), *MYSQL)),
        sa.PrimaryKeyConstraint("id", name="pk_kafka_offsets_staged"),
    )
    create_index("ix_kafka_offsets_staged_window_id", "kafka_offsets_staged", ["window_id"])
    create_index("ix_kafka_offsets_staged_staging", "kafka_offsets_staged", ["staging"])
