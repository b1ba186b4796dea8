"""The options of Spark's Kafka reader for one window: what it fixes, what the user may choose, what is a good default."""

from __future__ import annotations

import json
from collections.abc import Mapping

from airflow_kafka_offsets.spark.errors import ReaderOptionError

# With Spark's defaults (500 records a poll) a batch read costs 1.3 times the CPU: after each poll the connector asks the
# broker for both ends of the partition. The poll timeout would be spark.network.timeout (120 s), times four attempts.
DEFAULTS = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": "8388608",
    "kafka.fetch.max.bytes": "67108864",
    "kafka.receive.buffer.bytes": "1048576",
    "kafkaConsumer.pollTimeoutMs": "30000",
}

# What the window fixes, and what Spark's connector refuses anyway; compared in lower case, as Spark ignores case.
FIXED = frozenset(
    {
        "assign",
        "subscribe",
        "subscribepattern",
        "startingoffsets",
        "endingoffsets",
        "startingtimestamp",
        "endingtimestamp",
        "startingoffsetsbytimestamp",
        "endingoffsetsbytimestamp",
        "startingoffsetsbytimestampstrategy",
        "failondataloss",
        "kafka.isolation.level",
        "kafka.auto.offset.reset",
        "kafka.enable.auto.commit",
        "kafka.key.deserializer",
        "kafka.value.deserializer",
        "kafka.interceptor.classes",
    }
)

# What `format("kafka")` returns (KafkaRecordToRowConverter).
SCHEMA = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
HEADERS = "headers array<struct<key: string, value: binary>>"

Ranges = Mapping[str, Mapping[int, "tuple[int, int]"]]


def reader_options(
    ranges: Ranges, isolation_level: str, given: Mapping[str, object], mine: Mapping[str, object]
) -> dict[str, str]:
    """Return all options for `format("kafka")`.

    Args:
        ranges: what to read: topic -> partition -> (start, end), without empty ranges.
        isolation_level: which records to read.
        given: the group's options, as handed over.
        mine: the options of this call; they win over the group's, and both over the defaults, whatever their case.

    Raises:
        ReaderOptionError: an option would change what the window fixes.
    """
    chosen: dict[str, tuple[str, str]] = {}
    for options in (DEFAULTS, given, mine):
        _refuse_fixed(options)
        chosen.update({name.lower(): (name, _text(value)) for name, value in options.items()})
    return dict(chosen.values()) | {
        # Never subscribe: a partition that was added after planning would fail the read.
        "assign": json.dumps({topic: sorted(partitions) for topic, partitions in ranges.items()}),
        "startingOffsets": offsets_json(ranges, 0),
        "endingOffsets": offsets_json(ranges, 1),
        # With false, Spark leaves out what is gone, and succeeds.
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
    """Return the DDL of the frame that Spark's reader gives with these options."""
    lowered = {name.lower(): _text(value) for name, value in options.items()}
    return f"{SCHEMA}, {HEADERS}" if lowered.get("includeheaders", "").lower() == "true" else SCHEMA


def _refuse_fixed(options: Mapping[str, object]) -> None:
    colliding = [name for name in options if name.lower() in FIXED]
    if colliding:
        raise ReaderOptionError(
            f"read() must not get {', '.join(colliding)}: the window fixes what is read, and the group its isolation level"
        )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
