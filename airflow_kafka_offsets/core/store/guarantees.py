"""What an offset store promises, and when its offsets may move (docs/design.md, Offset stores)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from airflow_kafka_offsets.core.errors import BadInputError, StoreDriftError, name_some
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition


class Compares(StrEnum):
    """Whose changes a store notices before it writes."""

    ANY_WRITER = "any writer"
    COOPERATING = "co-operating writers"
    NO_ONE = "no one"


@dataclass(frozen=True, slots=True)
class Guarantees:
    """What a store promises. The contract suite checks each promise, docs/stores/README.md shows them.

    Attributes:
        is_atomic: an advance changes all partitions or none, also if a process dies in the middle.
        compares: whose change between the read and the write the store notices: any writer's, or only that of co-operating
            writers (those that use this package), or no one's.
        limit: how many partitions fit into one advance, in words; None means more than 10,000.
    """

    is_atomic: bool
    compares: Compares
    limit: str | None = None


def must_write(store: str, group: str, before: Offsets, after: Offsets, stored: Mapping[TopicPartition, int]) -> bool:
    """Decide whether an advance has to write.

    A partition may be at `before`, at `after` (an earlier try of this advance wrote it) or missing: offsets expire in
    some stores, and the ledger is right.

    Args:
        store: its address, for the message.
        group: the group.
        before: the next offsets before the advance, without new partitions.
        after: the next offsets after it.
        stored: what the store holds now.

    Returns:
        False if the store has all of it already.

    Raises:
        StoreDriftError: a partition has another offset: another writer moved it.
    """
    drifted = {
        tp: (before.get(tp), offset, stored[tp])
        for tp, offset in after.items()
        if tp in stored and stored[tp] not in (offset, before.get(tp))
    }
    if drifted:
        raise StoreDriftError(store, group, drifted)
    return any(stored.get(tp) != offset for tp, offset in after.items())


def check_advance(before: Offsets, after: Offsets) -> None:
    """Refuse an advance that leaves out a partition.

    Raises:
        BadInputError: `before` names a partition that `after` does not name, or `after` is empty.
    """
    if missing := sorted(before.keys() - after.keys()):
        raise BadInputError(
            f"An advance leaves out {name_some([str(tp) for tp in missing], ', ')}: name every partition"
        )
    if not after:
        raise BadInputError("An advance must name at least one partition")
