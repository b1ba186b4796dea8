"""A window read by a batch of Livy. The job reports what it read; then the window is committed."""

from airflow.providers.apache.livy.operators.livy import LivyOperator
from airflow.sdk import DAG

from airflow_kafka_offsets import CommitWindowOperator, KafkaGroup, PlanWindowOperator

# The file is on every node of the cluster.
LOGIN = {
    "kafka.config.providers": "file",
    "kafka.config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    "kafka.sasl.jaas.config": "${file:/etc/kafka/client.properties:jaas}",
}
JOBS = "hdfs:///jobs"
ORDERS = KafkaGroup("example.orders_livy", topics=["orders"], spark_options=LOGIN)

with DAG("example_orders_livy", schedule="@hourly", catchup=False, default_args={"retries": 2}):
    # Spark reads WebHDFS, too, and for Airflow it needs no Hadoop on the worker.
    plan = PlanWindowOperator(task_id="plan", group=ORDERS, exchange="webhdfs://namenode:9870/kafka-offsets")
    load = LivyOperator(
        task_id="load",
        file=f"{JOBS}/orders.py",
        py_files=[f"{JOBS}/airflow_kafka_offsets_spark.zip"],
        args=["{{ ti.xcom_pull('plan')['exchange'] }}", "lake.default.orders"],
        # Livy refuses a second batch of a name that it still knows. So each try has its own.
        name="{{ ti.xcom_pull('plan')['window_id'] }}-{{ ti.xcom_pull('plan')['handoff'] }}-{{ ti.try_number }}",
        conf={
            "spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.5",
            "spark.yarn.maxAppAttempts": "1",
            "spark.yarn.tags": "{{ ti.xcom_pull('plan')['window_id'] }}",
        },
        # Without it, the task succeeds as soon as Livy has accepted the batch.
        polling_interval=15,
        # Otherwise, from Airflow 3.3 on, a task that is cleared takes the result of its old batch, and starts none.
        durable=False,
    )
    plan >> load >> CommitWindowOperator(task_id="commit", window=plan.output)
