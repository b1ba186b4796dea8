"""Reads and writes Spark's JSON of offsets: ``{"orders":{"0":23,"1":45}}``.

Source: ``JsonUtils.scala`` of Spark's Kafka connector. Only this module has Spark's ``-1`` (latest) and ``-2``
(earliest): it reads them where a user may write them, and never writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

from airflow_kafka_offsets.core.errors import OffsetsJsonError, short
from airflow_kafka_offsets.core.offsets import MAX_OFFSET, MAX_PARTITION, Offsets, TopicPartition, is_whole

EXAMPLE = '{"orders":{"0":23,"1":45}}'
_PARTITION = re.compile(r"[0-9]{1,10}")


class Edge(Enum):
    """An end of the log, as Spark's users write it in JSON."""

    LATEST = -1
    EARLIEST = -2


def dump_offsets(offsets: Offsets) -> str:
    """Write offsets as Spark reads them: compact and sorted, so that equal offsets give equal bytes.

    >>> dump_offsets({TopicPartition("orders", 10): 7, TopicPartition("orders", 2): 5})
    '{"orders":{"2":5,"10":7}}'
    """
    return json.dumps(by_topic(offsets), separators=(",", ":"), ensure_ascii=False)


def by_topic(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return offsets by topic and partition, sorted."""
    found: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        found.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return found


def dump_assign(partitions: list[TopicPartition]) -> str:
    """Write Spark's ``assign``: ``{"orders":[0,1]}``."""
    found: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        found.setdefault(tp.topic, []).append(tp.partition)
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False)


def without_double_braces(text: str) -> str:
    """Put a space between closing braces: YARN removes each ``}}`` from a command line, as the end of a ``{{VARIABLE}}``.

    >>> without_double_braces('{"orders":{"0":5}}')
    '{"orders":{"0":5} }'
    """
    return re.sub(r"\}(?=\})", "} ", text)


def load_offsets(text: str | Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Read Spark's JSON where -1 (latest) and -2 (earliest) are not allowed.

    Raises:
        OffsetsJsonError: the text is not that JSON, or an offset is -1 or -2.
    """
    offsets: dict[TopicPartition, int] = {}
    for tp, offset in load_offsets_or_edges(text).items():
        if isinstance(offset, Edge):
            raise OffsetsJsonError(
                f"{tp}: {offset.value} ({offset.name.lower()}) is not allowed here; write the offset itself"
            )
        offsets[tp] = offset
    return offsets


def load_offsets_or_edges(text: str | Mapping[str, Any]) -> dict[TopicPartition, int | Edge]:
    """Read Spark's JSON where -1 (latest) and -2 (earliest) are allowed.

    Raises:
        OffsetsJsonError: the text is not that JSON. The message names the place and shows a correct example.
    """
    document = _parse(text) if isinstance(text, str) else text
    if not isinstance(document, Mapping) or not document:
        raise OffsetsJsonError(f"Offsets must be a JSON object like {EXAMPLE}, got {short(document)}")
    offsets: dict[TopicPartition, int | Edge] = {}
    for topic, partitions in document.items():
        if not isinstance(topic, str) or not isinstance(partitions, Mapping) or not partitions:
            raise OffsetsJsonError(f"Topic {short(topic)} must hold offsets like {EXAMPLE}, got {short(partitions)}")
        for partition, offset in partitions.items():
            tp = TopicPartition(topic, _partition(topic, partition))
            if tp in offsets:
                raise OffsetsJsonError(f"Topic {short(topic)} names partition {tp.partition} twice")
            offsets[tp] = _offset(topic, partition, offset)
    return offsets


def _parse(text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=refuse_duplicates)
    except OffsetsJsonError:
        raise
    except (ValueError, RecursionError) as exc:  # json raises these also for a huge number and for deep nesting
        raise OffsetsJsonError(f"Offsets must be JSON like {EXAMPLE}, got {short(text)} ({exc})") from exc


def refuse_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Build a JSON object (json's ``object_pairs_hook``), or refuse it if it has a key twice.

    Raises:
        OffsetsJsonError: a key is there twice. json itself would silently drop the first range.
    """
    document: dict[str, object] = {}
    for name, value in pairs:
        if name in document:
            raise OffsetsJsonError(f"The key {short(name)} is there twice")
        document[name] = value
    return document


def _partition(topic: str, partition: object) -> int:
    if is_whole(partition) and 0 <= partition <= MAX_PARTITION:
        return partition
    if isinstance(partition, str) and _PARTITION.fullmatch(partition) and int(partition) <= MAX_PARTITION:
        return int(partition)
    raise OffsetsJsonError(f"Topic {short(topic)}: {short(partition)} is not a partition")


def _offset(topic: str, partition: object, offset: object) -> int | Edge:
    where = f"Topic {short(topic)}, partition {partition}"
    if not is_whole(offset):
        raise OffsetsJsonError(f"{where}: an offset must be a whole number, got {short(offset)}")
    if offset in (Edge.LATEST.value, Edge.EARLIEST.value):
        return Edge(offset)
    if not 0 <= offset <= MAX_OFFSET:
        raise OffsetsJsonError(f"{where}: an offset must be 0 to 2^63-1, got {short(offset)}")
    return offset
