"""Lays out who read what: a strip for each topic-partition, and a block in it for each window. Pure: rectangles are values.

A strip is 100 wide. The first `READ` of it are offsets that windows were cut for. The rest shows what no window has yet: as long as the
partition is behind, beside the one that is furthest behind. So nothing moves when Kafka's answer arrives.

There are two scales for the first part. By offset, a strip is what the partition's shown windows own, from the first to the last offset.
By time, all strips have one axis: a live window lies between the planned-until time of the window before it and its own, and what else there is lies
where its offsets are between those of live windows.
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
"""How much of a strip is for offsets that windows were cut for."""

LEAST = 0.35
"""The least width of a block that needs a look: open, lost, or without an owner."""


class Kind(StrEnum):
    """What a block is; the name of its color."""

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
    """What the width of a strip means."""

    OFFSET = "offset"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Block:
    """A rectangle in a strip.

    Attributes:
        kind: what it is.
        x, width: in hundredths of the strip.
        start, end: ``start <= offset < end``.
        seq: the number of its window; None: it has none.
        is_odd: whether it gets the second one of two shades, so that borders show.
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
    """What is shown of a topic-partition.

    Attributes:
        tp: which one.
        blocks: from back to front.
        first, last: the offsets at the edges of its first part, ``first <= offset < last``. Both are where the next window starts, if no
            window that is shown has anything of the partition.
        next: where the next live window starts: after a reset backwards, this is below `last`.
    """

    tp: TopicPartition
    blocks: tuple[Block, ...]
    first: int
    last: int
    next: int


@dataclass(frozen=True, slots=True)
class Tick:
    """A time below the strips: where, and when."""

    x: float
    at: datetime


class Piece(NamedTuple):
    """Offsets of one partition, with what became of them. A tuple, because a page makes 40,000 of them."""

    kind: Kind
    start: int
    end: int
    seq: int | None = None


_BY_OFFSET = attrgetter("start", "end")


def kind_of(window: Window) -> Kind | None:
    """Return how a window is drawn; None: it owns nothing and never did."""
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
"""Below these offsets, the ledger no longer knows who owned what: windows were pruned."""


class Layer(NamedTuple):
    """What a window owns, or what it lost. The ranges are a dictionary, because a page looks up 20,000 partitions in it."""

    kind: Kind
    seq: int
    ranges: Mapping[TopicPartition, OffsetRange]


def layers_of(windows: Iterable[Window]) -> list[Layer]:
    """Return what is drawn of some windows, oldest first, as their offsets are in order then."""
    found: list[Layer] = []
    for window in sorted(windows, key=attrgetter("seq")):
        kind = kind_of(window)
        if kind is None:
            continue
        if window.lost and kind is not SUPERSEDED:
            found.append(Layer(LOST, window.seq, dict(window.lost.items())))
        found.append(Layer(kind, window.seq, dict(window.ranges.items())))
    return found


def pieces_of(tp: TopicPartition, layers: Iterable[Layer], floor: int = 0) -> list[Piece]:
    """Return what windows own and lost of a partition, in the order of offsets. What lies between them and is no one's is a gap.

    One partition at a time: to keep the pieces of 20,000 would take Python's garbage collector longer than all the rest.

    Args:
        tp: the partition.
        layers: of some windows of a group: live windows that follow one another, and backfill windows.
        floor: below it, windows were pruned.
    """
    found: list[Piece] = []
    for kind, seq, ranges in layers:
        r = ranges.get(tp)
        if r is not None and r.end > r.start:
            found.append(Piece(kind, r.start, r.end, seq))
    return _with_gaps(found, floor) if len(found) > 1 else found


def read_in_a_row(tp: TopicPartition, layers: Iterable[Layer]) -> int | None:
    """Return how many offsets windows read of a partition, if each begins where the one before it ends; None: look at its pieces.

    So it is with nearly all partitions, and their pieces would only be counted: to make them takes four times as long.
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


def _with_gaps(some: list[Piece], floor: int) -> list[Piece]:
    some.sort(key=_BY_OFFSET)
    gaps: list[Piece] = []
    reached: int | None = None
    for kind, start, end, _ in some:
        if kind is SUPERSEDED:
            continue  # other windows own these offsets now, or no one does
        if reached is not None and start > reached:
            gaps += _gap(reached, start, floor)
        if reached is None or end > reached:
            reached = end
    return sorted(some + gaps, key=_BY_OFFSET) if gaps else some


def _gap(start: int, end: int, floor: int) -> list[Piece]:
    """Return what lies between two windows: below the floor, windows may have owned it that are gone."""
    middle = min(max(start, floor), end)
    both = (Piece(Kind.PRUNED, start, middle), Piece(GAP, middle, end))
    return [piece for piece in both if piece.end > piece.start]


def ends(windows: Iterable[Window], but: Offsets = MappingProxyType({})) -> dict[TopicPartition, int]:
    """Return the partitions that windows name, but for some, and the last offset that they reach in each."""
    found: dict[TopicPartition, int] = {}
    for window in windows:
        for tp, r in window.ranges.items():
            if tp not in but:
                found[tp] = max(r.end, found.get(tp, 0))
    return found


_Scale = Callable[[int], float]


def by_offset(first: int, last: int) -> _Scale:
    """Return where an offset lies, if the strip is the share of the log."""
    width = READ / max(1, last - first)
    return lambda offset: (offset - first) * width


def by_time(knots: Sequence[tuple[int, float]]) -> _Scale:
    """Return where an offset lies, if some offsets lie at known places: in between, in proportion.

    Args:
        knots: offsets and places; both grow.
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
    """Return where the ends of a partition's live windows lie on the axis of time.

    Args:
        windows: live windows that own their offsets, oldest first.
        tp: the partition.
        place: where a time lies.
        begins: where the first window begins; None: that is not known, and it has no width.
    """
    found: list[tuple[int, float]] = []
    cuts = [(before.planned_until, window) for before, window in pairwise(windows)]
    for before, window in cuts if begins is None else [(begins, windows[0]), *cuts]:
        r = window.ranges.get(tp)
        if r is None or r.end == r.start:
            continue
        if not found or r.start > found[-1][0]:
            found.append((r.start, max(place(before), found[-1][1] if found else 0.0)))
        found.append((r.end, max(place(window.planned_until), found[-1][1])))
    return found


@dataclass(frozen=True, slots=True)
class Figure:
    """All strips of a group.

    Attributes:
        strips: of the partitions that are unfolded, in their order.
        ticks: the times below them; none if the axis is of offsets.
        axis: what their width means.
    """

    strips: tuple[Strip, ...]
    ticks: tuple[Tick, ...]
    axis: Axis


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of a group's history some windows are.

    Attributes:
        has_oldest, has_newest: whether the oldest and the newest live window of the group are among them. If not, what lies below the
            oldest one, or above the newest one, is cut off: its neighbors are not there.
        start, end: the edges of the axis of time; None: the planned-until time of the oldest or newest live window among them.
        floors: what was pruned.
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
    known: Offsets | None = None,
) -> Figure:
    """Lay out strips.

    Args:
        windows: the windows to show, in any order.
        axis: what the width means. Without live windows of different planned-until times, it is of offsets.
        part: which part of the history the windows are.
        known: the partitions to show, and where the next window of each starts; None: those that the windows name.
    """
    live = sorted((w for w in windows if w.lane is Lane.LIVE and w.state.owns), key=lambda w: w.seq)
    wanted = ends(windows) if known is None else known
    time = _times(live, part) if axis is Axis.TIME else None
    layers = layers_of(windows)
    shown = {tp: _uncut(tp, pieces_of(tp, layers, part.floors.get(tp, 0)), live, part) for tp in sorted(wanted)}
    if known is not None and live and part.has_newest:
        shown = {tp: _with_left_out(some, known[tp]) for tp, some in shown.items()}
    # A partition without a block may be the one that is furthest behind.
    strips = [
        _strip(tp, some, live, time, part, wanted[tp]) if some else Strip(tp, (), *[wanted[tp]] * 3)
        for tp, some in shown.items()
    ]
    if time is None:
        return Figure(tuple(strips), (), Axis.OFFSET)
    return Figure(tuple(strips), ticks(*time), Axis.TIME)


def _times(live: Sequence[Window], part: Part) -> tuple[datetime, datetime] | None:
    """Return the edges of the axis of time; None: there is no such axis."""
    if not live:
        return None
    first, last = part.start or live[0].planned_until, part.end or live[-1].planned_until
    return (first, last) if first < last else None


def _uncut(tp: TopicPartition, some: Sequence[Piece], live: Sequence[Window], part: Part) -> Sequence[Piece]:
    """Return the pieces between the oldest and the newest live window, if these are not the ends of the history."""
    of_live = [window.ranges[tp] for window in live if tp in window.ranges]
    if not part.has_oldest:
        lowest = min((r.start for r in of_live), default=0)
        some = [piece for piece in some if piece.end > lowest]
    if not part.has_newest and of_live:
        highest = max(r.end for r in of_live)
        some = [piece for piece in some if piece.start < highest]
    return some


def _with_left_out(some: Sequence[Piece], next_offset: int) -> Sequence[Piece]:
    """Return pieces with what a reset forwards left out after the newest window."""
    reached = max((piece.end for piece in some if piece.kind is not Kind.SUPERSEDED), default=next_offset)
    return [*some, Piece(GAP, reached, next_offset)] if reached < next_offset else some


def _place(first: datetime, last: datetime) -> Callable[[datetime], float]:
    width = (last - first).total_seconds()
    return lambda at: READ * (at - first).total_seconds() / width


def _strip(
    tp: TopicPartition,
    some: Sequence[Piece],
    live: Sequence[Window],
    time: tuple[datetime, datetime] | None,
    part: Part,
    next_offset: int,
) -> Strip:
    first, last = min(piece.start for piece in some), max(piece.end for piece in some)
    scale = by_offset(first, last)
    if time is not None:
        knots = knots_of(live, tp, _place(*time), part.start)
        if len(knots) < 2:
            return Strip(tp, (), first, last, next_offset)
        scale = by_time(knots)
    blocks = [_block(piece, scale) for piece in some]
    shown = [block for block in blocks if block.width > 0]
    # What needs a look is drawn last: it may be thin.
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


_STEPS = tuple(
    timedelta(seconds=s)
    for s in (
        60,
        300,
        600,
        1800,
        3600,
        7200,
        10800,
        21600,
        43200,
        86400,
        172800,
        604800,
        1209600,
        2592000,
        7776000,
        31536000,
    )
)


def ticks(first: datetime, last: datetime, most: int = 6) -> tuple[Tick, ...]:
    """Return round times between two others, at most so many."""
    step = next((s for s in _STEPS if (last - first) / s <= most), _STEPS[-1])
    place, zero = _place(first, last), datetime(1970, 1, 5, tzinfo=first.tzinfo)  # a Monday
    at = zero + -((zero - first) // step) * step
    found: list[Tick] = []
    while at <= last and len(found) <= 2 * most:
        if at >= first:
            found.append(Tick(round(place(at), 2), at))
        at += step
    return tuple(found)
