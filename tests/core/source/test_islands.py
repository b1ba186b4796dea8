"""What a table holds of Kafka, as queries give it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.ranges import OffsetRange
from airflow_kafka_offsets.core.source.islands import Island, load_islands, pieces
from tests.core.examples import tp

HEADER = "topic,partition,first_offset,last_offset,copies\n"


def test_lines_may_have_headers_quotes_and_any_order() -> None:
    text = f'{HEADER}"orders",0,10,19,1\norders,0,0,9,1\n\n{HEADER}orders,1,5,5,3\n'
    assert load_islands([("it.csv", text)]) == {tp(0): [Island(0, 20, 1)], tp(1): [Island(5, 6, 3)]}


def test_what_two_tables_have_both_is_there_twice() -> None:
    found = load_islands([("old.csv", "orders,0,0,9,1"), ("new.csv", "orders,0,8,19,1\norders,0,30,39,1")])
    assert found[tp(0)] == [Island(0, 8, 1), Island(8, 10, 2), Island(10, 20, 1), Island(30, 40, 1)]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10), st.integers(1, 3)), max_size=12))
def test_islands_are_in_order_and_have_each_offset_as_often_as_the_lines(lines: list[tuple[int, int, int]]) -> None:
    text = "\n".join(f"orders,0,{first},{first + more},{copies}" for first, more, copies in lines)
    found = load_islands([("it.csv", text)]).get(tp(0), [])
    for offset in range(45):
        wanted = sum(copies for first, more, copies in lines if first <= offset <= first + more)
        assert sum(island.copies for island in found if island.start <= offset < island.end) == wanted
    assert found == sorted(found)
    assert all(a.end < b.start or (a.end == b.start and a.copies != b.copies) for a, b in pairwise(found))  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=6), st.integers(0, 40), st.integers(0, 40))
def test_pieces_tile_the_range(lines: list[tuple[int, int]], start: int, span: int) -> None:
    text = "\n".join(f"orders,0,{first},{first + more},1" for first, more in lines)
    islands = load_islands([("it.csv", text)]).get(tp(0), [])
    found = list(pieces(islands, tp(0), OffsetRange(start, start + span)))
    assert [offset for piece in found for offset in range(piece.offsets.start, piece.offsets.end)] == list(
        range(start, start + span)
    )
    for piece in found:
        assert piece.offsets.span
        at = piece.offsets.start
        assert piece.copies == sum(island.copies for island in islands if island.start <= at < island.end)


@pytest.mark.parametrize(
    "line",
    [
        "orders,0,5",
        "orders,0,9,5,1",
        "orders,x,5,9,1",
        ",0,5,9,1",
        "orders,0,5,9,0",
        "orders,0,-5,9,1",
        "orders,0,5,9.0,1",
        "orders,0,5,9,1,2",
        pytest.param(f"orders,0,5,{'9' * 5000},1", id="thousands of digits"),
    ],
)
def test_what_is_no_island_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(BadInputError, match=r"it\.csv, line 2: expected topic,partition,first_offset"):
        load_islands([("it.csv", f"orders,0,0,1,1\n{line}\n")])
    with pytest.raises(BadInputError, match=r"it\.csv, line 1: not CSV"):
        load_islands([("it.csv", '"orders')])
