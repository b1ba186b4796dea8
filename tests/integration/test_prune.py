"""A prune against a real broker: what it says of records that are deleted, and of a topic that is made again."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from airflow_kafka_offsets.adapters.kafka.log import KafkaLog
from airflow_kafka_offsets.core.errors import PrunedWindowError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.plan.request import Windows
from airflow_kafka_offsets.core.window import Claim, Outcome
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.service.base import utc_now
from airflow_kafka_offsets.service.prune import Prune, Pruning
from airflow_kafka_offsets.service.windows import WindowService
from tests.lab.kafka import KafkaBroker
from tests.lab.topics import create_topic, delete_records, delete_topic, produce

pytestmark = pytest.mark.kafka


class Lake:
    """A group on one topic with two partitions, and a clock that is a month ahead when it is pruned."""

    def __init__(self, kafka: KafkaBroker, topic: str, folder: Path) -> None:
        self.ledger = Ledger(f"sqlite:///{folder}/ledger.db", create=True)
        self.log = KafkaLog(kafka.client_config(), 15)
        self.service = WindowService(self.ledger, self.log)
        self.group = KafkaGroup("g", topics=[topic])

    def read(self, run: str) -> int:
        by = Claim("dag", run, "load")
        [planned] = self.service.plan(self.group, by, lambda _: True)
        attempt = self.service.start_attempt(planned.window, by)
        self.service.end_attempt(attempt, Outcome.SUCCEEDED)
        self.service.commit(planned.window.id, by, attempt)
        return planned.window.seq

    def prune(self, **more: bool) -> Prune:
        pruning = Pruning(self.ledger, self.log, lambda: utc_now() + timedelta(days=30))
        return pruning.prune(self.group, timedelta(days=7), "ada", "why", **more)


def test_what_kafka_no_longer_holds_leaves(kafka: KafkaBroker, topic: str, tmp_path: Path) -> None:
    create_topic(kafka, topic, 2)
    lake = Lake(kafka, topic, tmp_path)
    for run in range(4):
        for partition in (0, 1):
            produce(kafka, topic, 10, partition=partition)
        lake.read(f"run-{run}")
    assert lake.prune().windows == 0, "Kafka holds all"
    delete_records(kafka, topic, 25, partition=0)
    delete_records(kafka, topic, 19, partition=1)
    found = lake.prune()
    assert (found.last, found.kept) == (1, 2)
    assert found.why == f"Kafka may still hold some of its offsets: {topic}-1 offsets [10, 20) (beginning offset 19)"
    delete_records(kafka, topic, 20, partition=1)
    assert lake.prune().last == 2
    with pytest.raises(PrunedWindowError, match="g-000002 was pruned"):
        lake.service.plan(lake.group, Claim("dag", "replay", "load"), lambda _: True, Windows((2,)))
    produce(kafka, topic, 5)
    assert lake.read("next") == 5


def test_only_a_topic_that_was_recreated_before_the_group_read_it_is_gone(
    kafka: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    create_topic(kafka, topic, 2)
    produce(kafka, topic, 10)
    lake = Lake(kafka, topic, tmp_path)
    lake.read("run-1")
    produce(kafka, topic, 1)
    lake.read("run-2")
    delete_topic(kafka, topic)
    found = lake.prune()
    assert (found.windows, found.kept) == (0, 1)
    assert found.why is not None
    assert "make sure that this is the right Kafka" in found.why
    create_topic(kafka, topic, 2)
    produce(kafka, topic, 3)
    lake.service.reset(lake.group, "earliest", "ada", "recreated", topics=[topic], supersede=True)
    lake.read("run-3")
    found = lake.prune()
    assert (found.windows, found.kept) == (2, 3)
