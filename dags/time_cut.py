"""A window for each hour of the records' own time: it ends at the first record of the next hour, by Kafka's timestamp index.

After a pause, catchup gives one window per hour. Records that come late belong to the next window; none is skipped. A report runs for each hour
that is complete.
"""

from datetime import UTC, datetime, timedelta

import airflow.sdk
from airflow.sdk import DAG, Asset, task
from airflow.timetables.interval import CronDataIntervalTimetable

from airflow_kafka_offsets import KafkaGroup, KafkaSparkSubmitOperator

lake = Asset("example_orders_by_hour_lake")
orders = KafkaGroup(
    "example.orders_by_hour",
    topics=["orders"],
    until="data_interval_end",
    grace=timedelta(minutes=5),
    starting_offsets=datetime(2026, 11, 1, tzinfo=UTC),
)

with DAG(
    "example_orders_by_hour",
    # "@hourly" alone would make intervals that start and end at the same moment, which a later `airflow backfill` could not divide.
    schedule=CronDataIntervalTimetable("@hourly", timezone="UTC"),
    start_date=datetime(2026, 11, 1, tzinfo=UTC),
    catchup=True,
    max_active_runs=1,  # the hours one after the other
    default_args={"retries": 2},
) as dag:
    KafkaSparkSubmitOperator(
        task_id="load",
        group=orders,
        application="jobs/orders.py",
        application_args=["{{ var.value.get('orders_by_hour_lake', '/tmp/lake/orders_by_hour') }}"],
        conn_id="spark_default",
        outlets=[lake],
        emit_empty=True,  # so that an hour without an order is reported, too
    )

if hasattr(airflow.sdk, "PartitionedAssetTimetable"):  # from version 3.2 on; it runs from 3.3 on
    by_hour = airflow.sdk.PartitionedAssetTimetable(assets=lake)

    with DAG("example_orders_by_hour_report", schedule=by_hour) as report:

        @task
        def tell(dag_run=None) -> str:
            """Say which hour is complete."""
            return dag_run.partition_key

        tell()
