"""Which offsets a table holds, as a query over the table reports them: in islands, which are runs of consecutive offsets.

CSV, with or without a header: ``topic,partition,first_offset,last_offset,copies``. Lines may come in any order and from several
queries. Where they overlap, the table has the offset more than once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from airflow_kafka_offsets.core.errors import BadInputError, name_some
from airflow_kafka_offsets.core.offsets import MAX_OFFSET, MAX_PARTITION, TopicPartition
from airflow_kafka_offsets.core.ranges import OffsetRange
from airflow_kafka_offsets.core.source.offsets_csv import NUMBER, csv_rows

HEADER = ("topic", "partition", "first_offset", "last_offset", "copies")
EXAMPLE = "orders,0,120,499,1"


class Island(NamedTuple):
    """Offsets of one topic-partition, ``start <= offset < end``. The table has each of them `copies` times."""

    start: int
    end: int
    copies: int


Islands = Mapping[TopicPartition, Sequence[Island]]
"""The islands of each topic-partition, in order and without overlap."""


def load_islands(texts: Iterable[tuple[str, str]]) -> dict[TopicPartition, list[Island]]:
    """Read the results of queries over one table, or over several that belong together.

    >>> load_islands([("old.csv", "orders,0,0,9,1"), ("new.csv", "orders,0,8,19,1")])
    {TopicPartition(topic='orders', partition=0): [Island(start=0, end=8, copies=1), Island(start=8, end=10, copies=2), Island(start=10, end=20, copies=1)]}

    Args:
        texts: the name of each file, for messages, and what it holds.

    Raises:
        BadInputError: a line has another form.
    """
    changes: dict[TopicPartition, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for where, text in texts:
        for line, cells in csv_rows(where, text):
            if tuple(cells) == HEADER:
                continue
            tp, island = _row(line, cells)
            changes[tp][island.start] += island.copies
            changes[tp][island.end] -= island.copies
    return {tp: list(_islands(changes[tp])) for tp in sorted(changes)}


def _islands(changes: Mapping[int, int]) -> Iterator[Island]:
    # A change of 0 is where two equal islands touch: they become one.
    start, copies = 0, 0
    for offset, change in sorted(changes.items()):
        if not change:
            continue
        if copies:
            yield Island(start, offset, copies)
        start, copies = offset, copies + change


def _row(line: str, cells: Sequence[str]) -> tuple[TopicPartition, Island]:
    numbers = [int(cell) for cell in cells[1:] if NUMBER.fullmatch(cell)]
    if len(cells) == len(HEADER) and cells[0] and len(numbers) == len(HEADER) - 1:
        partition, first, last, copies = numbers
        if partition <= MAX_PARTITION and first <= last < MAX_OFFSET and copies:
            return TopicPartition(cells[0], partition), Island(first, last + 1, copies)
    raise BadInputError(
        f"{line}: expected {','.join(HEADER)} ({EXAMPLE}); got {name_some([repr(cell) for cell in cells], ', ')}"
    )


class Piece(NamedTuple):
    """A range of a topic-partition, and how often the table has each of its offsets; 0: not at all."""

    tp: TopicPartition
    offsets: OffsetRange
    copies: int


def pieces(islands: Sequence[Island], tp: TopicPartition, wanted: OffsetRange) -> Iterator[Piece]:
    """Divide an offset range into what a table has and what it does not have, in order.

    Args:
        islands: the topic-partition's islands that overlap the range; others are ignored.
        tp: the topic-partition.
        wanted: the range.
    """
    at = wanted.start
    for island in islands:
        start, end = max(island.start, at), min(island.end, wanted.end)
        if start >= end:
            continue
        if start > at:
            yield Piece(tp, OffsetRange(at, start), 0)
        yield Piece(tp, OffsetRange(start, end), island.copies)
        at = end
    if at < wanted.end:
        yield Piece(tp, OffsetRange(at, wanted.end), 0)
