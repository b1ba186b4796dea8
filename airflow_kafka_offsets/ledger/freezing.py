"""The schemas that are frozen with windows. Each function is a part of the caller's transaction.

A million windows of a group have few sets of schemas, and each set has most schemas of the one before it. So a window has the number of a
set, and a set has the numbers of texts. Every content is kept once, under its digest.

``{"orders-value":{"kind":"AVRO","latest":7,"schemas":{"3":1,"7":2}},"orders-key":null}``
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, insert, select

from airflow_kafka_offsets.core.schemas import Frozen, Subject
from airflow_kafka_offsets.ledger.documents import damaged, intact
from airflow_kafka_offsets.ledger.tables import schemas

_AT_ONCE = 500
"""How many values one statement has."""


def keep(connection: Connection, frozen: Frozen) -> int:
    """Keep schemas, and return their number."""
    texts = {text for subject in frozen.values() if subject for text in subject.schemas.values()}
    numbers = _kept(connection, texts)
    document = {name: _document(subject, numbers) for name, subject in sorted(frozen.items())}
    text = json.dumps(document, separators=(",", ":"))
    return _kept(connection, [text])[text]


def keep_each(connection: Connection, several: Iterable[Frozen]) -> list[int | None]:
    """Keep the schemas of several windows, and return their numbers; None for a window without any."""
    numbers: list[int | None] = []
    last: Frozen = {}
    number: int | None = None
    for frozen in several:
        if frozen != last:  # neighbors mostly have the same ones
            last, number = frozen, keep(connection, frozen) if frozen else None
        numbers.append(number)
    return numbers


def load(connection: Connection, number: int) -> Frozen:
    """Return the schemas that have a number."""
    what = f"schemas {number}"
    document = _contents(connection, [number]).get(number)
    if document is None:
        raise damaged(what, LookupError("they are not there"))
    with intact(what):
        found: Mapping[str, Any] = json.loads(document)
        numbers = {text for subject in found.values() if subject for text in subject["schemas"].values()}
    texts = _contents(connection, numbers)
    with intact(what):
        return {name: _subject(subject, texts) for name, subject in found.items()}


def _document(subject: Subject | None, numbers: Mapping[str, int]) -> dict[str, Any] | None:
    if subject is None:
        return None
    kept = {str(schema_id): numbers[text] for schema_id, text in sorted(subject.schemas.items())}
    return {"kind": subject.kind, "latest": subject.latest, "schemas": kept}


def _subject(document: Mapping[str, Any] | None, texts: Mapping[int, str]) -> Subject | None:
    if document is None:
        return None
    schemas_of = {int(schema_id): texts[number] for schema_id, number in document["schemas"].items()}
    return Subject(document["kind"], document["latest"], schemas_of)


def _kept(connection: Connection, contents: Iterable[str]) -> dict[str, int]:
    """Return the number of each content; what is not there yet is added."""
    digests = {hashlib.sha256(content.encode()).hexdigest(): content for content in contents}
    numbers: dict[str, int] = {}
    for some in _parts(digests):
        rows = connection.execute(select(schemas.c.digest, schemas.c.id).where(schemas.c.digest.in_(some)))
        numbers |= {digests[row.digest]: row.id for row in rows}
    # In one order: two transactions that add the same ones in different orders would wait for one another.
    for digest, content in sorted(digests.items()):
        if content not in numbers:
            added = connection.execute(insert(schemas).values(digest=digest, content=content))
            assert added.inserted_primary_key is not None
            numbers[content] = int(added.inserted_primary_key[0])
    return numbers


def _contents(connection: Connection, numbers: Iterable[int]) -> dict[int, str]:
    found: dict[int, str] = {}
    for some in _parts(numbers):
        rows = connection.execute(select(schemas.c.id, schemas.c.content).where(schemas.c.id.in_(some)))
        found |= {row.id: row.content for row in rows}
    return found


def _parts(values: Iterable[Any]) -> Iterator[list[Any]]:
    whole = sorted(values)
    for start in range(0, len(whole), _AT_ONCE):
        yield whole[start : start + _AT_ONCE]
