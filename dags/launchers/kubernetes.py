"""A window read by a SparkApplication of Kubernetes' Spark operator. The job reports what it read; then the window is committed."""

from airflow.providers.cncf.kubernetes.operators.spark_kubernetes import SparkKubernetesOperator
from airflow.sdk import DAG

from airflow_kafka_offsets import CommitWindowOperator, KafkaGroup, PlanWindowOperator

# Kubernetes mounts the secret `kafka` as a folder with a file `jaas`.
LOGIN = {
    "kafka.config.providers": "folder",
    "kafka.config.providers.folder.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
    "kafka.sasl.jaas.config": "${folder:/etc/kafka:jaas}",
}
SECRET = {"name": "kafka", "path": "/etc/kafka", "secretType": "Generic"}
ORDERS = KafkaGroup("example.orders_kubernetes", topics=["orders"], spark_options=LOGIN)

APPLICATION = {
    "apiVersion": "sparkoperator.k8s.io/v1beta2",
    "kind": "SparkApplication",
    "spec": {
        "type": "Python",
        "pythonVersion": "3",
        "mode": "cluster",
        # With Spark's Kafka connector in its jars, and the job side beside the job: no pod needs the network for them.
        "image": "registry.example.com/orders:1",
        "sparkVersion": "4.0.0",
        "mainApplicationFile": "local:///opt/jobs/orders.py",
        "deps": {"pyFiles": ["local:///opt/jobs/airflow_kafka_offsets_spark.zip"]},
        "arguments": ["{{ ti.xcom_pull('plan')['exchange'] }}", "lake.default.orders"],
        # Airflow's retry is the only one.
        "restartPolicy": {"type": "Never"},
        "driver": {"cores": 1, "memory": "2g", "serviceAccount": "spark", "secrets": [SECRET]},
        "executor": {"instances": 4, "cores": 2, "memory": "4g", "secrets": [SECRET]},
    },
}

with DAG("example_orders_kubernetes", schedule="@hourly", catchup=False, default_args={"retries": 2}):
    plan = PlanWindowOperator(
        task_id="plan", group=ORDERS, exchange="s3a://example-lake/kafka-offsets", exchange_conn_id="aws_default"
    )
    load = SparkKubernetesOperator(
        task_id="load",
        namespace="etl",
        # The operator adds a suffix of its own, so that the names of two tries differ.
        name="orders",
        template_spec=APPLICATION,
        get_logs=True,
        # A retry looks for the driver of the try before, and continues with it.
        reattach_on_restart=True,
    )
    plan >> load >> CommitWindowOperator(task_id="commit", window=plan.output)
