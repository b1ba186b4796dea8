"""Reading the logs of a Structured Streaming checkpoint: how far its Kafka sources have been read for sure.

A query writes ``offsets/N`` before batch N and ``commits/N`` behind it. Sources: Spark's ``OffsetSeqLog.scala`` (version 1: one
line per source; version 2, which Spark 4.0 does not have yet: ``id:offset``), ``CommitLog.scala`` (versions 1 and 2) and
``HDFSMetadataLog.scala``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from airflow_kafka_offsets.core.errors import BadInputError, OffsetsJsonError, name_some, short
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.place.place import Found
from airflow_kafka_offsets.core.spark_json import load_offsets

NEWEST_VERSION = 2
"""Of both logs."""
_VOID = "-"
_BATCH = re.compile(r"0|[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class Batches:
    """What a query has done.

    Attributes:
        committed: its newest committed batch: the offsets of this one are where to go on.
        planned: later batches that were not committed, oldest first.
    """

    committed: int
    planned: tuple[int, ...]


def find_batches(where: str, offsets: Iterable[str], commits: Iterable[str]) -> Batches:
    """Find the newest committed batch.

    Args:
        where: the checkpoint, for messages.
        offsets: the names of the files in its offsets log. What is no batch's number (``.5.crc``, ``.5.<id>.tmp``) is ignored,
            and numbers may be missing: old ones are purged, and with asynchronous progress tracking some are never written.
        commits: the names in its commits log.

    Raises:
        BadInputError: nothing was committed, or the logs don't belong together.
    """
    planned, committed = _numbers(offsets), _numbers(commits)
    if not committed:
        raise BadInputError(
            f"{where} has no committed batch, so there is nothing to go on from"
            + (
                f" (batch {planned[-1]} was planned only)"
                if planned
                else ": is it the checkpoint directory of a query?"
            )
        )
    newest = committed[-1]
    if newest not in planned:
        raise BadInputError(
            f"{where} says that batch {newest} was committed, and has no offsets of it (offsets/{newest} is missing; "
            f"it has {name_some([str(n) for n in planned[:-4:-1]], ', ') or 'none at all'}): a part of the directory is lost"
        )
    return Batches(newest, tuple(n for n in planned if n > newest))


def _numbers(names: Iterable[str]) -> list[int]:
    return sorted(int(name) for name in names if _BATCH.fullmatch(name))


def check_commit(where: str, text: str) -> None:
    """Refuse a commit that Spark would not take for one.

    Raises:
        BadInputError: it is cut off, or of a version that we don't know.
    """
    _checked_version(where, text)


def read_offsets(where: str, text: str, source: str | None = None) -> Found:
    """Read the next offsets of the Kafka sources from a file of the offsets log.

    Args:
        where: the file, for messages.
        text: what it holds.
        source: only this one; None: all lines that are Kafka's JSON of offsets.

    Raises:
        BadInputError: no such source, none that reads Kafka, or two that stand differently in one partition.
    """
    sources = _sources(where, text)
    if source is not None:
        if source not in sources:
            raise BadInputError(f"{where} has no source {source}; it has {name_some(list(sources), ', ')}")
        sources = {source: sources[source]}
    read = {name: _kafka_offsets(f"{where}, source {name}", line) for name, line in sources.items()}
    others = [
        f"source {name} is not Kafka's and is left out: {short(sources[name])}" for name in read if not read[name]
    ]
    if not any(read.values()):
        raise BadInputError(f"{where}: no source of it stands anywhere in Kafka ({'; '.join(others)})")
    return Found(_merged(where, {name: found for name, found in read.items() if found}), tuple(others))


def planned_note(batches: Batches) -> tuple[str, ...]:
    """Return what to tell of batches that were planned only."""
    if not batches.planned:
        return ()
    numbers = ", ".join(map(str, batches.planned[:3])) + (", ..." if len(batches.planned) > 3 else "")
    batch = f"batch {numbers} was" if len(batches.planned) == 1 else f"batches {numbers} were"
    return (
        f"{batch} planned but not committed: the first window reads it again, so what the query may have written of it "
        "has to go",
    )


def _sources(where: str, text: str) -> dict[str, str]:
    version, lines = _checked_version(where, text)
    if len(lines) < 2:
        raise BadInputError(f"{where} is cut off: it ends before its offsets")
    del lines[0]  # Spark's metadata of the batch
    if version == 1:
        return {str(number): line for number, line in enumerate(lines)}
    named = [line.partition(":") for line in lines]
    if bad := [line for line in named if not line[1]]:
        raise BadInputError(f"{where} has a line without a source's name: {short(bad[0][0])}")
    return {name: line for name, _, line in named}


def _checked_version(where: str, text: str) -> tuple[int, list[str]]:
    """Return the version and the lines behind it."""
    lines = [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]
    if not text.strip():
        raise BadInputError(f"{where} is empty: a copy that was cut off, or a query that died while it wrote")
    found = re.fullmatch(r"v([1-9][0-9]{0,8})", lines[0].strip())
    if not found:
        raise BadInputError(f"{where} is no log of Structured Streaming: it begins with {short(lines[0])}, not with v1")
    version = int(found[1])
    if version > NEWEST_VERSION:
        raise BadInputError(
            f"{where} is of version {version}, and this package knows 1 to {NEWEST_VERSION}: read its offsets yourself, and "
            "import them as csv:FILE"
        )
    return version, lines[1:]


def _kafka_offsets(where: str, line: str) -> dict[TopicPartition, int]:
    if line == _VOID:
        return {}
    try:
        json.loads(line)
    except (ValueError, RecursionError) as exc:
        raise BadInputError(f"{where} is no JSON, as if it had been cut off: {short(line)}") from exc
    try:
        return load_offsets(line)
    except OffsetsJsonError:
        return {}  # another kind of source has another kind of JSON


def _merged(where: str, read: dict[str, dict[TopicPartition, int]]) -> dict[TopicPartition, int]:
    merged: dict[TopicPartition, int] = {}
    reader: dict[TopicPartition, str] = {}
    for name, offsets in read.items():
        for tp, offset in sorted(offsets.items()):
            if merged.get(tp, offset) != offset:
                raise BadInputError(
                    f"{where}: sources {reader[tp]} and {name} both read {tp} and stand differently there ({merged[tp]} and "
                    f"{offset}). Take one of them: add ?source={name} to the place"
                )
        merged |= offsets
        reader |= dict.fromkeys(offsets, name)
    return merged
