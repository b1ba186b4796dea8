"""The servers of the acceptance tests, for all processes of a test run: `python -m tests.acceptance.server FOLDER FOLDER_OF_KAFKA`."""

from __future__ import annotations

import json
import os
import secrets
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from multiprocessing.managers import BaseManager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from sqlalchemy import make_url

from airflow_kafka_offsets.core.launch.start import SUBMIT_OPTIONS
from airflow_kafka_offsets.ledger import schema
from airflow_kafka_offsets.ledger.engine import open_engine
from tests.lab.airflow import Airflow
from tests.lab.databases import Postgres
from tests.lab.jars import spark_connector_jars
from tests.lab.java import LIGHT, pyspark_home
from tests.lab.kafka import KafkaBroker, SecureKafkaBroker
from tests.lab.processes import LOOPBACK, free_port
from tests.lab.shared_kafka import shared_kafka
from tests.lab.sharing import ROOT, serve, shared
from tests.lab.spark_connect import SparkConnect
from tests.lab.start import spark_on_clusters
from tests.lab.tables import FEW_RECORDS

HERE = Path(__file__).parent
EXAMPLES = ("orders", "orders_by_hour", "orders_replayable", "orders_backlog", "orders_by_size", "orders_on_arrival")
"""The groups `example.*` of the DAGs in dags/, which the Airflow of these tests runs too."""

PRELOADED = (
    *("confluent_kafka", "grpc._channel", "jinja2.ext", "pandas", "pyarrow.dataset", "pyarrow.parquet"),
    *("pyspark.sql.connect.session", "airflow.sdk.definitions.asset.metadata"),
    *("airflow.sdk.definitions.decorators", "airflow.sdk.execution_time.cache"),
    *("airflow.providers.standard.decorators.python", "airflow.providers.standard.operators.empty"),
    *("airflow_kafka_offsets.adapters.kafka.log", "airflow_kafka_offsets.ledger.ledger"),
    *("airflow_kafka_offsets.adapters.machine.archives", "airflow_kafka_offsets.core.spark_log"),
    *("airflow_kafka_offsets.decorators.kafka_spark", "airflow_kafka_offsets.operators.kafka_spark_sql"),
    *("airflow_kafka_offsets.launch.connect", "airflow_kafka_offsets.wiring.machine.connector"),
    *("airflow_kafka_offsets.launch.session", "airflow_kafka_offsets.launch.statements"),
    *("airflow_kafka_offsets.operators.spark_submit", "airflow_kafka_offsets.operators.window"),
    *("airflow_kafka_offsets.params", "airflow_kafka_offsets.sensors"),
    *("airflow_kafka_offsets.spark.shipping", "airflow_kafka_offsets.spark.window"),
    *("airflow_kafka_offsets.task.dag_files", "airflow_kafka_offsets.task.exchange"),
    *("airflow_kafka_offsets.task.metrics", "airflow_kafka_offsets.task.plan", "airflow_kafka_offsets.task.work"),
    *("airflow_kafka_offsets.wiring", "airflow_kafka_offsets.wiring.clusters", "airflow_kafka_offsets.wiring.runs"),
    *("airflow_kafka_offsets.wiring.machine.checks", "airflow_kafka_offsets.wiring.machine.start"),
    *("tests.acceptance.foreign", "tests.acceptance.functions", "tests.acceptance.matrix", "tests.acceptance.needed"),
    "tests.lab.tables",
)
"""What hundreds of tasks would each import for themselves, half a second of a processor at a time."""

_OF_DRIVERS = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", **FEW_RECORDS}

_UNWATCHED = {"spark.ui.enabled": "false", "spark.eventLog.enabled": "false"}
"""Settings of the Connect server, whose pages and event logs no test reads here: they took a twentieth of its CPU."""

LINGER = 20.0
"""Seconds between a file of tests and the next one. Servers that no one asks take a tenth of a core, and the memory of three Sparks."""


@dataclass(frozen=True)
class Servers:
    """What runs, as others know it: addresses and process ids. Only `control` can stop a part.

    Attributes:
        address: where `control` answers.
        secret: what it asks for.
        folder: where lakes, and the files that hold jobs, are; in `lineage` there is a file for each event of OpenLineage.
        statsd_port: where Airflow sends its metrics. A test that wants them listens there.
    """

    address: Any
    secret: bytes
    folder: Path
    statsd_port: int
    kafka: KafkaBroker
    secure_kafka: SecureKafkaBroker
    ledger: Postgres
    connect: SparkConnect
    airflow: Airflow

    def revive(self) -> None:
        """Start again what has died of the servers beside Airflow and the shared broker, which others revive."""
        for server in (self.ledger, self.connect):
            server.revive()

    def control(self) -> Control:
        """Return what stops and starts Airflow's components."""
        manager = _Asked(self.address, authkey=self.secret)
        manager.connect()
        return manager.control()  # type: ignore[attr-defined, no-any-return]


class Control:
    """Stops and starts Airflow's components for processes that did not start them, one at a time."""

    def __init__(self, airflow: Airflow) -> None:
        self._airflow = airflow
        self._one_at_a_time = threading.Lock()

    def restart(self, component: str) -> None:
        """Stop a component in good order, and start it again."""
        with self._one_at_a_time:
            self._airflow.restart(component)

    def revive(self) -> None:
        """Start again what has died."""
        with self._one_at_a_time:
            for name, component in self._airflow.components.items():
                if not component.is_running:
                    self._airflow.restart(name)


class _Asked(BaseManager):
    """The side that asks."""


_Asked.register("control")


class _Offered(BaseManager):
    """The side that does it."""


def shared_servers(folder: Path, folder_of_kafka: Path) -> AbstractContextManager[Servers]:
    """Give the servers of a folder to one more user; see `shared`. They use the broker that all tests share, too."""
    command = [sys.executable, "-m", "tests.acceptance.server", str(folder), str(folder_of_kafka)]
    return shared(folder, command, what="the servers of the acceptance tests")


def main(folder: Path, folder_of_kafka: Path) -> None:
    """Run the servers until the last file of tests that uses them is over."""
    with ExitStack() as stack:
        # Others may run here later: what the first have left is not theirs.
        servers = _run(Path(mkdtemp(prefix="servers-", dir=folder)), folder_of_kafka, stack)
        serve(folder, os.getpid(), servers, linger=LINGER, meanwhile=servers.revive)


def _run(folder: Path, folder_of_kafka: Path, stack: ExitStack) -> Servers:
    for name in ("hold", "lake", "events", "lineage", "matrix"):
        (folder / name).mkdir(exist_ok=True)
    secure = stack.enter_context(shared_kafka(folder_of_kafka))
    kafka, postgres = secure.open, Postgres()
    connect = SparkConnect(folder / "spark-connect", conf={**FEW_RECORDS, **_UNWATCHED})
    for stop in (postgres.remove, connect.stop):
        stack.callback(stop)
    with ThreadPoolExecutor() as pool:
        for started in [pool.submit(server.start) for server in (postgres, connect)]:
            started.result()
    schema.upgrade(open_engine(postgres.url))
    statsd_port = free_port()
    airflow = Airflow(
        folder / "airflow",
        HERE / "dags",
        database_url=postgres.create_database("airflow"),
        connections=_connections(kafka, secure, postgres, connect),
        environment={
            "LAB": str(folder),
            "CONNECTOR_JARS": ",".join(str(path) for path in spark_connector_jars()),
            # Without it, tasks ask pip's scripts: see tests/launchers and tests/adapters/machine/test_spark_home.py.
            "SPARK_HOME": str(pyspark_home()),
            "SPARK_ON_CLUSTERS": json.dumps(spark_on_clusters()),
            "PYTHONPATH": str(ROOT),
            # Not in a spark-defaults.conf: with a file of settings, Spark starts without an archive.
            SUBMIT_OPTIONS: " ".join([*LIGHT, *(f"-D{name}={value}" for name, value in _OF_DRIVERS.items())]),
            **{f"AIRFLOW_VAR_{name.upper()}_LAKE": f"{folder}/lake/example.{name}" for name in EXAMPLES},
        },
        settings={
            # Many tasks wait: for a file that holds them, or for a server that is away.
            "core": {"parallelism": "12", "min_serialized_dag_fetch_interval": "60", "dagbag_import_timeout": "600"},
            # It looks at all DAGs each time; of so many, half a second would keep it busy.
            # And it takes a task for dead that does not tell of itself for long: on a machine with other work, for a minute.
            "scheduler": {
                "scheduler_idle_sleep_time": "2",
                "task_instance_heartbeat_timeout": "80",
                "task_instance_heartbeat_timeout_detection_interval": "10",
            },
            # No test changes a Dag file, and to read a hundred DAGs again takes five seconds of a processor each time. So the first time has to be
            # patient, whatever else runs.
            "dag_processor": {
                "min_file_process_interval": "3600",
                "refresh_interval": "60",
                "dag_file_processor_timeout": "900",
                "dag_bundle_config_list": _bundles(folder / "bundle"),
            },
            "kafka_offsets": {"ledger_conn_id": "ledger"},
            "metrics": {
                "statsd_on": "True",
                "statsd_host": LOOPBACK,
                "statsd_port": str(statsd_port),
                "statsd_influxdb_enabled": "True",
            },
            # Only of DAGs that ask for it: an event costs a task a tenth of a second.
            "openlineage": {
                "selective_enable": "True",
                "transport": json.dumps({"type": "file", "log_file_path": str(folder / "lineage" / "event")}),
            },
        },
        preload=PRELOADED,
    )
    stack.callback(airflow.kill)
    airflow.start()
    address, secret = _offer(Control(airflow))
    return Servers(address, secret, folder, statsd_port, kafka, secure, postgres, connect, airflow)


def _bundles(folder: Path) -> str:
    """Return the setting of Airflow's DAG bundles: the folder of our DAGs, and one with versions, which is empty at first."""
    (folder / "v0").mkdir(parents=True)
    (folder / "newest").write_text("v0")
    kinds = {
        "dags-folder": "airflow.dag_processing.bundles.local.LocalDagBundle",
        "versioned": "tests.lab.bundle.FolderBundle",
    }
    given: dict[str, dict[str, Any]] = {"versioned": {"path": str(folder), "refresh_interval": 5}}
    return json.dumps(
        [{"name": name, "classpath": kind, "kwargs": given.get(name, {})} for name, kind in kinds.items()]
    )


def _offer(control: Control) -> tuple[Any, bytes]:
    """Let other processes use `control`; return where, and the secret that they need."""
    secret = secrets.token_bytes(16)
    _Offered.register("control", lambda: control)
    server = _Offered((LOOPBACK, 0), authkey=secret).get_server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.address, secret


def connection_of(postgres: Postgres) -> dict[str, Any]:
    """Return the Airflow connection to a ledger."""
    url = make_url(postgres.url)
    return {
        "conn_type": "postgres",
        "host": url.host,
        "port": url.port,
        "login": url.username,
        "password": url.password,
        "schema": url.database,
    }


def _connections(
    kafka: KafkaBroker, secure: SecureKafkaBroker, postgres: Postgres, connect: SparkConnect
) -> dict[str, dict[str, Any]]:
    return {
        "kafka_default": {"conn_type": "kafka", "extra": kafka.client_config()},
        "kafka_secret": {"conn_type": "kafka", "extra": secure.client_config("alice")},
        "spark_default": {"conn_type": "spark", "host": "local[1]"},
        "spark_connect": {"conn_type": "spark_connect", "host": f"sc://{LOOPBACK}", "port": connect.port},
        "ledger": connection_of(postgres),
    }


if __name__ == "__main__":
    # As the module that others import: what is pickled here, they must find there.
    from tests.acceptance import server

    server.main(Path(sys.argv[1]), Path(sys.argv[2]))
