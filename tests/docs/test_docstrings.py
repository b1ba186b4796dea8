"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib

import pytest

from tests.docs.test_docs import ROOT

PACKAGE = ROOT / "airflow_kafka_offsets"
MODULES = [
    ".".join(file.relative_to(ROOT).with_suffix("").parts)
    for file in sorted(PACKAGE.rglob("*.py"))
    if ">>> " in file.read_text()
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_are_true(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name.removesuffix(".__init__")))
    assert found.attempted
    assert found.failed == 0
