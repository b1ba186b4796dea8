"""Which topics a group reads: those of a list, or all whose names match a pattern.

A list names its topics forever. A pattern is looked up in Kafka whenever a window is planned, and the window then holds the
topics that were there: a job, a retry and a replay read those, and never look at the pattern.

A pattern has to match the whole name, as in Spark's ``subscribePattern``. Names that begin with two underscores are those of Kafka
and its tools (``__consumer_offsets``). Only a pattern that itself begins with two underscores matches them: one like ``.*`` means
the topics of people.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass

from airflow_kafka_offsets.core.errors import BadInputError, name_some, short

# The characters that Kafka allows, so that no name has to be escaped but for its dots.
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_INTERNAL = "__"
MAX_PATTERN = 1000


class Matched(tuple[str, ...]):
    """The topics that a pattern matched when its group last planned. A DAG never has them: they are in the ledger."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Matching(Container[str]):
    """All topics whose whole names match a pattern, whether they exist or not.

    >>> "orders-eu" in Matching("orders-.*"), "old-orders-eu" in Matching("orders-.*"), "__consumer_offsets" in Matching(".*")
    (True, False, False)
    """

    pattern: str

    def __contains__(self, topic: object) -> bool:
        if not isinstance(topic, str):
            return False
        if topic.startswith(_INTERNAL) and not self.pattern.startswith(_INTERNAL):
            return False
        return re.fullmatch(self.pattern, topic) is not None


def checked_topics(topics: Sequence[str], pattern: str | None) -> tuple[str, ...]:
    """Return the topics of a group that names them, or that has a pattern instead.

    Raises:
        BadInputError: there are none, one is no topic name, or there is a pattern as well.
    """
    if pattern is not None:
        return _matched(topics)
    if isinstance(topics, str) or not isinstance(topics, Sequence) or not topics:
        raise BadInputError(
            f"topics must be a list of at least one topic name, got {short(topics)} (or set topics_pattern)"
        )
    for topic in topics:
        if not isinstance(topic, str) or topic in (".", "..") or len(topic) > 249 or not _TOPIC.fullmatch(topic):
            raise BadInputError(f"{short(topic)} in topics is not a Kafka topic name")
    if len(set(topics)) < len(topics):
        raise BadInputError(f"topics names a topic twice: {name_some(topics, ', ')}")
    return tuple(topics)


def _matched(topics: Sequence[str]) -> Matched:
    is_empty = isinstance(topics, list | tuple) and not topics
    if not is_empty and not isinstance(topics, Matched):
        raise BadInputError(f"topics and topics_pattern exclude each other, got topics={short(topics)}")
    return Matched(topics)


def check_pattern(pattern: object) -> None:
    """Refuse what is no pattern; None is fine.

    Raises:
        BadInputError: it is no regular expression, with where it goes wrong; or it is too long.
    """
    if pattern is None:
        return
    if not isinstance(pattern, str) or not 0 < len(pattern) <= MAX_PATTERN or not pattern.isprintable():
        raise BadInputError(
            f"topics_pattern must be a regular expression of 1 to {MAX_PATTERN} printable characters, got {short(pattern)}"
        )
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as exc:
        raise BadInputError(
            f"topics_pattern={short(pattern)} is not a regular expression of Python: {exc}. For all names "
            "that begin with orders: 'orders.*'"
        ) from exc
