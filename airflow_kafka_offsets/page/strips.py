"""The layout of the page's strips: a strip for each topic-partition, and a block in it for each window. Pure: rectangles are values.

A strip is 100 wide. The first `READ` of it are offsets that windows own. The rest shows the lag, in proportion to the partition that is
furthest behind. So nothing moves when Kafka's answer arrives.

The first part has two scales. By offset, it reaches from the first to the last offset of the shown windows. By time, all strips have one
axis: a live window lies between the planned-until time of the window before it and its own. All else is placed by its offsets,
between those of live windows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition
from airflow_kafka_offsets.core.ranges import OffsetRange
from airflow_kafka_offsets.core.window import Lane, State, Window

READ = 90.0
"""How much of a strip is for offsets that windows own."""

LEAST = 0.35
"""The least width of a block that needs a look: open, lost, or without an owner."""


class Kind(StrEnum):
    """What a block is, and the name of its color."""

    COMMITTED = "committed"
    OPEN = "open"
    BACKFILL = "backfill"
    OPEN_BACKFILL = "open-backfill"
    SUPERSEDED = "superseded"
    LOST = "lost"
    GAP = "gap"
    PRUNED = "pruned"


# Names of their own: before Python 3.12, to look a member up in its class takes four times as long, and this is done for each piece.
SUPERSEDED, LOST, GAP = Kind.SUPERSEDED, Kind.LOST, Kind.GAP
_NEEDS_A_LOOK = frozenset({Kind.OPEN, Kind.OPEN_BACKFILL, Kind.LOST, Kind.GAP})


class Axis(StrEnum):
    """The meaning of a strip's width."""

    OFFSET = "offset"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Block:
    """A rectangle in a strip.

    Attributes:
        kind: committed, open and so on.
        x, width: in hundredths of the strip.
        start, end: ``start <= offset < end``.
        seq: the number of its window; None if no window owns it.
        is_odd: whether it gets the second of two shades, so that borders show.
    """

    kind: Kind
    x: float
    width: float
    start: int
    end: int
    seq: int | None = None
    is_odd: bool = False


@dataclass(frozen=True, slots=True)
class Strip:
    """A topic-partition as it is drawn.

    Attributes:
        tp: the partition.
        blocks: from back to front.
        first, last: the edges of its first part, ``first <= offset < last``. Without a block, both are `next`.
        next: where the next live window starts: after a reset backwards, this is below `last`.
    """

    tp: TopicPartition
    blocks: tuple[Block, ...]
    first: int
    last: int
    next: int


@dataclass(frozen=True, slots=True)
class Tick:
    """A time below the strips."""

    x: float
    at: datetime


class Piece(NamedTuple):
    """Offsets of one partition. A tuple, because a page makes 40,000 of them."""

    kind: Kind
    start: int
    end: int
    seq: int | None = None


_BY_OFFSET = attrgetter("start", "end")


def kind_of(window: Window) -> Kind | None:
    """Return how a window is drawn; None if it is not."""
    match window.state, window.lane:
        case State.ABANDONED, _:
            return None
        case State.SUPERSEDED, _:
            return Kind.SUPERSEDED
        case State.COMMITTED, Lane.LIVE:
            return Kind.COMMITTED
        case State.COMMITTED, _:
            return Kind.BACKFILL
        case _, Lane.LIVE:
            return Kind.OPEN
        case _:
            return Kind.OPEN_BACKFILL


Floors = Mapping[TopicPartition, int]
"""Below these offsets, the ledger has lost the owners (`core.plan.pruning`)."""


class Layer(NamedTuple):
    """The offsets that a window owns, or that it lost. A dictionary, because a page looks up 20,000 partitions in it."""

    kind: Kind
    seq: int
    ranges: Mapping[TopicPartition, OffsetRange]


def layers_of(windows: Iterable[Window]) -> list[Layer]:
    """Return the layers of windows, oldest first: so their offsets are in order."""
    layers: list[Layer] = []
    for window in sorted(windows, key=attrgetter("seq")):
        kind = kind_of(window)
        if kind is None:
            continue
        if window.lost and kind is not SUPERSEDED:
            layers.append(Layer(LOST, window.seq, dict(window.lost.items())))
        layers.append(Layer(kind, window.seq, dict(window.ranges.items())))
    return layers


def pieces_of(tp: TopicPartition, layers: Iterable[Layer], floor: int = 0) -> list[Piece]:
    """Return the pieces of a partition in the order of offsets, with the gaps between them.

    One partition at a time: to keep the pieces of 20,000 would take Python's garbage collector longer than all the rest.

    Args:
        tp: the partition.
        layers: of live windows that follow one another, and of backfill windows.
        floor: as in `Floors`; 0 if there is none.
    """
    pieces: list[Piece] = []
    for kind, seq, ranges in layers:
        r = ranges.get(tp)
        if r is not None and r.end > r.start:
            pieces.append(Piece(kind, r.start, r.end, seq))
    return _with_gaps(pieces, floor) if len(pieces) > 1 else pieces


def read_in_a_row(tp: TopicPartition, layers: Iterable[Layer]) -> int | None:
    """Return how many offsets windows read of a partition; None if one does not begin where the one before it ends.

    Nearly all partitions have such a row, and to make their pieces only to count them takes four times as long.
    """
    read, reached = 0, None
    for kind, _, ranges in layers:
        r = ranges.get(tp)
        if r is None:
            continue
        start, end = r
        if start == end:
            continue
        if kind is LOST or kind is SUPERSEDED or (reached is not None and reached != start):
            return None
        read, reached = read + end - start, end
    return read


def _with_gaps(pieces: list[Piece], floor: int) -> list[Piece]:
    pieces.sort(key=_BY_OFFSET)
    gaps: list[Piece] = []
    reached: int | None = None
    for kind, start, end, _ in pieces:
        if kind is SUPERSEDED:
            continue  # other windows own these offsets now, or no one does
        if reached is not None and start > reached:
            gaps += _gap(reached, start, floor)
        if reached is None or end > reached:
            reached = end
    return sorted(pieces + gaps, key=_BY_OFFSET) if gaps else pieces


def _gap(start: int, end: int, floor: int) -> list[Piece]:
    """Return the pieces between two windows. Below the floor, windows that have left the ledger may have owned it."""
    middle = min(max(start, floor), end)
    both = (Piece(Kind.PRUNED, start, middle), Piece(GAP, middle, end))
    return [piece for piece in both if piece.end > piece.start]


def ends(windows: Iterable[Window], but: Offsets = MappingProxyType({})) -> dict[TopicPartition, int]:
    """Return the last offset that windows reach in each partition, except for those in `but`."""
    reached: dict[TopicPartition, int] = {}
    for window in windows:
        for tp, r in window.ranges.items():
            if tp not in but:
                reached[tp] = max(r.end, reached.get(tp, 0))
    return reached


_Scale = Callable[[int], float]


def by_offset(first: int, last: int) -> _Scale:
    """Return the scale of a strip whose width is offsets."""
    width = READ / max(1, last - first)
    return lambda offset: (offset - first) * width


def by_time(knots: Sequence[tuple[int, float]]) -> _Scale:
    """Return the scale through some points: between two of them, in proportion.

    Args:
        knots: offsets and their x; both grow.
    """
    offsets = [offset for offset, _ in knots]

    def place(offset: int) -> float:
        i = min(max(1, bisect_right(offsets, offset)), len(knots) - 1)
        (o1, x1), (o2, x2) = knots[i - 1], knots[i]
        return x1 + (offset - o1) * (x2 - x1) / max(1, o2 - o1)

    return place


def knots_of(
    windows: Sequence[Window], tp: TopicPartition, place: Callable[[datetime], float], begins: datetime | None = None
) -> list[tuple[int, float]]:
    """Return where the edges of a partition's live windows lie on the axis of time.

    Args:
        windows: live windows that own their offsets, oldest first.
        tp: the partition.
        place: returns the x of a time.
        begins: where the first window begins; None if unknown, and it has no width.
    """
    knots: list[tuple[int, float]] = []
    cuts = [(before.planned_until, window) for before, window in pairwise(windows)]
    for before, window in cuts if begins is None else [(begins, windows[0]), *cuts]:
        r = window.ranges.get(tp)
        if r is None or r.end == r.start:
            continue
        if not knots or r.start > knots[-1][0]:
            knots.append((r.start, max(place(before), knots[-1][1] if knots else 0.0)))
        knots.append((r.end, max(place(window.planned_until), knots[-1][1])))
    return knots


@dataclass(frozen=True, slots=True)
class Figure:
    """All strips of a group.

    Attributes:
        strips: of the unfolded partitions, in their order.
        ticks: the times below them; none if the axis is of offsets.
        axis: the meaning of their width.
    """

    strips: tuple[Strip, ...]
    ticks: tuple[Tick, ...]
    axis: Axis


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a group's history that is drawn.

    Attributes:
        has_oldest, has_newest: whether it has the oldest and the newest live window of the group. If not, pieces beyond its own live windows
            are cut off: their neighbors are not there.
        start, end: the edges of the axis of time; None for the planned-until time of the oldest or newest live window.
        floors: see `Floors`.
    """

    has_oldest: bool = True
    has_newest: bool = True
    start: datetime | None = None
    end: datetime | None = None
    floors: Floors = field(default_factory=dict)


ALL = Part()


def figure(
    windows: Collection[Window],
    axis: Axis = Axis.OFFSET,
    part: Part = ALL,
    starts: Offsets | None = None,
) -> Figure:
    """Lay out strips.

    Args:
        windows: the windows to show, in any order.
        axis: the meaning of the width. Without live windows of different planned-until times, it is of offsets.
        part: the part of the history that the windows are.
        starts: the partitions to show, and where the next window of each starts; None for those that the windows name.
    """
    live = sorted((w for w in windows if w.lane is Lane.LIVE and w.state.owns), key=lambda w: w.seq)
    wanted = ends(windows) if starts is None else starts
    time = _times(live, part) if axis is Axis.TIME else None
    layers = layers_of(windows)
    shown = {tp: _uncut(tp, pieces_of(tp, layers, part.floors.get(tp, 0)), live, part) for tp in sorted(wanted)}
    if starts is not None and live and part.has_newest:
        shown = {tp: _with_left_out(pieces, starts[tp]) for tp, pieces in shown.items()}
    # A partition without a block may be the one that is furthest behind.
    strips = [
        _strip(tp, pieces, live, time, part, wanted[tp]) if pieces else Strip(tp, (), *[wanted[tp]] * 3)
        for tp, pieces in shown.items()
    ]
    if time is None:
        return Figure(tuple(strips), (), Axis.OFFSET)
    return Figure(tuple(strips), ticks(*time), Axis.TIME)


def _times(live: Sequence[Window], part: Part) -> tuple[datetime, datetime] | None:
    """Return the edges of the axis of time; None if it has no width."""
    if not live:
        return None
    first, last = part.start or live[0].planned_until, part.end or live[-1].planned_until
    return (first, last) if first < last else None


def _uncut(tp: TopicPartition, pieces: Sequence[Piece], live: Sequence[Window], part: Part) -> Sequence[Piece]:
    """Return the pieces between the oldest and the newest live window, if these are not the ends of the history."""
    of_live = [window.ranges[tp] for window in live if tp in window.ranges]
    if not part.has_oldest:
        lowest = min((r.start for r in of_live), default=0)
        pieces = [piece for piece in pieces if piece.end > lowest]
    if not part.has_newest and of_live:
        highest = max(r.end for r in of_live)
        pieces = [piece for piece in pieces if piece.start < highest]
    return pieces


def _with_left_out(pieces: Sequence[Piece], next_offset: int) -> Sequence[Piece]:
    """Return pieces with the gap that a reset forwards left after the newest window."""
    reached = max((piece.end for piece in pieces if piece.kind is not Kind.SUPERSEDED), default=next_offset)
    return [*pieces, Piece(GAP, reached, next_offset)] if reached < next_offset else pieces


def _place(first: datetime, last: datetime) -> Callable[[datetime], float]:
    width = (last - first).total_seconds()
    return lambda at: READ * (at - first).total_seconds() / width


def _strip(
    tp: TopicPartition,
    pieces: Sequence[Piece],
    live: Sequence[Window],
    time: tuple[datetime, datetime] | None,
    part: Part,
    next_offset: int,
) -> Strip:
    first, last = min(piece.start for piece in pieces), max(piece.end for piece in pieces)
    scale = by_offset(first, last)
    if time is not None:
        knots = knots_of(live, tp, _place(*time), part.start)
        if len(knots) < 2:
            return Strip(tp, (), first, last, next_offset)
        scale = by_time(knots)
    blocks = [_block(piece, scale) for piece in pieces]
    shown = [block for block in blocks if block.width > 0]
    # A block that needs a look may be thin, so it is drawn last.
    shown.sort(key=lambda block: (block.kind in _NEEDS_A_LOOK, block.kind is Kind.SUPERSEDED))
    return Strip(tp, tuple(shown), first, last, next_offset)


def _block(piece: Piece, scale: _Scale) -> Block:
    start, end = (min(max(0.0, scale(offset)), READ) for offset in (piece.start, piece.end))
    width = end - start
    if piece.kind in _NEEDS_A_LOOK and end > 0 and width < LEAST:
        width = LEAST
        start = min(start, READ - LEAST)
    return Block(
        piece.kind,
        round(start, 3),
        round(width, 3),
        piece.start,
        piece.end,
        piece.seq,
        bool(piece.seq and piece.seq % 2),
    )


_MINUTES = (1, 5, 10, 30, 60, 120, 180, 360, 720)
_DAYS = (1, 2, 7, 14, 30, 90, 365)
_STEPS = (*(timedelta(minutes=m) for m in _MINUTES), *(timedelta(days=d) for d in _DAYS))


def ticks(first: datetime, last: datetime, most: int = 6) -> tuple[Tick, ...]:
    """Return round times from `first` to `last`."""
    step = next((s for s in _STEPS if (last - first) / s <= most), _STEPS[-1])
    place, zero = _place(first, last), datetime(1970, 1, 5, tzinfo=first.tzinfo)  # a Monday
    at = zero + -((zero - first) // step) * step
    times: list[Tick] = []
    while at <= last and len(times) <= 2 * most:
        if at >= first:
            times.append(Tick(round(place(at), 2), at))
        at += step
    return tuple(times)
