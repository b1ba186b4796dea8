"""An offset store in memory; it passes the same contract as the real ones, where it has no server that could fail."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence

from airflow_kafka_offsets.adapters.stores.swapping import swap
from airflow_kafka_offsets.core.errors import StoreRefusedError
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition
from airflow_kafka_offsets.core.store.guarantees import Compares, Guarantees


class MemoryStore:
    """Offsets by group. Set `failure` to make the next calls fail, before they write or after."""

    guarantees = Guarantees(is_atomic=True, compares=Compares.ANY_WRITER)

    def __init__(self, name: str = "memory://", *, names_windows: bool = True) -> None:
        self.name = name
        self.names_windows = names_windows
        self.groups: dict[str, dict[TopicPartition, int]] = {}
        self.windows: list[str] = []
        self.last: dict[str, str] = {}
        self.failure: Exception | None = None
        self.fails_after_write = False
        self.members: set[str] = set()
        self._lock = threading.Lock()

    def read(self, group: str, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Return the offsets."""
        if not self.fails_after_write:
            self._fail()
        return {tp: offset for tp, offset in self.groups.get(group, {}).items() if tp.topic in topics}

    def window_ids(self, group: str, topics: Sequence[str]) -> Collection[str]:
        """Return the window that the last write of the group named."""
        return (self.last[group],) if self.names_windows and group in self.last else ()

    def check_writable(self, group: str) -> None:
        """Refuse a group that has members."""
        if group in self.members:
            raise StoreRefusedError(f"{self.name}: group {group} has members. Stop them")

    def advance(self, group: str, before: Offsets, after: Offsets, window_id: str = "") -> None:
        """Compare and set."""
        if not self.fails_after_write:
            self._fail()
        self.check_writable(group)

        def look() -> tuple[Offsets, Offsets]:
            stored = dict(self.groups.get(group, {}))
            return stored, stored

        def write(seen: Offsets) -> bool:
            with self._lock:
                if self.groups.get(group, {}) != seen:
                    return False
                self.groups[group] = {**seen, **after}
            self.windows.append(window_id)
            self.last[group] = window_id
            return True

        swap(self.name, group, before, after, look, write)
        self._fail()

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure
