"""Finds fields with different units in two Avro schemas. Avro compares only the underlying types, and would read an old amount wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Placed = tuple[Any, str]  # a schema, and the namespace that is valid in it
    Names = dict[str, Placed]
    Seen = set[tuple[str, str]]

_NAMED = ("record", "error", "enum", "fixed")
_UNITS = ("date", *(f"{what}-{unit}" for what in ("time", "timestamp") for unit in ("millis", "micros", "nanos")))


def unlike(writer: str, reader: str) -> str | None:
    """Describe the first field with different units in two schemas, or return None if there is none.

    A unit that only one schema has is no difference: people add it later.

    >>> print(unlike('{"type": "long", "logicalType": "timestamp-millis"}', '{"type": "long", "logicalType": "timestamp-micros"}'))
    it is timestamp-millis for the writer, and timestamp-micros for the reader
    >>> unlike('"long"', '{"type": "long", "logicalType": "timestamp-micros"}')

    Args:
        writer: the schema of the record, as JSON text.
        reader: the schema to read it with, as JSON text.
    """
    return next(_Pair(json.loads(writer), json.loads(reader)).differences(), None)


class _Pair:
    """Two schemas, side by side."""

    def __init__(self, writer: Any, reader: Any) -> None:
        self._whole = writer, reader
        self._written: Names = {}
        self._read: Names = {}
        _collect(writer, "", self._written)
        _collect(reader, "", self._read)

    def differences(self) -> Iterator[str]:
        """Yield a sentence for each field with two units."""
        writer, reader = self._whole
        return self._compare((writer, ""), (reader, ""), "", set())

    def _compare(self, writer: Placed, reader: Placed, path: str, seen: Seen) -> Iterator[str]:
        (written, its_space), (read, other_space) = _resolved(*writer, self._written), _resolved(*reader, self._read)
        if isinstance(written, list) or isinstance(read, list):
            yield from self._compare_unions((written, its_space), (read, other_space), path, seen)
            return
        units = _unit(written), _unit(read)
        if None not in units and units[0] != units[1]:
            subject = f"its field {path}" if path else "it"
            yield f"{subject} is {_described(written)} for the writer, and {_described(read)} for the reader"
        elif written["type"] == read["type"] == "record":
            pair = f"{its_space}.{written['name']}", f"{other_space}.{read['name']}"
            if pair in seen:  # a record may have fields of its own type
                return
            seen.add(pair)
            fields = {field["name"]: field["type"] for field in written["fields"]}
            for field in read["fields"]:
                name = next((name for name in (field["name"], *field.get("aliases", ())) if name in fields), None)
                if name is not None:
                    inner = f"{path}.{field['name']}" if path else str(field["name"])
                    yield from self._compare((fields[name], its_space), (field["type"], other_space), inner, seen)
        else:
            for part in ("items", "values"):
                if part in written and part in read:
                    yield from self._compare((written[part], its_space), (read[part], other_space), path, seen)

    def _compare_unions(self, writer: Placed, reader: Placed, path: str, seen: Seen) -> Iterator[str]:
        branches = _branches(*reader, self._read)
        for written in _branches(*writer, self._written):
            for read in _matching(written, branches):
                yield from self._compare(written, read, path, seen)


def _branches(schema: Any, space: str, names: Names) -> list[Placed]:
    """Return the branches of a union, resolved; any other schema is its only branch."""
    return [_resolved(branch, space, names) for branch in (schema if isinstance(schema, list) else [schema])]


def _matching(written: Placed, branches: list[Placed]) -> list[Placed]:
    """Return the branches of a union that Avro may read a branch as. Avro looks for them in this order."""
    kind, name, last = _kind(written)
    kinds = [(branch, *_kind(branch)) for branch in branches]
    choices = (
        [branch for branch, its_kind, its_name, _ in kinds if (its_kind, its_name) == (kind, name)],
        [branch for branch, its_kind, _, its_last in kinds if (its_kind, its_last) == (kind, last)],
        [branch for branch, its_kind, _, _ in kinds if its_kind == kind],  # a record with the same fields
        [branch for branch, its_kind, _, _ in kinds if (kind, its_kind) == ("int", "long")],
    )
    return next((choice for choice in choices if choice), [])


def _kind(placed: Placed) -> tuple[str, str, str]:
    """Return the type of a schema, its full name and the name's last part; both names are empty for an unnamed type."""
    schema, space = placed
    last = str(schema.get("name", "")).rpartition(".")[2] if schema["type"] in _NAMED else ""
    return str(schema["type"]), _full(last, space) if last else "", last


def _collect(schema: Any, space: str, names: Names) -> None:
    """Add each named type, with the namespace inside of it, to `names`."""
    if isinstance(schema, list):
        for branch in schema:
            _collect(branch, space, names)
    if not isinstance(schema, dict):
        return
    if schema.get("type") in _NAMED:
        full = _full(str(schema["name"]), schema.get("namespace", space))
        space = full.rpartition(".")[0]
        names[full] = schema, space
    for part in ("type", "items", "values"):
        if isinstance(schema.get(part), (dict, list)):
            _collect(schema[part], space, names)
    for field in schema.get("fields", ()):
        _collect(field["type"], space, names)


def _resolved(schema: Any, space: str, names: Names) -> Placed:
    """Return a union as a list, any other schema as its definition, each with its namespace."""
    if isinstance(schema, list):
        return schema, space
    if isinstance(schema, str):
        for name in (_full(schema, space), schema):
            if name in names:
                return names[name]
        return {"type": schema}, space
    if schema["type"] in _NAMED:
        return names[_full(str(schema["name"]), schema.get("namespace", space))]
    if isinstance(schema["type"], (dict, list)):
        return _resolved(schema["type"], space, names)
    return schema, space


def _full(name: str, space: str | None) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _unit(schema: dict[str, Any]) -> str | None:
    logical = str(schema.get("logicalType"))
    if logical == "decimal":
        return str(schema.get("scale", 0))
    unit = logical[len("local-") :] if logical.startswith("local-") else logical  # no removeprefix in Python 3.8
    return unit if unit in _UNITS else None


def _described(schema: dict[str, Any]) -> str:
    logical = str(schema["logicalType"])
    return f"decimal of scale {schema.get('scale', 0)}" if logical == "decimal" else logical
