"""What every sink promises; each subclass runs it on the real thing.

A subclass is a `pytest` class with

- `code`: the write, as a line of a job that has `window`, its frame `df` (one column: `n int`), `target` and pyspark's
  functions as `F`;
- `target` (a fixture): the test's own place to write to; the line has to create a missing table;
- `rows`: the rows that a reader of the target gets.

The output that many tests begin with (`written`) is written once for a class that can `keep` it, and copied for each of them.

Each window reads the same topic of two partitions, with the values 0 to 5 and 6 to 9. The window with the number s adds 100 * s to `n`,
so that no two windows have a row in common. Its job keeps the rows that satisfy a condition on `value`.
"""

from __future__ import annotations

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from airflow_kafka_offsets.spark.errors import (
    IncompleteReadError,
    LostRecordsError,
    OtherWindowError,
    PublishError,
    WriteOptionError,
)
from tests.lab.topics import delete_records
from tests.lab.waiting import LONGEST

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from airflow_kafka_offsets.spark import KafkaWindow
    from tests.lab.kafka import KafkaBroker
    from tests.spark.conftest import MakeWindow, Ranges

    Run = Callable[..., KafkaWindow]

HALF_WAY = "case when value < 9 then n else raise_error('half-way') end"


def job(code: str, window: KafkaWindow, target: Any, condition: str = "true", n: str = "n", limit: int = 1000) -> None:
    """Run a user's job.

    Args:
        code: the write.
        window: the job's.
        target: to write to.
        condition: for the records to keep.
        n: what becomes of `n` on the way.
        limit: how many records the user takes.
    """
    from pyspark.sql import functions as F

    # A task for each partition, so that one of them can be through when another is not.
    df = window.read(minPartitions=1).selectExpr("cast(cast(value as string) as int) as value").filter(condition)
    df = df.selectExpr("value", f"value + {100 * window.seq} as n").selectExpr(f"{n} as n")
    df = df.limit(limit) if limit < 1000 else df
    exec(code, {"window": window, "df": df, "target": target, "F": F})


def window_id(seq: int) -> str:
    """Return the id of the window with this number."""
    return f"lake.orders-{seq:06}"


def rows_of(seq: int, *values: int) -> list[tuple[str, int]]:
    """Return the rows that these values become, each once."""
    return [(window_id(seq), 100 * seq + value) for value in values]


class KeptFiles:
    """A sink whose target is a file or a folder: a copy of it is another target."""

    def place(self, spark: SparkSession, target: Any) -> Path:
        """Return the file or folder."""
        return Path(target)

    def keep(self, spark: SparkSession, target: Any, kept: Path) -> None:
        """Copy it."""
        copy(self.place(spark, target), kept)

    def bring(self, spark: SparkSession, target: Any, kept: Path) -> None:
        """Copy it."""
        copy(kept, self.place(spark, target))


def copy(source: Path, target: Path) -> None:
    """Copy a file or a folder to a place where there is nothing."""
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)


class Jobs:
    """The needs of each class here: jobs that write windows, and a reader of their rows."""

    code: ClassVar[str]
    is_replaced: ClassVar[bool] = True
    """Whether a rerun replaces the output of the window; otherwise it leaves it."""
    is_labelled: ClassVar[bool] = True
    """Whether the sink finds out which window wrote the old output; otherwise the user's function decides."""

    @pytest.fixture
    def target(self) -> Any:
        """Return where to write."""
        raise NotImplementedError

    def rows(self, spark: SparkSession, target: Any) -> list[tuple[str, int]]:
        """Return window id and `n` of all rows of the target, which some window was written to."""
        raise NotImplementedError

    def keep(self, spark: SparkSession, target: Any, kept: Path) -> None:
        """Keep a copy of the target, and what leads to it at `kept`. By default there is none, and each test writes its own."""

    def bring(self, spark: SparkSession, target: Any, kept: Path) -> None:
        """Make the target from the kept output."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _no_task_has_python(self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let each task fail that would start Python: an executor needs it only for Python of the user's own job."""
        monkeypatch.setattr(spark.sparkContext, "pythonExec", "/no/python/here")

    @pytest.fixture
    def run(self, make_window: MakeWindow, ten_records: Ranges, target: Any) -> Run:
        """Return a function that runs the job of the window with a number, and returns the window."""

        def run(
            seq: int,
            condition: str = "true",
            report: Path | None = None,
            ledger: dict[str, Any] | None = None,
            ranges: Ranges = ten_records,
            **how: Any,
        ) -> KafkaWindow:
            values = {"window_id": window_id(seq), "seq": seq, "report": str(report) if report else None}
            window = make_window(ranges, **values, **(ledger or {}))
            job(self.code, window, target, condition, **how)
            return window

        return run

    @pytest.fixture(scope="class")
    @classmethod
    def kept(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """Return where the class keeps a copy of the first target that has two windows."""
        return tmp_path_factory.mktemp("kept") / "target"

    @pytest.fixture
    def written(self, spark: SparkSession, run: Run, target: Any, kept: Path) -> list[tuple[str, int]]:
        """Return the rows of the windows 1 and 2, which the target has."""
        rows = [*rows_of(1, *range(7)), *rows_of(2, *range(5, 10))]
        if kept.exists():
            self.bring(spark, target, kept)
            return rows
        run(1, "value < 7")
        run(2, "value > 4")
        self.assert_rows(spark, target, *rows)
        self.keep(spark, target, kept)
        return rows

    def assert_rows(self, spark: SparkSession, target: Any, *expected: tuple[str, int]) -> None:
        """Compare the target with rows in any order."""
        assert sorted(self.rows(spark, target)) == sorted(expected)


class Rerun(Jobs):
    """The table of reruns alone, for a sink that shares its code with one that keeps the whole contract."""

    @pytest.mark.parametrize(
        ("condition", "left"),
        [("value < 3", [0, 1, 2]), ("true", [*range(10)]), ("value < 0", [])],
        ids=["fewer", "more", "nothing"],
    )
    @pytest.mark.usefixtures("written")
    def test_a_rerun_leaves_what_it_brought_and_each_other_window(
        self, spark: SparkSession, run: Run, target: Any, tmp_path: Path, condition: str, left: list[int]
    ) -> None:
        rerun = run(1, condition, report=tmp_path / "report.json")
        left = left if self.is_replaced else [*range(7)]
        self.assert_rows(spark, target, *rows_of(1, *left), *rows_of(2, *range(5, 10)))
        assert not rerun.is_unchecked
        report = json.loads((tmp_path / "report.json").read_text())
        assert (report["window_id"], report["written"]) == (rerun.id, self.is_replaced)
        assert report["records"] == rerun.records == (10 if self.is_replaced else None)

    @pytest.mark.parametrize("is_rerun", [False, True])
    def test_another_ledgers_window_of_the_same_id_does_not_replace_what_is_there(
        self, spark: SparkSession, run: Run, target: Any, written: list[tuple[str, int]], is_rerun: bool
    ) -> None:
        second = rows_of(2, *range(5, 10))
        made_again = {"planned_until": "2026-03-01T00:00:00+00:00", "is_rerun": is_rerun}
        if not self.is_labelled:
            run(1, "value > 7", ledger=made_again)
            self.assert_rows(spark, target, *rows_of(1, 8, 9), *second)
            return
        with pytest.raises(OtherWindowError, match=f"another window {window_id(1)}.*otherwindowerror"):
            run(1, "value > 7", ledger=made_again)
        self.assert_rows(spark, target, *written)
        run(1, "value < 3")
        self.assert_rows(spark, target, *rows_of(1, *range(3 if self.is_replaced else 7)), *second)

    def test_another_ledger_does_not_write_beside_the_groups_output(
        self, spark: SparkSession, run: Run, target: Any
    ) -> None:
        ours, theirs = {"ledgers": ["a" * 32]}, {"ledgers": ["b" * 32]}
        run(1, ledger=ours)
        first = rows_of(1, *range(10))
        if not self.is_labelled:
            run(7, ledger=theirs)
            return
        for seq in (7, 1):
            with pytest.raises(OtherWindowError, match=f"from another ledger, {'a' * 32}.*two-environments"):
                run(seq, ledger=theirs)
        self.assert_rows(spark, target, *first)
        run(2, ledger=ours)
        run(7, ledger={"ledgers": ["b" * 32, "a" * 32]})
        with pytest.raises(OtherWindowError, match=f"from another ledger, {'b' * 32}"):
            run(3, ledger=ours)
        self.assert_rows(spark, target, *first, *rows_of(2, *range(10)), *rows_of(7, *range(10)))


class Incomplete(Jobs):
    """An incomplete read alone."""

    is_checked_first: ClassVar[bool]
    """Whether an incomplete read leaves the target unchanged; otherwise it leaves a part of its window until a rerun."""

    def test_an_incomplete_read_fails_the_job_and_the_next_try_puts_it_right(
        self, spark: SparkSession, run: Run, target: Any, written: list[tuple[str, int]], tmp_path: Path
    ) -> None:
        with pytest.raises(IncompleteReadError, match=rf"Window {window_id(3)}.*: \d of 10 planned offsets") as caught:
            run(3, limit=2, report=tmp_path / "report.json")
        assert ("is already published" in str(caught.value)) is not self.is_checked_first
        assert not (tmp_path / "report.json").exists()
        found = sorted(self.rows(spark, target))
        part = [row for row in found if row in rows_of(3, *range(10))]
        assert found == [*written, *part]
        assert len(part) == (0 if self.is_checked_first else 2), found
        assert run(3).records == 10
        self.assert_rows(spark, target, *written, *rows_of(3, *range(10)))


class SinkContract(Rerun, Incomplete):
    """The whole contract."""

    is_once: ClassVar[bool] = True
    """Whether a job may write to a target once, as a second write would replace the first."""
    is_side_by_side: ClassVar[bool] = True
    """Whether windows that are written at the same time succeed; otherwise one may have to be tried again."""

    def test_a_task_that_fails_half_way_leaves_the_target_as_it_was(
        self, spark: SparkSession, run: Run, target: Any, written: list[tuple[str, int]]
    ) -> None:
        with pytest.raises(Exception, match="half-way"):
            run(3, n=HALF_WAY)
        self.assert_rows(spark, target, *written)
        run(3, "value > 4")
        self.assert_rows(spark, target, *written, *rows_of(3, *range(5, 10)))

    def test_a_rerun_that_fails_half_way_leaves_what_it_would_replace(
        self, spark: SparkSession, run: Run, target: Any, written: list[tuple[str, int]]
    ) -> None:
        if self.is_replaced:
            with pytest.raises(Exception, match="half-way"):
                run(1, n=HALF_WAY)
        else:
            run(1, n=HALF_WAY)  # nothing is read
        self.assert_rows(spark, target, *written)

    def test_a_second_write_of_the_job_to_the_target_is_refused_and_ends_the_job_red(
        self, spark: SparkSession, run: Run, target: Any
    ) -> None:
        window = run(1, "value < 3")
        if not self.is_once:
            job(self.code, window, target, "value < 7")
            self.assert_rows(spark, target, *rows_of(1, *range(7)))
            return
        with pytest.raises(WriteOptionError, match="a second write would replace the first"):
            job(self.code, window, target, "value < 7")
        self.assert_rows(spark, target, *rows_of(1, *range(3)))
        with pytest.raises(
            PublishError, match="a second write would replace the first"
        ):  # when the job has passed over it
            window.finish()

    def test_what_kafka_has_no_more_fails_the_job_and_leaves_the_target_as_it_was(
        self, kafka: KafkaBroker, topic: str, ranges: Ranges, spark: SparkSession, run: Run, target: Any
    ) -> None:
        run(1, ranges=ranges)
        delete_records(kafka, topic, before=3)
        with pytest.raises(LostRecordsError, match=rf"Window {window_id(2)}: .*\[0, 6\) for topic partition {topic}-0"):
            run(2, ranges=ranges)
        self.assert_rows(spark, target, *rows_of(1, *range(10)))

    def test_windows_side_by_side_are_all_there(self, spark: SparkSession, run: Run, target: Any) -> None:
        failed = self._at_once(lambda seq: run(seq), [1, 2, 3])
        if self.is_side_by_side:
            assert failed == {}, failed
        for seq in failed:
            run(seq)
        self.assert_rows(spark, target, *(row for seq in (1, 2, 3) for row in rows_of(seq, *range(10))))

    def test_of_twins_one_copy_is_left(self, spark: SparkSession, run: Run, target: Any) -> None:
        run(2)
        self._expect_one_of_twins(spark, run, target, beside=rows_of(2, *range(10)))

    def _expect_one_of_twins(self, spark: SparkSession, run: Run, target: Any, beside: list[tuple[str, int]]) -> None:
        """Run window 1 twice at the same time, and check that the target has one copy of it, and the earlier rows."""
        conditions = ["value < 3", "value < 7"]
        failed = self._at_once(lambda number: run(1, conditions[number]), [0, 1])
        assert len(failed) < 2, failed
        found = sorted(self.rows(spark, target))
        copies = [rows_of(1, *range(3)), rows_of(1, *range(7))]
        assert [row for row in found if row[0] == window_id(1)] in copies
        assert [row for row in found if row[0] != window_id(1)] == beside

    def _at_once(self, act: Callable[[int], object], numbers: list[int]) -> dict[int, Exception]:
        """Do it for each number at the same time, and return those that failed."""
        together = threading.Barrier(len(numbers))
        failed: dict[int, Exception] = {}

        def one(number: int) -> None:
            together.wait(LONGEST)
            try:
                act(number)
            except Exception as exc:
                failed[number] = exc

        with ThreadPoolExecutor(len(numbers)) as pool:
            list(pool.map(one, numbers))
        return failed


class TableContract(SinkContract):
    """The whole contract, of a sink that creates its table: the window that does so does not look for an earlier run."""

    def test_of_twins_that_both_find_no_table_one_copy_is_left(
        self, spark: SparkSession, run: Run, target: Any
    ) -> None:
        self._expect_one_of_twins(spark, run, target, beside=[])
