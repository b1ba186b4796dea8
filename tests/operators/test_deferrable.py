"""A task that gives its worker slot back while its driver runs: what it leaves, and how it continues."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_kafka_offsets import KafkaSparkSubmitOperator
from airflow_kafka_offsets.airflow_versions import AirflowTaskTimeout, TaskDeferred
from airflow_kafka_offsets.core.errors import ClusterUnavailableError, KafkaOffsetsError
from airflow_kafka_offsets.core.launch.jobs import JobState
from airflow_kafka_offsets.core.run import Run, Try
from airflow_kafka_offsets.launch.submit_hook import cluster_of
from airflow_kafka_offsets.operators import spark_submit as submit
from airflow_kafka_offsets.service.plan import Planned
from airflow_kafka_offsets.task.airflow import Task
from tests.launch.conftest import launch_of
from tests.launch.test_job_files import window_of
from tests.operators.test_on_kill import CLAIM, Hook, at_work, clusters, operator_on
from tests.task.airflow import context_of
from tests.triggers.test_conditions import remade
from tests.versions import needs_task_state

__all__ = ["clusters"]
pytestmark = needs_task_state
DRIVER = "driver-1"


class Cluster:
    """A cluster in one state."""

    def __init__(self, state: JobState | Exception | None) -> None:
        self._state = state
        self.stopped: list[str] = []

    def state(self, driver: str) -> JobState | None:
        assert driver == DRIVER
        if isinstance(self._state, Exception):
            raise self._state
        return self._state

    def stop(self, driver: str) -> None:
        self.stopped.append(driver)


@pytest.fixture
def polled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the drivers that the provider has polled."""
    found: list[str] = []
    monkeypatch.setattr(
        SparkSubmitOperator, "poll_until_complete", lambda _self, driver, _context: found.append(driver)
    )
    return found


def context(started: datetime | None = None) -> Any:
    given = context_of(CLAIM, Try(1, 1))
    given["ti"].start_date = started or datetime.now(UTC)
    return given


def deferrable(state: JobState | Exception | None, **arguments: Any) -> tuple[KafkaSparkSubmitOperator, Hook]:
    """Return an operator whose driver is on a cluster in this state, and the hook."""
    operator = operator_on(**{"deploy_mode": "cluster", "deferrable": True, **arguments})
    noted: dict[str, str] = {}
    store = SimpleNamespace(get=noted.get, set=noted.__setitem__)
    hook = at_work(operator, Run(CLAIM, Try(1, 1), keeps_state=True), store)
    hook.cluster = Cluster(state)
    hook.note(DRIVER)
    return operator, hook


def test_a_driver_at_work_is_left_to_a_trigger(polled: list[str], caplog: pytest.LogCaptureFixture) -> None:
    operator, _ = deferrable(JobState.ALIVE, poll_interval=7)
    caplog.set_level("INFO")
    with pytest.raises(TaskDeferred) as deferred:
        operator.poll_until_complete(DRIVER, context())
    trigger: Any = deferred.value.trigger
    assert (trigger.driver, trigger.poll_interval, trigger.until) == (DRIVER, 7, None)
    assert (deferred.value.method_name, deferred.value.timeout) == ("reconnect", None)
    assert f"gives its worker slot back until driver {DRIVER} has ended" in caplog.text
    assert polled == []


def test_what_the_trigger_leaves_in_the_database_leads_to_the_cluster_and_has_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = "http://me:hunter2@rm:8088"
    connection = {
        "conn_type": "spark",
        "host": "yarn",
        "login": "me",
        "password": "hunter2",
        "extra": {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": address},
    }
    monkeypatch.setenv("AIRFLOW_CONN_YARN", json.dumps(connection))
    secret = {"conf": {"spark.kafka.token": "hunter2"}, "env_vars": {"TOKEN": "hunter2"}}
    operator, _ = deferrable(JobState.ALIVE, conn_id="yarn", yarn_track_via_rm_api=True, deploy_mode=None, **secret)
    with pytest.raises(TaskDeferred) as deferred:
        operator.poll_until_complete(DRIVER, context())
    trigger = remade(deferred.value.trigger)
    assert "hunter2" not in json.dumps([trigger.serialize(), deferred.value.kwargs])
    assert repr(cluster_of(trigger.cluster)).startswith("<airflow_kafka_offsets.adapters.clusters.yarn.YarnCluster")


def test_a_namespace_of_the_conf_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_K8S", json.dumps({"conn_type": "spark", "host": "k8s://https://api", "port": 6443})
    )
    conf = {"spark.kubernetes.namespace": "etl", "spark.kafka.token": "hunter2"}
    operator, hook = deferrable(JobState.ALIVE, conn_id="k8s", conf=conf, track_driver_via_k8s_api=True)
    with pytest.raises(TaskDeferred) as deferred:
        operator.poll_until_complete(DRIVER, context())
    leading = remade(deferred.value.trigger).cluster
    assert leading["spark.kubernetes.namespace"] == hook.launch.target.namespace == "etl"
    assert "hunter2" not in json.dumps(leading)


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.OVER, None, ClusterUnavailableError("silent")], ids=str)
def test_the_end_of_a_driver_and_a_silent_cluster_are_for_the_poll_of_today(state: Any, polled: list[str]) -> None:
    operator, _ = deferrable(state)
    operator.poll_until_complete(DRIVER, context())
    assert polled == [DRIVER]


def test_a_task_that_was_stopped_is_not_deferred(polled: list[str]) -> None:
    operator, _ = deferrable(JobState.ALIVE)
    operator._stop.set()
    with pytest.raises(KafkaOffsetsError, match="nothing is committed"):
        operator.poll_until_complete(DRIVER, context())
    assert polled == []


def test_the_time_of_a_task_is_counted_from_its_first_start_over_all_its_deferrals() -> None:
    started = datetime.now(UTC) - timedelta(minutes=29)
    operator, hook = deferrable(JobState.ALIVE, execution_timeout=timedelta(minutes=30))
    with pytest.raises(TaskDeferred) as deferred:
        operator.poll_until_complete(DRIVER, context(started))
    trigger: Any = deferred.value.trigger
    assert datetime.fromisoformat(trigger.until) == started + timedelta(minutes=30)
    with pytest.raises(AirflowTaskTimeout, match="driver-1 still ran at the execution_timeout of 0:30:00"):
        operator.poll_until_complete(DRIVER, context(started - timedelta(minutes=2)))
    assert hook.cluster.stopped == [DRIVER]


def test_a_resumed_try_takes_the_end_of_its_own_driver_and_launches_no_other(polled: list[str]) -> None:
    operator, hook = deferrable(JobState.OVER)
    hook.submit = lambda *_, **__: pytest.fail("another driver")  # type: ignore[method-assign]
    operator.run_job(context(), watched=DRIVER)
    assert polled == [DRIVER]


def test_a_task_that_is_not_deferrable_asks_its_cluster_nothing_more(polled: list[str]) -> None:
    operator, _ = deferrable(KafkaOffsetsError("asked"), deferrable=False)
    operator.poll_until_complete(DRIVER, context())
    assert polled == [DRIVER]


@pytest.mark.parametrize(("noted", "settles"), [(DRIVER, False), (None, True)], ids=["noted", "note lost"])
def test_a_resumed_try_whose_note_was_lost_looks_for_its_driver_before_it_launches(
    monkeypatch: pytest.MonkeyPatch, noted: str | None, settles: bool
) -> None:
    operator, steps = operator_on(deploy_mode="cluster", deferrable=True, ship=False), []
    monkeypatch.setattr(submit, "LaunchHook", Hook)
    monkeypatch.setattr(Hook, "noted", noted)
    monkeypatch.setattr(operator, "_settle", lambda *_: steps.append("settle"))
    monkeypatch.setattr(operator, "run_job", lambda *_: steps.append("run"))
    begun = SimpleNamespace(id=1, claim=CLAIM, try_number=1, series="1")
    row = SimpleNamespace(planned_at=datetime(2026, 1, 1, tzinfo=UTC), attempts=1)
    service: Any = SimpleNamespace(ledger=SimpleNamespace(window=lambda _: row, attempts=lambda _: [begun]))
    task = Task(operator, context(), watched=DRIVER)
    operator._launch(task, launch_of(operator), Planned(window_of(1), False, "again"), service)
    assert steps == (["settle", "run"] if settles else ["run"])
