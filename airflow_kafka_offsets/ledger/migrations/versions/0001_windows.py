"""Groups, claims, windows, attempts and acts."""

import sqlalchemy as sa

from airflow_kafka_offsets.ledger.steps import big, create_index, create_table, document, moment, name

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    create_table(
        "kafka_offsets_groups",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", name(200), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("next_seq", sa.BigInteger(), nullable=False),
        sa.Column("origin_seq", sa.BigInteger(), nullable=False),
        sa.Column("origin", document(), nullable=False),
        sa.Column("definition", document(), nullable=False),
        sa.Column("created_at", moment(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_kafka_offsets_groups"),
        sa.UniqueConstraint("name", name="uq_kafka_offsets_groups_name"),
    )
    create_table(
        "kafka_offsets_claims",
        sa.Column("id", big(), nullable=False),
        sa.Column("dag_id", name(250), nullable=False),
        sa.Column("run_id", name(250), nullable=False),
        sa.Column("task_id", name(250), nullable=False),
        sa.Column("map_index", sa.Integer(), nullable=False),
        sa.Column("scope", sa.String(10), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_kafka_offsets_claims"),
        sa.UniqueConstraint(
            "dag_id",
            "run_id",
            "task_id",
            "map_index",
            name="uq_kafka_offsets_claims_dag_id_run_id_task_id_map_index",
        ),
    )
    create_table(
        "kafka_offsets_windows",
        sa.Column("group_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("lane", sa.String(10), nullable=False),
        sa.Column("state", sa.String(12), nullable=False),
        sa.Column("holder", big(), nullable=False),
        sa.Column("holds", sa.Integer(), nullable=False),
        sa.Column("until", moment(), nullable=False),
        sa.Column("isolation_level", sa.String(20), nullable=False),
        sa.Column("span", sa.BigInteger(), nullable=False),
        sa.Column("ranges", document(), nullable=False),
        sa.Column("lost", document()),
        sa.Column("is_capped", sa.Boolean(), nullable=False),
        sa.Column("planned_at", moment(), nullable=False),
        sa.Column("committed_at", moment()),
        sa.PrimaryKeyConstraint("group_id", "seq", name="pk_kafka_offsets_windows"),
        sa.ForeignKeyConstraint(["group_id"], ["kafka_offsets_groups.id"], name="fk_kafka_offsets_windows_group_id"),
        sa.ForeignKeyConstraint(["holder"], ["kafka_offsets_claims.id"], name="fk_kafka_offsets_windows_holder"),
    )
    create_index("ix_kafka_offsets_windows_group_id_state", "kafka_offsets_windows", ["group_id", "state"])
    create_index("ix_kafka_offsets_windows_group_id_until", "kafka_offsets_windows", ["group_id", "until"])
    create_table(
        "kafka_offsets_claim_windows",
        sa.Column("claim_id", big(), autoincrement=False, nullable=False),
        sa.Column("group_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("claim_id", "group_id", "seq", name="pk_kafka_offsets_claim_windows"),
        sa.ForeignKeyConstraint(
            ["claim_id"], ["kafka_offsets_claims.id"], name="fk_kafka_offsets_claim_windows_claim_id"
        ),
        sa.ForeignKeyConstraint(
            ["group_id", "seq"],
            ["kafka_offsets_windows.group_id", "kafka_offsets_windows.seq"],
            name="fk_kafka_offsets_claim_windows_group_id_seq",
        ),
    )
    create_table(
        "kafka_offsets_attempts",
        sa.Column("id", big(), nullable=False),
        sa.Column("group_id", sa.Integer(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("claim_id", big(), nullable=False),
        sa.Column("try_number", sa.Integer(), nullable=False),
        sa.Column("last_clear", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.String(10), nullable=False),
        sa.Column("records", sa.BigInteger()),
        sa.Column("started_at", moment(), nullable=False),
        sa.Column("ended_at", moment()),
        sa.PrimaryKeyConstraint("id", name="pk_kafka_offsets_attempts"),
        sa.ForeignKeyConstraint(["claim_id"], ["kafka_offsets_claims.id"], name="fk_kafka_offsets_attempts_claim_id"),
        sa.ForeignKeyConstraint(
            ["group_id", "seq"],
            ["kafka_offsets_windows.group_id", "kafka_offsets_windows.seq"],
            name="fk_kafka_offsets_attempts_group_id_seq",
        ),
    )
    create_index("ix_kafka_offsets_attempts_group_id_seq", "kafka_offsets_attempts", ["group_id", "seq"])
    create_table(
        "kafka_offsets_acts",
        sa.Column("id", big(), nullable=False),
        sa.Column("group_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("who", name(200), nullable=False),
        sa.Column("why", document(), nullable=False),
        sa.Column("at", moment(), nullable=False),
        sa.Column("details", document(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_kafka_offsets_acts"),
        sa.ForeignKeyConstraint(["group_id"], ["kafka_offsets_groups.id"], name="fk_kafka_offsets_acts_group_id"),
    )
    create_index("ix_kafka_offsets_acts_group_id", "kafka_offsets_acts", ["group_id"])
