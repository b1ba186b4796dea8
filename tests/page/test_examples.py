"""The examples in the docstrings of the page are true."""

from __future__ import annotations

import doctest

import pytest

from airflow_kafka_offsets.page import views, words, zoom
from airflow_kafka_offsets.service import pictures
from airflow_kafka_offsets.task import links


@pytest.mark.parametrize("module", [words, views, zoom, pictures, links])
def test_the_examples_of_a_module_are_true(module: object) -> None:
    result = doctest.testmod(module)  # type: ignore[arg-type]
    assert result.attempted
    assert result.failed == 0
