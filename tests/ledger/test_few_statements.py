"""A thousand groups are looked at with a handful of statements, on one connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, event

from airflow_kafka_offsets.core.conditions import CommittedUntil, LagAtMost, WindowCommitted
from airflow_kafka_offsets.core.lag.pace import MAX_RUNS
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.service import watch
from tests.lab.history import History, write
from tests.ledger.examples import NOW, claim, draft, group
from tests.service.memory_log import MemoryLog

GROUPS = 1_000


@dataclass
class Counts:
    """What a database was asked."""

    connections: int = 0
    statements: int = 0


@contextmanager
def counting(engine: Engine) -> Iterator[Counts]:
    """Count connections and statements."""
    counts = Counts()

    def connect(*_: Any) -> None:
        counts.connections += 1

    def execute(*_: Any) -> None:
        counts.statements += 1

    event.listen(engine, "connect", connect)
    event.listen(engine, "before_cursor_execute", execute)
    try:
        yield counts
    finally:
        event.remove(engine, "connect", connect)
        event.remove(engine, "before_cursor_execute", execute)


@pytest.fixture(scope="module")
def names() -> list[str]:
    """Return the names of the groups."""
    return [f"few-{number:04}" for number in range(GROUPS)]


@pytest.fixture(scope="module")
def kafka(names: list[str]) -> MemoryLog:
    """Make a topic of three records for each group."""
    kafka = MemoryLog()
    for name in names:
        kafka.create(name)
        kafka.produce(TopicPartition(name, 0), 3)
    return kafka


@pytest.fixture(scope="module")
def ledger(sqlite_url: str, names: list[str], kafka: MemoryLog) -> Ledger:
    """Write groups of two windows; every tenth has an open one, too."""
    ledger = Ledger(sqlite_url)
    ids = kafka.topic_ids(names)
    write(ledger._engine, [History(group(name, topics=[name]), {name: 1}, {name: ids[name]}, 2) for name in names])
    for name in names[::10]:
        version = ledger.load(name).version
        third = replace(draft(2, 3, partitions=1, topic=name), topic_ids={name: ids[name]})
        ledger.add_windows(group(name, topics=[name]), version, [third], claim(), NOW)
    return ledger


@pytest.mark.parametrize(
    "question",
    [
        lambda ledger, names: ledger.overviews(names),
        lambda ledger, names: ledger.load_all(names),
        lambda ledger, names: ledger.frontiers(names),
        lambda ledger, names: ledger.recent_commits(dict.fromkeys(names, MAX_RUNS)),
        lambda ledger, names: ledger.outlines(names),
        lambda ledger, names: ledger.records([f"{name}-000002" for name in names]),
    ],
    ids=["overviews", "states", "frontiers", "commits", "outlines", "records"],
)
def test_a_question_about_all_groups(
    ledger: Ledger, names: list[str], question: Callable[[Ledger, list[str]], Any]
) -> None:
    with counting(ledger._engine) as counts:
        assert len(question(ledger, names)) == GROUPS
    assert counts.connections == 1
    assert counts.statements <= 20


def test_a_poll_of_many_sensors(ledger: Ledger, names: list[str], kafka: MemoryLog) -> None:
    kafka.calls.clear()
    groups = [group(name, topics=[name]) for name in names]
    conditions = [
        *(LagAtMost(one, 5) for one in groups),
        *(CommittedUntil(one.name, NOW - timedelta(days=1)) for one in groups),
        *(WindowCommitted(f"{one.name}-000002") for one in groups),
    ]
    with counting(ledger._engine) as counts:
        answers = watch.ask(conditions, lambda: ledger, lambda: kafka)
    assert not [answer for answer in answers if isinstance(answer, Exception)]
    assert counts.connections == 1
    assert counts.statements <= 20
    assert kafka.calls == ["snapshot"]
