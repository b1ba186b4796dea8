"""The jobs of docs/howto/decode-values.md run as they stand, on a real Kafka and Spark."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.spark.handoff import CONF_WINDOW
from tests.docs.test_docs import ROOT, blocks
from tests.lab.topics import create_topic, produce_bytes
from tests.spark.avro import encoded, framed
from tests.spark.test_values import OF_ORDERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from airflow_kafka_offsets.spark.handoff import Handoff
    from tests.lab.kafka import KafkaBroker
    from tests.spark.conftest import MakeWindow

PAGE = ROOT / "docs" / "howto" / "decode-values.md"
LAKE = "hdfs:///lake"
ALL_GOOD, FROM_JSON, ASIDE = (code for code in blocks(PAGE, "python") if "SparkSession" in code)


@contextmanager
def given(spark: SparkSession, window: Handoff) -> Iterator[None]:
    """Let a job find a window, as its launcher would."""
    spark.conf.set(CONF_WINDOW, window.to_json())
    try:
        yield
    finally:
        spark.conf.unset(CONF_WINDOW)


def run(code: str, spark: SparkSession, window: Handoff, lake: Path) -> Any:
    """Run a job, and return the window that it took."""
    assert LAKE in code
    names: dict[str, Any] = {}
    with given(spark, window):
        exec(compile(code.replace(LAKE, str(lake)), str(PAGE), "exec"), names)
    return names["window"]


def test_avro_becomes_columns(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow, spark: SparkSession, tmp_path: Path
) -> None:
    create_topic(kafka, topic)
    produce_bytes(kafka, topic, [framed(1, encoded(7)), framed(2, encoded(8, "Köln"))])
    window = make_window({topic: {0: (0, 2)}}, schemas=[replace(OF_ORDERS, topics=[topic])])._handoff
    run(ALL_GOOD, spark, window, tmp_path)
    found = spark.read.parquet(f"{tmp_path}/orders").orderBy("offset")
    assert found.columns == ["offset", "id", "city", "window_id"]
    assert [tuple(row)[:3] for row in found.collect()] == [(0, 7, "?"), (1, 8, "Köln")]


def test_json_becomes_columns_and_a_key_text(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow, spark: SparkSession, tmp_path: Path
) -> None:
    create_topic(kafka, topic)
    produce_bytes(kafka, topic, [b'{"id": 7, "amount": 1.5}'])
    run(FROM_JSON, spark, make_window({topic: {0: (0, 1)}})._handoff, tmp_path)
    found = spark.read.parquet(f"{tmp_path}/payments")
    assert [row.asDict() for row in found.drop("window_id").collect()] == [
        {"offset": 0, "key": None, "id": 7, "amount": 1.5}
    ]


def test_a_bad_record_goes_aside_also_in_a_rerun(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow, spark: SparkSession, tmp_path: Path
) -> None:
    create_topic(kafka, topic)
    produce_bytes(kafka, topic, [framed(1, encoded(7)), framed(9, encoded(8)), framed(1, encoded(9))])
    planned = make_window({topic: {0: (0, 3)}}, schemas=[replace(OF_ORDERS, topics=[topic])])._handoff
    for is_rerun in (False, True):
        window = run(ASIDE, spark, replace(planned, is_rerun=is_rerun), tmp_path)
        assert window.bad == 1
        window.release()
    good, bad = (spark.read.parquet(f"{tmp_path}/{name}") for name in ("orders", "orders_bad"))
    assert sorted(row.offset for row in good.collect()) == [0, 2]
    assert [row.offset for row in bad.collect()] == [1]
    columns = ["topic", "partition", "offset", "timestamp", "reason", "key", "value"]
    assert bad.columns == [*columns, "window_id"]
