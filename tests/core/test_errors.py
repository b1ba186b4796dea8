"""The tree of errors is the one that its docstring draws."""

from __future__ import annotations

import re

import pytest

from airflow_kafka_offsets.core import errors


def test_the_tree_in_the_docstring_is_the_real_one() -> None:
    drawn = set(re.findall(r"\w+Error\b", errors.__doc__ or ""))
    real = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert drawn == real
    assert all(issubclass(getattr(errors, name), errors.KafkaOffsetsError) for name in real)


@pytest.mark.parametrize("number", [0, 1, 10, 11, 20_000])
def test_a_list_names_ten_and_counts_the_rest(number: int) -> None:
    text = errors.name_some([f"p{i}" for i in range(number)], ", ")
    assert text.count("p") == min(number, 10)
    assert text.endswith(f"and {number - 10} more") is (number > 10)


def test_a_busy_window_names_who_works_on_it_and_the_way_out() -> None:
    error = errors.WindowBusyError("lake-000012", "dag/run/load")
    assert (error.window_id, error.holder) == ("lake-000012", "dag/run/load")
    assert "kafka-offsets abandon lake-000012 --why '...'" in str(error)
