"""Which windows a group's page shows. All of it is in the address, so a link to what someone sees can be shared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.fields import read_time
from airflow_kafka_offsets.page.strips import Axis

FIRST, LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
"""No planned-until time lies outside of these, and every database can hold them."""

SPANS = {"1 d": timedelta(days=1), "7 d": timedelta(days=7), "30 d": timedelta(days=30)}
"""The spans that a page offers, up to the newest window."""


@dataclass(frozen=True, slots=True)
class Zoom:
    """Which windows a page shows, and how.

    Attributes:
        axis: what the width of a strip means.
        start, end: only windows with ``start < planned_until <= end``; None: from the oldest on, or up to the newest.
        before: only windows with smaller numbers, for the next page; None: the newest.
    """

    axis: Axis = Axis.OFFSET
    start: datetime | None = None
    end: datetime | None = None
    before: int | None = None

    @property
    def cut_in(self) -> tuple[datetime, datetime] | None:
        """The span of planned-until times; None: all."""
        if self.start is None and self.end is None:
            return None
        return self.start or FIRST, self.end or LAST

    @property
    def values(self) -> dict[str, str]:
        """What its address says, by parameter; empty: nothing."""
        before = "" if self.before is None else str(self.before)
        return {"axis": str(self.axis), "from": _said(self.start), "to": _said(self.end), "before": before}

    def query(self, **changes: Any) -> str:
        """Return the query of an address that differs in some attributes.

        >>> Zoom(Axis.TIME, datetime(2026, 11, 1, 6, tzinfo=UTC)).query(before=12)
        '?axis=time&from=2026-11-01T06%3A00&before=12'
        """
        said = replace(self, **changes).values
        return "?" + urlencode({name: value for name, value in said.items() if value})

    def spans(self, newest: datetime) -> dict[str, Zoom]:
        """Return the spans that a page offers, by their names."""
        all_of_it = replace(self, start=None, end=None, before=None)
        starts = {name: (newest - span).replace(second=0, microsecond=0) for name, span in SPANS.items()}
        return {name: replace(all_of_it, start=start) for name, start in starts.items()} | {"all": all_of_it}


def _said(at: datetime | None) -> str:
    """Return a time in UTC as a browser's field for a time holds it; empty: there is none."""
    return "" if at is None else at.replace(tzinfo=None).isoformat(timespec="seconds" if at.second else "minutes")


def read_zoom(axis: Axis, start: str, end: str, before: int | None) -> Zoom:
    """Read the parameters of an address. A time without a zone is in UTC.

    Raises:
        BadInputError: a text is not a time, or the span is empty.
    """
    zoom = Zoom(axis, _time(start), _time(end), before)
    if zoom.start is not None and zoom.end is not None and zoom.end <= zoom.start:
        raise BadInputError(f"The time span is empty: it starts at {_said(zoom.start)} and ends at {_said(zoom.end)}")
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
        raise BadInputError(f"{text[:50]!r} is not a time between {FIRST.year} and {LAST.year}")
    return at
