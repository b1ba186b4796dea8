"""Which topics a group reads: a list, or a pattern."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

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
        ({"topics_pattern": "orders-("}, "not a regular expression of Python: missing \\)"),
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
