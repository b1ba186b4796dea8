"""The Trigger dialog of this DAG has a form for replays: windows by name, a time span, or offset ranges, run again.

Nothing filled in is an ordinary run. A replay runs beside the live ones: they work on other windows.
"""

from airflow.sdk import DAG

from airflow_kafka_offsets import KafkaGroup, KafkaSparkSubmitOperator, replay_params

orders = KafkaGroup("example.orders_replayable", topics=["orders"], max_offsets=5_000_000)

with DAG(
    "example_orders_replayable",
    schedule="@hourly",
    catchup=False,
    params=replay_params(),
    default_args={"retries": 2},  # a retry goes on with the window at which the try before it stopped
) as dag:
    KafkaSparkSubmitOperator(
        task_id="load",
        group=orders,
        application="jobs/orders.py",
        application_args=["{{ var.value.get('orders_replayable_lake', '/tmp/lake/orders_replayable') }}"],
        conn_id="spark_default",
    )
