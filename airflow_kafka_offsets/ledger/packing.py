"""Packs the ranges of a window with many partitions: 20,000 of them into less than 100 kB.

A packed document is compressed by zlib (RFC 1950). Inside there is one line of JSON, and the bytes of the numbers after it:

``{"orders":{"id":"wDQp...","partitions":[[0,500]],"base":10,"widths":[3,2,1]}}``

- ``partitions``: consecutive numbers are pairs of the first one and how many there are.
- ``base``: the smallest start.
- ``widths``: how many bytes each start (counted from ``base``), each span, and each leader epoch has. An epoch is stored as the
  number after it; 0: none is known. Without a third width no epoch is.

After the line there are, for each topic, the lowest bytes of all starts, their next bytes, and so on; then the same of the spans and
the epochs. Side by side, the high bytes of all numbers are nearly equal, so they take no space.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import groupby
from typing import Any

_WORD = 8
"""An offset has 8 bytes in Kafka, so no number here has more."""

MAX_PLAIN = 16_384
"""The most characters that a document has before it is packed: about 700 partitions."""


def pack(text: str) -> tuple[str, bytes | None]:
    """Return how a document of ranges is stored: as it is, or as a plain text with the names and the packed bytes."""
    if len(text) <= MAX_PLAIN:
        return text, None
    topics = json.loads(text)
    names = {topic: {"id": columns["id"], "packed": len(columns["partitions"])} for topic, columns in topics.items()}
    heads: dict[str, Any] = {}
    numbers = bytearray()
    for topic, columns in topics.items():
        base = min(columns["start"], default=0)
        each = [[start - base for start in columns["start"]], columns["span"]]
        if "epoch" in columns:
            each.append([0 if epoch is None else epoch + 1 for epoch in columns["epoch"]])
        widths = [_width(column) for column in each]
        partitions = list(_fold(columns["partitions"]))
        heads[topic] = {"id": columns["id"], "partitions": partitions, "base": base, "widths": widths}
        for column, width in zip(each, widths, strict=True):
            numbers += _planes(column, width)
    return _json(names), zlib.compress(_json(heads).encode() + b"\n" + numbers)


def unpack(packed: bytes, wanted: Set[tuple[str, int]] | None = None) -> dict[str, dict[str, Any]]:
    """Return the columns of each topic.

    Args:
        packed: what `pack` returned.
        wanted: topics and partitions that are read, or None for all.

    Raises:
        ValueError, LookupError, TypeError: `pack` did not write this.
    """
    topics: dict[str, dict[str, Any]] = {}
    for topic, columns, many, each in _topics(packed):
        partitions, places = list(_unfold(columns["partitions"])), None
        if wanted is not None:
            places = [place for place, partition in enumerate(partitions) if (topic, partition) in wanted]
            partitions = [partitions[place] for place in places]
        starts, spans, *epochs = (_numbers(planes, many, places) for planes in each)
        topics[topic] = {
            "id": columns["id"],
            "partitions": partitions,
            "start": [columns["base"] + start for start in starts],
            "span": spans,
        }
        if epochs:
            topics[topic]["epoch"] = [epoch - 1 if epoch else None for epoch in epochs[0]]
    return topics


def _topics(packed: bytes) -> Iterator[tuple[str, dict[str, Any], int, list[bytes]]]:
    """Return for each topic its name, its part of the first line, how many partitions it has, and the bytes of each column."""
    try:
        head, _, numbers = zlib.decompress(packed).partition(b"\n")
    except zlib.error as exc:
        raise ValueError(f"its packed bytes can't be decompressed: {exc}") from exc
    at = 0
    for topic, columns in json.loads(head).items():
        many, widths = sum(number for _, number in columns["partitions"]), columns["widths"]
        if many * sum(widths) > len(numbers) - at:
            raise ValueError("its packed bytes are too few")
        if many and min(widths) < 1:
            raise ValueError("its packed numbers have no bytes")
        each = []
        for width in widths:
            each.append(numbers[at : at + many * width])
            at += many * width
        yield topic, columns, many, each


def _width(numbers: Sequence[int]) -> int:
    return max(1, -(-max(numbers, default=0).bit_length() // 8))


def _planes(numbers: Sequence[int], width: int) -> bytes:
    """Return the lowest byte of each number, then the next byte of each, and so on."""
    together = b"".join(number.to_bytes(width, "little") for number in numbers)
    return b"".join(together[byte::width] for byte in range(width))


def _numbers(planes: bytes, many: int, places: Sequence[int] | None) -> list[int]:
    """Read what `_planes` wrote: the numbers at some places, or all."""
    if places is not None:
        return [int.from_bytes(planes[place::many], "little") for place in places]
    together = bytearray(many * _WORD)
    for byte in range(len(planes) // max(1, many)):
        together[byte::_WORD] = planes[byte * many : (byte + 1) * many]
    return list(struct.unpack(f"<{many}Q", together))


def _fold(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Return consecutive numbers as pairs of the first one and how many there are."""
    for _, run in groupby(enumerate(numbers), key=lambda numbered: numbered[1] - numbered[0]):
        found = [number for _, number in run]
        yield found[0], len(found)


def _unfold(pairs: Iterable[tuple[int, int]]) -> Iterator[int]:
    for first, many in pairs:
        yield from range(first, first + many)


def _json(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))
