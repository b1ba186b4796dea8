"""The window of a job: what it reads, whether it read all of it, and a Parquet sink that a rerun replaces."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from airflow_kafka_offsets.spark.parent import die_with_jvm
from airflow_kafka_offsets.spark.sinks.files import Files, publish, stage, staging

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TIMEOUT = 60.0
"""Seconds to wait for what Spark counted: its listeners lag behind by milliseconds, by seconds under load."""

_AT_THE_END = 15.0
"""Seconds to wait when the job is over: the count is there already, unless the frame was never run."""

# Py4J gives Java's exception as text, with all causes; its condition KAFKA_DATA_LOSS is not part of it in Spark 4.0.
_LOST = re.compile(r"KAFKA_DATA_LOSS|Some data may have been lost")
_LOST_RANGE = re.compile(r"Could not read records in offset \[\d+, \d+\) for topic partition \S+")


def current_window(spark: SparkSession) -> KafkaWindow:
    """Return the window that this job was started with.

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
        """Whether something was read and not checked since."""
        return self._unchecked is not None

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
        if self._unchecked is not None:
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

    def write_parquet(self, df: DataFrame, path: str, partition_by: Sequence[str] = ()) -> str:
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

        Raises:
            IncompleteReadError: not all planned offsets were read; nothing was published.
            DataLossError: Kafka no longer holds them; nothing was published.
            PublishError: other tries of the window were faster again and again.
        """
        files = Files(self._spark)
        target = f"{str(path).rstrip('/')}/window_id={self.id}"
        columns = [partition_by] if isinstance(partition_by, str) else list(partition_by)
        with staging(files, str(path).rstrip("/"), self.id) as directory:
            staged = self._stage(df, directory, columns)
            counts = self._counts(_TIMEOUT)
            publish(files, staged, target, f"{directory}-old")
        self._finish(counts)
        return target

    def _stage(self, df: DataFrame, directory: str, columns: Sequence[str]) -> str:
        try:
            return stage(df, directory, columns)
        except Exception as exc:
            if _LOST.search(str(exc)) is None:
                raise
            raise DataLossError(
                f"Window {self.id}: Kafka no longer holds all of its offsets, nothing was published ({_first_lost(exc)}). "
                "Retention removed them, or the topic was made anew, after the window was planned"
            ) from exc

    def _counts(self, timeout: float) -> Counts:
        try:
            if self._unchecked is None:
                return self._counts_so_far()
            counts = self._unchecked.counts(timeout)
            if not self._handoff.expect_gaps:
                check_complete(counts)
        except IncompleteReadError as exc:
            raise IncompleteReadError(f"Window {self.id}: {exc}", exc.missing) from None
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
        if self._handoff.report:
            _write_report(self._handoff.report, self.id, counts)


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


def _write_report(path: str, window_id: str, counts: Counts) -> None:
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), read in counts.read.items():
        if topic is not None and partition is not None:
            by_topic.setdefault(topic, {})[str(partition)] = min(read, counts.planned[(topic, partition)])
    report = {"window_id": window_id, "records": counts.records, "counts": by_topic, "checked": True}
    draft = f"{path}.{os.getpid()}"
    Path(draft).write_text(json.dumps(report), encoding="utf-8")
    os.replace(draft, path)
