"""How each store advances: read, let core decide, and write if no one wrote since. Otherwise read again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from airflow_kafka_offsets.core.errors import ConcurrentChangeError
from airflow_kafka_offsets.core.offsets import Offsets
from airflow_kafka_offsets.core.store.guarantees import check_advance, must_write

READS = 20
"""How often a writer reads if others overtake it. Usually the second read decides: the offsets have moved."""

_Version = TypeVar("_Version")


def swap(
    store: str,
    group: str,
    before: Offsets,
    after: Offsets,
    read: Callable[[], tuple[Offsets, _Version]],
    write: Callable[[_Version], bool],
) -> None:
    """Advance a store that can compare and set.

    Args:
        store: its address, for messages.
        group: the group.
        before: see `OffsetStore.advance`.
        after: see `OffsetStore.advance`.
        read: returns the offsets in the store, and what `write` compares with (the values, or a version).
        write: writes all or nothing. It returns False if the store has changed since the read.

    Raises:
        StoreDriftError, ConcurrentChangeError: see `OffsetStore.advance`.
    """
    check_advance(before, after)
    for _ in range(READS):
        offsets, version = read()
        if not must_write(store, group, before, after, offsets) or write(version):
            return
    raise overtaken(store, group)


def overtaken(store: str, group: str) -> ConcurrentChangeError:
    """Return the error if other writers were first each time."""
    return ConcurrentChangeError(f"{store}: other writers changed group {group} {READS} times meanwhile")
