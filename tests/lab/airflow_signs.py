"""Whether anything has changed that Airflow's REST API would tell of: a look into its database, for a tenth of what a request costs.

What has changed, the API says: tests depend on no more of Airflow's tables than that.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, text

if TYPE_CHECKING:
    from sqlalchemy import Engine

RUN = text("SELECT state FROM dag_run WHERE dag_id = :dag_id AND run_id = :run_id")
"""A run."""
TASK = text(
    "SELECT try_number, state FROM task_instance "
    "WHERE dag_id = :dag_id AND run_id = :run_id AND task_id = :task_id AND map_index = :map_index"
)
"""A task of a run."""
RUNS = text("SELECT run_id, state FROM dag_run WHERE dag_id = :dag_id ORDER BY run_id")
"""All runs of a DAG."""
BACKFILL = text("SELECT completed_at FROM backfill WHERE id = :backfill_id")
"""An Airflow backfill."""
LAST_END = text("SELECT max(end_date) FROM task_instance")
"""When a task ended last, whoever's it is."""
FAILED = text(
    "SELECT run_id, task_id, map_index, try_number FROM task_instance WHERE dag_id = :dag_id AND state = 'failed' "
    "ORDER BY run_id, task_id, map_index"
)
"""The tasks of a DAG that have failed for good."""


class Signs:
    """Reads Airflow's database.

    Args:
        database_url: SQLAlchemy URL.
    """

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url

    def __getstate__(self) -> dict[str, Any]:
        # Each process has connections of its own.
        return {"_database_url": self._database_url}

    def read(self, query: Any, **values: Any) -> Any:
        """Return the rows of a query, to be compared with those of another time."""
        with self._engine.connect() as connection:
            return [tuple(row) for row in connection.execute(query, values)]

    @cached_property
    def _engine(self) -> Engine:
        return create_engine(self._database_url, isolation_level="AUTOCOMMIT", pool_size=20)
