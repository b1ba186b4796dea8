"""Topic-partitions, offsets and offset ranges. A bound is always the offset of the *next* record to read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeGuard

MAX_OFFSET = 2**63 - 1
MAX_PARTITION = 2**31 - 1


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value is an integer but not a bool, which Python also counts as an integer."""
    return isinstance(value, int) and not isinstance(value, bool)


class TopicPartition(NamedTuple):
    """One partition of one topic. It is a tuple, because it is the key of every mapping here: a window may have 20,000."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def topics_of(partitions: Iterable[TopicPartition]) -> list[str]:
    """Return the topics of topic-partitions, each once, in their order.

    >>> topics_of([TopicPartition("orders", 1), TopicPartition("clicks", 0), TopicPartition("orders", 0)])
    ['clicks', 'orders']
    """
    return sorted({tp.topic for tp in partitions})


Offsets = Mapping[TopicPartition, int]
"""An offset for each of some topic-partitions: the next record to read there."""
