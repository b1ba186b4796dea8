"""A window read by a Databricks notebook, and one read by a job in a wheel. Each reports what it read; then its window is committed."""

from airflow.providers.databricks.operators.databricks import DatabricksSubmitRunOperator
from airflow.sdk import DAG

from airflow_kafka_offsets import CommitWindowOperator, KafkaGroup, PlanWindowOperator

# A bucket that the workers and the clusters reach, in Databricks as an external location.
EXCHANGE = {"exchange": "s3://example-lake/kafka-offsets", "exchange_conn_id": "aws_default"}

# The password stays in Databricks. The cluster's environment has it, and Kafka's client looks it up there.
LOGIN = {
    "kafka.config.providers": "env",
    "kafka.config.providers.env.class": "kafkashaded.org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    "kafka.sasl.jaas.config": "kafkashaded.org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="etl" password="${env:KAFKA_PASSWORD}";',
}
CLUSTER = {
    # With Spark 4.0. The Kafka client of Spark 3.5, which runtimes before 17 have, knows no EnvVarConfigProvider.
    "spark_version": "17.3.x-scala2.13",
    "node_type_id": "i3.xlarge",
    "num_workers": 4,
    "data_security_mode": "SINGLE_USER",
    # In quotes: Airflow, too, fills in what stands between such braces.
    "spark_env_vars": {"KAFKA_PASSWORD": "{{ '{{secrets/kafka/password}}' }}"},
}

URI = "{{ ti.xcom_pull('plan')['exchange'] }}"
NAME = "{{ ti.xcom_pull('plan')['window_id'] }}"
# And durable=False below: from Airflow 3.3 on, a task that is cleared would take the result of its old run, and start none.
# Another one for each try: Databricks answers a known token with the old run, also if that has failed.
TOKEN = "{{ ti.xcom_pull('plan')['handoff'] }}-{{ ti.try_number }}"

ON_NOTEBOOK = KafkaGroup("example.orders_notebook", topics=["orders"], spark_options=LOGIN)
IN_WHEEL = KafkaGroup("example.orders_wheel", topics=["orders"], spark_options=LOGIN)

with DAG("example_orders_databricks_notebook", schedule="@hourly", catchup=False, default_args={"retries": 2}):
    plan = PlanWindowOperator(task_id="plan", group=ON_NOTEBOOK, **EXCHANGE)
    notebook = {
        "notebook_path": "/Shared/orders_notebook",
        "base_parameters": {"exchange": URI, "table": "main.default.orders"},
    }
    load = DatabricksSubmitRunOperator(
        task_id="load",
        run_name=NAME,
        tasks=[{"task_key": "load", "new_cluster": CLUSTER, "notebook_task": notebook}],
        idempotency_token=TOKEN,
        durable=False,
    )
    plan >> load >> CommitWindowOperator(task_id="commit", window=plan.output)

with DAG("example_orders_databricks_wheel", schedule="@hourly", catchup=False, default_args={"retries": 2}):
    plan = PlanWindowOperator(task_id="plan", group=IN_WHEEL, **EXCHANGE)
    # A wheel of your own: to_delta() of jobs/orders.py in this folder as the entry point, and the job side of this package.
    wheel = {
        "package_name": "orders_jobs",
        "entry_point": "orders",
        "parameters": [URI, "main.default.orders_by_wheel"],
    }
    libraries = [{"whl": "/Volumes/main/default/jobs/orders_jobs-1.0-py3-none-any.whl"}]
    load = DatabricksSubmitRunOperator(
        task_id="load",
        run_name=NAME,
        tasks=[{"task_key": "load", "new_cluster": CLUSTER, "python_wheel_task": wheel, "libraries": libraries}],
        idempotency_token=TOKEN,
        durable=False,
    )
    plan >> load >> CommitWindowOperator(task_id="commit", window=plan.output)
