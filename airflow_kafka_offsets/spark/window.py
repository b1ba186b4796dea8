"""The window of a job, with its sinks, whose output a rerun replaces."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_kafka_offsets.spark import exit_code
from airflow_kafka_offsets.spark.errors import HandoffError, NoWindowError, TargetError, WriteOptionError
from airflow_kafka_offsets.spark.handoff import CONF_WINDOW, CONF_WINDOW_FILE, CONF_WINDOW_URI, Handoff
from airflow_kafka_offsets.spark.parent import die_with_jvm
from airflow_kafka_offsets.spark.reading import TIMEOUT, UNPUBLISHED, WindowReading
from airflow_kafka_offsets.spark.reports import read_document
from airflow_kafka_offsets.spark.sinks import delta
from airflow_kafka_offsets.spark.sinks.files import (
    ANY_JOB,
    LABEL_FILE,
    Files,
    discard_old,
    ledger_of,
    mark,
    publish,
    refuse_other,
    stage,
    staging,
)
from airflow_kafka_offsets.spark.sinks.iceberg import IcebergTable
from airflow_kafka_offsets.spark.sinks.jdbc import JdbcTable, Stage
from airflow_kafka_offsets.spark.sinks.tables import WINDOW_ID, as_list, kept, refuse_window_id
from airflow_kafka_offsets.spark.source import is_classic, is_stopped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_kafka_offsets.spark.reading import Side

_T = TypeVar("_T")

logger = logging.getLogger(__name__)

_PUBLISHED = " (its output is already published, and a rerun replaces it)"
_BY_FUNCTION = "the function's output stays until a rerun"


def current_window(spark: SparkSession, uri: str | None = None) -> KafkaWindow:
    """Return the window that this job was started with; a second call returns the same object, in any session of the job.

    A job that takes it, and does not read it or has no successful check, ends with exit code 1. The job also ends when its JVM is
    killed.

    Args:
        spark: the session.
        uri: the folder that `PlanWindowOperator(exchange=...)` returned as ``exchange``, for a job of another launcher. None if
            Spark's conf has the window, or names the file or the folder.

    Raises:
        NoWindowError: the job was not started with one.
        HandoffError: the launcher's handoff can't be used.
    """
    die_with_jvm()
    text = _document(spark, uri)
    if text is None:
        raise NoWindowError(
            f"{CONF_WINDOW} is not set. Start the job by KafkaSparkSubmitOperator, or pass the 'exchange' of the plan "
            "task:\n    current_window(spark, uri)"
        )
    window = _window(spark, Handoff.from_json(text))
    exit_code.arm(window)
    return window


_current: dict[str, KafkaWindow] = {}
_taking = threading.Lock()


def _window(spark: SparkSession, handoff: Handoff) -> KafkaWindow:
    """Return the one object of a window in all sessions of the job: it remembers the writes of all functions."""
    with _taking:
        known = _current.get(handoff.window_id)
        is_same = known is not None and known._handoff == handoff  # a process that stays open may get the window again
        if known is not None and is_same and not is_stopped(known._spark):
            return known
        window = KafkaWindow(spark, handoff, guarded=True)
        if known is not None and is_same:
            window._progress.remember(known._progress)
        elif known is not None:
            known.release()
        if not window._reports.is_from_another_session:
            window._report()  # so that the launcher sees that the job has its window
        _current[handoff.window_id] = window
    return window


class KafkaWindow(WindowReading):
    """The window of this job: offset ranges that the job reads once. A rerun of the window replaces its output.

    `WindowReading` has the attributes of a window and the methods that read it. The methods that write take the frame of `read`, or a frame made
    of it. Each publishes only what is complete, unless its docs say otherwise, and can be run again. It writes the window's whole
    output at its target, so a second write to the same target raises `WriteOptionError`.
    """

    def write_parquet(self, df: DataFrame, path: str, partition_by: Sequence[str] = (), **options: Any) -> str:
        """Write to ``<path>/window_id=<id>/`` and return that path; a rerun replaces it, even if the new output is empty.

        Spark writes the files to a hidden directory beside it. After the check of the read, one rename moves the old output away,
        and one moves the new output in. After an error the old output stays.

        - HDFS and local file systems: a rename is atomic. If another try of the same window publishes at the same time,
          one of them wins as a whole. Between the two renames, for milliseconds, the window's directory is missing, and a
          reader that has listed the old files fails when it opens them, as with any overwrite. If the process is killed
          between them, the directory is missing until the window is run again.
        - Object stores (s3a, ...): a rename copies file by file. Meanwhile a reader sees a part, an error leaves a part
          until the window is run again, and two tries that publish at the same moment may fail or mix. Tries that follow
          each other are safe. A table format is the better choice there.

        A killed process leaves a hidden ``.staging-...`` directory, which readers of `path` skip. You can delete it. If its name
        contains ``-old-``, it is the old output, which the next success of the window removes.

        Args:
            df: the frame of `read`, or a frame made of it.
            path: directory of all windows, on any file system of Hadoop that has a FileContext.
            partition_by: columns for further directories below the window's.
            **options: for Spark's Parquet writer, e.g. ``compression="zstd"``.

        Raises:
            IncompleteReadError: not all planned offsets were read; nothing was published.
            LostRecordsError: Kafka no longer holds them; nothing was published.
            PublishError: other tries of the window were faster each time, or the old output could not be restored.
            OtherWindowError: another window of this id, or one of another ledger, wrote the output there; nothing was published.
        """
        return self._write_files(df, path, "parquet", partition_by, options)

    def write_orc(self, df: DataFrame, path: str, partition_by: Sequence[str] = (), **options: Any) -> str:
        """Write ORC files, like `write_parquet`."""
        return self._write_files(df, path, "orc", partition_by, options)

    def write_json(self, df: DataFrame, path: str, partition_by: Sequence[str] = (), **options: Any) -> str:
        """Write files with a JSON object in each line, like `write_parquet`."""
        return self._write_files(df, path, "json", partition_by, options)

    def write_delta(
        self,
        df: DataFrame,
        table: str,
        *,
        mode: str = delta.REPLACE,
        partition_by: Sequence[str] = (),
        check_first: bool = False,
        **options: Any,
    ) -> bool:
        """Write to a Delta table; the session needs Delta's jars, its extension and its catalog.

        - ``mode="replace"``: the rows get a column ``window_id``, and one commit replaces the window's old rows by them, even if
          there are no new rows. If the table does not exist, it is created with partitions by that column. Without these partitions,
          windows that are written at the same time make each other fail, and a rerun rewrites files of other windows.
        - ``mode="append"``: for a table without that column. The window is read, checked, and appended once. A later run of it
          writes nothing and returns False, so it can't correct the rows.

        Args:
            df: the frame of `read`, or a frame made of it.
            table: its name; with a ``/``, it is a path. The table is created if it does not exist.
            mode: ``replace`` or ``append``.
            partition_by: columns for further partitions, if the table is created.
            check_first: whether Spark caches the records, with ``replace``, too, and writes the rows only after the check. Over
                Spark Connect this is always so. Otherwise the check comes after the commit. If it fails, the rows are written,
                and the window stays open.
            **options: for Delta's writer, e.g. ``mergeSchema=True``.

        Returns:
            Whether it was written. If not, an earlier run has appended the window.

        Raises:
            IncompleteReadError: not all planned offsets were read.
            LostRecordsError: Kafka no longer holds them; nothing was published.
            OtherWindowError: another window of this id, or one of another ledger, wrote the rows there; nothing was published.
            WriteOptionError: the options would double or lose rows.
        """
        with self._progress.writing("write_delta", table=table):
            delta.check_options(mode, options)
            target = delta.DeltaTable(self._spark, table, self._label)
            columns = as_list(partition_by)
            if mode == delta.APPEND:
                return self._append(target, df, columns, options)
            self._write_table(df, lambda rows: target.replace(rows, columns, options), check_first)
            return True

    def write_iceberg(
        self,
        df: DataFrame,
        table: str,
        *,
        merge_on: Sequence[str] = (),
        order_by: Sequence[str] = (),
        partition_by: Sequence[Any] = (),
        check_first: bool = False,
        **options: Any,
    ) -> None:
        """Write to an Iceberg table; the session needs Iceberg's jar and a catalog, for `merge_on` its extensions too.

        The rows get a column ``window_id``.

        - Without `merge_on`, one snapshot replaces the window's old rows by them, even if there are no new rows. The table is
          partitioned by that column.
        - With `merge_on`, the table has one row for each key. The window is read and checked. Then its rows replace the rows
          with the same key, from any window. Rows that an earlier run of this window wrote are deleted if their key no longer
          occurs in it. The older values that those rows had replaced do not come back: replay the window that wrote them.

        Args:
            df: the frame of `read`, or a frame made of it.
            table: its name. The table is created if it does not exist.
            merge_on: columns of the key.
            order_by: columns that decide which of two rows with one key is newer, e.g. ``["timestamp", "offset"]``. The newer row
                stays, so the replay of an old window changes nothing that is newer. If two are equal, that of the group's later
                window stays. Without `order_by` the last run wins, and a key that a window has twice is an error.
            partition_by: columns or transforms for further partitions, if the table is created.
            check_first: as in `write_delta`; with `merge_on`, the check always comes first.
            **options: for Iceberg's writer; not with `merge_on`.

        Raises:
            IncompleteReadError, LostRecordsError, OtherWindowError, WriteOptionError: as in `write_delta`.
        """
        with self._progress.writing("write_iceberg", table=table):
            target = IcebergTable(self._spark, table, self._label)
            columns = as_list(partition_by)
            if not merge_on:
                if order_by:
                    raise WriteOptionError("order_by requires merge_on")
                self._write_table(df, lambda rows: target.replace(rows, columns, options), check_first)
                return
            if options:
                raise WriteOptionError(f"With merge_on, set table properties instead of {', '.join(options)}")
            keys, order = as_list(merge_on), as_list(order_by)
            self._write_table(df, lambda rows: target.merge(rows, keys, order, columns), check_first=True)

    def write_jdbc(
        self,
        df: DataFrame,
        url: str,
        table: str,
        properties: Mapping[str, Any] | None = None,
        *,
        create: bool = False,
    ) -> int:
        """Write rows to a table of a database, under this window's id, and return how many; a rerun replaces them.

        Spark's tasks write to a staging table, the read is checked, and the staged rows are counted. Then one transaction on the
        driver deletes the window's old rows and inserts the new ones. Two tries at one moment wait for each other: the later one
        replaces the earlier one as a whole. See docs/sinks/jdbc.md.

        Args:
            df: the frame of `read`, or a frame made of it, without a column ``window_id``.
            url: the database, as Spark's JDBC source accepts it.
            table: the table, with or without its schema; it has the frame's columns and ``window_id``.
            properties: Spark's JDBC options, such as user and password.
            create: whether to create the table, or its column ``window_id``, if it does not exist.

        Raises:
            TargetError: the table does not exist, or has the wrong form.
            IncompleteReadError: not all planned offsets were read; nothing was published.
            LostRecordsError: Kafka no longer holds them; nothing was published.
            OtherWindowError: another window of this id, or one of another ledger, wrote the rows there; they are unchanged.
            PublishError: the database refused, or rows were staged twice; the old rows are unchanged.
        """
        with self._progress.writing("write_jdbc", url=url, table=table):
            refuse_window_id(df)
            sink = JdbcTable(self._spark, url, table, properties)
            sink.need_jvm()
            if create:
                sink.create(df)
            return self._write_jdbc(sink, df, lambda stage: sink.publish(stage, self._label))

    def stage_jdbc(self, df: DataFrame, url: str, table: str, properties: Mapping[str, Any] | None = None) -> int:
        """Stage rows for a table in the ledger's own database, and return how many: the commit of the window publishes them.

        The group's ``output_tables`` must name the table. In Airflow, the transaction that commits the window replaces its old
        rows by these. So the rows are published exactly when the window is committed. This also works over Spark Connect.

        Args:
            df: the frame of `read`, or a frame made of it, without a column ``window_id``.
            url: the ledger's database, as Spark's JDBC source accepts it.
            table: the table, written as in ``output_tables``; it has the frame's columns and ``window_id``.
            properties: Spark's JDBC options, such as user and password.

        Raises:
            TargetError: the table does not exist, has the wrong form, or is not in ``output_tables``; or the database is not the
                ledger's.
            IncompleteReadError, LostRecordsError, PublishError: as in `write_jdbc`; nothing is staged.
        """
        with self._progress.writing("stage_jdbc", url=url, table=table):
            refuse_window_id(df)
            published = self._handoff.output_tables
            if published is not None and table not in published:
                raise TargetError(
                    f"Nothing would publish the rows staged for {table}: output_tables of group {self.group} "
                    f"are {', '.join(published) or 'none'}. Correct the name or add it"
                )
            sink = JdbcTable(self._spark, url, table, properties)
            sink.check_ledger()
            return self._write_jdbc(sink, df, lambda stage: sink.register(stage, self.id))

    def write(
        self, df: DataFrame, function: Callable[[DataFrame, KafkaWindow], _T], *, check_first: bool = False
    ) -> _T:
        """Let your function write the frame anywhere, check the read in the same way, and return what the function returns.

        The function gets the frame and this window. Each retry and replay calls it again, with a window of the same id: let it
        replace what an earlier call wrote, even if that call stopped half-way. Delete by window id first, in the same
        transaction; or write by a key that comes from the record, such as its topic, partition and offset.

        Args:
            df: the frame of `read`, or a frame made of it.
            function: it must run one action over the whole frame, and no second one unless `check_first` is set.
            check_first: whether Spark caches the records, and the function is called only after the check. Over Spark Connect
                this is always so. Set it if the function can't undo an incomplete write, uses the frame twice, or uses
                ``foreachPartition`` or ``rdd``, which Spark does not count.

        Raises:
            IncompleteReadError: not all planned offsets were read.
            LostRecordsError: Kafka no longer holds them.
        """
        with self._progress.writing("write", function=function):
            results: list[_T] = []
            self._write_table(df, lambda rows: results.append(function(rows, self)), check_first, _BY_FUNCTION)
            return results[0]

    def _put_aside(self, bad: DataFrame, side: Side) -> None:
        if callable(side):
            self.write(bad, side)
        else:
            self.write_parquet(bad, side)

    def _write_files(
        self, df: DataFrame, path: str, file_format: str, partition_by: Sequence[str], options: dict[str, Any]
    ) -> str:
        with self._progress.writing(f"write_{file_format}", path=path):
            files = Files(self._spark)
            refuse_window_id(df)
            root = str(path).rstrip("/")
            target = f"{root}/{WINDOW_ID}={self.id}"
            refuse = partial(refuse_other, files, self._label, target)
            # Before hours of work, and again when it is replaced.
            self._label.must_mark(root, ledger_of(files, self._label, root))
            refuse(target)

            def put(staged: str) -> None:
                mark(files, self._label, root)
                files.write(f"{staged}/{LABEL_FILE}", json.dumps(self._label.note))
                left = files.find(root, f".staging-{self.id}-{ANY_JOB}-old-*")
                publish(files, staged, target, f"{directory}-old", refuse)
                discard_old(files, left, refuse)

            with staging(files, root, self.id) as directory:
                self._write(lambda: stage(df, directory, file_format, as_list(partition_by), options), put)
            return target

    def _write_jdbc(self, sink: JdbcTable, df: DataFrame, publish: Callable[[Stage], None]) -> int:
        filled: list[Stage] = []
        with sink.staging(df.columns, self.id) as name:
            self._write(
                lambda: filled.append(sink.fill(name, df, TIMEOUT)),
                lambda _: publish(filled[0]),
            )
        return filled[0].rows

    def _write_table(
        self, df: DataFrame, write: Callable[[DataFrame], None], check_first: bool, failed: str = UNPUBLISHED
    ) -> None:
        # Spark Connect 4.0 does not report what a write to a table reads. It reports what a count reads.
        if not check_first and is_classic(self._spark) and not self._may_be_short:
            self._write(lambda: write(df), failed=failed)
            return
        with kept(df) as rows:
            self._write(rows.count, lambda _: write(rows), failed=failed)

    def _append(self, target: delta.DeltaTable, df: DataFrame, columns: Sequence[str], options: dict[str, Any]) -> bool:
        is_new = target.create(df, columns)
        target.refuse_replaced()
        is_there = not is_new and target.has_appended()
        if is_there and not self._reports.must_count:
            self._skip(target.name)
            return False
        with kept(df) as rows:
            written = self._write(rows.count, lambda _: not is_there and target.append(rows, options))
        if not written:
            target.has_appended()  # it raises if another window of this id was appended in the meantime
            self._skip(target.name)
        return written

    def _skip(self, where: str) -> None:
        logger.warning("Window %s: already in %s, nothing was written", self.id, where)
        self._progress.to("skip")
        self._written = bool(self._written)
        self._report()

    def _write(
        self, run: Callable[[], _T], publish: Callable[[_T], object] | None = None, *, failed: str = UNPUBLISHED
    ) -> bool:
        """Run the write, check the read, publish, and report: every sink does this.

        Args:
            run: reads the window to its end.
            publish: publishes the result of `run`, and returns False if an earlier run has published it. None if `run` publishes.
            failed: the state of the output for a message, if Kafka no longer holds all offsets.

        Returns:
            Whether it was written.
        """
        with self._naming_loss(UNPUBLISHED if publish else failed):
            staged = run()
        counts = self._counts(TIMEOUT, "" if publish else _PUBLISHED)
        with self._naming_loss(failed):
            written = publish is None or publish(staged) is not False
        self._written = written or self._written
        self._finish(counts)
        return written


def _document(spark: SparkSession, uri: str | None) -> str | None:
    """Return the handoff. The job's address comes first: a notebook's session may still have older settings."""
    if uri is None:
        text: str | None = spark.conf.get(CONF_WINDOW, None) or _shipped(spark)
        if text is not None:
            return text
        uri = spark.conf.get(CONF_WINDOW_URI, None)
    return read_document(spark, uri) if uri else None


def _shipped(spark: SparkSession) -> str | None:
    name = spark.conf.get(CONF_WINDOW_FILE, None)
    if name is None:
        return None
    places = [Path(name)]  # YARN's cluster mode puts shipped files into the working directory
    if is_classic(spark):
        from pyspark import SparkFiles

        places.insert(0, Path(SparkFiles.get(name)))
    for place in places:
        if place.is_file():
            return place.read_text(encoding="utf-8")
    raise HandoffError(f"{CONF_WINDOW_FILE}: there is no {places[0].absolute()}. Ship it with --files")
