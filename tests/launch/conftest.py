"""Tasks in processes of their own, on real servers."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_kafka_offsets import KafkaSparkSubmitOperator
from airflow_kafka_offsets.core.history import Attempt
from airflow_kafka_offsets.core.launch.login import reader_options
from airflow_kafka_offsets.core.window import WindowRecord
from airflow_kafka_offsets.launch.launch import Launch
from airflow_kafka_offsets.launch.submit_hook import SparkHook
from airflow_kafka_offsets.ledger.ledger import Ledger
from tests.lab.child import Child
from tests.lab.processes import LOOPBACK, wait_until
from tests.lab.topics import create_topic, produce

if TYPE_CHECKING:
    from tests.lab.kafka import KafkaBroker
    from tests.lab.spark_connect import SparkConnect

PARTITIONS = 2


def launch_of(operator: KafkaSparkSubmitOperator, spark_options: Mapping[str, str] | None = None) -> Launch:
    """Return the launch of an operator without the checks before it."""
    arguments = operator.hook_arguments()
    hook = SparkHook(arguments)
    arguments |= operator._connector(arguments, hook)
    reader = reader_options({"bootstrap.servers": "b:9092"}, spark_options or {})
    return Launch(operator.group, operator.application, arguments, hook.target, reader, operator.ship)


class Worker:
    """A place where tries of one task run: a topic with ten records in each of its two partitions, a ledger, a folder.

    Args:
        folder: for all of it.
        kafka: the broker.
        connect: the Spark Connect server.
        topic: to be made.
    """

    def __init__(self, folder: Path, kafka: KafkaBroker, connect: SparkConnect, topic: str) -> None:
        self.folder = folder
        self.topic = topic
        self.group: dict[str, Any] = {"name": "lake", "topics": [topic]}
        self.connections: dict[str, dict[str, Any]] = {
            "kafka_default": {"conn_type": "kafka", "extra": kafka.client_config()},
            "connect": {"conn_type": "spark_connect", "host": f"sc://{LOOPBACK}", "port": connect.port},
        }
        self._started: list[Child] = []
        (folder / "airflow").mkdir()
        create_topic(kafka, topic, PARTITIONS)
        for partition in range(PARTITIONS):
            produce(kafka, topic, 10, partition=partition)

    def start(self, *tries: dict[str, Any]) -> Child:
        """Start tries of the task, one after the other, in one process; see `connect_task.main`."""
        shared = {"group": self.group, "folder": str(self.folder)}
        connections = {f"AIRFLOW_CONN_{name.upper()}": json.dumps(c) for name, c in self.connections.items()}
        child = Child(
            "tests.launch.connect_task:run",
            {"tries": [{**shared, **one_try} for one_try in tries]},
            self.folder / f"task-{len(self._started)}.log",
            {**os.environ, **connections, "AIRFLOW_HOME": str(self.folder / "airflow")},
        )
        self._started.append(child)
        return child

    def run(self, *tries: dict[str, Any], succeeds: bool = True) -> str:
        """Run tries to their end, and return their output."""
        return self.end(self.start(*tries), succeeds=succeeds)

    def end(self, child: Child, *, succeeds: bool = True) -> str:
        """Wait for the end of a process, and return its output."""
        assert (child.wait() == 0) == succeeds, child.log
        return child.log

    def hold(self, try_number: int) -> Path:
        """Let a try stop in the middle as long as the file is there."""
        path = self.folder / f"hold-{try_number}"
        path.touch()
        return path

    def wait_for_hold(self, try_number: int, child: Child) -> None:
        """Wait until a try is in the middle."""
        reached = self.folder / f"hold-{try_number}.reached"
        wait_until(lambda: reached.exists() or not child.is_alive, what=f"try {try_number} is held")
        assert child.is_alive, self.end(child)

    def is_held(self, try_number: int) -> bool:
        """Whether someone is still in the middle of a try: it says so ten times a second."""
        reached = self.folder / f"hold-{try_number}.reached"
        before = reached.stat().st_mtime_ns
        with suppress(TimeoutError):
            wait_until(lambda: reached.stat().st_mtime_ns != before, what="another sign of life", seconds=60)
        return reached.stat().st_mtime_ns != before

    @property
    def window(self) -> WindowRecord:
        """The only window of the group."""
        (row,) = self._ledger.windows("lake", limit=10)
        return row

    @property
    def attempts(self) -> list[Attempt]:
        """The attempts at the window, oldest first."""
        return list(self._ledger.attempts(self.window.window.id))

    @property
    def _ledger(self) -> Ledger:
        return Ledger(f"sqlite:///{self.folder}/airflow/kafka_offsets.db")

    def lake(self) -> Counter[tuple[int, int]]:
        """Count each (partition, offset) that readers of the lake see."""
        import pyarrow.dataset

        path = self.folder / "lake"
        files = pyarrow.dataset.dataset(path, partitioning="hive") if path.exists() else None
        if files is None or not files.files:
            return Counter()
        table = files.to_table(["partition", "offset"])
        return Counter(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))

    def expect_once(self) -> None:
        """Check that the lake holds each record of the topic once."""
        assert self.lake() == Counter((partition, offset) for partition in range(PARTITIONS) for offset in range(10))

    def kill(self) -> None:
        """End what still runs."""
        for child in self._started:
            child.kill()


@pytest.fixture
def worker(tmp_path: Path, kafka: KafkaBroker, spark_connect: SparkConnect, topic: str) -> Iterator[Worker]:
    """Return a worker on the open broker and the shared Spark Connect server."""
    worker = Worker(tmp_path, kafka, spark_connect, topic)
    yield worker
    worker.kill()
