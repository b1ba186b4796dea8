"""One Spark with the real Kafka connector for all tests here, and windows to hand to it."""

from __future__ import annotations

import os
import sys
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from airflow_kafka_offsets.spark import KafkaWindow, exit_code
from airflow_kafka_offsets.spark.handoff import Handoff
from tests.lab.jars import avro_jars, jdbc_jars
from tests.lab.tables import FEW_RECORDS, NO_CHECKSUMS, SHORT_PLANS, table_settings
from tests.lab.topics import create_topic, produce

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.lab.kafka import KafkaBroker

    MakeWindow = Callable[..., KafkaWindow]
    Ranges = dict[str, dict[int, tuple[int, int]]]


def handoff(topics: dict[str, dict[int, tuple[int, int]]], **values: Any) -> Handoff:
    """Return a hand-over of window ``lake.orders-000012``; `values` replace the usual ones."""
    usual: dict[str, Any] = {
        "window_id": "lake.orders-000012",
        "group": "lake.orders",
        "seq": 12,
        "lane": "live",
        "planned_until": "2026-01-01T01:00:00+00:00",
        "is_rerun": False,
        "isolation_level": "read_committed",
        "expect_gaps": False,
        "topics": {topic: {str(p): ends for p, ends in ranges.items()} for topic, ranges in topics.items()},
        "options": {},
        "report": None,
    }
    return Handoff(**{**usual, **values})


def open_spark(directory: Path, jars: list[Path], threads: int = 2) -> SparkSession:
    """Start Spark with the settings of Delta and Iceberg.

    Args:
        directory: for its files; Iceberg's tables are in its folder `iceberg`.
        jars: the Kafka connector, Delta, Iceberg and their requirements. By name Spark would look them up in Ivy at each start.
        threads: how many tasks run at once.
    """
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        # A bar that no one sees, drawn five times a second, takes a thirtieth of the CPU.
        "spark.ui.showConsoleProgress": "false",
        # What all tests of a folder leave behind fits: in 768 MB, the JVM spent half of its time on looking through all of it.
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "2",
        # To plan a query of ten rows again after each of its stages takes a twelfth of the CPU. Tests whose meaning
        # depends on it take both (`adaptive`); Connect's servers and drivers keep the default.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory / "local"),
        # Also the few rows of `frame_of` are read by tasks, and not evaluated when a query is planned.
        "spark.sql.execution.arrow.localRelationThreshold": "0",
        **table_settings(directory / "iceberg"),
        **FEW_RECORDS,
        **NO_CHECKSUMS,
        **SHORT_PLANS,
    }
    return SparkSession.builder.master(f"local[{threads}]").config(map=settings).getOrCreate()


def frame_of(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: str) -> DataFrame:
    """Return rows as a frame that tasks read without Python: each task of a frame from a list starts one, and that takes half a second.

    Args:
        spark: a classic session.
        rows: their values, in the order of the columns.
        schema: the columns, as DDL.
    """
    from pyarrow import Table
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    columns = StructType.fromDDL(schema)
    named = [dict(zip(columns.names, row, strict=True)) for row in rows]
    return spark.createDataFrame(Table.from_pylist(named, to_arrow_schema(columns)), columns)


def take_whole_names_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the JVM be asked for classes by their whole names only, for the rest of a test.

    A package, such as `org`, is looked for in all jars, for milliseconds; it is what py4j makes of a name that is no class.
    """
    from py4j.java_gateway import JavaPackage

    def refuse(self: JavaPackage, name: str, *_: object, **__: object) -> None:
        raise AssertionError(f"the JVM was asked for {name}, which is no class")

    monkeypatch.setattr(JavaPackage, "__init__", refuse)


@pytest.fixture(scope="package")
def spark(
    spark_connector: list[Path], table_jars: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """Run Spark on two threads."""
    session = open_spark(tmp_path_factory.mktemp("spark"), [*spark_connector, *table_jars, *jdbc_jars(), *avro_jars()])
    yield session
    session.stop()


@pytest.fixture(params=["true", "false"], ids=lambda adaptive: f"adaptive={adaptive}")
def adaptive(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    """Let Spark plan a query again after each of its stages, as by default, or not."""
    name = "spark.sql.adaptive.enabled"
    before = spark.conf.get(name)
    spark.conf.set(name, request.param)
    yield
    spark.conf.set(name, before)


@pytest.fixture
def make_window(spark: SparkSession, kafka: KafkaBroker) -> Iterator[MakeWindow]:
    """Return a function that makes windows over offset ranges of the broker; nothing of them is left to the exit guard."""

    def make(topics: dict[str, dict[int, tuple[int, int]]], **values: Any) -> KafkaWindow:
        options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafkaConsumer.pollTimeoutMs": "20000"}
        return KafkaWindow(spark, handoff(topics, **{"options": options, **values}))

    yield make
    exit_code.disarm()


@pytest.fixture
def ranges(kafka: KafkaBroker, topic: str) -> Ranges:
    """Return the ranges of a topic of the test's own, with the values 0 to 9 in two partitions."""
    return _ten_records(kafka, topic)


@pytest.fixture(scope="package")
def ten_records(kafka: KafkaBroker) -> Ranges:
    """Return the ranges of such a topic that tests share, which only read it."""
    return _ten_records(kafka, f"topic-{uuid.uuid4().hex[:12]}")


def _ten_records(kafka: KafkaBroker, topic: str) -> Ranges:
    create_topic(kafka, topic, 2)
    produce(kafka, topic, 6, partition=0)
    produce(kafka, topic, 4, partition=1, first=6)
    return {topic: {0: (0, 6), 1: (0, 4)}}
