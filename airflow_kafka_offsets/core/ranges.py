"""Ranges of offsets: what a window owns."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar, overload

from airflow_kafka_offsets.core.errors import BadInputError, name_some, short
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition, is_whole

_T = TypeVar("_T")


class _Edges(NamedTuple):
    start: int
    end: int


class OffsetRange(_Edges):
    """``start <= offset < end`` of one topic-partition (Spark: startingOffsets, endingOffsets).

    It is a tuple, because a window may have 20,000. `_make` builds it from numbers that are known to be right, without a look at them.
    """

    __slots__ = ()

    def __new__(cls, start: int, end: int) -> OffsetRange:
        """Check the two.

        Raises:
            BadInputError: they are not whole numbers, negative, or in the wrong order.
        """
        if not (type(start) is int and type(end) is int and 0 <= start <= end):
            _check(start, end)
        return tuple.__new__(cls, (start, end))

    @property
    def span(self) -> int:
        """``end - start``: an upper bound on the records, because some offsets may hold none."""
        return self.end - self.start

    def shared_with(self, other: OffsetRange) -> OffsetRange | None:
        """Return the offsets that both have, or None if they have none in common."""
        start, end = max(self.start, other.start), min(self.end, other.end)
        return OffsetRange(start, end) if start < end else None

    def __str__(self) -> str:
        return f"[{self.start}, {self.end})"


def _check(start: object, end: object) -> None:
    if not is_whole(start) or not is_whole(end):
        raise BadInputError(f"An offset must be a whole number, got {short(start)} to {short(end)}")
    if start < 0:
        raise BadInputError(f"An offset range can't start at {start}")
    if end < start:
        raise BadInputError(f"An offset range can't end at {end}, before its start {start}")


class OffsetRanges(Mapping[TopicPartition, OffsetRange]):
    """The offset range of each of some topic-partitions, in their order; immutable.

    A partition with nothing to read has an empty range, because its ``end`` is where the next window starts.
    """

    __slots__ = ("_ranges", "_span")

    def __init__(self, ranges: Mapping[TopicPartition, OffsetRange] | Iterable[tuple[TopicPartition, OffsetRange]]):
        given: dict[TopicPartition, OffsetRange] = dict(ranges)
        in_order = sorted(given)
        # Most are in order, and to build the dictionary again would take as long as all the rest.
        self._ranges = given if in_order == list(given) else {tp: given[tp] for tp in in_order}
        self._span: int | None = None

    @classmethod
    def between(cls, starts: Offsets, ends: Offsets) -> OffsetRanges:
        """Build ranges from a start and an end for the same partitions.

        Raises:
            BadInputError: a partition has only one of the two, or its end lies before its start.
        """
        if starts.keys() != ends.keys():
            odd = sorted(starts.keys() ^ ends.keys())
            raise BadInputError(f"Start and end must name the same partitions; only one names {name_some(odd, ', ')}")
        for tp, start in starts.items():
            if ends[tp] < start:
                raise BadInputError(f"{tp}: the end offset {ends[tp]} lies before the start offset {start}")
        return cls((tp, OffsetRange(start, ends[tp])) for tp, start in starts.items())

    @property
    def starts(self) -> dict[TopicPartition, int]:
        """The start of each range."""
        return {tp: r.start for tp, r in self._ranges.items()}

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """The end of each range: where the next window starts."""
        return {tp: r.end for tp, r in self._ranges.items()}

    @property
    def span(self) -> int:
        """The sum of all spans: an upper bound on the records. Added up once: a page asks four times for that of each window."""
        if self._span is None:
            self._span = sum(r.end - r.start for r in self._ranges.values())
        return self._span

    def without_empty(self) -> OffsetRanges:
        """Return only the ranges that hold an offset: what a job has to read."""
        return OffsetRanges((tp, r) for tp, r in self._ranges.items() if r.end > r.start)

    def __getitem__(self, tp: TopicPartition) -> OffsetRange:
        return self._ranges[tp]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._ranges)

    def items(self) -> ItemsView[TopicPartition, OffsetRange]:
        """Return the pairs: those of the dictionary, as a mapping's own would look up each of 20,000 partitions."""
        return self._ranges.items()

    @overload
    def get(self, tp: TopicPartition, /) -> OffsetRange | None: ...
    @overload
    def get(self, tp: TopicPartition, /, default: OffsetRange | _T) -> OffsetRange | _T: ...
    def get(self, tp: TopicPartition, /, default: OffsetRange | _T | None = None) -> OffsetRange | _T | None:
        """Return the range of a partition, or a default: a mapping's own would raise and catch for each that is not there."""
        return self._ranges.get(tp, default)

    def __len__(self) -> int:
        return len(self._ranges)

    def __repr__(self) -> str:
        return f"OffsetRanges({self._ranges!r})"


def named_ranges(ranges: OffsetRanges) -> dict[str, list[int]]:
    """Return ranges as the record of an act has them: ``{"orders-0": [start, end]}``."""
    return {str(tp): [r.start, r.end] for tp, r in ranges.items()}
