"""How every store advances: look, let the core decide, write if nobody wrote since the look; else look again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from airflow_kafka_offsets.core.errors import ConcurrentChangeError
from airflow_kafka_offsets.core.offsets import Offsets
from airflow_kafka_offsets.core.store.guarantees import check_advance, must_write

LOOKS = 20
"""How often a writer that was overtaken looks again. Who overtakes has moved the offsets, so the second look usually ends it."""

_Seen = TypeVar("_Seen")


def swap(
    store: str,
    group: str,
    before: Offsets,
    after: Offsets,
    look: Callable[[], tuple[Offsets, _Seen]],
    write: Callable[[_Seen], bool],
) -> None:
    """Advance a store that can compare and set.

    Args:
        store: its address, for messages.
        group: the group.
        before: see `OffsetStore.advance`.
        after: see `OffsetStore.advance`.
        look: returns what the store holds now, and what `write` compares with (the values themselves, or a version).
        write: writes all or nothing, if the store is still as it was seen; False: it is not, and nothing was written.

    Raises:
        StoreDriftError, ConcurrentChangeError: see `OffsetStore.advance`.
    """
    check_advance(before, after)
    for _ in range(LOOKS):
        found, seen = look()
        if not must_write(store, group, before, after, found) or write(seen):
            return
    raise ConcurrentChangeError(f"{store}: others wrote the offsets of group {group} {LOOKS} times while we tried to")
