"""Let a real Airflow make a run of a versioned bundle, and clear it: `python -m tests.task.runs_of_a_bundle FOLDER`.

There is no scheduler and no job. What runs is what decides which code a try gets: Airflow's DAG bundles, its tables, the function that clears,
and the task runner that reads the DAG. The last line of the output is the version that each try sees, as JSON.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
from airflow.executors.workloads import ExecuteTask
from airflow.models.dagrun import DagRun
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import clear_task_instances
from airflow.sdk.api.datamodels import _generated as given
from airflow.sdk.execution_time import comms, task_runner
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from airflow.utils.types import DagRunTriggeredByType, DagRunType
from sqlalchemy import select
from structlog import get_logger

from airflow_kafka_offsets.task.airflow import Task

NAME = "versioned"

DAG_FILE = f"""
from airflow.sdk import DAG
from airflow_kafka_offsets import KafkaGroup, KafkaSparkSubmitOperator

with DAG("{NAME}", schedule=None):
    KafkaSparkSubmitOperator(task_id="load", group=KafkaGroup("{NAME}", topics=["orders"]), application="job.py")
"""


def release(bundle: Path, version: str) -> None:
    """Publish the next version of `tests.lab.bundle.FolderBundle`, and parse it as the DAG processor does."""
    (bundle / version).mkdir(parents=True)
    (bundle / version / "dag.py").write_text(DAG_FILE)
    (bundle / "newest").write_text(version)
    newest = DagBundlesManager().get_bundle(NAME)
    newest.initialize()
    bag = BundleDagBag(newest.path, bundle_path=newest.path, bundle_name=NAME)
    assert not bag.import_errors
    sync_bag_to_db(bag, NAME, version)


def make_run(run_id: str) -> None:
    """Make a run, as the scheduler does."""
    now: dict[str, Any] = {"run_after": datetime.now(UTC), "state": DagRunState.RUNNING}
    with create_session() as session:
        dag: Any = SerializedDagModel.get_dag(NAME, session=session)
        kind = {"run_type": DagRunType.MANUAL, "triggered_by": DagRunTriggeredByType.TEST}
        dag.create_dagrun(run_id=run_id, **kind, **now, session=session)


def fail_and_clear(run_id: str, *, on_newest: bool) -> None:
    """Let the run fail, and clear it."""
    with create_session() as session:
        run: Any = session.scalar(select(DagRun).where(DagRun.run_id == run_id))
        run.state = DagRunState.FAILED
        for ti in run.task_instances:
            ti.state = TaskInstanceState.FAILED
        clear_task_instances(list(run.task_instances), session, run_on_latest_version=on_newest)


def version_of_a_try(run_id: str) -> str | None:
    """Return the version that the next try of the run sees, when the task runner has read the DAG for it."""
    now = datetime.now(UTC)
    with create_session() as session:
        run: Any = session.scalar(select(DagRun).where(DagRun.run_id == run_id))
        workload = ExecuteTask.make(run.task_instances[0])
    state = given.DagRunState.RUNNING
    dates = dict.fromkeys(("logical_date", "data_interval_start", "data_interval_end", "end_date", "partition_key"))
    started = {"run_after": now, "start_date": now, "run_type": given.DagRunType.MANUAL, "state": state}
    of_run = given.DagRun(dag_id=NAME, run_id=run_id, consumed_asset_events=[], **dates, **started)
    details = comms.StartupDetails(
        ti=given.TaskInstance(**workload.ti.model_dump(include=set(given.TaskInstance.model_fields))),
        dag_rel_path=str(workload.dag_rel_path),
        bundle_info=workload.bundle_info.model_dump(),
        start_date=now,
        ti_context=given.TIRunContext(dag_run=of_run, max_tries=0),
        sentry_integration="",
    )
    ti: Any = task_runner.parse(details, get_logger())
    return Task(ti.task, ti.get_template_context()).run.this_try.bundle_version


def main(folder: Path) -> None:
    """Make a run of the first version, and clear it twice after the second one."""
    DagBundlesManager().sync_bundles_to_db()
    release(folder, "v1")
    make_run("first")
    seen = {"first": version_of_a_try("first")}
    release(folder, "v2")
    fail_and_clear("first", on_newest=False)
    seen["cleared"] = version_of_a_try("first")
    fail_and_clear("first", on_newest=True)
    seen["cleared with the newest"] = version_of_a_try("first")
    make_run("next")
    seen["next run"] = version_of_a_try("next")
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
