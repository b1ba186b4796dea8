"""Reads a window, checks that all of it was read, and reports to the launcher."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.spark import exit_code, values
from airflow_kafka_offsets.spark.counting import CountedRead, Counts, check_counts, recounted
from airflow_kafka_offsets.spark.errors import (
    BAD_RECORD,
    DATA_LOSS,
    WITHOUT_BAD,
    BadRecordError,
    DecodeError,
    IncompleteReadError,
    LostRecordsError,
    PublishError,
)
from airflow_kafka_offsets.spark.handoff import Handoff
from airflow_kafka_offsets.spark.label import label_of
from airflow_kafka_offsets.spark.observing import Observed
from airflow_kafka_offsets.spark.options import (
    is_split_by_user,
    layout,
    offsets_json,
    reader_options,
    schema,
    source_version,
)
from airflow_kafka_offsets.spark.progress import Progress
from airflow_kafka_offsets.spark.reports import Reports
from airflow_kafka_offsets.spark.shared import counted, error_in_short
from airflow_kafka_offsets.spark.sinks.tables import Kept
from airflow_kafka_offsets.spark.source import STOPPED, empty_frame, is_classic, is_stopped, load, parallelism

if TYPE_CHECKING:
    from pyspark import StorageLevel
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    Side = str | Callable[[DataFrame, Any], object]

logger = logging.getLogger(__name__)

TIMEOUT = 60.0
"""Seconds to wait for Spark's count. Its listeners take milliseconds, under load seconds."""

_AT_THE_END = 15.0
"""Seconds to wait at the end of the job: only a frame that was never run has no count by then."""

_AFTER_THE_COUNT = 5.0
"""Seconds to wait for the count of bad records, which Spark reports together with the others."""

_AFTER_A_SKIP = 5.0
"""Seconds to wait for the count of a frame that need not run, because its output exists."""

UNPUBLISHED = "nothing was published"

_LOST_RANGE = re.compile(
    r"Could not read records in offset \[\d+, \d+\) for topic partition \S+"
    r"|Cannot fetch [^(]+\(GroupId: [^,]+, TopicPartition: [^)]+\)"  # Spark 3
)


class WindowReading:
    """Offset ranges that a job reads, once.

    Args:
        spark: the session to read with.
        handoff: the launcher's handoff.
        guarded: whether the process ends with exit code 1 if the check is missing or fails. If not, the caller checks.

    Attributes:
        id: name of the window, e.g. ``lake.orders-000012``. Write your output so that a later run of this id replaces it.
        group: the group that owns it.
        seq: its number within the group.
        lane: ``live`` or ``backfill``.
        planned_until: the time that decides to which time span it belongs.
        is_rerun: whether it was committed already, so that this run replaces an output.
        ranges: topic -> partition -> (start, end), ``start <= offset < end``; empty ranges are left out.
        digest: differs if `ranges`, `planned_until` or the topics' ids differ: a window of another ledger can have this id. A function of
            yours that replaces by `id` may keep the digest beside the output, and refuse to replace output with another digest.
    """

    def __init__(self, spark: SparkSession, handoff: Handoff, *, guarded: bool = False) -> None:
        self.id = handoff.window_id
        self.group = handoff.group
        self.seq = handoff.seq
        self.lane = handoff.lane
        self.planned_until = datetime.fromisoformat(handoff.planned_until)
        self.is_rerun = handoff.is_rerun
        self.ranges = handoff.ranges
        self._label = label_of(handoff)
        self.digest = self._label.digest
        self._spark = spark
        self._handoff = handoff
        self._guarded = guarded
        self._flat = {
            (topic, partition): ends
            for topic, partitions in self.ranges.items()
            for partition, ends in partitions.items()
        }
        self._planned = {tp: end - start for tp, (start, end) in self._flat.items()}
        self._unchecked: CountedRead | None = None
        self._options: dict[str, Any] = {}
        self._checked: Counts | None = None
        self._bad_count: Observed | None = None
        self._bad: int | None = None
        self._kept: list[Kept] = []
        self._taken: set[int] = set()
        self._progress = Progress(self.id)
        self._reports = Reports(spark, handoff)
        self._written: bool | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}: at most {counted(self.span, 'record')} of {counted(len(self._planned), 'partition')}>"

    @property
    def span(self) -> int:
        """An upper bound on the records."""
        return sum(self._planned.values())

    @property
    def records(self) -> int | None:
        """The records that were read; None before a successful check."""
        return None if self._checked is None else self._checked.records

    @property
    def gaps(self) -> int | None:
        """The planned offsets without a record: None before a successful check, 0 without ``expect_gaps``."""
        return None if self._checked is None else self._checked.gaps

    @property
    def bad(self) -> int | None:
        """The records that could not be decoded; None if they were not counted, or if such a record ends the job."""
        return self._bad

    @property
    def starting_offsets(self) -> str:
        """Spark's JSON of the first offsets, without the partitions that have nothing to read.

        A job that takes these and `ending_offsets` reads and checks by its own means, without `read`.
        """
        self._take(0)
        return offsets_json(self.ranges, 0)

    @property
    def ending_offsets(self) -> str:
        """Spark's JSON of the ends, without the partitions that have nothing to read; see `starting_offsets`."""
        self._take(1)
        return offsets_json(self.ranges, 1)

    def _take(self, bound: int) -> None:
        # A job may log one bound. It needs both to read.
        self._taken.add(bound)
        if len(self._taken) == 2:
            self._progress.to("take")

    @property
    def _may_be_short(self) -> bool:
        """Whether an earlier run may have read more, which only the count shows: then the check comes before any publication."""
        return self._handoff.expect_gaps and bool(self._handoff.at_least)

    @property
    def is_unread(self) -> bool:
        """Whether the job did not begin to read its records."""
        # An earlier run's output may stay. But a job that never read may have written something else.
        is_skipped = self._progress.read == "skipped" and not self._unchecked and not self._checked
        return bool(self._planned) and (self._progress.read == "unread" or is_skipped)

    @property
    def is_unchecked(self) -> bool:
        """Whether a read was not checked."""
        self._note_run()
        return self._progress.read == "read"

    @property
    def is_unfinished(self) -> bool:
        """Whether a read was not checked, or a write failed."""
        return bool(self._progress.failures) or self.is_unchecked

    def read(
        self,
        *,
        value: str | None = None,
        key: str | None = None,
        schema: str | StructType | None = None,
        key_schema: str | StructType | None = None,
        on_bad: str = values.FAIL,
        side: str | Callable[[DataFrame, Any], object] | None = None,
        **options: Any,
    ) -> DataFrame:
        """Return exactly the window's records, in the columns of Spark's Kafka source; without a `side`, nothing is read yet.

        The *first* action counts what it reads, and must read the whole frame. A second action reads Kafka again, without a
        count. For several outputs, or to look at the records first, use `persisted`.

        Several tasks share a large range, so a partition keeps its order only within a task. One task reads several small ranges.
        If you set ``minPartitions`` or ``maxRecordsPerPartition``, Spark alone decides (``minPartitions=1``: one task for each
        partition).

        Args:
            value: decodes the column ``value``. ``"avro"``: by the header of a schema registry, with the schemas that were frozen
                with the window (``KafkaGroup(registry=...)``). ``"json"``: with or without such a header. ``"string"``: UTF-8. With
                None it stays binary. NULL stays NULL.
            key: the same for the column ``key``.
            schema: to read the value with. For Avro, a schema as JSON text, or None for the latest schema that was frozen for each name of a
                record. With several such names, ``value`` has a field for each. For JSON, the columns: DDL or a `StructType`.
            key_schema: the same for the key.
            on_bad: what becomes of a record that can't be decoded. ``"fail"``: it ends the job, with its topic, partition and
                offset. ``"null"``: its key or value is NULL, and `bad` counts it. ``"side"``: it is not in the frame, and is written
                to `side`; `bad` counts it.
            side: the target of records that can't be decoded: a path as for `write_parquet`, or a function as for `write`. They have the
                columns topic, partition, offset, timestamp, ``reason``, and the bytes of ``key`` and ``value``. A rerun replaces the output
                of an earlier run. With it, this call reads Kafka once, checks the read, and writes `side`, before it returns. So any
                number of actions on the frame may follow. Spark keeps the records until `release`, which the end of the job calls.
            **options: for Spark's Kafka reader, e.g. ``includeHeaders=True``, ``minPartitions=64`` or
                ``**{"kafka.max.poll.records": 1000}``. They override the group's. ``sourceVersion`` sets which of Spark's two
                Kafka sources reads: 2 (the default), or 1, Spark's own default.

        Raises:
            ReaderOptionError: an option would change what the window fixes.
            DecodeError: keys or values can't be decoded in this way.
            UnfinishedReadError: the frame of an earlier call is not checked yet.
            IncompleteReadError, LostRecordsError: with `side`, as in `persisted`; nothing was written there.
        """
        decoding = self._decoding(value, key, schema, key_schema, on_bad, side)
        if side is not None:
            return self._read_beside(side, decoding, options)
        self._begin()
        frame, tasks = self._frame(decoding.options(options))
        if not self._planned:
            return values.public(self._decoded(frame, decoding, options)) if decoding.is_on else frame
        counted_read = CountedRead(self._flat, tasks, looks_outside=self._handoff.expect_gaps)
        frame = counted_read.attach(frame)
        bad_count = None
        if decoding.is_on:
            frame = self._decoded(frame, decoding, options)
            if on_bad == values.NULL:
                frame, bad_count = values.observe_bad(frame)
            else:
                frame = values.public(frame)
        self._progress.to("read")
        self._unchecked, self._bad_count, self._bad, self._options = counted_read, bad_count, None, options
        if self._guarded:
            exit_code.arm(self)
        return frame

    @contextlib.contextmanager
    def persisted(
        self,
        storage_level: StorageLevel | None = None,
        *,
        value: str | None = None,
        key: str | None = None,
        schema: str | StructType | None = None,
        key_schema: str | StructType | None = None,
        on_bad: str = values.FAIL,
        side: str | Callable[[DataFrame, Any], object] | None = None,
        **options: Any,
    ) -> Iterator[DataFrame]:
        """Read the window once, check it, and return a frame for any use: several outputs, views, ``limit``, ``foreachPartition``.

            with window.persisted() as frame:
                window.write_parquet(frame.filter("topic = 'orders'"), "hdfs:///lake/orders")
                frame.groupBy("topic").count().write.mode("append").saveAsTable("statistics")

        Spark keeps the records in memory and on the executors' disks, until the end of the block.

        Args:
            storage_level: where Spark keeps them; None means its default for frames, memory first and then disk.
            value: as in `read`.
            key: as in `read`.
            schema: as in `read`.
            key_schema: as in `read`.
            on_bad: as in `read`.
            side: as in `read`; it is written before the block.
            **options: as in `read`.

        Raises:
            IncompleteReadError: not all planned offsets were read; the block was not run.
            LostRecordsError: Kafka no longer holds them; the block was not run.
            BadRecordError: a record can't be decoded; the block was not run.
            DecodeError: as in `read`.
        """
        decoding = self._decoding(value, key, schema, key_schema, on_bad, side)
        kept = self._persist(decoding, options, storage_level)
        try:
            yield self._read_kept(kept.frame, decoding, side)
        except BaseException as exc:
            self._progress.end_block(exc)
            raise
        finally:
            kept.release()

    def release(self) -> None:
        """Let Spark forget the records that `read` keeps with a `side`; a frame of that call would read Kafka again.

        The end of a job calls it. In a notebook, call it yourself after the last action.
        """
        while self._kept:
            self._kept.pop().release()

    def _read_beside(self, side: Side, decoding: values.Decoding, options: dict[str, Any]) -> DataFrame:
        kept = self._persist(decoding, options)
        try:
            frame = self._read_kept(kept.frame, decoding, side)
        except BaseException as exc:
            self._progress.end_block(exc)
            kept.release()
            raise
        self._kept.append(kept)
        if self._guarded:
            exit_code.arm(self)
        return frame

    def _decoding(
        self,
        value: str | None,
        key: str | None,
        schema: str | StructType | None,
        key_schema: str | StructType | None,
        on_bad: str,
        side: Side | None,
    ) -> values.Decoding:
        decoding = values.Decoding(self._handoff, value, key, schema, key_schema, on_bad)
        if (on_bad == values.SIDE) != (side is not None):
            raise DecodeError("on_bad='side' and side= go together")
        return decoding

    def _persist(
        self, decoding: values.Decoding, options: dict[str, Any], storage_level: StorageLevel | None = None
    ) -> Kept:
        """Return the window's frame, which Spark will keep."""
        self._begin()
        frame, _ = self._frame(decoding.options(options))
        if decoding.is_on:
            frame = self._decoded(frame, decoding, options)
        frame = frame.persist() if storage_level is None else frame.persist(storage_level)
        return Kept(frame, is_remote=not is_classic(self._spark))

    def _read_kept(self, frame: DataFrame, decoding: values.Decoding, side: Side | None) -> DataFrame:
        """Read a frame of `_persist`, check it, write its bad records to `side`, and return the job's frame."""
        # Not by an observation: a busy Spark Connect server reports none.
        with self._naming_loss(UNPUBLISHED):
            counts = self._verdict(lambda: recounted(frame, self._flat))
        self._bad_count = None
        self._bad = values.count_bad(frame) if decoding.on_bad != values.FAIL else None
        self._finish(counts)
        if side is not None:
            self._put_aside(values.aside(frame), side)
        if not decoding.is_on:
            return frame
        return values.good(frame) if decoding.on_bad == values.SIDE else values.public(frame)

    def _put_aside(self, bad: DataFrame, side: Side) -> None:
        """Write the bad records, so that a rerun of the window replaces them."""
        raise NotImplementedError

    def _decoded(self, frame: DataFrame, decoding: values.Decoding, options: dict[str, Any]) -> DataFrame:
        return decoding.decoded(frame, {**self._handoff.options, **options})

    def _begin(self) -> None:
        self._note_run()
        self._progress.begin()

    def _note_run(self) -> None:
        if self._progress.read == "skipped" and self._unchecked and self._unchecked.was_run(_AFTER_A_SKIP):
            self._progress.to("run")

    def check(self, timeout: float = TIMEOUT, *, recount: bool = False) -> None:
        """Check that the whole window was read; call it after a write that succeeded.

        With ``KafkaGroup(expect_gaps=True)``, offsets without a record are normal. Then the check makes sure that the frame was
        run, and gave nothing outside of the window. Only Spark makes sure that Kafka still held all offsets (``failOnDataLoss``).

        Args:
            timeout: seconds to wait for Spark's count.
            recount: read the window a second time, and count that read instead of the first action. Use it after ``rdd`` or
                ``foreachPartition``, or if the job needed only a part (``limit``). Then only you know that the job used the
                right records.

        Raises:
            IncompleteReadError: an offset is missing, or nothing was read.
        """
        if recount or self.is_unchecked or self._progress.read != "skipped":  # otherwise an earlier run wrote it
            self._finish(self._counts(timeout, recount=recount))
        self._progress.vouch()

    def finish(self, timeout: float = _AT_THE_END) -> None:
        """Check the read, if the job did not; a longer process that runs a job calls it after the job.

        Args:
            timeout: seconds to wait for Spark's count.

        Raises:
            IncompleteReadError: the window was not read, or not all of it.
            PublishError: a write failed, and the job continued without it.
        """
        for write, exc in self._progress.failures.values():
            raise PublishError(
                f"Window {self.id}: {write} failed, and the job continued without it ({error_in_short(exc)}). "
                "See docs/reference/errors.md#publisherror"
            ) from exc
        if self._progress.read == "taken":
            self._report()
        else:
            self.check(timeout)

    @contextlib.contextmanager
    def _naming_loss(self, failed: str) -> Iterator[None]:
        try:
            yield
        except Exception as exc:
            if bad := BAD_RECORD.search(str(exc)):
                raise BadRecordError(f"Window {self.id}: {bad[0]}; {failed}. {WITHOUT_BAD}") from exc
            if DATA_LOSS.search(str(exc)) is None:
                raise
            lost = _LOST_RANGE.search(str(exc))
            raise LostRecordsError(
                f"Window {self.id}: Kafka no longer holds all of its offsets{f' ({lost[0]})' if lost else ''}; {failed}"
            ) from exc

    def _frame(self, options: dict[str, Any]) -> tuple[DataFrame, int]:
        """Return the window's frame, not counted, and how many tasks read it."""
        chosen = reader_options(self.ranges, self._handoff.isolation_level, self._handoff.options, options)
        version = source_version(self._handoff.options, options)
        if not self._planned:
            return empty_frame(self._spark, schema(chosen)), 0
        if is_split_by_user(chosen):
            return load(self._spark, chosen, version), len(self._planned)
        tasks = layout(self._planned.values(), parallelism(self._spark))
        frame = load(self._spark, {**chosen, **tasks.options}, version)
        return (frame.coalesce(tasks.tasks) if tasks.tasks < len(self._planned) else frame), tasks.tasks

    def _counts(self, timeout: float, hint: str = "", *, recount: bool = False) -> Counts:
        unchecked = self._unchecked
        if unchecked is None:
            return self._verdict(self._counts_so_far, hint)
        if recount:
            return self._verdict(self._recounted, hint)
        return self._verdict(lambda: self._confirmed(unchecked.counts(timeout)), hint)

    def _confirmed(self, counts: Counts) -> Counts:
        # Spark 4.0 also reports 0 for an action that failed. In a topic with gaps, 0 may be right.
        if not self._handoff.expect_gaps or counts.records:
            return counts
        if is_stopped(self._spark):
            raise IncompleteReadError(STOPPED)
        if (again := self._recounted()).records:
            raise IncompleteReadError(f"0 of {counted(again.records, 'record')} were read. Run the window again")
        return counts

    def _recounted(self) -> Counts:
        return recounted(self._frame(self._options)[0], self._flat)

    def _verdict(self, count: Callable[[], Counts], hint: str = "") -> Counts:
        try:
            counts = count()
            check_counts(counts, expect_gaps=self._handoff.expect_gaps, at_least=self._handoff.at_least)
        except IncompleteReadError as exc:
            raise IncompleteReadError(f"Window {self.id}{hint}: {exc}", exc.missing) from None
        return counts

    def _counts_so_far(self) -> Counts:
        if self._checked is not None:
            return self._checked
        if self._planned:
            raise IncompleteReadError("nothing was read. Call read(), or take starting_offsets and ending_offsets")
        return Counts({}, {})

    def _finish(self, counts: Counts) -> None:
        self._progress.to("check")
        if self._bad_count is not None:
            self._bad, self._bad_count = self._bad_count.metrics(_AFTER_THE_COUNT).get("bad"), None
        self._unchecked = None
        self._checked = counts
        if counts.gaps and not self._reports.is_wanted:  # with a report, the end of the task's log has the numbers
            logger.info(
                "Window %s: %s; %s without one",
                *(self.id, counted(counts.records, "record"), counted(counts.gaps, "planned offset")),
            )
        if self._bad and not self._reports.is_wanted:
            logger.warning("Window %s: %s could not be decoded", self.id, counted(self._bad, "record"))
        self._report()

    def _report(self) -> None:
        counts = self._checked
        # `written` is None if the job may have written by other means before check().
        self._reports.write(
            counts.records if counts else None, _by_topic(counts) if counts else {}, self._written, self._bad
        )


def _by_topic(counts: Counts) -> dict[str, dict[str, int]]:
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), read in counts.read.items():
        if topic is not None and partition is not None:
            by_topic.setdefault(topic, {})[str(partition)] = min(read, counts.planned[(topic, partition)])
    return by_topic
