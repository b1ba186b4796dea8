"""Reads from a Structured Streaming checkpoint how far the query has certainly read its Kafka sources.

A query writes ``offsets/N`` before batch N and ``commits/N`` after it. Sources: Spark's ``OffsetSeqLog.scala`` (version 1: one
line per source; version 2, not in Spark 4.0 yet: ``id:offset``), ``CommitLog.scala`` (versions 1 and 2) and
``HDFSMetadataLog.scala``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from airflow_kafka_offsets.core.errors import BadInputError, OffsetsJsonError, name_some, short
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.source.offsets import SourceOffsets
from airflow_kafka_offsets.core.spark_json import load_offsets

NEWEST_VERSION = 2
"""The newest version of both logs that this package reads."""
_COPY = ": take a complete copy"
_VOID = "-"
_BATCH = re.compile(r"0|[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class Batches:
    """The batches of a query that decide where a group continues.

    Attributes:
        committed: the newest committed batch. A group continues at its offsets.
        planned: later batches that are not committed, oldest first.
    """

    committed: int
    planned: tuple[int, ...]


def find_batches(where: str, offsets: Iterable[str], commits: Iterable[str]) -> Batches:
    """Find the newest committed batch.

    Args:
        where: the checkpoint, for messages.
        offsets: the file names in its offsets log. Names that are not a batch's number (``.5.crc``, ``.5.<id>.tmp``) are ignored.
            Numbers may be missing: Spark purges old ones, and writes only some with asynchronous progress tracking.
        commits: the file names in its commits log.

    Raises:
        BadInputError: no batch is committed, or the committed batch has no offsets.
    """
    planned, committed = _numbers(offsets), _numbers(commits)
    if not committed:
        only = f" (batch {planned[-1]} was planned only)" if planned else ""
        raise BadInputError(f"{where} has no committed batch{only}")
    newest = committed[-1]
    if newest not in planned:
        raise BadInputError(f"{where} has committed batch {newest}, but no offsets/{newest}{_COPY}")
    return Batches(newest, tuple(n for n in planned if n > newest))


def _numbers(names: Iterable[str]) -> list[int]:
    return sorted(int(name) for name in names if _BATCH.fullmatch(name))


def read_offsets(where: str, text: str, source: str | None = None) -> SourceOffsets:
    """Read the next offsets of the Kafka sources from a file of the offsets log.

    Args:
        where: the file, for messages.
        text: what it holds.
        source: read only this source; None means all sources that hold Kafka's JSON of offsets.

    Raises:
        BadInputError: there is no such source, no source reads Kafka, or two have different offsets for one partition.
    """
    sources = _sources(where, text)
    if source is not None:
        if source not in sources:
            raise BadInputError(f"{where} has no source {source}; it has {name_some(list(sources), ', ')}")
        sources = {source: sources[source]}
    read = {name: _kafka_offsets(f"{where}, source {name}", line) for name, line in sources.items()}
    notes = [f"source {name} does not read Kafka: {short(sources[name])}" for name in read if not read[name]]
    if not any(read.values()):
        raise BadInputError(f"{where} has no source that reads Kafka ({'; '.join(notes)})")
    return SourceOffsets(_merged(where, read), tuple(notes))


def planned_note(batches: Batches) -> tuple[str, ...]:
    """Return the warning about batches that were planned but not committed."""
    if not batches.planned:
        return ()
    numbers = ", ".join(map(str, batches.planned[:3])) + (", ..." if len(batches.planned) > 3 else "")
    batch = f"batch {numbers} was" if len(batches.planned) == 1 else f"batches {numbers} were"
    return (f"{batch} planned but not committed, and the first window reads it again: remove its output",)


def _sources(where: str, text: str) -> dict[str, str]:
    version, lines = log_lines(where, text)
    if len(lines) < 2:
        raise BadInputError(f"{where} is cut off{_COPY}")
    del lines[0]  # Spark's metadata of the batch
    if version == 1:
        return {str(number): line for number, line in enumerate(lines)}
    named = [line.partition(":") for line in lines]
    if bad := [line for line in named if not line[1]]:
        raise BadInputError(f"{where} has a line without a source's name: {short(bad[0][0])}")
    return {name: line for name, _, line in named}


def log_lines(where: str, text: str) -> tuple[int, list[str]]:
    """Return the version of a file of either log, and the lines after it.

    Raises:
        BadInputError: Spark would not accept the file: it is cut off, or has an unknown version.
    """
    lines = [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]
    if not text.strip():
        raise BadInputError(f"{where} is empty{_COPY}")
    match = re.fullmatch(r"v([1-9][0-9]{0,8})", lines[0].strip())
    if not match:
        raise BadInputError(f"{where} is not a log of Structured Streaming: it begins with {short(lines[0])}")
    version = int(match[1])
    if version > NEWEST_VERSION:
        raise BadInputError(f"{where} has version {version}, above {NEWEST_VERSION}. Import its offsets as csv:FILE")
    return version, lines[1:]


def _kafka_offsets(where: str, line: str) -> dict[TopicPartition, int]:
    if line == _VOID:
        return {}
    try:
        json.loads(line)
    except (ValueError, RecursionError) as exc:
        raise BadInputError(f"{where} is not JSON: {short(line)}") from exc
    try:
        return load_offsets(line)
    except OffsetsJsonError:
        return {}  # a source that is not Kafka has other JSON


def _merged(where: str, read: dict[str, dict[TopicPartition, int]]) -> dict[TopicPartition, int]:
    readers: dict[TopicPartition, str] = {}
    for name, offsets in read.items():
        for tp, offset in sorted(offsets.items()):
            first = readers.setdefault(tp, name)
            if read[first][tp] != offset:
                raise BadInputError(
                    f"{where}: sources {first} and {name} differ for {tp} ({read[first][tp]}, {offset}). Choose one, as "
                    f"?source={name}"
                )
    return {tp: read[name][tp] for tp, name in readers.items()}
