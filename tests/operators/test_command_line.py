"""What is on the command line of spark-submit, which `ps` and the cluster show: on Kubernetes all that can be tested here."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks import spark_submit as provider

from airflow_kafka_offsets import KafkaGroup, KafkaSparkSubmitOperator
from airflow_kafka_offsets.core.errors import BadInputError, ClusterError
from airflow_kafka_offsets.core.launch.jobs import JobName
from airflow_kafka_offsets.core.launch.login import reader_options
from airflow_kafka_offsets.launch import pods
from airflow_kafka_offsets.launch.job_files import MAX_ARGUMENT
from airflow_kafka_offsets.launch.launch import Launch
from airflow_kafka_offsets.launch.submit_hook import LaunchHook
from airflow_kafka_offsets.service.plan import Planned
from airflow_kafka_offsets.wiring import clusters
from tests.launch.conftest import launch_of
from tests.launch.test_job_files import window_of
from tests.launch.test_pods import Pods, driver

NAME = JobName("g-000007", "a" * 20, "b" * 20, datetime(2026, 1, 1, tzinfo=UTC))
REFERENCES = {
    "kafka.config.providers": "file",
    "kafka.config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    "kafka.sasl.jaas.config": "${file:/etc/kafka/client.properties:jaas}",
}
CLUSTERS = {
    "k8s": {"conn_type": "spark", "host": "k8s://https://api:6443", "extra": {"namespace": "etl"}},
    "yarn": {"conn_type": "spark", "host": "yarn", "extra": {"yarn_resourcemanager_webapp_address": "http://rm:8088"}},
}


@pytest.fixture(autouse=True)
def _connections(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, fields in CLUSTERS.items():
        extra = {**fields["extra"], "deploy-mode": "cluster"}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps({**fields, "extra": extra}))
    # The provider refuses Kubernetes without its client; no test here asks a cluster.
    monkeypatch.setattr(provider, "kube_client", object(), raising=False)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")


@pytest.fixture
def kafka_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", '{"conn_type": "kafka", "extra": {"bootstrap.servers": "b:9092"}}')


def operator_on(cluster: str, **values: Any) -> KafkaSparkSubmitOperator:
    group = KafkaGroup("g", topics=["orders"], spark_options=REFERENCES)
    parameters = {"application": "local:///opt/jobs/orders.py", "conn_id": cluster, "connector": None, **values}
    return KafkaSparkSubmitOperator(task_id="load", group=group, **parameters)


def command(operator: KafkaSparkSubmitOperator, partitions: int, directory: Path) -> list[str]:
    """Return what would be run for a window of so many partitions."""
    config = {"bootstrap.servers": "b:9092", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    launch = replace(launch_of(operator), reader=reader_options(config, REFERENCES))
    planned = Planned(window_of(partitions), False, "new")
    return hook_of(launch.for_window(planned, NAME, 1, directory))._build_spark_submit_command(operator.application)


def hook_of(launch: Launch) -> LaunchHook:
    return LaunchHook(launch, lambda: None)


def launched(cluster: str, **values: Any) -> LaunchHook:
    """Return the hook of a launch for some window."""
    return hook_of(replace(launch_of(operator_on(cluster, **values)), job=NAME))


def confs(argv: list[str]) -> dict[str, str]:
    return dict(value.split("=", 1) for flag, value in pairwise(argv) if flag == "--conf" and "=" in value)


@pytest.mark.parametrize("cluster", list(CLUSTERS))
@pytest.mark.parametrize("partitions", [3, 1000, 20_000])
def test_nothing_on_it_grows_beyond_what_linux_takes(cluster: str, partitions: int, tmp_path: Path) -> None:
    argv = command(operator_on(cluster), partitions, tmp_path)
    assert max(len(argument.encode()) for argument in argv) <= MAX_ARGUMENT + 100
    if partitions == 20_000:
        assert sum(len(argument.encode()) for argument in argv) < 10_000
        files = argv[argv.index("--files") + 1]
        assert Path(files).stat().st_size > MAX_ARGUMENT


@pytest.mark.parametrize("cluster", list(CLUSTERS))
def test_secrets_are_references_on_it(cluster: str, tmp_path: Path) -> None:
    text = " ".join(command(operator_on(cluster), 3, tmp_path))
    assert "${file:/etc/kafka/client.properties:jaas}" in text
    assert "password" not in text.lower()


def test_a_pod_is_labelled_with_window_and_job_and_with_what_the_user_says(tmp_path: Path) -> None:
    mine = {"spark.kubernetes.driver.label.team": "lake"}
    found = confs(command(operator_on("k8s", conf=mine), 3, tmp_path))
    labels = {key: value for key, value in found.items() if key.startswith("spark.kubernetes.driver.label.")}
    assert labels == {
        **mine,
        "spark.kubernetes.driver.label.kafka-offsets-window": NAME.window,
        "spark.kubernetes.driver.label.kafka-offsets-job": NAME.job,
        "spark.kubernetes.driver.label.kafka-offsets-window-id": "g-000007",
    }
    assert found["spark.kubernetes.namespace"] == "etl"


def test_yarn_runs_a_driver_once_unless_the_user_says_otherwise(tmp_path: Path) -> None:
    assert confs(command(operator_on("yarn"), 3, tmp_path))["spark.yarn.maxAppAttempts"] == "1"
    twice = operator_on("yarn", conf={"spark.yarn.maxAppAttempts": 2, "spark.yarn.tags": "mine"})
    found = confs(command(twice, 3, tmp_path))
    assert found["spark.yarn.maxAppAttempts"] == "2"
    assert found["spark.yarn.tags"].split(",")[0] == "mine"


def test_a_spark_submit_that_ends_before_its_job_is_no_evidence(tmp_path: Path, kafka_connection: None) -> None:
    waits = "spark.yarn.submit.waitAppCompletion"
    with pytest.raises(BadInputError, match=waits):
        operator_on("yarn", conf={waits: False})._check_and_prepare()
    untracked = operator_on("yarn", durable=False)
    assert confs(command(untracked, 3, tmp_path))[waits] == "true"  # whatever is in spark-defaults.conf
    for conf in ({}, {waits: False}, {waits: "true"}):
        tracked = operator_on("yarn", conf=conf, yarn_track_via_rm_api=True)
        tracked._check_and_prepare()
        assert confs(command(tracked, 3, tmp_path))[waits] == "false"


def test_on_kubernetes_the_driver_is_watched_itself_as_spark_submit_ends_with_success_anyway(
    kafka_connection: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadInputError, match="track_driver_via_k8s_api=True"):
        operator_on("k8s")._check_and_prepare()
    asked: list[str] = []
    monkeypatch.setattr(pods, "check_rights", lambda target, _, **_more: asked.append(target.namespace))
    operator_on("k8s", track_driver_via_k8s_api=True)._check_and_prepare()
    assert asked == ["etl"]
    operator_on("k8s", deploy_mode="client")._check_and_prepare()


def test_a_job_on_yarn_that_no_retry_could_find_is_refused_before_anything_is_planned(
    kafka_connection: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_yarn = operator_on("yarn")
    if on_yarn.durable:  # from Airflow 3.3 on
        with pytest.raises(BadInputError, match="yarn_track_via_rm_api=True"):
            on_yarn._check_and_prepare()
    operator_on("yarn", durable=False)._check_and_prepare()
    monkeypatch.setenv("AIRFLOW_CONN_YARN", json.dumps({**CLUSTERS["yarn"], "extra": {"deploy-mode": "cluster"}}))
    for how in ({"yarn_track_via_rm_api": True}, {"durable": False}):
        with pytest.raises(BadInputError, match="yarn_resourcemanager_webapp_address"):
            operator_on("yarn", **how)._check_and_prepare()
    operator_on("yarn", deploy_mode="client")._check_and_prepare()
    with pytest.raises(ValueError, match="requires `deploy_mode='cluster'`"):
        operator_on("yarn", deploy_mode="client", yarn_track_via_rm_api=True)._check_and_prepare()


def test_a_window_that_no_file_can_carry_to_a_standalone_cluster_is_refused_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    standalone = {"conn_type": "spark", "host": "spark://master", "port": 7077, "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_STANDALONE", json.dumps(standalone))
    with pytest.raises(BadInputError, match=r"\d+ partitions.* over 100000 bytes.*deploy_mode='client'"):
        command(operator_on("standalone"), 20_000, tmp_path)
    in_client_mode = command(operator_on("standalone", deploy_mode="client"), 20_000, tmp_path)
    assert in_client_mode[in_client_mode.index("--files") + 1].endswith("g-000007.json")


@pytest.mark.parametrize("cluster", list(CLUSTERS))
def test_where_the_driver_runs_is_said_on_it_so_that_no_file_of_sparks_says_otherwise(
    cluster: str, tmp_path: Path, kafka_connection: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mode(operator: KafkaSparkSubmitOperator) -> str:
        argv = command(operator, 3, tmp_path)
        return argv[argv.index("--deploy-mode") + 1]

    assert mode(operator_on(cluster)) == "cluster"
    assert mode(operator_on(cluster, deploy_mode="client")) == "client"
    monkeypatch.setenv(f"AIRFLOW_CONN_{cluster.upper()}", json.dumps(CLUSTERS[cluster]))
    assert mode(operator_on(cluster)) == "client"
    with pytest.raises(BadInputError, match="deploy_mode='cluster'"):
        operator_on(cluster, conf={"spark.submit.deployMode": "cluster"})._check_and_prepare()
    operator_on(cluster, conf={"spark.submit.deployMode": "client"})._check_and_prepare()


@pytest.mark.usefixtures("kafka_connection")
@pytest.mark.parametrize(
    ("cluster", "values", "says"),
    [
        (
            "yarn",
            {"yarn_track_via_rm_api": True, "keytab": __file__, "principal": "etl"},
            "Install `requests-kerberos`",
        ),
        (
            "k8s",
            {"track_driver_via_k8s_api": True, "conf": {"spark.kubernetes.submission.waitAppCompletion": "true"}},
            "is incompatible with",
        ),
    ],
)
def test_what_the_provider_needs_to_ask_a_cluster_fails_at_once(
    cluster: str, values: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "requests_kerberos", None)
    with pytest.raises(BadInputError, match=says):
        operator_on(cluster, **values)._check_and_prepare()


def test_a_driver_on_kubernetes_is_watched_in_our_way_and_its_error_is_sparks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = tmp_path / "after"
    cluster = Pods(
        driver("Succeeded"), driver("Failed"), log=["Traceback (most recent call last):", "ValueError: no day"]
    )
    monkeypatch.setattr(clusters, "open_kubernetes", lambda target: cluster)
    hook = launched("k8s", track_driver_via_k8s_api=True, post_submit_commands=[f"touch {after}"])
    assert hook._poll_k8s_driver_via_api() == "Succeeded"
    assert (cluster.removed, hook.spark_error, after.exists()) == ([], None, True)
    with pytest.raises(ClusterError, match="failed"):
        hook._poll_k8s_driver_via_api()
    assert hook.spark_error == "ValueError: no day"


def test_what_looks_like_an_id_in_a_later_line_is_none() -> None:
    hook = launched("yarn")
    lines = ["INFO YarnClientImpl: Submitted application application_1_0001", "--files /tmp/application_99_report"]

    def said() -> Iterator[str]:
        yield from lines

    hook._process_spark_submit_log(said())
    assert hook._yarn_application_id == "application_1_0001"


@pytest.mark.usefixtures("kafka_connection")
def test_a_launch_on_kubernetes_without_its_provider_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "airflow.providers.cncf.kubernetes", None)
    with pytest.raises(BadInputError, match="pip install apache-airflow-providers-cncf-kubernetes"):
        operator_on("k8s", track_driver_via_k8s_api=True)._check_and_prepare()
