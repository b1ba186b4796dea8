"""What the launcher's side and the job's side must agree on: the job side can't import core, so a test holds them together."""

from __future__ import annotations

from airflow_kafka_offsets.core import group, spark_json
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.spark import options


def test_both_sides_refuse_the_same_options() -> None:
    assert group.FIXED_OPTIONS == options.FIXED


def test_both_sides_write_the_same_json() -> None:
    offsets = {TopicPartition("b", 10): 1, TopicPartition("b", 2): 2, TopicPartition("ä", 0): 3}
    ranges = {"ä": {0: (3, 4)}, "b": {10: (1, 4), 2: (2, 4)}}
    assert spark_json.dump_offsets(offsets) == options.offsets_json(ranges, 0)
