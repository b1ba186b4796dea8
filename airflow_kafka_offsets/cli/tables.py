"""What people get: tables and short sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any


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


def ranges_table(ranges: Iterable[Mapping[str, Any]]) -> str:
    """Return a table of offset ranges: ``start <= offset < end``."""
    keys = ("topic", "partition", "start", "end", "span")
    return table(keys, ([r[key] for key in keys] for r in ranges))


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "window"), counted(2, "window")
    ('1 window', '2 windows')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"
