"""What a launch needs of the machine it starts on, and which files it takes along: looked at before anything is planned."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import pytest
from airflow.providers.apache.spark.hooks import spark_submit
from airflow.sdk import DAG

from airflow_kafka_offsets import (
    CommitWindowOperator,
    KafkaGroup,
    KafkaSparkOperator,
    KafkaSparkSqlOperator,
    KafkaSparkSubmitOperator,
    PlanWindowOperator,
    wiring,
)
from airflow_kafka_offsets.adapters.machine import spark_home
from airflow_kafka_offsets.airflow_versions import AirflowFailException
from airflow_kafka_offsets.core import ending
from airflow_kafka_offsets.core.errors import BadInputError, KafkaUnavailableError
from airflow_kafka_offsets.launch.launch import Launch
from airflow_kafka_offsets.task.dag_files import launch_files
from tests.lab.java import pyspark_home
from tests.lab.topics import create_topic, produce
from tests.launch.test_connector import run_without_kafka
from tests.operators.logs import as_logged
from tests.operators.test_large_windows import run_operator
from tests.versions import needs_task_state

if TYPE_CHECKING:
    from tests.lab.kafka import KafkaBroker

PROGRAMS = Path(sys.executable).parent
INSTALL = r"pip install 'airflow-kafka-offsets\[spark\]'"


@pytest.fixture(autouse=True)
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a worker that has all that a launch needs, but no Kafka."""
    for name in [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_", "JAVA_HOME"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    kafka = {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:9"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(kafka))
    on_connect = {"conn_type": "spark_connect", "host": "sc://127.0.0.1", "port": 9}
    monkeypatch.setenv("AIRFLOW_CONN_CONNECT", json.dumps(on_connect))
    connect_to(monkeypatch, "local[1]")
    monkeypatch.setenv("PATH", f"{PROGRAMS}:{os.environ['PATH']}")
    # The provider refuses Kubernetes without its client; no test here asks a cluster.
    monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)
    (tmp_path / "job.py").touch()
    return tmp_path


def connect_to(monkeypatch: pytest.MonkeyPatch, master: str, **extra: Any) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": master, "extra": extra}))


def launch(folder: Path, **arguments: Any) -> None:
    """Run a task that submits a job."""
    arguments = {"application": str(folder / "job.py"), "connector": None, **arguments}
    group = KafkaGroup("g", topics=["t"], kafka_timeout=1)
    run_without_kafka(KafkaSparkSubmitOperator(task_id="load", group=group, **arguments))


def call(**arguments: Any) -> None:
    """Run a task that calls a function."""
    group = KafkaGroup("g", topics=["t"], kafka_timeout=1)
    arguments = {"connector": None, **arguments}
    run_without_kafka(KafkaSparkOperator(task_id="load", group=group, python_callable=lambda window: None, **arguments))


def refused(folder: Path, message: str, task: Any, *args: Any, **arguments: Any) -> str:
    """Check that a task fails without a retry and plans nothing, and return its message."""
    before = ledger(folder)
    with pytest.raises(AirflowFailException, match=message) as caught:
        task(*args, **arguments)
    assert ledger(folder) == before
    assert len(as_logged(caught.value)) == 1, "one traceback is enough"
    return str(caught.value)


def ledger(folder: Path) -> bytes | None:
    file = folder / "kafka_offsets.db"
    return file.read_bytes() if file.exists() else None


def plans(task: Any, *args: Any, **arguments: Any) -> None:
    """Check that a task gets as far as Kafka."""
    with pytest.raises(KafkaUnavailableError):
        task(*args, **arguments)


def last_words(caplog: pytest.LogCaptureFixture) -> str:
    """Return what the log ends with, before Airflow adds the error."""
    last = caplog.records[-1]
    assert last.levelname == "ERROR"
    return last.getMessage()


def script(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)
    return path


@pytest.mark.slow
def test_a_worker_that_has_all_of_it_plans(worker: Path) -> None:
    plans(launch, worker)
    plans(call)


@pytest.mark.parametrize("task", ["launch", "call", "sql"])
def test_a_task_that_is_refused_before_it_plans_ends_its_log_like_any_other(
    task: str, worker: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if task == "sql":
        operator = KafkaSparkSqlOperator(task_id="load", group=KafkaGroup("g", topics=["t"]), sql="SELECT 1; SELECT 2")
        said = refused(worker, "None of the statements", run_without_kafka, operator)
    else:
        monkeypatch.setenv("JAVA_HOME", str(worker / "jdk"))
        said = refused(worker, "no Java in JAVA_HOME", *((launch, worker) if task == "launch" else (call,)))
    assert last_words(caplog) == (
        "This try got no window of group g\n"
        f"    error: {said}\n"
        "    next: no retry is left: correct the error, then clear this task"
    )


@pytest.mark.parametrize("task", ["launch", "call", "plan"])
@pytest.mark.slow
def test_a_kafka_that_does_not_answer_is_told_once_and_at_the_end(
    task: str, worker: Path, caplog: pytest.LogCaptureFixture
) -> None:
    operator = PlanWindowOperator(task_id="load", group=KafkaGroup("g", topics=["t"], kafka_timeout=1))
    run: Any = {"launch": (launch, worker), "call": (call,), "plan": (run_without_kafka, operator)}[task]
    with pytest.raises(KafkaUnavailableError) as caught:
        run[0](*run[1:])
    assert len(as_logged(caught.value)) == 1
    assert last_words(caplog) == (
        f"This try got no window of group g\n    error: {caught.value}\n    next: no retry is left: clear this task"
    )


def test_an_error_that_nobody_foresaw_keeps_its_causes_and_the_end_of_the_log_never_hides_it(
    worker: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        try:
            raise ZeroDivisionError
        except ZeroDivisionError as exc:
            raise RuntimeError("a canary that someone may have put in here") from exc

    monkeypatch.setattr(wiring, "open_service", fail)
    with pytest.raises(RuntimeError) as caught:
        launch(worker)
    assert [stack.exc_type for stack in as_logged(caught.value)] == ["RuntimeError", "ZeroDivisionError"]
    assert "error: RuntimeError, see below\n" in last_words(caplog)
    assert "canary" not in last_words(caplog)
    monkeypatch.setattr(ending, "end_without_window", fail)
    with pytest.raises(RuntimeError, match="a canary"):
        launch(worker)
    assert "The log can't show what became of" in caplog.text


@pytest.mark.parametrize(
    ("task", "window", "headline"),
    [
        ("launch", "g-000001", "This try did not get window g-000001"),
        ("commit", "g-000001", "This try did not get window g-000001"),
        ("commit", 17, "This try did not get its window"),
    ],
)
def test_a_window_that_can_not_be_given_to_a_task_is_told_at_its_end(
    task: str, window: object, headline: str, worker: Path, caplog: pytest.LogCaptureFixture
) -> None:
    commit: Any = CommitWindowOperator(task_id="load", window=window)
    with pytest.raises(AirflowFailException) as caught:
        launch(worker, window=window) if task == "launch" else run_without_kafka(commit)
    error = str(caught.value).replace("\n", "\n        ")
    assert last_words(caplog).startswith(f"{headline}\n    error: {error}\n")


@pytest.mark.parametrize("master", ["local[1]", "yarn", "spark://m:7077", "k8s://https://api:6443"])
def test_without_spark_submit_a_task_fails_at_once_and_says_what_to_install(
    worker: Path, monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    connect_to(monkeypatch, master, **({"spark-binary": "spark3-submit"} if master == "yarn" else {}))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(sys, "executable", str(worker / "bin" / "python"))  # pip has put no spark-submit beside it
    name = "spark3-submit" if master == "yarn" else "spark-submit"
    refused(worker, f"^No {name} is on the PATH[\\s\\S]*{INSTALL}", launch, worker)
    refused(worker, "^No /opt/spark/bin/spark-submit", launch, worker, spark_binary="/opt/spark/bin/spark-submit")


def test_a_spark_submit_that_is_not_on_the_path_is_named(worker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    refused(worker, rf"with it on the PATH:\n    export PATH={PROGRAMS}:\$PATH", launch, worker)
    found = script(worker / "spark" / "bin" / "spark-submit")
    monkeypatch.setenv("SPARK_HOME", str(worker / "spark"))
    refused(worker, rf"on the PATH, or set spark_binary='{found}':\n    export PATH={found.parent}:", launch, worker)


@pytest.mark.slow
def test_spark_submit_is_looked_for_where_the_launch_will_look(worker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    plans(launch, worker, env_vars={"PATH": f"{PROGRAMS}:/usr/bin:/bin"})
    fields = {"SPARK_HOME": str(pyspark_home()), "PATH": "/usr/bin:/bin"}
    plans(launch, worker, spark_binary=str(PROGRAMS / "spark-submit"), env_vars=fields)


@pytest.mark.parametrize("named_by", ["PATH", "PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"])
@pytest.mark.parametrize("answer", ["exit 1", "no such program"])
@pytest.mark.slow
def test_a_spark_submit_whose_python_knows_no_spark_fails_the_task_at_once(
    named_by: str, answer: str, worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = worker / "other" / "python3"
    if answer != "no such program":
        script(python).write_text(f"#!/bin/sh\n{answer}\n")
    java = Path(shutil.which("java") or "").parent
    monkeypatch.setenv("PATH", f"{worker}/other:{java}" if named_by == "PATH" else f"{PROGRAMS}:{java}")
    if named_by != "PATH":
        monkeypatch.setenv(named_by, str(python))
    binary = str(PROGRAMS / "spark-submit")
    if named_by == "PATH" and answer == "no such program":
        monkeypatch.setenv("PATH", str(script(worker / "java" / "java").parent))
    asked = "python3" if named_by == "PATH" else f"{named_by}={python}"
    said = refused(worker, f"^{binary} looks for Spark with {asked}", launch, worker, spark_binary=binary)
    assert f"export PATH={PROGRAMS}:$PATH" in said
    monkeypatch.setenv("SPARK_HOME", str(pyspark_home()))  # then no one is asked
    plans(launch, worker, spark_binary=binary)


@pytest.mark.slow
def test_a_spark_submit_whose_python_does_not_answer_is_not_refused(
    worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_home, "_SECONDS", 0.2)
    python = script(worker / "python")
    python.write_text("#!/bin/sh\nexec sleep 20\n")
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    plans(launch, worker)


@pytest.mark.slow
def test_a_spark_home_of_another_version_than_pyspark_fails_a_session_at_once(
    worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(spark_of(worker, "3.5.6")))
    said = refused(worker, f"^SPARK_HOME \\({worker}/spark\\) has Spark 3.5.6, and pyspark has version 4.0.", call)
    assert "pip install 'pyspark==3.5.*'" in said
    plans(launch, worker)  # spark-submit gives the job the Python files of its own Spark
    (worker / "spark" / "jars" / "spark-core_2.12-3.5.6.jar").unlink()
    plans(call)


@pytest.mark.parametrize("task", ["launch", "call"])
@pytest.mark.parametrize(
    ("version", "wanted"), [("11.0.2", 17), ("1.8.0_402", 17), ("17.0.1", None), ("25", None), ("", None)]
)
@pytest.mark.slow
def test_a_java_that_is_too_old_fails_the_task_at_once(
    task: str, version: str, wanted: int | None, worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = (launch, worker) if task == "launch" else (call,)
    monkeypatch.setenv("JAVA_HOME", str(java_of(worker, version)))
    if wanted is None:
        plans(*run)
        return
    number = version.removeprefix("1.").partition(".")[0]
    said = refused(worker, f"^Spark 4.0.0 requires Java {wanted} or later, and the worker has Java {number}", *run)
    assert f"({worker}/jdk/bin/java)" in said


@pytest.mark.parametrize(
    ("task", "spark", "java", "says"),
    [
        ("launch", "4.0.0", "25.0.3", "The worker has Java 25 .* Spark 4.0.0 is for Java 17 and 21"),
        ("call", "4.0.0", "25.0.3", "The worker has Java 25 .* Spark 4.0.0 is for Java 17 and 21"),
        ("call", "4.0.0", "21.0.2", None),
        ("launch", "3.5.6", "23", "The worker has Java 23 .* Spark 3.5.6 is for Java 8, 11 and 17"),
        ("launch", "4.2.0", "25.0.3", None),
    ],
)
@pytest.mark.slow
def test_a_java_that_is_too_new_is_warned_of(
    *,
    task: str,
    spark: str,
    java: str,
    says: str | None,
    worker: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_of(worker, java)))
    if spark != "4.0.0":
        monkeypatch.setenv("SPARK_HOME", str(spark_of(worker, spark)))
    plans(*((launch, worker) if task == "launch" else (call,)))
    said = [message for message in caplog.messages if message.startswith("The worker has Java")]
    assert len(said) == (says is not None)
    assert all(re.match(says or "", message) for message in said)


@pytest.mark.parametrize(("version", "is_enough"), [("1.7.0_80", False), ("1.8.0_402", True)])
@pytest.mark.slow
def test_an_older_spark_takes_an_older_java(
    version: str, is_enough: bool, worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_of(worker, version)))
    monkeypatch.setenv("SPARK_HOME", str(spark_of(worker, "3.5.6")))
    if is_enough:
        plans(launch, worker)
    else:
        refused(worker, "^Spark 3.5.6 requires Java 8 or later, and the worker has Java 7", launch, worker)
        script(worker / "spark" / "conf" / "spark-env.sh")  # it may set JAVA_HOME
        plans(launch, worker)


def java_of(folder: Path, version: str) -> Path:
    """Make the home of a Java of this version; an empty version leaves it out of the release file."""
    home = script(folder / "jdk" / "bin" / "java").parents[1]
    (home / "release").write_text(f'JAVA_VERSION="{version}"\n' if version else "")
    return home


def spark_of(folder: Path, version: str) -> Path:
    """Make the home of a Spark whose jars say that it is of this version."""
    home = script(folder / "spark" / "bin" / "spark-class").parents[1]
    (home / "jars").mkdir()
    (home / "jars" / f"spark-core_2.12-{version}.jar").touch()
    return home


@pytest.mark.parametrize("task", ["launch", "call"])
@pytest.mark.slow
def test_without_java_a_task_fails_at_once_and_says_what_to_install(
    task: str, worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = (launch, worker) if task == "launch" else (call,)
    monkeypatch.setenv("JAVA_HOME", str(worker / "jdk"))
    refused(worker, rf"no Java in JAVA_HOME \({worker}/jdk\)", *run)
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(PROGRAMS))
    refused(worker, "no Java on the PATH, and no JAVA_HOME.* Install Java 17", *run)
    script(worker / "jdk" / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(worker / "jdk"))
    plans(*run)


@pytest.mark.parametrize("task", ["launch", "call"])
def test_a_spark_home_without_spark_fails_the_task_at_once(
    task: str, worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(worker / "nothing"))
    refused(worker, f"SPARK_HOME is {worker}/nothing", *((launch, worker) if task == "launch" else (call,)))


@pytest.mark.slow
def test_a_script_that_may_find_java_by_itself_is_not_refused(worker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = script(worker / "bin" / "spark-submit").parent
    monkeypatch.setenv("PATH", str(programs))
    plans(launch, worker)
    script(programs / "spark-class")  # now it is Spark's own
    (worker / "jars").mkdir()
    (worker / "jars" / "spark-core_2.13-4.0.0.jar").touch()
    refused(worker, "no Java on the PATH", launch, worker)
    script(worker / "conf" / "spark-env.sh")
    plans(launch, worker)


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    """Let Python find these distributions before those that are installed."""
    for name, version in versions.items():
        info = folder / "installed" / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(folder / "installed"))


@pytest.mark.slow
def test_a_pyspark_and_a_pyspark_client_of_two_versions_are_refused(
    worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(worker, monkeypatch, pyspark="4.3.0", pyspark_client="4.2.0")
    said = refused(worker, r"^pyspark 4\.3\.0 and pyspark-client 4\.2\.0 ", launch, worker)
    assert "cluster's Spark (if it is not 4.2, put it in both places):" in said
    assert "pip uninstall -y pyspark pyspark-client && pip install 'pyspark==4.2.*' 'pyspark-client==4.2.*'" in said
    refused(worker, r"pyspark 4\.3\.0 and pyspark-client 4\.2\.0 ", call)
    refused(worker, r"pyspark 4\.3\.0 and pyspark-client 4\.2\.0 ", call, conn_id="connect")
    # A Spark of its own has Python files of its own.
    home = script(worker / "spark" / "bin" / "spark-class").parents[1]
    (home / "jars").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(home))
    plans(launch, worker)


@pytest.mark.slow
def test_a_worker_with_pyspark_client_alone_is_a_client_of_spark_connect(
    worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "py4j", None)  # as if it were not there: only pyspark requires it
    refused(worker, f"client of Spark Connect.*spark_connect[\\s\\S]*{INSTALL}", call)
    monkeypatch.setenv("PATH", "")
    plans(call, conn_id="connect")


def test_what_the_spark_provider_does_not_take_is_bad_input(worker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect_to(monkeypatch, "local[1]", **{"spark-home": "/opt/spark"})
    refused(worker, "'spark_default': The `spark-home` extra is not allowed", launch, worker)
    connect_to(monkeypatch, "local[1]", **{"spark-binary": "my-submit"})
    refused(worker, "'spark_default': The spark-binary extra can be one of", launch, worker)


def without_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the Spark provider as an import that failed leaves it: it suppresses the error, and has no such name then."""
    monkeypatch.delattr(spark_submit, "kube_client")


def without_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the Spark provider with what it looks for itself."""
    monkeypatch.setattr(spark_submit, "kube_client", None)


@pytest.mark.parametrize("missing", [without_the_name, without_the_client])
@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_kubernetes_without_its_provider_fails_at_once_and_names_the_package(
    missing: Callable[[pytest.MonkeyPatch], None], mode: str, worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing(monkeypatch)
    connect_to(monkeypatch, "k8s://https://api:6443", **{"deploy-mode": mode, "namespace": "etl"})
    refused(worker, "pip install apache-airflow-providers-cncf-kubernetes", launch, worker)


@pytest.fixture
def dag(worker: Path) -> DAG:
    """Return a DAG of a file in a folder ``dags``, with a job below ``jobs`` and another one in a folder of templates."""
    script(worker / "dags" / "jobs" / "orders.py")
    script(worker / "templates" / "jobs" / "shared.py")
    return dag_at(worker / "dags")


def dag_at(folder: Path) -> DAG:
    dag = DAG("d", schedule=None, template_searchpath=str(folder.parent / "templates"))
    dag.fileloc = str(
        folder / "orders.py"
    )  # as Airflow sets it, from the folder that the DAG's bundle has at the moment
    return dag


def checked(**arguments: Any) -> Launch:
    """Return the launch of a task that has looked at its input."""
    operator = KafkaSparkSubmitOperator(
        task_id="load", group=KafkaGroup("g", topics=["t"]), connector=None, **arguments
    )
    return operator._check_and_prepare()


def test_a_relative_application_lies_beside_the_dag_file_or_where_its_templates_do(
    worker: Path, dag: DAG, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(worker)
    script(worker / "jobs" / "orders.py")  # the worker's own folder does not count
    assert checked(application="jobs/orders.py", dag=dag).application == f"{worker}/dags/jobs/orders.py"
    again = dag_at(worker / "dags")
    assert checked(application="jobs/shared.py", dag=again).application == f"{worker}/templates/jobs/shared.py"


@pytest.mark.parametrize(
    ("master", "mode"),
    [
        ("local[1]", "client"),
        ("spark://m:7077", "client"),
        *((master, mode) for master in ("yarn", "k8s://https://api:6443") for mode in ("client", "cluster")),
    ],
)
def test_a_file_that_is_not_there_fails_the_task_at_once_with_the_paths(
    master: str, mode: str, worker: Path, dag: DAG, monkeypatch: pytest.MonkeyPatch
) -> None:
    rm = {"yarn_resourcemanager_webapp_address": "http://rm:8088"}
    connect_to(monkeypatch, master, **{"deploy-mode": mode, "namespace": "etl", **rm})
    tracked = {
        "yarn_track_via_rm_api": master == "yarn" and mode == "cluster",
        "track_driver_via_k8s_api": master.startswith("k8s") and mode == "cluster",
    }
    looked = f"{worker}/dags/jobs/none.jar, {worker}/templates/jobs/none.jar"
    arguments = {"dag": dag, "application": "jobs/none.jar", "java_class": "com.example.Orders", **tracked}
    refused(
        worker, f"application 'jobs/none.jar' is missing on {platform.node()}: {looked}", launch, worker, **arguments
    )


def test_an_absolute_path_stays_as_it_is_and_has_to_be_there(worker: Path, dag: DAG) -> None:
    job = str(worker / "job.py")
    assert checked(application=job, dag=dag).application == job
    refused(worker, f"application '{worker}/none.py' is missing.*local:{worker}/none.py", launch, worker,
            application=f"{worker}/none.py")  # fmt: skip


@pytest.mark.parametrize(
    "application", ["s3a://jobs/orders.py", "hdfs:///jobs/orders.py", "local:/opt/orders.py", "file:///opt/orders.py",
                    "https://nexus/orders.jar", "spark-internal"],
)  # fmt: skip
def test_what_is_no_path_of_this_machine_is_left_to_spark(application: str) -> None:
    dag = DAG("d", schedule=None)
    assert checked(application=application, dag=dag).application == application


def test_the_other_files_of_a_launch_are_found_the_same_way(worker: Path, dag: DAG) -> None:
    jobs = worker / "dags" / "jobs"
    for name in ("lib.zip", "eu.conf", "a.jar", "venv.tgz", "spark.conf", "me.keytab"):
        script(jobs / name)
    launch = checked(
        dag=dag,
        application="jobs/orders.py",
        py_files="jobs/lib.zip,hdfs:///lib/other.zip",
        files=f"jobs/eu.conf#settings.conf, {worker}/job.py",
        jars="jobs/*.jar,/opt/jars/*.jar",
        archives="jobs/venv.tgz#environment",
        properties_file="jobs/spark.conf",
        keytab="jobs/me.keytab",
    )
    assert launch.arguments["py_files"] == f"{jobs}/lib.zip,hdfs:///lib/other.zip"
    assert launch.arguments["files"] == f"{jobs}/eu.conf#settings.conf,{worker}/job.py"
    assert launch.arguments["jars"] == f"{jobs}/*.jar,/opt/jars/*.jar"
    assert launch.arguments["archives"] == f"{jobs}/venv.tgz#environment"
    assert launch.arguments["properties_file"] == f"{jobs}/spark.conf"
    assert launch.arguments["keytab"] == f"{jobs}/me.keytab"


@pytest.mark.parametrize("name", ["py_files", "files", "jars", "archives", "properties_file", "keytab"])
def test_another_file_that_is_not_there_fails_the_task_at_once(name: str, worker: Path, dag: DAG) -> None:
    missing = {name: "jobs/none.x", "dag": dag}
    refused(
        worker, f"{name} 'jobs/none.x' is missing on {platform.node()}: {worker}/dags/jobs/", launch, worker, **missing
    )


@pytest.mark.parametrize("path", ["jobs/orders.py", "jobs/*.jar"])
def test_a_relative_file_of_a_dag_in_a_zip_can_not_be_there_and_the_error_says_so(tmp_path: Path, path: str) -> None:
    with ZipFile(tmp_path / "dags.zip", "w") as file:
        file.writestr("etl/orders.py", "")
        file.writestr("etl/jobs/orders.py", "")
    with pytest.raises(BadInputError, match="which can't be in a zip"):
        launch_files({"files": path}, [tmp_path / "dags.zip" / "etl"])
    script(tmp_path / "templates" / "jobs" / "orders.py")
    folders = [tmp_path / "dags.zip" / "etl", tmp_path / "templates"]
    assert launch_files({"files": "jobs/orders.py"}, folders) == {"files": f"{tmp_path}/templates/jobs/orders.py"}


def test_a_relative_pattern_with_braces_begins_at_the_folder_and_is_left_to_spark(tmp_path: Path) -> None:
    found = launch_files({"files": "conf/{a}.txt#here"}, [tmp_path])
    assert found == {"files": f"{tmp_path}/conf/{{a}}.txt#here"}


@needs_task_state
@pytest.mark.parametrize(
    ("master", "extra", "leads_to"),
    [
        ("local[4]", {}, r"client mode on local\[4\]"),
        ("spark://127.0.0.1:1", {}, "client mode on spark://127.0.0.1:1"),
        ("local[4]", {"deploy-mode": "cluster"}, r"cluster mode on local\[4\]"),
    ],
)
def test_a_deferrable_task_whose_connection_leads_to_no_driver_on_a_cluster_is_refused(
    worker: Path, monkeypatch: pytest.MonkeyPatch, master: str, extra: dict[str, Any], leads_to: str
) -> None:
    connect_to(monkeypatch, master, **extra)
    says = f"Connection 'spark_default' leads to {leads_to}: set deploy_mode='cluster', or leave deferrable out"
    refused(worker, says, launch, worker, deferrable=True)


def test_in_the_cluster_mode_of_a_standalone_cluster_paths_are_those_of_its_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connect_to(monkeypatch, "spark://127.0.0.1:1", **{"deploy-mode": "cluster"})
    for number, application in enumerate(("jobs/orders.jar", "jobs/orders.py")):
        with pytest.raises(BadInputError, match=r"local:/path/on/the/nodes"):
            checked(dag=DAG(f"d{number}", schedule=None), application=application, ship=False)


def test_a_relative_job_runs_from_the_folder_of_its_dag(
    kafka: KafkaBroker,
    topic: str,
    launch_jars: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW__KAFKA_OFFSETS__CACHE_FOLDER", str(launch_jars))
    create_topic(kafka, topic)
    produce(kafka, topic, 10)
    result = run_operator(kafka, [topic], tmp_path, monkeypatch, application="job.py", dag=dag_at(tmp_path))
    assert result["records"] == 10


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("application", None, "application must be a text that is not empty; got None"),
        ("application_args", "--day 1", "application_args must be a list of arguments, or None; got a str"),
        ("conf", "spark.ssl.keyPassword=canary", "conf must be a mapping, or None; got a str"),
        ("files", ["a.csv", "b.csv"], "files must be a text in UTF-8 without a NUL, or None; got "),
    ],
)
def test_a_field_of_the_launch_is_checked_by_its_type(worker: Path, field: str, value: object, says: str) -> None:
    assert "canary" not in refused(worker, says, launch, worker, **{field: value})


@pytest.mark.slow
def test_a_path_is_taken_as_python_has_it(worker: Path) -> None:
    plans(launch, worker, application=worker / "job.py")
    refused(worker, "application '.*nowhere.py' is missing", launch, worker, application=worker / "nowhere.py")
