"""One Airflow with real Kafka, Spark and a ledger in PostgreSQL, for all acceptance tests: they run beside each other.

Each test owns its DAGs, which it shares with no other; group, topic and lake have the DAG's name. What a test stops is its own.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import requests
from confluent_kafka import Producer

from airflow_kafka_offsets.core.history import Attempt
from airflow_kafka_offsets.core.window import Window, WindowRecord
from airflow_kafka_offsets.ledger.ledger import Ledger
from tests.acceptance.server import Servers, shared_servers
from tests.conftest import folder_of_the_run
from tests.lab.airflow import Airflow
from tests.lab.airflow_api import AirflowApi
from tests.lab.kafka import KafkaBroker, SecureKafkaBroker
from tests.lab.processes import wait_until
from tests.lab.topics import create_topic, end_offset, produce
from tests.versions import IS_AIRFLOW_3_1

PARTITIONS = 4


@dataclass(frozen=True)
class Lab:
    """The servers, and what the tests ask of them. A DAG's group, topic and lake have the DAG's name."""

    servers: Servers
    ledger: Ledger

    @property
    def folder(self) -> Path:
        """Where lakes, and the files that hold jobs, are."""
        return self.servers.folder

    @property
    def kafka(self) -> KafkaBroker:
        """An open broker."""
        return self.servers.kafka

    @property
    def secure_kafka(self) -> SecureKafkaBroker:
        """A broker with passwords."""
        return self.servers.secure_kafka

    @property
    def airflow(self) -> Airflow:
        """Airflow; its components are stopped and started by `servers.control()`."""
        return self.servers.airflow

    @property
    def api(self) -> AirflowApi:
        """Airflow's REST API."""
        return self.airflow.api

    def connect(self, conn_id: str, fields: Mapping[str, Any]) -> None:
        """Give Airflow a connection, or another one of that name."""
        extra = {"extra": json.dumps(fields["extra"])} if "extra" in fields else {}
        with suppress(requests.HTTPError):
            self.api.request("DELETE", f"/connections/{conn_id}")
        self.api.request("POST", "/connections", {**fields, **extra, "connection_id": conn_id})

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

    def windows(self, dag_id: str) -> list[WindowRecord]:
        """Return the group's windows, oldest first."""
        return list(reversed(self.ledger.windows(dag_id, limit=1000)))

    def attempts(self, row: WindowRecord) -> list[Attempt]:
        """Return the attempts at a window, oldest first."""
        return list(self.ledger.attempts(row.window.id))

    def lake(self, dag_id: str) -> Counter[tuple[int, int]]:
        """Count each (partition, offset) in the DAG's lake, as any reader of Parquet sees it."""
        import pyarrow.dataset

        path = self.folder / "lake" / dag_id
        files = pyarrow.dataset.dataset(path, partitioning="hive") if path.exists() else None
        if files is None or not files.files:
            return Counter()
        table = files.to_table(["partition", "offset"])
        return Counter(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))

    def hold(self, dag_id: str) -> Hold:
        """Stop the DAG's next Spark job in the middle of its write."""
        return Hold(self.folder / "hold" / dag_id, self.api.watch(dag_id).wait_until)

    def wait_for_end_of_process(self, dag_id: str, run_id: str) -> None:
        """Wait until the process of the task that was marked is gone: until then its job may go on, and commit."""
        wait_until(
            lambda: self.airflow.task_process(dag_id, run_id, "load") is None,
            what=f"the process of {dag_id} ends",
            interval=0.5,
        )


class Hold:
    """While entered, a job that gets there stops in the middle of its write.

    Args:
        path: The file that holds it.
        wait: Waits until a job is there, as `wait_until`; it may know when none will come.
    """

    def __init__(self, path: Path, wait: Callable[..., object] = wait_until) -> None:
        self._path = path
        self._wait = wait
        self._reached = path.with_name(path.name + ".reached")

    def __enter__(self) -> Hold:
        self._reached.unlink(missing_ok=True)
        self._path.touch()
        return self

    def wait(self) -> None:
        """Wait until a job is there."""
        self._wait(self._reached.exists, what=f"a job reaches {self._path.name}")

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
        producer = Producer(lab.kafka.client_config())
        while not self._stop.wait(0.2):
            for number in range(20 * PARTITIONS):
                producer.produce(dag_id, str(number), partition=number % PARTITIONS)
            producer.flush()

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


def expect_at_the_end(log: str, block: list[str]) -> None:
    """Check that a log ends with a block, with nothing but lines of Airflow 3.1 below it."""
    lines = log.splitlines()
    begin = len(lines) - len(block)
    if IS_AIRFLOW_3_1 and block[0] in lines:
        begin = len(lines) - 1 - lines[::-1].index(block[0])
    end = begin + len(block)
    assert lines[begin:end] == block, "\n".join(lines[-30:])
    assert not [line for line in lines[end:] if "window" in line.lower()]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs Airflow, which needs all the rest here."""
    for item in items:
        if "lab" in getattr(item, "fixturenames", ()):
            for marker in ("server", "airflow", "kafka", "spark", "postgres"):
                item.add_marker(marker)
            # Some fixtures bring a hundred tasks to an end.
            item.add_marker(pytest.mark.timeout(4800))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Give the servers of this test run, one Airflow, one Kafka, one ledger for all its processes, until no file needs them."""
    folder = folder_of_the_run(tmp_path_factory)
    with shared_servers(folder / "acceptance", folder / "kafka") as servers:
        yield Lab(servers, Ledger(servers.ledger.url))


@pytest.fixture(autouse=True)
def _airflow_is_up(request: pytest.FixtureRequest) -> None:
    """Start a component again that died under an earlier test."""
    if "lab" in request.fixturenames:
        request.getfixturevalue("lab").servers.control().revive()


@pytest.fixture(scope="module")
def own_kafka(
    lab: Lab, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[KafkaBroker]:
    """Run a broker that this module's tests stop; its Airflow connection is `kafka_<module>`, without `test_`."""
    module = request.module.__name__.rpartition(".")[2].removeprefix("test_")
    with KafkaBroker(tmp_path_factory.mktemp("own-kafka")) as broker:
        lab.connect(f"kafka_{module}", {"conn_type": "kafka", "extra": broker.client_config()})
        yield broker
