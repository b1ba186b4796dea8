"""Every DAG that we ship can be read by Airflow, from wherever it stands."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.execution_time.context import TriggeringAssetEventsAccessor

DAGS = Path(__file__).parents[1] / "dags"
DEMO = DAGS / "demo_orders.py"
"""Not in the wheel."""

OK = {"group": "lake", "verdict": "OK", "reason": "all is read"}
LOST = {"group": "lake", "verdict": "LOST", "reason": "5 offsets are gone"}
REFUSED = {"group": "lake", "error": "wrong password"}


@pytest.mark.parametrize("path", sorted(DAGS.glob("*.py")), ids=lambda path: path.name)
def test_a_dag_file_makes_dags_whose_jobs_exist(path: Path) -> None:
    from airflow.sdk import DAG

    made = runpy.run_path(str(path))
    assert isinstance(made["dag"], DAG)
    for dag in (value for value in made.values() if isinstance(value, DAG)):
        assert dag.tasks
        for task in dag.tasks:
            assert Path(dag.folder, getattr(task, "application", path)).is_file()


def test_no_example_takes_the_id_of_a_dag_or_the_name_of_a_group_from_the_docs() -> None:
    """Airflow parses the examples of each provider unless it is told not to: beside the DAGs that the docs let people write."""
    from airflow.sdk import DAG

    from airflow_kafka_offsets import KafkaGroup

    made = [value for path in DAGS.glob("*.py") if path != DEMO for value in runpy.run_path(str(path)).values()]
    ids = [value.dag_id for value in made if isinstance(value, DAG)]
    groups = [value.name for value in made if isinstance(value, KafkaGroup)]
    assert len(ids) == len(set(ids)) > 7
    assert not [name for name in ids if not name.startswith("example_")]
    assert groups
    assert not [name for name in groups if not name.startswith("example.")]


@pytest.mark.parametrize(
    "folder", [DAGS, Path(__file__).parent / "acceptance" / "dags"], ids=["examples", "acceptance"]
)
def test_airflow_does_not_start_the_spark_of_a_job_to_look_for_dags_in_it(folder: Path) -> None:
    from airflow.utils.file import list_py_file_paths

    read = {Path(path).relative_to(folder) for path in list_py_file_paths(folder, safe_mode=True)}
    assert Path("orders.py") in read or Path("examples", "orders.py") in read
    assert [path for path in read if {"jobs", "launchers"} & set(path.parts)] == []


@pytest.mark.parametrize(
    ("payloads", "said"),
    [
        ([LOST, OK], "lake is LOST: 5 offsets are gone; lake is OK: all is read"),
        ([REFUSED, OK], "wrong password; lake is OK: all is read"),
        ([OK, REFUSED], "lake is OK: all is read; wrong password"),
        ([OK, OK], None),
    ],
)
def test_the_verdict_example_fails_with_all_that_was_told_since_its_last_run(
    payloads: list[dict[str, str]], said: str | None
) -> None:
    """Several events may start one run."""
    made = runpy.run_path(str(DAGS / "orders_verdict.py"))
    tell = made["dag"].get_task("tell").python_callable
    asset = SimpleNamespace(name=made["changed"].name, uri=made["changed"].uri)
    events: Any = TriggeringAssetEventsAccessor.build(
        SimpleNamespace(asset=asset, source_aliases=[], extra={"payload": payload})  # type: ignore[misc]
        for payload in payloads
    )
    if said is None:
        assert tell(triggering_asset_events=events).startswith("lake is OK: all is read")
        return
    with pytest.raises(made["AirflowFailException"], match=f"^{said}$"):
        tell(triggering_asset_events=events)
