"""Offsets as the ledger's JSON documents: for each topic three columns of numbers, which was the smallest and fastest form.

``{"orders":{"id":"wDQp...","partitions":[0,1],"start":[10,20],"span":[5,0],"epoch":[3,null]}}``

``epoch`` holds leader epochs (`core.leader_epochs`). It is missing if none is known.

A document of many partitions is packed, see `packing`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from airflow_kafka_offsets.core.errors import MAX_VALUE, DamagedRowError
from airflow_kafka_offsets.core.leader_epochs import LeaderEpochs
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.ownership import Position
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.ledger.packing import unpack


@contextmanager
def intact(what: str) -> Iterator[None]:
    """Translate the errors of reading a ledger value that is damaged.

    Args:
        what: the value, for the message.

    Raises:
        DamagedRowError: this package never writes such a value.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as exc:
        raise damaged(what, exc) from exc


def damaged(what: str, exc: Exception) -> DamagedRowError:
    """Return the error for a value that this package never writes."""
    why = str(exc)[:MAX_VALUE]
    return DamagedRowError(
        f"The ledger has {what}, but its row is damaged ({type(exc).__name__}: {why}). Restore it from a copy of the ledger: "
        "docs/howto/keep-the-ledger.md"
    )


def dump_ranges(
    ranges: OffsetRanges, topic_ids: Mapping[str, str], leader_epochs: LeaderEpochs = MappingProxyType({})
) -> str:
    """Write ranges, the ids of their topics, and leader epochs of their partitions."""
    topics = {topic: _columns(topic_id) for topic, topic_id in sorted(topic_ids.items())}
    for tp, offsets in ranges.items():
        columns = topics.setdefault(tp.topic, _columns(None))
        columns["partitions"].append(tp.partition)
        columns["start"].append(offsets.start)
        columns["span"].append(offsets.end - offsets.start)
        columns["epoch"].append(leader_epochs.get(tp))
    for columns in topics.values():
        if all(epoch is None for epoch in columns["epoch"]):
            del columns["epoch"]
    return json.dumps(topics, separators=(",", ":"))


def load_ranges(
    text: str, packed: bytes | None = None, partitions: Collection[TopicPartition] | None = None
) -> tuple[OffsetRanges, dict[str, str], dict[TopicPartition, int]]:
    """Read what `dump_ranges` wrote, and `packing.pack` may have packed; with `partitions` of these only."""
    wanted = None if partitions is None else frozenset(partitions)
    columns_of = json.loads(text) if packed is None else unpack(packed, wanted)
    if packed is None and wanted is not None:
        columns_of = {topic: _some(topic, columns, wanted) for topic, columns in columns_of.items()}
    loaded = _load(columns_of)
    return loaded.ranges(), loaded.topic_ids, loaded.leader_epochs


def dump_position(position: Position) -> str:
    """Write a position, as empty ranges."""
    empty = OffsetRanges((tp, OffsetRange(offset, offset)) for tp, offset in position.offsets.items())
    return dump_ranges(empty, position.topic_ids, position.leader_epochs)


def load_position(text: str, packed: bytes | None = None) -> Position:
    """Read what `dump_position` wrote. From ranges, read their ends, where the next window starts."""
    loaded = _load(json.loads(text) if packed is None else unpack(packed))
    return Position(dict(zip(loaded.partitions, loaded.ends, strict=True)), loaded.topic_ids, loaded.leader_epochs)


@dataclass(slots=True)
class _Loaded:
    """A document in columns: an object for each partition would cost more in Python's garbage collector than the reading."""

    partitions: list[TopicPartition] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    topic_ids: dict[str, str] = field(default_factory=dict)
    leader_epochs: dict[TopicPartition, int] = field(default_factory=dict)

    def ranges(self) -> OffsetRanges:
        # Their columns were looked at: none is negative, and no span is.
        ranges = map(OffsetRange._make, zip(self.starts, self.ends, strict=True))
        return OffsetRanges(zip(self.partitions, ranges, strict=True))


def _load(columns_of: Mapping[str, dict[str, Any]]) -> _Loaded:
    loaded = _Loaded()
    for topic, columns in columns_of.items():
        if columns["id"] is not None:
            loaded.topic_ids[topic] = columns["id"]
        partitions = _partitions(topic, tuple(_whole(columns["partitions"])))
        starts, spans = _whole(columns["start"]), _whole(columns["span"])
        loaded.ends.extend(start + span for _, start, span in zip(partitions, starts, spans, strict=True))
        loaded.partitions.extend(partitions)
        loaded.starts.extend(starts)
        if "epoch" in columns:
            epochs = zip(partitions, columns["epoch"], strict=True)
            loaded.leader_epochs.update({tp: epoch for tp, epoch in epochs if epoch is not None})
    return loaded


@lru_cache(
    maxsize=4
)  # the windows of a group, and its position, name the same ones; of few topics, as one may have 20,000
def _partitions(topic: str, numbers: tuple[int, ...]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for number in numbers)


def _some(topic: str, columns: dict[str, Any], wanted: Set[TopicPartition]) -> dict[str, Any]:
    places = [at for at, partition in enumerate(columns["partitions"]) if (topic, partition) in wanted]
    each = {name: [columns[name][at] for at in places] for name in columns.keys() - {"id"}}
    return {"id": columns["id"], **each}


def _columns(topic_id: str | None) -> dict[str, Any]:
    return {"id": topic_id, "partitions": [], "start": [], "span": [], "epoch": []}


def _whole(numbers: list[int]) -> list[int]:
    # On whole columns: a look at each number would take as long as to unpack them.
    if not set(map(type, numbers)) <= {int} or min(numbers, default=0) < 0:
        raise ValueError("these must all be whole numbers, 0 or more")
    return numbers
