"""How each store advances: read, let core decide, and write if no one wrote since the read. Otherwise read again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from airflow_kafka_offsets.core.errors import ConcurrentChangeError
from airflow_kafka_offsets.core.offsets import Offsets
from airflow_kafka_offsets.core.store.guarantees import check_advance, must_write

LOOKS = 20
"""How often a writer reads if others overtake it. The other writer has moved the offsets, so the second read usually decides."""

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
        look: returns what the store holds now, and what `write` compares with (the values, or a version).
        write: writes all or nothing, if the store has not changed; False: it has, and nothing was written.

    Raises:
        StoreDriftError, ConcurrentChangeError: see `OffsetStore.advance`.
    """
    check_advance(before, after)
    for _ in range(LOOKS):
        found, seen = look()
        if not must_write(store, group, before, after, found) or write(seen):
            return
    raise ConcurrentChangeError(
        f"{store}: other writers changed the offsets of group {group} {LOOKS} times during the advance"
    )
