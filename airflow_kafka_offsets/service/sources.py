"""The ledger and offset stores as sources that offsets are taken from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.plan.ownership import watermark
from airflow_kafka_offsets.core.source import verifying
from airflow_kafka_offsets.core.source.offsets import SourceOffsets
from airflow_kafka_offsets.ports import OffsetStore
from airflow_kafka_offsets.service.replay import from_oldest_open

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger


class LedgerSource:
    """`ports.OffsetSource` on the watermark of a group in the ledger. The group's offset store should hold the same offsets."""

    name = "ledger"

    def __init__(self, ledger: Ledger, group: str) -> None:
        self._ledger = ledger
        self._group = group

    def read(self, topics: Sequence[str] = ()) -> SourceOffsets:
        """Return the watermark of all topics that the group has, and where partitions start that only later windows have."""
        self._ledger.group(self._group)  # raises when there is none
        state = self._ledger.load(self._group)
        mark = watermark(state)
        topic_ids = mark.topic_ids if mark else {}
        # Those of the newest window: when it was planned, all before it were checked.
        epochs = state.position.leader_epochs if state.position else {}
        notes = verifying.committing_note(state)
        later = from_oldest_open(self._ledger, self._group, state)
        offsets = verifying.published(state, [held.window for held in later])
        return SourceOffsets(offsets, notes, topic_ids, later, epochs)


class StoreSource:
    """`ports.OffsetSource` on what an offset store holds under a name."""

    def __init__(self, store: OffsetStore, group: str) -> None:
        self.name = store.name
        self.store = store
        self._group = group

    def read(self, topics: Sequence[str] = ()) -> SourceOffsets:
        """Return what the store holds of these topics."""
        if not topics:
            raise BadInputError(f"{self.name} has to be asked for topics by name: name them with --topic")
        return SourceOffsets(self.store.read(self._group, topics))
