"""The DAG of `make demo`: a window of the topic `orders` every half minute."""

import os
from datetime import timedelta

from airflow.sdk import DAG
from airflow.timetables.trigger import DeltaTriggerTimetable

from airflow_kafka_offsets import KafkaGroup, KafkaSparkSubmitOperator, replay_params

with DAG(
    "demo_orders",
    schedule=DeltaTriggerTimetable(timedelta(seconds=30)),
    catchup=False,
    max_active_runs=2,  # a replay goes beside the schedule
    params=replay_params(),
    default_args={"retries": 2, "retry_delay": timedelta(seconds=2)},
) as dag:
    KafkaSparkSubmitOperator(
        task_id="load",
        group=KafkaGroup("demo.orders", topics=["orders"], max_offsets=500_000),
        application="jobs/orders.py",
        application_args=[os.environ.get("DEMO_LAKE", "/tmp/demo-lake")],
        conn_id="spark_default",
    )
