"""The topics of a group, and the subjects that describe them."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.log import IsolationLevel
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.matching import subjects_of, subjects_of_new
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.schemas import Registry
from airflow_kafka_offsets.core.window import Draft

REGISTRY = Registry("registry")
GROUP = KafkaGroup("lake", topics=["orders", "quiet", "joined"], registry=REGISTRY)
BACKFILL = Draft(
    OffsetRanges({TopicPartition("orders", 0): OffsetRange(0, 5)}),
    {"orders": "id-1"},
    datetime(2026, 1, 31, tzinfo=UTC),
    IsolationLevel.READ_COMMITTED,
)


def test_a_new_window_is_described_by_all_topics_of_its_group() -> None:
    names = subjects_of_new(REGISTRY, GROUP, BACKFILL)
    assert set(names) == {f"{topic}-{part}" for topic in ("orders", "quiet", "joined") for part in ("key", "value")}


def test_a_window_keeps_the_subjects_of_quiet_topics_and_gets_none_of_a_topic_that_joined_later() -> None:
    names = subjects_of(REGISTRY, GROUP, BACKFILL, {"orders-value": None, "quiet-value": None})
    assert set(names) == {f"{topic}-{part}" for topic in ("orders", "quiet") for part in ("key", "value")}


def test_a_window_without_schemas_gets_those_of_its_own_topics() -> None:
    assert set(subjects_of(REGISTRY, GROUP, BACKFILL, {})) == {"orders-key", "orders-value"}
