"""Run the job of the matrix on a Spark, with records in a real broker, and return what came of its steps."""

from __future__ import annotations

import json
import os
import sys
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy.engine import make_url

import airflow_kafka_offsets
from airflow_kafka_offsets import CommitWindowOperator, KafkaGroup, KafkaSparkSubmitOperator, PlanWindowOperator
from airflow_kafka_offsets.core.run import Try
from airflow_kafka_offsets.core.window import Claim, Outcome, State
from airflow_kafka_offsets.ledger import schema
from airflow_kafka_offsets.ledger.engine import open_engine
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.spark.handoff import Subject
from airflow_kafka_offsets.spark.shipping import write_zip
from tests.lab.cache import PROVIDER_CACHE
from tests.lab.jars import jdbc_jars
from tests.lab.java import SPARK
from tests.lab.processes import LOOPBACK
from tests.lab.registry import Registry
from tests.lab.spark_connect import SparkConnect
from tests.lab.start import start_archive_of
from tests.lab.tables import FEW_RECORDS, SHORT_PLANS, table_settings
from tests.lab.topics import (
    abort_transaction,
    commit_transaction,
    create_topic,
    delete_records,
    produce,
    produce_bytes,
)
from tests.lab.waiting import run_to_end
from tests.matrix.job import CONNECT, PASSED, REPORTED, SUBMIT
from tests.spark.avro import encoded, framed, record
from tests.spark.conftest import handoff
from tests.spark.jdbc import Database
from tests.task.airflow import context_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow.sdk import BaseOperator

    from tests.lab.databases import Postgres
    from tests.lab.kafka import KafkaBroker
    from tests.lab.sparks import OtherSpark

JOB = Path(__file__).with_name("job.py")
FORGOTTEN = "exit code 1, nothing is committed: IncompleteReadError"
"""The guard's error for the check that the job forgets."""
STAGED = "staged"
"""The table that the commit of a window would fill."""
UNKNOWN = 999
"""The id of a schema that the registry does not have."""
READER = {"kafkaConsumer.pollTimeoutMs": "20000"}


class MatrixError(Exception):
    """The job did not come to its end, or what launched it made something else of that end."""


class World:
    """What the job works on: topics, the schemas of one of them, and a database with a ledger.

    Args:
        kafka: The broker.
        postgres: The server of the database.
        folder: An empty one, where the job writes.
        registry: Gets the schemas.
    """

    def __init__(self, kafka: KafkaBroker, postgres: Postgres, folder: Path, registry: Registry) -> None:
        self.group = f"matrix-{uuid.uuid4().hex[:12]}"
        self.kafka, self.folder, self.registry = kafka, folder, registry
        self.database = Database(postgres.create_database(self.group.replace("-", "_")))
        schema.upgrade(open_engine(self.database.url))
        self.database.create(STAGED)
        self.topics = _topics(kafka, self.group)
        self.schemas = _schemas(kafka, registry, self.topics["avro"]["name"])
        (folder / "lake").mkdir()

    def ranges(self, *topics: str) -> dict[str, dict[int, tuple[int, int]]]:
        """Return all offsets of some topics."""
        return {self.topics[topic]["name"]: self.topics[topic]["ranges"] for topic in topics}

    def told(self, way: str, spark: OtherSpark, properties: dict[str, str], **more: str) -> Path:
        """Write the input of the job into a file."""
        document = {
            "way": way,
            "tables": [*spark.tables],
            "scala": spark.scala,
            "topics": self.topics,
            "folder": str(self.folder / "lake"),
            "outcomes": str(self._outcomes),
            "database": {"url": self.database.jdbc, "properties": properties},
            **more,
        }
        file = self.folder / "told.json"
        file.write_text(json.dumps(document))
        return file

    def outcomes(self, said: str) -> dict[str, Any]:
        """Return the notes of the job.

        Args:
            said: What it wrote.
        """
        if not self._outcomes.exists() or FORGOTTEN not in said:
            raise MatrixError(f"the job did not come to its end:\n{said[-8000:]}")
        noted: dict[str, Any] = json.loads(self._outcomes.read_text())
        return noted

    @property
    def _outcomes(self) -> Path:
        return self.folder / "outcomes.json"


class Listening(KafkaSparkSubmitOperator):
    """The operator; it also keeps what spark-submit writes."""

    said: list[str]

    def _hear(self, line: str) -> None:
        self.said.append(line)
        super()._hear(line)


def run_job(spark: OtherSpark, kafka: KafkaBroker, postgres: Postgres, folder: Path) -> dict[str, Any]:
    """Let the operator plan a window and run the job on it, by the spark-submit of a Spark.

    Args:
        spark: The Spark.
        kafka: The broker; the job gets topics of its own.
        postgres: The server; the job gets a database of its own.
        folder: An empty one.

    Returns:
        `python` and `java`, the versions of the driver's, and `outcomes`: for each step `PASSED` or what went wrong.
    """
    with Registry() as registry, _worker(World(kafka, postgres, folder, registry)) as world:
        archive = str(start_archive_of(spark.home))
        given = _handed_off(world)
        told = world.told(SUBMIT, spark, world.database.properties, archive=archive, exchange=given["exchange"])
        operator = _operator(world, spark, told)
        try:
            operator.execute(_context(operator))
        except Exception as failure:
            found = world.outcomes("\n".join([*operator.said, str(failure)]))
        else:
            raise MatrixError("the task succeeded with a job that forgot its check")
        _check_ledger(world)
        _commit(world, given, found["outcomes"])
    return found


def run_over_connect(spark: OtherSpark, kafka: KafkaBroker, postgres: Postgres, folder: Path) -> dict[str, Any]:
    """Run the job as a client of a Spark Connect server of a Spark; see `run_job`."""
    with Registry() as registry, pytest.MonkeyPatch.context() as patch:
        world = World(kafka, postgres, folder, registry)
        window = handoff(
            world.ranges("plain", "avro"),
            options={"kafka.bootstrap.servers": kafka.bootstrap_servers, **READER},
            report=str(folder / "report.json"),
            output_tables=[STAGED],
            schemas=world.schemas,
        )
        with _worker(world):
            given = _handed_off(world)
        # Over Connect, the password is the server's.
        patch.setenv("PGPASSFILE", str(_password_file(world)))
        with SparkConnect(folder / "server", spark=spark, conf=FEW_RECORDS) as server:
            login = {"user": world.database.properties["user"]}
            told = world.told(
                CONNECT, spark, login, remote=server.url, window=window.to_json(), exchange=given["exchange"]
            )
            path = ":".join(map(str, [write_zip(folder), *spark.python_of_clients]))
            command, environment = [sys.executable, JOB, told], {**os.environ, "PYTHONPATH": path}
            done = run_to_end(command, cwd=folder, env=environment)
    if done.returncode != 1:
        raise MatrixError(f"it ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}")
    found = world.outcomes(done.stdout + done.stderr)
    with _worker(world):
        _commit(world, given, found["outcomes"])
    return found


def _operator(world: World, spark: OtherSpark, told: Path) -> Listening:
    group = KafkaGroup(
        world.group,
        topics=[world.topics[topic]["name"] for topic in ("plain", "avro")],
        kafka_conn_id="matrix_kafka",
        ledger_conn_id="matrix_ledger",
        registry=airflow_kafka_offsets.Registry("matrix_registry", subjects={world.topics["plain"]["name"]: []}),
        output_tables=STAGED,
        spark_options=READER,
    )
    conf = {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(world.folder / "warehouse"),
        **table_settings(world.folder / "iceberg"),
        **FEW_RECORDS,
        **SHORT_PLANS,
    }
    operator = Listening(
        task_id="load",
        group=group,
        application=str(JOB),
        application_args=[str(told)],
        conn_id="matrix_spark",
        spark_binary=str(spark.home / "bin" / "spark-submit"),
        jars=",".join(map(str, [*spark.table_jars(), *jdbc_jars()])),
        conf=conf,
        env_vars={
            "SPARK_HOME": str(spark.home),
            "PYSPARK_PYTHON": spark.program_of_drivers,
            # Or those of the tests, which have an archive of another Spark.
            "SPARK_SUBMIT_OPTS": " ".join(SPARK),
        },
    )
    operator.said = []
    return operator


@contextmanager
def _worker(world: World) -> Iterator[World]:
    """Be a worker of Airflow that has the connections, until the end of the block."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _variables(world).items():
            patch.setenv(name, value)
        yield world


def _handed_off(world: World) -> dict[str, Any]:
    """Let a plan task leave a window of another group in an exchange, and return what that task returns."""
    group = KafkaGroup(
        f"{world.group}-elsewhere",
        topics=[world.topics["plain"]["name"]],
        kafka_conn_id="matrix_kafka",
        ledger_conn_id="matrix_ledger",
        spark_options=READER,
    )
    operator = PlanWindowOperator(task_id="plan", group=group, exchange=(world.folder / "exchange").as_uri())
    given: dict[str, Any] = operator.execute(_context(operator))
    return given


def _commit(world: World, given: dict[str, Any], outcomes: dict[str, str]) -> None:
    """Let a commit task commit that window; if it does not, this is what came of the step that reports.

    Args:
        world: What the job worked on.
        given: What the plan task returned.
        outcomes: What came of the steps; gets what came of the commit.
    """
    if outcomes[REPORTED] != PASSED:  # then what went wrong in the job says more
        return
    operator = CommitWindowOperator(task_id="commit", window=given)
    try:
        records = operator.execute(_context(operator))["records"]
    except Exception as failure:
        outcomes[REPORTED] = f"{type(failure).__name__}: {failure}"[:1000]
        return
    state = Ledger(world.database.url).window(given["window_id"]).window.state
    if (records, state) != (10, State.COMMITTED):
        outcomes[REPORTED] = f"the window is {state}, with {records} records"


def _context(operator: BaseOperator) -> Any:
    return context_of(Claim("matrix", "run", operator.task_id), Try(1, 0))


def _variables(world: World) -> dict[str, str]:
    """Return the environment of the task."""
    url = make_url(world.database.url)
    ledger = {"host": url.host, "port": url.port, "login": url.username, "password": url.password}
    connections = {
        "KAFKA": {"conn_type": "kafka", "extra": world.kafka.client_config()},
        "SPARK": {"conn_type": "spark", "host": "local[2]"},
        "LEDGER": {"conn_type": "postgres", "schema": url.database, **ledger},
    }
    return {
        "AIRFLOW_HOME": str(world.folder),
        "AIRFLOW__KAFKA_OFFSETS__CACHE_FOLDER": str(PROVIDER_CACHE),
        "AIRFLOW_CONN_MATRIX_REGISTRY": world.registry.connection(),
        **{f"AIRFLOW_CONN_MATRIX_{name}": json.dumps(fields) for name, fields in connections.items()},
    }


def _check_ledger(world: World) -> None:
    """Make sure that the forgotten check kept the window from its commit."""
    ledger = Ledger(world.database.url)
    [row] = ledger.windows(world.group)
    [attempt] = ledger.attempts(row.window.id)
    ended = row.window.state, attempt.outcome
    if ended != (State.PLANNED, Outcome.FAILED):
        raise MatrixError(f"the window is {ended[0]}, and the job has {ended[1]}")


def _password_file(world: World) -> Path:
    url = make_url(world.database.url)
    file = world.folder / "pgpass"
    file.write_text(f"{url.host}:{url.port}:{url.database}:{url.username}:{url.password}\n")
    file.chmod(0o600)
    return file


def _topics(kafka: KafkaBroker, prefix: str) -> dict[str, dict[str, Any]]:
    ranges = {
        "plain": {0: (0, 6), 1: (0, 4)},
        "large": {0: (0, 900)},
        # Three records, a marker, two records that are aborted, a marker.
        "gaps": {0: (0, 7)},
        "lost": {0: (0, 6)},
        "avro": {0: (0, 5)},
        "json": {0: (0, 2)},
    }
    names = {what: f"{prefix}-{what}" for what in ranges}
    for what, name in names.items():
        create_topic(kafka, name, len(ranges[what]))
    produce(kafka, names["plain"], 6)
    produce(kafka, names["plain"], 4, partition=1, first=6)
    produce(kafka, names["large"], 900)
    commit_transaction(kafka, names["gaps"], 3)
    abort_transaction(kafka, names["gaps"], 2)
    produce(kafka, names["lost"], 6)
    delete_records(kafka, names["lost"], before=3)
    produce_bytes(kafka, names["json"], [b'{"id": 7}', framed(1, b'{"id": 8}')])
    return {what: {"name": name, "ranges": ranges[what]} for what, name in names.items()}


def _schemas(kafka: KafkaBroker, registry: Registry, topic: str) -> list[Subject]:
    """Register schemas, write records of them (and one of another), and return the schemas that a window of the topic freezes."""
    first = record("Order", ("id", "long"))
    second = record("Order", ("id", "long"), ("city", "string", "?"))
    keys = registry.register(f"{topic}-key", '"long"')
    one, two = (registry.register(f"{topic}-value", text) for text in (first, second))
    bodies = [
        framed(one, encoded(0)),
        framed(one, encoded(1)),
        framed(two, encoded(2, "Köln")),
        None,
        framed(UNKNOWN, encoded(4)),
    ]
    produce_bytes(kafka, topic, bodies, key=framed(keys, encoded(42)))
    return [
        Subject(f"{topic}-key", "key", [topic], keys, {keys: '"long"'}),
        Subject(f"{topic}-value", "value", [topic], two, {one: json.dumps(first), two: json.dumps(second)}),
    ]
