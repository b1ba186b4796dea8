"""Offset ranges refuse nonsense."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from tests.core.examples import ranges, tp


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (-2, -1), (5, 4), (0, True), (True, 5), (1.0, 5), (0, "5")])
def test_a_range_that_can_not_be_is_refused(start: Any, end: Any) -> None:
    with pytest.raises(BadInputError):
        OffsetRange(start, end)


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_the_span_is_end_minus_start(a: int, b: int) -> None:
    start, end = sorted((a, b))
    assert OffsetRange(start, end).span == end - start


def test_a_range_reads_as_first_and_last_offset() -> None:
    assert str(OffsetRange(120, 500)) == "[120, 500)"
    assert str(OffsetRange(7, 7)) == "[7, 7)"


def test_ranges_are_sorted_immutable_and_know_their_bounds() -> None:
    both = ranges({tp(10): (5, 9), tp(2): (3, 3)})
    assert list(both) == [tp(2), tp(10)]
    assert both.starts == {tp(2): 3, tp(10): 5}
    assert both.ends == {tp(2): 3, tp(10): 9}
    assert both.span == 4
    assert both.without_empty() == ranges({tp(10): (5, 9)})
    with pytest.raises(TypeError):
        both[tp(2)] = OffsetRange(0, 1)  # type: ignore[index]


def test_ranges_between_two_bounds_name_what_is_wrong() -> None:
    assert OffsetRanges.between({tp(): 1}, {tp(): 4}) == ranges({tp(): (1, 4)})
    with pytest.raises(BadInputError, match="only one names orders-1"):
        OffsetRanges.between({tp(0): 1, tp(1): 1}, {tp(0): 4})
    with pytest.raises(BadInputError, match="orders-0: the end offset 4 lies before the start offset 5"):
        OffsetRanges.between({tp(): 5}, {tp(): 4})
