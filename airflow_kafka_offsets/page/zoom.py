"""The windows that a group's page shows. All of it is in the address, so people can share a link."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.fields import read_time
from airflow_kafka_offsets.page.strips import Axis

FIRST, LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
"""The bounds of planned-until times. Every database can hold them."""

SPANS = {"1 d": timedelta(days=1), "7 d": timedelta(days=7), "30 d": timedelta(days=30)}
"""The spans that a page offers, up to the newest window."""


@dataclass(frozen=True, slots=True)
class Zoom:
    """The windows that a page shows, and how.

    Attributes:
        axis: the meaning of a strip's width.
        start, end: only windows with ``start < planned_until <= end``; None for no limit.
        before: only windows with smaller numbers, for the next page; None for the newest.
    """

    axis: Axis = Axis.OFFSET
    start: datetime | None = None
    end: datetime | None = None
    before: int | None = None

    @property
    def cut_in(self) -> tuple[datetime, datetime] | None:
        """The span of planned-until times; None for all."""
        if self.start is None and self.end is None:
            return None
        return self.start or FIRST, self.end or LAST

    @property
    def values(self) -> dict[str, str]:
        """The parameters of its address; empty for a default."""
        before = "" if self.before is None else str(self.before)
        return {"axis": str(self.axis), "from": _field(self.start), "to": _field(self.end), "before": before}

    def query(self, **changes: Any) -> str:
        """Return the query of an address that differs in some attributes.

        >>> Zoom(Axis.TIME, datetime(2026, 11, 1, 6, tzinfo=UTC)).query(before=12)
        '?axis=time&from=2026-11-01T06%3A00&before=12'
        """
        values = replace(self, **changes).values
        return "?" + urlencode({name: value for name, value in values.items() if value})

    def spans(self, newest: datetime) -> dict[str, Zoom]:
        """Return the pages of `SPANS`, by name."""
        whole = replace(self, start=None, end=None, before=None)
        starts = {name: (newest - span).replace(second=0, microsecond=0) for name, span in SPANS.items()}
        return {name: replace(whole, start=start) for name, start in starts.items()} | {"all": whole}


def _field(at: datetime | None) -> str:
    """Return a time in UTC for a browser's time field; empty for None."""
    return "" if at is None else at.replace(tzinfo=None).isoformat(timespec="seconds" if at.second else "minutes")


def read_zoom(axis: Axis, start: str, end: str, before: int | None) -> Zoom:
    """Read the parameters of an address. A time without a zone is in UTC.

    Raises:
        BadInputError: a text is not a time, or the span is empty.
    """
    zoom = Zoom(axis, _time(start), _time(end), before)
    if zoom.start is not None and zoom.end is not None and zoom.end <= zoom.start:
        raise BadInputError(f"The time span is empty: {_field(zoom.start)} to {_field(zoom.end)}")
    return zoom


def _time(text: str) -> datetime | None:
    if not text.strip():
        return None
    try:
        at = read_time(text.strip())
        at = (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC).replace(microsecond=0)
    except (ValueError, OverflowError):
        raise BadInputError(f"{text[:50]!r} is not a time such as 2026-11-01T06:00") from None
    if not FIRST <= at <= LAST:
        raise BadInputError(f"{text[:50]!r} is not between {FIRST.year} and {LAST.year}")
    return at
