"""Which series of tries an attempt is of."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the column; what is there already is of no series, and is not continued."""
    op.add_column("kafka_offsets_attempts", sa.Column("series", sa.String(64)))
