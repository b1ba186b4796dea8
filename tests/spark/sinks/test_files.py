"""Windows in files, of each format; publishing itself is in test_write_parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest

from airflow_kafka_offsets.spark.errors import OtherWindowError, WriteOptionError
from airflow_kafka_offsets.spark.label import label_of
from airflow_kafka_offsets.spark.sinks.files import Files, ledger_of, mark
from tests.spark.conftest import handoff
from tests.spark.sinks.contract import KeptFiles, Rerun, SinkContract

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.conftest import MakeWindow


class Directory(KeptFiles):
    """A directory of windows."""

    file_format: ClassVar[str]

    @pytest.fixture
    def target(self, tmp_path: Path) -> str:
        return str(tmp_path / "lake")

    def rows(self, spark: SparkSession, target: str) -> list[tuple[str, int]]:
        frame = spark.read.schema("n int, window_id string").format(self.file_format).load(target)
        return [(row.window_id, row.n) for row in frame.collect()]


class TestParquet(Directory, SinkContract):
    file_format = "parquet"
    code = "window.write_parquet(df, target, compression='zstd')"
    is_checked_first = True


class TestOrc(Directory, Rerun):
    file_format = "orc"
    code = "window.write_orc(df, target)"


class TestJson(Directory, Rerun):
    file_format = "json"
    code = "window.write_json(df, target)"


def test_options_are_the_writers(make_window: MakeWindow, tmp_path: Path) -> None:
    window = make_window({"orders": {0: (0, 0)}})
    window.write_json(window.read().selectExpr("topic"), str(tmp_path), compression="gzip")
    window.write_parquet(window.read().selectExpr("topic"), f"{tmp_path}/p", compression="zstd")
    assert [*tmp_path.rglob("*.zstd.parquet")]


def test_a_column_that_the_directories_hide_is_refused(make_window: MakeWindow, tmp_path: Path) -> None:
    window = make_window({"orders": {0: (0, 0)}})
    with pytest.raises(WriteOptionError, match="Drop the frame's column window_id"):
        window.write_parquet(window.read().selectExpr("topic as WINDOW_ID"), str(tmp_path))
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("ledgers", [["b"], ["b", "a"], ["a"]], ids=["another ledger", "its heir", "the same ledger"])
def test_of_two_ledgers_that_write_first_at_one_moment_one_is_refused(
    spark: SparkSession, tmp_path: Path, ledgers: list[str]
) -> None:
    root, files = str(tmp_path), Files(spark)
    first, second = label_of(handoff({}, ledgers=["a"])), label_of(handoff({}, ledgers=ledgers))

    class Between(Files):
        """The other ledger puts its mark just after this one has seen none."""

        def read(self, path: str) -> str | None:
            text = super().read(path)
            if text is None:
                mark(files, first, root)
            return text

    if "a" in ledgers:
        mark(Between(spark), second, root)
    else:
        with pytest.raises(OtherWindowError, match="from another ledger, a:"):
            mark(Between(spark), second, root)
    assert ledger_of(files, first, root) == ("b" if ledgers == ["b", "a"] else "a")


def test_a_mark_that_a_killed_job_left_empty_is_made_again(spark: SparkSession, tmp_path: Path) -> None:
    label, files = label_of(handoff({}, ledgers=["a"])), Files(spark)
    (tmp_path / f".kafka-ledger-{label.group}").touch()
    mark(files, label, str(tmp_path))
    assert ledger_of(files, label, str(tmp_path)) == "a"
