"""Places that hold offsets and are asked by the ledger, an offset store or Kafka."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.log import IsolationLevel
from airflow_kafka_offsets.core.place import verifying
from airflow_kafka_offsets.core.place.place import PlaceOffsets
from airflow_kafka_offsets.core.plan.ownership import watermark
from airflow_kafka_offsets.ports import Ledger, LogOffsets, OffsetStore


class LedgerSource:
    """`ports.OffsetSource` on the watermark of a group in the ledger, where its offset store should stand."""

    name = "ledger"

    def __init__(self, ledger: Ledger, group: str) -> None:
        self._ledger = ledger
        self._group = group

    def read(self, topics: Sequence[str] = ()) -> PlaceOffsets:
        """Return the watermark, of all topics that it has."""
        self._ledger.group(self._group)  # raises when there is none
        state = self._ledger.load(self._group)
        mark = watermark(state)
        topic_ids = mark.topic_ids if mark else {}
        return PlaceOffsets(verifying.published(state), verifying.committing_note(state), topic_ids, state.open)


class StoreSource:
    """`ports.OffsetSource` on what an offset store holds under a name."""

    def __init__(self, store: OffsetStore, group: str) -> None:
        self.name = store.name
        self._store = store
        self._group = group

    def read(self, topics: Sequence[str] = ()) -> PlaceOffsets:
        """Return what is there of these topics."""
        _check_topics(self.name, topics)
        return PlaceOffsets(self._store.read(self._group, topics))


class ConsumerGroupSource:
    """`ports.OffsetSource` on what a consumer group has committed in the Kafka that is at hand."""

    def __init__(self, name: str, kafka: LogOffsets, group_id: str) -> None:
        self.name = name
        self._kafka = kafka
        self._group_id = group_id

    def read(self, topics: Sequence[str] = ()) -> PlaceOffsets:
        """Return what is committed of these topics."""
        _check_topics(self.name, topics)
        partitions = sorted(self._kafka.snapshot(topics, IsolationLevel.READ_UNCOMMITTED).bounds)
        committed = self._kafka.committed(self._group_id, partitions)
        return PlaceOffsets({tp: offset for tp, offset in committed.items() if offset is not None})


def _check_topics(place: str, topics: Sequence[str]) -> None:
    if not topics:
        raise BadInputError(f"{place} has to be asked for topics by name: say which with --topic")
