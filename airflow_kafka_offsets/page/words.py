"""Numbers and times as a person writes them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from airflow_kafka_offsets.core.lag.words import length

NOTHING = "—"


def number(value: int | None) -> str:
    """Return a number with its thousands apart.

    >>> [number(n) for n in (None, 0, 1204331)]
    ['—', '0', '1,204,331']
    """
    return NOTHING if value is None else f"{value:,}"


_SIZES = ((1_000_000_000_000, "T"), (1_000_000_000, "B"), (1_000_000, "M"))


def short_number(value: int | None) -> str:
    """Return a number of at most seven characters.

    >>> [short_number(n) for n in (None, 0, 214000, 3104331, 41800000, 1250000000)]
    ['—', '0', '214,000', '3.1 M', '41.8 M', '1.2 B']
    """
    if value is not None:
        for size, name in _SIZES:
            if value >= size:
                return f"{value * 10 // size / 10:.1f} {name}"
    return number(value)


_OFFSETS = re.compile(r"(?<![\w.,-])\d{4,}(?= offset)|(?<=offset )\d{4,}")


def sentence(text: str) -> str:
    """Return a sentence with a period, and the thousands of its offsets apart.

    >>> sentence("1204512 offsets expired: orders-2026 [1013, 1205525)")
    '1,204,512 offsets expired: orders-2026 [1013, 1205525).'
    """
    apart = _OFFSETS.sub(lambda match: number(int(match[0])), text)
    return apart if apart.endswith((".", "!", "?")) else f"{apart}."


def ago(then: datetime | None, now: datetime) -> str:
    """Return how long ago a moment was, in the largest unit; the future counts as now.

    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> [ago(None, noon), ago(noon.replace(hour=9), noon), ago(noon.replace(year=2021), noon)]
    ['—', '3 h ago', '1,826 d ago']
    """
    if then is None:
        return NOTHING
    amount, unit = length(max(0.0, (now - then).total_seconds())).split(" ")[:2]
    return f"{int(amount):,} {unit} ago"


def took(start: datetime | None, end: datetime | None) -> str:
    """Return the time between two moments.

    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> [took(None, noon), took(noon, noon.replace(minute=1, second=12))]
    ['—', '1 min 12 s']
    """
    if start is None or end is None:
        return NOTHING
    return length(max(0.0, (end - start).total_seconds()))


def stamp(value: datetime) -> str:
    """Return a moment to the minute, in UTC.

    >>> stamp(datetime(2026, 11, 9, 7, 5, 59, tzinfo=UTC))
    '9 Nov 07:05'
    """
    at = value.astimezone(UTC)
    return f"{at.day} {at:%b %H:%M}"
