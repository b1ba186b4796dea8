"""Which of the DAGs that a file makes in a loop are made for whoever reads it: all for the DAG processor, only its own one for a task.

Each task reads its file again, and to make a dozen DAGs that it does not need takes a third of its time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from airflow.sdk import get_parsing_context

T = TypeVar("T")


def needed(dags: Mapping[str, T]) -> dict[str, T]:
    """Return those of these DAGs, by name, that whoever reads the file needs."""
    own = get_parsing_context().dag_id
    return {dag_id: what for dag_id, what in dags.items() if own in (None, dag_id)}
