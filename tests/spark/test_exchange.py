"""A job of another launcher: it takes its window from the exchange, and reports there. With a real Kafka, a real ledger and a real Spark."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import sys
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from airflow_kafka_offsets import CommitWindowOperator, KafkaGroup, PlanWindowOperator, wiring
from airflow_kafka_offsets.core.errors import NoReportError
from airflow_kafka_offsets.core.run import Try
from airflow_kafka_offsets.core.window import State
from airflow_kafka_offsets.spark import KafkaWindow, current_window, exit_code, reports
from airflow_kafka_offsets.spark.errors import HandoffError, IncompleteReadError, ReportError, WriteOptionError
from airflow_kafka_offsets.spark.handoff import CONF_WINDOW_URI
from tests.core.examples import claim
from tests.docs.test_docs import ROOT, blocks
from tests.lab.tables import CATALOG
from tests.lab.topics import create_topic, produce
from tests.lab.waiting import run_to_end
from tests.task.airflow import context_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.lab.kafka import KafkaBroker

JOB = ROOT / "dags" / "launchers" / "jobs" / "orders.py"
NOTEBOOK = JOB.with_name("orders_notebook.py")
EXAMPLE = ROOT / "dags" / "launchers" / "databricks.py"
PAGE = ROOT / "docs" / "launchers" / "databricks.md"
DRIVER = Path(__file__).with_name("databricks_driver.py")
PROGRAMS = Path(sys.executable).parent


@dataclass
class Around:
    """A plan task and a commit task, with a folder between them and the job."""

    group: KafkaGroup
    folder: Path

    def plan(self) -> dict[str, Any]:
        operator = PlanWindowOperator(task_id="plan", group=self.group, exchange=f"file://{self.folder}")
        result: dict[str, Any] = operator.execute(_context("plan"))
        return result

    def commit(self, given: Any) -> Any:
        return CommitWindowOperator(task_id="commit", window=given).execute(_context("commit"))

    def state(self, given: Any) -> State:
        return wiring.open_ledger().window(given["window_id"]).window.state

    def folders(self, given: Any) -> list[Path]:
        """Return the folders of all reports, in the order in which jobs took the window."""
        return sorted(Path(given["exchange"].removeprefix("file://"), "reports").iterdir())

    def reports(self, given: Any) -> list[dict[str, Any]]:
        """Return the last report of each job, in the order in which the jobs took the window."""
        last = {path.stem: path for path in self.folders(given)}
        return [json.loads(next(path.glob("part-*")).read_text()) for path in last.values()]


def _context(task_id: str) -> Any:
    return context_of(claim("run", task_id), Try(1, 0))


@pytest.fixture
def around(kafka: KafkaBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Around]:
    """Return the tasks around a job on a topic with ten records in two partitions, and their own ledger."""
    create_topic(kafka, topic, 2)
    produce(kafka, topic, 6, partition=0)
    produce(kafka, topic, 4, partition=1, first=6)
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    (tmp_path / "airflow").mkdir()
    connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": kafka.bootstrap_servers}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(connection))
    yield Around(KafkaGroup(f"lake.{topic}", topics=[topic]), tmp_path / "exchange")
    exit_code.disarm()


def test_the_job_of_the_examples_reports_what_it_read_and_then_its_window_is_committed(
    around: Around, spark: SparkSession, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = around.plan()
    table = f"{CATALOG}.exchange.t{uuid.uuid4().hex[:8]}"
    with pytest.raises(NoReportError, match="no job has reported"):
        around.commit(given)
    monkeypatch.setattr(sys, "argv", [str(JOB), given["exchange"], table])
    runpy.run_path(str(JOB), run_name="__main__")
    assert sorted(int(row.json) for row in spark.table(table).collect()) == list(range(10))
    [report] = around.reports(given)
    assert report["application"] == spark.sparkContext.applicationId
    assert (report["window_id"], report["records"], report["written"]) == (given["window_id"], 10, True)
    assert report["counts"] == {topic: {"0": 6, "1": 4}}
    assert around.commit(given)["records"] == 10
    assert around.state(given) is State.COMMITTED


def run_notebook(spark: SparkSession, parameters: dict[str, str]) -> str:
    """Run the cells of the example notebook, and return the value that it exits with.

    The cells have `spark` and `dbutils`, as in each notebook. Only Databricks has `dbutils`: this is the part that the notebook uses.
    """
    said: list[str] = []
    dbutils = SimpleNamespace(
        widgets=SimpleNamespace(get=parameters.__getitem__), notebook=SimpleNamespace(exit=said.append)
    )
    runpy.run_path(str(NOTEBOOK), init_globals={"spark": spark, "dbutils": dbutils}, run_name="__main__")
    [last] = said
    return last


def of_example(key: str) -> str:
    """Return the value of a key that only the wheel's task in the example has."""
    [value] = re.findall(rf'"{key}": "(.+)"', EXAMPLE.read_text())
    return value


def build_wheel(folder: Path) -> Path:
    """Build the wheel of the job in a folder, without a network, as the page of Databricks shows it, and return it."""
    [project], [commands] = blocks(PAGE, "toml"), blocks(PAGE, "sh")
    folder.mkdir()
    (folder / "pyproject.toml").write_text(project)
    shutil.copy(JOB, folder)
    environment = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}", "UV_OFFLINE": "1"}
    done = run_to_end(["bash", "-e", "-c", commands], cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    [wheel] = folder.glob("dist/*.whl")
    return wheel


def install(wheel: Path, site: Path) -> None:
    """Install a wheel into a folder, and nothing that it may require."""
    python = ("--python", sys.executable)
    done = run_to_end([PROGRAMS / "uv", "pip", "install", "--offline", "--no-deps", *python, "--target", site, wheel])
    assert done.returncode == 0, done.stderr


def run_wheel(spark: SparkSession, site: Path, package: str, entry_point: str, *parameters: str) -> Path:
    """Run the entry point of a package in a driver with PySpark and the packages of a folder; return the path of its job side.

    Its Spark is the one of these tests. It has no other packages: `-S` leaves out those of Python's environment.
    """
    at = spark.sparkContext._gateway.gateway_parameters
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    archives = Path(pyspark.__file__).parent.glob("python/lib/*.zip")
    environment = {
        **ours,
        "PYTHONPATH": ":".join(map(str, [site, *archives])),
        "PYSPARK_GATEWAY_PORT": str(at.port),
        "PYSPARK_GATEWAY_SECRET": at.auth_token,
    }
    command = [sys.executable, "-S", "-P", DRIVER, package, entry_point, *parameters]
    done = run_to_end(command, cwd=site, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return Path(done.stdout.splitlines()[-1])


def test_the_notebook_of_the_examples_writes_to_delta_and_reports(
    around: Around, spark: SparkSession, topic: str
) -> None:
    given = around.plan()
    parameters = {
        "exchange": given["exchange"],
        "table": f"spark_catalog.default.notebook_{uuid.uuid4().hex[:8]}",
    }
    assert run_notebook(spark, parameters) == f"{given['window_id']}: 10 records"
    assert is_written_once_to_delta(spark, parameters["table"], given["window_id"])
    with pytest.raises(WriteOptionError, match="a second write would replace the first"):
        run_notebook(spark, parameters)  # by hand, in the session that has run it
    [report] = around.reports(given)
    assert (report["records"], report["written"], report["counts"]) == (10, True, {topic: {"0": 6, "1": 4}})
    assert around.commit(given)["records"] == 10
    assert around.state(given) is State.COMMITTED


def test_the_wheel_of_the_examples_writes_to_delta_and_reports(
    around: Around, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    given = around.plan()
    table = f"spark_catalog.default.wheel_{uuid.uuid4().hex[:8]}"
    wheel, site = build_wheel(tmp_path / "sources"), tmp_path / "site"
    assert wheel.name == Path(of_example("whl")).name
    install(wheel, site)
    named = (of_example("package_name"), of_example("entry_point"))
    assert run_wheel(spark, site, *named, given["exchange"], table).is_relative_to(site)
    assert is_written_once_to_delta(spark, table, given["window_id"])
    [report] = around.reports(given)
    assert (report["records"], report["written"], report["counts"]) == (10, True, {topic: {"0": 6, "1": 4}})
    assert around.commit(given)["records"] == 10
    assert around.state(given) is State.COMMITTED


def is_written_once_to_delta(spark: SparkSession, table: str, window_id: str) -> bool:
    """Whether a table is one of Delta, and has the ten records of the topic once, as those of the window."""
    [detail] = spark.sql(f"DESCRIBE DETAIL {table}").collect()
    rows = sorted((int(row.json), row.window_id) for row in spark.table(table).collect())
    return detail.format == "delta" and rows == [(value, window_id) for value in range(10)]


def test_a_job_that_took_the_window_and_did_not_read_it_holds_the_commit_whatever_was_reported_before(
    around: Around, spark: SparkSession, tmp_path: Path
) -> None:
    given = around.plan()
    first = current_window(spark, given["exchange"])
    first.write_parquet(first.read(), f"{tmp_path}/lake")
    second = KafkaWindow(spark, first._handoff)  # as in the driver of a retry
    second._report()
    assert [report["records"] for report in around.reports(given)] == [10, None]
    with pytest.raises(NoReportError, match="has not reported what it read"):
        around.commit(given)
    second.write_parquet(second.read(), f"{tmp_path}/lake")
    assert around.commit(given)["records"] == 10


def test_a_job_that_took_the_window_later_counts_whatever_its_clock_says(
    around: Around, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = around.plan()
    window = current_window(spark, given["exchange"])
    window.write_parquet(window.read(), f"{tmp_path}/lake")
    yesterday = datetime.now(UTC) - timedelta(days=1)
    monkeypatch.setattr(reports, "_now", lambda: yesterday)
    second = KafkaWindow(spark, window._handoff)
    second._report()
    assert [report["records"] for report in around.reports(given)] == [10, None]
    with pytest.raises(NoReportError, match="has not reported what it read"):
        around.commit(given)
    window._report()  # the first job was not over
    with pytest.raises(NoReportError, match="has not reported what it read"):
        around.commit(given)
    second.write_parquet(second.read(), f"{tmp_path}/lake")
    assert around.commit(given)["records"] == 10


def test_a_job_that_is_stopped_while_it_reports_keeps_its_number(
    around: Around, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = around.plan()
    window = current_window(spark, given["exchange"])
    [taken] = around.folders(given)
    window.write_parquet(window.read(), f"{tmp_path}/lake")
    # A write that was stopped leaves a folder without its rows.
    for file in around.folders(given)[-1].iterdir():
        file.unlink()
    yesterday = datetime.now(UTC) - timedelta(days=1)
    monkeypatch.setattr(reports, "_now", lambda: yesterday)
    second = KafkaWindow(spark, window._handoff)
    second._report()
    assert [path.name.split("-")[0] for path in around.folders(given)] == ["000001", "000001", "000002"]
    assert list(taken.glob("part-*"))
    second.write_parquet(second.read(), f"{tmp_path}/lake")
    assert around.commit(given)["records"] == 10


def test_a_job_that_reads_a_part_reports_nothing_and_one_that_reads_by_its_own_means_counts_again(
    around: Around, spark: SparkSession, tmp_path: Path, topic: str
) -> None:
    given = around.plan()
    window = current_window(spark, given["exchange"])
    with pytest.raises(IncompleteReadError):
        window.write_parquet(window.read().limit(3), f"{tmp_path}/lake")
    with pytest.raises(NoReportError, match="has not reported what it read"):
        around.commit(given)
    window = KafkaWindow(spark, window._handoff)
    assert json.loads(window.starting_offsets) == {topic: {"0": 0, "1": 0}}
    assert json.loads(window.ending_offsets) == {topic: {"0": 6, "1": 4}}
    window.finish()
    with pytest.raises(NoReportError, match="has not reported what it read"):
        around.commit(given)
    window.read()
    window.check(recount=True)
    assert around.commit(given)["records"] == 10


def test_spark_s_conf_may_name_the_folder(around: Around, spark: SparkSession) -> None:
    given = around.plan()
    spark.conf.set(CONF_WINDOW_URI, given["exchange"] + "/")
    try:
        assert current_window(spark).id == given["window_id"]
        assert current_window(spark, given["exchange"]) is current_window(spark)
    finally:
        spark.conf.unset(CONF_WINDOW_URI)
    assert [report["records"] for report in around.reports(given)] == [None], "one session has one report"


def test_an_address_without_a_window_is_an_error_that_says_where_it_comes_from(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(HandoffError, match=r"Can't read file:.*/nowhere/window\.json.*plan task's 'exchange'"):
        current_window(spark, f"file://{tmp_path}/nowhere")
    (tmp_path / "window.json").touch()
    with pytest.raises(HandoffError, match=r"window\.json is empty\. Clear the plan task and the tasks after it"):
        current_window(spark, f"file://{tmp_path}")


def test_a_report_that_can_not_be_written_fails_the_job(
    around: Around, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = around.plan()
    folder = Path(given["exchange"].removeprefix("file://"))
    (folder / "reports").write_text("no folder")
    with pytest.raises(ReportError, match=r"can't report to file:.*Let Spark's user read"):
        current_window(spark, given["exchange"])


def test_a_job_that_stops_spark_first_is_told_to_check_before_that(
    around: Around, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = around.plan()
    window = current_window(spark, given["exchange"])
    # Not really: this Spark is that of all tests here.
    monkeypatch.setattr(reports, "is_stopped", lambda _: True)
    with pytest.raises(ReportError, match=r"Call window\.check\(\) before spark\.stop\(\)"):
        window.write_parquet(window.read(), f"{tmp_path}/lake")
