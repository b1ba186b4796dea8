"""Tasks whose workers die, against real clusters: a real Kafka, a real ledger, and no Airflow around them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest

from airflow_kafka_offsets.adapters.ledger.sql_ledger import SqlLedger
from airflow_kafka_offsets.ports import Attempt, WindowRow
from airflow_kafka_offsets.spark.shipping import write_zip
from tests.acceptance.conftest import Hold
from tests.lab.jars import spark_connector_jars
from tests.lab.kafka import KafkaBroker
from tests.lab.processes import wait_until
from tests.lab.topics import create_topic, produce

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "tests" / "acceptance" / "dags" / "jobs"
RECORDS = 60
_LIGHT = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.cores.max": "1"}


class Try:
    """One try of a task: a worker's process."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def log(self) -> str:
        """What it wrote."""
        return self._log.read_text(errors="replace")

    @property
    def is_alive(self) -> bool:
        """Whether it goes on."""
        return self._process.poll() is None

    def wait(self, timeout: float = 150) -> int:
        """Wait for its end, and return its exit code."""
        return self._process.wait(timeout)

    def succeed(self, timeout: float = 150) -> None:
        """Wait for its good end."""
        assert self.wait(timeout) == 0, self.log[-6000:]

    def kill(self) -> None:
        """SIGKILL, as by the kernel."""
        self._process.kill()
        self._process.wait()

    def terminate(self) -> None:
        """SIGTERM, as by a person's act or a deploy: what it means is the task's state."""
        self._process.terminate()


@dataclass
class Task:
    """A task on a cluster, its group, topic and lake."""

    folder: Path
    group: str
    connection: Mapping[str, Any]
    operator: dict[str, Any]
    environment: dict[str, str]
    run_id: str = "run-1"
    try_number: int = 0
    max_tries: int = 2
    tries: list[Try] = field(default_factory=list)

    @property
    def ledger(self) -> SqlLedger:
        """The ledger."""
        return SqlLedger(f"sqlite:///{self.folder}/kafka_offsets.db")

    def window(self) -> WindowRow:
        """Return the group's only window."""
        (row,) = self.ledger.windows(self.group)
        return row

    def attempts(self) -> list[Attempt]:
        """Return the attempts at it, oldest first."""
        return list(self.ledger.attempts(self.window().held.window.id))

    def outcomes(self) -> list[str]:
        """Return how they ended."""
        return [attempt.outcome.value for attempt in self.attempts()]

    def hold(self) -> Hold:
        """Stop the next job in the middle of its write."""
        return Hold(self.folder / "hold")

    def is_whole(self) -> bool:
        """Whether the lake holds each record once."""
        files = pyarrow.dataset.dataset(self.folder / "lake", partitioning="hive").to_table(["partition", "offset"])
        found = Counter(zip(files["partition"].to_pylist(), files["offset"].to_pylist(), strict=True))
        return found == Counter((0, offset) for offset in range(RECORDS))

    def store(self) -> dict[str, Any]:
        """Return what the task noted."""
        path = self.folder / "store.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def note(self, job: str) -> None:
        """Note another job's id."""
        (key,) = self.store()
        (self.folder / "store.json").write_text(json.dumps({key: job}))

    def set_state(self, state: str) -> None:
        """Let Airflow say this of the task."""
        (self.folder / "state").write_text(state)

    def clear(self) -> None:
        """Clear the task, as a person does."""
        self.max_tries = self.try_number + 2

    def start(self, *, kill_at: str | None = None, **operator: Any) -> Try:
        """Begin the next try."""
        self.try_number += 1
        self.set_state("running")
        who = {"run_id": self.run_id, "try_number": self.try_number, "max_tries": self.max_tries, "kill_at": kill_at}
        (self.folder / "task.json").write_text(json.dumps({**who, "operator": {**self.operator, **operator}}))
        log = self.folder / f"try-{self.try_number}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.launchers.worker", str(self.folder)],
                cwd=ROOT,
                env=self.environment,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self.tries.append(Try(process, log))
        wait_until(lambda: b"." in log.read_bytes() or process.poll() is not None, timeout=60, what="the try begins")
        return self.tries[-1]

    def die(self, step: str, **operator: Any) -> Try:
        """Let the next try die at a step."""
        died = self.start(kill_at=step, **operator)
        assert died.wait() == -signal.SIGKILL, died.log[-6000:]
        return died


@pytest.fixture
def make_task(tmp_path: Path, kafka: KafkaBroker, topic: str) -> Iterator[Any]:
    """Return what makes a task on a cluster."""
    made: list[Task] = []

    def make(connection: Mapping[str, Any], environment: Mapping[str, str] | None = None, **operator: Any) -> Task:
        create_topic(kafka, topic)
        produce(kafka, topic, RECORDS)
        connections = {"kafka_default": {"conn_type": "kafka", "extra": kafka.client_config()}, "cluster": connection}
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        task = Task(
            folder=tmp_path,
            group=topic,
            connection=connection,
            operator={
                "group": {"name": topic, "topics": [topic], "kafka_timeout": 10},
                "application": f"local:{JOBS}/to_parquet.py",
                "application_args": [str(tmp_path / "lake"), str(tmp_path / "hold")],
                "jars": ",".join(str(jar) for jar in spark_connector_jars()),
                "conn_id": "cluster",
                "conf": _LIGHT,
                "driver_memory": "512m",
                "executor_memory": "512m",
                **operator,
            },
            environment={
                **ours,
                **{f"AIRFLOW_CONN_{name.upper()}": json.dumps(value) for name, value in connections.items()},
                "AIRFLOW_HOME": str(tmp_path),
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "SPARK_LOCAL_IP": "127.0.0.1",
                **(environment or {}),
            },
        )
        made.append(task)
        return task

    yield make
    for task in made:
        for started in task.tries:
            if started.is_alive:
                started.kill()


@pytest.fixture
def job_side(tmp_path: Path) -> str:
    """Return where every node finds the job side."""
    return f"local:{write_zip(tmp_path)}"


