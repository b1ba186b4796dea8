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
        local: records lie in a remote tier alone when they are older than this (``local.retention.ms``); None means that age moves none there.
    """

    time: timedelta | None
    size: int | None = None
    is_compacted: bool = False
    is_assumed: bool = False
    local: timedelta | None = None


def retention_of(config: Mapping[str, str | None]) -> Retention:
    """Read the configuration of a topic, with its defaults filled in, as a broker returns it.

    >>> retention_of({"retention.ms": "3600000", "retention.bytes": "-1", "cleanup.policy": "delete"}).time
    datetime.timedelta(seconds=3600)
    >>> retention_of({"retention.ms": "3600000", "retention.bytes": "5", "cleanup.policy": "compact"})
    Retention(time=None, size=None, is_compacted=True, is_assumed=False, local=None)
    """
    policies = {policy.strip() for policy in (config.get("cleanup.policy") or "").split(",")}
    deletes, is_tiered = "delete" in policies, config.get("remote.storage.enable") == "true"
    return Retention(
        time=_time(config, "retention.ms") if deletes else None,
        size=_limit(config, "retention.bytes") if deletes else None,
        is_compacted="compact" in policies,
        local=_time(config, "local.retention.ms") if is_tiered else None,
    )


_MAX_MS = 2**46


def _time(config: Mapping[str, str | None], name: str) -> timedelta | None:
    milliseconds = _limit(config, name)
    # A retention beyond what a timedelta can hold is one of centuries.
    return None if milliseconds is None or milliseconds >= _MAX_MS else timedelta(milliseconds=milliseconds)


def _limit(config: Mapping[str, str | None], name: str) -> int | None:
    number = int(config.get(name) or -1)
    return None if number < 0 else number


def hidden_note(topics: Sequence[str]) -> str:
    """Return the note on topics whose retention is not known."""
    return (
        f"this user may not read the configuration of {name_some(topics, ', ')}: grant the ACL DescribeConfigs on Topic, or if Kafka does "
        "not support that, set KafkaGroup(retention=...)"
    )
