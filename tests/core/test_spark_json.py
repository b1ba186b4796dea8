"""Spark's JSON of offsets, in both directions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.errors import OffsetsJsonError
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.spark_json import (
    Edge,
    dump_assign,
    dump_offsets,
    load_offsets,
    load_offsets_or_edges,
)
from tests.core.examples import tp

partitions = st.builds(TopicPartition, st.text(st.characters(codec="utf-8"), min_size=1), st.integers(0, 2**31 - 1))
offsets = st.dictionaries(partitions, st.integers(0, 2**63 - 1), min_size=1, max_size=20)


@given(offsets)
def test_what_is_written_is_read_back(written: dict[TopicPartition, int]) -> None:
    assert load_offsets(dump_offsets(written)) == written


@given(offsets, st.randoms())
def test_equal_offsets_give_equal_bytes(written: dict[TopicPartition, int], random: Any) -> None:
    shuffled = list(written.items())
    random.shuffle(shuffled)
    assert dump_offsets(dict(shuffled)) == dump_offsets(written)


def test_partitions_are_in_numeric_order_without_blanks() -> None:
    written = {tp(10): 1, tp(9): 2, tp(0, "a"): 3}
    assert dump_offsets(written) == '{"a":{"0":3},"orders":{"9":2,"10":1}}'
    assert dump_assign(list(written)) == '{"a":[0],"orders":[9,10]}'


def test_a_dict_is_read_like_its_text() -> None:
    assert load_offsets({"orders": {0: 5, "1": 6}}) == {tp(0): 5, tp(1): 6}


def test_edges_are_read_only_where_they_mean_something() -> None:
    text = '{"orders":{"0":-1,"1":-2,"2":7}}'
    assert load_offsets_or_edges(text) == {tp(0): Edge.LATEST, tp(1): Edge.EARLIEST, tp(2): 7}
    with pytest.raises(OffsetsJsonError, match=r"orders-0: -1 \(latest\) is not allowed here"):
        load_offsets(text)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "must be JSON like"),
        ("{", "must be JSON like"),
        ("[]", "JSON object"),
        ("null", "JSON object"),
        ("{}", "JSON object"),
        ('"orders"', "JSON object"),
        ('{"orders":{}}', "must hold offsets"),
        ('{"orders":[0,1]}', "must hold offsets"),
        ('{"orders":5}', "must hold offsets"),
        ('{"orders":{"0":1,"0":2}}', "twice"),
        ('{"orders":{"0":1},"orders":{"1":2}}', "twice"),
        ('{"orders":{"0":1,"00":2}}', "twice"),
        ('{"orders":{"0":true}}', "whole number, got True"),
        ('{"orders":{"0":1.0}}', "whole number, got 1.0"),
        ('{"orders":{"0":1e3}}', "whole number"),
        ('{"orders":{"0":NaN}}', "whole number"),
        ('{"orders":{"0":"5"}}', "whole number, got '5'"),
        ('{"orders":{"0":null}}', "whole number, got None"),
        ('{"orders":{"0":{"start":1}}}', "whole number"),
        ('{"orders":{"0":-3}}', "must be 0 to"),
        ('{"orders":{"0":9223372036854775808}}', "must be 0 to"),
        ('{"orders":{"0":' + "9" * 5000 + "}}", "must be JSON like"),
        ("[" * 100_000, "must be JSON like"),
        ('{"orders":{"-1":5}}', "not a partition"),
        ('{"orders":{"":5}}', "not a partition"),
        ('{"orders":{" 1":5}}', "not a partition"),
        ('{"orders":{"1.0":5}}', "not a partition"),
        ('{"orders":{"٣":5}}', "not a partition"),
        ('{"orders":{"2147483648":5}}', "not a partition"),
        ('{"orders":{"' + "1" * 5000 + '":5}}', "not a partition"),
        ('{"' + "t" * 5000 + '":{"x":5}}', "not a partition"),
    ],
)
def test_anything_else_is_a_short_clear_error(text: str, what: str) -> None:
    with pytest.raises(OffsetsJsonError, match=what) as raised:
        load_offsets_or_edges(text)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize(
    "value",
    [
        {"orders": {True: 5}},
        {"orders": {1.0: 5}},
        {"orders": {-1: 5}},
        {7: {0: 5}},
        {"orders": {0: 10**5000}},
        {"orders": {0: True}},
        ["orders"],
        b'{"orders":{"0":5}}',
        None,
    ],
)
def test_values_that_json_does_not_have_are_refused_too(value: Any) -> None:
    with pytest.raises(OffsetsJsonError) as raised:
        load_offsets_or_edges(value)
    assert len(str(raised.value)) < 400


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists))
def test_no_json_value_gives_another_kind_of_error(value: Any) -> None:
    with pytest.raises(OffsetsJsonError):
        load_offsets(json.dumps(value))
