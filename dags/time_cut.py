"""A window for each hour of the records' own time: it ends at the first record of the next hour, by Kafka's timestamp index.

After a pause, catchup gives one window per hour. Records that come late belong to the next window; none is skipped.
"""

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG
from airflow.timetables.interval import CronDataIntervalTimetable

from airflow_kafka_offsets import KafkaGroup, KafkaSparkSubmitOperator

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
    )
