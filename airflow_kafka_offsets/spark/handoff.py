"""What a launcher hands to a job: one JSON document, in Spark's conf or in a file that is shipped along.

Launcher and job import this same module, so both sides agree on the form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from datetime import datetime
from typing import Any

from airflow_kafka_offsets.spark.errors import HandoffError

CONF_WINDOW = "spark.kafka_offsets.window"
"""Spark property that holds the document."""

CONF_WINDOW_FILE = "spark.kafka_offsets.window_file"
"""Spark property that holds the base name of a file with the document, for one that is too large for a command line."""

VERSION = 1


@dataclass(frozen=True)
class Handoff:
    """A window as its job gets it.

    Attributes:
        window_id, group, seq, lane: which window it is.
        until: its cut time, ISO 8601 with a zone.
        is_rerun: whether the window was committed already, so that this run replaces an output.
        isolation_level: ``read_committed`` or ``read_uncommitted``.
        expect_gaps: whether offsets without a record are normal.
        topics: topic -> partition -> (start, end), ``start <= offset < end``; empty ranges may be left out.
        options: for Spark's Kafka reader. Never a secret, only references that the Kafka client resolves.
        report: absolute path where the launcher looks for a report of the job; None: it could not read one.
        output_tables: what the commit of the window publishes, once the job has staged it; None: the launcher did not say.
        topic_ids: the id of each topic; None: the launcher did not say.
        at_least: how many records an earlier run of the window read, where fewer are an error; None: any number will do.

    Raises:
        HandoffError: a value can't be used.
    """

    window_id: str
    group: str
    seq: int
    lane: str
    until: str
    is_rerun: bool
    isolation_level: str
    expect_gaps: bool
    topics: Mapping[str, Mapping[str, tuple[int, int]]]
    options: Mapping[str, str]
    report: str | None = None
    output_tables: Sequence[str] | None = None
    topic_ids: Mapping[str, str] | None = None
    at_least: int | None = None

    def __post_init__(self) -> None:
        if datetime.fromisoformat(self.until).tzinfo is None:
            raise HandoffError(f"until must have a zone, got {self.until!r}")
        object.__setattr__(self, "topics", {topic: _ranges(topic, given) for topic, given in self.topics.items()})
        if self.output_tables is not None:
            object.__setattr__(self, "output_tables", tuple(self.output_tables))
        if self.topic_ids is not None:
            object.__setattr__(self, "topic_ids", dict(sorted(self.topic_ids.items())))

    def to_json(self) -> str:
        """Return the document; equal windows give equal bytes."""
        document = {"version": VERSION, **asdict(self), "topics": _sorted(self.topics)}
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Handoff:
        """Read the document; keys that this version does not know are ignored, and what has a default may be left out.

        Raises:
            HandoffError: it is not one, or of a version that this job side can't read.
        """
        try:
            document: dict[str, Any] = json.loads(text)
            if document["version"] != VERSION:
                raise HandoffError(
                    f"The window was handed over in version {document['version']}, this job reads version {VERSION}: let "
                    "the operator ship the job side (ship=True), or install the launcher's version on the cluster"
                )
            given = (field for field in fields(cls) if field.default is MISSING or field.name in document)
            return cls(**{field.name: document[field.name] for field in given})
        except HandoffError:
            raise
        except (KeyError, TypeError, AttributeError, ValueError) as exc:
            raise HandoffError(f"Not a window as launchers hand it over ({exc!r}): {text[:200]}") from exc


def _ranges(topic: str, given: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    ranges = {str(int(partition)): (int(start), int(end)) for partition, (start, end) in given.items()}
    for partition, (start, end) in ranges.items():
        if not 0 <= start <= end:
            raise HandoffError(f"{topic}-{partition}: no offset range: [{start}, {end})")
    return ranges


def _sorted(topics: Mapping[str, Mapping[str, tuple[int, int]]]) -> dict[str, dict[str, tuple[int, int]]]:
    return {topic: dict(sorted(topics[topic].items(), key=lambda item: int(item[0]))) for topic in sorted(topics)}
