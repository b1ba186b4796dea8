"""Why a task is stopped decides what becomes of its Spark driver."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_kafka_offsets import KafkaGroup, KafkaSparkOperator, KafkaSparkSubmitOperator
from airflow_kafka_offsets.airflow_versions import AirflowTaskTimeout
from airflow_kafka_offsets.core.errors import KafkaOffsetsError
from airflow_kafka_offsets.core.launch.jobs import Job, JobName, JobState
from airflow_kafka_offsets.core.tries import Try
from airflow_kafka_offsets.core.window import Claim
from airflow_kafka_offsets.launch.submit_hook import SubmitHook
from airflow_kafka_offsets.task.airflow import Task
from airflow_kafka_offsets.wiring import runs
from tests.launch.test_job_files import window_of
from tests.task.airflow import context_of
from tests.versions import needs_task_state


class Hook(SubmitHook):
    """Stands for the hook of a job that runs: no cluster is needed to see who is killed."""

    def __init__(self, deploy_mode: str | None, *, is_tracked: bool = True, on_kubernetes: bool = False) -> None:
        self._connection = {"deploy_mode": deploy_mode, "master": "k8s://a" if on_kubernetes else "spark://m:7077"}
        self._is_yarn_cluster_mode = self._is_yarn = self._yarn_track_via_rm_api = False
        self._is_kubernetes, self._track_driver_via_k8s_api = on_kubernetes, is_tracked
        self._should_track_driver_status = deploy_mode == "cluster" and is_tracked and not on_kubernetes
        self._submit_sp: Any = None
        self._driver_id: str | None = None
        self.kills = 0

    def on_kill(self) -> None:
        self.kills += 1


def operator_with(hook: Hook | None) -> KafkaSparkSubmitOperator:
    operator = KafkaSparkSubmitOperator(task_id="load", group=KafkaGroup("g", topics=["t"]), application="job.py")
    operator._hook = hook
    operator._claim = Claim("d", "r", "load")
    operator._has_retry = True
    return operator


@pytest.mark.parametrize("on_kubernetes", [False, True])
@pytest.mark.parametrize(
    ("deploy_mode", "state", "kills"),
    [
        pytest.param("cluster", "running", 0, marks=needs_task_state),  # only the worker dies: the retry reconnects
        ("cluster", "failed", 1),
        ("cluster", "success", 1),
        ("cluster", "restarting", 1),
        ("client", "running", 1),  # the driver runs on the worker: no one could reconnect
        (None, "failed", 1),
    ],
)
def test_a_person_stops_the_job_and_a_dying_worker_leaves_it(
    monkeypatch: pytest.MonkeyPatch, deploy_mode: str | None, state: str, kills: int, on_kubernetes: bool
) -> None:
    monkeypatch.setattr(runs, "task_state", lambda _: state)
    hook = Hook(deploy_mode, on_kubernetes=on_kubernetes)
    operator = operator_with(hook)
    operator.on_kill()
    assert hook.kills == kills
    assert operator._stop.is_set == bool(kills), "execute goes on after on_kill, and must not commit a killed job"


@pytest.mark.parametrize("on_kubernetes", [False, True])
def test_a_driver_that_no_retry_could_find_again_is_stopped_with_its_worker(
    monkeypatch: pytest.MonkeyPatch, on_kubernetes: bool
) -> None:
    monkeypatch.setattr(runs, "task_state", lambda _: "running")
    untracked = Hook("cluster", is_tracked=False, on_kubernetes=on_kubernetes)
    operator_with(untracked).on_kill()
    assert untracked.kills == 1
    hook = Hook("cluster", on_kubernetes=on_kubernetes)
    operator = operator_with(hook)
    operator.durable = False
    operator.on_kill()
    assert hook.kills == 1


@pytest.mark.parametrize("on_kubernetes", [False, True])
def test_the_last_try_leaves_no_driver_behind_for_which_nobody_would_come(
    monkeypatch: pytest.MonkeyPatch, on_kubernetes: bool
) -> None:
    monkeypatch.setattr(runs, "task_state", lambda _: "running")
    hook = Hook("cluster", on_kubernetes=on_kubernetes)
    operator = operator_with(hook)
    operator._has_retry = False
    operator.on_kill()
    assert hook.kills == 1


def test_a_time_out_stops_the_job_although_the_task_still_counts_as_running(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "task_state", lambda _: "running")
    hook = Hook("cluster")
    operator = operator_with(hook)
    try:
        raise AirflowTaskTimeout
    except AirflowTaskTimeout:
        operator.on_kill()
    assert hook.kills == 1


@pytest.mark.parametrize("step", ["_settle", "execute"])
def test_a_time_out_stops_the_job_before_the_launch_forgets_it(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    monkeypatch.setattr(runs, "task_state", lambda _: "running")
    hook, operator, stopped = Hook("cluster"), operator_with(None), []

    def timed_out(*_: Any, **__: Any) -> None:
        operator._hook = hook
        raise AirflowTaskTimeout

    monkeypatch.setattr(operator, "_prepare", lambda *_: None)
    monkeypatch.setattr(operator, "new_hook", lambda: hook)
    monkeypatch.setattr(operator, "_settle", lambda *_, **__: None)
    monkeypatch.setattr(operator if step == "_settle" else SparkSubmitOperator, step, timed_out)
    alive = Job("driver-1", JobState.ALIVE, None)
    monkeypatch.setattr(
        operator,
        "_cluster",
        lambda _: SimpleNamespace(
            jobs=lambda name: [dataclasses.replace(alive, job=name.job)], stop=stopped.append, knows=bool
        ),
    )
    assert operator._claim is not None
    task = Task(operator, context_of(operator._claim, Try(1, 1)))
    begun: Any = SimpleNamespace(id=1, claim=operator._claim, try_number=1, series="1")
    ledger = SimpleNamespace(
        window=lambda _: SimpleNamespace(planned_at=datetime(2026, 1, 1, tzinfo=UTC), attempts=2),
        attempts=lambda _: [begun],
    )
    service: Any = SimpleNamespace(ledger=ledger)
    planned: Any = SimpleNamespace(window=window_of(1))
    with pytest.raises(AirflowTaskTimeout):
        operator._launch(task, planned, None, service)  # type: ignore[arg-type]
    assert stopped == ["driver-1"]
    assert hook.kills == 1
    operator.on_kill()  # as Airflow does
    assert hook.kills == 1


def test_spark_submit_is_killed_before_its_cluster_is_looked_at_for_what_it_submits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runs, "task_state", lambda _: "failed")
    done: list[str] = []
    hook = Hook("cluster")
    hook._submit_sp = SimpleNamespace(kill=lambda: done.append("kill"))
    operator = operator_with(hook)
    operator._job = JobName("g-000001", "w", "j", datetime(2026, 1, 1, tzinfo=UTC))
    monkeypatch.setattr(operator, "_cluster", lambda _: SimpleNamespace(jobs=lambda _: done.append("look") or []))
    operator.on_kill()
    assert done[:2] == ["kill", "look"]


def test_a_task_that_was_stopped_launches_nothing_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]"}')
    operator = operator_with(None)
    hook = operator._get_hook()
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: pytest.fail("spark-submit was started"))
    operator.on_kill()
    with pytest.raises(KafkaOffsetsError, match="nothing is launched"):
        hook.submit("job.py")


def test_a_job_on_yarn_can_be_killed_after_a_reconnect(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = operator_with(None)
    hook = Hook("cluster")
    hook._is_yarn_cluster_mode = True
    operator._hook = hook
    monkeypatch.setattr(SparkSubmitHook, "_start_yarn_application_status_tracking", lambda *_: None)
    monkeypatch.setattr(hook, "_run_post_submit_commands", lambda: None)
    operator.poll_until_complete("application_1_2", {})
    assert hook._yarn_application_id == "application_1_2"


def test_a_task_that_is_stopped_before_its_job_has_nothing_to_kill() -> None:
    operator = operator_with(None)
    operator.on_kill()
    assert operator._stop.is_set


def test_a_driver_is_stopped_also_where_the_provider_can_not_kill_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "task_state", lambda _: "failed")
    hook = Hook("cluster")
    hook._driver_id = "driver-1"
    hook.on_kill = Path("/no/such/spark-submit").read_bytes
    operator = operator_with(hook)
    operator._job = JobName("g-000001", "w", "j", datetime(2026, 1, 1, tzinfo=UTC))
    stopped: list[str] = []
    monkeypatch.setattr(operator, "_cluster", lambda _: SimpleNamespace(jobs=lambda _: [], stop=stopped.append))
    with pytest.raises(FileNotFoundError):
        operator.on_kill()
    assert stopped == ["driver-1"]


@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown"])
def test_a_pod_of_whose_node_nobody_hears_has_no_twin_beside_it(phase: str) -> None:
    hook = Hook("cluster")
    hook._is_kubernetes = True
    operator = operator_with(hook)
    assert operator.is_job_active(phase)
    assert not operator.is_job_active("Failed")


def _nothing(spark: Any, window: Any) -> None:
    """Stands for a user's function."""


OPERATORS = [
    lambda: operator_with(None),
    lambda: KafkaSparkOperator(task_id="load", group=KafkaGroup("g", topics=["t"]), python_callable=_nothing),
]


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_stop_of_one_try_is_not_that_of_the_next_on_the_same_object(operator: Any) -> None:
    """All tries of `airflow dags test` run on shallow copies of one object, in one process."""
    task = operator()
    first = task.prepare_for_execution()
    first.on_kill()
    second = task.prepare_for_execution()
    second._stop.check()
    second.on_kill()
    with pytest.raises(KafkaOffsetsError, match="nothing is committed"):
        first._stop.check()
    task.prepare_for_execution()._stop.check()


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_stop_that_comes_before_the_try_has_its_copy_counts_for_that_try_alone(operator: Any) -> None:
    task = operator()
    task.on_kill()
    stopped = task.prepare_for_execution()
    with pytest.raises(KafkaOffsetsError, match="nothing is launched"):
        stopped._stop.check()
    task.prepare_for_execution()._stop.check()
