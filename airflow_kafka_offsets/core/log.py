"""What Kafka holds, as values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition


class IsolationLevel(StrEnum):
    """Which records a reader may see. Every lookup and Spark get the same level, because their defaults differ."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The log of one topic-partition: ``beginning <= offset < end``, where ``end`` belongs to an isolation level.

    Attributes:
        beginning, end: the bounds.
        leader_epoch: the epoch of the leader that reported the end, see `core.leader_epochs`, or None if Kafka reported none.
            It does not count for equality.
    """

    beginning: int
    end: int
    leader_epoch: int | None = field(default=None, compare=False)


UNKNOWN_ID = "A" * 22
"""The topic id of zeros: each topic has it at a broker that gives no ids. It is unknown which topic of that name it is."""


def may_be_same(noted: str | None, now: str | None) -> bool:
    """Whether two ids may be those of one topic. An unknown id may be any; None is no topic."""
    return noted == now or (UNKNOWN_ID in (noted, now) and None not in (noted, now))


def noted_ids(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Return the topic ids to note after a look: an unknown id replaces none that is known."""
    return {**before, **{topic: id_ for topic, id_ in now.items() if id_ != UNKNOWN_ID or topic not in before}}


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """What Kafka holds of some topics at one moment.

    Attributes:
        topic_ids: the id of each topic that exists, or `UNKNOWN_ID`; a topic that was asked for and is not here does not exist.
        bounds: every partition of these topics.
    """

    topic_ids: Mapping[str, str]
    bounds: Mapping[TopicPartition, Bounds]

    def only(self, topics: Collection[str]) -> LogSnapshot:
        """Return the part of it for some topics."""
        if self.topic_ids.keys() <= set(topics):
            return self
        wanted = set(topics)
        topic_ids = {topic: topic_id for topic, topic_id in self.topic_ids.items() if topic in wanted}
        return LogSnapshot(topic_ids, {tp: bounds for tp, bounds in self.bounds.items() if tp.topic in wanted})

    def grown_to(self, offsets: Offsets, topic_ids: Mapping[str, str]) -> LogSnapshot | None:
        """Return this snapshot with the ends that others have seen since, or None if there may be other topics or partitions today.

        Args:
            offsets: next offsets, which Kafka has reached.
            topic_ids: the ids of their topics.
        """
        bounds = dict(self.bounds)
        for tp, offset in offsets.items():
            if (topic_id := self.topic_ids.get(tp.topic)) is None:
                continue  # a topic that was not asked for
            if tp not in bounds or not may_be_same(topic_ids.get(tp.topic), topic_id):
                return None
            bounds[tp] = replace(bounds[tp], end=max(offset, bounds[tp].end))
        return LogSnapshot(self.topic_ids, bounds)
