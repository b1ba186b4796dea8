"""The DAGs of the matrix: one for each kind of run, what is done to it, and the state of its window at that moment.

All read one topic, each in a group of its own, in one task: a PySpark function on a warm Spark Connect server.
"""

import os
import time
from datetime import timedelta
from pathlib import Path

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, task
from airflow.timetables.interval import CronDataIntervalTimetable

from airflow_kafka_offsets import KafkaGroup
from tests.acceptance.matrix import DAY, TOPIC, Cell, cells, stop_commit_half_way
from tests.acceptance.needed import needed

LAB = Path(os.environ["LAB"])


def once(dag_id: str, what: str) -> bool:
    """Whether this is to happen to the first try of this DAG; says so once."""
    file = LAB / "matrix" / f"{dag_id}.{what}"
    if not file.exists():
        return False
    file.unlink()
    return True


def after_the_commit(context: dict, result: object) -> None:
    """Fail the task after its window was committed, or as if the commit had stopped half-way."""
    dag_id = context["dag"].dag_id
    if once(dag_id, "committing"):
        from sqlalchemy import create_engine

        from airflow_kafka_offsets.wiring import ledger_url

        stop_commit_half_way(create_engine(ledger_url()), dag_id)
        raise RuntimeError("told to fail in the middle of the commit")
    if once(dag_id, "committed"):
        raise RuntimeError("told to fail after the commit")


def wait_for_the_end(dag_id: str) -> None:
    """Be in the middle of the job until the task is killed, or its test has given up."""
    (LAB / "matrix" / f"{dag_id}.reached").touch()
    while not (LAB / "matrix" / f"{dag_id}.let-go").exists():
        time.sleep(0.1)


def schedule_of(cell: Cell) -> dict:
    """Return when a DAG runs: a scheduled one once, the others when they are told to."""
    if cell.kind == "asset-triggered":
        return {"schedule": [Asset(cell.dag_id)]}
    hours = CronDataIntervalTimetable("0 * * * *", timezone="UTC")
    # Periodic, so that a backfill can be made; without catchup its only hour is over, and it is never scheduled.
    return {"schedule": hours, "catchup": cell.kind == "scheduled", "start_date": DAY, "end_date": DAY}


def load_of(cell: Cell):
    """Return the task: one window to Parquet, on the Connect server."""
    retries = {"retries": 1, "retry_delay": timedelta(seconds=1)} if cell.action == "retry" else {}

    @task.kafka_spark(
        task_id="load",
        group=KafkaGroup(cell.dag_id, topics=[TOPIC], starting_offsets=cell.starting_offsets),
        conn_id="spark_connect",
        post_execute=after_the_commit,
        **retries,
    )
    def load(spark, window):
        lake = LAB / "lake" / cell.dag_id / f"window_id={window.id}"
        # Not read(), of which a busy Spark Connect server may report no count: what is shown here comes before and after.
        with window.persisted() as records:
            records.select("partition", "offset").write.mode("overwrite").parquet(str(lake))
        if once(cell.dag_id, "held"):
            wait_for_the_end(cell.dag_id)
        if once(cell.dag_id, "planned"):
            raise RuntimeError("told to fail before the commit")
        return window.records

    return load()


for cell in needed({cell.dag_id: cell for cell in cells()}).values():
    with DAG(cell.dag_id, **schedule_of(cell)) as dag:
        # Without a process: the scheduler itself counts its tries. Whatever becomes of the load, it comes once behind it.
        load_of(cell) >> EmptyOperator(task_id="after", trigger_rule="all_done")
    globals()[cell.dag_id] = dag
