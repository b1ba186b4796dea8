"""The window of a job: what it reads, whether it read all of it, and sinks that a rerun replaces."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_kafka_offsets.spark import guard
from airflow_kafka_offsets.spark.counting import CountedRead, Counts, check_complete
from airflow_kafka_offsets.spark.errors import (
    DataLossError,
    HandoffError,
    IncompleteReadError,
    NoWindowError,
    UnfinishedReadError,
)
from airflow_kafka_offsets.spark.handoff import CONF_WINDOW, CONF_WINDOW_FILE, Handoff
from airflow_kafka_offsets.spark.options import offsets_json, reader_options, schema
from airflow_kafka_offsets.spark.sinks import delta
from airflow_kafka_offsets.spark.sinks.files import Files, is_classic, publish, stage, staging
from airflow_kafka_offsets.spark.sinks.iceberg import IcebergTable
from airflow_kafka_offsets.spark.sinks.tables import WINDOW_ID, as_list, kept, refuse_options, refuse_window_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_T = TypeVar("_T")

_log = logging.getLogger(__name__)

_TIMEOUT = 60.0
"""Seconds to wait for what Spark counted: its listeners lag behind by milliseconds, by seconds under load."""

_AT_THE_END = 15.0
"""Seconds to wait when the job is over: the count is there already, unless the frame was never run."""

_LAG = 2.0
"""Seconds to wait for a count that most likely is not coming: the window was written by an earlier run, and need not be read."""

# Py4J gives Java's exception as text, with all causes; its condition KAFKA_DATA_LOSS is not part of it in Spark 4.0.
_LOST = re.compile(r"KAFKA_DATA_LOSS|Some data may have been lost")
_UNPUBLISHED = "nothing was published"
_PUBLISHED = ". What was read is in its place already: correct the job and run the window again, which replaces it"
_BY_FUNCTION = "what the function wrote until then is there until the window is run again"

_MAX_LABEL = 100
"""A table's history gets the ranges of a window up to this many partitions; those of more are in the ledger."""

_LOST_RANGE = re.compile(r"Could not read records in offset \[\d+, \d+\) for topic partition \S+")


def current_window(spark: SparkSession) -> KafkaWindow:
    """Return the window that this job was started with.

    A job that takes it, and ends without having read it or without a successful check, ends with exit code 1 (see `guard`).

    Raises:
        NoWindowError: the job was not started with one.
        HandoffError: what the launcher handed over can't be used.
    """
    text = spark.conf.get(CONF_WINDOW, None) or _shipped(spark)
    if text is None:
        raise NoWindowError(
            f"This job was started without a window: neither {CONF_WINDOW} nor {CONF_WINDOW_FILE} is set in Spark's conf. "
            "Let KafkaSparkSubmitOperator start it; for a trial by hand: spark-submit --conf "
            f"{CONF_WINDOW}='<JSON as in airflow_kafka_offsets.spark.handoff>'"
        )
    window = KafkaWindow(spark, Handoff.from_json(text), guarded=True)
    if window.span:
        guard.expect(window.id)
    return window


class KafkaWindow:
    """Offset ranges that this job reads, once, and whose output a rerun of the window replaces.

    Args:
        spark: the session to read with.
        handoff: what the launcher handed over.
        guarded: end the process with exit code 1 when it ends without a successful check; False: the caller checks.

    Attributes:
        id: name of the window, e.g. ``lake.orders-000012``: key your output by it.
        group, seq, lane: the group that owns it, its number within the group, ``live`` or ``backfill``.
        until: its cut time.
        is_rerun: whether it was committed already, so that this run replaces an output.
        ranges: topic -> partition -> (start, end), ``start <= offset < end``; empty ranges are left out.
    """

    def __init__(self, spark: SparkSession, handoff: Handoff, *, guarded: bool = False) -> None:
        self.id = handoff.window_id
        self.group = handoff.group
        self.seq = handoff.seq
        self.lane = handoff.lane
        self.until = datetime.fromisoformat(handoff.until)
        self.is_rerun = handoff.is_rerun
        self.ranges = _without_empty(handoff)
        self._spark = spark
        self._handoff = handoff
        self._guarded = guarded
        self._planned = {
            (topic, partition): end - start
            for topic, partitions in self.ranges.items()
            for partition, (start, end) in partitions.items()
        }
        self._unchecked: CountedRead | None = None
        self._checked: Counts | None = None
        self._taken: set[int] = set()
        self._wrote = False
        self._skipped = False

    def __repr__(self) -> str:
        return f"<KafkaWindow {self.id}: at most {self.span} records of {len(self._planned)} partitions>"

    @property
    def span(self) -> int:
        """An upper bound on the records."""
        return sum(self._planned.values())

    @property
    def records(self) -> int | None:
        """How many records were read; None before a successful check."""
        return None if self._checked is None else self._checked.records

    @property
    def starting_offsets(self) -> str:
        """Spark's JSON of the first offsets, without the partitions that have nothing to read.

        Who takes these and the ends reads and checks by means of their own: `read` is not expected any more.
        """
        self._take(0)
        return offsets_json(self.ranges, 0)

    @property
    def ending_offsets(self) -> str:
        """Spark's JSON of the ends, without the partitions that have nothing to read; see `starting_offsets`."""
        self._take(1)
        return offsets_json(self.ranges, 1)

    def _take(self, bound: int) -> None:
        # Both: one alone is looked at for a log, and reads nothing.
        self._taken.add(bound)
        if self._is_read_elsewhere:
            guard.release(self.id)

    @property
    def _is_read_elsewhere(self) -> bool:
        return self._taken == {0, 1}

    @property
    def is_unchecked(self) -> bool:
        """Whether something was read, or has to be, and was not checked since."""
        return self._unchecked is not None and (not self._skipped or self._unchecked.was_run(_LAG))

    def read(self, **options: Any) -> DataFrame:
        """Return exactly the window's records, in the columns of Spark's Kafka source; nothing is read yet.

        What the *first* action reads is counted on the way, and must be all of it. To use the frame twice, persist() it:
        a second action reads Kafka again, and nobody counts that.

        Args:
            **options: for Spark's Kafka reader, e.g. ``includeHeaders=True``, ``minPartitions=64`` or
                ``**{"kafka.max.poll.records": 1000}``; they win over the group's.

        Raises:
            ReaderOptionError: an option would change what the window fixes.
            UnfinishedReadError: the frame of an earlier call was not checked yet.
        """
        if self.is_unchecked:
            raise UnfinishedReadError(
                f"Window {self.id}: read() was called before, and that frame was not checked. Write it, call check() (after "
                "write_parquet() there is no need to), then read again; or persist() the first frame and use it twice"
            )
        given = self._handoff.options
        chosen = reader_options(self.ranges, self._handoff.isolation_level, given, options)
        if not self._planned:
            return self._spark.createDataFrame([], schema(chosen))
        frame = self._spark.read.format("kafka").options(**chosen).load()
        self._unchecked = CountedRead(self._planned)
        if self._guarded:
            guard.arm(self)
        return self._unchecked.attach(frame)

    def check(self, timeout: float = _TIMEOUT) -> None:
        """Make sure that what was read is what was planned; call it after the write, which must have succeeded.

        With ``KafkaGroup(expect_gaps=True)`` records can't be counted against offsets. Then the check only makes sure that
        the frame was run, and that Kafka still held all offsets is Spark's word (``failOnDataLoss``).

        Args:
            timeout: seconds to wait for Spark's count.

        Raises:
            IncompleteReadError: an offset is missing, or nothing was read.
        """
        if self._skipped and self._checked is None and not self.is_unchecked:
            return  # an earlier run wrote it, so there was nothing to read
        self._finish(self._counts(timeout))

    def finish(self, timeout: float = _AT_THE_END) -> None:
        """Check what the job left unchecked, as whoever runs a job in its own process does after it.

        Args:
            timeout: seconds to wait for Spark's count.

        Raises:
            IncompleteReadError: the window was not read, by whatever means, or not all of it.
        """
        if self.is_unchecked or not self._is_read_elsewhere:
            self.check(timeout)

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
            WriteOptionError: what was asked for would double or lose rows.
        """
        delta.check_options(mode, options)
        target = delta.DeltaTable(self._spark, table, self._label())
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
                stays, so that the replay of an old window changes nothing that is newer. Without them the last run wins, and a
                key that a window has twice is an error.
            partition_by: when the table is made: columns or transforms for further partitions.
            check_first: also without `merge_on`, let Spark keep what it read, check that, and write it then; over Spark
                Connect it is always so. Otherwise the check comes after the snapshot: a job that fails it has written what it
                read, and the window stays as it is.
            **options: for Iceberg's writer; not with `merge_on`.

        Raises:
            IncompleteReadError: not all planned offsets were read.
            DataLossError: Kafka no longer holds them; nothing was published.
            WriteOptionError: what was asked for would double or lose rows.
        """
        target = IcebergTable(self._spark, table, self._label())
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
                ``foreachPartition`` or ``rdd``, which nobody counts.

        Raises:
            IncompleteReadError: not all planned offsets were read.
            DataLossError: Kafka no longer holds them.
        """
        results: list[_T] = []
        self._write_table(df, lambda rows: results.append(function(rows, self)), check_first, failed=_BY_FUNCTION)
        return results[0]

    def _write_files(
        self, df: DataFrame, path: str, file_format: str, partition_by: Sequence[str], options: dict[str, Any]
    ) -> str:
        files = Files(self._spark)
        refuse_window_id(df)
        root = str(path).rstrip("/")
        target = f"{root}/{WINDOW_ID}={self.id}"
        with staging(files, root, self.id) as directory:
            self._write(
                lambda: stage(df, directory, file_format, as_list(partition_by), options),
                lambda staged: publish(files, staged, target, f"{directory}-old"),
            )
        return target

    def _write_table(
        self, df: DataFrame, write: Callable[[DataFrame], None], check_first: bool, failed: str = _UNPUBLISHED
    ) -> None:
        # Of what a write to a table reads, Spark Connect 4.0 does not tell; of a count it does.
        if not check_first and is_classic(self._spark):
            self._write(lambda: write(df), failed=failed)
            return
        with kept(df) as rows:
            self._write(rows.count, lambda _: write(rows))

    def _append(self, target: delta.DeltaTable, df: DataFrame, columns: Sequence[str], options: dict[str, Any]) -> bool:
        target.create(df, columns)
        if target.has_appended():
            self._skip(target.name)
            return False
        with kept(df) as rows:
            written = self._write(rows.count, lambda _: target.append(rows, options))
        if not written:
            self._skip(target.name)
        return written

    def _skip(self, where: str) -> None:
        _log.warning("Window %s: %s has it from an earlier run, nothing was written", self.id, where)
        self._skipped = True
        self._report()

    def _write(
        self, run: Callable[[], _T], publish: Callable[[_T], object] | None = None, *, failed: str = _UNPUBLISHED
    ) -> bool:
        """Take the way of every sink: run the write, check the read, publish, report.

        Args:
            run: reads the window to its end.
            publish: puts in place what `run` returned; returns False when that was there already. None: `run` has published.
            failed: what to say of the output when Kafka no longer holds all offsets.

        Returns:
            Whether it was written.
        """
        with self._naming_loss(failed):
            staged = run()
        counts = self._counts(_TIMEOUT, "" if publish else _PUBLISHED)
        written = publish is None or publish(staged) is not False
        self._wrote = self._wrote or written
        self._finish(counts)
        return written

    @contextlib.contextmanager
    def _naming_loss(self, failed: str) -> Iterator[None]:
        try:
            yield
        except Exception as exc:
            if _LOST.search(str(exc)) is None:
                raise
            raise DataLossError(
                f"Window {self.id}: Kafka no longer holds all of its offsets, {failed} ({_first_lost(exc)}). "
                "Retention removed them, or the topic was made anew, after the window was planned"
            ) from exc

    def _label(self) -> dict[str, Any]:
        """Return what a table's history says of this window."""
        label = {"window_id": self.id, "group": self.group, "seq": self.seq}
        return {**label, "ranges": json.dumps(self.ranges)} if len(self._planned) <= _MAX_LABEL else label

    def _counts(self, timeout: float, hint: str = "") -> Counts:
        try:
            if self._unchecked is None:
                return self._counts_so_far()
            counts = self._unchecked.counts(timeout)
            if not self._handoff.expect_gaps:
                check_complete(counts)
        except IncompleteReadError as exc:
            raise IncompleteReadError(f"Window {self.id}: {exc}{hint}", exc.missing) from None
        return counts

    def _counts_so_far(self) -> Counts:
        if self._checked is not None:
            return self._checked
        if self._planned:
            raise IncompleteReadError(
                "nothing was read: take the records from read() of this window; a job that reads by other means takes its "
                "starting_offsets and ending_offsets"
            )
        return Counts({}, {})

    def _finish(self, counts: Counts) -> None:
        self._unchecked = None
        self._checked = counts
        self._report()

    def _report(self) -> None:
        if self._handoff.report:
            # Of a write by other means, which check() stands for, we know nothing.
            written = True if self._wrote else False if self._skipped else None
            _write_report(self._handoff.report, self.id, self._checked, written)


def _shipped(spark: SparkSession) -> str | None:
    name = spark.conf.get(CONF_WINDOW_FILE, None)
    if name is None:
        return None
    places = [Path(name)]  # YARN's cluster mode puts shipped files into the working directory
    if hasattr(spark, "sparkContext"):
        from pyspark import SparkFiles

        places.insert(0, Path(SparkFiles.get(name)))
    for place in places:
        if place.is_file():
            return place.read_text(encoding="utf-8")
    raise HandoffError(
        f"{CONF_WINDOW_FILE} names {name}, and there is no such file in {' or '.join(str(p.absolute()) for p in places)}: it "
        "has to be shipped with --files"
    )


def _first_lost(exc: Exception) -> str:
    found = _LOST_RANGE.search(str(exc))
    return found[0] if found else "Spark does not say which"


def _without_empty(handoff: Handoff) -> dict[str, dict[int, tuple[int, int]]]:
    ranges = {
        topic: {int(p): (start, end) for p, (start, end) in partitions.items() if start < end}
        for topic, partitions in sorted(handoff.topics.items())
    }
    return {topic: dict(sorted(partitions.items())) for topic, partitions in ranges.items() if partitions}


def _write_report(path: str, window_id: str, counts: Counts | None, written: bool | None) -> None:
    report = {
        "window_id": window_id,
        "records": counts.records if counts else None,
        "counts": _by_topic(counts) if counts else {},
        "checked": True,
        "written": written,
    }
    draft = f"{path}.{os.getpid()}"
    Path(draft).write_text(json.dumps(report), encoding="utf-8")
    os.replace(draft, path)


def _by_topic(counts: Counts) -> dict[str, dict[str, int]]:
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), read in counts.read.items():
        if topic is not None and partition is not None:
            by_topic.setdefault(topic, {})[str(partition)] = min(read, counts.planned[(topic, partition)])
    return by_topic
