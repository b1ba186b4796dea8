"""What people get: tables and short sentences."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

from airflow_kafka_offsets.core.errors import counted
from airflow_kafka_offsets.core.window import condition

RANGE = ("topic", "partition", "start", "end", "span")
"""The columns of an offset range: ``[start, end)``."""

MAX_ROWS = 100
"""How many partitions a table for people has."""


def table(keys: Sequence[str], documents: Iterable[Mapping[str, Any]], **headers: str) -> str:
    """Return a table of documents; None is shown as ``-``.

    Args:
        keys: of the columns.
        documents: a row each.
        headers: of the columns that are not called as their keys are.
    """
    from tabulate import tabulate

    rows = [[_cell(document[key]) for key in keys] for document in documents]
    # Names stay as they are: a group or topic may look like a number.
    names = [i for i in range(len(keys)) if any(isinstance(row[i], str) for row in rows)]
    titles = [headers.get(key, key.replace("_", " ")) for key in keys]
    return tabulate(rows, titles, tablefmt="simple", missingval="-", disable_numparse=names)


def _cell(value: object) -> object:
    if isinstance(value, datetime):
        return time(value)
    return value if value is None or isinstance(value, int) else str(value)


def time(value: datetime) -> str:
    """Return a time in UTC to the second."""
    return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def open_text(window: Mapping[str, Any]) -> str:
    """Return an open window in short."""
    attempts = counted(window["attempts"], "attempt")
    return f"{window['id']} ({condition(window['state'], window['rerun'])}, span {window['span']}, {attempts}, held by {window['held_by']})"


def ranges_table(ranges: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of offset ranges."""
    return partitions_table(RANGE, ranges)


def partitions_table(
    keys: Sequence[str],
    partitions: Sequence[Mapping[str, Any]],
    weight: Callable[[Mapping[str, Any]], Any] = itemgetter("span"),
) -> str:
    """Return a table of topic-partitions: of more than `MAX_ROWS` only the weightiest, in their order."""
    weightiest = {id(p) for p in heapq.nlargest(MAX_ROWS, partitions, key=weight)}
    text = table(keys, (p for p in partitions if id(p) in weightiest))
    if len(partitions) <= MAX_ROWS:
        return text
    return f"{text}\n\nThe {MAX_ROWS} of {len(partitions)} partitions that matter most; --output json has all."
