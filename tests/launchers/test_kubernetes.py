"""Kubernetes without a cluster: what Spark's client and Airflow's ask of a small API server."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import yaml
from airflow.providers.apache.spark.hooks import spark_submit as provider

from airflow_kafka_offsets import KafkaGroup, KafkaSparkSubmitOperator
from airflow_kafka_offsets.adapters.clusters.kubernetes import RIGHTS, Driver
from airflow_kafka_offsets.core.launch.jobs import JobName, JobState, label_value, tags
from airflow_kafka_offsets.launch.submit_hook import LaunchHook
from airflow_kafka_offsets.service.plan import Planned
from tests.lab.java import pyspark_home
from tests.lab.processes import LOOPBACK
from tests.lab.small_server import Handler, SmallServer
from tests.launch.conftest import launch_of
from tests.launch.test_job_files import window_of
from tests.launchers.test_examples import PAGES, elsewhere
from tests.operators.test_command_line import REFERENCES

ALL = {f"{verb} {what}" for what, verb in RIGHTS}
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


class Api(Handler):
    """The API server of a namespace with some pods."""

    pods: dict[str, dict[str, Any]]
    rights: Collection[str]
    asked: list[str]

    def _answer(self) -> None:
        address = urlsplit(self.path)
        query = dict(parse_qsl(address.query))
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        self.asked.append(f"{self.command} {self.path}")
        status, answer = self._about(address.path.split("/")[4:], query, body)
        self.send(
            status, answer if isinstance(answer, str) else json.dumps(answer), {"Content-Type": "application/json"}
        )

    def _about(self, path: list[str], query: dict[str, str], body: dict[str, Any]) -> tuple[int, Any]:
        if "spec" in body and "resourceAttributes" in body["spec"]:
            wanted = body["spec"]["resourceAttributes"]
            return 201, {**body, "status": {"allowed": f"{wanted['verb']} {wanted['resource']}" in self.rights}}
        _, _, *name = path
        if not name:
            label, _, value = query["labelSelector"].partition("=")
            return 200, {"items": [pod for pod in self.pods.values() if pod["metadata"]["labels"].get(label) == value]}
        if name[0] == "secret-driver":
            return 403, {"kind": "Status", "message": "pods is forbidden: User 'lake' cannot get resource 'pods'"}
        if name[0] not in self.pods:
            return 404, {"kind": "Status", "message": "not found"}
        if name[1:] == ["log"]:
            return 200, f"the log of {query['container']}\nits end\n"
        pod = self.pods[name[0]]
        if self.command == "DELETE":
            del self.pods[name[0]]
        return 200, pod

    do_GET = do_POST = do_DELETE = _answer


def pod(
    name: str, phase: str, job: JobName, created: int, *containers: str, exit_code: int | None = None
) -> dict[str, Any]:
    """Return a driver's pod, as Kubernetes describes it."""
    labels = {key.rpartition(".label.")[2]: value for key, value in tags("k8s://api", job, {}).items()}
    ended = {"terminated": {"exitCode": exit_code, "reason": "Error"}} if exit_code is not None else {}
    names = containers or ("spark-kubernetes-driver",)
    statuses = [
        {"name": n, "state": ended, "image": "", "imageID": "", "ready": False, "restartCount": 0} for n in names
    ]
    return {
        "metadata": {"name": name, "labels": labels, "creationTimestamp": f"2026-01-0{created}T00:00:00Z"},
        "spec": {"containers": [{"name": n} for n in names]},
        "status": {"phase": phase, "containerStatuses": statuses},
    }


def answers(tmp_path: Path, api: type[Api], *questions: tuple[str, dict[str, Any]]) -> list[Any]:
    """Ask with the client of Airflow's provider, which finds the cluster as on a worker outside of it."""
    config = tmp_path / "config"
    with SmallServer(api) as server:
        config.write_text(
            json.dumps(
                {
                    "clusters": [{"name": "c", "cluster": {"server": f"http://{LOOPBACK}:{server.port}"}}],
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                    "users": [{"name": "u", "user": {"token": "t"}}],
                    "current-context": "c",
                }
            )
        )
        where = {
            "AIRFLOW__KUBERNETES_EXECUTOR__IN_CLUSTER": "False",
            "AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE": str(config),
        }
        return list(elsewhere("pods", {"questions": questions}, tmp_path, **where))


def api_with(*pods: dict[str, Any], rights: Collection[str] = ALL) -> type[Api]:
    """Return an API server with these pods."""
    return type("Api", (Api,), {"pods": {p["metadata"]["name"]: p for p in pods}, "rights": rights, "asked": []})


@pytest.mark.slow
def test_airflows_client_finds_stops_and_reads_the_pods_of_a_window(tmp_path: Path) -> None:
    older, foreign = replace(NAME, job="c" * 20), replace(NAME, window="d" * 20)
    api = api_with(
        pod("new-driver", "Pending", NAME, 4),
        pod("old-driver", "Succeeded", older, 1),
        pod("failed-driver", "Failed", NAME, 2, "sidecar", "spark-kubernetes-driver", exit_code=1),
        pod("lost-driver", "Unknown", NAME, 3, "renamed"),
        pod("foreign-driver", "Succeeded", foreign, 1),
    )
    found = answers(
        tmp_path,
        api,
        ("state", {"job_id": "etl:new-driver"}),
        ("state", {"job_id": "etl:gone-driver"}),
        ("driver", {"job_id": "failed-driver"}),
        ("driver", {"job_id": "lost-driver"}),
        ("log_tail", {"job_id": "failed-driver", "container": "spark-kubernetes-driver"}),
        ("log_tail", {"job_id": "gone-driver", "container": "x"}),
        ("stop", {"job_id": "etl:gone-driver"}),
        ("driver", {"job_id": "secret-driver"}),
        ("missing_rights", {"submits": True}),
        ("remove_ended", {"window": NAME.window}),
    )
    assert found[:2] == ["alive", None]
    assert found[2] == str(Driver(JobState.OVER, "Failed", "exit code 1, Error", "spark-kubernetes-driver"))
    assert found[3] == str(Driver(JobState.ALIVE, "Unknown", "", "renamed"))
    assert found[4:7] == [["the log of spark-kubernetes-driver", "its end"], [], None]
    assert found[7] == "error: Kubernetes answered 403: pods is forbidden: User 'lake' cannot get resource 'pods'"
    assert found[8] == []
    assert set(api.pods) == {"new-driver", "lost-driver", "foreign-driver"}, "only the ended ones of the window go"
    assert any("tailLines=" in asked for asked in api.asked)


@pytest.mark.slow
def test_a_missing_right_is_named_also_if_spark_submit_has_an_account_of_its_own(tmp_path: Path) -> None:
    api = api_with(rights=ALL - {"get pods", "patch services"})
    together = ("missing_rights", {"submits": True})
    apart = ("missing_rights", {"submits": False})
    assert answers(tmp_path, api, together, apart) == [["get pods", "patch services"], ["get pods"]]


def test_the_page_gives_the_worker_the_rights_that_are_checked_and_its_pods_log() -> None:
    page = (PAGES / "kubernetes.md").read_text()
    found = list(yaml.safe_load_all(page.partition("```yaml\n")[2].partition("```")[0]))
    (worker,) = [thing for thing in found if thing["kind"] == "Role" and thing["metadata"]["name"] == "airflow"]
    given = {f"{verb} {what}" for rule in worker["rules"] for what in rule["resources"] for verb in rule["verbs"]}
    assert given == ALL | {"get pods/log"}
