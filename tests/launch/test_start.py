"""How a driver is started by the operators: real spark-submits, whose jobs tell what their JVM got."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_kafka_offsets import KafkaGroup, KafkaSparkSubmitOperator
from airflow_kafka_offsets.core.launch.jobs import JobName
from airflow_kafka_offsets.core.launch.start import QUICK_SPAN
from airflow_kafka_offsets.launch.submit_hook import LaunchHook
from tests.lab import java
from tests.lab.java import pyspark_home
from tests.launch.conftest import Worker, launch_of

if TYPE_CHECKING:
    from tests.lab.kafka import KafkaBroker
    from tests.lab.spark_standalone import SparkStandalone

JOB = Path(__file__).parent / "jobs" / "how_it_started.py"
QUICK = "-XX:TieredStopAtLevel=1"
CHEAP = " ".join(java.LIGHT)
LIGHT = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.cores.max": "1",
    "spark.executor.memory": "512m",
}


@pytest.fixture(autouse=True)
def _only_the_lab_said_something(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    # JVMs start cheaply by settings that no command line shows.
    monkeypatch.setenv("JDK_JAVA_OPTIONS", CHEAP)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("AIRFLOW_CONN_LOCAL", '{"conn_type": "spark", "host": "local[1]"}')


@pytest.fixture
def with_archive(monkeypatch: pytest.MonkeyPatch, folder_for_launches: Path) -> None:
    """Let tasks find the archive."""
    monkeypatch.setenv("SPARK_HOME", str(pyspark_home()))
    monkeypatch.setenv("AIRFLOW__KAFKA_OFFSETS__CACHE_FOLDER", str(folder_for_launches))


@pytest.fixture
def launch(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Return a function that launches the job by an operator, and returns its report. It takes arguments for the job, then for the operator."""

    def launch(*extra: str, span: int = 10_000, **arguments: Any) -> dict[str, Any]:
        told = tmp_path / "told.json"
        told.unlink(missing_ok=True)
        arguments = {"conn_id": "local", **arguments, "conf": {**LIGHT, **arguments.get("conf", {})}}
        group = KafkaGroup("g", topics=["t"])
        operator = KafkaSparkSubmitOperator(
            task_id="load", group=group, application=str(JOB), application_args=[str(told), *extra], **arguments
        )
        name = JobName("g-000001", "w", "j", datetime(2026, 1, 1, tzinfo=UTC))
        hook = LaunchHook(replace(launch_of(operator), job=name, span=span), lambda: None)
        hook.submit()
        assert "SPARK_SUBMIT_OPTS" not in (hook._env or {}) or "SPARK_SUBMIT_OPTS" in (operator.env_vars or {})
        answer: dict[str, Any] = json.loads(told.read_text())
        return answer

    return launch


@pytest.mark.usefixtures("with_archive")
def test_a_driver_has_archive_and_compiler_and_the_users_options_count_after_ours(
    launch: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LAUNCHER_OPTS", "-Dlauncher=1")
    told = launch(
        env_vars={"SPARK_SUBMIT_OPTS": "-Dof.env_vars=1 '-Dwith.blank=a b'"},
        conf={"spark.driver.extraJavaOptions": "-Dof.conf=1 -XX:TieredStopAtLevel=4"},
    )
    assert told["archive"]
    options = told["options"]
    assert {"-Dof.env_vars=1", "-Dwith.blank=a b", "-Dof.conf=1", QUICK} <= set(options)
    # The last one of a name counts.
    assert options.index(QUICK) < options.index("-Dof.env_vars=1") < options.index("-XX:TieredStopAtLevel=4")
    assert told["level"] == "4"
    assert told["launcher"] == f"{QUICK} -Dlauncher=1"
    assert (
        told["argv"].count(".jsa") == told["argv"].count("SharedArchiveFile") == 1
    )  # no command line but the JVM's own


@pytest.mark.usefixtures("with_archive")
def test_what_the_environment_of_the_worker_says_is_kept_too_and_the_environment_is_as_it_was(
    launch: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dof.worker=1")
    before = dict(os.environ)
    told = launch(span=QUICK_SPAN + 1)
    assert dict(os.environ) == before
    assert told["archive"]
    assert "-Dof.worker=1" in told["options"]
    assert QUICK not in told["options"]  # a large window, whose records this JVM reads
    assert "-XX:Tier4InvocationThreshold=50000" in told["options"]


@pytest.mark.usefixtures("with_archive")
@pytest.mark.parametrize("where", ["conf", "properties_file", "JDK_JAVA_OPTIONS"])
def test_an_option_of_the_users_about_archives_switches_ours_off(
    launch: Callable[..., dict[str, Any]], tmp_path: Path, where: str
) -> None:
    option = "-Xshare:auto"  # of -XX:ArchiveClassesAtExit beside ours a JVM dies, and it takes half a minute
    properties = tmp_path / "spark.conf"
    properties.write_text(f"spark.driver.extraJavaOptions {option}\n")
    ways: dict[str, Any] = {
        "conf": {"conf": {"spark.driver.extraJavaOptions": option}},
        "properties_file": {"properties_file": str(properties)},
    }
    told = launch(**ways.get(where, {"env_vars": {where: option}}))
    assert not told["archive"]
    assert [option for option in told["options"] if "Archive" in option] == []
    assert QUICK in told["options"]


@pytest.mark.usefixtures("with_archive")
def test_a_driver_in_client_mode_has_both_and_its_executors_have_nothing_of_it(
    launch: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    spark_standalone: SparkStandalone,
    tmp_path: Path,
) -> None:
    (tmp_path / "hadoop").mkdir()
    (tmp_path / "hadoop" / "core-site.xml").write_text("<configuration/>")
    connection = {"conn_type": "spark", "host": spark_standalone.url, "extra": {"deploy-mode": "client"}}
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(connection))
    told = launch(
        "with a session",
        conn_id="cluster",
        env_vars={"HADOOP_CONF_DIR": str(tmp_path / "hadoop")},
        # Executors start cheaply by their environment, so their commands have only the options of the operator.
        conf={"spark.executorEnv.JDK_JAVA_OPTIONS": f"{QUICK} {CHEAP}"},
    )
    assert told["archive"]
    assert QUICK in told["options"]
    assert told["executors"]
    assert [line for line in told["executors"] if ".jsa" in line or QUICK in line] == []


@pytest.mark.slow
def test_without_an_archive_a_launch_is_as_it_was(
    launch: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("AIRFLOW__KAFKA_OFFSETS__CACHE_FOLDER", str(tmp_path / "file" / "cache"))
    told = launch(connector=None)  # its jars would have to be in this folder
    assert not told["archive"]
    assert QUICK in told["options"]
    assert [option for option in told["options"] if "Archive" in option] == []


@pytest.fixture
def worker(tmp_path: Path, kafka: KafkaBroker, topic: str) -> Iterator[Worker]:
    no_connect: Any = SimpleNamespace(port=1)
    worker = Worker(tmp_path, kafka, no_connect, topic)
    yield worker
    worker.kill()


@pytest.mark.usefixtures("with_archive", "spark_connector")
def test_a_session_of_the_tasks_own_starts_the_same_way_and_leaves_no_trace_in_the_process(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dof.worker=1")
    conf = {**LIGHT, "spark.driver.extraJavaOptions": "-Dof.conf=1"}
    said = worker.run({"function": "say_how_it_started", "conn_id": None, "conf": conf})
    told = json.loads(said.partition("RETURNED ")[2].splitlines()[0])
    assert told["archive"]
    options = told["options"]
    assert options.index(QUICK) < options.index("-Dof.worker=1") < options.index("-Dof.conf=1")
    assert told["environment"] == {"SPARK_SUBMIT_OPTS": "-Dof.worker=1"}
