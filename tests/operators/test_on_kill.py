"""Why a task is stopped decides what becomes of its Spark driver."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from airflow_kafka_offsets import KafkaGroup, KafkaSparkSubmitOperator
from airflow_kafka_offsets.core.window import Claim
from airflow_kafka_offsets.operators import spark_submit


class Hook:
    """Stands for the hook of a job that runs: no cluster is needed to see who is killed."""

    def __init__(self, deploy_mode: str | None) -> None:
        self._connection = {"deploy_mode": deploy_mode, "master": "spark://m:7077"}
        self._is_yarn_cluster_mode = self._is_kubernetes = False
        self.kills = 0

    def on_kill(self) -> None:
        self.kills += 1


def operator_with(hook: Hook | None) -> KafkaSparkSubmitOperator:
    operator = KafkaSparkSubmitOperator(task_id="load", group=KafkaGroup("g", topics=["t"]), application="job.py")
    operator._hook = hook
    operator._claim = Claim("d", "r", "load")
    return operator


@pytest.mark.parametrize(
    ("deploy_mode", "state", "kills"),
    [
        ("cluster", "running", 0),  # only the worker dies: the retry reconnects
        ("cluster", "failed", 1),
        ("cluster", "success", 1),
        ("cluster", "restarting", 1),
        ("client", "running", 1),  # the driver runs on the worker: nobody could reconnect
        (None, "failed", 1),
    ],
)
def test_a_person_stops_the_job_and_a_dying_worker_leaves_it(
    monkeypatch: pytest.MonkeyPatch, deploy_mode: str | None, state: str, kills: int
) -> None:
    monkeypatch.setattr(spark_submit, "task_state", lambda _: state)
    hook = Hook(deploy_mode)
    operator = operator_with(hook)
    operator.on_kill()
    assert hook.kills == kills
    assert operator._was_killed, "execute goes on after on_kill, and must not commit"


def test_a_task_that_is_stopped_before_its_job_has_nothing_to_kill() -> None:
    operator = operator_with(None)
    operator.on_kill()
    assert operator._was_killed


def test_a_clear_of_this_task_is_told_from_a_retry_by_max_tries() -> None:
    operator = operator_with(None)
    keys = {operator.job_key(SimpleNamespace(id="g-000001"), tries) for tries in (1, 1, 3)}
    assert keys == {"g-000001:1", "g-000001:3"}
