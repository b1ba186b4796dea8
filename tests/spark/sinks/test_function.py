"""Windows written by functions of users."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from airflow_kafka_offsets.spark.errors import IncompleteReadError
from tests.spark.sinks.contract import KeptFiles, SinkContract

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from airflow_kafka_offsets.spark import KafkaWindow
    from tests.spark.conftest import MakeWindow, Ranges


def replace_in(path: str) -> Callable[[DataFrame, KafkaWindow], int]:
    """Return a function that deletes by window id, and inserts, in one transaction."""

    def function(df: DataFrame, window: KafkaWindow) -> int:
        rows = [(window.id, row.n) for row in df.collect()]
        with closing(sqlite3.connect(path, timeout=60)) as database, database:
            database.execute("create table if not exists orders (window_id text, n int)")
            database.execute("delete from orders where window_id = ?", [window.id])
            database.executemany("insert into orders values (?, ?)", rows)
        return len(rows)

    return function


class TestFunction(KeptFiles, SinkContract):
    code = "from tests.spark.sinks.test_function import replace_in; window.write(df, replace_in(target))"
    is_checked_first = False
    is_once = False
    is_labelled = False

    @pytest.fixture
    def target(self, tmp_path: Path) -> str:
        return str(tmp_path / "orders.db")

    def rows(self, spark: SparkSession, target: str) -> list[tuple[str, int]]:
        with closing(sqlite3.connect(target)) as database:
            return database.execute("select window_id, n from orders").fetchall()


def upsert_in(path: str) -> Callable[[DataFrame, KafkaWindow], None]:
    """Return a function that lets Spark's tasks write by the record's own key; a task may run twice."""

    def of_partition(rows: Iterable[Any]) -> None:
        with closing(sqlite3.connect(path, timeout=60)) as database, database:
            for row in rows:
                database.execute("insert or replace into orders values (?, ?, ?)", [row.partition, row.offset, row.n])

    return lambda df, _: df.foreachPartition(of_partition)


def test_what_tasks_write_is_checked_before(make_window: MakeWindow, ranges: Ranges, tmp_path: Path) -> None:
    path = str(tmp_path / "orders.db")
    with closing(sqlite3.connect(path)) as database:
        database.execute("create table orders (partition int, offset int, n int, primary key (partition, offset))")

    def rows(window: KafkaWindow) -> DataFrame:
        return window.read().selectExpr("partition", "offset", "cast(cast(value as string) as int) as n")

    def found() -> list[int]:
        with closing(sqlite3.connect(path)) as database:
            return [n for (n,) in database.execute("select n from orders order by n")]

    window = make_window(ranges)
    with pytest.raises(IncompleteReadError, match=r"\d of 10 planned"):
        window.write(rows(window).limit(2), upsert_in(path), check_first=True)
    assert found() == []
    for _ in range(2):
        window = make_window(ranges)
        window.write(rows(window), upsert_in(path), check_first=True)
        assert found() == [*range(10)]
        assert window.records == 10


def test_the_function_has_the_window_at_hand_and_its_value_comes_back(make_window: MakeWindow, ranges: Ranges) -> None:
    window = make_window(ranges, is_rerun=True)
    told = window.write(window.read(), lambda df, w: (w.id, w.seq, w.ranges, w.is_rerun, df.count()))
    assert told == ("lake.orders-000012", 12, ranges, True, 10)
