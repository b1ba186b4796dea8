"""The task that each group belongs to. For existing groups: the task that cut the newest live window."""

import sqlalchemy as sa
from alembic import op

from airflow_kafka_offsets.ledger.steps import add_column, name

revision = "0004"
down_revision = "0003"

COLUMNS = ("owner_dag_id", "owner_task_id")

_groups = sa.table("kafka_offsets_groups", *map(sa.column, ("id", *COLUMNS)))
_windows = sa.table("kafka_offsets_windows", *map(sa.column, ("group_id", "seq", "lane")))
_claims = sa.table("kafka_offsets_claims", *map(sa.column, ("id", "dag_id", "task_id")))
_claim_windows = sa.table("kafka_offsets_claim_windows", *map(sa.column, ("claim_id", "group_id", "seq")))


def upgrade() -> None:
    """Add the owner, and set it for existing groups."""
    connection = op.get_bind()
    for column in COLUMNS:
        add_column("kafka_offsets_groups", sa.Column(column, name(250)))
    for group_id in connection.execute(sa.select(_groups.c.id)).scalars().all():
        owner = connection.execute(_planner(group_id)).first()
        if owner is not None:
            values = dict(zip(COLUMNS, owner, strict=True))
            connection.execute(sa.update(_groups).where(_groups.c.id == group_id).values(values))


def _planner(group_id: int) -> sa.Select[tuple[str, str]]:
    """Find the task that cut the newest live window: that of its oldest claim. Mapped tasks and other runs had it later."""
    newest = sa.select(sa.func.max(_windows.c.seq)).where(_windows.c.group_id == group_id, _windows.c.lane == "live")
    had_it = (_claim_windows.c.group_id == group_id, _claim_windows.c.seq == newest.scalar_subquery())
    first = sa.select(sa.func.min(_claim_windows.c.claim_id)).where(*had_it)
    return sa.select(_claims.c.dag_id, _claims.c.task_id).where(_claims.c.id == first.scalar_subquery())
