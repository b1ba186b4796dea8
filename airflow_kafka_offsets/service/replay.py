"""Finds the windows of a replay in ledger and Kafka. Writes nothing (docs/design.md, rules 6 and 7)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.errors import name_some
from airflow_kafka_offsets.core.group import KafkaGroup, check_reads
from airflow_kafka_offsets.core.history import NEXT_WINDOW, first_ids
from airflow_kafka_offsets.core.plan import replay
from airflow_kafka_offsets.core.plan.ownership import GroupState
from airflow_kafka_offsets.core.plan.replay import Owned
from airflow_kafka_offsets.core.plan.request import Ranges, Replay, TimeSpan, Windows
from airflow_kafka_offsets.core.plan.search import first_above
from airflow_kafka_offsets.core.ranges import OffsetRanges
from airflow_kafka_offsets.core.window import OWNING, Lane, State, Window, WindowRecord

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger

logger = logging.getLogger(__name__)


FIRST_PAGE, LONGEST_PAGE = 10, 1_000
PARTITIONS_PER_PAGE = 20_000


def rows(
    ledger: Ledger, group: str, *, before: int | None = None, limit: int = FIRST_PAGE, **wanted: Any
) -> Iterator[WindowRecord]:
    """Return windows with their history in short, newest first, however many there are and however large they are.

    Args:
        ledger: the ledger.
        group: the group's name.
        before: as in `Ledger.windows`.
        limit: how many the first page has.
        wanted: as in `Ledger.windows`.
    """
    while page := ledger.windows(group, before=before, limit=limit, **wanted):
        yield from page
        newest, oldest = page[0].window, page[-1].window
        limit = min(LONGEST_PAGE, _page_of(len(newest.ranges)))
        before = oldest.seq


def _page_of(partitions: int) -> int:
    """Return how many windows of so many partitions a page should have."""
    return 1 + PARTITIONS_PER_PAGE // (1 + partitions)


def pages(ledger: Ledger, group: str, **wanted: Any) -> Iterator[WindowRecord]:
    """Return windows, newest first, however many there are."""
    return (row for row in rows(ledger, group, **wanted))


def from_oldest_open(ledger: Ledger, group: str, state: GroupState) -> tuple[WindowRecord, ...]:
    """Return the live windows from the oldest open one on, oldest first: some may have been committed behind it."""
    if not state.open:
        return ()
    newest_first = pages(ledger, group, states=tuple(OWNING), lane=Lane.LIVE, since=state.open[0].seq)
    return tuple(newest_first)[::-1]


def live_windows(
    ledger: Ledger, group: str, ranges: OffsetRanges, topic_ids: Mapping[str, str]
) -> Iterator[WindowRecord]:
    """Return committed live windows, among them all that own any of these offsets.

    How much is read depends on how far the owners lie from one another, and not on how long the history is: see `core.plan.search`.
    """
    newest = ledger.excerpt(group, ranges)
    if newest is None:
        return
    for first, end in stretches_of(ledger, group, newest.seq + 1):
        top = newest if first <= newest.seq < end else ledger.excerpt(group, ranges, before=end, since=first)
        if top is None:
            continue
        # What this stretch does not name, or names in an earlier topic, no older one has.
        ranges = replay.ever_planned(ranges, top.window, topic_ids)
        if not ranges:
            return
        above = end
        if replay.lies_above(top.window, ranges, topic_ids):
            look = partial(_look, ledger, group, ranges, first)
            above = first_above(top.window, first, ranges, topic_ids, look)
        which: dict[str, Any] = {"states": (State.COMMITTED,), "lane": Lane.LIVE, "since": first, "before": above}
        for held in pages(ledger, group, limit=min(FIRST_PAGE, _page_of(newest.partitions)), **which):
            yield held
            ranges = replay.left_to_find(ranges, held.window, topic_ids)
            if not ranges:
                return


def stretches_of(ledger: Ledger, group: str, end: int) -> list[tuple[int, int]]:
    """Return from where and up to which number windows start in the order of their numbers, the newest stretch first.

    Args:
        ledger: the ledger.
        group: the group's name.
        end: windows from this number on are left out.
    """
    # After a reset back, windows start again where earlier ones have been. An empty one of these may stay there, as it owns nothing.
    moves = ledger.moves(group)
    firsts = {1, *(int(act.details[NEXT_WINDOW]) for act in moves if NEXT_WINDOW in act.details)}
    return list(pairwise((*sorted(first for first in firsts if first < end), end)))[::-1]


def _look(ledger: Ledger, group: str, ranges: OffsetRanges, first: int, seq: int) -> Window | None:
    record = ledger.excerpt(group, ranges, before=seq + 1, since=first)
    return None if record is None else record.window


def find(
    ledger: Ledger,
    group: KafkaGroup,
    request: Replay,
    state: GroupState,
    between: OffsetRanges | None,
    own: Sequence[WindowRecord] = (),
) -> Owned:
    """Search the ledger for the windows that own the offsets of a replay, and for offsets without an owner.

    Args:
        ledger: the ledger.
        group: the group.
        request: the replay.
        state: where the group is.
        between: the offsets of a time span, see `core.plan.replay.between_times`, or None for another replay.
        own: the windows that the run has; what the live lane will read is left out then.

    Raises:
        BadInputError: the request is unknown or empty, or its windows have left the ledger; with the numbers.
        IllegalStepError: a window that is named can't be replayed.
    """
    match request:
        case Windows(seqs):
            return Owned(_named(ledger, group.name, seqs))
        case TimeSpan():
            assert between is not None
            had = {held.seq for held in own}
            windows = [held for held in _cut_in(ledger, group.name, request) if held.seq not in had]
            # After the search, as some may have left meanwhile.
            ledger.pruned(group.name).check_span(request.start)
            ranges = replay.below_watermark(between, state) if own else between
            owners, gaps = _owners(ledger, group.name, ranges, state, own)
            return Owned(windows, gaps, owners)
        case Ranges(ranges):
            check_reads(group, (tp.topic for tp in ranges))
            if not ranges.span:
                raise replay.nothing_to_replay("the offset ranges are empty")
            owners, gaps = _owners(ledger, group.name, ranges, state)
            return Owned(owners, gaps)


def _named(ledger: Ledger, group: str, seqs: Sequence[int]) -> list[WindowRecord]:
    rows = {row.seq: row for row in ledger.windows(group, seqs=seqs, limit=len(seqs))}
    if missing := [seq for seq in seqs if seq not in rows]:
        raise ledger.absent(group, missing)
    for held in rows.values():
        replay.check_replayable(held.window)
    if windows := [rows[seq] for seq in seqs if rows[seq].span]:
        return windows
    raise replay.nothing_to_replay(f"{name_some([rows[seq].id for seq in seqs], ', ')}: no records")


def _cut_in(ledger: Ledger, group: str, span: TimeSpan) -> list[WindowRecord]:
    """Return the windows that belong to a span, oldest first."""
    windows = pages(ledger, group, states=tuple(OWNING), cut_in=(span.start, span.end))
    return sorted(
        (held for held in windows if replay.has_replay(held.window)),
        key=lambda held: held.seq,
    )


def _owners(
    ledger: Ledger, group: str, ranges: OffsetRanges, state: GroupState, own: Sequence[WindowRecord] = ()
) -> tuple[list[WindowRecord], replay.Gaps]:
    """Return the windows that own any of these offsets and can be replayed, oldest first, and the offsets without an owner."""
    assert state.position
    topic_ids = state.position.topic_ids
    candidates = chain(
        pages(ledger, group, states=tuple(OWNING), lane=Lane.BACKFILL),
        live_windows(ledger, group, ranges.without_empty(), topic_ids),
    )
    windows: Sequence[WindowRecord] = ()
    ids: Mapping[str, str] = {}
    if ranges.span:
        with ledger.one_connection():
            ids = first_ids(topic_ids, (act.details for act in ledger.moves(group)))
            windows = replay.overlapping(ranges, candidates, topic_ids, ids)
    owners = sorted(windows, key=lambda held: held.seq)
    gaps = replay.without_owner(ranges, [held.window.identified(ids) for held in (*own, *owners)], topic_ids)
    if gaps:  # after the search for owners: a window that left in between has raised the floors before
        ledger.pruned(group).check_gaps(gaps, topic_ids)
    return owners, gaps
