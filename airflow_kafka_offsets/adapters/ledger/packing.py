"""Packs the ranges of a window with many partitions: 20,000 of them into less than 100 kB.

A packed document is compressed by zlib (RFC 1950). Inside there is one line of JSON, and the bytes of the numbers after it:

``{"orders":{"id":"wDQp...","partitions":[[0,2]],"base":10,"widths":[1,1],"epoch":[[3,1],[null,1]]}}``

- ``partitions`` and ``epoch``: consecutive numbers (equal ones for epochs) are pairs of the first one and how many there are.
- ``base``: the smallest start.
- ``widths``: how many bytes a start (counted from ``base``) has, and how many a span.

After the line there are, for each topic, the lowest bytes of all starts, their next bytes, and so on; then the same of the spans.
Side by side, the high bytes of all numbers are nearly equal, so they take no space.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

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
        starts, spans = [start - base for start in columns["start"]], columns["span"]
        heads[topic] = _head(columns, base, [_width(starts), _width(spans)])
        for column, width in zip((starts, spans), heads[topic]["widths"], strict=True):
            numbers += _planes(column, width)
    return _json(names), zlib.compress(_json(heads).encode() + b"\n" + numbers)


def unpack(packed: bytes) -> dict[str, dict[str, Any]]:
    """Return the columns of each topic.

    Raises:
        ValueError, LookupError, TypeError: `pack` did not write this.
    """
    try:
        head, _, numbers = zlib.decompress(packed).partition(b"\n")
    except zlib.error as exc:
        raise ValueError(f"its packed bytes can't be decompressed: {exc}") from exc
    topics: dict[str, dict[str, Any]] = {}
    at = 0
    for topic, columns in json.loads(head).items():
        many = sum(number for _, number in columns["partitions"])
        base, (start_width, span_width) = columns["base"], columns["widths"]
        if many * (start_width + span_width) > len(numbers) - at:
            raise ValueError("its packed bytes are too few")
        starts = _numbers(numbers[at : (at := at + many * start_width)], start_width)
        spans = _numbers(numbers[at : (at := at + many * span_width)], span_width)
        epochs = {"epoch": list(_unfold(columns["epoch"], 0))} if "epoch" in columns else {}
        topics[topic] = {
            "id": columns["id"],
            "partitions": list(_unfold(columns["partitions"], 1)),
            "start": [base + start for start in starts],
            "span": spans,
            **epochs,
        }
    return topics


def _head(columns: Mapping[str, Any], base: int, widths: Sequence[int]) -> dict[str, Any]:
    epochs = {"epoch": list(_fold(columns["epoch"], 0))} if "epoch" in columns else {}
    partitions = list(_fold(columns["partitions"], 1))
    return {"id": columns["id"], "partitions": partitions, "base": base, "widths": list(widths), **epochs}


def _width(numbers: Sequence[int]) -> int:
    return max(1, -(-max(numbers, default=0).bit_length() // 8))


def _planes(numbers: Sequence[int], width: int) -> bytes:
    """Return the lowest byte of each number, then the next byte of each, and so on."""
    together = b"".join(number.to_bytes(width, "little") for number in numbers)
    return b"".join(together[byte::width] for byte in range(width))


def _numbers(planes: bytes, width: int) -> list[int]:
    many = len(planes) // width
    together = bytearray(len(planes))
    for byte in range(width):
        together[byte::width] = planes[byte * many : (byte + 1) * many]
    return [int.from_bytes(together[at : at + width], "little") for at in range(0, len(together), width)]


def _fold(numbers: Iterable[int | None], step: int) -> Iterator[tuple[int | None, int]]:
    """Return numbers that follow each other by a step as pairs of the first one and how many there are."""
    first: int | None = None
    many = 0
    for number in numbers:
        if many and number == (None if first is None else first + step * many):
            many += 1
            continue
        if many:
            yield first, many
        first, many = number, 1
    if many:
        yield first, many


def _unfold(pairs: Iterable[tuple[int | None, int]], step: int) -> Iterator[int | None]:
    for first, many in pairs:
        for n in range(many):
            yield None if first is None else first + step * n


def _json(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))
