"""Topics by pattern on real brokers: they appear, are deleted, and may be hidden from the user."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AclOperation

from airflow_kafka_offsets.adapters.kafka.log import KafkaLog
from airflow_kafka_offsets.adapters.stores.kafka import KafkaStore
from airflow_kafka_offsets.core.errors import KafkaRefusedError, MissingPartitionError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.window import Claim, Outcome, Window
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.service.move import Moving, Selection
from airflow_kafka_offsets.service.sources import LedgerSource, StoreSource
from airflow_kafka_offsets.service.windows import WindowService
from tests.lab.kafka import KafkaBroker
from tests.lab.topics import create_topic, delete_topic, produce

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.kafka import SecureKafkaBroker


def read(service: WindowService, group: KafkaGroup, run: str) -> Window:
    """Plan, do the job, and commit."""
    by = Claim("dag", run, "load")
    [planned] = service.plan(group, by, lambda _: True)
    attempt = service.start_attempt(planned.window, by)
    service.end_attempt(attempt, Outcome.SUCCEEDED)
    service.commit(planned.window.id, by, attempt)
    return planned.window


def spans(window: Window) -> dict[str, tuple[int, int]]:
    """What a window reads, by topic; each has one partition."""
    return {p.topic: (r.start, r.end) for p, r in window.ranges.without_empty().items()}


def test_topics_appear_and_vanish_under_a_pattern(kafka: KafkaBroker, topic: str, tmp_path: Path) -> None:
    eu, us, asia = (f"{topic}-{place}" for place in ("eu", "us", "asia"))
    service = WindowService(
        Ledger(f"sqlite:///{tmp_path / 'ledger.db'}", create=True), KafkaLog(kafka.client_config(), 20)
    )
    group = KafkaGroup("g", topics_pattern=f"{topic}-.*")
    for name in (topic, eu, us):
        create_topic(kafka, name)
        produce(kafka, name, 4)
    assert spans(read(service, group, "run-1")) == {eu: (0, 4), us: (0, 4)}
    create_topic(kafka, asia)
    produce(kafka, asia, 3)
    assert spans(read(service, group, "run-2")) == {asia: (0, 3)}
    delete_topic(kafka, us)
    produce(kafka, eu, 1)
    with pytest.raises(MissingPartitionError, match=rf"{us}-0: gone from Kafka \(watermark 4\)"):
        read(service, group, "run-3")
    without = KafkaGroup("g", topics_pattern=f"(?!(?:{us})$)(?:{topic}-.*)")
    assert spans(read(service, without, "run-4")) == {eu: (4, 5)}


def test_a_copy_and_an_export_of_a_pattern_have_the_topics_of_the_moment(
    kafka: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    eu, asia = f"{topic}-eu", f"{topic}-asia"
    ledger, log = Ledger(f"sqlite:///{tmp_path / 'ledger.db'}", create=True), KafkaLog(kafka.client_config(), 20)
    service, group = WindowService(ledger, log), KafkaGroup(topic, topics_pattern=f"{topic}-.*")
    create_topic(kafka, eu)
    produce(kafka, eu, 4)
    read(service, group, "run-1")
    create_topic(kafka, asia)
    produce(kafka, asia, 3)
    consumers = KafkaStore("kafka://", kafka.client_config(), 30)
    moving, stored = Moving(ledger), ledger.group(topic)
    of_ledger = moving.plan_copy(stored, Selection(LedgerSource(ledger, topic), topic), consumers, lambda _: log)
    assert of_ledger.given.offsets == {TopicPartition(eu, 0): 4}
    assert f"ledger has no offset of {asia}" in of_ledger.given.notes[0]
    assert moving.carry_out_copy(of_ledger, consumers, "ada", "why") == {}
    name = f"{topic}-loader"
    consumers.advance(name, {}, {TopicPartition(eu, 0): 1, TopicPartition(asia, 0): 2})
    of_others = moving.plan_export(stored, Selection(StoreSource(consumers, name), name), lambda _: log)
    assert of_others.offsets == {TopicPartition(asia, 0): 2, TopicPartition(eu, 0): 1}
    assert ledger.group(topic).topics_pattern == f"{topic}-.*"
    assert spans(read(service, group, "run-2")) == {asia: (0, 3)}


def test_a_topic_that_the_user_may_not_describe_is_not_listed(kafka_sasl: SecureKafkaBroker, topic: str) -> None:
    create_topic(kafka_sasl, topic)
    log = KafkaLog(kafka_sasl.client_config("bob"), 30)
    assert topic not in log.topics()
    kafka_sasl.allow("bob", AclOperation.DESCRIBE, topic=topic)
    assert topic in log.topics()


def test_a_wrong_password_is_a_refusal_for_the_list_of_topics_too(kafka_sasl: SecureKafkaBroker) -> None:
    log = KafkaLog({**kafka_sasl.client_config("alice"), "sasl.password": "hunter2"}, 20)
    with pytest.raises(KafkaRefusedError) as refused:
        log.topics()
    assert "hunter2" not in str(refused.value)
