"""`make bench`: what lag in time costs, beside one lookup in the timestamp index with its `describe`, interleaved in one run.

Both the search alone, and the whole look at a group: ledger, snapshot, open transactions, retention and that search.

Each partition holds records of seven days in steady order with some jitter, and a watermark somewhere in them, so that no
answer is known beforehand: the dearest case is that every partition of every group has a backlog.
"""

from __future__ import annotations

import logging
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

from confluent_kafka import Producer
from tabulate import tabulate

from airflow_kafka_offsets.adapters.kafka.log import KafkaLog
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.lag.lag import GroupLag
from airflow_kafka_offsets.core.lag.measure import to_ms
from airflow_kafka_offsets.core.lag.search import MOST_LOOKUPS, Search
from airflow_kafka_offsets.core.log import IsolationLevel
from airflow_kafka_offsets.core.plan.ownership import GroupState, Position
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.service.freshness import look
from airflow_kafka_offsets.service.times import search_times
from tests.bench.plan_and_commit import PER_BROKER, PER_TOPIC, make_topics
from tests.lab.kafka import KafkaBroker

ROUNDS = 7
RECORDS = 100
"""Records of a partition: more of them make no difference to a search, which sees an index."""
WEEK = timedelta(days=7)
LEVEL = IsolationLevel.READ_UNCOMMITTED


HEADERS = [
    "partitions",
    "one lookup with describe",
    "the search",
    "times one lookup",
    "its lookups",
    "questions each",
    "a whole look",
    "times one lookup",
]


class Counted(KafkaLog):
    """Counts the lookups of a search, and the questions in them."""

    lookups = questions = 0

    def first_records(self, wanted):  # type: ignore[no-untyped-def]
        """Count, and ask."""
        self.lookups += 1
        self.questions += len(wanted)
        return super().first_records(wanted)


def main(sizes: list[int]) -> None:
    """Run the benchmark for numbers of partitions, and print a table."""
    logging.disable(logging.WARNING)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        kafka = stack.enter_context(KafkaBroker(folder / "kafka-1"))
        for number in range(2, 1 + -(-sum(sizes) // PER_BROKER)):
            stack.enter_context(KafkaBroker(folder / f"kafka-{number}", joins=kafka, node_id=number))
        rows = []
        for size in sizes:
            topics = make_topics(kafka, size)
            now = datetime.now(UTC)
            fill(kafka, topics, size, now)
            ledger = Ledger(f"sqlite:///{folder / f'ledger-{size}.db'}", create=True)
            rows.append([f"{size:,}", *measure(Counted(kafka.client_config(), 60), ledger, topics, now)])
    print(tabulate(rows, HEADERS, tablefmt="github", colalign=("right",) * len(HEADERS)))
    print(f"ms; median (quartiles) of {ROUNDS} interleaved rounds, ratios of each round")


def fill(kafka: KafkaBroker, topics: list[str], size: int, now: datetime) -> None:
    """Write records of seven days into each partition."""
    producer, chance = (
        Producer({**kafka.client_config(), "linger.ms": 50, "enable.idempotence": True}),
        random.Random(1),
    )
    first, step = to_ms(now - WEEK), WEEK // timedelta(milliseconds=1) // RECORDS
    for record in range(RECORDS):
        for number in range(size):
            topic, partition = topics[number // PER_TOPIC], number % PER_TOPIC
            at = first + record * step + chance.randrange(step)
            while True:
                try:
                    producer.produce(topic, b"1", partition=partition, timestamp=at)
                    break
                except BufferError:
                    producer.poll(0.5)
        producer.poll(0)
    assert not producer.flush(120)


def measure(log: Counted, ledger: Ledger, topics: list[str], now: datetime) -> list[str]:
    """Return the times, their ratios, and how much was asked."""
    snapshot = log.snapshot(topics, LEVEL)
    bounds = snapshot.bounds
    partitions, now_ms, chance = sorted(bounds), to_ms(now), random.Random(2)
    marks = {tp: chance.randrange(bounds[tp].end) for tp in partitions}
    group = KafkaGroup("bench", topics=topics, isolation_level=LEVEL)
    states = {group.name: GroupState(1, Position(marks, snapshot.topic_ids))}
    floors, times, looks = [], [], []
    for number in range(ROUNDS + 1):
        one = seconds(lambda: log.offsets_at(partitions, now - WEEK / 3, LEVEL))
        log.lookups = log.questions = 0
        searches = [Search(tp, mark, bounds[tp].end, now_ms, to_ms(now - 2 * WEEK)) for tp, mark in marks.items()]
        searched = seconds(lambda found=searches: search_times(log, found, {}))  # type: ignore[misc]
        assert all(search.is_done for search in searches)
        assert log.lookups <= MOST_LOOKUPS
        lookups, questions = log.lookups, log.questions
        found: dict[str, GroupLag] = {}
        whole = seconds(lambda told=found: told.update(look([group], ledger, lambda _: log, now, states=states)))  # type: ignore[misc]
        assert found[group.name].lag_seconds is not None, found[group.name].reason
        if number:  # the first round warms up
            floors.append(one)
            times.append(searched)
            looks.append(whole)
    asked = [str(lookups), f"{questions / len(partitions):.1f}"]
    return [
        spread(floors, 1000),
        *(spread(times, 1000), spread(ratios(times, floors), 1, ".2f")),
        *asked,
        *(spread(looks, 1000), spread(ratios(looks, floors), 1, ".2f")),
    ]


def ratios(times: list[float], floors: list[float]) -> list[float]:
    """Return how many times its floor each of these took."""
    return [took / floor for took, floor in zip(times, floors, strict=True)]


def seconds(step: Callable[[], object]) -> float:
    """Return how long a step takes."""
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def spread(values: list[float], factor: float, form: str = ".0f") -> str:
    """Return the median and the quartiles."""
    low, middle, high = statistics.quantiles([value * factor for value in values])
    return f"{middle:{form}} ({low:{form}} to {high:{form}})"


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [1000, 10_000])
