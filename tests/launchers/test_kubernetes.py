"""Kubernetes, where no cluster can run here: what Spark's own client asks of an API server that writes everything down."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks import spark_submit as provider

from airflow_kafka_offsets import KafkaGroup, KafkaSparkSubmitOperator
from airflow_kafka_offsets.core.launch.jobs import JobName, label_value
from airflow_kafka_offsets.launch.submit_hook import LaunchHook
from airflow_kafka_offsets.service.plan import Planned
from tests.lab.java import pyspark_home
from tests.lab.processes import LOOPBACK
from tests.lab.small_server import Handler, SmallServer
from tests.launch.conftest import launch_of
from tests.launch.test_job_files import window_of
from tests.operators.test_command_line import REFERENCES

NAME = JobName("g-000007", "a" * 20, "b" * 20, datetime(2026, 1, 1, tzinfo=UTC))


class Recorder(Handler):
    """Answers every wish with the thing that was wished for."""

    made: list[dict[str, Any]]

    def _answer(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        if self.command != "GET":
            self.made.append(body)
            body.setdefault("metadata", {})["uid"] = f"uid-{len(self.made)}"
        status = 404 if self.command == "GET" else 200
        self.send(status, json.dumps(body), {"Content-Type": "application/json"})

    do_GET = do_POST = do_PATCH = do_PUT = _answer


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """Run the API server, and return the objects that were made on it."""
    found: list[dict[str, Any]] = []
    with SmallServer(type("Recorder", (Recorder,), {"made": found})) as server:
        connection = {"conn_type": "spark", "host": f"k8s://http://{LOOPBACK}", "port": server.port}
        extra = {"deploy-mode": "cluster", "namespace": "etl"}
        monkeypatch.setenv("AIRFLOW_CONN_K8S", json.dumps({**connection, "extra": extra}))
        monkeypatch.setattr(provider, "kube_client", object(), raising=False)
        yield found


@pytest.mark.spark
@pytest.mark.parametrize("partitions", [3, 20_000])
def test_the_pod_carries_the_labels_and_what_it_is_given_no_secret(
    made: list[dict[str, Any]], partitions: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{pyspark_home()}/bin:/usr/bin:/bin")
    monkeypatch.setenv("SPARK_LOCAL_IP", LOOPBACK)
    uploads = tmp_path / "uploads"
    uploads.mkdir()
    operator = KafkaSparkSubmitOperator(
        task_id="load",
        group=KafkaGroup("g", topics=["orders"], spark_options=REFERENCES),
        application="local:///opt/jobs/orders.py",
        conn_id="k8s",
        connector=None,
        track_driver_via_k8s_api=True,
        conf={
            "spark.kubernetes.container.image": "orders:1",
            "spark.kubernetes.file.upload.path": f"file://{uploads}",
            "spark.kubernetes.driver.label.team": "lake",
        },
    )
    noted: list[str] = []
    store = SimpleNamespace(set=lambda _key, job: noted.append(job))
    planned = Planned(window_of(partitions), False, "new")
    hook: Any = LaunchHook(launch_of(operator, REFERENCES).for_window(planned, NAME, 1, tmp_path), lambda: None, store)
    hook.submit()
    hook.submit = lambda _: None  # it was
    operator.launch_hook = hook
    assert operator._backend.__class__(operator, hook).submit_job({}) == noted[0], "the provider knows its pod, too"

    pod = next(thing for thing in made if thing["kind"] == "Pod")
    labels = pod["metadata"]["labels"]
    assert labels["kafka-offsets-window"] == NAME.window
    assert labels["kafka-offsets-job"] == NAME.job
    assert labels["kafka-offsets-window-id"] == label_value(NAME.window_id)
    assert labels["team"] == "lake"
    assert noted == [f"etl:{pod['metadata']['name']}"]
    everything = json.dumps(made)
    assert "password" not in everything.lower()
    shipped = {path.name for path in uploads.rglob("*") if path.is_file()}
    assert "airflow_kafka_offsets_spark.zip" in shipped
    if partitions == 3:
        assert "/etc/kafka/client.properties" in everything
    else:
        assert "g-000007.json" in shipped
        assert len(everything) < 100_000, "a large window is no part of what Kubernetes keeps"
