"""Lays out many partitions: a row of cells for each topic, and the partitions that need a look most. Pure: cells are values."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from airflow_kafka_offsets.core.lag.lag import PartitionLag
from airflow_kafka_offsets.core.lag.pace import Pace
from airflow_kafka_offsets.core.lag.verdict import urgency
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.page.strips import GAP, LOST, SUPERSEDED, Kind, Layer, Piece, pieces_of, read_in_a_row
from airflow_kafka_offsets.service.pictures import MOST_STRIPS

FOLDED_FROM = MOST_STRIPS + 1
"""With so many partitions, only the worst have a strip of their own."""

WORST = 20
"""How many partitions have a strip of their own then."""

CELLS = 200
"""The most cells of a topic. With more partitions, neighbors share one."""


class Shade(StrEnum):
    """The state of partitions, from best to worst."""

    QUIET = "quiet"
    READ = "read"
    GAP = "gap"
    RISK = "risk"
    LOST = "lost"


_ORDER = {shade: i for i, shade in enumerate(Shade)}
_OF_URGENCY = (Shade.QUIET, Shade.RISK, Shade.LOST)
"""By the first number of `core.lag.verdict.urgency`."""


class PartitionState(NamedTuple):
    """A partition as a cell shows it. A tuple, because a page makes one for each partition.

    Attributes:
        shade: its worst block.
        lag: how many offsets it is behind; None if Kafka did not answer.
        recent: how many offsets the shown windows read.
        lost: how many offsets retention has taken that no window has noted.
        urgency: how much it needs a look, see `core.lag.verdict.urgency`.
        danger: lost, at risk or quiet, by Kafka's answer.
    """

    shade: Shade
    lag: int | None = None
    recent: int = 0
    lost: int = 0
    urgency: tuple[int, float, int] = (0, 0.0, 0)
    danger: Shade = Shade.QUIET


@dataclass(frozen=True, slots=True)
class Cell:
    """Some neighboring partitions of a topic.

    Attributes:
        x, width: in hundredths of the row.
        first, last: the partitions, both included.
        shade: the worst of their blocks.
        danger: the worst of their dangers.
        level: 0 to 4, how strong its color is: by lag, or by the offsets that were read if there is no lag.
        lag: the sum; None if no partition has a lag.
        recent: the sum.
        lost: the sum.
    """

    x: float
    width: float
    first: int
    last: int
    shade: Shade
    level: int
    lag: int | None
    recent: int
    danger: Shade = Shade.QUIET
    lost: int = 0

    @property
    def worst(self) -> Shade:
        """The color."""
        return max(self.shade, self.danger, key=_ORDER.__getitem__)


@dataclass(frozen=True, slots=True)
class Row:
    """A topic."""

    topic: str
    partitions: int
    cells: tuple[Cell, ...]


_UNREAD = (SUPERSEDED, Kind.PRUNED)
# Names of their own, and no sets: a member of an enum is slow to look up and to hash, and this is done for 20,000 partitions.
_QUIET, _READ, _GAP, _LOST = Shade.QUIET, Shade.READ, Shade.GAP, Shade.LOST
_NO_PACE = Pace()


def state_of(
    tp: TopicPartition,
    layers: Sequence[Layer] = (),
    floor: int = 0,
    lag: PartitionLag | None = None,
    pace: Pace = _NO_PACE,
) -> PartitionState:
    """Return a partition as a cell shows it.

    Args:
        tp: the partition.
        layers: of the windows that are shown.
        floor: as in `strips.Floors`; 0 if there is none.
        lag: Kafka's answer; None if there is none.
        pace: how fast its group commits.
    """
    read = read_in_a_row(tp, layers)
    shade, recent = in_all(pieces_of(tp, layers, floor)) if read is None else (_READ if read else _QUIET, read)
    if lag is None:
        return PartitionState(shade, None, recent)
    urgent = urgency(lag, pace)
    return PartitionState(shade, lag.lag, recent, lag.lost, urgent, _OF_URGENCY[urgent[0]])


def in_all(pieces: Sequence[Piece]) -> tuple[Shade, int]:
    """Return the worst of a partition's pieces, and how many offsets windows read."""
    shade, recent = _READ if pieces else _QUIET, 0
    for kind, start, end, _ in pieces:
        if kind is LOST:
            shade = _LOST
        elif kind is GAP:
            shade = _GAP if shade is _READ else shade
        elif kind not in _UNREAD:
            recent += end - start
    return shade, recent


def rows(states: Mapping[TopicPartition, PartitionState]) -> list[Row]:
    """Return a row of cells for each topic."""
    of_topic: dict[str, list[TopicPartition]] = {}
    for tp in sorted(states):
        of_topic.setdefault(tp.topic, []).append(tp)
    shares = {topic: _shares(tps, states) for topic, tps in of_topic.items()}
    most_lag = max((lag for cells in shares.values() for _, _, _, lag, *_ in cells if lag is not None), default=0)
    most_read = max((recent for cells in shares.values() for *_, recent, _, _ in cells), default=0)
    return [Row(topic, len(of_topic[topic]), _cells(cells, most_lag, most_read)) for topic, cells in shares.items()]


_Share = tuple[int, int, Shade, int | None, int, Shade, int]


def _shares(tps: Sequence[TopicPartition], states: Mapping[TopicPartition, PartitionState]) -> list[_Share]:
    """Return first and last partition, shade, lag, recent, danger and lost of each cell."""
    size = -(-len(tps) // CELLS)
    shares: list[_Share] = []
    for start in range(0, len(tps), size):
        neighbors = tps[start : start + size]
        cell = [states[tp] for tp in neighbors]
        lags = [state.lag for state in cell if state.lag is not None]
        shade, danger = _worst_of([state.shade for state in cell]), _worst_of([state.danger for state in cell])
        recent, lost = sum(state.recent for state in cell), sum(state.lost for state in cell)
        lag = sum(lags) if lags else None
        shares.append((neighbors[0].partition, neighbors[-1].partition, shade, lag, recent, danger, lost))
    return shares


def _worst_of(shades: Sequence[Shade]) -> Shade:
    first = shades[0]
    # Nearly always they are all the same, and to compare them is quicker than to look each of them up.
    return first if shades.count(first) == len(shades) else max(shades, key=_ORDER.__getitem__)


def _cells(shares: Sequence[_Share], most_lag: int, most_read: int) -> tuple[Cell, ...]:
    width = 100.0 / max(1, len(shares))
    return tuple(
        Cell(
            round(i * width, 3),
            round(width, 3),
            first,
            last,
            shade,
            _level(lag, most_lag) if lag is not None else _level(recent, most_read),
            lag,
            recent,
            danger,
            lost,
        )
        for i, (first, last, shade, lag, recent, danger, lost) in enumerate(shares)
    )


def _level(value: int, most: int) -> int:
    return min(4, 1 + 3 * value // most) if value and most else 0


def worst(states: Mapping[TopicPartition, PartitionState], most: int = WORST) -> list[TopicPartition]:
    """Return the partitions that need a look most, in their order.

    Partitions that lost records or are at risk come first. Then those with a loss or a gap in the ledger, the largest lag, the most
    offsets read.
    """

    def weight(tp: TopicPartition) -> tuple[int, float, int, int, int]:
        state = states[tp]
        trouble = 2 if state.shade is _LOST else 1 if state.shade is _GAP else 0
        how_bad, how_much, _ = state.urgency
        return how_bad, how_much, trouble, state.lag or 0, state.recent

    return sorted(heapq.nlargest(most, sorted(states), key=weight))
