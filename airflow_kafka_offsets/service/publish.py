"""The second half of a commit: the offset store follows the watermark, then the ledger marks the window as committed.

In this order, a crash between the two leaves a window in `committing`, and whoever plans or commits next finishes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_kafka_offsets.core.errors import (
    BadInputError,
    ConcurrentChangeError,
    PrunedWindowError,
    StoreBehindError,
    StoreDriftError,
    StoreError,
    UnknownWindowError,
    name_some,
)
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition, topics_of
from airflow_kafka_offsets.core.plan.ownership import GroupState
from airflow_kafka_offsets.core.source.verifying import OlderLedger, older_ledger, published
from airflow_kafka_offsets.core.store import advance
from airflow_kafka_offsets.core.window import State, Window
from airflow_kafka_offsets.core.window_id import is_window_of
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
            with self._noting_refusals(group, state):
                self._follow(self._store, group, state)
        if seqs := sorted(half_way.union(also)):
            # With the version that was loaded: if another process finishes a later window now, one of us has to look again.
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
        except StoreDriftError as drift:
            # Perhaps it was another commit of this group: the commit of the next window also publishes this one.
            now = self._ledger.load(group)
            if (now.version, self._done_in_a_row(group, now)) != (state.version, (windows, afterwards)):
                raise ConcurrentChangeError(f"{store.name} was advanced for group {group} by another commit") from None
            found = store.read(group, topics_of(steps[-1]))
            if not advance.is_past(steps[-1], found):
                raise self._explained(drift) from drift
            logger.warning("Group %s window %s: %s is past it, and stays there", group, windows[-1].id, store.name)
            return
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

    def older_ledger(self, group: KafkaGroup, ahead: Collection[int], topics: Sequence[str]) -> OlderLedger | None:
        """Return the ledger that is older than the store, or None if it is not: see `verifying.older_ledger`."""
        assert self._store is not None
        # The store first: a commit is in the ledger before it is in the store.
        ids = self._store.window_ids(group.name, topics)
        states = {window_id: self._state_of(window_id) for window_id in ids if is_window_of(group.name, window_id)}
        return older_ledger(group, self._store.name, ahead, states)

    def _state_of(self, window_id: str) -> State | None:
        try:
            return self._ledger.window(window_id).state
        except PrunedWindowError:
            return State.COMMITTED
        except UnknownWindowError:
            return None

    def _explained(self, drift: StoreDriftError) -> StoreDriftError:
        """Return a drift with what to do if the ledger is older than the store; as it is if the store does not answer."""
        ahead = [found - after for _, after, found in drift.partitions.values()]
        try:
            older = self.older_ledger(self._ledger.group(drift.group), ahead, topics_of(drift.partitions))
        except StoreError:
            return drift
        return drift if older is None else StoreDriftError(drift.store, drift.group, drift.partitions, older.advice)

    @contextmanager
    def _noting_refusals(self, group: str, state: GroupState) -> Iterator[None]:
        """Note in the ledger whether the store refuses what is done in here: `status` shows it without asking a store."""
        try:
            yield
        except StoreError as exc:
            if not exc.may_pass:
                self._ledger.note_refusal(group, str(exc))
            raise
        if state.refused is not None:
            self._ledger.note_refusal(group, None)

    def prepare(self, group: KafkaGroup, state: GroupState, start: Offsets, *, is_to_move: bool = True) -> None:
        """Make sure, before a window is cut, that the store is where it starts. An error after its job would be worse.

        If the store holds offsets of partitions that are new to the group, they are moved to where these partitions start.

        Args:
            group: the group.
            state: what the ledger has of it, as the window was planned on it.
            start: where the windows start, if no window is open; else only the partitions that are new to the group, as the commits of open
                windows move the others: see `to_check_in_store`.
            is_to_move: whether commits of the run will move the store.

        Raises:
            BadInputError: the first window would start at other offsets than the store has.
            StoreDriftError: someone else moved its offsets.
            StoreAnswerError: it does not answer, or says no: then a commit would not succeed either.
            ConcurrentChangeError: the group has changed since: look again.
        """
        if self._store is None and state.refused is not None:
            self._ledger.note_refusal(group.name, None)  # by a store that the group no longer has
        if self._store is None or not (start or is_to_move):
            return
        try:
            with self._noting_refusals(group.name, state):
                self._store.check_writable(group.name)
                self._prepare(self._store, group, state, start)
        except BadInputError:
            self._check_version(group.name, state)
            raise
        except StoreDriftError as drift:
            self._check_version(group.name, state)
            raise self._explained(drift) from drift

    def _prepare(self, store: OffsetStore, definition: KafkaGroup, state: GroupState, start: Offsets) -> None:
        if not start:
            return
        group = definition.name
        found = store.read(group, topics_of(start))
        if state.position is None:
            if found and (older := self.older_ledger(definition, (), topics_of(start))):
                raise BadInputError(f"{store.name} has offsets of group {group}. {older.advice}")
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
        except StoreDriftError as drift:
            raise StoreBehindError(self._store.name, group, self._explained(drift)) from drift
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
