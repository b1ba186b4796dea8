"""Where offsets are read from or written to by hand, in one line: a store's address, ``ledger``, ``checkpoint:...``, ``csv:...``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from airflow_kafka_offsets.core.errors import BadInputError, name_some
from airflow_kafka_offsets.core.offsets import MAX_OFFSET, Offsets, TopicPartition
from airflow_kafka_offsets.core.store_address import StoreAddress, parse_store_address, split_url
from airflow_kafka_offsets.core.window import Held

FORMS = (
    "ledger, the address of an offset store (redis://redis_default, kafka:// for the Kafka consumer group), "
    "checkpoint:DIRECTORY or csv:FILE (csv:- for stdin)"
)


class Meaning(StrEnum):
    """What a number in a place says."""

    NEXT = "next"
    LAST_READ = "last-read"

    @property
    def step(self) -> int:
        """What makes a next offset of the number."""
        return int(self is Meaning.LAST_READ)


@dataclass(frozen=True, slots=True)
class LedgerPlace:
    """The watermark of a group in the ledger."""

    def __str__(self) -> str:
        return "ledger"


@dataclass(frozen=True, slots=True)
class CheckpointPlace:
    """A checkpoint directory of Spark Structured Streaming.

    Attributes:
        directory: a local path, or a URL that fsspec can read.
        source: the one of the query's sources that counts, as the offsets log numbers or names it; None: all that read Kafka.
    """

    directory: str
    source: str | None = None

    def __str__(self) -> str:
        return f"checkpoint:{self.directory}" + (f"?source={self.source}" if self.source else "")


@dataclass(frozen=True, slots=True)
class CsvPlace:
    """The CSV of kafka-consumer-groups; ``-`` is stdin or stdout."""

    file: str

    def __str__(self) -> str:
        return f"csv:{self.file}"


Place = LedgerPlace | StoreAddress | CheckpointPlace | CsvPlace


def parse_place(text: str) -> Place:
    """Read a place.

    >>> parse_place("checkpoint:/data/ckpt?source=1")
    CheckpointPlace(directory='/data/ckpt', source='1')

    Raises:
        BadInputError: it is none; it is not shown, as it might hold a password.
    """
    if text == "ledger":
        return LedgerPlace()
    kind, _, rest = text.partition(":")
    if kind in ("checkpoint", "csv") and not rest:
        raise BadInputError(f"{kind}: names nothing; a place is {FORMS}")
    if kind == "checkpoint":
        return _checkpoint(rest)
    if kind == "csv":
        return CsvPlace(rest)
    if "://" in text:
        return parse_store_address(text)
    raise BadInputError(f"This is no place; a place is {FORMS}")


def _checkpoint(text: str) -> CheckpointPlace:
    found = re.fullmatch(r"(.+?)/*(?:\?source=([\w-]+))?", text, re.DOTALL)
    directory, source = (found[1], found[2]) if found else (text, None)
    if "://" in directory:
        _check_url(directory)
    return CheckpointPlace(directory, source)


def _check_url(text: str) -> None:
    instead = "name an Airflow connection instead, such as checkpoint:s3://aws_default@bucket/path"
    if ":" in split_url(text).netloc.rpartition("@")[0]:
        raise BadInputError(
            f"A checkpoint's URL holds no password, which every user of this machine could read: {instead}"
        )
    if "?" in text:
        raise BadInputError(
            f"Behind a checkpoint's URL stands nothing but ?source=NAME (of letters, digits, _ and -): {instead}"
        )


@dataclass(frozen=True, slots=True)
class Found:
    """What a place holds.

    Attributes:
        offsets: the numbers as they stand there.
        notes: sentences that a person should read before believing them.
        topic_ids: the id of each topic that they belong to, where the place knows it.
        open_windows: of a group in the ledger: windows behind these offsets that wait for their commit, oldest first.
    """

    offsets: Offsets
    notes: tuple[str, ...] = ()
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    open_windows: tuple[Held, ...] = ()


def check_meaning(place: Place, meaning: Meaning) -> None:
    """Refuse a meaning that a place's numbers can't have.

    Raises:
        BadInputError: the place is known to keep next offsets.
    """
    if meaning is Meaning.LAST_READ and isinstance(place, LedgerPlace | CheckpointPlace):
        raise BadInputError(f"The numbers in {place} are next offsets for sure: leave --meaning last-read out")


def check_name(place: Place, name: str | None) -> None:
    """Refuse a name where a place keeps none.

    Raises:
        BadInputError: a checkpoint belongs to one query.
    """
    if name is not None and isinstance(place, CheckpointPlace):
        raise BadInputError("A checkpoint belongs to one query and keeps no group's name: leave --as out")


def next_offsets(found: Offsets, meaning: Meaning) -> dict[TopicPartition, int]:
    """Return the next offset to read for each number of a place.

    Raises:
        BadInputError: a number is none that an offset can be.
    """
    offsets = {tp: number + meaning.step for tp, number in found.items()}
    if bad := [f"{tp}: {found[tp]}" for tp, offset in sorted(offsets.items()) if not 0 <= offset <= MAX_OFFSET]:
        raise BadInputError(f"These are no offsets: {name_some(bad)}")
    return dict(sorted(offsets.items()))


def only(offsets: Mapping[TopicPartition, int], topics: tuple[str, ...]) -> dict[TopicPartition, int]:
    """Return the offsets of some topics; no topic named: all."""
    return {tp: offset for tp, offset in offsets.items() if not topics or tp.topic in topics}
