"""Avro's encoding of the few types that the tests use, in the frames of a schema registry."""

from __future__ import annotations

from typing import Any


def record(name: str, *fields: tuple[Any, ...]) -> dict[str, Any]:
    """Return the schema of a record: each field has a name, a type and perhaps a default."""
    names = ("name", "type", "default")
    return {"type": "record", "name": name, "fields": [dict(zip(names, field, strict=False)) for field in fields]}


def encoded(*values: int | str) -> bytes:
    """Return a record of these fields, each a long or a string."""
    return b"".join(_long(value) if isinstance(value, int) else _text(value) for value in values)


def framed(schema_id: int, body: bytes) -> bytes:
    """Return the bytes that a registry's serializer writes."""
    return b"\0" + schema_id.to_bytes(4, "big") + body


def _long(value: int) -> bytes:
    rest, found = (value << 1) ^ (value >> 63), bytearray()
    while rest > 0x7F:
        found.append((rest & 0x7F) | 0x80)
        rest >>= 7
    return bytes([*found, rest])


def _text(value: str) -> bytes:
    return _long(len(value.encode())) + value.encode()
