"""How Kafka removes the records of a topic, and what that leaves a reader."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Retention:
    """What removes the records of a topic.

    Attributes:
        time: records become removable when they are older than this (``retention.ms``); None: never by age.
        size: bytes of a partition above which its oldest records go (``retention.bytes``); None: no limit.
        is_compacted: whether compaction removes records that have a newer one of the same key.
        is_assumed: whether this is what the group's definition says, because Kafka does not let the user read the configuration.
    """

    time: timedelta | None
    size: int | None = None
    is_compacted: bool = False
    is_assumed: bool = False
