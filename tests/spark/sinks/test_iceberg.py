"""Windows in Iceberg tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lab.tables import CATALOG
from tests.spark.sinks.contract import SinkContract

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Table:
    """An Iceberg table."""

    @pytest.fixture
    def target(self, topic: str) -> str:
        return f"{CATALOG}.db.`{topic}`"

    def rows(self, spark: SparkSession, target: str) -> list[tuple[str, int]]:
        return [(row.window_id, row.n) for row in spark.table(target).collect()]


class TestReplace(Table, SinkContract):
    code = "window.write_iceberg(df, target)"
    is_checked_first = False


class TestMerge(Table, SinkContract):
    code = "window.write_iceberg(df, target, merge_on='n')"
    is_checked_first = True
    is_side_by_side = False
