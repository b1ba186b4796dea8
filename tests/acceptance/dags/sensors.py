"""The DAGs that wait: each has its own group and topic, named after the DAG."""

from datetime import timedelta

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, Asset, AssetWatcher

from airflow_kafka_offsets import (
    CommitWindowOperator,
    KafkaGroup,
    KafkaLagSensor,
    KafkaOffsetsTrigger,
    KafkaTimeSensor,
    KafkaUnreadSensor,
    KafkaVerdictSensor,
    PlanWindowOperator,
    WindowCommittedSensor,
)
from tests.acceptance.needed import needed

SOON = {"poke_interval": 5, "timeout": 300}
LATE = {"poke_interval": 5, "timeout": 7}


def group(name: str, **options) -> KafkaGroup:
    return KafkaGroup(name, topics=[name], **{"kafka_timeout": 60, **options})


def around(name: str) -> None:
    plan = PlanWindowOperator(task_id="plan", group=group(name))
    work = PythonOperator(task_id="work", python_callable=lambda window: window["window_id"], op_args=[plan.output])
    plan >> work >> CommitWindowOperator(task_id="commit", window=plan.output)


WAITING = {
    "wait_span": lambda g: KafkaUnreadSensor(task_id="wait", group=g, min_span=50, **SOON),
    "wait_age": lambda g: KafkaUnreadSensor(task_id="wait", group=g, max_age=timedelta(seconds=1), **SOON),
    "wait_time": lambda g: KafkaTimeSensor(task_id="wait", group=g, until="{{ data_interval_end }}", **SOON),
    "wait_lag": lambda g: KafkaLagSensor(task_id="wait", group=g, max_lag=0, **SOON),
    "wait_verdict": lambda g: KafkaVerdictSensor(task_id="wait", group=g, **SOON),
    "wait_gone": lambda g: KafkaUnreadSensor(task_id="wait", group=g, min_span=50, **SOON),
    "wait_late": lambda g: KafkaUnreadSensor(task_id="wait", group=g, min_span=50, **LATE),
    "wait_soft": lambda g: KafkaUnreadSensor(task_id="wait", group=g, min_span=50, soft_fail=True, **LATE),
    "wait_there": lambda g: KafkaUnreadSensor(task_id="wait", group=g, min_span=1, **SOON),
    "wait_nowhere": lambda g: KafkaUnreadSensor(task_id="wait", group=g, min_span=1, **SOON),
}

for name, make in needed(WAITING).items():
    with DAG(name, schedule=None) as dag:
        make(group(name))
    globals()[name] = dag

with DAG("wait_flaky", schedule=None):
    flaky = group("wait_flaky", kafka_conn_id="kafka_sensors", kafka_timeout=10)
    KafkaUnreadSensor(task_id="wait", group=flaky, min_span=50, **SOON)

with DAG("wait_upstream", schedule=None):
    around("wait_upstream")

with DAG("wait_downstream", schedule=None):
    WindowCommittedSensor(task_id="wait", group="wait_upstream", until="{{ data_interval_end }}", **SOON)

arrived = KafkaOffsetsTrigger(group=group("arrivals"), min_span=80, poll_interval=5)

with DAG("arrivals", schedule=[Asset("arrivals", watchers=[AssetWatcher(name="arrivals", trigger=arrived)])]):
    around("arrivals")
