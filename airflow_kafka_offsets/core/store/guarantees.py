"""What an offset store promises, and when its offsets may move (docs/design.md, Offset stores)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from airflow_kafka_offsets.core.errors import BadInputError, StoreDriftError
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition


class Compares(StrEnum):
    """Against whom a store compares before it writes."""

    ANY_WRITER = "any writer"
    COOPERATING = "co-operating writers"
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Guarantees:
    """What a store promises. The contract suite checks each of them, docs/stores shows them.

    Attributes:
        is_atomic: an advance is there for all partitions or for none, whatever dies in the middle.
        compares: who can move the offsets between our look and our write without being noticed: nobody when it compares
            against any writer; a foreign tool when only against co-operating ones (those that use this package).
        limit: how many partitions fit into one advance, in words; None: more than 10,000.
        caveat: what a user must know besides.
    """

    is_atomic: bool
    compares: Compares
    limit: str | None = None
    caveat: str = ""


def must_write(store: str, group: str, before: Offsets, after: Offsets, found: Mapping[TopicPartition, int]) -> bool:
    """Decide whether an advance has to write.

    A partition may stand at `before`, at `after` (this very advance got that far already) or nowhere: offsets expire in
    some stores, and the ledger is right.

    Args:
        store: its address, for the message.
        group: the group.
        before: the next offsets before the advance; partitions that are new are not there.
        after: those behind it.
        found: what the store holds now.

    Returns:
        False: all of it is there already.

    Raises:
        StoreDriftError: a partition stands elsewhere: somebody else moved it.
    """
    drifted = {
        tp: (before.get(tp), offset, found[tp])
        for tp, offset in after.items()
        if tp in found and found[tp] != offset and found[tp] != before.get(tp)
    }
    if drifted:
        raise StoreDriftError(store, group, drifted)
    return any(found.get(tp) != offset for tp, offset in after.items())


def check_advance(before: Offsets, after: Offsets) -> None:
    """Refuse an advance that leaves out a partition.

    Raises:
        BadInputError: `before` names a partition that `after` does not, or there is nothing in `after`.
    """
    if missing := sorted(before.keys() - after.keys()):
        raise BadInputError(f"An advance must say where {missing[0]} goes, and {len(missing) - 1} more")
    if not after:
        raise BadInputError("An advance of no partition at all")
