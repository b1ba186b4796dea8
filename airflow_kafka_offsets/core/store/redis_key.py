"""The key of a Redis hash: a pattern with the topic and the group in it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflow_kafka_offsets.core.errors import BadInputError, short

DEFAULT = "offset:{topic}:{group}"
TAGGED = "offset:{group_tag}:{topic}"
"""The pattern for a group of several topics in Redis Cluster."""

_PARTS = re.compile(r"\{(topic|group)(_tag)?\}")
# The characters of topics and groups. Any other character between the two names shows where the first ends.
_OF_NAMES = re.compile(r"[A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class KeyPattern:
    """How topic and group make a key. The pattern has ``{topic}`` and ``{group}`` once each.

    ``{group_tag}`` and ``{topic_tag}`` put the name in braces. Redis Cluster calls this a hash tag: keys with the same tag are
    on the same node.

    >>> KeyPattern().key("orders", "lake.orders")
    'offset:orders:lake.orders'
    >>> KeyPattern("offset:{group_tag}:{topic}").key("orders", "lake.orders")
    'offset:{lake.orders}:orders'

    Raises:
        BadInputError: a name is missing, or two different pairs of names would have the same key.
    """

    text: str = DEFAULT

    def __post_init__(self) -> None:
        if sorted(match[1] for match in _PARTS.finditer(self.text)) != ["group", "topic"]:
            raise BadInputError(
                f"A store's key names topic and group once each, as in {DEFAULT!r} or {TAGGED!r}; got {short(self.text)}"
            )
        before, _, _, between, _, _, after = _PARTS.split(self.text)
        if any(brace in before + between + after for brace in "{}"):
            raise BadInputError(
                f"The key {short(self.text)} has an unknown brace; a hash tag is {{group_tag}} or {{topic_tag}}"
            )
        if not self.is_tagged and _OF_NAMES.fullmatch(between):
            raise BadInputError(
                f"The key {short(self.text)} may mix up topics and groups: put a colon between them, as in {DEFAULT!r}"
            )

    @property
    def is_tagged(self) -> bool:
        """Whether one of the names is a hash tag."""
        return "_tag}" in self.text

    def key(self, topic: str, group: str) -> str:
        """Return the key of a topic's hash."""
        names = {"topic": topic, "group": group}
        return _PARTS.sub(lambda match: f"{{{names[match[1]]}}}" if match[2] else names[match[1]], self.text)
