"""An index that finds the newest acts of a group, however many there are."""

from airflow_kafka_offsets.ledger.steps import create_index, drop_index

revision = "0008"
down_revision = "0007"

_ACTS = "kafka_offsets_acts"


def upgrade() -> None:
    """Add the index, and drop the one that it replaces: last, as on MySQL the foreign key needs one of them at any time."""
    create_index(f"ix_{_ACTS}_group_id_id", _ACTS, ["group_id", "id"])
    drop_index(f"ix_{_ACTS}_group_id", _ACTS)
