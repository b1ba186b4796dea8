"""Why a task is stopped decides what becomes of its Spark driver."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks import spark_submit as provider
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_kafka_offsets import KafkaGroup, KafkaSparkOperator, KafkaSparkSubmitOperator
from airflow_kafka_offsets.airflow_versions import AirflowTaskTimeout
from airflow_kafka_offsets.core.errors import KafkaOffsetsError
from airflow_kafka_offsets.core.launch.jobs import Job, JobName, JobState
from airflow_kafka_offsets.core.run import Run, Try
from airflow_kafka_offsets.core.window import Claim
from airflow_kafka_offsets.launch.launch import Launch
from airflow_kafka_offsets.launch.submit_hook import LaunchHook
from airflow_kafka_offsets.operators import spark_submit as submit
from airflow_kafka_offsets.service.plan import Planned
from airflow_kafka_offsets.task.airflow import Task
from airflow_kafka_offsets.wiring import runs
from tests.launch.conftest import launch_of
from tests.launch.test_job_files import window_of
from tests.task.airflow import context_of
from tests.versions import needs_task_state

CLAIM = Claim("d", "r", "load")
NAME = JobName("g-000001", "w", "j", datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture(autouse=True)
def clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    # The provider refuses Kubernetes without its client; no test here asks a cluster.
    monkeypatch.setattr(provider, "kube_client", object(), raising=False)
    masters = {"standalone": "spark://m:7077", "k8s": "k8s://https://api:6443", "yarn": "yarn"}
    for name, host in masters.items():
        connection = {"conn_type": "spark", "host": host, "extra": {"namespace": "etl"}}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(connection))


class Hook(LaunchHook):
    """The hook of a job that runs: no cluster is needed to see who is killed."""

    kills = 0
    cluster: Any = None

    def on_kill(self) -> None:
        self.kills += 1

    def open_cluster(self) -> Any:
        return self.cluster


def operator_on(conn_id: str = "standalone", **arguments: Any) -> KafkaSparkSubmitOperator:
    group = KafkaGroup("g", topics=["t"])
    return KafkaSparkSubmitOperator(
        task_id="load", group=group, application="job.py", conn_id=conn_id, connector=None, **arguments
    )


def at_work(operator: KafkaSparkSubmitOperator, run: Run | None = None, store: Any = None) -> Hook:
    """Let an operator be at work, in a run that has a retry left."""
    run = run or Run(CLAIM, Try(1, 1), keeps_state=True)
    launch = launch_of(operator)
    retried_by = operator._retried_by(run, launch.target)
    hook = Hook(replace(launch, job=NAME, retried_by=retried_by), operator._stop.check, store)
    operator.launch_hook = hook
    return hook


def operator_in(
    deploy_mode: str | None, *, on_kubernetes: bool = False, is_tracked: bool = True
) -> KafkaSparkSubmitOperator:
    if on_kubernetes:
        tracked = is_tracked and deploy_mode == "cluster"
        return operator_on("k8s", deploy_mode=deploy_mode, track_driver_via_k8s_api=tracked)
    return operator_on("standalone" if is_tracked else "yarn", deploy_mode=deploy_mode)


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
    operator = operator_in(deploy_mode, on_kubernetes=on_kubernetes)
    hook = at_work(operator)
    operator.on_kill()
    assert hook.kills == kills
    assert operator._stop.is_set == bool(kills), "execute goes on after on_kill, and must not commit a killed job"


@pytest.mark.parametrize("on_kubernetes", [False, True])
def test_a_driver_that_no_retry_could_find_again_is_stopped_with_its_worker(
    monkeypatch: pytest.MonkeyPatch, on_kubernetes: bool
) -> None:
    monkeypatch.setattr(runs, "task_state", lambda _: "running")
    untracked = operator_in("cluster", is_tracked=False, on_kubernetes=on_kubernetes)
    hook = at_work(untracked)
    untracked.on_kill()
    assert hook.kills == 1
    operator = operator_in("cluster", on_kubernetes=on_kubernetes)
    operator.durable = False
    hook = at_work(operator)
    operator.on_kill()
    assert hook.kills == 1


@pytest.mark.parametrize("on_kubernetes", [False, True])
def test_the_last_try_leaves_no_driver_behind_for_which_nobody_would_come(
    monkeypatch: pytest.MonkeyPatch, on_kubernetes: bool
) -> None:
    monkeypatch.setattr(runs, "task_state", lambda _: "running")
    operator = operator_in("cluster", on_kubernetes=on_kubernetes)
    hook = at_work(operator, Run(CLAIM, Try(2, 1), keeps_state=True))
    operator.on_kill()
    assert hook.kills == 1


def test_a_time_out_stops_the_job_although_the_task_still_counts_as_running(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "task_state", lambda _: "running")
    operator = operator_in("cluster")
    hook = at_work(operator)
    try:
        raise AirflowTaskTimeout
    except AirflowTaskTimeout:
        operator.on_kill()
    assert hook.kills == 1


@pytest.mark.parametrize("step", ["for_window", "_settle", "run_job"])
def test_a_time_out_stops_the_job_before_the_launch_is_over(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    monkeypatch.setattr(runs, "task_state", lambda _: "running")
    operator, stopped = operator_on(deploy_mode="cluster", ship=False), []

    def timed_out(*_: Any, **__: Any) -> None:
        raise AirflowTaskTimeout

    monkeypatch.setattr(submit, "LaunchHook", Hook)
    monkeypatch.setattr(operator, "_settle", lambda *_, **__: None)
    monkeypatch.setattr(Launch if step == "for_window" else operator, step, timed_out)
    alive = Job("driver-1", JobState.ALIVE, None)
    cluster = SimpleNamespace(jobs=lambda name: [replace(alive, job=name.job)], stop=stopped.append)
    monkeypatch.setattr(Hook, "cluster", cluster)
    task = Task(operator, context_of(CLAIM, Try(1, 1)))
    begun: Any = SimpleNamespace(id=1, claim=CLAIM, try_number=1, series="1")
    ledger = SimpleNamespace(
        window=lambda _: SimpleNamespace(planned_at=datetime(2026, 1, 1, tzinfo=UTC), attempts=2),
        attempts=lambda _: [begun],
    )
    service: Any = SimpleNamespace(ledger=ledger)
    planned = Planned(window_of(1), False, "new")
    with pytest.raises(AirflowTaskTimeout):
        operator._launch(task, launch_of(operator), planned, service)
    assert stopped == ["driver-1"]
    hook: Any = operator.launch_hook
    assert hook.kills == 1
    operator.on_kill()  # as Airflow does
    assert hook.kills == 1


def test_spark_submit_is_killed_before_its_cluster_is_looked_at_for_what_it_submits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runs, "task_state", lambda _: "failed")
    done: list[str] = []
    operator = operator_in("cluster")
    hook = at_work(operator)
    hook._submit_sp = SimpleNamespace(kill=lambda: done.append("kill"))
    hook.cluster = SimpleNamespace(jobs=lambda _: done.append("look") or [])
    operator.on_kill()
    assert done[:2] == ["kill", "look"]


def test_a_task_that_was_stopped_launches_nothing_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = operator_on()
    hook = at_work(operator)
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: pytest.fail("spark-submit was started"))
    operator.on_kill()
    with pytest.raises(KafkaOffsetsError, match="nothing more is launched"):
        hook.submit("job.py")


def test_a_job_on_yarn_can_be_killed_after_a_reconnect(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = operator_on("yarn", deploy_mode="cluster")
    hook = at_work(operator)
    monkeypatch.setattr(SparkSubmitHook, "_start_yarn_application_status_tracking", lambda *_: None)
    monkeypatch.setattr(hook, "_run_post_submit_commands", lambda: None)
    operator.poll_until_complete("application_1_2", {})
    assert hook._yarn_application_id == "application_1_2"


def test_a_task_that_is_stopped_before_its_job_has_nothing_to_kill() -> None:
    operator = operator_on()
    operator.on_kill()
    assert operator._stop.is_set


def test_a_driver_is_stopped_also_where_the_provider_can_not_kill_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "task_state", lambda _: "failed")
    operator = operator_in("cluster")
    hook: Any = at_work(operator)
    hook._driver_id = "driver-1"
    hook.on_kill = Path("/no/such/spark-submit").read_bytes
    stopped: list[str] = []
    hook.cluster = SimpleNamespace(jobs=lambda _: [], stop=stopped.append)
    with pytest.raises(FileNotFoundError):
        operator.on_kill()
    assert stopped == ["driver-1"]


@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown"])
def test_a_pod_of_whose_node_nobody_hears_has_no_twin_beside_it(phase: str) -> None:
    operator = operator_in("cluster", on_kubernetes=True)
    at_work(operator)
    assert operator.is_job_active(phase)
    assert not operator.is_job_active("Failed")


def _nothing(spark: Any, window: Any) -> None:
    """Stands for a user's function."""


OPERATORS = [
    operator_on,
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
    with pytest.raises(KafkaOffsetsError, match="nothing more is launched"):
        stopped._stop.check()
    task.prepare_for_execution()._stop.check()
