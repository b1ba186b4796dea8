"""The CSV of kafka-consumer-groups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.source.offsets_csv import dump_csv, load_csv
from tests.core.examples import tp

names = st.text("abcXYZ019._-", min_size=1, max_size=249)
partitions = st.builds(TopicPartition, names, st.integers(0, 2**31 - 1))


@given(st.dictionaries(partitions, st.integers(0, 2**63 - 1), max_size=20))
def test_what_is_written_is_read_back(written: dict[TopicPartition, int]) -> None:
    assert load_csv("x", dump_csv(written), "lake") == written


def test_long_names_come_in_quotes() -> None:
    topic = "a-topic-with-a-name-of-more-than-24.characters"
    assert load_csv("x", f'"{topic}",1,7\r\n\r\n', "lake") == {tp(1, topic): 7}


def test_of_several_groups_one_is_taken() -> None:
    text = '"g,1",orders,0,5\nlake,orders,0,6\nlake,orders,1,7\n'
    assert load_csv("x", text, "lake") == {tp(0): 6, tp(1): 7}
    assert load_csv("x", text, "g,1", is_chosen=True) == {tp(0): 5}


def test_lines_of_other_groups_need_no_offsets() -> None:
    text = "group,topic,partition,offset\nother,orders,0,-\nlake,orders,0,6\n"
    assert load_csv("x", text, "lake") == {tp(0): 6}
    with pytest.raises(BadInputError, match="no line of group sea; it has group, lake, other"):
        load_csv("x", text, "sea")


def test_a_file_without_a_line_has_no_offsets() -> None:
    assert load_csv("x", "\n\n", "lake") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topic,partition,offset\n", r"x, line 1: expected \[group,\]topic,partition,offset, such as orders,0,23; got"),
        ("orders,0,5\norders,0,x\n", "x, line 2: expected"),
        ("orders,0,-1\n", "line 1: expected"),
        ("orders,-1,5\n", "line 1: expected"),
        (",0,5\n", "line 1: expected"),
        ("orders,2147483648,5\n", "line 1: expected"),
        ("orders,0,9223372036854775808\n", "line 1: expected"),
        ("orders,0,٣\n", "line 1: expected"),
        ("a,b,orders,0,5\n", "line 1: expected"),
        ("orders,0\n", r"line 1: expected \[group,\]topic,partition,offset"),
        ("GROUP TOPIC PARTITION CURRENT-OFFSET\n", "line 1: expected"),
        ("orders,0,5\norders,0,6\n", "line 2: orders-0 is there twice"),
        ("lake,orders,0,5\norders,0,6\n", "lines with and without a group"),
        ('"orders,0,5\n', "not CSV"),
        ("other,orders,0,5\n", "x has no line of group lake; it has other: choose with --as"),
    ],
)
def test_a_line_that_is_something_else_is_named(text: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        load_csv("x", text, "lake")


def test_a_name_can_not_be_chosen_where_none_is_written() -> None:
    with pytest.raises(BadInputError, match=r"names no group in its lines: leave --as out"):
        load_csv("x", "orders,0,5\n", "lake", is_chosen=True)
