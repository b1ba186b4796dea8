"""A backlog drained by several Spark jobs side by side: up to eight windows are cut at once, three are worked on.

The watermark follows as far as all windows before it are committed. One that fails holds it, and is retried alone.
"""

from airflow.sdk import DAG

from airflow_kafka_offsets import KafkaGroup, KafkaSparkSubmitOperator, PlanBacklogOperator, replay_params

orders = KafkaGroup("example.orders_backlog", topics=["orders"], max_offsets=1_000_000, max_open_windows=8)

with DAG(
    "example_orders_backlog", schedule="@hourly", catchup=False, params=replay_params(), default_args={"retries": 2}
) as dag:
    plan = PlanBacklogOperator(task_id="plan", group=orders)
    KafkaSparkSubmitOperator.partial(
        task_id="load",
        group=orders,
        application="jobs/orders.py",
        application_args=["{{ var.value.get('orders_backlog_lake', '/tmp/lake/orders_backlog') }}"],
        conn_id="spark_default",
        max_active_tis_per_dagrun=3,
    ).expand(window=plan.output)
