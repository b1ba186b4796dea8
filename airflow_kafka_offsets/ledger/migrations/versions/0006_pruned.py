"""What stays known of pruned windows; indexes by which windows and claims are deleted without reading all others."""

import sqlalchemy as sa

from airflow_kafka_offsets.ledger.steps import big, create_index, create_table, document, moment

revision = "0006"
down_revision = "0005"

_PRUNED, _CLAIMS = "kafka_offsets_pruned", "kafka_offsets_pruned_claims"
_WINDOWS, _CLAIM_WINDOWS = "kafka_offsets_windows", "kafka_offsets_claim_windows"


def upgrade() -> None:
    """Add the tables and the indexes."""
    create_table(
        _PRUNED,
        sa.Column("group_id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("before_seq", sa.BigInteger, nullable=False),
        sa.Column("until", moment()),
        sa.Column("proof_seq", sa.BigInteger),
        sa.Column("proof_until", moment()),
        sa.Column("floors", document(), nullable=False),
        sa.PrimaryKeyConstraint("group_id", name=f"pk_{_PRUNED}"),
        sa.ForeignKeyConstraint(["group_id"], ["kafka_offsets_groups.id"], name=f"fk_{_PRUNED}_group_id"),
    )
    create_table(
        _CLAIMS,
        sa.Column("id", big(), nullable=False, autoincrement=False),
        sa.PrimaryKeyConstraint("id", name=f"pk_{_CLAIMS}"),
    )
    create_index(f"ix_{_WINDOWS}_holder", _WINDOWS, ["holder"])
    create_index(f"ix_{_CLAIM_WINDOWS}_group_id_seq", _CLAIM_WINDOWS, ["group_id", "seq"])
