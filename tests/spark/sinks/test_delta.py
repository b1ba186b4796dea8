"""Windows in Delta tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.sinks.contract import SinkContract

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


class TestReplace(SinkContract):
    code = "window.write_delta(df, target)"
    is_checked_first = False

    @pytest.fixture
    def target(self, topic: str) -> str:
        return topic.replace("-", "_")  # a table's name

    def rows(self, spark: SparkSession, target: str) -> list[tuple[str, int]]:
        return [(row.window_id, row.n) for row in spark.table(target).collect()]


class TestAppend(SinkContract):
    code = "window.write_delta(df.withColumn('of', F.lit(window.id)), target, mode='append')"
    is_checked_first = True
    is_replaced = False

    @pytest.fixture
    def target(self, tmp_path: Path) -> str:
        return str(tmp_path / "orders")

    def rows(self, spark: SparkSession, target: str) -> list[tuple[str, int]]:
        return [(row.of, row.n) for row in spark.read.format("delta").load(target).collect()]
