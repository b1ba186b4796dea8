"""Offsets as the ledger's JSON documents: per topic three columns of numbers, the shape that measured smallest and fastest.

``{"orders":{"id":"wDQp...","partitions":[0,1],"start":[10,20],"span":[5,0]}}``
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow_kafka_offsets.core.offsets import OffsetRange, OffsetRanges, TopicPartition
from airflow_kafka_offsets.core.ownership import Position


def dump_ranges(ranges: OffsetRanges, topic_ids: Mapping[str, str]) -> str:
    """Write ranges and the ids of their topics."""
    topics: dict[str, dict[str, Any]] = {
        topic: {"id": topic_id, "partitions": [], "start": [], "span": []}
        for topic, topic_id in sorted(topic_ids.items())
    }
    for tp, offsets in ranges.items():
        columns = topics.setdefault(tp.topic, {"id": None, "partitions": [], "start": [], "span": []})
        columns["partitions"].append(tp.partition)
        columns["start"].append(offsets.start)
        columns["span"].append(offsets.end - offsets.start)
    return json.dumps(topics, separators=(",", ":"))


def load_ranges(text: str) -> tuple[OffsetRanges, dict[str, str]]:
    """Read what `dump_ranges` wrote."""
    topics = json.loads(text)
    ranges = OffsetRanges(
        (TopicPartition(topic, partition), OffsetRange(start, start + span))
        for topic, columns in topics.items()
        for partition, start, span in zip(columns["partitions"], columns["start"], columns["span"], strict=True)
    )
    return ranges, _topic_ids(topics)


def dump_position(position: Position) -> str:
    """Write a position: ranges that are all empty."""
    empty = OffsetRanges((tp, OffsetRange(offset, offset)) for tp, offset in position.offsets.items())
    return dump_ranges(empty, position.topic_ids)


def load_position(text: str) -> Position:
    """Read what `dump_position` wrote, or of ranges their ends: where the next window starts."""
    topics = json.loads(text)
    ends = {
        TopicPartition(topic, partition): start + span
        for topic, columns in topics.items()
        for partition, start, span in zip(columns["partitions"], columns["start"], columns["span"], strict=True)
    }
    return Position(ends, _topic_ids(topics))


def _topic_ids(topics: Mapping[str, Any]) -> dict[str, str]:
    return {topic: columns["id"] for topic, columns in topics.items() if columns["id"] is not None}
