"""`make bench`: what 1,000 deferred sensors on 50 topics cost the triggerer's event loop.

Beside them the same sensors the way triggers are usually written: each looks for itself, in asgiref's one thread. A loop with
nothing in it is the floor of the lag.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Thread
from threading import enumerate as running_threads
from typing import Any
from unittest.mock import patch

from asgiref.sync import sync_to_async
from tabulate import tabulate

from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.adapters.kafka import client as kafka_client
from airflow_kafka_offsets.adapters.kafka.log import KafkaLog
from airflow_kafka_offsets.core.conditions import (
    Condition,
    LagAtMost,
    TimePassed,
    UnreadAtLeast,
    condition_to_json,
    ledger_conn_id,
)
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.window import Claim, Scope
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.service import watch
from airflow_kafka_offsets.service.windows import WindowService
from airflow_kafka_offsets.triggers.conditions import ConditionTrigger
from tests.lab.kafka import KafkaBroker
from tests.lab.topics import create_topic, produce

TOPICS = 50
PARTITIONS = 6
SENSORS = 1000
TICK = 0.01


@dataclass
class Cost:
    """What one way of waiting cost.

    Attributes:
        lag: how much later than it should a sleeping task woke up, in seconds, over and over.
        queue: how long another trigger's call waited for asgiref's thread, in seconds, over and over.
        calls: how often Kafka and ledger were asked what.
        polls: how often someone looked.
        clients: Kafka clients of this process.
        threads: our own threads.
    """

    lag: list[float] = field(default_factory=list)
    queue: list[float] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    polls: int = 0
    clients: int = 0
    threads: int = 0

    def row(self) -> list[Any]:
        """Return a line of the table."""
        centiles = statistics.quantiles(self.lag, n=100)
        times = [1000 * value for value in (centiles[49], centiles[98], max(self.lag), max(self.queue, default=0))]
        return [self.clients, self.threads, self.polls, self.calls["snapshot"], self.calls["load"], *times]


def main(seconds: float = 30) -> None:
    """Run the benchmark, and print a table."""
    logging.disable(logging.WARNING)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        kafka = stack.enter_context(KafkaBroker(folder / "kafka"))
        conditions = stack.enter_context(waiting_groups(kafka, folder))
        ways: dict[str, Callable[[Condition], Any]] = {
            "no one waits": lambda _: None,
            "one poll for all": shared,
            "each for itself": alone,
        }
        rows = []
        for name, way in ways.items():
            rows.append([name, *asyncio.run(measure(conditions, way, seconds)).row()])
            print(f"... {name}: done", flush=True)
    headers = [
        "",
        "clients",
        "threads",
        "looks",
        "snapshots",
        "ledger loads",
        "lag p50 ms",
        "p99 ms",
        "max ms",
        "queue ms",
    ]
    print(tabulate(rows, headers, floatfmt=".1f"))
    print(f"{SENSORS} sensors, {TOPICS} topics of {PARTITIONS} partitions, a look every 5 s, for {seconds:g} s each")


@contextmanager
def waiting_groups(kafka: KafkaBroker, folder: Path, topics: int = TOPICS) -> Iterator[list[Condition]]:
    """Make topics and groups behind Airflow connections; return conditions of all kinds that are never met."""
    url = f"sqlite:///{folder}/ledger.db"
    service = WindowService(Ledger(url, create=True), KafkaLog(kafka.client_config(), 30))
    names = [f"bench-triggerer-{number}" for number in range(topics)]
    for name in names:
        create_topic(kafka, name, PARTITIONS)
        claim = Claim("bench", name, "t", scope=Scope.RUN)
        service.commit(service.plan(KafkaGroup(name, topics=[name]), claim, lambda _: True)[0].window.id, claim)
        produce(kafka, name, 1, timestamp_ms=int(time.time() * 1000))
    connections = {
        "AIRFLOW_CONN_BENCH_KAFKA": {"conn_type": "kafka", "extra": kafka.client_config()},
        "AIRFLOW_CONN_BENCH_LEDGER": {"conn_type": "sqlite", "host": f"{folder}/ledger.db"},
    }
    with patch.dict(os.environ, {name: json.dumps(value) for name, value in connections.items()}):
        yield [condition(names[number % topics], number) for number in range(SENSORS)]


def condition(topic: str, number: int) -> Condition:
    """Return one of five kinds of waiting on a topic."""
    group = KafkaGroup(topic, topics=[topic], kafka_conn_id="bench_kafka", ledger_conn_id="bench_ledger")
    now = datetime.now(UTC)
    kinds: Sequence[Condition] = (
        UnreadAtLeast(group, min_span=1_000_000),
        UnreadAtLeast(group, min_span=1_000_000, max_age=timedelta(hours=1)),
        TimePassed(group, now),
        TimePassed(group, now, idle_after=timedelta(hours=1)),
        LagAtMost(group, 0),
    )
    return kinds[number // TOPICS % len(kinds)]


async def shared(condition: Condition, every: float = 5) -> None:
    """Wait as our sensors do."""
    trigger = ConditionTrigger(condition=condition_to_json(condition), poll_interval=every)
    async for event in trigger.run():
        raise AssertionError(f"it is never met: {event}")


async def alone(condition: Condition) -> None:
    """Wait as triggers usually do."""
    while True:
        await asyncio.sleep(5)
        await sync_to_async(look)(condition)


def look(condition: Condition) -> None:
    """Look for one sensor."""
    log = partial(wiring.open_log, condition.group)  # type: ignore[union-attr]
    (answer,) = watch.ask([condition], partial(wiring.open_ledger, ledger_conn_id(condition)), log)
    assert not isinstance(answer, Exception), answer
    assert not answer.is_met


async def measure(
    conditions: Sequence[Condition], way: Callable[[Condition], Any], seconds: float, polls: int = 0
) -> Cost:
    """Let all wait in this loop for a time, and at least for a number of polls."""
    seen = Cost()
    with counting(seen):
        tasks = [asyncio.create_task(probe(seen))]
        for waiting in filter(None, map(way, conditions)):
            tasks.append(asyncio.create_task(waiting))
            await asyncio.sleep(0)  # as the triggerer does
        end = time.monotonic() + seconds
        while time.monotonic() < end or seen.polls < polls:
            before = time.perf_counter()
            await asyncio.sleep(TICK)
            seen.lag.append(time.perf_counter() - before - TICK)
            seen.threads = max(seen.threads, len(threads()))
            for task in tasks:
                if task.done():
                    task.result()
        seen.clients = len(clients())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return seen


async def probe(seen: Cost) -> None:
    """Do what many triggers do: call something that blocks, in asgiref's one thread."""
    while True:
        before = time.perf_counter()
        await sync_to_async(time.sleep)(0)
        seen.queue.append(time.perf_counter() - before)
        await asyncio.sleep(TICK)


def threads() -> list[Thread]:
    """Return our own threads."""
    return [thread for thread in running_threads() if thread.name.startswith("kafka-offsets")]


def clients() -> set[str]:
    """Name the connections of this process that have a Kafka client."""
    return {name for (pid, name), shared in kafka_client._shared.items() if pid == os.getpid() and shared.client}


@contextmanager
def counting(seen: Cost) -> Iterator[None]:
    """Count what is asked."""

    def counted(kind: Any, name: str) -> Any:
        original = getattr(kind, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            seen.calls[name] += 1
            seen.polls += name == "ask"
            return original(*args, **kwargs)

        return patch.object(kind, name, call)

    with (
        counted(watch, "ask"),
        counted(KafkaLog, "snapshot"),
        counted(KafkaLog, "offsets_at"),
        counted(Ledger, "load"),
    ):
        yield


if __name__ == "__main__":
    main(*[float(seconds) for seconds in sys.argv[1:]])
