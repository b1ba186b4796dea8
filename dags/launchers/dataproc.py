"""A window read by a PySpark job on a Dataproc cluster. The job reports what it read; then the window is committed."""

from airflow.providers.google.cloud.operators.dataproc import DataprocSubmitJobOperator
from airflow.sdk import DAG

from airflow_kafka_offsets import CommitWindowOperator, KafkaGroup, PlanWindowOperator

# The cluster's initialization action writes the file from Secret Manager to every node.
LOGIN = {
    "kafka.config.providers": "file",
    "kafka.config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    "kafka.sasl.jaas.config": "${file:/etc/kafka/client.properties:jaas}",
}
JOBS = "gs://example-lake/jobs"
# Another one for each try: Dataproc answers a known id with the old job, also if that has failed.
TOKEN = "{{ ti.xcom_pull('plan')['handoff'] }}-{{ ti.try_number }}"
ORDERS = KafkaGroup("example.orders_dataproc", topics=["orders"], spark_options=LOGIN)

with DAG("example_orders_dataproc", schedule="@hourly", catchup=False, default_args={"retries": 2}):
    plan = PlanWindowOperator(
        task_id="plan",
        group=ORDERS,
        exchange="gs://example-lake/kafka-offsets",
        exchange_conn_id="google_cloud_default",
    )
    load = DataprocSubmitJobOperator(
        task_id="load",
        project_id="example",
        region="europe-west1",
        request_id=TOKEN,
        job={
            "placement": {"cluster_name": "example"},
            # At most 100 letters, digits, _ and -. A second job of this id is refused.
            "reference": {"job_id": f"orders-{TOKEN}"},
            "pyspark_job": {
                "main_python_file_uri": f"{JOBS}/orders.py",
                "python_file_uris": [f"{JOBS}/airflow_kafka_offsets_spark.zip"],
                "args": ["{{ ti.xcom_pull('plan')['exchange'] }}", "lake.default.orders"],
                "properties": {
                    "spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.3",
                    "spark.yarn.maxAppAttempts": "1",
                    "spark.yarn.tags": "{{ ti.xcom_pull('plan')['window_id'] }}",
                },
            },
        },
    )
    plan >> load >> CommitWindowOperator(task_id="commit", window=plan.output)
