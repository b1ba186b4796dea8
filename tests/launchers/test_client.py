"""A driver on the worker itself, that no cluster knows: what a task leaves there for the next one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_kafka_offsets.adapters.machine.archives import FOLDER
from tests.lab.kafka import KafkaBroker
from tests.lab.start import NO_JOB, home_like
from tests.lab.topics import produce
from tests.launchers.conftest import RECORDS, Task

JOB = Path(__file__).parents[1] / "launch" / "jobs" / "how_it_started.py"


@pytest.fixture
def task(make_task: Any, tmp_path: Path) -> Task:
    """Return a task whose job tells how its driver started, and whose worker has an empty cache folder and a Spark of its own."""
    environment = {
        "SPARK_HOME": str(home_like(tmp_path / "spark")),
        "AIRFLOW__KAFKA_OFFSETS__CACHE_FOLDER": str(tmp_path / "cache"),
        # So the archive holds what a driver loads before it has a job: it is soon made.
        "PYSPARK_PYTHON": NO_JOB,
        "SPARK_SUBMIT_OPTS": "",
    }
    made: Task = make_task(
        {"conn_type": "spark", "host": "local[1]"},
        environment,
        application=str(JOB),
        application_args=[str(tmp_path / "told.json")],
        connector=None,
        jars=None,
        conf={"spark.ui.enabled": "false", "spark.pyspark.driver.python": sys.executable},
        start_archive="make",
    )
    return made


def told(task: Task) -> dict[str, Any]:
    """Return what the last job told of its driver."""
    return dict(json.loads((task.folder / "told.json").read_text()))


def test_the_first_task_makes_an_archive_after_its_commit_and_the_next_driver_starts_from_it(
    task: Task, kafka: KafkaBroker
) -> None:
    first = task.start()
    first.succeed()
    assert not told(task)["archive"]
    (made,) = (task.folder / "cache" / FOLDER).glob("*.jsa")
    assert f"start from the archive {made}" in first.log
    assert first.log.index("committed") < first.log.index("start from the archive")
    task.run_id = "run-2"
    produce(kafka, task.group, RECORDS)
    second = task.start()
    second.succeed()
    assert told(task)["archive"]
    assert "start from the archive" not in second.log
