"""Where people read offsets from and write them to: a store's address, ``ledger``, ``checkpoint:...``, ``csv:...``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from airflow_kafka_offsets.core.errors import BadInputError, name_some
from airflow_kafka_offsets.core.offsets import MAX_OFFSET, Offsets, TopicPartition
from airflow_kafka_offsets.core.store_address import StoreAddress, parse_store_address, split_url
from airflow_kafka_offsets.core.window import WindowRecord


class Meaning(StrEnum):
    """What a source's numbers are: the next offset to read, or the last offset read."""

    NEXT = "next"
    LAST_READ = "last-read"

    @property
    def step(self) -> int:
        """What to add to a number to get the next offset."""
        return int(self is Meaning.LAST_READ)


@dataclass(frozen=True, slots=True)
class LedgerAddress:
    """The watermark of a group in the ledger."""

    def __str__(self) -> str:
        return "ledger"


@dataclass(frozen=True, slots=True)
class CheckpointAddress:
    """A checkpoint directory of Spark Structured Streaming.

    Attributes:
        directory: a local path, or a URL that fsspec can read.
        source: the only source of the query to read, by its number or name in the offsets log; None means all that read Kafka.
    """

    directory: str
    source: str | None = None

    def __str__(self) -> str:
        return f"checkpoint:{self.directory}" + (f"?source={self.source}" if self.source else "")


@dataclass(frozen=True, slots=True)
class CsvAddress:
    """The CSV of kafka-consumer-groups; ``-`` is stdin or stdout."""

    file: str

    def __str__(self) -> str:
        return f"csv:{self.file}"


SourceAddress = LedgerAddress | StoreAddress | CheckpointAddress | CsvAddress


def parse_source_address(text: str) -> SourceAddress:
    """Read a source.

    >>> parse_source_address("checkpoint:/data/ckpt?source=1")
    CheckpointAddress(directory='/data/ckpt', source='1')

    Raises:
        BadInputError: the text is not a source. The message does not show it: it might hold a password.
    """
    if text == "ledger":
        return LedgerAddress()
    kind, _, rest = text.partition(":")
    if kind == "checkpoint" and rest:
        return _checkpoint(rest)
    if kind == "csv" and rest:
        return CsvAddress(rest)
    if "://" in text:
        return parse_store_address(text)
    raise BadInputError(
        "This is not a source. Write one of: ledger, an offset store such as kafka://, checkpoint:DIRECTORY, csv:FILE"
    )


def _checkpoint(text: str) -> CheckpointAddress:
    match = re.fullmatch(r"(.+?)/*(?:\?source=([\w-]+))?", text, re.DOTALL)
    directory, source = (match[1], match[2]) if match else (text, None)
    if "://" in directory:
        _check_url(directory)
    return CheckpointAddress(directory, source)


def _check_url(text: str) -> None:
    if ":" in split_url(text).netloc.rpartition("@")[0]:
        raise BadInputError(
            "A checkpoint's URL must not hold a password: name a connection, as in s3://aws_default@bucket/path"
        )
    if "?" in text:
        raise BadInputError("A checkpoint's URL may have no query but ?source=NAME")


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    """What a source holds.

    Attributes:
        offsets: the numbers as the source has them.
        notes: warnings about them, for a person.
        topic_ids: the id of each of their topics, where the source has it.
        leader_epochs: the leader epochs that the group has noted, if the source is the ledger; see `core.leader_epochs`.
        later: the group's live windows after these offsets, oldest first, if the source is the ledger. The first one is open.
    """

    offsets: Offsets
    notes: tuple[str, ...] = ()
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    later: tuple[WindowRecord, ...] = ()
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)


def check_meaning(source: SourceAddress, meaning: Meaning) -> None:
    """Refuse ``last-read`` for a source that always keeps next offsets.

    Raises:
        BadInputError: the source is the ledger or a checkpoint.
    """
    if meaning is Meaning.LAST_READ and isinstance(source, LedgerAddress | CheckpointAddress):
        raise BadInputError(f"The numbers in {source} are next offsets: leave --meaning last-read out")


def check_name(source: SourceAddress, name: str | None) -> None:
    """Refuse a group's name for a source that keeps no names.

    Raises:
        BadInputError: the source is a checkpoint.
    """
    if name is not None and isinstance(source, CheckpointAddress):
        raise BadInputError("A checkpoint keeps no group's name: leave --as out")


def next_offsets(numbers: Offsets, meaning: Meaning) -> dict[TopicPartition, int]:
    """Return the next offset to read for each number of a source.

    Raises:
        BadInputError: a number is outside the range of offsets.
    """
    offsets = {tp: number + meaning.step for tp, number in numbers.items()}
    if bad := [f"{tp}: {numbers[tp]}" for tp, offset in sorted(offsets.items()) if not 0 <= offset <= MAX_OFFSET]:
        raise BadInputError(f"These numbers are not offsets (0 to 2^63-1): {name_some(bad)}")
    return dict(sorted(offsets.items()))


def only(offsets: Mapping[TopicPartition, int], topics: tuple[str, ...]) -> dict[TopicPartition, int]:
    """Return the offsets of these topics; of all if `topics` is empty."""
    return {tp: offset for tp, offset in offsets.items() if not topics or tp.topic in topics}
