"""One Spark with the real Kafka connector for all tests here, and windows to hand to it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from airflow_kafka_offsets.spark import KafkaWindow, guard
from airflow_kafka_offsets.spark.connector import connector_package
from airflow_kafka_offsets.spark.handoff import Handoff
from tests.lab.jars import jdbc_jars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.lab.kafka import KafkaBroker

    MakeWindow = Callable[..., KafkaWindow]


def handoff(topics: dict[str, dict[int, tuple[int, int]]], **values: Any) -> Handoff:
    """Return a hand-over of window ``lake.orders-000012``; `values` replace the usual ones."""
    usual: dict[str, Any] = {
        "window_id": "lake.orders-000012",
        "group": "lake.orders",
        "seq": 12,
        "lane": "live",
        "until": "2026-01-01T01:00:00+00:00",
        "is_rerun": False,
        "isolation_level": "read_committed",
        "expect_gaps": False,
        "topics": {topic: {str(p): ends for p, ends in ranges.items()} for topic, ranges in topics.items()},
        "options": {},
        "report": None,
    }
    return Handoff(**{**usual, **values})


@pytest.fixture(scope="session")
def spark(spark_connector: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Run Spark on two threads, with the connector of its own version."""
    from pyspark.sql import SparkSession

    directory = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars.packages", connector_package())
        .config("spark.jars", ",".join(map(str, jdbc_jars())))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.local.dir", str(directory / "local"))
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture
def make_window(spark: SparkSession, kafka: KafkaBroker) -> Iterator[MakeWindow]:
    """Return a function that makes windows over offset ranges of the broker; nothing of them is left to the exit guard."""

    def make(topics: dict[str, dict[int, tuple[int, int]]], **values: Any) -> KafkaWindow:
        options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafkaConsumer.pollTimeoutMs": "5000"}
        return KafkaWindow(spark, handoff(topics, **{"options": options, **values}))

    yield make
    guard.disarm()
