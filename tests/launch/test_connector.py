"""The arguments of a launch for Spark's Kafka connector, and a launch of each kind without a network."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_kafka_offsets import KafkaGroup, KafkaSparkOperator, KafkaSparkSubmitOperator
from airflow_kafka_offsets.core.errors import ConnectorUnavailableError
from airflow_kafka_offsets.core.run import Try
from airflow_kafka_offsets.core.window import Claim
from airflow_kafka_offsets.launch.session import session_settings
from airflow_kafka_offsets.launch.submit_hook import LaunchHook
from airflow_kafka_offsets.service.plan import Planned
from airflow_kafka_offsets.spark.connector import avro_of, connector_package, folder_name
from airflow_kafka_offsets.wiring.machine.connector import for_session
from tests.lab.java import pyspark_home
from tests.lab.registry import Registry
from tests.lab.topics import create_topic, produce_bytes
from tests.launch.conftest import launch_of
from tests.launch.test_job_files import window_of
from tests.operators.test_command_line import NAME
from tests.operators.test_large_windows import run_operator
from tests.spark.avro import encoded, framed, record
from tests.task.airflow import context_of

if TYPE_CHECKING:
    from tests.lab.kafka import KafkaBroker

FITS = "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.6"
MINE = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
LZ4 = "lz4-java-1.8.0.jar"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a Spark which is not that of pyspark; the connector's jars are in the cache folder."""
    home = tmp_path / "spark"
    for folder in ("jars", "conf"):
        (home / folder).mkdir(parents=True)
    for jar in ("spark-core_2.12-3.5.6.jar", LZ4):
        (home / "jars" / jar).touch()
    kept = tmp_path / "cache" / "jars" / folder_name(FITS)
    kept.mkdir(parents=True)
    (kept / "connector.jar").write_bytes(b"abc")
    (kept / f"org.lz4_{LZ4}").write_bytes(b"ab")
    monkeypatch.setenv("AIRFLOW__KAFKA_OFFSETS__CACHE_FOLDER", str(tmp_path / "cache"))
    monkeypatch.setenv("SPARK_HOME", str(home))
    for name, host, mode in (("local", "local[2]", "client"), ("yarn", "yarn", "client"), ("far", "yarn", "cluster")):
        fields = {"conn_type": "spark", "host": host, "extra": {"deploy-mode": mode}}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(fields))
    return home


@pytest.fixture
def files(home: Path) -> str:
    """The jars of the argument, as Spark takes them, without those that it has."""
    return str(home.parent / "cache" / "jars" / folder_name(FITS) / "connector.jar")


def packages_and_jars(folder: Path, **values: Any) -> tuple[str | None, str | None]:
    """Return the packages and the jars on the command line."""
    group = KafkaGroup("g", topics=["orders"])
    given = {"application": "job.py", "conn_id": "local", "ship": False, "group": group, **values}
    operator = KafkaSparkSubmitOperator(task_id="load", **given)
    launch = launch_of(operator).for_window(Planned(window_of(3), False, "new"), NAME, 1, folder)
    argv = LaunchHook(launch, lambda: None)._build_spark_submit_command("job.py")
    packages, jars = (argv[argv.index(flag) + 1] if flag in argv else None for flag in ("--packages", "--jars"))
    return packages, jars


def test_in_client_mode_the_connector_of_the_spark_that_is_there_is_given_as_files(
    home: Path, files: str, tmp_path: Path
) -> None:
    assert packages_and_jars(tmp_path) == (None, files)
    assert packages_and_jars(tmp_path, conn_id="yarn") == (None, files)
    assert packages_and_jars(tmp_path, jars="/mine.jar") == (None, f"/mine.jar,{files}")


def test_jars_of_properties_are_not_lost_to_ours(home: Path, files: str, tmp_path: Path) -> None:
    (home / "conf" / "spark-defaults.conf").write_text("spark.jars  /for/all.jar\n")
    assert packages_and_jars(tmp_path) == (None, f"/for/all.jar,{files}")
    assert packages_and_jars(tmp_path, conf={"spark.jars": "/of/conf.jar"}) == (None, f"/of/conf.jar,{files}")
    assert packages_and_jars(tmp_path, jars="/mine.jar") == (None, f"/mine.jar,{files}")
    (tmp_path / "mine.conf").write_text("spark.ui.enabled=false")
    assert packages_and_jars(tmp_path, properties_file=str(tmp_path / "mine.conf")) == (None, files)


def test_where_ivy_is_asked_anyway_it_resolves_the_connector_too(home: Path, tmp_path: Path) -> None:
    assert packages_and_jars(tmp_path, packages="a:b:1") == (f"a:b:1,{FITS}", None)
    assert packages_and_jars(tmp_path, conf={"spark.jars.packages": "a:b:1"}) == (f"a:b:1,{FITS}", None)
    assert packages_and_jars(tmp_path, exclude_packages="a:b") == (FITS, None)


def test_in_cluster_mode_it_is_a_package_as_ever(home: Path, tmp_path: Path) -> None:
    (home / "conf" / "spark-defaults.conf").write_text("spark.jars /for/all.jar\nspark.jars.packages a:b:1")
    # The argument replaces the property, and would take its packages away.
    assert packages_and_jars(tmp_path, conn_id="far") == (f"a:b:1,{FITS}", None)
    assert packages_and_jars(tmp_path, conn_id="far", conf={"spark.jars.packages": "c:d:1"}) == (f"c:d:1,{FITS}", None)
    assert packages_and_jars(tmp_path, conn_id="far", conf={"spark.jars.packages": MINE}) == (None, None)
    assert packages_and_jars(tmp_path, conn_id="far", connector=MINE) == (f"a:b:1,{MINE}", None)
    assert packages_and_jars(tmp_path, conn_id="far", packages="a:b:2", jars="/mine.jar") == (
        f"a:b:2,{FITS}",
        "/mine.jar",
    )
    (home / "jars" / "spark-sql-kafka-0-10_2.12-3.5.6.jar").touch()
    assert packages_and_jars(tmp_path, conn_id="far") == (f"a:b:1,{FITS}", None)


def test_what_the_user_says_about_it_counts(home: Path, tmp_path: Path) -> None:
    assert packages_and_jars(tmp_path, connector=None) == (None, None)
    assert packages_and_jars(tmp_path, connector=MINE) == (MINE, None)
    assert packages_and_jars(tmp_path, packages=MINE) == (MINE, None)
    assert packages_and_jars(tmp_path, jars="/spark-sql-kafka-0-10_2.13-4.0.0.jar") == (
        None,
        "/spark-sql-kafka-0-10_2.13-4.0.0.jar",
    )
    assert packages_and_jars(tmp_path, conf={"spark.jars.packages": MINE}) == (None, None)


def test_a_spark_that_has_it_is_given_nothing(home: Path, tmp_path: Path) -> None:
    (home / "jars" / "spark-sql-kafka-0-10_2.12-3.5.6.jar").touch()
    assert packages_and_jars(tmp_path) == (None, None)
    assert packages_and_jars(tmp_path, jars="/mine.jar", packages="a:b:1") == ("a:b:1", "/mine.jar")


def test_spark_is_looked_for_where_spark_submit_gets_its_environment(
    home: Path, files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "nowhere"))
    assert packages_and_jars(tmp_path) == (connector_package(), None)  # no Spark there: the rule of before
    assert packages_and_jars(tmp_path, env_vars={"SPARK_HOME": str(home)}) == (None, files)


def session(monkeypatch: pytest.MonkeyPatch, **values: Any) -> dict[str, str]:
    """Return the settings of a session of the task's own."""
    given = {"group": KafkaGroup("g", topics=["t"]), **values}
    operator = KafkaSparkOperator(task_id="load", python_callable=lambda window: None, **given)
    settings = session_settings(None, operator.config_kwargs, "d-load")
    return for_session(operator.connector, settings, avro=operator.group.registry is not None)


def test_a_session_of_the_tasks_own_is_given_files_too(home: Path, files: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert session(monkeypatch) == {"spark.jars": files}
    (home / "conf" / "spark-defaults.conf").write_text("spark.jars /for/all.jar")
    assert session(monkeypatch) == {"spark.jars": f"/for/all.jar,{files}"}
    assert session(monkeypatch, config_kwargs={"spark.jars": "/mine.jar"}) == {"spark.jars": f"/mine.jar,{files}"}
    (home / "jars" / "spark-sql-kafka-0-10_2.12-3.5.6.jar").touch()
    assert session(monkeypatch) == {}


AVRO = "org.apache.spark:spark-avro_2.12:3.5.6"


@pytest.fixture
def avro(home: Path) -> str:
    """The jar of Spark's Avro, as it is given."""
    kept = home.parent / "cache" / "jars" / folder_name(AVRO)
    kept.mkdir()
    (kept / "avro.jar").write_bytes(b"a")
    return str(kept / "avro.jar")


def test_a_group_with_a_registry_gets_sparks_avro_in_the_same_way(
    home: Path, files: str, avro: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoding: dict[str, Any] = {"group": KafkaGroup("g", topics=["orders"], registry="registry")}
    assert packages_and_jars(tmp_path, **decoding) == (None, f"{files},{avro}")
    assert packages_and_jars(tmp_path, packages="a:b:1", **decoding) == (f"a:b:1,{FITS},{AVRO}", None)
    assert packages_and_jars(tmp_path, conn_id="far", **decoding) == (f"{FITS},{AVRO}", None)
    mine, its_avro = MINE, "org.apache.spark:spark-avro_2.13:4.0.0"
    assert packages_and_jars(tmp_path, connector=mine, **decoding) == (f"{mine},{its_avro}", None)
    assert packages_and_jars(tmp_path, connector="a:b-spark-sql-kafka:1", **decoding) == (
        f"a:b-spark-sql-kafka:1,{AVRO}",
        None,
    )
    assert packages_and_jars(tmp_path, packages=f"{MINE},{its_avro}", **decoding) == (f"{MINE},{its_avro}", None)
    assert packages_and_jars(tmp_path, jars="/spark-sql-kafka-0-10.jar", **decoding) == (
        None,
        f"/spark-sql-kafka-0-10.jar,{avro}",
    )
    assert packages_and_jars(tmp_path, connector=None, **decoding) == (None, None)
    assert session(monkeypatch, **decoding) == {"spark.jars": f"{files},{avro}"}
    (home / "jars" / "spark-avro_2.12-3.5.6.jar").touch()
    assert packages_and_jars(tmp_path, **decoding) == (None, files)
    assert session(monkeypatch, **decoding) == {"spark.jars": files}


def test_the_scala_of_the_spark_that_is_there_decides(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "jars" / "spark-core_2.12-3.5.6.jar").rename(home / "jars" / "spark-core_2.13-3.5.6.jar")
    fits, its_avro = FITS.replace("_2.12", "_2.13"), AVRO.replace("_2.12", "_2.13")
    expected = []
    for package in (fits, its_avro):
        kept = home.parent / "cache" / "jars" / folder_name(package)
        kept.mkdir()
        (kept / "of-scala-13.jar").write_bytes(b"a")
        expected.append(str(kept / "of-scala-13.jar"))
    decoding: dict[str, Any] = {"group": KafkaGroup("g", topics=["orders"], registry="registry")}
    assert packages_and_jars(tmp_path, **decoding) == (None, ",".join(expected))
    assert packages_and_jars(tmp_path, conn_id="far", **decoding) == (f"{fits},{its_avro}", None)
    assert session(monkeypatch, **decoding) == {"spark.jars": ",".join(expected)}


# Nothing listens on port 9: neither Ivy nor anything else of a JVM reaches a repository.
_CLOSED = " ".join(f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort=9" for scheme in ("http", "https"))


@pytest.fixture
def closed_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """No JVM of this test reaches a repository."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"{_CLOSED} -XX:TieredStopAtLevel=1")


@pytest.fixture
def spark_with_connector(tmp_path: Path, launch_jars: Path) -> Path:
    """The home of a real Spark, with the connector among its jars: links to the files of pyspark and of the cache folder."""
    home = tmp_path / "spark-with-connector"
    (home / "jars").mkdir(parents=True)
    (home / "bin").symlink_to(pyspark_home() / "bin")
    packages = (connector_package(), avro_of(connector_package()))
    kept = [jar for package in packages for jar in launch_jars.glob(f"jars/{folder_name(package)}/*.jar")]
    for jar in [*pyspark_home().glob("jars/*.jar"), *kept]:
        link = home / "jars" / jar.name.removeprefix("org.apache.spark_")
        if not link.exists():
            link.symlink_to(jar)
    return home


@pytest.mark.usefixtures("closed_network")
@pytest.mark.parametrize("is_in_spark", [False, True])
def test_a_launch_without_a_network_takes_the_jars_that_are_there(
    is_in_spark: bool,
    kafka: KafkaBroker,
    topic: str,
    launch_jars: Path,
    spark_with_connector: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    import pyarrow.dataset

    monkeypatch.setenv("AIRFLOW__KAFKA_OFFSETS__CACHE_FOLDER", str(launch_jars))
    if is_in_spark:
        monkeypatch.setenv("SPARK_HOME", str(spark_with_connector))
        monkeypatch.setenv("AIRFLOW__KAFKA_OFFSETS__CACHE_FOLDER", str(tmp_path / "empty"))
    create_topic(kafka, topic)
    with Registry("me:hunter2") as registry:
        number = registry.register(f"{topic}-value", record("Order", ("id", "long")))
        produce_bytes(kafka, topic, [framed(number, encoded(n)) for n in range(10)])
        monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", registry.connection(login="me", password="hunter2"))
        read = {"read": "value='avro'", "columns": "value.id", "registry": "registry"}
        result = run_operator(kafka, [topic], tmp_path, monkeypatch, **read)
    assert (result["records"], result["bad"]) == (10, None)
    rows = pyarrow.dataset.dataset(tmp_path / "lake", exclude_invalid_files=True).to_table(columns=["id"])
    assert sorted(rows["id"].to_pylist()) == list(range(10))
    said, _ = capfd.readouterr()
    assert "hunter2" not in said
    assert b"hunter2" not in (tmp_path / "kafka_offsets.db").read_bytes()
    assert (f"--jars {launch_jars}/jars/{folder_name(connector_package())}/" in said) is not is_in_spark
    assert (f"{launch_jars}/jars/{folder_name(avro_of(connector_package()))}/" in said) is not is_in_spark
    assert ("--jars" in said) is not is_in_spark
    assert "Running Spark version" in said
    assert "--packages" not in said
    assert ":: resolving dependencies" not in said


def run_without_kafka(operator: KafkaSparkSubmitOperator | KafkaSparkOperator) -> None:
    """Run a task whose Kafka no one could ask."""
    operator.execute(context_of(Claim("d", "r", "load"), Try(1, 0)))


@pytest.mark.usefixtures("closed_network", "spark_connector")
@pytest.mark.parametrize("kind", ["submitted", "own session"])
def test_without_jars_and_network_the_error_comes_before_anything_is_planned(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.setenv("AIRFLOW__KAFKA_OFFSETS__CACHE_FOLDER", str(tmp_path / "cache"))
    monkeypatch.setenv(
        "AIRFLOW_CONN_KAFKA_DEFAULT", '{"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:9"}}'
    )
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]"}')
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    group = KafkaGroup("g", topics=["t"], kafka_timeout=1)
    operator: Any = (
        KafkaSparkSubmitOperator(task_id="load", group=group, application=__file__)
        if kind == "submitted"
        else KafkaSparkOperator(task_id="load", group=group, python_callable=lambda window: None)
    )
    with pytest.raises(ConnectorUnavailableError) as caught:
        run_without_kafka(operator)
    said = str(caught.value)
    assert connector_package() in said
    assert f"into {tmp_path}/cache/jars/{folder_name(connector_package())}" in said
    assert f"kafka-offsets jars --spark-home {pyspark_home()}" in said
    assert "UNRESOLVED DEPENDENCIES" in said
    assert not (tmp_path / "kafka_offsets.db").exists()
    assert list((tmp_path / "cache" / "jars").glob("[!.]*")) == []
