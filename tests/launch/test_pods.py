"""A driver's pod is watched with patience, and goes once the ledger has the success."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_kafka_offsets.adapters.clusters.kubernetes import Driver
from airflow_kafka_offsets.airflow_versions import mask_secret
from airflow_kafka_offsets.core.errors import (
    BadInputError,
    ClusterError,
    ClusterUnavailableError,
    LedgerUnavailableError,
)
from airflow_kafka_offsets.core.launch.jobs import SILENT_LOOKS, JobState, job_name
from airflow_kafka_offsets.core.window import Claim
from airflow_kafka_offsets.launch import pods
from airflow_kafka_offsets.task.definition import Stop
from airflow_kafka_offsets.wiring import clusters
from tests.core.examples import tp
from tests.service.world import World

CLAIM, OTHER = Claim("dag", "run-1", "load"), Claim("dag", "run-2", "load")
AWAY = ClusterUnavailableError("Kubernetes did not answer")
ON_KUBERNETES: Any = SimpleNamespace(is_kubernetes=True, is_cluster_mode=True, namespace="etl")


def driver(phase: str) -> Driver:
    states = {"Succeeded": JobState.SUCCEEDED, "Failed": JobState.OVER}
    return Driver(states.get(phase, JobState.ALIVE), phase, "exit code 1, Error" if phase == "Failed" else "", "spark")


class Pods:
    """A namespace in memory; each look at the driver gets the next answer."""

    namespace = "etl"

    def __init__(self, *looks: Any, log: Any = (), missing: Any = ()) -> None:
        self.looks = list(looks)
        self.log = log
        self.missing = list(missing)
        self.removed: list[str] = []

    def driver(self, job_id: str) -> Any:
        answer = self.looks.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def log_tail(self, job_id: str, container: str) -> list[str]:
        if isinstance(self.log, Exception):
            raise self.log
        return list(self.log)

    def missing_rights(self, *, submits: bool) -> list[str]:
        return [right for right in self.missing if submits or right.startswith("get")]

    def remove_ended(self, window: str) -> None:
        if self.looks:
            raise self.looks.pop()
        self.removed.append(window)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods, "LEAST_PAUSE", 0)


def watch(cluster: Pods, check: Any = lambda: None) -> list[str]:
    heard: list[str] = []
    pods.watch(cluster, "a-driver", every=0, check=check, hear=heard.extend)  # type: ignore[arg-type]
    return heard


def test_a_driver_is_watched_through_an_outage_and_its_pod_stays() -> None:
    cluster = Pods(
        driver("Pending"), *[AWAY] * SILENT_LOOKS, driver("Running"), *[AWAY] * SILENT_LOOKS, driver("Succeeded")
    )
    assert watch(cluster) == []
    assert cluster.looks == cluster.removed == []


def test_an_outage_that_does_not_end_fails_the_try() -> None:
    with pytest.raises(ClusterUnavailableError):
        watch(Pods(*[AWAY] * (SILENT_LOOKS + 1)))


def test_a_pod_that_is_gone_is_no_success() -> None:
    with pytest.raises(ClusterError, match="is gone, and its success was not seen"):
        watch(Pods(driver("Running"), None))


def test_the_end_of_a_failed_drivers_log_is_in_the_tasks(caplog: pytest.LogCaptureFixture) -> None:
    log = [f"line {number}" for number in range(100)] + ["ValueError: " + "x" * 9_999]
    heard: list[str] = []
    with pytest.raises(ClusterError, match="failed \\(exit code 1, Error\\)"):
        pods.watch(Pods(driver("Failed"), log=log), "d", every=0, check=lambda: None, hear=heard.extend)  # type: ignore[arg-type]
    assert heard == log, "Spark's error is looked for in all of it"
    assert "line 99" in caplog.text
    assert "line 50" not in caplog.text
    assert "x" * 600 not in caplog.text


def test_the_end_of_a_failed_drivers_log_has_no_half_of_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    mask_secret("hunter2-" * 9)
    line = "x" * 470 + " password=" + "hunter2-" * 9
    with pytest.raises(ClusterError, match="failed"):
        watch(Pods(driver("Failed"), log=[line]))
    assert " password=***" in caplog.text
    assert "hunter2" not in caplog.text


def test_a_log_that_can_not_be_read_does_not_hide_the_failure(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ClusterError, match="failed"):
        watch(Pods(driver("Failed"), log=AWAY))
    assert "can't be shown: Kubernetes did not answer" in caplog.text


def test_a_stopped_task_looks_no_more() -> None:
    stop = Stop()
    stop.set()
    cluster = Pods(driver("Running"))
    with pytest.raises(BaseException, match="stopped"):
        watch(cluster, stop.check)
    assert cluster.looks


def test_a_missing_right_is_refused_before_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Pods(missing=["get pods", "create pods"])
    monkeypatch.setattr(clusters, "open_kubernetes", lambda target: cluster)
    with pytest.raises(BadInputError, match="get pods, create pods in namespace etl"):
        pods.check_rights(ON_KUBERNETES, [])
    with pytest.raises(BadInputError, match="account get pods in namespace"):
        pods.check_rights(ON_KUBERNETES, ["spark.kubernetes.authenticate.submission.oauthToken"])
    with pytest.raises(BadInputError, match="account get pods in namespace"):
        pods.check_rights(ON_KUBERNETES, [], has_properties=True)
    cluster.missing = []
    pods.check_rights(ON_KUBERNETES, [])


@pytest.fixture
def world(quick_folder: Path) -> Iterator[World]:
    found = World(quick_folder, starting_offsets="earliest")
    yield found
    found.close()


def test_the_ended_pods_of_a_window_go_by_its_holder_and_a_failure_is_a_warning(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Pods()
    monkeypatch.setattr(clusters, "open_kubernetes", lambda target: cluster)
    world.kafka.produce(tp(0), 10)
    window = world.plan(CLAIM).window
    record = world.ledger.window(window.id)

    pods.remove_ended(ON_KUBERNETES, world.ledger, window, OTHER)
    assert cluster.removed == [], "one of them may have a success that the holder will note"
    pods.remove_ended(ON_KUBERNETES, world.ledger, window, CLAIM)
    assert cluster.removed == [job_name(window, record.planned_at, CLAIM, 1).window]
    for away in (AWAY, LedgerUnavailableError("the ledger does not answer")):
        cluster.looks = [away]
        with caplog.at_level(logging.WARNING):
            pods.remove_ended(ON_KUBERNETES, world.ledger, window, CLAIM)
        assert f"the pods of its drivers stay: {away}" in caplog.text
