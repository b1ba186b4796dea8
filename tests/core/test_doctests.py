"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

from airflow_kafka_offsets import core

MODULES = [module.name for module in pkgutil.iter_modules(core.__path__, "airflow_kafka_offsets.core.")]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_are_true(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
