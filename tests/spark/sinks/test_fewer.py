"""A rerun that reads fewer records than an earlier run of its window: of a compacted topic, or one whose job takes fewer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_kafka_offsets.spark.errors import IncompleteReadError
from tests.lab.delta import rows_of_delta
from tests.lab.tables import CATALOG
from tests.lab.topics import commit_transaction, create_topic

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from airflow_kafka_offsets.spark import KafkaWindow
    from tests.lab.kafka import KafkaBroker
    from tests.spark.conftest import MakeWindow

READ_BEFORE = 4
"""What the first run read; there are 3 records now."""


def replace(window: KafkaWindow, frame: Any, path: str) -> Any:
    return window.write(frame, lambda df, _: df.write.mode("overwrite").parquet(path))


@pytest.mark.parametrize("sink", ["parquet", "delta", "iceberg", "function"])
def test_it_leaves_what_is_there_unless_the_group_expects_it(
    kafka: KafkaBroker, topic: str, spark: SparkSession, make_window: MakeWindow, tmp_path: Path, sink: str
) -> None:
    create_topic(kafka, topic)
    commit_transaction(kafka, topic, 3)
    path, table = str(tmp_path / "t"), f"{CATALOG}.db.`{topic}`"

    def run(condition: str, **how: Any) -> KafkaWindow:
        window = make_window({topic: {0: (0, 4)}}, expect_gaps=True, **how)
        frame = window.read().selectExpr("cast(cast(value as string) as int) as n").filter(condition)
        write = {
            "parquet": lambda: window.write_parquet(frame, path),
            "delta": lambda: window.write_delta(frame, path),
            "iceberg": lambda: window.write_iceberg(frame, table),
            "function": lambda: replace(window, frame, path),
        }
        write[sink]()
        return window

    def numbers() -> list[int]:
        if sink == "delta":
            return sorted(row["n"] for row in rows_of_delta(path))
        frame = spark.table(table) if sink == "iceberg" else spark.read.parquet(path)
        return sorted(row.n for row in frame.select("n").collect())

    run("true")
    with pytest.raises(
        IncompleteReadError, match=r"3 records read, 4 by an earlier run.*\n    KafkaGroup\(expect_fewer=True\)"
    ):
        run("n < 1", is_rerun=True, at_least=READ_BEFORE)
    assert numbers() == [0, 1, 2]
    assert run("n < 2", is_rerun=True, at_least=3).records == 3, "as many as before"
    assert numbers() == [0, 1], "the job may write fewer rows than it reads"
    run("n < 1", is_rerun=True, at_least=None)
    assert numbers() == [0]
