"""Orders from Kafka to Parquet, a window each hour: the ordinary case."""

from airflow.sdk import DAG

from airflow_kafka_offsets import KafkaGroup, KafkaSparkSubmitOperator

orders = KafkaGroup("example.orders", topics=["orders"], kafka_conn_id="kafka_default", max_offsets=5_000_000)

with DAG("example_orders", schedule="@hourly", catchup=False, default_args={"retries": 2}) as dag:
    KafkaSparkSubmitOperator(
        task_id="load",
        group=orders,
        application="jobs/orders.py",
        application_args=["{{ var.value.get('orders_lake', '/tmp/lake/orders') }}"],
        conn_id="spark_default",
    )
