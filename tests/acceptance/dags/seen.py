"""Tasks whose lineage is sent: OpenLineage is switched on for these DAGs only."""

import os
from datetime import timedelta
from pathlib import Path

from airflow.providers.openlineage.utils.selective_enable import enable_lineage
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, Asset, task

from airflow_kafka_offsets import (
    CommitWindowOperator,
    KafkaGroup,
    KafkaSparkSubmitOperator,
    PlanWindowOperator,
    replay_params,
)
from tests.acceptance import functions
from tests.acceptance.foreign import consume_to_parquet
from tests.lab.tables import FEW_RECORDS

LAB = Path(os.environ["LAB"])


def group_of(name: str) -> KafkaGroup:
    return KafkaGroup(name, topics=[name], kafka_timeout=60)


def lake_of(name: str) -> Asset:
    return Asset(f"file://{LAB}/lake/{name}")


with DAG("seen_submit", schedule=None, params=replay_params()) as dag:
    KafkaSparkSubmitOperator(
        task_id="load",
        group=group_of("seen_submit"),
        application="jobs/tell_conf.py",
        application_args=[str(LAB / "lake" / "seen_submit"), str(LAB / "hold" / "seen_submit")],
        driver_memory="512m",
        jars=os.environ["CONNECTOR_JARS"],
        conf={"spark.ui.enabled": "false", **FEW_RECORDS},
        openlineage_inject_parent_job_info=True,
        outlets=[lake_of("seen_submit")],
        retries=1,
        retry_delay=timedelta(seconds=1),
    )
enable_lineage(dag)

with DAG("seen_taskflow", schedule=None) as dag:
    decorate = task.kafka_spark(
        group=group_of("seen_taskflow"), conn_id="spark_connect", outlets=[lake_of("seen_taskflow")]
    )
    decorate(functions.load)(name="seen_taskflow")
enable_lineage(dag)

with DAG("seen_around", schedule=None) as dag:
    plan = PlanWindowOperator(task_id="plan", group=group_of("seen_around"))
    run = PythonOperator(
        task_id="run", python_callable=consume_to_parquet, op_args=[plan.output, LAB / "lake" / "seen_around"]
    )
    plan >> run >> CommitWindowOperator(task_id="commit", window=plan.output, outlets=[lake_of("seen_around")])
enable_lineage(dag)
