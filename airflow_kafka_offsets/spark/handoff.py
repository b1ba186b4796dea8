"""The handoff: one JSON document from a launcher to a job, in Spark's conf or in a shipped file. Both sides import this module."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.spark.errors import HandoffError
from airflow_kafka_offsets.spark.shared import short

CONF_WINDOW = "spark.kafka_offsets.window"
"""Spark property that holds the document."""

CONF_WINDOW_FILE = "spark.kafka_offsets.window_file"
"""Spark property that holds the base name of a file with the document, if that is too large for a command line."""

CONF_WINDOW_URI = "spark.kafka_offsets.window_uri"
"""Spark property that holds the address of a folder with the document, in storage that Airflow and Spark both reach."""

WINDOW_FILE = "window.json"
"""The document in that folder."""

REPORTS = "reports"
"""The folder in that folder in which each job reports."""

VERSION = 1

if TYPE_CHECKING:  # drivers may have Python 3.8, which can't subscript these
    Ranges = Mapping[str, Mapping[int, tuple[int, int]]]  # topic -> partition -> [start, end), sorted, none empty


@dataclass(frozen=True)
class Subject:
    """The Avro schemas of a registry's subject, as they were frozen with a window.

    Attributes:
        name: the subject's.
        part: ``key`` or ``value``.
        topics: those whose records they describe.
        latest: the id of the latest schema.
        schemas: id -> the schema, as JSON text that refers to no other subject.

    Raises:
        HandoffError: a value can't be used.
    """

    name: str
    part: str
    topics: Sequence[str]
    latest: int
    schemas: Mapping[int, str]

    def __post_init__(self) -> None:
        schemas = {_schema_id(number): text for number, text in self.schemas.items()}
        is_usable = _is_text(self.name) and self.part in ("key", "value") and _are_texts(self.topics)
        if not is_usable or self.latest not in schemas or not all(map(_is_text, schemas.values())):
            raise _invalid("a subject", self)
        object.__setattr__(self, "topics", tuple(self.topics))
        object.__setattr__(self, "schemas", dict(sorted(schemas.items())))


@dataclass(frozen=True)
class Handoff:
    """A window as its job gets it.

    Attributes:
        window_id, group, seq, lane: which window it is.
        planned_until: the time that the window belongs to, ISO 8601 with a zone.
        is_rerun: whether the window was committed already, so that this run replaces an output.
        isolation_level: ``read_committed`` or ``read_uncommitted``.
        expect_gaps: whether offsets without a record are normal.
        topics: topic -> partition -> [start, end), sorted; empty ranges may be left out.
        options: for Spark's Kafka reader. Never a secret, only references that the Kafka client resolves.
        report: an absolute path, or the URI of a folder, for the job's report, or None if the launcher reads none.
        output_tables: the staged tables that the commit of the window publishes, or None if unknown.
        topic_ids: topic -> id, or None if unknown.
        at_least: the records of an earlier run of the window, if fewer are an error, or None if any number is fine.
        schemas: the subjects whose schemas were frozen with the window, or None if the group has no registry.
        ledgers: the id of the ledger, and of lost ones whose output it may write beside, or None if unknown.

    Raises:
        HandoffError: a value can't be used.
    """

    window_id: str
    group: str
    seq: int
    lane: str
    planned_until: str
    is_rerun: bool
    isolation_level: str
    expect_gaps: bool
    topics: Mapping[str, Mapping[str, tuple[int, int]]]
    options: Mapping[str, str]
    report: str | None = None
    output_tables: Sequence[str] | None = None
    topic_ids: Mapping[str, str] | None = None
    at_least: int | None = None
    schemas: Sequence[Subject] | None = None
    ledgers: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value, is_valid = getattr(self, field.name), _VALID[field.name]
            if not (value is None and field.default is None) and not is_valid(value):
                raise _invalid(field.name, value)
        topics = {topic: _ranges(topic, partitions) for topic, partitions in self.topics.items()}
        object.__setattr__(self, "topics", dict(sorted(topics.items())))
        if self.output_tables is not None:
            object.__setattr__(self, "output_tables", tuple(self.output_tables))
        if self.ledgers is not None:
            object.__setattr__(self, "ledgers", tuple(self.ledgers))
        if self.topic_ids is not None:
            object.__setattr__(self, "topic_ids", dict(sorted(self.topic_ids.items())))
        if self.schemas is not None:
            object.__setattr__(self, "schemas", tuple(map(_subject, self.schemas)))

    def to_json(self) -> str:
        """Return the document; equal windows give equal bytes."""
        return json.dumps({"version": VERSION, **asdict(self)}, separators=(",", ":"), ensure_ascii=False)

    @property
    def ranges(self) -> Ranges:
        """The ranges that are not empty."""
        ranges = {
            topic: {int(partition): (start, end) for partition, (start, end) in partitions.items() if start < end}
            for topic, partitions in self.topics.items()
        }
        return {topic: partitions for topic, partitions in ranges.items() if partitions}

    @classmethod
    def from_json(cls, text: str) -> Handoff:
        """Read the document; unknown keys are ignored, and keys that have a default may be left out.

        Raises:
            HandoffError: it is not such a document, or of a version that this job side can't read.
        """
        try:
            document: dict[str, Any] = json.loads(text, object_pairs_hook=_without_twins)
            if document["version"] != VERSION:
                raise HandoffError(
                    f"The handoff has version {short(document['version'])}, not {VERSION}. Set ship=True, or install the "
                    "launcher's version"
                )
            present = (field for field in fields(cls) if field.default is MISSING or field.name in document)
            return cls(**{field.name: document[field.name] for field in present})
        except HandoffError:
            raise
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as exc:
            raise HandoffError(f"{_INVALID} ({short(exc)}): {text[:_LONGEST]}") from exc


_INVALID = "Not a window's handoff"
_LONGEST = 200
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")


def _invalid(name: str, value: object) -> HandoffError:
    return HandoffError(f"{_INVALID}: {name} is {short(value)}")


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # json itself silently keeps the last one, so a range would be lost.
    document = dict(pairs)
    if len(document) < len(pairs):
        names = [name for name, _ in pairs]
        twin = next(name for name in names if names.count(name) > 1)
        raise HandoffError(f"{_INVALID}: {short(twin)} twice")
    return document


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_time(value: object) -> bool:
    try:
        return isinstance(value, str) and value.isprintable() and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return _is_list(value) and all(map(_is_text, value))


def _are_named_texts(value: object) -> bool:
    return isinstance(value, Mapping) and all(_is_text(k) and isinstance(v, str) for k, v in value.items())


_VALID: Mapping[str, Callable[[Any], bool]] = {
    "window_id": _is_text,
    "group": _is_text,
    "seq": _is_whole,
    "lane": lambda value: value in ("live", "backfill"),
    "planned_until": _is_time,
    "is_rerun": _is_bool,
    "isolation_level": _is_text,
    "expect_gaps": _is_bool,
    "topics": lambda value: isinstance(value, Mapping),
    "options": _are_named_texts,
    "report": _is_text,
    "output_tables": _are_texts,
    "topic_ids": _are_named_texts,
    "at_least": _is_whole,
    "schemas": _is_list,
    "ledgers": _are_texts,
}
"""Whether a value of a field can be used. A field with the default None may be None, too."""


def _subject(value: Subject | Mapping[str, Any]) -> Subject:
    return (
        value if isinstance(value, Subject) else Subject(**{field.name: value[field.name] for field in fields(Subject)})
    )


def _schema_id(value: object) -> int:
    if isinstance(value, bool) or not _NUMBER.fullmatch(str(value)) or int(str(value)) >= 2**32:
        raise _invalid("a schema's id", value)
    return int(str(value))


def _ranges(topic: str, partitions: object) -> dict[str, tuple[int, int]]:
    if not _is_text(topic) or not isinstance(partitions, Mapping):
        raise _invalid(f"topic {short(topic)}", partitions)
    ranges = {}
    for partition, ends in partitions.items():
        if not _NUMBER.fullmatch(str(partition)) or isinstance(partition, bool):
            raise _invalid(f"a partition of {topic}", partition)
        if not _is_list(ends) or len(ends) != 2 or not all(map(_is_whole, ends)) or ends[1] < ends[0]:
            raise _invalid(f"{topic}-{partition}", ends)
        ranges[str(partition)] = (ends[0], ends[1])
    return dict(sorted(ranges.items(), key=lambda item: int(item[0])))
