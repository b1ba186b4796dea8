"""A chain without any clock: orders arrive in Kafka, a window of them is loaded, and a report follows the lake."""

from datetime import timedelta

from airflow.sdk import DAG, Asset, AssetWatcher, task

from airflow_kafka_offsets import KafkaGroup, KafkaOffsetsTrigger, KafkaSparkSubmitOperator

orders = KafkaGroup("example.orders_on_arrival", topics=["orders"], kafka_conn_id="kafka_default")

arrival = KafkaOffsetsTrigger(group=orders, min_span=1_000_000, max_age=timedelta(minutes=30), poll_interval=30)
arrived = Asset("example_orders_arrived", watchers=[AssetWatcher(name="example_orders_arrived", trigger=arrival)])
lake = Asset("example_orders_on_arrival_lake")

with DAG("example_orders_on_arrival", schedule=[arrived], max_active_runs=1, default_args={"retries": 2}) as dag:
    KafkaSparkSubmitOperator(
        task_id="load",
        group=orders,
        application="jobs/orders.py",
        application_args=["{{ var.value.get('orders_on_arrival_lake', '/tmp/lake/orders_on_arrival') }}"],
        conn_id="spark_default",
        outlets=[lake],
    )

with DAG("example_orders_on_arrival_report", schedule=[lake]) as report:

    @task
    def tell(triggering_asset_events=None) -> list[str]:
        """Say which windows are new in the lake, or were run again."""
        return [window["window_id"] for event in triggering_asset_events[lake] for window in event.extra["windows"]]

    tell()
