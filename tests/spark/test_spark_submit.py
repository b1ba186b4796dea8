"""The job side where it is used: under spark-submit, from the shipped zip, with Kafka behind it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_kafka_offsets.spark.connector import connector_package
from airflow_kafka_offsets.spark.handoff import CONF_WINDOW, CONF_WINDOW_FILE
from airflow_kafka_offsets.spark.shipping import write_zip
from tests.lab.jars import spark_connector_jars
from tests.lab.topics import abort_transaction, create_topic, produce
from tests.lab.waiting import run_to_end
from tests.spark.conftest import handoff

if TYPE_CHECKING:
    from tests.lab.kafka import KafkaBroker

pytestmark = pytest.mark.usefixtures("spark_connector")


def submit(directory: Path, code: str, *arguments: str, by_name: bool = False) -> subprocess.CompletedProcess[str]:
    job = directory / "job.py"
    job.write_text(
        "from pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\n" + textwrap.dedent(code)
    )
    programs = Path(sys.executable).parent
    files = ",".join(map(str, spark_connector_jars()))
    # By name Spark looks them up in Ivy, for four seconds of the CPU.
    connector = {"spark.jars.packages": connector_package()} if by_name else {"spark.jars": files}
    options = {
        **connector,
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
    }
    conf = [part for name, value in options.items() for part in ("--conf", f"{name}={value}")]
    return run_to_end(
        [programs / "spark-submit", "--master", "local[2]", *conf, "--py-files", write_zip(directory), *arguments, job],
        cwd=directory,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
    )


def test_a_job_of_three_lines(kafka: KafkaBroker, topic: str, tmp_path: Path) -> None:
    create_topic(kafka, topic)
    produce(kafka, topic, 10)
    given = _handoff(kafka, topic, report=str(tmp_path / "report.json"))
    code = f"""
        from airflow_kafka_offsets.spark import current_window
        window = current_window(spark)
        window.write_parquet(window.read().selectExpr("cast(value as string) as json"), "{tmp_path}/lake")

        import airflow_kafka_offsets
        print("from", airflow_kafka_offsets.__file__)
        print("left", spark.read.parquet("{tmp_path}/lake").count())
        try:
            import airflow_kafka_offsets.core
        except ImportError:
            print("no core here")
    """
    job = submit(tmp_path, code, "--conf", f"{CONF_WINDOW}={given.to_json()}", by_name=True)
    assert job.returncode == 0, job.stderr
    assert "airflow_kafka_offsets_spark.zip/airflow_kafka_offsets/__init__.py" in job.stdout
    assert "no core here" in job.stdout
    assert "left 7" in job.stdout
    assert json.loads((tmp_path / "report.json").read_text()) == {
        "window_id": "lake.orders-000012",
        "records": 7,
        "counts": {topic: {"0": 7}},
        "written": True,
        "bad": None,
    }


def test_a_job_that_reads_a_part_and_forgets_the_check_ends_red(kafka: KafkaBroker, topic: str, tmp_path: Path) -> None:
    create_topic(kafka, topic)
    produce(kafka, topic, 10)
    (tmp_path / "window.json").write_text(_handoff(kafka, topic, report=str(tmp_path / "report.json")).to_json())
    code = """
        from airflow_kafka_offsets.spark import current_window
        current_window(spark).read().limit(2).write.format("noop").mode("overwrite").save()
        spark.stop()
        print("done")
    """
    shipped = ["--files", str(tmp_path / "window.json"), "--conf", f"{CONF_WINDOW_FILE}=window.json"]
    job = submit(tmp_path, code, *shipped)
    assert "done" in job.stdout, job.stderr
    assert job.returncode == 1
    # spark-submit joins what Python writes to stderr with its stdout.
    assert "2 of 7 planned offsets were read. Read" in job.stdout
    assert f"\n    {topic}-0: 2 of 7\n" in job.stdout
    said = json.loads((tmp_path / "report.json").read_text())
    assert (said["records"], said["written"]) == (None, None), "it took its window, and that is all that is known"


@pytest.mark.parametrize("is_checked", [False, True])
def test_a_job_that_found_no_record_where_that_can_be_and_stopped_spark_must_have_checked_it(
    kafka: KafkaBroker, topic: str, tmp_path: Path, is_checked: bool
) -> None:
    create_topic(kafka, topic)
    abort_transaction(kafka, topic, 9)
    given = _handoff(kafka, topic, expect_gaps=True)
    code = f"""
        from airflow_kafka_offsets.spark import current_window
        window = current_window(spark)
        window.read().write.format("noop").mode("overwrite").save()
        if {is_checked}:
            window.check()
        spark.stop()
    """
    job = submit(tmp_path, code, "--conf", f"{CONF_WINDOW}={given.to_json()}")
    assert job.returncode == (0 if is_checked else 1), job.stdout
    assert ("Call window.check() before spark.stop()" in job.stdout) is not is_checked


def _handoff(kafka: KafkaBroker, topic: str, **values: Any) -> Any:
    return handoff({topic: {0: (2, 9)}}, options={"kafka.bootstrap.servers": kafka.bootstrap_servers}, **values)
