"""Schemas of a registry, frozen with a window: a replay reads with the same ones, whatever the registry has by then.

Whole subjects are frozen, and never change. A subject that the group names only later is added when the window is run again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.errors import BadInputError, NotYetError, name_some, short
from airflow_kafka_offsets.core.fields import CONN_ID, TEXT, check_attributes

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.window import Window

AVRO = "AVRO"
"""The kind of the schemas that a job needs to decode records."""
_NAMED = ("record", "error", "enum", "fixed")


class Part(StrEnum):
    """What a schema describes."""

    KEY = "key"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Subject:
    """All schemas of a registry's subject.

    Attributes:
        kind: that of the latest schema, such as ``AVRO``; schemas of another kind are left out.
        latest: the id of the latest one that is not deleted.
        schemas: id -> the schema, which refers to no other subject. Records may still have the ids of deleted ones.
    """

    kind: str
    latest: int
    schemas: Mapping[int, str]


Frozen = Mapping[str, Subject | None]
"""What is frozen with a window, by the name of the subject, or None if the registry did not have it."""


@dataclass(frozen=True, slots=True)
class ToFreeze:
    """Schemas that the ledger writes together with a plan: all of it, or nothing.

    Attributes:
        new: the schemas of each new window, in their order; empty if no new window gets some.
        earlier: windows of earlier plans, each with what takes the place of its schemas.
    """

    new: Sequence[Frozen] = ()
    earlier: Sequence[tuple[Window, Frozen]] = ()


NOTHING = ToFreeze()


@dataclass(frozen=True)
class Registry:
    """A schema registry, and the subjects that describe the records of topics. Holds no secret, opens no connection.

    Args:
        conn_id: Airflow connection of type ``http``.
        subjects: topic -> the subjects of its values, or an empty list if no schema describes them. A topic that is not named
            has one, ``<topic>-value``.
        key_subjects: topic -> the subjects of its keys. A topic that is not named has ``<topic>-key``, if the registry has that.

    Raises:
        BadInputError: a value can't be used.
    """

    conn_id: str
    subjects: Mapping[str, Sequence[str]] = field(default_factory=dict)
    key_subjects: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_attributes(self, {"conn_id": CONN_ID})
        for name in ("subjects", "key_subjects"):
            object.__setattr__(self, name, _checked(name, getattr(self, name)))

    def of(self, part: Part, topic: str) -> tuple[str, ...]:
        """Return the subjects that describe the keys or values of a topic."""
        given = self.subjects if part is Part.VALUE else self.key_subjects
        return tuple(given.get(topic, (f"{topic}-{part}",)))

    def requires(self, part: Part, topic: str) -> bool:
        """Whether these subjects must be there: keys often have no schema."""
        return part is Part.VALUE or topic in self.key_subjects

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        subjects, key_subjects = (
            {topic: list(names) for topic, names in given.items()} for given in (self.subjects, self.key_subjects)
        )
        return {"conn_id": self.conn_id, "subjects": subjects, "key_subjects": key_subjects}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Registry:
        """Rebuild it from `to_json`."""
        return cls(document["conn_id"], document.get("subjects", {}), document.get("key_subjects", {}))


def parse_registry(given: str | Registry | None) -> Registry | None:
    """Return the registry of a group, from the id of its connection alone, too.

    Raises:
        BadInputError: it is neither.
    """
    if given is None or isinstance(given, Registry):
        return given
    if isinstance(given, str):
        return Registry(given)
    raise BadInputError(f"registry must be a connection id or a Registry; got {short(given)}")


def topics_then(topics: Collection[str], of_window: Collection[str]) -> list[str]:
    """Return the topics of a window, as far as its group still reads them.

    A topic that joined the group later is left out: its subjects would change how the window is decoded.

    Args:
        topics: those that the group reads.
        of_window: those for which the window was planned, quiet ones included.
    """
    return sorted(set(topics).intersection(of_window))


def wanted(registry: Registry, topics: Collection[str], filled: Collection[str]) -> dict[str, str]:
    """Return the subjects to freeze with a window. Those of quiet topics are among them, so that all windows of a group decode alike.

    Args:
        registry: the group's registry.
        topics: the topics of the window that the group reads; for a new window, all that the group reads.
        filled: the topics of which the window has something to read.

    Returns:
        The name of each subject, and what needs it, or empty if it may be missing.
    """
    subjects: dict[str, str] = {}
    for topic in sorted({*topics, *filled}):
        for part in Part:
            for name in registry.of(part, topic):
                is_required = topic in filled and registry.requires(part, topic)
                subjects[name] = subjects.get(name) or (f"the {part}s of {topic}" if is_required else "")
    return dict(sorted(subjects.items()))


def lacking(frozen: Frozen, names: Mapping[str, str]) -> list[str]:
    """Return the subjects to look up in the registry.

    Args:
        frozen: what is frozen with the window.
        names: what `wanted` returned.
    """
    return [name for name, needed_for in names.items() if name not in frozen or (needed_for and frozen[name] is None)]


def completed(frozen: Frozen, names: Mapping[str, str], answers: Frozen, conn_id: str) -> Frozen:
    """Return what is frozen with a window, together with the registry's answers.

    Args:
        frozen: what was frozen before.
        names: what `wanted` returned.
        answers: what the registry has of the subjects that are `lacking`.
        conn_id: its connection, for the message.

    Raises:
        NotYetError: a subject that is needed is not there.
    """
    whole = dict(sorted({**frozen, **answers}.items()))
    if missing := {name: needed_for for name, needed_for in names.items() if needed_for and whole[name] is None}:
        named = name_some([f"{name} for {needed_for}" for name, needed_for in missing.items()], ", ")
        raise NotYetError(
            f"The schema registry of {conn_id!r} has no subject {named}. Name the right ones, or none: Registry({conn_id!r}, subjects={{'<topic>': ['<subject>', ...]}})"
        )
    return whole


@dataclass(frozen=True, slots=True)
class Described:
    """A frozen subject, and whose records it describes."""

    name: str
    part: Part
    topics: tuple[str, ...]
    subject: Subject


def described(registry: Registry, topics: Collection[str], frozen: Frozen) -> list[Described]:
    """Return the frozen subjects that a job can decode with, each with the topics that it describes.

    Args:
        registry: the group's registry.
        topics: the topics that the group reads, and those of the window.
        frozen: what is frozen with the window.
    """
    topics_of: dict[tuple[Part, str], list[str]] = {}
    for part in Part:
        for topic in sorted(topics):
            for name in registry.of(part, topic):
                topics_of.setdefault((part, name), []).append(topic)
    return [
        Described(name, part, tuple(its_topics), subject)
        for (part, name), its_topics in topics_of.items()
        if (subject := frozen.get(name)) is not None and subject.kind == AVRO
    ]


def _checked(field_name: str, given: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(given, Mapping):
        raise BadInputError(f"{field_name} must map topics to lists of subjects; got {short(given)}")
    if wrong := {topic: names for topic, names in given.items() if not _is_entry(topic, names)}:
        raise BadInputError(f"{field_name} must map topics to lists of subjects; got {short(wrong)}")
    return {topic: tuple(names) for topic, names in given.items()}


def _is_entry(topic: object, names: object) -> bool:
    is_list = isinstance(names, Sequence) and not isinstance(names, str) and all(map(TEXT.takes, names))
    return TEXT.takes(topic) and is_list


def self_contained(text: str, others: Mapping[str, str]) -> str:
    """Return an Avro schema with those that it refers to put in where they are named first: Spark takes one text.

    Args:
        text: the schema.
        others: full name -> schema, for all that it refers to, directly or through others.

    Raises:
        ValueError: a text is not JSON.

    >>> self_contained('["a.X", "a.X"]', {"a.X": '{"type": "enum", "name": "X", "namespace": "a", "symbols": ["S"]}'})
    '[{"type": "enum", "name": "X", "namespace": "a", "symbols": ["S"]}, "a.X"]'
    """
    return json.dumps(_whole(json.loads(text), "", {name: json.loads(other) for name, other in others.items()}))


def _whole(node: Any, namespace: str, others: dict[str, Any]) -> Any:
    """Return a part of a schema with all that it refers to. What is put in leaves `others`."""
    if isinstance(node, str):
        full_name = node if "." in node or not namespace else f"{namespace}.{node}"
        schema = others.pop(full_name, None)
        return node if schema is None else _whole(schema, "", others)
    if isinstance(node, list):
        return [_whole(branch, namespace, others) for branch in node]
    if node["type"] in _NAMED:
        return _named_whole(node, namespace, others)
    inner = next((key for key in ("items", "values") if key in node), "type")
    return {**node, inner: _whole(node[inner], namespace, others)}


def _named_whole(node: dict[str, Any], namespace: str, others: dict[str, Any]) -> dict[str, Any]:
    before, _, last = node["name"].rpartition(".")
    own = before or node.get("namespace", namespace) or ""
    others.pop(f"{own}.{last}" if own else last, None)
    # Also if it is empty: a schema without a namespace takes the one around it.
    whole = {**node, "namespace": own}
    if "fields" in node:
        whole["fields"] = [{**field, "type": _whole(field["type"], own, others)} for field in node["fields"]]
    return whole
