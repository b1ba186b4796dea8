"""Tasks whose workers die, against real clusters: a real Kafka, a real ledger, and no Airflow around them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_kafka_offsets.core.history import Attempt
from airflow_kafka_offsets.core.launch.start import SUBMIT_OPTIONS
from airflow_kafka_offsets.core.window import WindowRecord
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.spark.shipping import write_zip
from airflow_kafka_offsets.triggers.driver import DriverTrigger
from tests.acceptance.conftest import Hold
from tests.lab.child import Child
from tests.lab.jars import spark_connector_jars
from tests.lab.kafka import KafkaBroker
from tests.lab.processes import LOOPBACK, wait_until
from tests.lab.start import spark_on_clusters
from tests.lab.tables import FEW_RECORDS
from tests.lab.topics import create_topic, produce

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "tests" / "acceptance" / "dags" / "jobs"
LIGHT = Path(__file__).parent / "jobs" / "light.py"
RECORDS = 60
LIGHT_CONF = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.cores.max": "1", **FEW_RECORDS}


def _ours() -> dict[str, str]:
    """Return our environment without its Spark, with the program folder of this Python first on PATH."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return {**ours, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


class Try(Child):
    """One try of a task: a worker's process."""

    def succeed(self) -> None:
        """Wait for its good end."""
        assert self.wait() == 0, self.log[-6000:]

    def terminate(self) -> None:
        """Send SIGTERM, as a person or a deploy does; which of the two it was is the task's state."""
        self.send_signal(signal.SIGTERM)

    def says(self, text: str) -> None:
        """Wait until it has written this."""
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: text in self.log or not self.is_alive, what=repr(text))
        assert text in self.log, self.log[-6000:]


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
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    max_tries: int = 9
    tries: list[Try] = field(default_factory=list)

    @property
    def ledger(self) -> Ledger:
        """The ledger."""
        return Ledger(f"sqlite:///{self.folder}/kafka_offsets.db")

    def window(self) -> WindowRecord:
        """Return the group's only window."""
        (row,) = self.ledger.windows(self.group)
        return row

    def attempts(self) -> list[Attempt]:
        """Return the attempts at it, oldest first."""
        return list(self.ledger.attempts(self.window().window.id))

    def outcomes(self) -> list[str]:
        """Return how they ended."""
        return [attempt.outcome.value for attempt in self.attempts()]

    def hold(self) -> Hold:
        """Stop the next job in the middle of its write."""
        return Hold(self.folder / "hold")

    def is_whole(self) -> bool:
        """Whether the lake holds each record once."""
        import pyarrow.dataset

        files = pyarrow.dataset.dataset(self.folder / "lake", partitioning="hive").to_table(["partition", "offset"])
        found = Counter(zip(files["partition"].to_pylist(), files["offset"].to_pylist(), strict=True))
        return found == Counter((0, offset) for offset in range(RECORDS))

    def ran(self) -> list[str]:
        """Return the windows that the light job has run, one line for each run."""
        path = self.folder / "ran"
        return path.read_text().splitlines() if path.exists() else []

    def processes(self, script: str) -> list[psutil.Process]:
        """Return the Python processes of this task's job, wherever they run."""
        return [
            process
            for process in psutil.process_iter(["name", "cmdline"])
            if process.info["name"].startswith("python")
            and any(part.endswith(script) for part in process.info["cmdline"] or ())
            and any(part.startswith(str(self.folder)) for part in process.info["cmdline"])
        ]

    def store(self) -> dict[str, Any]:
        """Return the values that the task noted."""
        path = self.folder / "store.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def note(self, job: str) -> None:
        """Note another job's id."""
        first = next(
            attempt.id for attempt in self.attempts() if (attempt.series or "").startswith(f"{self.max_tries} ")
        )
        key = f"spark_job_id:{self.window().window.id}:{first}"
        (self.folder / "store.json").write_text(json.dumps({key: job}))

    def set_state(self, state: str) -> None:
        """Let Airflow say this of the task."""
        (self.folder / "state").write_text(state)

    def clear(self) -> None:
        """Clear the task, as a person does."""
        self.max_tries = self.try_number + 9

    def start(self, *, kill_at: str | None = None, event: dict[str, Any] | None = None, **operator: Any) -> Try:
        """Begin the next try, or resume the last one with the event of its trigger."""
        if event is None:
            self.try_number += 1
            self.started = datetime.now(UTC)
        self.set_state("running")
        who = {"run_id": self.run_id, "try_number": self.try_number, "max_tries": self.max_tries, "kill_at": kill_at}
        when = {"started": self.started.isoformat(), "event": event}
        (self.folder / "task.json").write_text(json.dumps({**who, **when, "operator": {**self.operator, **operator}}))
        log = self.folder / f"try-{self.try_number}-{len(self.tries)}.log"
        environment = {**_ours(), **self.environment}
        self.tries.append(Try("tests.launchers.worker:run", {"folder": str(self.folder)}, log, environment))
        return self.tries[-1]

    def die(self, step: str, **operator: Any) -> Try:
        """Let the next try die at a step, or the last one when it is resumed."""
        died = self.start(kill_at=step, **operator)
        assert died.wait() == -signal.SIGKILL, died.log[-6000:]
        return died

    def deferring(self, monkeypatch: pytest.MonkeyPatch) -> Task:
        """Let it give its worker slot back from now on, and let this process have its connection, as a triggerer has."""
        monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", self.environment["AIRFLOW_CONN_CLUSTER"])
        self.operator |= {"deferrable": True, "poll_interval": 5}
        return self

    def defer(self) -> DriverTrigger:
        """Let the next try give its worker slot back, and return its trigger as the triggerer makes it."""
        self.start().succeed()
        path, kwargs, method = json.loads((self.folder / "deferred.json").read_text())
        (self.folder / "deferred.json").unlink()
        assert (path, method) == (f"{DriverTrigger.__module__}.{DriverTrigger.__qualname__}", "reconnect")
        self.set_state("deferred")
        return DriverTrigger(**kwargs)


def fires(trigger: DriverTrigger) -> dict[str, Any]:
    """Run a trigger until it fires, and return its event."""

    async def payload() -> Any:
        return (await anext(aiter(trigger.run()))).payload

    return dict(asyncio.run(payload()))


@pytest.fixture
def make_task(tmp_path: Path, kafka: KafkaBroker, topic: str) -> Iterator[Any]:
    """Return what makes a task on a cluster."""
    made: list[Task] = []

    def make(connection: Mapping[str, Any], environment: Mapping[str, str] | None = None, **operator: Any) -> Task:
        create_topic(kafka, topic)
        produce(kafka, topic, RECORDS)
        connections = {"kafka_default": {"conn_type": "kafka", "extra": kafka.client_config()}, "cluster": connection}
        task = Task(
            folder=tmp_path,
            group=topic,
            connection=connection,
            operator={
                "group": {"name": topic, "topics": [topic], "kafka_timeout": 60},
                "application": f"local:{JOBS}/to_parquet.py",
                "application_args": [str(tmp_path / "lake"), str(tmp_path / "hold")],
                "jars": ",".join(str(jar) for jar in spark_connector_jars()),
                "conn_id": "cluster",
                "conf": {**LIGHT_CONF, **spark_on_clusters()},
                "driver_memory": "512m",
                "executor_memory": "512m",
                **operator,
            },
            environment={
                **{f"AIRFLOW_CONN_{name.upper()}": json.dumps(value) for name, value in connections.items()},
                "AIRFLOW_HOME": str(tmp_path),
                "SPARK_LOCAL_IP": LOOPBACK,
                # For a cluster, spark-submit is no driver, and the operator leaves its JVM alone.
                SUBMIT_OPTIONS: os.environ[SUBMIT_OPTIONS],
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


def is_over(process: psutil.Process) -> bool:
    """Whether a process does nothing any more; no one may have fetched its exit code yet."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def light(folder: Path) -> dict[str, Any]:
    """Return what makes an operator's job the light one."""
    window = ["{window_id}", "{starting_offsets}", "{ending_offsets}"]
    arguments = [str(folder / "ran"), str(folder / "hold"), *window]
    return {
        "application": f"local:{LIGHT}",
        "application_args": arguments,
        "ship": False,
        "connector": None,
        "jars": None,
    }


@pytest.fixture
def job_side(tmp_path: Path) -> str:
    """Return where every node finds the job side."""
    return f"local:{write_zip(tmp_path)}"
