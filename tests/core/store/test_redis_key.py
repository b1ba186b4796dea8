"""Keys of Redis hashes: two pairs of topic and group never have the same one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.store.redis_key import TAGGED, KeyPattern

PATTERNS = [
    "offset:{topic}:{group}",
    TAGGED,
    "{group}/{topic}",
    "{topic_tag}{group}",
    "{group_tag}{topic}",
    "a.{topic}.:.{group}.b",
]
names = st.text("ab.-_", min_size=1, max_size=6)


@pytest.mark.parametrize("pattern", PATTERNS)
@given(one=st.tuples(names, names), other=st.tuples(names, names))
def test_different_names_have_different_keys(pattern: str, one: tuple[str, str], other: tuple[str, str]) -> None:
    key = KeyPattern(pattern).key
    assert (key(*one) == key(*other)) == (one == other)


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        ("offset:{topic}:{group}", "offset:orders:lake.orders"),
        ("offset:{group_tag}:{topic}", "offset:{lake.orders}:orders"),
        ("offset:{topic_tag}:{group}", "offset:{orders}:lake.orders"),
    ],
)
def test_names_stand_where_the_pattern_says(pattern: str, key: str) -> None:
    assert KeyPattern(pattern).key("orders", "lake.orders") == key


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "offset",
        "offset:{topic}",
        "offset:{group}",
        "{topic}:{topic}:{group}",
        "{topic}:{group}:{group_tag}",
        "{topic}{group}",
        "{topic}.{group}",
        "{group}-offsets-{topic}",
        "{{group}}:{topic}",
        "{x}:{topic}:{group}",
    ],
)
def test_a_pattern_that_does_not_tell_names_apart_is_refused(pattern: str) -> None:
    with pytest.raises(BadInputError):
        KeyPattern(pattern)
