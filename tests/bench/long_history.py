"""`make bench`: what the ledger costs after 1,000 windows and after 1,000,000, for 1,000 groups, and with 20,000 partitions.

The histories are written through the schema (`tests.lab.history`): a window a minute, each with one attempt. Short and long history are
groups of one ledger, and each step is taken by turns for the one and the other. The smallest time of all rounds counts: whatever comes on
top is other work. Kafka answers at once (`EvenLog`), as only the ledger is measured here.

Arguments: windows of the long history (1,000,000), rounds (7), databases (sqlite postgresql mariadb).
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from sqlalchemy import event, text
from tabulate import tabulate

from airflow_kafka_offsets.core.conditions import CommittedUntil, LagAtMost
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.log import Bounds, IsolationLevel, LogSnapshot
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.request import Ranges, TimeSpan
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.window import Claim, Outcome
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.service import watch
from airflow_kafka_offsets.service.plan import Planned
from airflow_kafka_offsets.service.windows import WindowService
from tests.lab.databases import MariaDB, Postgres
from tests.lab.history import History, write

SHORT = 1_000
GROUPS = 1_000
WIDE, DEEP = 20_000, 100
"""How many partitions, and how many windows of them."""

_RUNS = count(1)


class EvenLog:
    """The topics of a history, in which each window of a minute has the same number of records. `ports.LogOffsets`, at no cost."""

    def __init__(self, *histories: History) -> None:
        self._histories = {topic: history for history in histories for topic in history.partitions}

    def snapshot(self, topics: Sequence[str], isolation_level: IsolationLevel) -> LogSnapshot:
        """Return what the histories have read, and as much again."""
        ids = {topic: self._histories[topic].topic_ids[topic] for topic in topics}
        partitions = [
            TopicPartition(topic, p) for topic in topics for p in range(self._histories[topic].partitions[topic])
        ]
        return LogSnapshot(ids, {tp: self._bounds(tp) for tp in partitions})

    def _bounds(self, tp: TopicPartition) -> Bounds:
        history = self._histories[tp.topic]
        return Bounds(0, 2 * history.windows * history.span)

    def topics(self) -> Collection[str]:
        """Return the topics of all histories."""
        return self._histories.keys()

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        """Return the ids of topics."""
        return {topic: self._histories[topic].topic_ids[topic] for topic in topics}

    def bounds(
        self, partitions: Sequence[TopicPartition], isolation_level: IsolationLevel
    ) -> Mapping[TopicPartition, Bounds]:
        """Return the bounds of partitions."""
        return {tp: self._bounds(tp) for tp in partitions}

    def offsets_at(
        self, partitions: Sequence[TopicPartition], time: datetime, isolation_level: IsolationLevel
    ) -> Mapping[TopicPartition, int | None]:
        """Return the first offset of the window that was cut after a time."""
        return {tp: self._offset_at(self._histories[tp.topic], time) for tp in partitions}

    def _offset_at(self, history: History, time: datetime) -> int | None:
        before = max(0, (time - history.cut(0)) // history.every)
        return before * history.span if before < 2 * history.windows else None

    def retentions(self, topics: Sequence[str]) -> dict[str, Any]:
        """Return nothing: no configuration may be read."""
        return {}

    def first_records(self, wanted: Collection[Any]) -> dict[Any, None]:
        """Return nothing: no record has a time."""
        return dict.fromkeys(wanted)

    def epoch_ends(self, wanted: Collection[Any]) -> dict[Any, int]:
        """Return nothing: no epoch is known."""
        return {}

    def committed(self, group_id: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return nothing."""
        return dict.fromkeys(partitions)


@dataclass(frozen=True)
class Side:
    """One history, and what is needed to work with it."""

    history: History
    ledger: Ledger
    service: WindowService

    @property
    def group(self) -> KafkaGroup:
        """The group."""
        return self.history.group


def side(history: History, ledger: Ledger) -> Side:
    """Write a history, and return it with a service on it."""
    write(ledger._engine, [history])
    return Side(history, ledger, WindowService(ledger, EvenLog(history)))


# One history


def run(it: Side, by: Claim | None = None) -> Planned:
    """Plan, work and commit, as a run does."""
    by = by or Claim("bench", f"run {next(_RUNS)}", "load")
    [planned] = it.service.plan(it.group, by, lambda _: True)
    attempt = it.service.start_attempt(planned.window, by)
    it.service.end_attempt(attempt, Outcome.SUCCEEDED, planned.window.span)
    it.service.commit(planned.window.id, by, attempt)
    return planned


def again(it: Side) -> None:
    """Run an old run's window again, as a clear does."""
    run(it, Claim("bench", f"{it.group.name} {it.history.windows // 2}", "load"))


def newest_hour(it: Side) -> None:
    """Give the windows of the newest hour to another run."""
    by, until = Claim("bench", f"replay {next(_RUNS)}", "load"), it.history.until
    found = it.service.plan(it.group, by, lambda _: True, TimeSpan(until - timedelta(hours=1), until))
    assert len(found) == 60, len(found)


def old_offset(it: Side) -> None:
    """Ask who owns one old offset of each topic."""
    at = it.history.span * (it.history.windows // 3)
    asked = OffsetRanges((TopicPartition(topic, 0), OffsetRange(at, at + 1)) for topic in it.history.partitions)
    found, drafts = it.service.answer(it.group, Ranges(asked))
    assert len(found) == 1
    assert not drafts


def back(it: Side) -> None:
    """Reset to where the newest window starts."""
    newest = run(it).window.id
    it.service.reset(it.group, "", "bench", "bench", to_window=newest, supersede=True)


def poll(it: Side) -> None:
    """Ask what a sensor asks that waits for a planned-until time."""
    [answer] = watch.ask([CommittedUntil(it.group.name, it.history.cut(3))], lambda: it.ledger)
    assert isinstance(answer, watch.Decision), answer
    assert answer.is_met


STEPS: dict[str, Callable[[Side], object]] = {
    "plan + attempt + commit": run,
    "an old run's window again": again,
    "load + watermark": lambda it: it.ledger.load(it.group.name),
    "`windows`": lambda it: it.ledger.windows(it.group.name),
    "`status` of the group": lambda it: it.ledger.overviews([it.group.name]),
    "`CommittedUntil` poll": poll,
    "replay of the newest hour": newest_hour,
    "owners of an old offset": old_offset,
    "reset one window back (with its run)": back,
}


def measure(sides: Sequence[Side], rounds: int) -> dict[str, list[float]]:
    """Return the smallest seconds of each step, for each side."""
    found = {step: [float("inf")] * len(sides) for step in STEPS}
    for _ in range(rounds):
        for step, act in STEPS.items():
            for number, it in enumerate(sides):
                found[step][number] = min(found[step][number], seconds(lambda act=act, it=it: act(it)))
    return found


def seconds(act: Callable[[], object]) -> float:
    """Do something, and return how long it took."""
    gc.collect()
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


# Many groups, and many partitions


def many_groups(ledger: Ledger, rounds: int) -> list[list[Any]]:
    """Return rows about questions to a thousand groups."""
    made = [
        History(KafkaGroup(f"many-{n:04}", topics=[f"many-{n}"]), {f"many-{n}": 3}, {f"many-{n}": f"id-{n}"}, 20)
        for n in range(GROUPS)
    ]
    write(ledger._engine, made)
    names, kafka = [history.group.name for history in made], EvenLog(*made)
    until = [CommittedUntil(name, made[0].cut(3)) for name in names]
    lag = [LagAtMost(history.group, 5) for history in made]
    questions: dict[str, Callable[[], object]] = {
        "`status` of all": lambda: (ledger.groups(), ledger.overviews(names)),
        "`CommittedUntil` poll of all": lambda: watch.ask(until, lambda: ledger),
        "`LagAtMost` poll of all": lambda: watch.ask(lag, lambda: ledger, lambda: kafka),
    }
    rows = []
    for name, ask in questions.items():
        connections, statements = counted(ledger, ask)
        rows.append([name, f"{min(seconds(ask) for _ in range(rounds)):.2f}", statements, connections])
    return rows


def counted(ledger: Ledger, ask: Callable[[], object]) -> tuple[int, int]:
    """Return how many connections and statements a question takes."""
    found = {"connect": 0, "before_cursor_execute": 0}
    listeners = {name: lambda *_, name=name: found.update({name: found[name] + 1}) for name in found}
    for name, listener in listeners.items():
        event.listen(ledger._engine, name, listener)
    try:
        ask()
    finally:
        for name, listener in listeners.items():
            event.remove(ledger._engine, name, listener)
    return found["connect"], found["before_cursor_execute"]


def many_partitions(ledger: Ledger, rounds: int) -> list[list[Any]]:
    """Return rows about a group of 20,000 partitions."""
    group = KafkaGroup("wide", topics=["wide"], max_offsets=WIDE * 7)
    it = side(History(group, {"wide": WIDE}, {"wide": "id-of-wide"}, DEEP, span=7), ledger)
    asked: dict[str, Callable[[Side], object]] = {
        "plan + attempt + commit": run,
        "`CommittedUntil` poll": poll,
        "owners of an old offset": old_offset,
    }
    rows = []
    for name, act in asked.items():
        least = min(seconds(lambda act=act: act(it)) for _ in range(rounds))
        tracemalloc.start()
        act(it)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        rows.append([name, f"{1000 * least:.0f}", f"{peak / 1e6:.1f}"])
    return rows


# Databases


@contextmanager
def opened(name: str, folder: Path) -> Iterator[Ledger]:
    """Start a database, and open a ledger in it."""
    match name:
        case "sqlite":
            yield Ledger(f"sqlite:///{folder}/ledger.db", create=True)
        case "postgresql":
            with Postgres() as postgres:
                yield Ledger(postgres.url, create=True)
        case "mariadb":
            with MariaDB() as mariadb:
                yield Ledger(mariadb.url, create=True)
        case _:
            raise SystemExit(f"no database {name}: sqlite, postgresql or mariadb")


def size_of(ledger: Ledger) -> int:
    """Return how many bytes the ledger's tables and indexes have."""
    match ledger._engine.dialect.name:
        case "sqlite":
            return os.path.getsize(str(ledger._engine.url.database))
        case "postgresql":
            query = "SELECT pg_database_size(current_database())"
        case _:
            query = (
                "SELECT sum(data_length + index_length) FROM information_schema.tables WHERE table_schema = DATABASE()"
            )
    with ledger._engine.connect() as connection:
        return int(connection.execute(text(query)).scalar_one())


def settle(ledger: Ledger) -> None:
    """Let the database do what it does by itself some minutes after a large load."""
    match ledger._engine.dialect.name:
        case "sqlite":
            with ledger._engine.connect().execution_options(only_reads=True) as connection:
                connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        case "postgresql":
            with ledger._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.exec_driver_sql("VACUUM ANALYZE")


def main(windows: int, rounds: int, databases: Sequence[str]) -> None:
    """Run the benchmark, and print the tables of each database."""
    logging.disable(logging.WARNING)
    for name in databases:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
            ledger = stack.enter_context(opened(name, folder))
            base = History(
                KafkaGroup("short", topics=["short"], max_offsets=4), {"short": 4}, {"short": "id-of-short"}, SHORT
            )
            long = replace(
                base,
                group=KafkaGroup("long", topics=["long"], max_offsets=4),
                partitions={"long": 4},
                topic_ids={"long": "x"},
            )
            sides = [side(base, ledger)]
            before, began = size_of(ledger), time.monotonic()
            sides.append(side(replace(long, windows=windows), ledger))
            settle(ledger)
            each = (size_of(ledger) - before) / windows
            print(
                f"{name}: {windows:,} windows written in {time.monotonic() - began:.0f} s, {each:.0f} bytes each\n",
                flush=True,
            )
            report(measure(sides, rounds), windows)
            rows = many_groups(ledger, rounds)
            print(
                tabulate(rows, [f"{GROUPS:,} groups", "s", "statements", "connections"], tablefmt="github"),
                "\n",
                flush=True,
            )
            rows = many_partitions(ledger, rounds)
            print(tabulate(rows, [f"{WIDE:,} partitions", "ms", "peak MB"], tablefmt="github"), "\n", flush=True)


def report(found: Mapping[str, Sequence[float]], windows: int) -> None:
    """Print how much slower the long history is."""
    rows = [
        [step, f"{1000 * short:.1f}", f"{1000 * long:.1f}", f"{long / short:.2f}"]
        for step, (short, long) in found.items()
    ]
    headers = ["ms", f"{SHORT:,} windows", f"{windows:,} windows", "times"]
    print(tabulate(rows, headers, tablefmt="github", disable_numparse=True), "\n", flush=True)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(
        int(arguments[0]) if arguments else 1_000_000,
        int(arguments[1]) if len(arguments) > 1 else 7,
        arguments[2:] or ["sqlite", "postgresql", "mariadb"],
    )
