"""Reads offsets and partitions that other tools wrote into a store as decimal text."""

from __future__ import annotations

import re

from airflow_kafka_offsets.core.errors import StoreContentError, short
from airflow_kafka_offsets.core.offsets import MAX_OFFSET, MAX_PARTITION

# A partition must have one name only: "07" and "7" are different fields.
_PARTITION = re.compile(rb"0|[1-9][0-9]{0,9}")
_OFFSET = re.compile(rb"[0-9]{1,19}")


def read_offset(text: bytes, where: str) -> int:
    """Read the next offset of a partition.

    >>> read_offset(b"42", "the field 0")
    42

    Args:
        text: what the store holds.
        where: where it holds it, for the message.

    Raises:
        StoreContentError: it is not an offset.
    """
    if not _OFFSET.fullmatch(text) or int(text) > MAX_OFFSET:
        raise StoreContentError(f"{where} holds {_shown(text)}, which is not an offset: correct or delete it")
    return int(text)


def read_partition(text: bytes, where: str) -> int:
    """Read the number of a partition, as `read_offset` reads an offset.

    Raises:
        StoreContentError: it is not a partition.
    """
    if not _PARTITION.fullmatch(text) or int(text) > MAX_PARTITION:
        raise StoreContentError(f"{where} has an entry {_shown(text)}, which is not a partition: delete it")
    return int(text)


def _shown(text: bytes) -> str:
    return short(text.decode(errors="backslashreplace"))
