"""`make bench`: what planning and committing a window cost, beside their floors, interleaved in one run.

The floor of planning is what no one can do without: two batched ListOffsets calls (beginning and end of every partition, in
chunks of 1,000 issued together) and one SQL transaction of one statement that writes a document of the same size. The second
ratio adds what a plan can't do without if it shall notice a topic that was made again or has new partitions: describe_topics.
The floor of committing is one SQL transaction of one statement on a row of that size. Each window holds one record of each
partition.
"""

from __future__ import annotations

import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from confluent_kafka import IsolationLevel as KafkaIsolation
from confluent_kafka import TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from sqlalchemy import Engine, text
from tabulate import tabulate

from airflow_kafka_offsets.adapters.kafka.log import KafkaLog
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.window import Claim, Outcome
from airflow_kafka_offsets.ledger.documents import dump_ranges
from airflow_kafka_offsets.ledger.engine import open_engine, writing
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.service.windows import WindowService
from tests.lab.databases import Postgres
from tests.lab.kafka import KafkaBroker
from tests.lab.topics import create_topic, produce_one_each

T = TypeVar("T")

ROUNDS = 9
PER_TOPIC = 500
PER_BROKER = 7000
"""How many partitions one broker takes with the 20,000 files that a process may open here."""

STEPS = ("plan", "plan floor", "describe", "commit", "commit floor")
Times = dict[str, list[float]]


def main(sizes: list[int]) -> None:
    """Run the benchmark for numbers of partitions, and print a table."""
    logging.disable(logging.WARNING)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        kafka = stack.enter_context(KafkaBroker(folder / "kafka-1"))
        for number in range(2, 1 + -(-sum(sizes) // PER_BROKER)):
            stack.enter_context(KafkaBroker(folder / f"kafka-{number}", joins=kafka, node_id=number))
        postgres = stack.enter_context(Postgres())
        rows = []
        for size in sizes:
            topics = make_topics(kafka, size)
            for name, url in (("SQLite", f"sqlite:///{folder}/{size}.db"), ("PostgreSQL", postgres.url)):
                rows.append([f"{size:,}", name, *columns(measure(kafka, url, topics, size))])
                print(f"... {size:,} partitions, {name}: done", flush=True)
    ratios = ["plan/floor", "plan/(floor + describe)", "commit/floor"]
    headers = ["partitions", "ledger", "plan", "floor", "describe", "commit", "floor", *ratios]
    print(tabulate(rows, headers, tablefmt="github", colalign=("right", "left", *("right",) * 8)))
    print(f"ms; median (quartiles) of {ROUNDS} interleaved rounds, ratios of each round")


def make_topics(kafka: KafkaBroker, size: int) -> list[str]:
    """Create topics with that many partitions together."""
    topics = []
    for start in range(0, size, PER_TOPIC):
        topics.append(f"bench-{size}-{start}")
        create_topic(kafka, topics[-1], min(PER_TOPIC, size - start))
    return topics


def columns(times: Times) -> list[str]:
    """Return medians and quartiles of the times, and of the ratios."""
    rounds = [dict(zip(times, values, strict=True)) for values in zip(*times.values(), strict=True)]
    ratios = (
        [r["plan"] / r["plan floor"] for r in rounds],
        [r["plan"] / (r["plan floor"] + r["describe"]) for r in rounds],
        [r["commit"] / r["commit floor"] for r in rounds],
    )
    return [spread(times[step], "{:.0f}") for step in STEPS] + [spread(values, "{:.1f}") for values in ratios]


def spread(values: list[float], form: str) -> str:
    """Return the median and the quartiles."""
    low, middle, high = map(form.format, statistics.quantiles(values, n=4))
    return f"{middle} ({low} to {high})"


def measure(kafka: KafkaBroker, url: str, topics: list[str], size: int) -> Times:
    """Return what each step took in each round, in milliseconds."""
    group = KafkaGroup(f"bench-{size}", topics=topics)
    service = WindowService(Ledger(url, create=True), KafkaLog(kafka.client_config(), group.kafka_timeout))
    engine, admin = open_engine(url), AdminClient({**kafka.client_config(), "log_level": 0})
    per_topic = min(PER_TOPIC, size)
    partitions = [KafkaPartition(t, p) for t in topics for p in range(per_topic)]
    with writing(engine) as connection:
        connection.execute(text("DROP TABLE IF EXISTS bench_floor"))
        connection.execute(text("CREATE TABLE bench_floor (id integer, state integer, document text)"))
    times: Times = {step: [] for step in STEPS}
    for number in range(ROUNDS + 1):
        produce_one_each(kafka, topics, per_topic)
        claim = Claim(group.name, str(number), "t")
        plan, [planned] = timed(partial(service.plan, group, claim, lambda _: True))
        window = planned.window
        document = dump_ranges(window.ranges, window.topic_ids)
        lookup, _ = timed(partial(list_offsets, admin, partitions))
        insert, _ = timed(partial(write, engine, number, document))
        describe, _ = timed(partial(describe_topics, admin, topics))
        attempt = service.start_attempt(window, claim)
        service.end_attempt(attempt, Outcome.SUCCEEDED)
        commit, _ = timed(partial(service.commit, window.id, claim, attempt))
        commit_floor, _ = timed(partial(set_state, engine, number))
        if number:  # the first round warms connections up
            for step, seconds in zip(STEPS, (plan, lookup + insert, describe, commit, commit_floor), strict=True):
                times[step].append(seconds * 1000)
    return times


def timed(step: Callable[[], T]) -> tuple[float, T]:
    """Return how many seconds a step took, and its result."""
    start = time.perf_counter()
    result = step()
    return time.perf_counter() - start, result


def list_offsets(admin: AdminClient, partitions: list[KafkaPartition]) -> None:
    """Look both ends of every partition up, as directly as the client allows."""
    futures = []
    for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
        for start in range(0, len(partitions), 1000):
            wanted = dict.fromkeys(partitions[start : start + 1000], spec)
            answer = admin.list_offsets(wanted, isolation_level=KafkaIsolation.READ_COMMITTED, request_timeout=30)
            futures += answer.values()
    for future in futures:
        future.result()


def describe_topics(admin: AdminClient, topics: list[str]) -> None:
    """Look the topics up."""
    for future in admin.describe_topics(TopicCollection(topics), request_timeout=30).values():
        future.result()


def write(engine: Engine, number: int, document: str) -> None:
    """Write one row with a document."""
    with writing(engine) as connection:
        values = {"id": number, "document": document}
        connection.execute(text("INSERT INTO bench_floor VALUES (:id, 0, :document)"), values)


def set_state(engine: Engine, number: int) -> None:
    """Change one row."""
    with writing(engine) as connection:
        connection.execute(text("UPDATE bench_floor SET state = 1 WHERE id = :id"), {"id": number})


if __name__ == "__main__":
    print(f"{datetime.now(UTC):%Y-%m-%d}")
    main([int(size) for size in sys.argv[1:]] or [10, 100, 1000, 10_000])
