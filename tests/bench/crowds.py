"""`make bench`: many processes that plan at one moment, on a real Kafka, with ledgers in SQLite, PostgreSQL and MariaDB.

- *One group*: 64 processes drain a backlog with up to 64 windows open. Each plans, works and commits again and again.
- *Many groups*: 1,000 groups whose runs all begin within one minute, in 64 processes. The time of a plan counts from the moment at which its
  run should begin, so waiting for a process is part of it.

Arguments: seconds of the first part (30), databases (sqlite postgresql mariadb).
"""

from __future__ import annotations

import logging
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from tabulate import tabulate

from airflow_kafka_offsets.adapters.kafka.log import KafkaLog
from airflow_kafka_offsets.core.errors import KafkaOffsetsError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.window import Claim, Outcome
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.service.windows import WindowService
from tests.bench.long_history import opened
from tests.lab.kafka import KafkaBroker
from tests.lab.topics import create_topic, produce, produce_one_each

PROCESSES = 64
GROUPS = 1_000
MINUTE = 60.0
BACKLOG = 1_000_000
ONE = KafkaGroup("crowd", topics=["crowd"], max_offsets=10, max_open_windows=PROCESSES)

Answer = tuple[float, str]
"""How many seconds a plan took, and its error; empty: there was none."""


def run(service: WindowService, group: KafkaGroup, by: Claim, since: float) -> Answer:
    """Plan, work and commit; return how long the plan took."""
    try:
        [planned] = service.plan(group, by, lambda _: False)
        took = time.time() - since
        attempt = service.start_attempt(planned.window, by)
        service.end_attempt(attempt, Outcome.SUCCEEDED, planned.window.span)
        service.commit(planned.window.id, by, attempt)
    except KafkaOffsetsError as exc:
        return time.time() - since, f"{type(exc).__name__}: {exc}"
    return took, ""


def drain(url: str, kafka: dict[str, Any], me: int, start: Barrier, until: float) -> list[Answer]:
    """Take part in the first part."""
    service = WindowService(Ledger(url), KafkaLog(kafka, 60))
    start.wait()
    give_up, answers = time.time() + until, []
    while (began := time.time()) < give_up:
        answers.append(run(service, ONE, Claim("bench", f"run {me} {len(answers)}", "load"), began))
    return answers


def many(url: str, kafka: dict[str, Any], me: int, start: Barrier, within: float) -> list[Answer]:
    """Take part in the second part: every 64th group is ours."""
    service = WindowService(Ledger(url), KafkaLog(kafka, 60))
    start.wait()
    began, answers = time.time(), []
    for number in range(me, GROUPS, PROCESSES):
        due = began + within * number / GROUPS
        time.sleep(max(0.0, due - time.time()))
        group = KafkaGroup(f"group-{number:04}", topics=[f"topic-{number:04}"])
        answers.append(run(service, group, Claim("bench", "run", f"load-{number}"), due))
    return answers


def together(
    part: Callable[[str, dict[str, Any], int, Barrier, float], list[Answer]],
    url: str,
    kafka: dict[str, Any],
    seconds: float,
) -> tuple[list[Answer], float]:
    """Run a part in all processes, which begin together; return all answers, and how long it took."""
    context = multiprocessing.get_context("fork")
    start, queue = context.Barrier(PROCESSES + 1), context.SimpleQueue()
    processes = [
        context.Process(target=lambda me=me: queue.put(part(url, kafka, me, start, seconds))) for me in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    start.wait()
    began = time.monotonic()
    answers = [answer for _ in processes for answer in queue.get()]
    took = time.monotonic() - began
    for process in processes:
        process.join()
    return answers, took


def row(name: str, what: str, answers: Sequence[Answer], seconds: float) -> list[Any]:
    """Return a row of the table."""
    times = sorted(took for took, error in answers if not error)
    p99 = times[min(len(times) - 1, int(0.99 * len(times)))]
    errors = [error for _, error in answers if error]
    for error in sorted(set(errors))[:5]:
        print(f"... {name}, {what}: {error}", flush=True)
    return [
        name,
        what,
        len(times),
        f"{len(times) / seconds:.1f}",
        f"{statistics.median(times):.1f}",
        f"{p99:.1f}",
        len(errors),
    ]


def main(seconds: float, databases: Sequence[str]) -> None:
    """Run the benchmark, and print a table."""
    logging.disable(logging.WARNING)
    rows = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        broker = stack.enter_context(KafkaBroker(folder / "kafka", jvm_options=("-Xmx1g",)))
        create_topic(broker, "crowd")
        produce(broker, "crowd", BACKLOG)
        names = [f"topic-{number:04}" for number in range(GROUPS)]
        for name in names:
            create_topic(broker, name)
        produce_one_each(broker, names, 1)
        config = broker.client_config()
        for name in databases:
            home = folder / name
            home.mkdir()
            with opened(name, home) as ledger:
                url = ledger._engine.url.render_as_string(hide_password=False)
                # So that the first window is no race.
                run(WindowService(ledger, KafkaLog(config, 60)), ONE, Claim("bench", "first", "load"), time.time())
                rows.append(row(name, f"{PROCESSES} processes, one group", *together(drain, url, config, seconds)))
                rows.append(row(name, f"{GROUPS:,} groups in a minute", *together(many, url, config, MINUTE)))
            print(f"... {name}: done", flush=True)
    headers = ["ledger", "", "windows", "a second", "plan: median s", "p99 s", "errors"]
    print(tabulate(rows, headers, tablefmt="github"))


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(float(arguments[0]) if arguments else 30.0, arguments[1:] or ["sqlite", "postgresql", "mariadb"])
