"""The second half of a commit: the offset store follows the watermark, then the ledger marks the window as committed.

In this order, a crash between the two leaves a window in `committing`, and whoever plans or commits next finishes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_kafka_offsets.core.errors import (
    BadInputError,
    ConcurrentChangeError,
    StoreBehindError,
    StoreDriftError,
    StoreError,
    name_some,
)
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition, topics_of
from airflow_kafka_offsets.core.plan.ownership import GroupState
from airflow_kafka_offsets.core.source.verifying import published
from airflow_kafka_offsets.core.store import advance
from airflow_kafka_offsets.core.window import State, Window
from airflow_kafka_offsets.ports import OffsetStore
from airflow_kafka_offsets.service.replay import from_oldest_open

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger

logger = logging.getLogger(__name__)


class Publisher:
    """Finishes commits of one ledger, through the group's offset store if it has one."""

    def __init__(self, ledger: Ledger, store: OffsetStore | None, clock: Callable[[], datetime]) -> None:
        self._ledger = ledger
        self._store = store
        self._clock = clock

    @property
    def address(self) -> str | None:
        """The store's address, or None without a store: then a commit is one step."""
        return self._store.name if self._store is not None else None

    def finish(self, group: str, also: Collection[int] = ()) -> list[int]:
        """Finish the commits that were begun: the store first, then the ledger. Return the numbers of the windows.

        Args:
            group: its name.
            also: numbers of more windows that are known to be committing, apart from open live ones.

        Raises:
            StoreError: the store did not take the offsets. The windows stay committing, and another call finishes them.
            ConcurrentChangeError: another commit was faster: look again.
        """
        state = self._ledger.load(group)
        half_way = {held.seq for held in state.open if held.state is State.COMMITTING}
        if half_way and self._store is not None:
            self._follow(self._store, group, state)
        if seqs := sorted(half_way.union(also)):
            # With the version that was loaded: whoever finishes a later window at this moment did not see this one done.
            self._ledger.finish(group, state.version, seqs, self._clock())
        return seqs

    def _follow(self, store: OffsetStore, group: str, state: GroupState) -> None:
        """Bring the store to where the watermark will be."""
        windows, afterwards = self._done_in_a_row(group, state)
        if not windows:
            return
        steps = advance.path(windows, afterwards)
        try:
            found = store.read(group, topics_of(steps[-1])) if len(steps) > 2 else {}
            store.advance(group, advance.standing(steps, found), steps[-1], windows[-1].id)
        except StoreDriftError:
            # Perhaps it was another commit of this group: whoever commits the next window publishes this one, too.
            now = self._ledger.load(group)
            if (now.version, self._done_in_a_row(group, now)) != (state.version, (windows, afterwards)):
                raise ConcurrentChangeError(f"{store.name} was advanced for group {group} by another commit") from None
            raise
        logger.info("Group %s window %s: %s is advanced", group, windows[-1].id, store.name)

    def path(self, group: str, state: GroupState) -> list[dict[TopicPartition, int]]:
        """Return the offsets that the store may have while commits are under way, see `advance.path`; without commits: nothing."""
        try:
            windows, afterwards = self._done_in_a_row(group, state)
        except ConcurrentChangeError:
            return []  # whoever compares loads the group again, and sees its new version
        return advance.path(windows, afterwards) if windows else []

    def _done_in_a_row(self, group: str, state: GroupState) -> tuple[list[Window], Offsets]:
        """Return the windows that the watermark passes, and where it is then.

        Raises:
            ConcurrentChangeError: a window that was open in this state no longer is: then its position is not the one to publish.
        """
        if not state.open or state.open[0].state is State.PLANNED or state.position is None:
            return [], {}
        live = [held.window for held in from_oldest_open(self._ledger, group, state)]
        if not {held.seq for held in state.open} <= {window.seq for window in live}:
            raise ConcurrentChangeError(f"Another process abandoned a window of group {group} just now")
        done = advance.done_in_a_row(live)
        waiting = live[len(done) :]
        return done, advance.before(waiting[0]) if waiting else state.position.offsets

    def prepare(self, group: str, state: GroupState, start: Offsets) -> None:
        """Make sure, before a window is cut, that the store is where it starts. An error after its job would be worse.

        If the store holds offsets of partitions that are new to the group, they are moved to where these partitions start.

        Args:
            group: its name.
            state: the group, as the window was planned on it.
            start: where the windows start, if no window is open; else only the partitions that are new to the group, as the commits of open
                windows move the others: see `to_check_in_store`.

        Raises:
            BadInputError: the first window would start at other offsets than the store has.
            StoreDriftError: someone else moved its offsets.
            StoreAnswerError: it does not answer, or says no: then a commit would not succeed either.
            ConcurrentChangeError: the group has changed since: look again.
        """
        if self._store is None or not start:
            return
        try:
            self._prepare(self._store, group, state, start)
        except (StoreDriftError, BadInputError):
            self._check_version(group, state)
            raise

    def _prepare(self, store: OffsetStore, group: str, state: GroupState, start: Offsets) -> None:
        found = store.read(group, topics_of(start))
        if state.position is None:
            advance.check_first(store.name, group, start, found)
            return
        known = state.position.offsets
        advance.check_standing(store.name, group, {tp: offset for tp, offset in start.items() if tp in known}, found)
        if foreign := advance.foreign_offsets(start, known, found):
            named = name_some([f"{tp}: {offset}" for tp, offset in foreign.items()])
            logger.warning(
                "Group %s: %s holds offsets of partitions that are new to the group, %s; they are replaced",
                group,
                store.name,
                named,
            )
            # These offsets belong to no one only if no one has planned since: whoever commits has planned before.
            self._check_version(group, state)
            store.advance(group, foreign, {tp: start[tp] for tp in foreign})

    def _check_version(self, group: str, state: GroupState) -> None:
        if self._ledger.load(group).version != state.version:
            raise ConcurrentChangeError(f"Group {group} was changed by someone else just now")

    def committed(self, group: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the offset that the store holds for each partition, or None."""
        assert self._store is not None
        found = self._store.read(group, topics_of(partitions))
        return {tp: found.get(tp) for tp in partitions}

    def follow_reset(self, group: str, before: Offsets, after: Offsets) -> None:
        """Move the store after a person moved the watermark in the ledger.

        Raises:
            StoreBehindError: the store did not follow; the message has the command that moves it.
        """
        if self._store is None:
            return
        try:
            # Topics that the group no longer reads stay where they are.
            self._store.advance(group, before, {**before, **after})
        except (StoreError, ConcurrentChangeError) as exc:
            raise StoreBehindError(self._store.name, group, exc) from exc

    def follow_gap(self, abandoned: Window) -> None:
        """Move the store over the gap that an abandoned window left, if that window held the watermark.

        Raises:
            StoreBehindError: the store did not follow; the message has the command that moves it.
        """
        state = self._ledger.load(abandoned.group)
        if state.open and state.open[0].seq < abandoned.seq:
            return  # an older one still holds the watermark
        live = [held.window for held in from_oldest_open(self._ledger, abandoned.group, state)]
        self.follow_reset(abandoned.group, advance.before(abandoned), published(state, live))
