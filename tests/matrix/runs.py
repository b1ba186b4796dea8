"""Run the job of the matrix on a Spark, with records in a real broker, and return what came of its steps."""

from __future__ import annotations

import json
import os
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.spark.handoff import CONF_WINDOW
from airflow_kafka_offsets.spark.shipping import write_zip
from tests.lab.jars import jdbc_jars
from tests.lab.patience import run_to_end
from tests.lab.processes import LOOPBACK
from tests.lab.spark_connect import SparkConnect
from tests.lab.tables import FEW_RECORDS, table_settings
from tests.lab.topics import abort_transaction, commit_transaction, create_topic, delete_records, produce
from tests.matrix.job import CONNECT, FILES, JDBC
from tests.spark.conftest import handoff
from tests.spark.jdbc import Database

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.lab.databases import Postgres
    from tests.lab.kafka import KafkaBroker
    from tests.lab.sparks import OtherSpark

JOB = Path(__file__).with_name("job.py")
FORGOTTEN = "the job ends with exit code 1, so that its window is not committed: its window is not finished: IncompleteReadError"
"""What the guard says of the check that the job forgets; spark-submit puts it into stdout."""


class MatrixError(Exception):
    """The job did not come to its end; the message is the end of what it said."""


def run_job(
    spark: OtherSpark, kafka: KafkaBroker, postgres: Postgres, folder: Path, python: str = sys.executable
) -> dict[str, str]:
    """Run the job by the spark-submit of a Spark.

    Args:
        spark: The Spark.
        kafka: The broker; the job gets topics of its own.
        postgres: The database; the job gets a table of its own.
        folder: An empty one.
        python: The program that runs the driver.

    Returns:
        For each step that this Spark takes, `PASSED` or what went wrong.
    """
    told = _told(kafka, postgres, folder, has=[FILES, JDBC, *spark.tables])
    conf = {
        CONF_WINDOW: told["window"],
        "spark.jars": ",".join(map(str, [*spark.jars(), *jdbc_jars()])),
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        **table_settings(folder / "iceberg"),
        **FEW_RECORDS,
    }
    command = [
        spark.home / "bin" / "spark-submit",
        *("--master", "local[2]"),
        *(part for name, value in conf.items() for part in ("--conf", f"{name}={value}")),
        *("--py-files", write_zip(folder)),
    ]
    return _run(command, told, folder, {"SPARK_HOME": str(spark.home), "PYSPARK_PYTHON": python})


def run_over_connect(spark: OtherSpark, kafka: KafkaBroker, postgres: Postgres, folder: Path) -> dict[str, str]:
    """Run the job as a client of a Spark Connect server of a Spark; see `run_job`."""
    told = _told(kafka, postgres, folder, has=[CONNECT, *spark.tables])
    with SparkConnect(folder / "server", spark=spark, conf=FEW_RECORDS) as server:
        path = ":".join(map(str, [write_zip(folder), *spark.python_of_clients]))
        return _run([sys.executable], {**told, "remote": server.url}, folder, {"PYTHONPATH": path})


def _run(
    command: Sequence[Any], told: Mapping[str, Any], folder: Path, environment: Mapping[str, str]
) -> dict[str, str]:
    """Run the job, and return what came of its steps."""
    (folder / "told.json").write_text(json.dumps(told))
    done = run_to_end([*command, JOB, folder / "told.json"], cwd=folder, env={**os.environ, **environment}, timeout=480)
    outcomes = Path(told["outcomes"])
    if not outcomes.exists() or done.returncode != 1 or FORGOTTEN not in done.stdout + done.stderr:
        raise MatrixError(f"it ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}")
    found: dict[str, str] = json.loads(outcomes.read_text())
    return found


def _told(kafka: KafkaBroker, postgres: Postgres, folder: Path, *, has: list[str]) -> dict[str, Any]:
    """Fill topics, and return what the job is told.

    Args:
        kafka: The broker.
        postgres: The database.
        folder: Where the job writes.
        has: What there is, so that the steps about it are taken.
    """
    topics = _topics(kafka)
    plain = topics["plain"]
    window = handoff(
        {plain["name"]: plain["ranges"]},
        options={"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafkaConsumer.pollTimeoutMs": "5000"},
        report=str(folder / "report.json"),
    )
    database = Database(postgres.url)
    lake = folder / "lake"
    lake.mkdir()
    return {
        "has": has,
        "window": window.to_json(),
        "topics": topics,
        "folder": str(lake),
        "outcomes": str(folder / "outcomes.json"),
        "database": {
            "url": database.jdbc,
            "properties": database.properties,
            "table": f"matrix_{uuid.uuid4().hex[:12]}",
        },
    }


def _topics(kafka: KafkaBroker) -> dict[str, dict[str, Any]]:
    names = {what: f"matrix-{what}-{uuid.uuid4().hex[:12]}" for what in ("plain", "large", "gaps", "lost")}
    ranges = {
        "plain": {0: (0, 6), 1: (0, 4)},
        "large": {0: (0, 900)},
        # Three records, a marker, two records that are aborted, a marker.
        "gaps": {0: (0, 7)},
        "lost": {0: (0, 6)},
    }
    for what, name in names.items():
        create_topic(kafka, name, len(ranges[what]))
    produce(kafka, names["plain"], 6)
    produce(kafka, names["plain"], 4, partition=1, first=6)
    produce(kafka, names["large"], 900)
    commit_transaction(kafka, names["gaps"], 3)
    abort_transaction(kafka, names["gaps"], 2)
    produce(kafka, names["lost"], 6)
    delete_records(kafka, names["lost"], before=3)
    return {what: {"name": name, "ranges": ranges[what]} for what, name in names.items()}
