"""All tables. Until a version is released, a change of `tables` changes this migration, and with it the revision."""

from uuid import uuid4

from alembic import op

from airflow_kafka_offsets.ledger.schema import REVISION
from airflow_kafka_offsets.ledger.tables import identity, metadata

revision = REVISION
down_revision = None


def upgrade() -> None:
    """Create what is missing: MySQL and MariaDB keep what an upgrade made before it died."""
    for table in metadata.sorted_tables:
        table.create(op.get_bind(), checkfirst=True)
        for index in table.indexes:
            index.create(op.get_bind(), checkfirst=True)
    if op.get_bind().execute(identity.select()).first() is None:
        op.get_bind().execute(identity.insert().values(id=uuid4().hex))
