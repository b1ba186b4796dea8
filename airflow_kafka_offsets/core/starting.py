"""Where a group without a watermark starts: all forms of ``starting_offsets``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from airflow_kafka_offsets.core.errors import BadInputError, MissingPartitionError, name_some
from airflow_kafka_offsets.core.fields import A_TIME, EPOCH, moment
from airflow_kafka_offsets.core.log import LogSnapshot
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition
from airflow_kafka_offsets.core.spark_json import Edge, load_offsets_or_edges

StartingOffsets = str | datetime | timedelta | Mapping[str, Any]
"""What a user may write: ``"earliest"``, ``"latest"``, ``"committed"``, a time with its zone (datetime or ISO text), a
duration back from now, or Spark's JSON (text or dict)."""


@dataclass(frozen=True, slots=True)
class AtEdge:
    """Start at one end of the log."""

    edge: Edge


@dataclass(frozen=True, slots=True)
class AtTime:
    """Start at the first record whose timestamp is this time or later."""

    time: datetime


@dataclass(frozen=True, slots=True)
class BackFromNow:
    """Start this duration before the moment of planning."""

    duration: timedelta


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """Start at offsets that a person wrote down, one for every partition."""

    offsets: Mapping[TopicPartition, int | Edge]


@dataclass(frozen=True, slots=True)
class AtCommitted:
    """Start at the committed offsets of the Kafka consumer group of the same name."""


Start = AtEdge | AtTime | BackFromNow | AtOffsets | AtCommitted


def parse_starting_offsets(value: StartingOffsets) -> Start:
    """Read what the user wrote.

    >>> parse_starting_offsets("earliest")
    AtEdge(edge=<Edge.EARLIEST: -2>)

    Raises:
        BadInputError: the value has none of these forms, or is a time without a zone or before 1970.
    """
    if isinstance(value, timedelta):
        if value < timedelta(0):
            raise BadInputError(f"starting_offsets: the duration {value} must not be negative")
        return BackFromNow(value)
    if isinstance(value, datetime):
        return AtTime(moment("starting_offsets", value))
    if isinstance(value, Mapping):
        return AtOffsets(load_offsets_or_edges(value))
    if not isinstance(value, str):
        raise BadInputError(f"starting_offsets can't be a {type(value).__name__}")
    if value == "committed":
        return AtCommitted()
    if value.lstrip().startswith("{"):
        return AtOffsets(load_offsets_or_edges(value))
    return _edge_or_time(value, "starting_offsets", "'committed', a timedelta, ")


def parse_reset_target(to: str) -> AtEdge | AtTime:
    """Read a reset's target that Kafka must look up: an end of the log, or a time. `load_offsets` reads explicit offsets.

    >>> parse_reset_target("latest")
    AtEdge(edge=<Edge.LATEST: -1>)

    Raises:
        BadInputError: the text is something else, or is a time without a zone or before 1970.
    """
    return _edge_or_time(to, "--to")


def _edge_or_time(value: str, what: str, more_forms: str = "") -> AtEdge | AtTime:
    edges = {"earliest": AtEdge(Edge.EARLIEST), "latest": AtEdge(Edge.LATEST)}
    forms = f"'earliest', 'latest', {more_forms}Spark's JSON of offsets or {A_TIME}"
    return edges[value] if value in edges else AtTime(moment(what, value, forms))


def lookup_time(start: Start, now: datetime) -> datetime | None:
    """Return the time that has to be looked up in Kafka's timestamp index first, if any."""
    match start:
        case AtTime(time):
            return time
        case BackFromNow(duration):
            # Kafka reads a negative time as the name of an offset (-1: latest). No record is older than 1970 anyway.
            return max(now - min(duration, now - EPOCH), EPOCH)
        case _:
            return None


def first_offsets(
    start: Start,
    log: LogSnapshot,
    *,
    at_time: Mapping[TopicPartition, int | None] | None = None,
    committed: Mapping[TopicPartition, int | None] | None = None,
    committed_in: str = "The Kafka consumer group",
) -> dict[TopicPartition, int]:
    """Resolve a start to one real offset for every partition of the log.

    Args:
        start: what the user chose.
        log: what Kafka holds.
        at_time: the timestamp index's offsets for `lookup_time`; None means no record at or after that time, so start at the end.
        committed: what the consumer group or the offset store holds; None means nothing.
        committed_in: the name of that consumer group or store, for messages.

    Raises:
        BadInputError: an offset is outside the log, a named partition does not exist, or an existing one is not named.
        MissingPartitionError: the consumer group has not committed an offset for every partition.
    """
    match start:
        case AtEdge(edge):
            return {tp: _at_edge(edge, log, tp) for tp in log.bounds}
        case AtTime() | BackFromNow():
            hits = at_time or {}
            return {tp: log.bounds[tp].end if (at := hits[tp]) is None else at for tp in log.bounds}
        case AtOffsets(offsets):
            return _explicit(offsets, log)
        case AtCommitted():
            return _committed(committed or {}, log, committed_in)


def _at_edge(edge: Edge, log: LogSnapshot, tp: TopicPartition) -> int:
    return log.bounds[tp].beginning if edge is Edge.EARLIEST else log.bounds[tp].end


def _explicit(offsets: Mapping[TopicPartition, int | Edge], log: LogSnapshot) -> dict[TopicPartition, int]:
    unknown = sorted(offsets.keys() - log.bounds.keys())
    if unknown:
        raise BadInputError(f"starting_offsets: Kafka has no partition {name_some(unknown, ', ')}")
    unnamed = sorted(log.bounds.keys() - offsets.keys())
    if unnamed:
        raise BadInputError(f"starting_offsets must name all partitions; missing: {name_some(unnamed, ', ')}")
    resolved = {tp: _at_edge(o, log, tp) if isinstance(o, Edge) else o for tp, o in offsets.items()}
    check_inside(resolved, log, "starting_offsets")
    return resolved


def _committed(
    committed: Mapping[TopicPartition, int | None], log: LogSnapshot, where: str
) -> dict[TopicPartition, int]:
    offsets = {tp: offset for tp in log.bounds if (offset := committed.get(tp)) is not None}
    without = sorted(log.bounds.keys() - offsets.keys())
    if without:
        raise MissingPartitionError(
            f"{where} has no offset of {name_some(without, ', ')}. Write starting_offsets as JSON, with -2 (earliest) for these",
            {tp: f"{tp}: no committed offset" for tp in without},
        )
    check_inside(offsets, log, f"{where}: the committed offset", ". To start elsewhere, give the group another name")
    return offsets


def check_inside(offsets: Offsets, log: LogSnapshot, what: str, way_out: str = "") -> None:
    """Refuse offsets outside the log.

    Raises:
        BadInputError: an offset lies below the beginning offset or above the end offset of its partition.
    """
    outside = [
        f"{tp}: {offset} (beginning offset {b.beginning}, end offset {b.end})"
        for tp, offset in sorted(offsets.items())
        if not (b := log.bounds[tp]).beginning <= offset <= b.end
    ]
    if outside:
        raise BadInputError(f"{what} must lie in the log: {name_some(outside)}{way_out}")
