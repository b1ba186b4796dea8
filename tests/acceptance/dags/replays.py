"""Replays, backlogs, backfills and windows by time. As in windows.py, group, topic and lake have the DAG's name."""

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, Asset, task, task_group
from airflow.timetables.interval import CronDataIntervalTimetable

from airflow_kafka_offsets import (
    CommitWindowOperator,
    KafkaGroup,
    KafkaSparkSubmitOperator,
    PlanBacklogOperator,
    PlanWindowOperator,
    replay_params,
)
from airflow_kafka_offsets.airflow_versions import has_partitions
from tests.acceptance.functions import load
from tests.acceptance.needed import needed
from tests.lab.tables import FEW_RECORDS

LAB = Path(os.environ["LAB"])
JOBS = Path(__file__).parent / "jobs"


def spark(dag_id: str) -> dict:
    """Return what a load with Spark needs."""
    return {
        "application": str(JOBS / "to_parquet.py"),
        "application_args": [str(LAB / "lake" / dag_id), str(LAB / "hold" / dag_id)],
        "driver_memory": "512m",
        "jars": os.environ["CONNECTOR_JARS"],
        "conf": {"spark.ui.enabled": "false", **FEW_RECORDS},
    }


def consume(window: dict) -> int:
    """Stand for a foreign launcher: reads the window without Spark, and fails or waits as long as a file tells it to."""
    from tests.acceptance.foreign import consume_to_parquet

    if (LAB / "fail" / window["window_id"]).exists():
        raise RuntimeError(f"{window['window_id']} is told to fail")
    if window["lane"] == "live":
        wait_while_held(LAB / "hold" / window["group"])
    return consume_to_parquet(window, LAB / "lake" / window["group"])


def wait_while_held(hold: Path) -> None:
    while hold.exists():
        hold.with_name(f"{hold.name}.reached").touch()
        time.sleep(0.1)


def around(group: KafkaGroup, on_open_window: str = "wait", consume: Callable = consume, **commit) -> None:
    """Plan one window, consume it, commit it."""
    plan = PlanWindowOperator(task_id="plan", group=group, poll_interval=5, on_open_window=on_open_window)
    run = PythonOperator(task_id="run", python_callable=consume, op_args=[plan.output])
    plan >> run >> CommitWindowOperator(task_id="commit", window=plan.output, **commit)


def around_each(group: KafkaGroup) -> None:
    """Plan several windows; each is consumed and committed by itself."""
    plan = PlanBacklogOperator(task_id="plan", group=group, poll_interval=5)

    @task_group
    def one(window: dict) -> None:
        take = PlanWindowOperator(task_id="take", group=group, window=window, poll_interval=5)
        run = PythonOperator(task_id="run", python_callable=consume, op_args=[take.output])
        run >> CommitWindowOperator(task_id="commit", window=take.output)

    one.expand(window=plan.output)


replayed = {
    "group": KafkaGroup("replayed", topics=["replayed"], max_offsets=200),
    "poll_interval": 5,
    "outlets": [Asset("replayed")],
}
with DAG("replayed", schedule=None, params=replay_params(), max_active_runs=4):
    task.kafka_spark(conn_id="spark_connect", **replayed)(load)(name="replayed")

# The same windows, several in one task, by spark-submit.
with DAG("replayed_submitted", schedule=None, params=replay_params()):
    retried = {"retries": 1, "retry_delay": timedelta(seconds=1)}
    KafkaSparkSubmitOperator(task_id="load", **replayed, **retried, **spark("replayed"))

# Two groups read one topic. A replay names the one that is meant.
with DAG("two_groups", schedule=None, params=replay_params(), max_active_runs=4):
    for name in ("two_groups", "two_groups_too"):
        of_both = task.kafka_spark(
            task_id=name, conn_id="spark_connect", group=KafkaGroup(name, topics=["two_groups"]), poll_interval=5
        )
        of_both(load)(name=name)

with DAG("drained", schedule=None, params=replay_params(), max_active_runs=4):
    group = KafkaGroup("drained", topics=["drained"], max_offsets=150, max_open_windows=3)
    plan_drained = PlanBacklogOperator(task_id="plan", group=group, poll_interval=5)
    mapped = task.kafka_spark(conn_id="spark_connect", group=group, max_active_tis_per_dagrun=2, retries=0)(load)
    mapped.partial(name="drained").expand(window=plan_drained.output)

for dag_id in needed(dict.fromkeys(["drained_around", "drained_refused"])):
    with DAG(dag_id, schedule=None, params=replay_params(), max_active_runs=4):
        around_each(KafkaGroup(dag_id, topics=[dag_id], max_offsets=100, max_open_windows=4))

HOURS = CronDataIntervalTimetable("0 * * * *", timezone="UTC")
BACKFILLED = {
    "backfilled_none": HOURS,
    "backfilled_failed": HOURS,
    "backfilled_completed": HOURS,
    "backfilled_live": CronDataIntervalTimetable("* * * * *", timezone="UTC"),
}

for dag_id, schedule in needed(BACKFILLED).items():
    with DAG(dag_id, schedule=schedule, start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False, max_active_runs=1):
        around(KafkaGroup(dag_id, topics=[dag_id], starting_offsets="latest"))

with DAG("zero_width", schedule="@hourly", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False):
    around(KafkaGroup("zero_width", topics=["zero_width"]))

with DAG(
    "by_interval",
    schedule=HOURS,
    start_date=datetime(2026, 1, 5, tzinfo=UTC),
    end_date=datetime(2026, 1, 5, 3, tzinfo=UTC),
    catchup=True,
    max_active_runs=1,
):
    around(KafkaGroup("by_interval", topics=["by_interval"], until="data_interval_end"))

with DAG(
    "graceful",
    schedule=CronDataIntervalTimetable("* * * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
):
    # The last interval ended less than a minute ago, whenever the DAG begins: its run has to wait.
    around(KafkaGroup("graceful", topics=["graceful"], until="data_interval_end", grace=timedelta(seconds=75)))

# Two scheduled runs, one after the other: a topic appears while the first one works.
with DAG(
    "by_pattern",
    schedule=HOURS,
    start_date=datetime(2026, 1, 5, tzinfo=UTC),
    end_date=datetime(2026, 1, 5, 1, tzinfo=UTC),
    catchup=True,
    max_active_runs=1,
):
    around(KafkaGroup("by_pattern", topics_pattern="by_pattern(-.+)?", kafka_timeout=240))

for dag_id, answer in needed({f"together_{answer}": answer for answer in ("wait", "skip", "fail")}).items():
    with DAG(
        dag_id,
        schedule=HOURS,
        start_date=datetime(2026, 1, 5, tzinfo=UTC),
        end_date=datetime(2026, 1, 5, 1, tzinfo=UTC),
        catchup=True,
        max_active_runs=8,
    ):
        start = datetime(2026, 1, 4, 12, tzinfo=UTC)
        around(KafkaGroup(dag_id, topics=[dag_id], starting_offsets=start), answer)


def consume_unless_it_is_two(window: dict, data_interval_end: datetime | None = None) -> int:
    """Consume a window, but fail in the scheduled run of two o'clock."""
    if data_interval_end is not None and data_interval_end.hour == 2:
        raise RuntimeError("This run fails for good")
    return consume(window)


if has_partitions():
    from airflow.sdk import CronPartitionTimetable, PartitionedAssetTimetable

    PARTITIONED = {
        "by_hour": ("@hourly", {"consume": consume_unless_it_is_two}),
        "of_partition": (CronPartitionTimetable("0 * * * *", timezone="UTC", run_offset=-1), {}),
    }
    for dag_id, (schedule, more) in PARTITIONED.items():
        day = datetime(2026, 1, 5, tzinfo=UTC)
        with DAG(
            dag_id,
            schedule=schedule,
            start_date=day + timedelta(hours=1),
            end_date=day + timedelta(hours=4),
            catchup=True,
            max_active_runs=1,
        ) as dag:
            around(KafkaGroup(dag_id, topics=[dag_id], until="data_interval_end"), outlets=[Asset(dag_id)], **more)
        globals()[dag_id] = dag

        for name, consumers in {
            f"{dag_id}_consumer": PartitionedAssetTimetable(assets=Asset(dag_id)),
            f"{dag_id}_plain_consumer": [Asset(dag_id)],
        }.items():
            with DAG(name, schedule=consumers) as dag:
                PythonOperator(task_id="run", python_callable=lambda: None)
            globals()[name] = dag
