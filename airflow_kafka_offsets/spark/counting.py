"""Counts how many records of each topic-partition Spark read, in the same pass that reads them."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_kafka_offsets.spark.errors import IncompleteReadError
from airflow_kafka_offsets.spark.observing import Observed, observe
from airflow_kafka_offsets.spark.shared import MAX_NAMED, counted

if TYPE_CHECKING:
    # A topic-partition, a topic (no partition), or the window (neither): each unit has its own count.
    Unit = tuple[str | None, int | None]

logger = logging.getLogger(__name__)

MAX_MERGED = 10_000_000
"""Up to this number of partitions times tasks, each partition has its own count, beyond it each topic: Spark's driver merges
the counts of all tasks, in 0.1 to 0.2 µs for each partition of a task."""

MAX_BOUNDS = 1000
"""Up to this number of partitions, Spark compares each record with the window's ranges, and its plans show all these offsets."""

# A histogram as a string: [{0.0, 10.0}, {7.0, 1.0E7}]
_BAR = re.compile(r"\{([\d.E]+), ([\d.E]+)\}")

_WHOLE: Unit = (None, None)


@dataclass(frozen=True)
class Counts:
    """Records that were read.

    Attributes:
        read: the number of each `Unit`.
        planned: the span of each unit.
        strays: the number of records outside their range.
    """

    read: Mapping[Unit, int]
    planned: Mapping[Unit, int]
    strays: int = 0

    @property
    def records(self) -> int:
        """The records that were read. A task that ran twice counts once, except in topics with gaps."""
        return sum(min(read, self.planned[unit]) for unit, read in self.read.items())

    @property
    def gaps(self) -> int:
        """Planned offsets without a record."""
        return sum(self.planned.values()) - self.records


class CountedRead:
    """A frame of the Kafka source, and the count of its first action.

    Spark's `Observation` counts, which needs no second pass and reports only the first action.

    Args:
        ranges: topic-partition -> [start, end); at least one, none empty.
        tasks: how many tasks read them, or None for one for each.
        looks_outside: whether to count records outside of the ranges, too, for 0.1 µs of CPU a record (reading takes 1.2 µs). Only
            topics with gaps need it: elsewhere, as many records as offsets can't include others.
    """

    def __init__(
        self,
        ranges: Mapping[tuple[str, int], tuple[int, int]],
        tasks: int | None = None,
        *,
        looks_outside: bool = False,
    ) -> None:
        self._ranges = ranges
        self._looks_outside = looks_outside
        self._topics = sorted({topic for topic, _ in ranges})
        self._by_partition = len(ranges) * (len(ranges) if tasks is None else tasks) <= MAX_MERGED
        self._planned: Counter[Unit] = Counter()
        for (topic, partition), (start, end) in ranges.items():
            self._planned[(topic, partition if self._by_partition else None)] += end - start
        # The keys of a topic: one for each partition, and one for partitions that were not planned.
        self._width = 2 + max(partition for _, partition in ranges) if self._by_partition else 1
        self._observed: Observed | None = None

    def attach(self, frame: DataFrame) -> DataFrame:
        """Return the frame with the counting in it."""
        # With as many bins as there are values, a histogram is exact, and almost free. 100 count_if, one for each partition,
        # take 1.4 µs of CPU for each record, a fifth of reading it.
        # As a string, because Spark Connect can't return an array of structs. Not by to_json: all threads that ask Spark for
        # the counts share its generator, and two threads ask. Over Connect, 3 of 60 small windows failed.
        histogram = F.histogram_numeric(self._key(), F.lit(2 + len(self._planned))).cast("string")
        strays = [F.count_if(self._is_stray()).alias("strays")] if self._looks_outside else []
        records = F.count(F.lit(1)).alias("records")
        frame, self._observed = observe(frame, records, histogram.alias("histogram"), *strays)
        return frame

    def was_run(self, timeout: float) -> bool:
        """Whether Spark reports an action within `timeout` seconds."""
        return self._reported.metrics(timeout).get("records") is not None

    def counts(self, timeout: float) -> Counts:
        """Return the counts of the frame's first action.

        Raises:
            IncompleteReadError: Spark reported no action that succeeded within `timeout` seconds.
        """
        metrics = self._reported.metrics(timeout)
        if metrics.get("records") is None:
            raise IncompleteReadError(
                "Spark reported no action on the frame of read(). Call check() after the write, or use:\n"
                "    with window.persisted() as frame:"
            )
        records, strays = int(metrics["records"]), int(metrics.get("strays") or 0)
        read = self._decode(metrics.get("histogram"))
        if read.keys() <= self._planned.keys() and sum(read.values()) == records:
            return Counts({unit: read[unit] for unit in self._planned}, self._planned, strays)
        # Another engine under Spark may make other histograms. Two threads that ask Spark at once share one row of bytes, so the
        # end of the text may be blank. The total is always right.
        return Counts({_WHOLE: records}, {_WHOLE: sum(self._planned.values())}, strays)

    def _key(self) -> Column:
        ordinal = self._of_topic([F.lit(number) for number in range(len(self._topics))])
        partition = F.least(F.col("partition"), F.lit(self._width - 1)) if self._by_partition else F.lit(0)
        # As a small double: if two tasks have the same key, the histogram takes an inexact mean, and cuts it for integers.
        return ordinal.cast("double") * F.lit(self._width) + partition

    def _is_stray(self) -> Column:
        if (1 + max(partition for _, partition in self._ranges)) * len(self._topics) > MAX_BOUNDS:
            return F.lit(False)
        start, end = (F.get(self._of_topic(self._bounds(bound)), F.col("partition")) for bound in (0, 1))
        is_within = (F.col("offset") >= start) & (F.col("offset") < end)
        return F.coalesce(~is_within, F.lit(True))

    def _bounds(self, bound: int) -> list[Column]:
        """Return the starts (0) or the ends (1) of each topic by partition, as an array that Spark makes once."""
        columns = []
        for topic in self._topics:
            bounds = {partition: ends[bound] for (name, partition), ends in self._ranges.items() if name == topic}
            values = ",".join(str(bounds.get(partition, -1)) for partition in range(max(bounds) + 1))
            # One literal: in a classic session a list becomes a call to the JVM for each of its elements.
            columns.append(F.split(F.lit(values), ",").cast("array<bigint>"))
        return columns

    def _of_topic(self, values: Sequence[Column]) -> Column:
        if len(values) == 1:
            return values[0]
        # One flat CASE: Spark never finishes with one of a thousand levels.
        chosen: Any = F
        for number, topic in enumerate(self._topics):
            chosen = chosen.when(F.col("topic") == topic, values[number])
        column: Column = chosen
        return column

    def _decode(self, histogram: str | None) -> Counter[Unit]:
        read: Counter[Unit] = Counter()
        for key, records in _BAR.findall(histogram or ""):
            ordinal, partition = divmod(round(float(key)), self._width)
            topic = self._topics[ordinal] if ordinal < len(self._topics) else None
            read[(topic, partition if self._by_partition else None)] += round(float(records))
        return read

    @property
    def _reported(self) -> Observed:
        assert self._observed is not None
        return self._observed


def recounted(frame: DataFrame, ranges: Mapping[tuple[str, int], tuple[int, int]]) -> Counts:
    """Read a frame of the Kafka source to its end, only to count.

    Args:
        frame: the frame.
        ranges: topic-partition -> [start, end).
    """
    groups = frame.groupBy("topic", "partition").agg(F.count(F.lit(1)), F.min("offset"), F.max("offset"))
    read: Counter[Unit] = Counter()
    strays = 0
    for topic, partition, records, first, last in groups.collect():
        start, end = ranges.get((topic, partition), (0, 0))
        if start <= first and last < end:
            read[(topic, partition)] = records
        else:
            strays += records
    return Counts({tp: read[tp] for tp in ranges}, {tp: end - start for tp, (start, end) in ranges.items()}, strays)


def check_counts(counts: Counts, *, expect_gaps: bool = False, at_least: int | None = None) -> None:
    """Refuse a read that is not the window's.

    More than planned is no error: if Spark loses an executor, it runs tasks again and counts their records twice, but keeps their
    output once.

    Args:
        counts: the records that were read.
        expect_gaps: whether offsets without a record are normal.
        at_least: the records of an earlier run of the window, or None if there was none or fewer are fine.

    Raises:
        IncompleteReadError: records are missing, or outside the window's ranges.
    """
    if counts.strays:
        raise IncompleteReadError(f"{counts.strays} records outside the window were read. Use Spark's own Kafka source")
    if not expect_gaps:
        _check_complete(counts)
    if at_least is not None and counts.records < at_least:
        raise IncompleteReadError(
            f"{counted(counts.records, 'record')} read, {at_least} by an earlier run, whose output may be the only "
            "copy. To replace it, set for one run:\n    KafkaGroup(expect_fewer=True)"
        )


def _check_complete(counts: Counts) -> None:
    missing: dict[str, tuple[int, int]] = {}
    for unit, read in counts.read.items():
        planned = counts.planned[unit]
        if read < planned:
            missing[_label(unit)] = (read, planned)
        elif read > planned:
            logger.warning("%s: %s of %d counted: tasks ran twice", _label(unit), counted(read, "record"), planned)
    if not missing:
        return
    named = [f"{label}: {read} of {planned}" for label, (read, planned) in list(missing.items())[:MAX_NAMED]]
    rest = f" and {len(missing) - MAX_NAMED} more" if len(missing) > MAX_NAMED else ""
    raise IncompleteReadError(
        f"{counts.records} of {sum(counts.planned.values())} planned offsets were read. Read the whole frame, or for a "
        f"compacted or transactional topic set KafkaGroup(expect_gaps=True)\n    {'; '.join(named)}{rest}",
        missing,
    )


def _label(unit: Unit) -> str:
    topic, partition = unit
    if topic is None:
        return "all partitions"
    return topic if partition is None else f"{topic}-{partition}"
