"""The second half of a commit: the offset store follows the watermark, then the ledger says committed.

In this order, a crash between the two leaves a window that is committing, and whoever plans or commits next finishes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime

from airflow_kafka_offsets.core import publishing as core
from airflow_kafka_offsets.core.errors import ConcurrentChangeError, StoreDriftError, StoreError, StoreUnavailableError
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition
from airflow_kafka_offsets.core.ownership import GroupState
from airflow_kafka_offsets.core.window import OWNING, Lane, State, Window
from airflow_kafka_offsets.ports import Ledger, OffsetStore
from airflow_kafka_offsets.replaying import pages

log = logging.getLogger(__name__)


class Publisher:
    """Finishes commits of one ledger, through the group's offset store if it has one."""

    def __init__(
        self,
        ledger: Ledger,
        store: OffsetStore | None,
        clock: Callable[[], datetime],
    ) -> None:
        self._ledger = ledger
        self._store = store
        self._clock = clock

    @property
    def is_asked(self) -> bool:
        """Whether there is a store, so that a commit takes two steps."""
        return self._store is not None

    def finish(self, group: str, also: Collection[int] = ()) -> None:
        """Finish the commits that were begun: the store first, then the ledger.

        Args:
            group: its name.
            also: numbers of windows beside the open live ones that are known to be committing.

        Raises:
            StoreError: the store did not take it; the windows stay committing, and the same again finishes them.
            ConcurrentChangeError: another commit was faster: look again.
        """
        state = self._ledger.load(group)
        half_way = {held.window.seq for held in state.open if held.window.state is State.COMMITTING}
        if half_way and self._store is not None:
            self._follow(self._store, group, state)
        if seqs := sorted(half_way.union(also)):
            # Under the version that was loaded: who finishes a later window at this moment did not see this one done.
            self._ledger.finish(group, state.version, seqs, self._clock())

    def _follow(self, store: OffsetStore, group: str, state: GroupState) -> None:
        """Bring the store to where the watermark will be."""
        windows = self._done_in_a_row(group, state)
        if not windows:
            return
        steps = core.path(windows)
        try:
            before: Offsets = steps[0]
            if len(windows) > 1:
                before = core.standing(store.name, group, steps, self._read(store, group, steps[-1]))
            store.advance(group, before, steps[-1], windows[-1].id)
        except StoreDriftError:
            # Perhaps it was ourselves: somebody who commits the next window has published this one too.
            now = self._ledger.load(group)
            if (now.version, self._done_in_a_row(group, now)) != (state.version, windows):
                raise ConcurrentChangeError(f"{store.name} was advanced for group {group} by another commit") from None
            raise
        log.info("Group %s window %s: %s is advanced", group, windows[-1].id, store.name)

    def path(self, group: str, state: GroupState) -> list[dict[TopicPartition, int]]:
        """Return where the store may stand while commits are under way, see `core.publishing.path`; none is: nothing."""
        windows = self._done_in_a_row(group, state)
        return core.path(windows) if windows else []

    def _done_in_a_row(self, group: str, state: GroupState) -> list[Window]:
        if not state.open or state.open[0].window.state is State.PLANNED:
            return []
        first = state.open[0].window.seq
        live = []
        for held in pages(self._ledger, group, states=tuple(OWNING), lane=Lane.LIVE):
            if held.window.seq < first:
                break
            live.append(held.window)
        return core.done_in_a_row(reversed(live))

    def check(self, group: str, start: Offsets, *, is_first: bool = False) -> None:
        """Make sure before a window is cut that the store stands where it starts: better than after its job.

        Args:
            group: its name.
            start: where the window starts, or what was lost before it.
            is_first: the group never planned.

        Raises:
            BadInputError: the first window would start elsewhere than where the store stands.
            StoreDriftError: somebody else moved its offsets.
            StoreUnavailableError: it does not answer: then a commit would not succeed either.
        """
        if self._store is None:
            return
        check = core.check_first if is_first else core.check_standing
        check(self._store.name, group, start, self._read(self._store, group, start))

    def committed(self, group: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return what the store holds; None: nothing for that partition."""
        assert self._store is not None
        found = self._read(self._store, group, partitions)
        return {tp: found.get(tp) for tp in partitions}

    def follow_reset(self, group: str, before: Offsets, after: Offsets) -> None:
        """Let the store follow a reset of the ledger.

        Raises:
            StoreUnavailableError: it did not; the message says how to make it.
        """
        if self._store is None:
            return
        try:
            # What the group reads no more stays where it is.
            self._store.advance(group, before, {**before, **after})
        except StoreError as exc:
            raise StoreUnavailableError(
                f"The watermark has moved in the ledger, but not in the offset store: {exc}. To publish it again: "
                f"kafka-offsets copy {group} --from ledger --to '{self._store.name}' --why '...'"
            ) from exc

    def _read(self, store: OffsetStore, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return store.read(group, sorted({tp.topic for tp in partitions}))
