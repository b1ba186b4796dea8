"""How Kafka removes the records of a topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from airflow_kafka_offsets.core.errors import name_some


@dataclass(frozen=True, slots=True)
class Retention:
    """What removes the records of a topic.

    Attributes:
        time: records become removable when they are older than this (``retention.ms``); None means never by age.
        size: bytes of a partition above which its oldest records go (``retention.bytes``); None means no limit.
        is_compacted: whether compaction removes records that have a newer one of the same key.
        is_assumed: whether this is the retention of the group's definition, because Kafka does not let the user read the configuration.
    """

    time: timedelta | None
    size: int | None = None
    is_compacted: bool = False
    is_assumed: bool = False


def retention_of(config: Mapping[str, str | None]) -> Retention:
    """Read the configuration of a topic, with its defaults filled in, as a broker returns it.

    >>> retention_of({"retention.ms": "3600000", "retention.bytes": "-1", "cleanup.policy": "delete"}).time
    datetime.timedelta(seconds=3600)
    >>> retention_of({"retention.ms": "3600000", "retention.bytes": "5", "cleanup.policy": "compact"})
    Retention(time=None, size=None, is_compacted=True, is_assumed=False)
    """
    policies = {policy.strip() for policy in (config.get("cleanup.policy") or "").split(",")}
    milliseconds, size = _limit(config, "retention.ms"), _limit(config, "retention.bytes")
    deletes = "delete" in policies
    # A retention beyond what a timedelta can hold is one of centuries.
    is_bound = deletes and milliseconds is not None and milliseconds < _MAX_MS
    return Retention(
        time=timedelta(milliseconds=milliseconds) if is_bound and milliseconds is not None else None,
        size=size if deletes else None,
        is_compacted="compact" in policies,
    )


_MAX_MS = 2**46


def _limit(config: Mapping[str, str | None], name: str) -> int | None:
    number = int(config.get(name) or -1)
    return None if number < 0 else number


def hidden_note(topics: Sequence[str]) -> str:
    """Return the note on topics whose retention is not known."""
    return (
        f"this user may not read the configuration of {name_some(topics, ', ')}: grant the ACL DescribeConfigs on Topic, or if Kafka does "
        "not support that, set KafkaGroup(retention=...)"
    )
