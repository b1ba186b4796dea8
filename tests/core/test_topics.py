"""Which topics a group reads: a list, or a pattern."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.group import KafkaGroup, Matching


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("orders-.*", "orders-eu", True),
        ("orders", "orders-eu", False),
        ("rders-.*", "orders-eu", False),
        (".*", "__consumer_offsets", False),
        ("(__a|b).*", "__abc", False),
        ("__a.*", "__abc", True),
        ("(?i)ORDERS", "orders", True),
        ("(?!(?:orders-us)$)(?:orders-.*)", "orders-us", False),
        ("(?!(?:orders-us)$)(?:orders-.*)", "orders-usa", True),
        ("(?!orders-us$)(?!orders-[)e]u$)orders-.*", "orders-eu", False),
        ("(?!orders-us$)(?!orders-[)e]u$)orders-.*", "orders-asia", True),
        ("(?!a|b)[|c](?:d|e)", "ce", True),
        ("(?!a)(?!b)(?:a|b|c(d|e))", "cd", True),
        (r"(?!a)[^]|]\.(d|e)", "c.d", True),
    ],
)
def test_a_pattern_matches_whole_names_and_kafkas_own_only_if_it_spells_them_out(
    pattern: str, topic: str, expected: bool
) -> None:
    assert (topic in Matching(pattern)) is expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, "at least one topic"),
        ({"topics": ["orders"], "topics_pattern": "orders"}, "exclude each other"),
        ({"topics_pattern": "orders-("}, r"not a regular expression of RE2 \(missing \)"),
        ({"topics_pattern": r"(a|b)-\1"}, r"not a regular expression of RE2 \(invalid escape sequence: \\1"),
        ({"topics_pattern": "orders-(?!us)"}, r"not a regular expression of RE2 \(invalid perl operator: \(\?!"),
        ({"topics_pattern": "(?!test)orders.*|test_keep"}, r"Write \(\?!\.\.\.\)\(\?:\.\.\.\|\.\.\.\)"),
        ({"topics_pattern": r"(?!a)(?!b)b[|](c|d)\|d|e"}, "leaves names out of all alternatives"),
        ({"topics_pattern": "(?!a)|b"}, "leaves names out of all alternatives"),
        ({"topics_pattern": "(?!us"}, "not a regular expression of RE2"),
        ({"topics_pattern": "((a{50}){50}){50}"}, "not a regular expression of RE2"),
        ({"topics_pattern": ""}, "1 to 1000 printable characters"),
        ({"topics_pattern": "a" * 1001}, "1 to 1000 printable characters"),
        ({"topics_pattern": "a\n"}, "1 to 1000 printable characters"),
        ({"topics_pattern": 5}, "1 to 1000 printable characters"),
    ],
)
def test_a_definition_without_usable_topics_is_refused(values: dict[str, Any], expected: str) -> None:
    with pytest.raises(BadInputError, match=expected):
        KafkaGroup("lake", **values)


def test_the_ledger_keeps_a_pattern_with_what_it_matched() -> None:
    planned = KafkaGroup("lake", topics_pattern="orders-.*").having_matched(["orders-b", "orders-a"])
    stored = KafkaGroup.from_json(json.loads(json.dumps(planned.to_json())))
    assert stored == planned
    assert stored.topics == ("orders-a", "orders-b")
    assert replace(stored, kafka_timeout=5).topics == stored.topics


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+b", "(a|a)*b", "(a*)*b", "(a|aa)+b", "(.*a){12}b", "a?" * 200 + "a" * 200 + "b", ".*.*.*.*.*.*b", "(?!(a+)+b).*b", "(x+x+)+y"],
)  # fmt: skip
def test_no_pattern_takes_longer_than_the_name_is_long(pattern: str) -> None:
    names = [letter * 248 + end for letter in "ax" for end in "acx"]
    began = time.process_time()
    assert not any(name in Matching(pattern) for name in names)
    assert time.process_time() - began < 1


letters = st.sampled_from("abA-.1")
ordinary = st.recursive(
    letters.map(re.escape) | st.sampled_from([".", "[ab]", "[^a]", r"\d", r"\w", "[a-c1]", "(?:)", r"\."]),
    lambda inner: (
        st.builds("{}{}".format, inner, inner)
        | st.builds("(?:{}|{})".format, inner, inner)
        | st.builds("({}){}".format, inner, st.sampled_from(["?", "*", "+", "{0,2}", "{2}", "*?", "+?"]))
    ),
    max_leaves=6,
)


@given(
    pattern=ordinary,
    left_out=st.none() | ordinary,
    mode=st.sampled_from(["", "(?i)"]),
    name=st.text("abA-.1", max_size=6),
)
def test_an_ordinary_pattern_means_what_it_means_to_python_and_to_spark(
    pattern: str, left_out: str | None, mode: str, name: str
) -> None:
    whole = mode + pattern if left_out is None else f"(?!(?:{left_out})$)(?:{pattern})"
    assert (name in Matching(whole)) is (re.fullmatch(whole, name) is not None)
