"""A window read by a step on an EMR cluster, and one read by EMR Serverless. Each job reports what it read; then its window is committed."""

from airflow.providers.amazon.aws.operators.emr import EmrAddStepsOperator, EmrServerlessStartJobOperator
from airflow.sdk import DAG

from airflow_kafka_offsets import CommitWindowOperator, KafkaGroup, PlanWindowOperator

EXCHANGE = {"exchange": "s3://example-lake/kafka-offsets", "exchange_conn_id": "aws_default"}

# No secret: the role of the cluster, or of the job, is the login.
LOGIN = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "AWS_MSK_IAM",
    "kafka.sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    "kafka.sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
}
JOBS = "s3://example-lake/jobs"
# Of Spark's own version, and MSK's library for the login.
PACKAGES = "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.5,software.amazon.msk:aws-msk-iam-auth:2.3.2"
TABLE = "lake.default.orders"

URI = "{{ ti.xcom_pull('plan')['exchange'] }}"
NAME = "{{ ti.xcom_pull('plan')['window_id'] }}"

ON_CLUSTER = KafkaGroup("example.orders_emr", topics=["orders"], spark_options=LOGIN)
SERVERLESS = KafkaGroup("example.orders_emr_serverless", topics=["orders"], spark_options=LOGIN)

with DAG("example_orders_emr", schedule="@hourly", catchup=False, default_args={"retries": 2}):
    plan = PlanWindowOperator(task_id="plan", group=ON_CLUSTER, **EXCHANGE)
    submit = ["spark-submit", "--deploy-mode", "cluster", "--packages", PACKAGES]
    submit += ["--py-files", f"{JOBS}/airflow_kafka_offsets_spark.zip"]
    # YARN itself runs no second driver: the retry of this task is the only one.
    submit += ["--conf", "spark.yarn.maxAppAttempts=1", "--conf", f"spark.yarn.tags={NAME}"]
    step = {
        "Name": NAME,
        "ActionOnFailure": "CONTINUE",
        "HadoopJarStep": {"Jar": "command-runner.jar", "Args": [*submit, f"{JOBS}/orders.py", URI, TABLE]},
    }
    load = EmrAddStepsOperator(
        task_id="load",
        job_flow_id="{{ var.value.get('orders_emr_cluster', 'j-EXAMPLE') }}",
        steps=[step],
        # Without it, the task succeeds as soon as the step is queued. Without the others, it gives up after half an hour.
        wait_for_completion=True,
        waiter_delay=30,
        waiter_max_attempts=480,
    )
    plan >> load >> CommitWindowOperator(task_id="commit", window=plan.output)

with DAG("example_orders_emr_serverless", schedule="@hourly", catchup=False, default_args={"retries": 2}):
    plan = PlanWindowOperator(task_id="plan", group=SERVERLESS, **EXCHANGE)
    load = EmrServerlessStartJobOperator(
        task_id="load",
        name=NAME,
        application_id="{{ var.value.get('orders_emr_application', 'example') }}",
        execution_role_arn="{{ var.value.get('orders_emr_role', 'arn:aws:iam::123456789012:role/example') }}",
        job_driver={
            "sparkSubmit": {
                "entryPoint": f"{JOBS}/orders.py",
                "entryPointArguments": [URI, TABLE],
                "sparkSubmitParameters": f"--py-files {JOBS}/airflow_kafka_offsets_spark.zip --packages {PACKAGES}",
            }
        },
        # Without these, the job is cancelled after 25 minutes.
        waiter_delay=30,
        waiter_max_attempts=480,
    )
    plan >> load >> CommitWindowOperator(task_id="commit", window=plan.output)
