"""The options of Spark's Kafka reader for one window: those that it fixes, and defaults for the others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_kafka_offsets.spark.errors import ReaderOptionError
from airflow_kafka_offsets.spark.shared import FIXED_OPTIONS

if TYPE_CHECKING:
    from airflow_kafka_offsets.spark.handoff import Ranges

# - Spark's 500 records a poll cost 1.6 times the CPU, and six times the broker's: after each poll the connector asks the broker
#   for both ends of the partition. A fetch of 4 MiB fills a poll. Larger ones are no faster, and the up to 64 idle consumers of an
#   executor keep their fetches.
# - Linux does not enlarge a fixed receive buffer (64 KiB) for a distant broker.
# - At the end of the log, the broker holds back a fetch and the next request behind it, by default up to twice half a second for
#   each partition, unless it may answer without a byte.
# - Kafka 3.7 interrupts a read of its remote tier when the fetch has waited so long: less than request.timeout.ms (30 s).
# - The default poll timeout is four times spark.network.timeout (120 s).
DEFAULTS = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": "4194304",
    "kafka.receive.buffer.bytes": "-1",
    "kafka.fetch.min.bytes": "0",
    "kafka.fetch.max.wait.ms": "20000",
    "kafkaConsumer.pollTimeoutMs": "30000",
}

_WAIT, _MIN = "kafka.fetch.max.wait.ms", "kafka.fetch.min.bytes"

_SERVERS = "kafka.bootstrap.servers"

# Our own option, not one of Spark's reader: which of Spark's two Kafka sources reads.
_SOURCE_VERSION = "sourceversion"

# Version 2 returns rows as it decodes them. Version 1 converts each row twice, which costs a third more CPU.
DEFAULT_VERSION = "2"

_SPLITTING = frozenset({"minpartitions", "maxrecordsperpartition"})

TASKS_A_CORE = 4
"""Tasks of equal size for each core, if a range is large: with four, cores wait for the last task at most a quarter of the time."""

MIN_SLICE = 100_000
"""The smallest number of records that is worth a task."""

FREE_SLICE = 1_000_000
"""Records of a task if the number of cores is unknown: about a second of reading. More tasks ask for executors."""

FREE_CORES = 16
"""The number of cores to assume for small ranges, if it is unknown."""

RANGE_COST = 20_000
"""The cost of a range in records: each has its own consumer, with its connections."""

# What `format("kafka")` returns (KafkaRecordToRowConverter).
SCHEMA = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
HEADERS = "headers array<struct<key: string, value: binary>>"

MOST_TOGETHER = 64
"""The most ranges of one task: source version 2 closes no consumer before the task's end, and each has about four open files.
Version 1 closes them earlier, but shows all offsets in each plan of the UI and the event log."""


@dataclass(frozen=True)
class Layout:
    """How ranges become tasks.

    Attributes:
        max_records: the most that a task reads of one partition, or None for the whole range.
        tasks: how many tasks read; if there are fewer than ranges, each reads several in turn.
    """

    max_records: int | None
    tasks: int

    @property
    def options(self) -> dict[str, str]:
        """The options of Spark's reader that cut the ranges."""
        if self.max_records is None:
            return {}
        # Spark 3 ignores the first and cuts by the second. Spark 4 cuts by the first into as many.
        return {"maxRecordsPerPartition": str(self.max_records), "minPartitions": str(self.tasks)}


def layout(spans: Iterable[int], parallelism: int | None) -> Layout:
    """Split ranges for which the other cores would wait, and combine those that are not worth a task.

    Args:
        spans: the spans of the ranges; none is 0.
        parallelism: how many tasks run at once, or None if unknown.

    >>> layout([9_000_000, 500_000, 500_000], parallelism=4)  # one partition has nearly all offsets
    Layout(max_records=628750, tasks=17)
    >>> layout([1_000_000] * 16, parallelism=4)
    Layout(max_records=None, tasks=16)
    >>> layout([10] * 1_000, parallelism=4)
    Layout(max_records=None, tasks=17)
    >>> layout([10] * 20_000, parallelism=4)
    Layout(max_records=None, tasks=313)
    """
    spans = list(spans)
    largest, cost = max(spans), sum(spans) + RANGE_COST * len(spans)
    most = FREE_SLICE if parallelism is None else max(MIN_SLICE, -(-cost // (parallelism * TASKS_A_CORE)))
    if largest > most:
        return Layout(most, sum(-(-span // most) for span in spans))
    together = min(MOST_TOGETHER, max(1, most // (largest + RANGE_COST)))
    enough = (parallelism or FREE_CORES) * TASKS_A_CORE
    return Layout(None, min(len(spans), max(enough, -(-len(spans) // together))))


def is_split_by_user(options: Mapping[str, object]) -> bool:
    """Whether these options cut the ranges into tasks."""
    return any(name.lower() in _SPLITTING for name in options)


def source_version(group: Mapping[str, object], call: Mapping[str, object]) -> int:
    """Return which of Spark's Kafka sources reads, by the options of the call, or else of the group.

    Raises:
        ReaderOptionError: there is no such version.
    """
    _, version = _by_lower_case(group, call).get(_SOURCE_VERSION, ("", DEFAULT_VERSION))
    if version not in ("1", "2"):
        raise ReaderOptionError(f"sourceVersion must be 1 or 2, got {version}")
    return int(version)


def reader_options(
    ranges: Ranges, isolation_level: str, group: Mapping[str, object], call: Mapping[str, object]
) -> dict[str, str]:
    """Return all options for `format("kafka")`.

    Args:
        ranges: what to read.
        isolation_level: which records to read.
        group: the group's options, from the handoff.
        call: the options of this call. They override the group's, and both override the defaults, in upper or lower case.

    Raises:
        ReaderOptionError: an option would change what the window fixes.
    """
    if any(name.lower() == _SERVERS for name in call):
        raise ReaderOptionError(
            f"read() must not get {_SERVERS}. For another address of the same cluster:\n"
            f"    KafkaGroup(spark_options={{'{_SERVERS}': ...}})"
        )
    fixed = [name for name in {**group, **call} if name.lower() in FIXED_OPTIONS]
    if fixed:
        raise ReaderOptionError(f"read() must not get {', '.join(fixed)}: the window fixes it")
    given = _by_lower_case(group, call)
    chosen = _by_lower_case(DEFAULTS) | given
    chosen.pop(_SOURCE_VERSION, None)
    if chosen[_MIN][1] != "0" and _WAIT not in given:  # a fetch at the end of the log would wait so long
        del chosen[_WAIT]
    return {
        **dict(chosen.values()),
        # Never subscribe: a partition that was added after planning would fail the read.
        "assign": json.dumps({topic: sorted(partitions) for topic, partitions in ranges.items()}),
        "startingOffsets": offsets_json(ranges, 0),
        "endingOffsets": offsets_json(ranges, 1),
        # With false, Spark leaves lost records out, and succeeds.
        "failOnDataLoss": "true",
        "kafka.isolation.level": isolation_level,
    }


def offsets_json(ranges: Ranges, bound: int) -> str:
    """Return Spark's JSON of the starts (0) or the ends (1), partitions in numeric order.

    >>> offsets_json({"orders": {10: (7, 9), 2: (5, 6)}}, 0)
    '{"orders":{"2":5,"10":7}}'
    """
    document = {
        topic: {str(partition): partitions[partition][bound] for partition in sorted(partitions)}
        for topic, partitions in sorted(ranges.items())
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def schema(options: Mapping[str, object]) -> str:
    """Return the DDL of the reader's frame with these options."""
    _, headers = _by_lower_case(options).get("includeheaders", ("", "false"))
    return f"{SCHEMA}, {HEADERS}" if headers.lower() == "true" else SCHEMA


def _by_lower_case(*layers: Mapping[str, object]) -> dict[str, tuple[str, str]]:
    """Return lower-case name -> (name, value as text); a later layer overrides an earlier one."""
    return {
        name.lower(): (name, str(value).lower() if isinstance(value, bool) else str(value))
        for options in layers
        for name, value in options.items()
    }
