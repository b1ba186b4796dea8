"""Avro schemas that refer to others: Spark takes one text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_NAMED = ("record", "error", "enum", "fixed")


def self_contained(text: str, others: Mapping[str, str]) -> str:
    """Return a schema with the schemas that it refers to put in where they are named first.

    Args:
        text: the schema.
        others: full name -> schema; of all that it refers to, and of all that these refer to.

    Raises:
        ValueError: a text is not JSON.

    >>> self_contained('["a.X", "a.X"]', {"a.X": '{"type": "enum", "name": "X", "namespace": "a", "symbols": ["S"]}'})
    '[{"type": "enum", "name": "X", "namespace": "a", "symbols": ["S"]}, "a.X"]'
    """
    return json.dumps(_whole(json.loads(text), "", {name: json.loads(other) for name, other in others.items()}))


def _whole(node: Any, namespace: str, others: dict[str, Any]) -> Any:
    """Return a part of a schema with all that it refers to; what was put in is removed from `others`."""
    if isinstance(node, str):
        full_name = node if "." in node or not namespace else f"{namespace}.{node}"
        found = others.pop(full_name, None)
        return node if found is None else _whole(found, "", others)
    if isinstance(node, list):
        return [_whole(one, namespace, others) for one in node]
    if node["type"] in _NAMED:
        return _whole_named(node, namespace, others)
    inner = next((key for key in ("items", "values") if key in node), "type")
    return {**node, inner: _whole(node[inner], namespace, others)}


def _whole_named(node: dict[str, Any], namespace: str, others: dict[str, Any]) -> dict[str, Any]:
    before, _, last = node["name"].rpartition(".")
    own = before or node.get("namespace", namespace) or ""
    others.pop(f"{own}.{last}" if own else last, None)
    # Said even if it is empty: inside of another one, it would take that one's.
    whole = {**node, "namespace": own}
    if "fields" in node:
        whole["fields"] = [{**one, "type": _whole(one["type"], own, others)} for one in node["fields"]]
    return whole
