"""A ledger that was filled through the service, and the command line on it."""

from __future__ import annotations

import gc
import json
import logging
import os
import pickle
import re
import signal
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.cli import airflow_runs, main
from airflow_kafka_offsets.core.errors import KafkaUnavailableError
from airflow_kafka_offsets.core.group import KafkaGroup, OnDataLoss
from airflow_kafka_offsets.core.log import IsolationLevel, LogSnapshot
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan import ownership
from airflow_kafka_offsets.core.run import Try
from airflow_kafka_offsets.core.store_address import StoreAddress
from airflow_kafka_offsets.core.window import Claim, Outcome, Window
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.ledger.schema import VERSION_TABLE
from airflow_kafka_offsets.ports import LogOffsets
from airflow_kafka_offsets.service.windows import WindowService
from airflow_kafka_offsets.wiring.stores import opening as wiring_of_stores
from tests.lab.waiting import run_to_end
from tests.service.memory_log import MemoryLog
from tests.stores.memory import MemoryStore

START = datetime(2026, 1, 31, tzinfo=UTC)
ORDERS = KafkaGroup("lake.orders", topics=["orders"], max_offsets=1000)
CLICKS = KafkaGroup("lake.clicks", topics=["clicks"], on_data_loss=OnDataLoss.SKIP, kafka_conn_id="other")


ORDERS_0, ORDERS_1, CLICKS_0 = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("clicks", 0)


class Kafka(MemoryLog):
    """Kafka in memory, that may be down."""

    is_down = False

    def snapshot(self, topics: Sequence[str], isolation_level: IsolationLevel) -> LogSnapshot:
        """Answer, or not."""
        if self.is_down:
            raise KafkaUnavailableError("Kafka at nowhere:9092 did not answer within 1.0 s")
        return super().snapshot(topics, isolation_level)


@dataclass
class Lake:
    """A ledger in a SQLite file, and what Kafka holds."""

    path: Path
    log: Any
    minutes: int = 0
    ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.url, create=True)

    @property
    def url(self) -> str:
        """SQLAlchemy's URL."""
        return f"sqlite:///{self.path}"

    def watermark(self) -> dict[int, int]:
        """Return the watermark of lake.orders by partition."""
        position = ownership.watermark(self.ledger.load("lake.orders"))
        assert position is not None
        return {tp.partition: offset for tp, offset in position.offsets.items()}

    @property
    def service(self) -> WindowService:
        """The use cases, one minute later at every look at the clock."""
        return WindowService(self.ledger, self.log, self.clock)

    def clock(self) -> datetime:
        """Return a time that grows."""
        self.minutes += 1
        return START + timedelta(minutes=self.minutes)

    def plan(self, group: KafkaGroup, run: int) -> tuple[Window, Claim]:
        """Plan a window for a run."""
        claim = Claim(group.name.rpartition(".")[2], f"scheduled__{run}", "load")  # a DAG for each group
        return self.service.plan(group, claim, is_over=lambda claim: True)[0].window, claim

    def commit(self, group: KafkaGroup, run: int) -> Window:
        """Plan a window, read all of it, commit it."""
        window, claim = self.plan(group, run)
        attempt = self.service.start_attempt(window, claim)
        self.service.end_attempt(attempt, Outcome.SUCCEEDED, window.span)
        self.service.commit(window.id, claim, attempt)
        return window

    def dump(self) -> list[str]:
        """Return all that the ledger holds."""
        connection = sqlite3.connect(self.path)
        try:
            return list(connection.iterdump())
        finally:
            connection.close()


@contextmanager
def ctrl_c_is(handler: Any) -> Iterator[None]:
    """Let SIGINT be handled in a way, however these tests were started: those of a shell's background ignore it."""
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def at_each_pause(monkeypatch: pytest.MonkeyPatch, command: str, act: Callable[[float], Any]) -> None:
    """Do something in the place of a command's pauses between two looks; other threads sleep as they did."""
    monkeypatch.setattr(f"airflow_kafka_offsets.cli.{command}.sleep", act)


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    """Let the collector work again after a command that ran in this process, which it believes to be its own."""
    yield
    gc.enable()


@pytest.fixture(autouse=True)
def _no_handler_stays() -> Iterator[None]:
    """Remove what Airflow adds to the root logger when it is first configured: it writes to what pytest captured of that test."""
    before = list(logging.root.handlers)
    yield
    for handler in list(logging.root.handlers):
        if handler not in before and type(handler) is logging.StreamHandler:
            logging.root.removeHandler(handler)


@pytest.fixture
def lake(quick_folder: Path, filled: Lake) -> Lake:
    """A copy of the filled one."""
    path = quick_folder / "ledger.db"
    path.write_bytes(filled.path.read_bytes())
    return Lake(path, pickle.loads(pickle.dumps(filled.log)), filled.minutes)


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Two committed windows of lake.orders, a third one that a run works on, and a group that lost offsets."""
    log = Kafka()
    log.create("orders", 2)
    log.create("clicks")
    log.produce(ORDERS_0, 600)
    log.produce(ORDERS_1, 300)
    log.produce(CLICKS_0, 50)
    lake = Lake(tmp_path_factory.mktemp("lake") / "ledger.db", log)
    lake.commit(ORDERS, 1)
    log.produce(ORDERS_0, 400)
    lake.commit(ORDERS, 2)
    log.produce(ORDERS_1, 4700)
    window, claim = lake.plan(ORDERS, 3)
    first = lake.service.start_attempt(window, claim)
    lake.service.end_attempt(first, Outcome.FAILED)
    lake.service.start_attempt(window, claim, Try(2))
    lake.commit(CLICKS, 1)
    log.produce(CLICKS_0, 40)
    log.expire(CLICKS_0, 80)
    lake.commit(CLICKS, 2)
    return lake


@pytest.fixture
def quiet(lake: Lake) -> Lake:
    """The same, and no one works on lake.orders: its third window is abandoned."""
    lake.service.abandon("lake.orders-000003", "ann", "the job was wrong")
    return lake


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed for programs."""
        return json.loads(self.out)


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> Stores:
    """Offset stores in memory, by their address; made when they are first asked for."""
    opened: Stores = defaultdict(MemoryStore)

    def open_store(address: StoreAddress, group: KafkaGroup, kafka_config: object = None) -> MemoryStore:
        opened[str(address)].name = str(address)
        return opened[str(address)]

    monkeypatch.setattr(wiring_of_stores, "open_store", open_store)
    return opened


Cli = Callable[..., Done]
Stores = dict[str, MemoryStore]


def half_way(lake: Lake) -> None:
    """Leave the open window as a commit leaves it that stops half-way."""
    engine = create_engine(lake.url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE kafka_offsets_windows SET state = 'committing' WHERE state = 'planned'"))
    engine.dispose()


def set_revision(url: str, revision: str) -> None:
    """Let a ledger be of another revision."""
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = :revision"), {"revision": revision})
    engine.dispose()


def read_past_an_open_transaction(lake: Lake) -> None:
    """Let lake.clicks read all its records uncommitted, and define it as read_committed after that: a transaction hides the last."""
    lake.log.open_transaction(CLICKS_0)
    lake.log.produce(CLICKS_0, 5)
    lake.commit(replace(CLICKS, isolation_level=IsolationLevel.READ_UNCOMMITTED), 3)
    lake.plan(CLICKS, 4)


def cells(line: str) -> list[str]:
    """Return the cells of a table's row."""
    return re.split(r" {2,}", line.strip())


@pytest.fixture
def cli(lake: Lake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run ``kafka-offsets`` on the lake in this process; Kafka is its dictionary, and there is no Airflow to ask."""
    monkeypatch.setattr(airflow_runs, "is_over", lambda claim: None)
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
    monkeypatch.setenv("KAFKA_OFFSETS_LEDGER", lake.url)

    def open_log(group: KafkaGroup, config: object = None) -> LogOffsets:
        log: LogOffsets = lake.log
        return log

    monkeypatch.setattr(wiring, "open_log", open_log)

    def run(*arguments: str) -> Done:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = capsys.readouterr()
        return Done(int(ended.value.code or 0), out, err)

    return run


def in_a_process(*arguments: str, environment: dict[str, str] | None = None) -> Done:
    """Run ``kafka-offsets`` as people do."""
    program = Path(sys.executable).parent / "kafka-offsets"
    done = run_program([str(program), *arguments], environment)
    return Done(done.returncode, done.stdout, done.stderr)


def run_program(command: Sequence[str], environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program with our environment and a few more variables."""
    return run_to_end(command, env={**os.environ, **(environment or {})})
