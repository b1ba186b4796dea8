"""Offsets as the ledger's JSON documents: per topic three columns of numbers, the shape that measured smallest and fastest.

``{"orders":{"id":"wDQp...","partitions":[0,1],"start":[10,20],"span":[5,0],"epoch":[3,null]}}``

``epoch`` holds leader epochs (`core.leader_epochs`). It is not there where none is known, as in what earlier versions wrote; those
versions don't look at it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from airflow_kafka_offsets.core.leader_epochs import LeaderEpochs
from airflow_kafka_offsets.core.offsets import OffsetRange, OffsetRanges, TopicPartition
from airflow_kafka_offsets.core.ownership import Position


def dump_ranges(
    ranges: OffsetRanges, topic_ids: Mapping[str, str], leader_epochs: LeaderEpochs = MappingProxyType({})
) -> str:
    """Write ranges, the ids of their topics, and leader epochs of their partitions."""
    topics: dict[str, dict[str, Any]] = {
        topic: {"id": topic_id, "partitions": [], "start": [], "span": []}
        for topic, topic_id in sorted(topic_ids.items())
    }
    for tp, offsets in ranges.items():
        columns = topics.setdefault(tp.topic, {"id": None, "partitions": [], "start": [], "span": []})
        columns["partitions"].append(tp.partition)
        columns["start"].append(offsets.start)
        columns["span"].append(offsets.end - offsets.start)
    for topic, columns in topics.items() if leader_epochs else ():
        known = [leader_epochs.get(TopicPartition(topic, partition)) for partition in columns["partitions"]]
        if any(epoch is not None for epoch in known):
            columns["epoch"] = known
    return json.dumps(topics, separators=(",", ":"))


def load_ranges(text: str) -> tuple[OffsetRanges, dict[str, str], dict[TopicPartition, int]]:
    """Read what `dump_ranges` wrote."""
    topics = json.loads(text)
    ranges = OffsetRanges(
        (TopicPartition(topic, partition), OffsetRange(start, start + span))
        for topic, columns in topics.items()
        for partition, start, span in zip(columns["partitions"], columns["start"], columns["span"], strict=True)
    )
    return ranges, _topic_ids(topics), _leader_epochs(topics)


def dump_position(position: Position) -> str:
    """Write a position: ranges that are all empty."""
    empty = OffsetRanges((tp, OffsetRange(offset, offset)) for tp, offset in position.offsets.items())
    return dump_ranges(empty, position.topic_ids, position.leader_epochs)


def load_position(text: str) -> Position:
    """Read what `dump_position` wrote, or of ranges their ends: where the next window starts."""
    topics = json.loads(text)
    ends = {
        TopicPartition(topic, partition): start + span
        for topic, columns in topics.items()
        for partition, start, span in zip(columns["partitions"], columns["start"], columns["span"], strict=True)
    }
    return Position(ends, _topic_ids(topics), _leader_epochs(topics))


def _leader_epochs(topics: Mapping[str, Any]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, partition): epoch
        for topic, columns in topics.items()
        for partition, epoch in zip(columns["partitions"], columns.get("epoch", ()), strict=False)
        if epoch is not None
    }


def _topic_ids(topics: Mapping[str, Any]) -> dict[str, str]:
    return {topic: columns["id"] for topic, columns in topics.items() if columns["id"] is not None}
