"""Groups whose watermark is published. As in windows.py, group, topic and lake have the DAG's name."""

import os
from datetime import timedelta
from pathlib import Path

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, task

from airflow_kafka_offsets import CommitWindowOperator, KafkaGroup, KafkaSparkSubmitOperator, PlanWindowOperator
from airflow_kafka_offsets.task import plan as planning
from tests.acceptance import functions
from tests.lab.tables import FEW_RECORDS

# A store that is down for longer than this fails the task: the tests have no minute to wait.
planning.PATIENCE = 4.0

LAB = Path(os.environ["LAB"])
JOBS = Path(__file__).parent / "jobs"


def consume(window: dict) -> int:
    """Stand for a foreign launcher: reads the window without Spark."""
    from tests.acceptance.foreign import consume_to_parquet

    return consume_to_parquet(window, LAB / "lake" / window["group"])


with DAG("published", schedule=None):
    plan = PlanWindowOperator(
        task_id="plan", group=KafkaGroup("published", topics=["published"], offset_store="kafka://", max_offsets=300)
    )
    run = PythonOperator(task_id="run", python_callable=consume, op_args=[plan.output])
    plan >> run >> CommitWindowOperator(task_id="commit", window=plan.output)


with DAG("store_down", schedule=None):
    KafkaSparkSubmitOperator(
        task_id="load",
        group=KafkaGroup("store_down", topics=["store_down"], offset_store="redis://redis_lab?timeout=1"),
        application=str(JOBS / "to_parquet.py"),
        application_args=[str(LAB / "lake" / "store_down"), str(LAB / "hold" / "store_down")],
        driver_memory="512m",
        jars=os.environ["CONNECTOR_JARS"],
        conf={"spark.ui.enabled": "false", **FEW_RECORDS},
        retries=3,
        retry_delay=timedelta(seconds=5),
    )

with DAG("was_a_stream", schedule=None):
    read_on = task.kafka_spark(group=KafkaGroup("was_a_stream", topics=["was_a_stream"]), conn_id="spark_connect")
    read_on(functions.load)(name="was_a_stream")
