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
            assert Path(dag.folder, getattr(task, "application", path)).is_file()


@pytest.mark.parametrize(
    "folder", [DAGS, Path(__file__).parent / "acceptance" / "dags"], ids=["examples", "acceptance"]
)
def test_airflow_does_not_start_the_spark_of_a_job_to_look_for_dags_in_it(folder: Path) -> None:
    from airflow.utils.file import list_py_file_paths

    read = {Path(path).relative_to(folder) for path in list_py_file_paths(folder, safe_mode=True)}
    assert Path("orders.py") in read or Path("examples", "orders.py") in read
    assert [path for path in read if "jobs" in path.parts] == []
