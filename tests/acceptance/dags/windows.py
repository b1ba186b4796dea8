"""The DAGs of the acceptance tests: each has its own group, topic and lake, all named after the DAG."""

import json
import os
from datetime import timedelta
from pathlib import Path

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, task

from airflow_kafka_offsets import CommitWindowOperator, KafkaGroup, KafkaSparkSubmitOperator, PlanWindowOperator
from airflow_kafka_offsets.task import plan as planning
from tests.acceptance import functions
from tests.acceptance.needed import needed
from tests.lab.tables import FEW_RECORDS
from tests.versions import KEEPS_TASK_STATE

# A ledger that is stopped for longer than this fails the task: the tests have no minute to wait.
planning.PATIENCE = 4.0

LAB = Path(os.environ["LAB"])


def load(dag_id: str, *, job: str = "to_parquet.py", group: dict | None = None, **operator) -> KafkaSparkSubmitOperator:
    settings = {"topics": [dag_id], "kafka_timeout": 60, **(group or {})}
    conf = {"spark.ui.enabled": "false", **FEW_RECORDS}
    arguments = [str(LAB / "lake" / dag_id), str(LAB / "hold" / dag_id)]
    return KafkaSparkSubmitOperator(
        task_id="load",
        group=KafkaGroup(dag_id, **settings),
        application=f"jobs/{job}",
        application_args=operator.pop("application_args", arguments),
        driver_memory="512m",
        # Two DAGs go the ordinary way: the operator finds the connector's jars in its cache folder.
        jars=None if dag_id in ("steady", "own_job") else os.environ["CONNECTOR_JARS"],
        conf={**conf, **operator.pop("conf", {})},
        poll_interval=5,
        **operator,
    )


def retrying(seconds: float = 1, retries: int = 2) -> dict:
    return {"retries": retries, "retry_delay": timedelta(seconds=seconds)}


def use_own_ledger(context: object) -> None:
    """Let this process take the ledger that is stopped under it; the others go on with theirs."""
    os.environ["AIRFLOW__KAFKA_OFFSETS__LEDGER_CONN_ID"] = "ledger_failures"


def load_on_connect(dag_id: str, *, group: dict | None = None, **operator) -> None:
    """Load on the warm server, for a tenth of a launch: where no driver of its own matters."""
    settings = {"topics": [dag_id], "kafka_timeout": 60, **(group or {})}
    decorate = task.kafka_spark(group=KafkaGroup(dag_id, **settings), conn_id="spark_connect", **operator)
    decorate(functions.load)(name=dag_id)


STARTING = {
    "steady": {},
    "driver_killed": retrying(),
    "worker_killed": retrying(),
    "worker_stopped": retrying(),
    "marked": {},
    "canary": {
        "group": {"kafka_conn_id": "kafka_secret"},
        "conf": {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",  # so that it can be searched
            "spark.eventLog.dir": f"file://{LAB}/events",
        },
    },
    "no_such_connection": {"group": {"kafka_conn_id": "nowhere"}},
    "no_such_cluster": {"conn_id": "nowhere"},
    "no_such_job": {**retrying(600), "job": "none.py"},
    "colliding_conf": {"conf": {"SPARK.kafka_offsets.window": "{}"}},
}
"""What starts a Spark of its own, or fails before it does."""

for name, operator in needed(STARTING).items():
    with DAG(name, schedule=None, max_active_runs=4) as dag:
        load(name, **operator)
    globals()[name] = dag

ON_CONNECT = {
    "kafka_stopped": {**retrying(8), "group": {"kafka_conn_id": "kafka_failures", "kafka_timeout": 10}},
    "ledger_stopped": {**retrying(8), "pre_execute": use_own_ledger},
    "fails_for_good": {"poll_interval": 5},
    "skips": {"on_open_window": "skip"},
    "refuses": {"on_open_window": "fail"},
}

for name, operator in needed(ON_CONNECT).items():
    with DAG(name, schedule=None, max_active_runs=4) as dag:
        load_on_connect(name, **operator)
    globals()[name] = dag

with DAG("siblings", schedule=None):
    load_on_connect("siblings", **retrying(20))
    PythonOperator(task_id="sibling", python_callable=lambda: None)

with DAG("own_job", schedule=None):
    load(
        "own_job",
        job="own_job.py",
        application_args=[
            "{{ conn.kafka_default.extra_dejson['bootstrap.servers'] }}",
            "{assign}",
            "{starting_offsets}",
            "{ending_offsets}",
            "{window_id}",
            str(LAB / "lake" / "own_job"),
        ],
    )


def consume(window: dict) -> int:
    """Stand for a foreign launcher: reads the window from the plan task's XCom, without Spark."""
    from tests.acceptance.foreign import consume_to_parquet

    return consume_to_parquet(window, LAB / "lake" / "around")


with DAG("around", schedule=None):
    plan = PlanWindowOperator(task_id="plan", group=KafkaGroup("around", topics=["around"]))
    run = PythonOperator(task_id="run", python_callable=consume, op_args=[plan.output])
    plan >> run >> CommitWindowOperator(task_id="commit", window=plan.output)

# Around a launcher that knows nothing of us, whose job tells of what it read in a folder.
with DAG("reported", schedule=None):
    plan = PlanWindowOperator(
        task_id="plan",
        group=KafkaGroup("reported", topics=["reported"], kafka_timeout=60),
        exchange=f"file://{LAB}/exchange",
    )
    run = SparkSubmitOperator(
        task_id="run",
        application=str(Path(__file__).parent / "jobs" / "reported.py"),
        application_args=[
            "{{ ti.xcom_pull('plan')['exchange'] }}",
            str(LAB / "lake" / "reported"),
            str(LAB / "hold" / "reported.silent"),
        ],
        driver_memory="512m",
        jars=os.environ["CONNECTOR_JARS"],
        # As our operators start theirs: otherwise, this driver takes twice the time of a processor.
        conf=json.loads(os.environ["SPARK_ON_CLUSTERS"]),
    )
    plan >> run >> CommitWindowOperator(task_id="commit", window=plan.output)

# Drivers of a cluster, which go on without the worker that launched them.
ON_CLUSTER = {
    "on_cluster": {},
    "cleared_on_cluster": {},
    "slow_on_cluster": {"execution_timeout": timedelta(seconds=180)},
}
if KEEPS_TASK_STATE:
    ON_CLUSTER |= {
        "deferred": {"deferrable": True},
        "deferred_and_stopped": {"deferrable": True},
        "deferred_and_slow": {"deferrable": True, "execution_timeout": timedelta(seconds=60)},
    }

for name, values in needed(ON_CLUSTER).items():
    with DAG(name, schedule=None) as dag:
        KafkaSparkSubmitOperator(
            task_id="load",
            group=KafkaGroup(name, topics=[name], kafka_timeout=60),
            conn_id="spark_cluster",
            application=f"local:{Path(__file__).parents[2] / 'launchers' / 'jobs' / 'light.py'}",
            application_args=[
                *(str(LAB / "lake" / f"{name}.ran"), str(LAB / "hold" / name)),
                *("{window_id}", "{starting_offsets}", "{ending_offsets}"),
            ],
            ship=False,
            connector=None,
            driver_memory="512m",
            conf=json.loads(os.environ["SPARK_ON_CLUSTERS"]),
            poll_interval=5,
            **values,
            **retrying(retries=5),
        )
    globals()[name] = dag
