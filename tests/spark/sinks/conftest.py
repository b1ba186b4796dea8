"""The records that sinks are tried with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lab.topics import create_topic, produce

if TYPE_CHECKING:
    from tests.lab.kafka import KafkaBroker
    from tests.spark.sinks.contract import Ranges


@pytest.fixture
def ranges(kafka: KafkaBroker, topic: str) -> Ranges:
    """Return the ranges of a topic with the values 0 to 9 in two partitions."""
    create_topic(kafka, topic, 2)
    produce(kafka, topic, 6, partition=0)
    produce(kafka, topic, 4, partition=1, first=6)
    return {topic: {0: (0, 6), 1: (0, 4)}}
