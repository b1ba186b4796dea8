"""Every DAG that we ship can be read by Airflow, from wherever it stands."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

DAGS = Path(__file__).parents[1] / "dags"


@pytest.mark.parametrize("path", sorted(DAGS.glob("*.py")), ids=lambda path: path.name)
def test_a_dag_file_makes_dags_whose_jobs_exist(path: Path) -> None:
    from airflow.sdk import DAG

    made = runpy.run_path(str(path))
    assert isinstance(made["dag"], DAG)
    for dag in (value for value in made.values() if isinstance(value, DAG)):
        assert dag.tasks
        for task in dag.tasks:
            assert Path(getattr(task, "application", path)).is_file()
