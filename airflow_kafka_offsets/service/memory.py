"""What one plan has learned from Kafka, a schema registry and Airflow, so that the loser of a race does not ask again.

In its turn (`Ledger.turn`) a plan holds a lock, so nothing but the ledger may be asked: what is not known then is a `NotKnownError`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

from airflow_kafka_offsets.core.lag.retention import Retention
from airflow_kafka_offsets.core.lag.search import Hit, Hits, Probe
from airflow_kafka_offsets.core.leader_epochs import EpochEnds, PartitionEpoch
from airflow_kafka_offsets.core.log import Bounds, IsolationLevel, LogSnapshot
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.ownership import Position
from airflow_kafka_offsets.core.schemas import Subject
from airflow_kafka_offsets.core.window import Claim
from airflow_kafka_offsets.ports import LogOffsets, SchemaRegistry

_T = TypeVar("_T")


class NotKnownError(Exception):
    """Something has to be asked, and this is not the moment. It never leaves the service."""


class Memory:
    """Answers of Kafka (`ports.LogOffsets`) and of a schema registry (`ports.SchemaRegistry`), which are asked each question once,
    until all is forgotten; and of Airflow, for turns.

    Attributes:
        position: where the next live window starts, by the last look at the ledger.
    """

    def __init__(
        self, kafka: LogOffsets, is_over: Callable[[Claim], bool], registry: SchemaRegistry | None = None
    ) -> None:
        self._kafka = kafka
        self._registry = registry
        self._is_over = is_over
        self._answers: dict[Any, Any] = {}
        self._hits: dict[Probe, Hit | None] = {}
        self._over: dict[Claim, bool] = {}
        self._may_ask = True
        self.position: Position | None = None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Ask no one meanwhile."""
        self._may_ask = False
        try:
            yield
        finally:
            self._may_ask = True

    def forget(self) -> None:
        """Ask Kafka again."""
        self._answers.clear()
        self._hits.clear()

    def is_over(self, claim: Claim) -> bool:
        """Whether a claim is over. One that holds a window only since the last look at Airflow is at work.

        Raises:
            NotKnownError: it was over, and no one may be asked: it may have been cleared since.
        """
        if self._may_ask:
            self._over[claim] = self._is_over(claim)
        elif self._over.get(claim):
            raise NotKnownError
        return self._over.get(claim, False)

    def sleep(self, sleep: Callable[[float], None], seconds: float) -> None:
        """Wait for Kafka, unless no one may be asked."""
        self._check_may_ask()
        sleep(seconds)

    def snapshot(self, topics: Sequence[str], isolation_level: IsolationLevel) -> LogSnapshot:
        """See `LogOffsets.snapshot`. One that was taken earlier ends no earlier than the windows that others have cut since."""
        key = ("snapshot", tuple(topics), isolation_level)
        if key in self._answers and self.position is not None:
            grown: LogSnapshot | None = self._answers[key].grown_to(self.position.offsets, self.position.topic_ids)
            if grown is not None:
                return grown
            self.forget()
        return self._ask(key, lambda: self._kafka.snapshot(topics, isolation_level))

    def topics(self) -> Collection[str]:
        """See `LogOffsets.topics`."""
        return self._ask(("topics",), self._kafka.topics)

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        """See `LogOffsets.topic_ids`."""
        return self._ask(("ids", tuple(topics)), lambda: self._kafka.topic_ids(topics))

    def bounds(
        self, partitions: Sequence[TopicPartition], isolation_level: IsolationLevel
    ) -> Mapping[TopicPartition, Bounds]:
        """See `LogOffsets.bounds`. This is a second look, so it is never remembered."""
        self._check_may_ask()
        return self._kafka.bounds(partitions, isolation_level)

    def offsets_at(
        self, partitions: Sequence[TopicPartition], time: datetime, isolation_level: IsolationLevel
    ) -> Mapping[TopicPartition, int | None]:
        """See `LogOffsets.offsets_at`."""
        key = ("at", tuple(partitions), time, isolation_level)
        return self._ask(key, lambda: self._kafka.offsets_at(partitions, time, isolation_level))

    def first_records(self, wanted: Collection[Probe]) -> Hits:
        """See `LogOffsets.first_records`."""
        missing = [probe for probe in wanted if probe not in self._hits]
        if missing:
            self._check_may_ask()
            self._hits |= self._kafka.first_records(missing)
        return {probe: self._hits[probe] for probe in wanted}

    def retentions(self, topics: Sequence[str]) -> Mapping[str, Retention]:
        """See `LogOffsets.retentions`."""
        return self._ask(("retentions", tuple(topics)), lambda: self._kafka.retentions(topics))

    def epoch_ends(self, wanted: Collection[PartitionEpoch]) -> EpochEnds:
        """See `LogOffsets.epoch_ends`."""
        if not wanted:
            return {}
        return self._ask(("epochs", frozenset(wanted)), lambda: self._kafka.epoch_ends(wanted))

    def committed(self, group_id: str, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        """See `LogOffsets.committed`."""
        key = ("committed", group_id, tuple(partitions))
        return self._ask(key, lambda: self._kafka.committed(group_id, partitions))

    def subject(self, name: str) -> Subject | None:
        """See `SchemaRegistry.subject`. What was asked after Kafka has the schemas of all records that Kafka had."""
        assert self._registry is not None, "only a group with a registry asks for subjects"
        registry = self._registry
        return self._ask(("subject", name), lambda: registry.subject(name))

    def _ask(self, key: Any, question: Callable[[], _T]) -> _T:
        if key not in self._answers:
            self._check_may_ask()
            self._answers[key] = question()
        answer: _T = self._answers[key]
        return answer

    def _check_may_ask(self) -> None:
        if not self._may_ask:
            raise NotKnownError
