"""Windows for PySpark functions: on a session of the task's own, and on a warm Spark Connect server.

Each DAG has its own group, topic and lake, all named after the DAG. The connection ``spark_connect`` is made by the test.
"""

import os
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, task

from airflow_kafka_offsets import KafkaGroup, KafkaSparkSqlOperator, PlanBacklogOperator, replay_params
from tests.acceptance.functions import load
from tests.acceptance.needed import needed

LAB = Path(os.environ["LAB"])
LOCAL = {
    "config_kwargs": {
        "spark.master": "local[1]",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.jars": os.environ["CONNECTOR_JARS"],
    }
}
CONNECT = {"conn_id": "spark_connect"}
RETRYING = {"retries": 1, "retry_delay": timedelta(seconds=1)}


def group_of(name: str, **settings) -> KafkaGroup:
    return KafkaGroup(name, topics=[name], kafka_timeout=60, **settings)


# The shape to copy: one line around an ordinary function.
SECRET = ("taskflow_local", "taskflow_secret_connect")
"""Those that read with a password. The first one shows the shape, too: it is a Spark of its own less."""

PLAIN = {
    "taskflow_local": LOCAL,
    "taskflow_connect": CONNECT,
    "taskflow_waits": CONNECT,
    "taskflow_marked_local": LOCAL,
    "taskflow_marked": CONNECT,
    "taskflow_secret_connect": CONNECT,
}

for name, operator in needed(PLAIN).items():
    kafka = {"kafka_conn_id": "kafka_secret"} if name in SECRET else {}
    with DAG(name, schedule=None, params=replay_params()) as dag:
        decorate = task.kafka_spark(group=group_of(name, **kafka), multiple_outputs=True, poll_interval=5, **operator)
        decorate(load)(name=name)
    globals()[name] = dag

with DAG("taskflow_raises", schedule=None):

    @task.kafka_spark(group=group_of("taskflow_raises"), **CONNECT, **RETRYING)
    def load_or_raise(spark, window, ti):
        """Fail when all is written, the first time."""
        load(spark, window, "taskflow_raises")
        if ti.try_number == 1:
            raise ValueError("not today")
        return window.id

    load_or_raise()

with DAG("taskflow_forgets", schedule=None):

    @task.kafka_spark(group=group_of("taskflow_forgets"), **CONNECT)
    def forget(spark, window):
        """Return without having read."""
        return spark.range(3).count()

    forget()

with DAG("taskflow_mapped", schedule=None):
    group = group_of("taskflow_mapped", max_offsets=100, max_open_windows=3)
    plan = PlanBacklogOperator(task_id="plan", group=group)
    mapped = task.kafka_spark(group=group, task_id="load", max_active_tis_per_dagrun=2, **CONNECT)(load)
    mapped.partial(name="taskflow_mapped").expand(window=plan.output)

with DAG("taskflow_sql", schedule=None, params={"lake": f"{LAB}/lake/taskflow_sql", "span": 400}):
    KafkaSparkSqlOperator(
        task_id="load",
        group=group_of("taskflow_sql"),
        sql="taskflow.sql",
        parameters={"span": "{{ params.span }}"},
        **CONNECT,
    )

with DAG("taskflow_token", schedule=None):
    # Both a server and a master: Spark refuses that, and its message has the server's address with all that is in it.
    wrong = {"conn_id": "spark_connect_token", "config_kwargs": {"spark.master": "local"}}
    task.kafka_spark(group=group_of("taskflow_token"), **wrong)(load)(name="taskflow_token")
