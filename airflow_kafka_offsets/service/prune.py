"""Prunes old windows: from the oldest on, in short transactions. It can be killed at any moment, and the next one continues.

Its transactions leave the group's version alone, so they keep no one from planning: see `core.plan.pruning`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from airflow_kafka_offsets.core.errors import counted
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import KEPT_FROM, Act, first_ids
from airflow_kafka_offsets.core.log import LogSnapshot
from airflow_kafka_offsets.core.plan.ownership import NOWHERE
from airflow_kafka_offsets.core.plan.pruning import Limits, why_kept
from airflow_kafka_offsets.core.window import OWNING, Lane, State, WindowRecord
from airflow_kafka_offsets.core.window_id import name_window
from airflow_kafka_offsets.ports import LogOffsets
from airflow_kafka_offsets.service.base import until_won, utc_now

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger

logger = logging.getLogger(__name__)

FIRST_PAGE, LONGEST_PAGE = 10, 1_000
PARTITIONS_PER_PAGE = 200_000


@dataclass(frozen=True, slots=True)
class Prune:
    """What a prune takes out of the ledger, or would.

    Attributes:
        windows, attempts: how many.
        lost: how many offsets these windows had recorded as lost to retention.
        first, last: the numbers of the first and the last window, or None if there is none.
        kept: the number of the first window that stays, or None if there is none after these.
        why: why that one stays.
    """

    windows: int = 0
    attempts: int = 0
    lost: int = 0
    first: int | None = None
    last: int | None = None
    kept: int | None = None
    why: str | None = None

    def and_then(self, old: Sequence[WindowRecord]) -> Prune:
        """Return this together with further windows."""
        first, last = old[0].seq, old[-1].seq
        attempts = self.attempts + sum(one.attempts for one in old)
        lost = self.lost + sum(one.window.lost.span for one in old)
        windows = self.windows + len(old)
        return replace(self, windows=windows, attempts=attempts, lost=lost, first=self.first or first, last=last)


@dataclass(slots=True)
class _Search:
    """The windows that may leave, found page by page. Nothing larger than a page is kept."""

    ledger: Ledger
    kafka: LogOffsets
    group: KafkaGroup
    limits: Limits
    ids: Mapping[str, str]
    log: LogSnapshot = field(default_factory=lambda: LogSnapshot({}, {}))
    topics_seen: set[str] = field(default_factory=set)
    kept: int | None = None
    why: str | None = None

    def pages(self) -> Iterator[Sequence[WindowRecord]]:
        """Return the windows that may leave, oldest first. After them, `kept` and `why` have what ended the search."""
        since, limit = 1, FIRST_PAGE
        while page := [
            self._identified(old) for old in self.ledger.old_windows(self.group.name, since=since, limit=limit)
        ]:
            self._look_at({tp.topic for old in page for tp in old.window.ranges.without_empty()})
            may_leave = self._first_of(page)
            if may_leave:
                yield may_leave
            if self.kept is not None:
                return
            since = page[-1].seq + 1
            limit = min(LONGEST_PAGE, 1 + PARTITIONS_PER_PAGE // (1 + len(page[-1].window.ranges)))

    def _identified(self, old: WindowRecord) -> WindowRecord:
        window = old.window.identified(self.ids)
        return replace(old, decode=lambda: window)

    def _first_of(self, page: Sequence[WindowRecord]) -> Sequence[WindowRecord]:
        for number, old in enumerate(page):
            self.why = why_kept(old, self.limits, self.log)
            if self.why is not None:
                self.kept = old.seq
                return page[:number]
        return page

    def _look_at(self, topics: set[str]) -> None:
        """Ask Kafka for topics that it was not asked for. A beginning offset only grows, so an older one is on the safe side."""
        if new := topics - self.topics_seen:
            seen = self.kafka.snapshot(sorted(new), self.group.isolation_level)
            self.log = LogSnapshot({**self.log.topic_ids, **seen.topic_ids}, {**self.log.bounds, **seen.bounds})
            self.topics_seen |= new


class Pruning:
    """Takes windows out of one ledger that one Kafka no longer needs there."""

    def __init__(
        self,
        ledger: Ledger,
        kafka: LogOffsets,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._ledger = ledger
        self._kafka = kafka
        self._clock = clock
        self._done: _Done | None = None

    @property
    def done(self) -> Prune:
        """What the last `prune` took out of the ledger, also if it failed then."""
        return self._done.pruned if self._done else Prune()

    def preview(self, group: KafkaGroup, older_than: timedelta, *, are_deleted: bool = False) -> Prune:
        """Work out what a prune would take, without writing anything.

        Args:
            group: the group's definition.
            older_than: nothing may have happened to a window for this long.
            are_deleted: a person vouches that topics which Kafka does not have under their last known id are deleted.

        Raises:
            KafkaAnswerError, LedgerError: as they say.
        """
        search = self._search(group, older_than, are_deleted)
        pruned = Prune()
        for page in search.pages():
            pruned = pruned.and_then(page)
        return replace(pruned, kept=search.kept, why=search.why)

    def prune(
        self, group: KafkaGroup, older_than: timedelta, who: str, why: str, *, are_deleted: bool = False
    ) -> Prune:
        """Take old windows out of the ledger: a person's act. See `preview`.

        It is many transactions: whenever it ends, what it did is done and recorded, and another one does the rest.

        Raises:
            ConcurrentChangeError: others changed the same windows again and again.
        """
        act = Act("prune", who, why, self._clock(), {"older_than_seconds": int(older_than.total_seconds())})
        done = _Done(self._ledger, act)
        self._done = done
        return until_won(lambda: self._prune(group, older_than, are_deleted, done))

    def _prune(self, group: KafkaGroup, older_than: timedelta, are_deleted: bool, done: _Done) -> Prune:
        search = self._search(group, older_than, are_deleted)
        for page in search.pages():
            done.take_out(group.name, page)
        return replace(done.pruned, kept=search.kept, why=search.why)

    def _search(self, group: KafkaGroup, older_than: timedelta, are_deleted: bool) -> _Search:
        topic_ids = (self._ledger.load(group.name).position or NOWHERE).topic_ids
        limits = Limits(self._clock() - older_than, self._needed(group.name), topic_ids, are_deleted)
        ids = first_ids(topic_ids, (act.details for act in self._ledger.moves(group.name)))
        return _Search(self._ledger, self._kafka, group, limits, ids)

    def _needed(self, group: str) -> int | None:
        """Return the first window that is needed whatever its age: for the watermark, or to show the last commit."""
        newest = [
            self._ledger.windows(group, states=states, lane=Lane.LIVE, limit=1)
            for states in (tuple(OWNING), (State.COMMITTED,))
        ]
        return min((row.seq for rows in newest for row in rows), default=None)


@dataclass(slots=True)
class _Done:
    """What one prune has done so far, over all of its looks."""

    ledger: Ledger
    act: Act
    pruned: Prune = field(default_factory=Prune)
    number: int | None = None

    def take_out(self, group: str, page: Sequence[WindowRecord]) -> None:
        pruned = self.pruned.and_then(page)
        act = replace(self.act, details={**self.act.details, **_facts(group, pruned)})
        self.number = self.ledger.prune(page, act, self.number)
        self.pruned = pruned
        last = name_window(group, page[-1].seq)
        logger.info("Group %s: %s pruned, up to %s", group, counted(pruned.windows, "window"), last)


def _facts(group: str, pruned: Prune) -> dict[str, object]:
    assert pruned.first is not None
    assert pruned.last is not None
    return {
        "windows": pruned.windows,
        "attempts": pruned.attempts,
        "lost": pruned.lost,
        "first": name_window(group, pruned.first),
        "last": name_window(group, pruned.last),
        KEPT_FROM: pruned.last + 1,
    }
