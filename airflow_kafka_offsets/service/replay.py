"""Finds the windows of a replay in ledger and Kafka. Writes nothing (docs/design.md, rules 6 and 7)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.errors import NotYetError, name_some
from airflow_kafka_offsets.core.group import KafkaGroup, check_reads
from airflow_kafka_offsets.core.history import NEXT_WINDOW, WindowRow
from airflow_kafka_offsets.core.log import LogSnapshot
from airflow_kafka_offsets.core.offsets import topics_of
from airflow_kafka_offsets.core.plan import pruning, replay
from airflow_kafka_offsets.core.plan.ownership import GroupState
from airflow_kafka_offsets.core.plan.planning import Plan
from airflow_kafka_offsets.core.plan.request import Ranges, Replay, TimeSpan, Windows
from airflow_kafka_offsets.core.plan.search import first_above
from airflow_kafka_offsets.core.ranges import OffsetRanges
from airflow_kafka_offsets.core.starting import EPOCH
from airflow_kafka_offsets.core.window import OWNING, Excerpt, Lane, State, WindowRecord
from airflow_kafka_offsets.ports import LogOffsets
from airflow_kafka_offsets.service.topics import topics_now

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger

logger = logging.getLogger(__name__)


FIRST_PAGE, LONGEST_PAGE = 10, 1_000
PARTITIONS_PER_PAGE = 20_000


def rows(
    ledger: Ledger, group: str, *, before: int | None = None, limit: int = FIRST_PAGE, **wanted: Any
) -> Iterator[WindowRow]:
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
        newest, oldest = page[0].held.window, page[-1].held.window
        limit = min(LONGEST_PAGE, _page_of(len(newest.ranges)))
        before = oldest.seq


def _page_of(partitions: int) -> int:
    """Return how many windows of so many partitions a page should have."""
    return 1 + PARTITIONS_PER_PAGE // (1 + partitions)


def pages(ledger: Ledger, group: str, **wanted: Any) -> Iterator[WindowRecord]:
    """Return windows, newest first, however many there are."""
    return (row.held for row in rows(ledger, group, **wanted))


def from_oldest_open(ledger: Ledger, group: str, state: GroupState) -> tuple[WindowRecord, ...]:
    """Return the live windows from the oldest open one on, oldest first: some may have been committed behind it."""
    if not state.open:
        return ()
    newest_first = pages(ledger, group, states=tuple(OWNING), lane=Lane.LIVE, since=state.open[0].window.seq)
    return tuple(newest_first)[::-1]


def live_windows(
    ledger: Ledger, group: str, asked: OffsetRanges, topic_ids: Mapping[str, str]
) -> Iterator[WindowRecord]:
    """Return committed live windows, among them all that own any of what is asked.

    How much is read depends on how far the owners lie from one another, and not on how long the history is: see `core.plan.search`.
    """
    newest = ledger.excerpt(group, asked)
    if newest is None:
        return
    for first, end in stretches_of(ledger, group, newest.seq + 1):
        top = newest if first <= newest.seq < end else ledger.excerpt(group, asked, before=end, since=first)
        if top is None:
            continue
        # What this stretch does not name, or names in an earlier topic, no older one has.
        asked = replay.ever_planned(asked, top, topic_ids)
        if not asked:
            return
        above = end
        if replay.lies_above(top, asked, topic_ids):
            look = partial(_look, ledger, group, asked, first)
            above = first_above(top, first, asked, topic_ids, look)
        which: dict[str, Any] = {"states": (State.COMMITTED,), "lane": Lane.LIVE, "since": first, "before": above}
        for held in pages(ledger, group, limit=min(FIRST_PAGE, _page_of(newest.partition_count)), **which):
            yield held
            asked = replay.left_to_find(asked, held.window, topic_ids)
            if not asked:
                return


def stretches_of(ledger: Ledger, group: str, end: int) -> list[tuple[int, int]]:
    """Return from where and up to which number windows start in the order of their numbers, the newest stretch first.

    Args:
        ledger: the ledger.
        group: the group's name.
        end: windows from this number on are left out.
    """
    # After a reset back, windows start again where earlier ones have been. An empty one of these may stay there, as it owns nothing.
    acts = ledger.acts(group)
    firsts = {1, *(int(act.details[NEXT_WINDOW]) for act in acts if NEXT_WINDOW in act.details)}
    return list(pairwise((*sorted(first for first in firsts if first < end), end)))[::-1]


def _look(ledger: Ledger, group: str, asked: OffsetRanges, first: int, seq: int) -> Excerpt | None:
    return ledger.excerpt(group, asked, before=seq + 1, since=first)


@dataclass(frozen=True, slots=True)
class Allocation:
    """The windows that a run gets.

    Attributes:
        held_windows: existing windows, oldest first; in a replay, those that own what is asked.
        drafts: new windows; in a replay, those for what no one owns.
        seen: what Kafka holds, at the group's isolation level; None: no one had to look.
    """

    held_windows: Sequence[WindowRecord] = ()
    drafts: Sequence[Plan] = ()
    seen: LogSnapshot | None = None

    @property
    def filled(self) -> int:
        """How many of them have something to read: empty ones are committed at once."""
        ranges = [held.window.ranges for held in self.held_windows] + [draft.ranges for draft in self.drafts]
        return sum(r.span > 0 for r in ranges)


class ReplayPlanner:
    """Finds the windows of replays, in one ledger and one Kafka."""

    def __init__(self, ledger: Ledger, kafka: LogOffsets, clock: Callable[[], datetime]) -> None:
        self._ledger = ledger
        self._kafka = kafka
        self._clock = clock

    def plan(self, group: KafkaGroup, request: Replay, state: GroupState) -> Allocation:
        """Return the windows that own what is asked, and drafts for what no one owns. Writes nothing.

        Raises:
            BadInputError: what is asked is at or above the watermark, unknown or empty; with the numbers.
            IllegalStepError: a window that is named can't be replayed.
            LogError: Kafka does not hold what no one owns.
        """
        if state.position is None:
            raise NotYetError(
                f"Group {group.name} has not planned yet, so nothing lies below its watermark. Let an ordinary run of its DAG "
                "plan first (starting_offsets='latest' begins with new records and leaves older ones to a replay)"
            )
        match request:
            case Windows(seqs):
                return Allocation(self._named(group.name, seqs))
            case TimeSpan():
                replay.check_divides(request)
                return self.of_span(group, request, state)
            case Ranges(ranges):
                return self._of_ranges(group, ranges, state)

    def _named(self, group: str, seqs: Sequence[int]) -> list[WindowRecord]:
        rows = {row.held.window.seq: row.held for row in self._ledger.windows(group, seqs=seqs, limit=len(seqs))}
        if missing := [seq for seq in seqs if seq not in rows]:
            raise pruning.absent(group, missing, self._ledger.pruned(group))
        for held in rows.values():
            replay.check_replayable(held.window)
        if held_windows := [rows[seq] for seq in seqs if rows[seq].window.span]:
            return held_windows
        raise replay.nothing_to_replay(f"{name_some([rows[seq].window.id for seq in seqs], ', ')}: no records")

    def of_span(
        self, group: KafkaGroup, span: TimeSpan, state: GroupState, own: Sequence[WindowRecord] = ()
    ) -> Allocation:
        """Return what belongs to a span, without the windows that the run has. A run that has some gets nothing that the live lane will read.

        Raises:
            BadInputError, LogError: see `plan`.
        """
        had = {held.window.seq for held in own}
        held_windows = [held for held in self._cut_in(group.name, span) if held.window.seq not in had]
        # After the search, as some may have left meanwhile.
        pruning.check_span(group.name, span.start, self._ledger.pruned(group.name))
        seen = self._kafka.snapshot(topics_now(self._kafka, group, state.position), group.isolation_level)
        asked = self._between_times(group, span, seen)
        if own:
            asked = replay.below_watermark(asked, state)
        owners, gaps = self._owners(group.name, asked, state, own)
        self._check_not_pruned(group.name, gaps, state)
        drafts = replay.backfill(group, gaps, state, seen, until=min(span.end, self._clock()))
        if not own and not held_windows and not drafts:
            what = f"no window was cut after {span.start.isoformat()} and up to {span.end.isoformat()}"
            nothing = replay.nothing_to_replay(what, [held.window for held in owners])
            if not span.is_interval:
                raise nothing
            logger.warning("Group %s: %s", group.name, nothing)
        return Allocation(held_windows, drafts, seen)

    def _of_ranges(self, group: KafkaGroup, asked: OffsetRanges, state: GroupState) -> Allocation:
        check_reads(group, (tp.topic for tp in asked))
        if not asked.span:
            raise replay.nothing_to_replay("the offset ranges are empty")
        owners, gaps = self._owners(group.name, asked, state)
        if not gaps:
            return Allocation(owners)
        self._check_not_pruned(group.name, gaps, state)
        # Also the topics of the windows that will be run again: these have to be readable.
        topics = {tp.topic for held in owners for tp in held.window.ranges.without_empty()}
        seen = self._kafka.snapshot(sorted(topics.union(topics_of(gaps))), group.isolation_level)
        drafts = replay.backfill(group, gaps, state, seen, until=self._clock())
        return Allocation(owners, drafts, seen)

    def _check_not_pruned(self, group: str, gaps: replay.Gaps, state: GroupState) -> None:
        assert state.position
        # After the search for owners: a window that left in between has raised the floors before.
        pruning.check_not_pruned(group, gaps, self._ledger.pruned(group), state.position.topic_ids)

    def _cut_in(self, group: str, span: TimeSpan) -> list[WindowRecord]:
        """Return the windows that belong to a span, oldest first."""
        found = pages(self._ledger, group, states=tuple(OWNING), cut_in=(span.start, span.end))
        return sorted(
            (held for held in found if replay.may_replay(held.window) and held.window.span),
            key=lambda held: held.window.seq,
        )

    def _between_times(self, group: KafkaGroup, span: TimeSpan, seen: LogSnapshot) -> OffsetRanges:
        partitions, level = list(seen.bounds), group.isolation_level
        starts = self._kafka.offsets_at(partitions, max(span.start, EPOCH), level)
        ends = self._kafka.offsets_at(partitions, max(span.end, EPOCH), level)
        return replay.between_times(starts, ends, seen)

    def _owners(
        self, group: str, asked: OffsetRanges, state: GroupState, own: Sequence[WindowRecord] = ()
    ) -> tuple[list[WindowRecord], replay.Gaps]:
        """Return the windows that own any of these offsets and can be replayed, oldest first, and what no window owns."""
        assert state.position
        topic_ids = state.position.topic_ids
        all_of_them = chain(
            pages(self._ledger, group, states=tuple(OWNING), lane=Lane.BACKFILL),
            live_windows(self._ledger, group, asked.without_empty(), topic_ids),
        )
        found: Sequence[WindowRecord] = ()
        if asked.span:
            with self._ledger.one_connection():
                found = replay.overlapping(asked, all_of_them, topic_ids)
        owners = sorted(found, key=lambda held: held.window.seq)
        return owners, replay.without_owner(asked, [held.window for held in (*own, *owners)], topic_ids)
