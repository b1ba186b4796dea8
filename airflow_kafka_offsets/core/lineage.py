"""What lineage tools learn of the windows that a task read."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.ranges import OffsetRange
from airflow_kafka_offsets.core.window import Window

MAX_RANGES = 1000
"""If the windows of a task have more offset ranges than this, an event has the totals of each topic only."""

MAX_WINDOWS = 1000
"""A facet describes at most this number of windows, the first ones."""

_DEFAULT_PORT = 9092


@dataclass(frozen=True, slots=True)
class ReadWindow:
    """A window that a task worked on.

    Attributes:
        window: the window.
        is_rerun: whether it had been committed before the task began.
        is_committed: whether the task got as far as the commit.
        records: how many records its job read; None means not reported.
        counts: records by topic and partition, if the job counted them.
    """

    window: Window
    is_rerun: bool
    is_committed: bool
    records: int | None = None
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WindowRange:
    """A range of a topic-partition, and the window that owns it."""

    partition: int
    range: OffsetRange
    window_id: str


@dataclass(frozen=True, slots=True)
class ReadTopic:
    """What a task read of one topic.

    Attributes:
        topic: its name.
        partitions: how many of its partitions have something to read.
        ranges: how many ranges, without empty ones.
        span: how many offsets they have.
        records: how many records; None means not reported.
        parts: its ranges, without empty ones, or None if the task has more than `MAX_RANGES`.
    """

    topic: str
    partitions: int
    ranges: int
    span: int
    records: int | None
    parts: tuple[WindowRange, ...] | None


def namespace_of(bootstrap_servers: str) -> str:
    """Return the name that OpenLineage gives to a Kafka: that of the first server, as Spark's listener does.

    Args:
        bootstrap_servers: ``host:port`` with commas between them. A protocol before them is left out, and a port is added if
            there is none.

    Raises:
        BadInputError: it names no server.

    >>> namespace_of("SASL_SSL://kafka-1:9093,kafka-2:9093"), namespace_of(" kafka "), namespace_of("[::1]")
    ('kafka://kafka-1:9093', 'kafka://kafka:9092', 'kafka://[::1]:9092')
    """
    first = bootstrap_servers.partition(",")[0].strip()
    server = first.rpartition("://")[2].rstrip("/")
    if not server:
        raise BadInputError("bootstrap.servers names no server")
    has_port = server.rpartition(":")[2].isdigit() and not server.endswith("]")
    return f"kafka://{server}" if has_port else f"kafka://{server}:{_DEFAULT_PORT}"


def _topics(windows: Sequence[ReadWindow], topics: Container[str]) -> set[str]:
    """Return the topics that a task depends on: those with records, and quiet ones that the group still reads."""
    ranges = (item for window in windows for item in window.window.ranges.items())
    return {tp.topic for tp, offsets in ranges if offsets.span or tp.topic in topics}


def read_topics(windows: Sequence[ReadWindow], topics: Container[str]) -> list[ReadTopic]:
    """Return what a task read, by topic.

    Args:
        windows: its windows.
        topics: the topics that the group reads now. A quiet one is there, too: the task depends on it.
    """
    parts = _parts(windows)
    is_small = sum(map(len, parts.values())) <= MAX_RANGES
    records = _records(windows)
    return [
        ReadTopic(
            topic,
            partitions=len({part.partition for part in ranges}),
            ranges=len(ranges),
            span=sum(part.range.span for part in ranges),
            records=records.get(topic, 0),
            parts=tuple(ranges) if is_small else None,
        )
        for topic in sorted(_topics(windows, topics))
        for ranges in [parts.get(topic, [])]
    ]


def _parts(windows: Sequence[ReadWindow]) -> dict[str, list[WindowRange]]:
    parts: dict[str, list[WindowRange]] = {}
    for read in windows:
        for tp, offsets in read.window.ranges.without_empty().items():
            parts.setdefault(tp.topic, []).append(WindowRange(tp.partition, offsets, read.window.id))
    return parts


def _records(windows: Sequence[ReadWindow]) -> dict[str, int | None]:
    """Return the records of each topic with something to read, or None if a job did not count them."""
    total: dict[str, int | None] = {}
    for window in windows:
        for topic, records in _records_of(window).items():
            before = total.get(topic, 0)
            total[topic] = None if before is None or records is None else before + records
    return total


def _records_of(read: ReadWindow) -> dict[str, int | None]:
    topics = {tp.topic for tp in read.window.ranges.without_empty()}
    if read.counts:
        return {topic: sum(read.counts.get(topic, {}).values()) for topic in topics}
    return dict.fromkeys(topics, read.records if len(topics) == 1 else None)


def facet_content(windows: Sequence[ReadWindow], topics: Container[str]) -> dict[str, Any]:
    """Return the content of the run facet ``kafkaOffsets_window``; its JSON schema is in `airflow_kafka_offsets.schemas`.

    Args:
        windows: the windows of a task.
        topics: the topics that the group reads now.
    """
    depended_on = _topics(windows, topics)
    return {
        "group": windows[0].window.group,
        "windowCount": len(windows),
        "windows": [_described(read, depended_on) for read in windows[:MAX_WINDOWS]],
    }


def _described(read: ReadWindow, topics: Collection[str]) -> dict[str, Any]:
    window = read.window
    return {
        "windowId": window.id,
        "seq": window.seq,
        "lane": window.lane.value,
        "plannedUntil": window.planned_until.isoformat(),
        "isRerun": read.is_rerun,
        "isCommitted": read.is_committed,
        "isolationLevel": window.isolation_level.value,
        "partitions": len(window.ranges.without_empty()),
        "span": window.span,
        "records": read.records,
        "topicIds": {topic: id_ for topic, id_ in window.topic_ids.items() if topic in topics},
    }
