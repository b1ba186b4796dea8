"""Every DAG that we ship can be read by Airflow, from wherever it stands."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

DAGS = Path(__file__).parents[1] / "dags"


@pytest.mark.parametrize("path", sorted(DAGS.glob("*.py")), ids=lambda path: path.name)
def test_a_dag_file_makes_a_dag_whose_jobs_exist(path: Path) -> None:
    from airflow.sdk import DAG

    dag = runpy.run_path(str(path))["dag"]
    assert isinstance(dag, DAG)
    assert dag.tasks
    for task in dag.tasks:
        assert Path(task.application).is_file()
