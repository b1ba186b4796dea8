"""A window's name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.window_id import name_window, parse_window_id

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,30}", fullmatch=True)


@given(names, st.integers(1, 10**15))
def test_an_id_is_read_back(group: str, seq: int) -> None:
    assert parse_window_id(name_window(group, seq)) == (group, seq)


@given(names, st.lists(st.integers(1, 999_999)))
def test_ids_sort_as_the_windows_do(group: str, seqs: list[int]) -> None:
    assert sorted(name_window(group, seq) for seq in seqs) == [name_window(group, seq) for seq in sorted(seqs)]


@pytest.mark.parametrize(
    "text", ["", "lake", "lake-12", "-000012", "lake-00012x", "lake-0000012", "la ke-000012", "lake-٠٠٠٠١٢", "000012"]
)
def test_anything_else_is_no_window_id(text: str) -> None:
    with pytest.raises(BadInputError):
        parse_window_id(text)
