"""The servers of the acceptance tests, as one process for all processes of a test run: `python -m tests.acceptance.server FOLDER`.

The first process that asks starts it; it ends when nobody holds it any more, also when they all were killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import secrets
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import make_url

from airflow_kafka_offsets.adapters.ledger import schema
from airflow_kafka_offsets.adapters.ledger.engine import open_engine
from tests.lab.airflow import Airflow
from tests.lab.databases import Postgres
from tests.lab.jars import spark_connector_jars
from tests.lab.kafka import KafkaBroker, SecureKafkaBroker
from tests.lab.processes import LOOPBACK, ServerError, wait_until
from tests.lab.spark_connect import SparkConnect

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
EXAMPLES = ("orders", "orders_by_hour", "orders_replayable", "orders_backlog", "orders_by_size", "orders_on_arrival")
"""The groups of the examples in dags/, which the Airflow of these tests runs too."""

_START_SECONDS = 300
_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Servers:
    """What runs. In another process these are copies that know addresses and process ids; only `control` can stop a part.

    Attributes:
        pid: of the process that runs them.
        address: where `control` answers.
        secret: what it asks for.
    """

    pid: int
    address: Any
    secret: bytes
    folder: Path
    kafka: KafkaBroker
    secure_kafka: SecureKafkaBroker
    ledger: Postgres
    connect: SparkConnect
    airflow: Airflow

    def control(self) -> Control:
        """Return what stops and starts Airflow's components."""
        manager = _Manager(self.address, authkey=self.secret)
        manager.connect()
        return manager.control()  # type: ignore[attr-defined, no-any-return]


class Control:
    """Stops and starts Airflow's components for who can't, one at a time."""

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


class _Manager(BaseManager):
    """Brings `Control` to other processes."""


_Manager.register("control")


@contextmanager
def shared_servers(folder: Path) -> Iterator[Servers]:
    """Give the servers of a folder, which are started by whoever enters first, and stopped when the last one has left."""
    folder.mkdir(exist_ok=True)
    with (folder / "starting").open("a") as starting, (folder / "holders").open("a") as holders:
        fcntl.flock(starting, fcntl.LOCK_EX)
        fcntl.flock(holders, fcntl.LOCK_SH)
        if not _is_running(folder):
            _start(folder)
        fcntl.flock(starting, fcntl.LOCK_UN)
        yield _read(folder)


def _is_running(folder: Path) -> bool:
    return _facts(folder).exists() and psutil.pid_exists(_read(folder).pid)


def _facts(folder: Path) -> Path:
    return folder / "servers.pickle"


def _read(folder: Path) -> Servers:
    found: Servers = pickle.loads(_facts(folder).read_bytes())
    return found


def _start(folder: Path) -> None:
    _facts(folder).unlink(missing_ok=True)
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.acceptance.server", str(folder)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a Ctrl-C is for the tests: they tear down what they have, and let go
        )

    def used() -> int:
        with contextlib.suppress(psutil.Error):
            family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
            return int(sum(sum(member.cpu_times()[:2]) for member in family))
        return 0

    wait_until(
        lambda: _facts(folder).exists() or process.poll() is not None,
        timeout=_START_SECONDS,
        what="the servers of the acceptance tests are started",
        interval=0.2,
        progress=used,
    )
    if not _facts(folder).exists():
        raise ServerError((folder / "server.log").read_text()[-4000:])


def main(folder: Path) -> None:
    """Run the servers until nobody holds them."""
    with ExitStack() as stack:
        try:
            servers = _run(folder, stack)
        except BaseException:
            traceback.print_exc()
            raise
        draft = _facts(folder).with_suffix(".new")
        draft.write_bytes(pickle.dumps(servers))
        draft.rename(_facts(folder))
        with (folder / "holders").open("a") as holders:
            while not _can_have(holders):
                time.sleep(_LOOK_SECONDS)
            # Whoever comes now waits for this lock, finds no facts, and starts others.
            _facts(folder).unlink()
            stack.close()


def _can_have(file: Any) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _run(folder: Path, stack: ExitStack) -> Servers:
    for name in ("hold", "lake", "events", "matrix"):
        (folder / name).mkdir(exist_ok=True)
    kafka, secure = KafkaBroker(folder / "kafka"), SecureKafkaBroker(folder / "kafka-sasl")
    postgres, connect = Postgres(), SparkConnect(folder / "spark-connect")
    with ThreadPoolExecutor() as pool:
        started = [pool.submit(server.start) for server in (postgres, kafka, secure, connect)]
        for server in (postgres.remove, kafka.stop, secure.stop, connect.stop):
            stack.callback(server)
        for future in started:
            future.result()
    schema.upgrade(open_engine(postgres.url))
    airflow = Airflow(
        folder / "airflow",
        HERE / "dags",
        database_url=postgres.create_database("airflow"),
        connections=_connections(kafka, secure, postgres, connect),
        environment={
            "LAB": str(folder),
            "CONNECTOR_JARS": ",".join(str(path) for path in spark_connector_jars()),
            "PYTHONPATH": str(ROOT),
            **{f"AIRFLOW_VAR_{name.upper()}_LAKE": f"{folder}/lake/lake.{name}" for name in EXAMPLES},
        },
        settings={
            # Many of them wait: on a file that holds them, or for a retry.
            "core": {"parallelism": "12"},
            # No test changes a Dag file, and to read a hundred DAGs again and again takes the time of their tasks.
            "dag_processor": {"min_file_process_interval": "600"},
            "kafka_offsets": {"ledger_conn_id": "ledger"},
        },
        preload=("confluent_kafka", "pandas", "pyspark.sql.connect.session"),
    )
    stack.callback(airflow.kill)
    airflow.start()
    address, secret = _serve(Control(airflow))
    return Servers(os.getpid(), address, secret, folder, kafka, secure, postgres, connect, airflow)


def _serve(control: Control) -> tuple[Any, bytes]:
    secret = secrets.token_bytes(16)
    offered: Callable[[], Control] = lambda: control  # noqa: E731
    manager = type("_Offer", (BaseManager,), {})
    manager.register("control", offered)  # type: ignore[attr-defined]
    server = manager((LOOPBACK, 0), authkey=secret).get_server()
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

    server.main(Path(sys.argv[1]))
