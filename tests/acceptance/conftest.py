"""One Airflow with real Kafka, Spark and a ledger in PostgreSQL, for all acceptance tests."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow.dataset
import pytest

from airflow_kafka_offsets.adapters.ledger import schema
from airflow_kafka_offsets.adapters.ledger.engine import open_engine
from airflow_kafka_offsets.adapters.ledger.sql_ledger import SqlLedger
from airflow_kafka_offsets.core.window import Window
from airflow_kafka_offsets.ports import Attempt, WindowRow
from tests.lab.airflow import Airflow
from tests.lab.airflow_api import AirflowApi
from tests.lab.databases import Postgres
from tests.lab.kafka import KafkaBroker, SecureKafkaBroker
from tests.lab.processes import LOOPBACK, wait_until
from tests.lab.spark_connect import SparkConnect
from tests.lab.topics import create_topic, end_offset, produce

HERE = Path(__file__).parent
PARTITIONS = 4
EXAMPLES = ("orders", "orders_by_hour", "orders_replayable", "orders_backlog", "orders_by_size", "orders_on_arrival")
"""The groups of the examples in dags/, which the Airflow of these tests runs too."""


@dataclass(frozen=True)
class Lab:
    """The servers, and what the tests ask of them. A DAG's group, topic and lake have the DAG's name."""

    folder: Path
    kafka: KafkaBroker
    flaky_kafka: KafkaBroker
    secure_kafka: SecureKafkaBroker
    postgres: Postgres
    airflow: Airflow
    ledger: SqlLedger

    @property
    def api(self) -> AirflowApi:
        """Airflow's REST API."""
        return self.airflow.api

    def topic(self, dag_id: str, records: int = 100, *, kafka: KafkaBroker | None = None) -> None:
        """Create the DAG's topic with that many records in each of its four partitions, and let the DAG run."""
        create_topic(kafka or self.kafka, dag_id, PARTITIONS)
        self.produce(dag_id, records, kafka=kafka)
        self.api.unpause(dag_id)

    def produce(self, dag_id: str, records: int, *, kafka: KafkaBroker | None = None) -> None:
        """Append records to each partition of the DAG's topic."""
        for partition in range(PARTITIONS) if records else ():
            produce(kafka or self.kafka, dag_id, records, partition=partition)

    def end_offsets(self, dag_id: str, *, kafka: KafkaBroker | None = None) -> dict[int, int]:
        """Return the end offset of each partition."""
        return {p: end_offset(kafka or self.kafka, dag_id, p) for p in range(PARTITIONS)}

    def windows(self, dag_id: str) -> list[WindowRow]:
        """Return the group's windows, oldest first."""
        return list(reversed(self.ledger.windows(dag_id, limit=1000)))

    def attempts(self, row: WindowRow) -> list[Attempt]:
        """Return the attempts at a window, oldest first."""
        return list(self.ledger.attempts(row.held.window.id))

    def lake(self, dag_id: str) -> Counter[tuple[int, int]]:
        """Count each (partition, offset) in the DAG's lake, as any reader of Parquet sees it."""
        path = self.folder / "lake" / dag_id
        files = pyarrow.dataset.dataset(path, partitioning="hive") if path.exists() else None
        if files is None or not files.files:
            return Counter()
        table = files.to_table(["partition", "offset"])
        return Counter(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))

    def hold(self, dag_id: str) -> Hold:
        """Stop the DAG's next Spark job in the middle of its write."""
        return Hold(self.folder / "hold" / dag_id)


class Hold:
    """While entered, a job that gets there stops in the middle of its write."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reached = path.with_name(path.name + ".reached")

    def __enter__(self) -> Hold:
        self._reached.unlink(missing_ok=True)
        self._path.touch()
        return self

    def wait(self, timeout: float = 120) -> None:
        """Wait until a job is there."""
        wait_until(self._reached.exists, timeout=timeout, what=f"a job reaches {self._path.name}")

    def release(self) -> None:
        """Let the job go on."""
        self._path.unlink(missing_ok=True)
        self._reached.unlink(missing_ok=True)

    def __exit__(self, *_: object) -> None:
        self.release()


class Producing:
    """While entered, a producer keeps writing to all partitions of the DAG's topic."""

    def __init__(self, lab: Lab, dag_id: str) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(lab, dag_id))

    def _run(self, lab: Lab, dag_id: str) -> None:
        while not self._stop.wait(0.2):
            lab.produce(dag_id, 20)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def expect_once(lab: Lab, dag_id: str, windows: list[Window]) -> None:
    """Check that the lake holds each record of these windows once, and nothing else."""
    expected = Counter(
        (tp.partition, offset)
        for window in windows
        for tp, r in window.ranges.items()
        for offset in range(r.start, r.end)
    )
    found = lab.lake(dag_id)
    assert max(found.values(), default=1) == 1, f"twice in the lake: {[k for k, n in found.items() if n > 1][:5]}"
    assert found == expected, f"missing {len(expected - found)}, too much {len(found - expected)}"


def expect_tiling(windows: list[Window]) -> None:
    """Check that windows tile the log: each starts where the one before ended, for every partition."""
    for before, after in pairwise(windows):
        assert after.ranges.starts == before.ranges.ends, f"{after.id} does not start where {before.id} ends"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs Airflow, which needs all the rest here."""
    for item in items:
        if "lab" in getattr(item, "fixturenames", ()):
            for marker in ("airflow", "kafka", "spark", "postgres"):
                item.add_marker(marker)
            # Some fixtures bring a hundred tasks to an end.
            item.add_marker(pytest.mark.timeout(1500))


@pytest.fixture(scope="session")
def lab(
    tmp_path_factory: pytest.TempPathFactory, kafka: KafkaBroker, kafka_sasl: SecureKafkaBroker, postgres: Postgres
) -> Iterator[Lab]:
    """Start what is not running yet. The ledger and one broker are this suite's own: tests stop them."""
    from tests.lab.jars import jars_for_launches, spark_connector_jars

    metadata = postgres.create_database("airflow")

    jars = ",".join(str(path) for path in spark_connector_jars())
    jars_for_launches()
    folder = tmp_path_factory.mktemp("acceptance")
    for name in ("hold", "lake", "events"):
        (folder / name).mkdir()
    with ExitStack() as stack:
        ledger = stack.enter_context(Postgres())
        schema.upgrade(open_engine(ledger.url))
        flaky = stack.enter_context(KafkaBroker(tmp_path_factory.mktemp("flaky")))
        airflow = Airflow(
            folder / "airflow",
            HERE / "dags",
            database_url=metadata,
            connections=_connections(kafka, flaky, kafka_sasl, ledger),
            environment={
                "LAB": str(folder),
                "CONNECTOR_JARS": jars,
                "PYTHONPATH": str(HERE.parent.parent),
                **{f"AIRFLOW_VAR_{name.upper()}_LAKE": f"{folder}/lake/lake.{name}" for name in EXAMPLES},
            },
            settings={
                "core": {"parallelism": "4"},
                # No test changes a Dag file, and to read a hundred DAGs again and again takes the time of their tasks.
                "dag_processor": {"min_file_process_interval": "600"},
                "kafka_offsets": {"ledger_conn_id": "ledger"},
            },
            preload=("confluent_kafka", "pandas", "pyspark.sql.connect.session"),
        )
        stack.callback(airflow.kill)
        airflow.start()
        yield Lab(folder, kafka, flaky, kafka_sasl, ledger, airflow, SqlLedger(ledger.url))


@pytest.fixture(scope="session")
def connect(lab: Lab, spark_connect: SparkConnect) -> SparkConnect:
    """Give Airflow the connection to a warm Spark Connect server."""
    fields = {"connection_id": "spark_connect", "conn_type": "spark_connect", "host": f"sc://{LOOPBACK}"}
    lab.api.request("POST", "/connections", {**fields, "port": spark_connect.port})
    return spark_connect


def _connections(
    kafka: KafkaBroker, flaky: KafkaBroker, secure: SecureKafkaBroker, postgres: Postgres
) -> dict[str, dict[str, object]]:
    from sqlalchemy import make_url

    url = make_url(postgres.url)
    return {
        "kafka_default": {"conn_type": "kafka", "extra": kafka.client_config()},
        "kafka_flaky": {"conn_type": "kafka", "extra": flaky.client_config()},
        "kafka_secret": {"conn_type": "kafka", "extra": secure.client_config("alice")},
        "spark_default": {"conn_type": "spark", "host": "local[1]"},
        "ledger": {
            "conn_type": "postgres",
            "host": url.host,
            "port": url.port,
            "login": url.username,
            "password": url.password,
            "schema": url.database,
        },
    }
