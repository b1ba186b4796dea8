"""Which code a clear runs, if the DAG's bundle has versions: the job of the run has a defect, and the next version corrects it."""

from __future__ import annotations

from airflow_kafka_offsets.core.ending import SAME_CODE
from airflow_kafka_offsets.core.window import Outcome, State
from tests.acceptance.conftest import Lab, expect_once
from tests.lab.processes import wait_until

NAME = "versioned"

DAG_FILE = """
import os

from airflow.sdk import DAG

from airflow_kafka_offsets import KafkaGroup, KafkaSparkSubmitOperator

with DAG("versioned", schedule=None):
    KafkaSparkSubmitOperator(
        task_id="load",
        group=KafkaGroup("versioned", topics=["versioned"], kafka_timeout=60),
        application="job.py",
        application_args=[os.path.join(os.environ["LAB"], "lake", "versioned")],
        driver_memory="512m",
        jars=os.environ["CONNECTOR_JARS"],
    )
"""

JOB = """
import sys

from pyspark.sql import SparkSession

from airflow_kafka_offsets.spark import current_window

window = current_window(SparkSession.builder.getOrCreate())
window.write_parquet(window.read().select("partition", "offset"), sys.argv[1])
"""

DEFECT = JOB.replace('"offset"', '"ofset"')


def release(lab: Lab, version: str, job: str) -> None:
    """Write the next version of the bundle `tests.lab.bundle.FolderBundle`, and wait until Airflow has it."""
    bundle = lab.folder / "bundle"
    (bundle / version).mkdir()
    for name, text in {"dag.py": DAG_FILE, "job.py": job}.items():
        (bundle / version / name).write_text(text)
    (bundle / "draft").write_text(version)
    (bundle / "draft").rename(bundle / "newest")
    lab.api.wait_for_dag(NAME)
    wait_until(
        lambda: lab.api.request("GET", f"/dags/{NAME}")["bundle_version"] == version, what=f"Airflow has {version}"
    )


def test_a_clear_runs_the_code_of_its_run_unless_it_is_told_to_run_the_newest(lab: Lab) -> None:
    release(lab, "v1", DEFECT)
    lab.topic(NAME)
    run = lab.api.run_to(NAME, state="failed")
    release(lab, "v2", JOB)

    lab.api.clear(NAME, run, ["load"])
    lab.api.wait_for_run(NAME, run, "failed")
    [row] = lab.windows(NAME)
    assert (row.state, row.bundle_version) == (State.PLANNED, "v1")
    assert f"    code: bundle version v1. {SAME_CODE}\n" in lab.api.log(NAME, run, "load", 2)

    lab.api.clear(NAME, run, ["load"], on_newest=True)
    lab.api.wait_for_run(NAME, run)
    [row] = lab.windows(NAME)
    assert (row.state, row.bundle_version) == (State.COMMITTED, "v2")
    assert "    code: bundle version v2\n" in f"{lab.api.log(NAME, run, 'load', 3)}\n"
    assert [(a.try_number, a.outcome, a.bundle_version) for a in lab.attempts(row)] == [
        (1, Outcome.FAILED, "v1"),
        (2, Outcome.FAILED, "v1"),
        (3, Outcome.SUCCEEDED, "v2"),
    ]
    expect_once(lab, NAME, [row.window])
