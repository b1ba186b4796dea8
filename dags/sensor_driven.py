"""Orders to Parquet when a load is worth it: enough has arrived, or the oldest order has waited for an hour.

While nothing is worth it, the run waits in the triggerer and costs no worker; after two hours it is skipped.
"""

from datetime import timedelta

from airflow.sdk import DAG

from airflow_kafka_offsets import KafkaGroup, KafkaSparkSubmitOperator, KafkaUnreadSensor

orders = KafkaGroup("example.orders_by_size", topics=["orders"], kafka_conn_id="kafka_default")

with DAG(
    "example_orders_by_size", schedule="*/15 * * * *", catchup=False, max_active_runs=1, default_args={"retries": 2}
) as dag:
    enough = KafkaUnreadSensor(
        task_id="enough",
        group=orders,
        min_span=1_000_000,
        max_age=timedelta(hours=1),
        poke_interval=30,
        timeout=timedelta(hours=2),
        soft_fail=True,
    )
    load = KafkaSparkSubmitOperator(
        task_id="load",
        group=orders,
        application="jobs/orders.py",
        application_args=["{{ var.value.get('orders_by_size_lake', '/tmp/lake/orders_by_size') }}"],
        conn_id="spark_default",
    )
    enough >> load
