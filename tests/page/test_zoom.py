"""Which windows a page shows is in its address."""

from __future__ import annotations

from datetime import datetime, timedelta
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.page.strips import Axis
from airflow_kafka_offsets.page.zoom import FIRST, LAST, Zoom, read_zoom
from tests.core.examples import NOON

times = st.none() | st.integers(0, 10**9).map(lambda seconds: NOON + timedelta(seconds=seconds))


@given(st.sampled_from(Axis), times, times, st.none() | st.integers(1, 10**6))
def test_an_address_is_read_as_it_was_written(
    axis: Axis, start: datetime | None, end: datetime | None, before: int | None
) -> None:
    if start is not None and end is not None and end <= start:
        start, end = end, start + timedelta(seconds=1)
    zoom = Zoom(axis, start, end, before)
    params = {name: values[0] for name, values in parse_qs(zoom.query().removeprefix("?")).items()}
    number = params.get("before")
    read = read_zoom(
        Axis(params["axis"]), params.get("from", ""), params.get("to", ""), int(number) if number else None
    )
    assert read == zoom


def test_an_open_end_has_all_that_follows() -> None:
    assert Zoom().cut_in is None
    assert Zoom(start=NOON).cut_in == (NOON, LAST)
    assert Zoom(end=NOON).cut_in == (FIRST, NOON)


def test_a_zone_is_understood_and_none_is_utc() -> None:
    noon = NOON.replace(tzinfo=None).isoformat()
    assert read_zoom(Axis.TIME, noon, "", None).start == NOON
    assert read_zoom(Axis.TIME, f"{noon}-02:00", "", None).start == NOON + timedelta(hours=2)


def test_the_spans_that_are_offered_end_with_the_newest_window() -> None:
    offered = Zoom(Axis.TIME, NOON, NOON, 7).spans(NOON)
    assert offered["all"] == Zoom(Axis.TIME)
    assert offered["7 d"] == Zoom(Axis.TIME, NOON - timedelta(days=7))


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        ("x", "", "'x' is not a time"),
        ("", "2026-13-01", "is not a time"),
        ("0001-01-01T00:00+14:00", "", "is not a time"),
        ("1900-01-01", "", "between 1970 and 9000"),
        ("2026-11-02", "2026-11-01", "The time span is empty"),
    ],
)
def test_what_is_no_span_is_refused(start: str, end: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        read_zoom(Axis.OFFSET, start, end, None)
