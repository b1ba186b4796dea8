"""What people get: tables and short sentences."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

MAX_ROWS = 100
"""How many partitions a table for people has."""


def table(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table; None is shown as ``-``."""
    from tabulate import tabulate

    # Names stay as they are: a group or topic may look like a number.
    return tabulate(list(rows), headers, tablefmt="simple", missingval="-", disable_numparse=_names(headers))


def _names(headers: Sequence[str]) -> list[int]:
    return [i for i, header in enumerate(headers) if header not in _NUMBERS]


_NUMBERS = {"partition", "partitions", "watermark", "beginning", "end", "lag", "start", "span", "records", "attempts", "try", "from", "to", "change", "found", "store"}  # fmt: skip


def time(value: datetime | str | None) -> str | None:
    """Return a time in UTC to the second."""
    if value is None:
        return None
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def run_name(claim: Mapping[str, Any]) -> str:
    """Return who works on a window as ``dag_id/run_id/task_id``."""
    mapped = f"[{claim['map_index']}]" if claim["map_index"] >= 0 else ""
    return f"{claim['dag_id']}/{claim['run_id']}/{claim['task_id']}{mapped}"


def owner_name(owner: Mapping[str, Any]) -> str:
    """Return the task that a group belongs to as ``dag_id/task_id``."""
    return f"{owner['dag_id']}/{owner['task_id']}"


def ranges_table(ranges: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of offset ranges: ``start <= offset < end``."""
    return partitions_table(("topic", "partition", "start", "end", "span"), ranges, by_span)


def by_span(partition: Mapping[str, Any]) -> int:
    """Return what makes one offset range matter more than another."""
    return int(partition["span"])


def partitions_table(
    keys: Sequence[str], partitions: Sequence[Mapping[str, Any]], weight: Callable[[Mapping[str, Any]], Any]
) -> str:
    """Return a table of topic-partitions: of more than `MAX_ROWS` only the weightiest, in their order."""
    weightiest = {id(p) for p in heapq.nlargest(MAX_ROWS, partitions, key=weight)}
    text = table(keys, ([p[key] for key in keys] for p in partitions if id(p) in weightiest))
    if len(partitions) <= MAX_ROWS:
        return text
    return f"{text}\n\nThe {MAX_ROWS} of {len(partitions)} partitions that matter most; --output json has all."
