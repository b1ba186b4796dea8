"""Windows in Iceberg tables."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.catalog import Catalog

from airflow_kafka_offsets.spark.errors import OtherWindowError, WriteOptionError
from airflow_kafka_offsets.spark.sinks import iceberg
from tests.lab.tables import CATALOG
from tests.spark.sinks.contract import Incomplete, KeptFiles, TableContract, window_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.spark.conftest import MakeWindow, Ranges

    Merge = Callable[..., list[tuple]]


class Table(KeptFiles):
    """An Iceberg table."""

    @pytest.fixture
    def target(self, topic: str) -> str:
        return f"{CATALOG}.db.`{topic}`"

    def rows(self, spark: SparkSession, target: str) -> list[tuple[str, int]]:
        return [(row.window_id, row.n) for row in spark.table(target).collect()]

    def place(self, spark: SparkSession, target: str) -> Path:
        # A copy's metadata names the data files of the table that it was copied from, and that one's folder for new ones, too. Each
        # table has its own metadata, so that no one sees the files of another.
        name = target.rpartition(".")[2].strip("`")
        return Path(str(spark.conf.get(f"spark.sql.catalog.{CATALOG}.warehouse")), "db", name)


class TestReplace(Table, TableContract):
    code = "window.write_iceberg(df, target)"
    is_checked_first = False


class TestMerge(Table, TableContract):
    code = "window.write_iceberg(df, target, merge_on='n')"
    is_checked_first = True
    is_side_by_side = False


class TestCheckedFirst(Table, Incomplete):
    code = "window.write_iceberg(df, target, check_first=True)"
    is_checked_first = True


@pytest.fixture
def table(topic: str) -> str:
    """Return the name of a table that is not there."""
    return f"{CATALOG}.db.`{topic}`"


def literal(row: tuple[str | None, int, str]) -> str:
    """Return a row as SQL has it."""
    return f"({', '.join('null' if value is None else repr(value) for value in row)})"


@pytest.fixture
def merge(spark: SparkSession, make_window: MakeWindow, ranges: Ranges, table: str) -> Merge:
    """Return a function that merges rows (k, version, v) as the window with a number, and returns the table's rows."""

    def run(seq: int, *rows: tuple[str | None, int, str], **how: Any) -> list[tuple]:
        window = make_window(ranges, window_id=window_id(seq), seq=seq)
        brought = spark.sql(f"SELECT * FROM VALUES {', '.join(map(literal, rows))} AS brought (k, version, v)")
        # One row of the window is as good as another here: all that counts is that it is read.
        frame = window.read().selectExpr("count(*) as records").crossJoin(brought).drop("records")
        window.write_iceberg(frame, table, merge_on="k", **how)
        found = spark.table(table).select("k", "version", "v", "window_id").collect()
        return sorted(((k, version, v, int(of[-6:])) for k, version, v, of in found), key=str)

    return run


def test_the_statement_is_as_its_example_says() -> None:
    assert doctest.testmod(iceberg) == (0, 1)


def test_a_merge_keeps_one_row_a_key(merge: Merge) -> None:
    merge(1, ("a", 1, "a1"), ("b", 1, "b1"), (None, 1, "null1"))
    assert merge(2, ("a", 2, "a2"), ("c", 2, "c2"), (None, 2, "null2")) == [
        ("a", 2, "a2", 2),
        ("b", 1, "b1", 1),
        ("c", 2, "c2", 2),
        (None, 2, "null2", 2),
    ]


def test_what_the_window_brings_no_more_is_deleted_and_what_it_had_replaced_does_not_come_back(merge: Merge) -> None:
    merge(1, ("a", 1, "a1"), ("b", 1, "b1"))
    merge(2, ("a", 2, "a2"), ("c", 2, "c2"))
    assert merge(2, ("c", 2, "again")) == [("b", 1, "b1", 1), ("c", 2, "again", 2)]
    assert merge(1, ("a", 1, "a1"), ("b", 1, "b1"))[0] == ("a", 1, "a1", 1), "until its window is run again"


def test_with_an_order_the_replay_of_an_old_window_changes_nothing_that_is_newer(merge: Merge) -> None:
    merge(1, ("a", 1, "a1"), ("b", 1, "b1"), order_by=["version"])
    merge(2, ("a", 2, "older"), ("a", 3, "newer"), order_by=["version"])
    assert merge(1, ("a", 1, "a1"), ("b", 1, "corrected"), order_by="version") == [
        ("a", 3, "newer", 2),
        ("b", 1, "corrected", 1),
    ]


def test_of_rows_with_equal_order_that_of_the_later_window_stays_whichever_is_run_again(merge: Merge) -> None:
    merge(1, ("a", 1, "a1"), ("b", 1, "b1"), order_by=["version"])
    merge(2, ("a", 1, "a2"), order_by=["version"])
    assert merge(1, ("a", 1, "again"), ("b", 1, "again"), order_by=["version"]) == [
        ("a", 1, "a2", 2),
        ("b", 1, "again", 1),
    ]
    assert merge(2, ("a", 1, "corrected"), order_by=["version"])[0] == ("a", 1, "corrected", 2)


def test_of_rows_with_equal_order_that_nobody_can_date_the_last_run_wins(
    spark: SparkSession, merge: Merge, table: str
) -> None:
    merge(1, ("a", 1, "a1"), order_by=["version"])
    others = "('x', 1, 'x', 'lake.orders-x-000099'), ('y', 1, 'y', null), ('z', 1, 'z', 'lake.orders-99x')"
    spark.sql(f"INSERT INTO {table} VALUES {others}")
    found = merge(2, *((key, 1, "mine") for key in "xyz"), order_by=["version"])
    assert found[1:] == [(key, 1, "mine", 2) for key in "xyz"]


def test_a_rerun_replaces_what_its_own_window_brought_whatever_the_order(merge: Merge) -> None:
    merge(1, ("a", 3, "wrong"), order_by="version")
    assert merge(1, ("a", 2, "right"), order_by="version") == [("a", 2, "right", 1)]


@pytest.mark.usefixtures("adaptive")
def test_a_merge_writes_only_the_files_that_it_changes(spark: SparkSession, merge: Merge, table: str) -> None:
    merge(1, ("a", 1, "a1"), partition_by="k")
    merge(2, ("b", 1, "b1"), ("c", 1, "c1"))
    merge(2, ("b", 1, "b1"))
    latest = f"SELECT summary FROM {table}.snapshots ORDER BY committed_at DESC LIMIT 1"
    summary = spark.sql(latest).collect()[0].summary
    assert summary["deleted-data-files"] == "2", "those of b and c"


def test_a_row_that_another_window_has_taken_over_meanwhile_is_not_deleted(
    spark: SparkSession, merge: Merge, table: str
) -> None:
    merge(1, ("a", 1, "a1"), ("b", 1, "b1"))
    merge(2, ("a", 2, "a2"))
    # As looked up just before window 2 took the key over.
    spark.sql(
        "SELECT 'a' AS k, CAST(null AS int) AS version, CAST(null AS string) AS v, CAST(null AS string) AS window_id, "
        "true AS kafka_window_gone"
    ).createOrReplaceTempView("looked_up_before")
    spark.sql(iceberg.merge_statement(table, "looked_up_before", window_id(1), ["k"], []))
    assert ("a", 2, "a2") in [row[:3] for row in spark.table(table).select("k", "version", "v").collect()]


def test_without_an_order_two_rows_of_one_key_are_an_error(spark: SparkSession, merge: Merge, table: str) -> None:
    with pytest.raises(Exception, match="Two rows have the same k: set order_by"):
        merge(1, ("a", 1, "one"), ("a", 1, "two"))
    assert not spark.catalog.tableExists(table) or spark.table(table).count() == 0


@pytest.mark.parametrize("how", [{}, {"merge_on": "n"}], ids=["replace", "merge"])
def test_rows_of_which_no_snapshot_says_anything_are_replaced_only_by_a_window_that_was_committed(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, table: str, how: dict
) -> None:
    """As when the snapshots have expired, and a new ledger gives the oldest ids again."""
    spark.sql(f"CREATE TABLE {table} (n bigint, window_id string) USING iceberg PARTITIONED BY (window_id)")
    spark.sql(f"INSERT INTO {table} VALUES (77, 'lake.orders-000012')")
    window = make_window(ranges)
    with pytest.raises(OtherWindowError, match="without a digest"):
        window.write_iceberg(window.read().selectExpr("offset + 10 * partition as n"), table, **how)
    assert spark.table(table).count() == 1
    rerun = make_window(ranges, is_rerun=True)
    rerun.write_iceberg(rerun.read().selectExpr("offset + 10 * partition as n"), table, **how)
    assert spark.table(table).count() == 10


@pytest.mark.parametrize("how", [{}, {"merge_on": "n"}], ids=["replace", "merge"])
def test_what_another_job_wrote_while_this_one_was_about_to_create_the_table_is_looked_at(
    make_window: MakeWindow, ten_records: Ranges, table: str, monkeypatch: pytest.MonkeyPatch, how: dict
) -> None:
    window = make_window(ten_records)
    with monkeypatch.context() as patch:
        patch.delattr(iceberg.IcebergTable, "_refuse_other")  # who creates the table has nothing to look for in it
        window.write_iceberg(window.read().selectExpr("offset + 10 * partition as n"), table, **how)
    exists, looks = Catalog.tableExists, iter([False])
    monkeypatch.setattr(Catalog, "tableExists", lambda catalog, name: next(looks, exists(catalog, name)))
    other = make_window(ten_records, planned_until="2026-03-01T00:00:00+00:00")
    with pytest.raises(OtherWindowError, match="another window"):
        other.write_iceberg(other.read().selectExpr("offset + 10 * partition as n"), table, **how)


def test_a_table_of_the_current_namespace_is_replaced_by_its_name_alone(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, topic: str
) -> None:
    before = f"{spark.catalog.currentCatalog()}.{spark.catalog.currentDatabase()}"
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.db")
    spark.sql(f"USE {CATALOG}.db")
    try:
        for _ in range(2):
            window = make_window(ranges)
            window.write_iceberg(window.read().selectExpr("offset AS n"), f"`{topic}`")
        assert spark.table(f"`{topic}`").count() == 10
    finally:
        spark.sql(f"USE {before}")


def test_a_table_that_no_window_could_be_replaced_in_is_refused_before_anything_is_written(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, table: str
) -> None:
    spark.sql(f"CREATE TABLE {table} (topic string, window_id string) USING iceberg")
    for _ in range(2):
        window = make_window(ranges)
        with pytest.raises(
            WriteOptionError, match=r"no partition window_id.*\n    ALTER TABLE .* ADD PARTITION FIELD window_id"
        ):
            window.write_iceberg(window.read().select("topic"), table)
    assert spark.table(table).count() == 0
    spark.sql(f"ALTER TABLE {table} ADD PARTITION FIELD window_id")
    spark.sql(f"ALTER TABLE {table} ADD PARTITION FIELD truncate(2, topic)")
    window = make_window(ranges)
    window.write_iceberg(window.read().select("topic"), table)
    assert spark.table(table).count() == 10


def test_a_table_to_merge_into_may_be_of_the_users_own_making(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, table: str
) -> None:
    spark.sql(f"CREATE TABLE {table} (n bigint) USING iceberg PARTITIONED BY (bucket(2, n))")
    window = make_window(ranges)
    frame = window.read().selectExpr("partition * 10 + offset as n")
    with pytest.raises(
        WriteOptionError, match=r"no column window_id.*\n    ALTER TABLE .* ADD COLUMN window_id string"
    ):
        window.write_iceberg(frame, table, merge_on="n")
    spark.sql(f"ALTER TABLE {table} ADD COLUMN window_id string")
    window.write_iceberg(frame, table, merge_on="n")
    assert spark.table(table).filter(f"window_id = '{window.id}'").count() == 10


def test_a_snapshot_says_which_window_made_it_and_a_task_writes_its_own_file(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, table: str
) -> None:
    window = make_window(ranges)
    window.write_iceberg(window.read(minPartitions=1), table, **{"snapshot-property.by": "me"})
    row = spark.sql(f"SELECT summary FROM {table}.snapshots ORDER BY committed_at DESC LIMIT 1").collect()[0]
    properties = {name: value for name, value in row.summary.items() if name.startswith("kafka-") or name == "by"}
    (topic,) = ranges
    assert len(properties.pop("kafka-digest")) == 16, "windows of many partitions differ without their ranges"
    assert properties == {
        "by": "me",
        "kafka-window-id": window.id,
        "kafka-group": "lake.orders",
        "kafka-seq": "12",
        "kafka-ranges": f'{{"{topic}": {{"0": [0, 6], "1": [0, 4]}}}}',
    }
    assert row.summary["added-data-files"] == "2", "nothing was shuffled"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"order_by": "n"}, "order_by requires merge_on"),
        ({"merge_on": "n", "fanout-enabled": True}, "set table properties instead of fanout-enabled"),
    ],
)
def test_what_would_have_no_effect_is_refused(
    make_window: MakeWindow, ranges: Ranges, table: str, how: dict, said: str
) -> None:
    window = make_window(ranges)
    with pytest.raises(WriteOptionError, match=said):
        window.write_iceberg(window.read().selectExpr("offset as n"), table, **how)
