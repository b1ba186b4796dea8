"""Indexes that find windows by lane and state, and attempts by claim, however long the history is; packed ranges."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from airflow_kafka_offsets.ledger.steps import add_column, create_index, drop_index

revision = "0005"
down_revision = "0004"

_WINDOWS, _ATTEMPTS = "kafka_offsets_windows", "kafka_offsets_attempts"


def upgrade() -> None:
    """Add what is new, and drop the indexes that it replaces: last, as on MySQL a foreign key needs one of them at any time."""
    create_index(f"ix_{_WINDOWS}_group_id_lane_state_seq", _WINDOWS, ["group_id", "lane", "state", "seq"])
    create_index(
        f"ix_{_WINDOWS}_group_id_lane_state_is_capped_until",
        _WINDOWS,
        ["group_id", "lane", "state", "is_capped", "until"],
    )
    create_index(f"ix_{_ATTEMPTS}_claim_id", _ATTEMPTS, ["claim_id"])
    add_column(_WINDOWS, sa.Column("packed", sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")))
    drop_index(f"ix_{_WINDOWS}_group_id_state", _WINDOWS)
    drop_index(f"ix_{_WINDOWS}_group_id_until", _WINDOWS)
