"""The files that hold offsets on a local disk, S3 or HDFS: ``<group>/<version>.json``; the highest version is current.

Each advance adds one file and changes none. A writer that finds the next version taken was overtaken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from airflow_kafka_offsets.core.errors import OffsetsJsonError, StoreContentError
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition
from airflow_kafka_offsets.core.spark_json import dump_offsets, load_offsets, refuse_duplicates
from airflow_kafka_offsets.core.store_address import MIN_KEEP

LEFTOVER_AGE = timedelta(days=1)
"""A temporary file that is older no longer has a writer."""
MAX_DELETED = 20
"""How many files one advance deletes at most. There may be more if the rights to delete were granted late."""

_VERSION = re.compile(r"([0-9]{20})\.json")
_TEMPORARY = re.compile(r"\.tmp-([0-9]{13})-[0-9a-f]+")
_NEXT_OFFSETS = "next_offsets"


@dataclass(frozen=True, slots=True)
class OffsetFile:
    """One version of a group's offsets.

    Attributes:
        group: the group.
        version: its number, from 1; 0: there is no file yet.
        offsets: the next offset of every topic-partition of the group.
        window_id: the window whose commit writes it, or empty if no window's does.
        written_at: when it is written, or None if the file was read.
        token: a random text that only this writer's file has, or empty if the file was read.
    """

    group: str
    version: int = 0
    offsets: Offsets = field(default_factory=dict)
    window_id: str = ""
    written_at: datetime | None = None
    token: str = ""


def file_name(version: int) -> str:
    """Return the name of a version's file. Names sort as their versions do.

    >>> file_name(42)
    '00000000000000000042.json'

    Raises:
        StoreContentError: the number has more than 20 digits: another tool made a file with the highest number.
    """
    if version >= 10**20:
        raise StoreContentError(f"File number {version - 1} is the highest possible: remove it")
    return f"{version:020d}.json"


def version_of(name: str) -> int | None:
    """Return the version that a file holds, or None if another tool's file, or one that is still being written."""
    match = _VERSION.fullmatch(name)
    return int(match[1]) if match else None


def newest_version(names: Iterable[str]) -> int:
    """Return the highest version among these names; 0: there is none."""
    return max((version_of(name) or 0 for name in names), default=0)


def temporary_name(now: datetime, token: str) -> str:
    """Return the name of a file that is not visible yet. The name holds the time, so that leftovers can be found."""
    return f".tmp-{int(now.timestamp() * 1000):013d}-{token}"


def came_too_late(written: int, names: Iterable[str]) -> bool:
    """Decide whether other writers had already written, passed and deleted the version that was just written.

    A writer may pause between its read and its write. If others write at least `MIN_KEEP` versions meanwhile, its version may be
    deleted already, and its name is free again. A file that is written under it is not current.

    Args:
        written: the version that was just written.
        names: the names that were in the folder after the write.
    """
    return newest_version(names) - written >= MIN_KEEP


def superfluous(names: Iterable[str], newest: int, keep: int, now: datetime) -> list[str]:
    """Return the files to delete: versions older than the newest `keep`, and leftovers of dead writers."""
    names = sorted(names)
    old = [name for name in names if 0 < (version_of(name) or 0) <= newest - max(keep, MIN_KEEP)]
    left = [name for name in names if _is_leftover(name, now)]
    return (old + left)[:MAX_DELETED]


def _is_leftover(name: str, now: datetime) -> bool:
    match = _TEMPORARY.fullmatch(name)
    return match is not None and int(match[1]) / 1000 < (now - LEFTOVER_AGE).timestamp()


def dump_offset_file(file: OffsetFile) -> bytes:
    """Write the document, one partition per line, so that `diff` can compare two versions."""
    document = {
        "group": file.group,
        "version": file.version,
        "window_id": file.window_id,
        "written_at": file.written_at.isoformat(timespec="milliseconds") if file.written_at else None,
        "token": file.token,
        _NEXT_OFFSETS: json.loads(dump_offsets(file.offsets)),
    }
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def load_offset_file(content: bytes, group: str, where: str) -> tuple[dict[TopicPartition, int], str]:
    """Read the offsets in a document, and its window. All other fields but the group are for people, and ignored.

    Args:
        content: what the file holds.
        group: the group that it must belong to.
        where: the file, for the message.

    Raises:
        StoreContentError: it is not such a document, or belongs to another group.
    """
    try:
        document = json.loads(content.decode(), object_pairs_hook=refuse_duplicates)
    except (ValueError, RecursionError) as exc:  # ValueError also if it is not UTF-8, or a key is there twice
        raise _not_offsets(where, f"it is not JSON ({exc})") from exc
    owner = document.get("group") if isinstance(document, dict) else None
    if owner != group:
        raise _not_offsets(where, f"its group is {repr(owner)[:80]}")
    offsets = document.get(_NEXT_OFFSETS)
    try:
        # Not a text, which would be parsed as JSON: a file written by hand has one form only.
        return load_offsets(offsets if isinstance(offsets, dict) else {}), str(document.get("window_id") or "")
    except OffsetsJsonError as exc:
        raise _not_offsets(where, f"{_NEXT_OFFSETS}: {exc}") from exc


def _not_offsets(where: str, why: str) -> StoreContentError:
    return StoreContentError(
        f"{where} does not hold the offsets of the group: {why}. See docs/stores/files.md#when-something-is-wrong"
    )
