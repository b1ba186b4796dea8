"""The window of a job: what it reads, whether it read all of it, and sinks that a rerun replaces."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_kafka_offsets.spark import guard
from airflow_kafka_offsets.spark.errors import HandoffError, NoWindowError, TargetError
from airflow_kafka_offsets.spark.handoff import CONF_WINDOW, CONF_WINDOW_FILE, Handoff
from airflow_kafka_offsets.spark.parent import die_with_jvm
from airflow_kafka_offsets.spark.reading import TIMEOUT, UNPUBLISHED, WindowReading
from airflow_kafka_offsets.spark.sinks import delta
from airflow_kafka_offsets.spark.sinks.files import LABEL_FILE, Files, publish, refuse_other, stage, staging
from airflow_kafka_offsets.spark.sinks.iceberg import IcebergTable
from airflow_kafka_offsets.spark.sinks.jdbc import JdbcTable, Stage
from airflow_kafka_offsets.spark.sinks.tables import WINDOW_ID, as_list, kept, refuse_options, refuse_window_id
from airflow_kafka_offsets.spark.source import is_classic, session_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_T = TypeVar("_T")

logger = logging.getLogger(__name__)

_PUBLISHED = ". What was read is in its place already: correct the job and run the window again, which replaces it"
_BY_FUNCTION = "what the function wrote until then is there until the window is run again"


def current_window(spark: SparkSession) -> KafkaWindow:
    """Return the window that this job was started with; called again in one session, the same object.

    A job that takes it, and ends without having read it or without a successful check, ends with exit code 1 (see `guard`).
    And it ends when its JVM is killed (see `parent`).

    Raises:
        NoWindowError: the job was not started with one.
        HandoffError: what the launcher handed over can't be used.
    """
    die_with_jvm()
    text = spark.conf.get(CONF_WINDOW, None) or _shipped(spark)
    if text is None:
        raise NoWindowError(
            f"This job was started without a window: neither {CONF_WINDOW} nor {CONF_WINDOW_FILE} is set in Spark's conf. "
            "Let KafkaSparkSubmitOperator start it; for a trial by hand: spark-submit --conf "
            f"{CONF_WINDOW}='<JSON as in airflow_kafka_offsets.spark.handoff>'"
        )
    window = _only(spark, Handoff.from_json(text))
    guard.arm(window)
    return window


_current: dict[tuple[str, str], KafkaWindow] = {}
_one_at_a_time = threading.Lock()


def _only(spark: SparkSession, handoff: Handoff) -> KafkaWindow:
    """Return the one object of a session and window id: it remembers what was written, for all functions of the job."""
    key = session_id(spark), handoff.window_id
    with _one_at_a_time:
        known = _current.get(key)
        if known is None or known._handoff != handoff:  # a session that is left open may be given the window again
            known = _current[key] = KafkaWindow(spark, handoff, guarded=True)
            if handoff.report and not Path(handoff.report).exists():  # what another session has read stands
                known._report()  # that the job knows of its window
    return known


class KafkaWindow(WindowReading):
    """Offset ranges that this job reads, once, and whose output a rerun of the window replaces.

    What it is and how it is read: see `WindowReading`. The methods that write take the frame of `read`, or what was made of
    it; each publishes only what is complete, or says so, and can be run again. What it writes is the window's whole output at that
    target, so a second write there (in the same words) raises `WriteOptionError`.
    """

    def write_parquet(self, df: DataFrame, path: str, partition_by: Sequence[str] = (), **options: Any) -> str:
        """Write to ``<path>/window_id=<id>/`` and return that path; a rerun replaces it, also by nothing.

        The files are written to a hidden directory beside it, the read is checked, and only then two renames put them in
        place: the old output out of the way, the new one in. On an error the old output stays.

        - HDFS and local file systems: a rename is atomic. When another try of the same window publishes at the same time,
          one of them wins as a whole. Between the two renames, for milliseconds, the window's directory is missing, and a
          reader that has listed the old files fails when it opens them, as with any overwrite. A process that is killed in
          between leaves it missing until the window is run again.
        - Object stores (s3a, ...): a rename copies file by file. Meanwhile a reader sees a part, an error leaves a part
          until the window is run again, and two tries that publish at the same moment may fail or mix. Tries that follow
          each other are safe. A table format is the better choice there.

        A killed process leaves a hidden ``.staging-...`` behind, which readers of `path` skip. It can be deleted; one whose
        name has ``-old-`` in it is the output that was there before.

        Args:
            df: made of the frame of `read`.
            path: directory of all windows, on any file system of Hadoop that has a FileContext.
            partition_by: columns for further directories below the window's.
            **options: for Spark's Parquet writer, e.g. ``compression="zstd"``.

        Raises:
            IncompleteReadError: not all planned offsets were read; nothing was published.
            DataLossError: Kafka no longer holds them; nothing was published.
            PublishError: other tries of the window were faster again and again.
            OtherWindowError: what is there is of another window of this id (another ledger's); nothing was published.
        """
        return self._write_files(df, path, "parquet", partition_by, options)

    def write_orc(self, df: DataFrame, path: str, partition_by: Sequence[str] = (), **options: Any) -> str:
        """Write ORC files, in the way of `write_parquet`."""
        return self._write_files(df, path, "orc", partition_by, options)

    def write_json(self, df: DataFrame, path: str, partition_by: Sequence[str] = (), **options: Any) -> str:
        """Write files with a JSON object a line, in the way of `write_parquet`."""
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

        - ``mode="replace"``: the rows get a column ``window_id``, and one commit puts them in the place of those that the
          window has there, also when there are none on either side. A table that is made here is partitioned by that column.
          In one that is not, windows that are written side by side make each other fail, and a rerun rewrites files of others.
        - ``mode="append"``: for a table without that column. The window is read and checked, and then appended, once for
          ever: another run of it writes nothing, and is told so by False. So a rerun can't correct what is there.

        Args:
            df: made of the frame of `read`.
            table: its name; with a ``/`` in it, its path. It is made when there is none.
            mode: ``replace`` or ``append``.
            partition_by: when the table is made: columns for further partitions.
            check_first: also with ``replace``, let Spark keep what it read, check that, and write it then; over Spark Connect
                it is always so. Otherwise the check comes after the commit: a job that fails it has written what it read, and
                the window stays as it is.
            **options: for Delta's writer, e.g. ``mergeSchema=True``.

        Returns:
            Whether it was written; False: an earlier run has appended the window.

        Raises:
            IncompleteReadError: not all planned offsets were read.
            DataLossError: Kafka no longer holds them; nothing was published.
            OtherWindowError: what is there is of another window of this id (another ledger's); nothing was published.
            WriteOptionError: what was asked for would double or lose rows.
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

        - Without `merge_on`, one snapshot puts them in the place of those that the window has there, also when there are none
          on either side. The table is partitioned by that column.
        - With `merge_on`, the table has one row a key: rows update those of the same key, whatever window brought them, and
          what this window brought last and brings no more is deleted. The window is read and checked first. What a rerun can't
          bring back is the value that its window had replaced: replay the window that brought that.

        Args:
            df: made of the frame of `read`.
            table: its name. It is made when there is none.
            merge_on: columns of the key.
            order_by: columns that say which of two rows with one key is newer, e.g. ``["timestamp", "offset"]``; the newer one
                stays, so that the replay of an old window changes nothing that is newer (of equally new ones, that of the
                group's later window stays). Without them the last run wins, and a
                key that a window has twice is an error.
            partition_by: when the table is made: columns or transforms for further partitions.
            check_first: also without `merge_on`, let Spark keep what it read, check that, and write it then; over Spark
                Connect it is always so. Otherwise the check comes after the snapshot: a job that fails it has written what it
                read, and the window stays as it is.
            **options: for Iceberg's writer; not with `merge_on`.

        Raises:
            IncompleteReadError: not all planned offsets were read.
            DataLossError: Kafka no longer holds them; nothing was published.
            OtherWindowError: what is there is of another window of this id (another ledger's); nothing was published.
            WriteOptionError: what was asked for would double or lose rows.
        """
        with self._progress.writing("write_iceberg", table=table):
            target = IcebergTable(self._spark, table, self._label)
            columns = as_list(partition_by)
            if not merge_on:
                refuse_options(
                    {"order_by": order_by} if order_by else {}, ["order_by"], "it orders rows with one key: merge_on"
                )
                self._write_table(df, lambda rows: target.replace(rows, columns, options), check_first)
                return
            refuse_options(options, list(options), "a MERGE takes no writer options; set the table's properties")
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
        """Put rows into a table of a database, under this window's id, and return how many; a rerun replaces them, also by nothing.

        Spark's tasks write to a staging table, the read is checked, the staged rows are counted, and only then one transaction
        on the driver deletes the window's rows and inserts the new ones. Two tries at one moment wait for each other: the
        later one replaces the earlier one as a whole. See docs/sinks/jdbc.md.

        Args:
            df: made of the frame of `read`; without a column ``window_id``.
            url: of the database, as Spark's JDBC source takes it.
            table: the table, with or without its schema; it has the frame's columns and ``window_id``.
            properties: Spark's JDBC options, such as user and password.
            create: make the table, or its column ``window_id``, if it is not there.

        Raises:
            TargetError: the table is not there, or not as it has to be.
            IncompleteReadError: not all planned offsets were read; nothing was published.
            DataLossError: Kafka no longer holds them; nothing was published.
            OtherWindowError: what is there is of another window of this id (another ledger's); it is there still.
            PublishError: the database refused, or rows were staged twice; what was there is there still.
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

        For a group whose ``output_tables`` name the table: the transaction that commits the window, in Airflow, replaces
        the window's rows by these. So the rows are there exactly when the window is committed. Works over Spark Connect.

        Args:
            df: made of the frame of `read`; without a column ``window_id``.
            url: of the ledger's database, as Spark's JDBC source takes it.
            table: the table, written as in ``output_tables``; it has the frame's columns and ``window_id``.
            properties: Spark's JDBC options, such as user and password.

        Raises:
            TargetError: the table is not there, or not as it has to be, or the group's ``output_tables`` do not name it, or it
                is not the ledger's database.
            IncompleteReadError, DataLossError, PublishError: as in `write_jdbc`; nothing is staged.
        """
        with self._progress.writing("stage_jdbc", url=url, table=table):
            refuse_window_id(df)
            published = self._handoff.output_tables
            if published is not None and table not in published:
                raise TargetError(
                    f"No one would publish what is staged for {table}: output_tables of the group {self.group} are "
                    f"{', '.join(published) or 'none'}. Write the name as it stands there; or add {table!r} to them in the DAG, and clear "
                    "the task"
                )
            sink = JdbcTable(self._spark, url, table, properties)
            sink.check_ledger()
            return self._write_jdbc(sink, df, lambda stage: sink.register(stage, self.id))

    def write(
        self, df: DataFrame, function: Callable[[DataFrame, KafkaWindow], _T], *, check_first: bool = False
    ) -> _T:
        """Let a function of yours write the frame anywhere, check the read in the same way, and return what it returns.

        It is called with the frame and this window, and again, with a window of the same id, for each retry and replay: make it
        replace what an earlier call wrote. Delete by window id first, in the same transaction; or write by a key that comes
        from the record, as its topic, partition and offset. An earlier call may have got to any point.

        Args:
            df: made of the frame of `read`.
            function: runs an action of the whole frame, once.
            check_first: let Spark keep what it read, check that, and call the function then; over Spark Connect it is always so.
                Needed where the function can't undo an incomplete write, uses the frame twice, or runs it by
                ``foreachPartition`` or ``rdd``, which no one counts.

        Raises:
            IncompleteReadError: not all planned offsets were read.
            DataLossError: Kafka no longer holds them.
        """
        with self._progress.writing("write", function=function):
            results: list[_T] = []
            self._write_table(df, lambda rows: results.append(function(rows, self)), check_first, _BY_FUNCTION)
            return results[0]

    def _write_files(
        self, df: DataFrame, path: str, file_format: str, partition_by: Sequence[str], options: dict[str, Any]
    ) -> str:
        with self._progress.writing(f"write_{file_format}", path=path):
            files = Files(self._spark)
            refuse_window_id(df)
            root = str(path).rstrip("/")
            target = f"{root}/{WINDOW_ID}={self.id}"
            refuse = partial(refuse_other, files, self._label, target)
            refuse(target)  # before hours of work, and again when it is replaced

            def put(staged: str) -> None:
                files.write(f"{staged}/{LABEL_FILE}", json.dumps(self._label.note))
                publish(files, staged, target, f"{directory}-old", refuse)

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
        # Of what a write to a table reads, Spark Connect 4.0 does not tell; of a count it does.
        if not check_first and is_classic(self._spark) and not self._may_be_short:
            self._write(lambda: write(df), failed=failed)
            return
        with kept(df) as rows:
            self._write(rows.count, lambda _: write(rows), failed=failed)

    def _append(self, target: delta.DeltaTable, df: DataFrame, columns: Sequence[str], options: dict[str, Any]) -> bool:
        target.create(df, columns)
        if target.has_appended():
            self._skip(target.name)
            return False
        with kept(df) as rows:
            written = self._write(rows.count, lambda _: target.append(rows, options))
        if not written:
            target.has_appended()  # refuses this window if another one of its id was faster while this one was read
            self._skip(target.name)
        return written

    def _skip(self, where: str) -> None:
        logger.warning("Window %s: %s has it from an earlier run, nothing was written", self.id, where)
        self._progress.to("skip")
        self._written = bool(self._written)
        self._report()

    def _write(
        self, run: Callable[[], _T], publish: Callable[[_T], object] | None = None, *, failed: str = UNPUBLISHED
    ) -> bool:
        """Take the way of every sink: run the write, check the read, publish, report.

        Args:
            run: reads the window to its end.
            publish: puts in place what `run` returned; returns False when that was there already. None: `run` has published.
            failed: what to say of the output when Kafka no longer holds all offsets.

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
    raise HandoffError(
        f"{CONF_WINDOW_FILE} names {name}, and there is no such file in {' or '.join(str(p.absolute()) for p in places)}: it "
        "has to be shipped with --files"
    )
