"""Windows in Delta tables."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from pyspark.sql.catalog import Catalog

from airflow_kafka_offsets.spark.errors import IncompleteReadError, OtherWindowError, WriteOptionError
from airflow_kafka_offsets.spark.shared import report_order
from airflow_kafka_offsets.spark.sinks.delta import DeltaTable
from tests.lab.delta import rows_of_delta
from tests.spark.sinks.contract import KeptFiles, TableContract, rows_of, window_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

    from airflow_kafka_offsets.spark import KafkaWindow
    from tests.spark.conftest import MakeWindow, Ranges


class TestReplace(KeptFiles, TableContract):
    code = "window.write_delta(df, target)"
    is_checked_first = False

    @pytest.fixture
    def target(self, topic: str) -> str:
        return topic.replace("-", "_")  # a table's name

    def rows(self, spark: SparkSession, target: str) -> list[tuple[str, int]]:
        return [(row["window_id"], row["n"]) for row in rows_of_delta(self.place(spark, target))]

    def place(self, spark: SparkSession, target: str) -> Path:
        return Path(urlsplit(str(spark.conf.get("spark.sql.warehouse.dir"))).path, target)

    def bring(self, spark: SparkSession, target: str, kept: Path) -> None:
        super().bring(spark, target, kept)
        spark.sql(f"CREATE TABLE {target} USING delta LOCATION '{self.place(spark, target)}'")


class TestAppend(KeptFiles, TableContract):
    code = "window.write_delta(df.withColumn('of', F.lit(window.id)), target, mode='append')"
    is_checked_first = True
    is_replaced = False

    @pytest.fixture
    def target(self, tmp_path: Path) -> str:
        return str(tmp_path / "orders")

    def rows(self, spark: SparkSession, target: str) -> list[tuple[str, int]]:
        return [(row["of"], row["n"]) for row in rows_of_delta(target)]


def test_spark_finds_by_its_name_what_is_in_the_files_of_a_table(
    spark: SparkSession, make_window: MakeWindow, ten_records: Ranges, topic: str
) -> None:
    sink, table = TestReplace(), topic.replace("-", "_")
    for seq, condition in [(1, "n < 7"), (2, "n > 4"), (1, "n < 2")]:
        window = make_window(ten_records, window_id=window_id(seq), seq=seq)
        window.write_delta(values(window).filter(condition).selectExpr(f"n + {100 * seq} as n"), table)
    found = sorted((row.window_id, row.n) for row in spark.table(table).collect())
    assert found == sorted(sink.rows(spark, table)) == [*rows_of(1, 0, 1), *rows_of(2, *range(5, 10))]


def values(window: KafkaWindow) -> DataFrame:
    return window.read().selectExpr("cast(cast(value as string) as int) as n")


def history(spark: SparkSession, path: Path) -> list[dict]:
    rows = spark.sql(f"DESCRIBE HISTORY delta.`{path}`").collect()
    return [json.loads(row.userMetadata) for row in rows if row.userMetadata]


def test_the_history_says_which_window_made_a_version(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Who creates the table has nothing to look for in it.
    monkeypatch.delattr(DeltaTable, "_refuse_other")
    window = make_window(ranges)
    assert window.write_delta(values(window), f"{tmp_path}/t")
    (note,) = history(spark, tmp_path / "t")
    assert {name: note[name] for name in ("window_id", "group", "seq", "mode")} == {
        "window_id": window.id,
        "group": "lake.orders",
        "seq": 12,
        "mode": "replace",
    }
    assert json.loads(note["ranges"]) == {
        topic: {str(p): list(ends) for p, ends in partitions.items()} for topic, partitions in ranges.items()
    }


def test_an_append_that_only_delta_remembers_is_told_apart_too(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "report.json"
    monkeypatch.setattr(DeltaTable, "has_appended", lambda self: False)  # as if that were many commits ago
    for written in (True, False):
        window = make_window(ranges, report=str(report))
        assert window.write_delta(values(window), f"{tmp_path}/t", mode="append") is written
        assert json.loads(report.read_text())["written"] is written
        assert window.records == 10
    assert len(rows_of_delta(tmp_path / "t")) == 10


@pytest.mark.parametrize(("others", "looks"), [(0, [1_000, 10]), (10, [1_000, 10, 1_000])])
def test_an_append_is_found_among_the_newest_commits_or_below_those_of_others(
    spark: SparkSession,
    make_window: MakeWindow,
    ranges: Ranges,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    others: int,
    looks: list[int],
) -> None:
    path = f"{tmp_path}/t"
    window = make_window(ranges)
    window.write_delta(values(window), path, mode="append")
    save, notes, looked = DeltaTable._save, DeltaTable._notes, []

    def save_before_others(table: DeltaTable, writer: DataFrameWriter) -> None:
        save(table, writer)
        for _ in range(others):
            spark.range(1).selectExpr("-1 AS n").write.format("delta").mode("append").save(path)

    def count_looks(table: DeltaTable, *most: int) -> list[dict[str, Any]]:
        looked.append(most[0] if most else 1_000)
        return notes(table, *most)

    monkeypatch.setattr(DeltaTable, "_save", save_before_others)
    monkeypatch.setattr(DeltaTable, "_notes", count_looks)
    second = make_window(ranges, window_id=window_id(2), seq=2)
    assert second.write_delta(values(second), path, mode="append")
    assert looked == looks


def test_windows_may_be_appended_in_any_order(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, tmp_path: Path
) -> None:
    for seq in (3, 1, 2):
        window = make_window(ranges, window_id=window_id(seq), seq=seq)
        assert window.write_delta(values(window), f"{tmp_path}/t", mode="append")
    assert len(rows_of_delta(tmp_path / "t")) == 30


def test_after_a_skipped_write_no_read_is_missed_but_one_that_is_made_is_checked(
    make_window: MakeWindow, ranges: Ranges, tmp_path: Path
) -> None:
    first = make_window(ranges)
    first.write_delta(values(first), f"{tmp_path}/t", mode="append")
    again = make_window(ranges)
    frame = values(again)
    assert again.write_delta(frame, f"{tmp_path}/t", mode="append") is False
    again.check()
    again.finish()
    assert (again.is_unchecked, again.records) == (False, None)
    assert again.write_delta(frame, f"{tmp_path}/second", mode="append"), "a crash between the two left this one"
    assert again.records == 10

    third = make_window(ranges)
    frame = values(third)
    third.write_delta(frame, f"{tmp_path}/t", mode="append")
    frame.limit(2).collect()
    assert third.is_unchecked
    with pytest.raises(IncompleteReadError, match=r"\d of 10 planned"):
        third.finish()

    fourth = make_window(ranges)
    assert fourth.write_delta(frame, f"{tmp_path}/t", mode="append") is False
    assert fourth.is_unread, "no one read its frame, which may have been written elsewhere too"


def test_a_report_that_is_the_only_evidence_counts_also_what_an_earlier_run_has_appended(
    make_window: MakeWindow, ranges: Ranges, tmp_path: Path
) -> None:
    first = make_window(ranges)
    first.write_delta(values(first), f"{tmp_path}/t", mode="append")
    reports = tmp_path / "exchange" / "reports"
    again = make_window(ranges, report=f"file://{reports}")
    assert again.write_delta(values(again), f"{tmp_path}/t", mode="append") is False
    again.finish()
    last = max(reports.iterdir(), key=lambda folder: report_order(folder.name) or (0, "", 0))
    report = json.loads(next(last.glob("part-*")).read_text())
    assert (report["records"], report["written"]) == (10, False)
    assert len(rows_of_delta(tmp_path / "t")) == 10


def test_a_table_is_replaced_or_appended_to_not_both(make_window: MakeWindow, ranges: Ranges, tmp_path: Path) -> None:
    window = make_window(ranges)
    window.write_delta(values(window), f"{tmp_path}/t")
    again = make_window(ranges)
    with pytest.raises(WriteOptionError, match=r"Set mode='replace'"):
        again.write_delta(values(again), f"{tmp_path}/t", mode="append")


def test_a_window_that_only_has_the_id_of_one_that_was_appended_is_not_left_out(
    make_window: MakeWindow, ranges: Ranges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = make_window(ranges)
    window.write_delta(values(window), f"{tmp_path}/t", mode="append")
    shorter = {topic: {p: (start, end - 1) for p, (start, end) in found.items()} for topic, found in ranges.items()}
    for topics, until in ((shorter, "2026-01-01T01:00:00+00:00"), (ranges, "2026-03-01T00:00:00+00:00")):
        other = make_window(topics, planned_until=until)
        with pytest.raises(OtherWindowError, match="of another window "):
            other.write_delta(values(other), f"{tmp_path}/t", mode="append")
        with monkeypatch.context() as patch:
            # As if that were many commits ago; Delta itself forgets nothing.
            patch.setattr(DeltaTable, "has_appended", lambda self: False)
            other = make_window(topics, planned_until=until)
            assert other.write_delta(values(other), f"{tmp_path}/t", mode="append")


def test_rows_of_which_the_history_says_nothing_are_replaced_only_by_a_window_that_was_committed(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, tmp_path: Path
) -> None:
    """As after the retention of the history, when a new ledger gives the oldest ids again."""
    path = f"{tmp_path}/t"
    spark.sql(f"CREATE TABLE delta.`{path}` USING delta AS SELECT 77 AS n, 'lake.orders-000012' AS window_id")
    window = make_window(ranges)
    with pytest.raises(OtherWindowError, match="without a digest"):
        window.write_delta(values(window), path)
    assert len(rows_of_delta(path)) == 1
    rerun = make_window(ranges, is_rerun=True)
    rerun.write_delta(values(rerun), path)
    assert len(rows_of_delta(path)) == 10


@pytest.mark.parametrize("mode", ["replace", "append"])
def test_what_another_job_wrote_while_this_one_was_about_to_create_the_table_is_looked_at(
    make_window: MakeWindow, ten_records: Ranges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    window = make_window(ten_records)
    window.write_delta(values(window), f"{tmp_path}/t", mode=mode)
    exists, looks = Catalog.tableExists, iter([False])
    monkeypatch.setattr(Catalog, "tableExists", lambda catalog, name: next(looks, exists(catalog, name)))
    other = make_window(ten_records, planned_until="2026-03-01T00:00:00+00:00")
    with pytest.raises(OtherWindowError, match="another window"):
        other.write_delta(values(other), f"{tmp_path}/t", mode=mode)


def test_the_error_of_a_table_that_can_not_be_created_has_the_reason_of_each_try(
    make_window: MakeWindow, ranges: Ranges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons = ["the metastore did not answer", "its place is not empty", "its place is still not empty"]
    errors = iter([RuntimeError(reason) for reason in reasons])

    def fail(table: DeltaTable, writer: object) -> None:
        raise next(errors)

    monkeypatch.setattr(DeltaTable, "_save", fail)
    window = make_window(ranges)
    with pytest.raises(RuntimeError) as caught:
        window.write_delta(values(window), f"{tmp_path}/t")
    text = "".join(traceback.format_exception(caught.value))
    assert [reason for reason in reasons if reason in text] == reasons


def test_a_session_that_lets_delta_skip_writes_is_refused(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, tmp_path: Path
) -> None:
    window = make_window(ranges)
    spark.conf.set("spark.databricks.delta.write.txnAppId", "loader")
    try:
        with pytest.raises(WriteOptionError, match="txnAppId: with it, Delta would skip writes"):
            window.write_delta(values(window), f"{tmp_path}/t")
    finally:
        spark.conf.unset("spark.databricks.delta.write.txnAppId")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"replaceWhere": "true"}, "Leave out replaceWhere: the window sets"),
        ({"TXNVERSION": 7}, "Leave out TXNVERSION: the window sets"),
        ({"mode": "overwrite"}, "must be replace or append, got 'overwrite'"),
    ],
)
def test_what_could_double_or_lose_rows_is_refused(
    make_window: MakeWindow, ranges: Ranges, tmp_path: Path, options: dict, said: str
) -> None:
    window = make_window(ranges)
    with pytest.raises(WriteOptionError, match=said):
        window.write_delta(values(window), f"{tmp_path}/t", **options)
    assert not (tmp_path / "t").exists()


def test_a_table_of_the_users_own_making_is_replaced_as_well(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, tmp_path: Path
) -> None:
    path = f"{tmp_path}/t"
    spark.sql(f"CREATE TABLE delta.`{path}` (n int, window_id string) USING delta")  # not partitioned
    for seq, condition in [(1, "n < 7"), (2, "n > 4"), (1, "n < 2")]:
        window = make_window(ranges, window_id=window_id(seq), seq=seq)
        window.write_delta(values(window).filter(condition).selectExpr(f"n + {100 * seq} as n"), path)
    rows = [(row["window_id"], row["n"]) for row in rows_of_delta(path)]
    assert sorted(rows) == [*rows_of(1, 0, 1), *rows_of(2, *range(5, 10))]


def test_an_incomplete_read_can_be_kept_out(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, tmp_path: Path
) -> None:
    window = make_window(ranges)
    with pytest.raises(IncompleteReadError, match=r"\d of 10 planned"):
        window.write_delta(values(window).limit(2), f"{tmp_path}/t", check_first=True)
    assert not (tmp_path / "t").exists()
    window = make_window(ranges)
    frame = values(window).selectExpr("n", "n as m")
    window.write_delta(frame, f"{tmp_path}/t", check_first=True, partition_by="n")
    assert len([*(tmp_path / "t" / f"window_id={window.id}").glob("n=*")]) == 10
    assert not frame.storageLevel.useMemory
