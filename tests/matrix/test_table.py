"""The page says what the last run of the matrix found, and that run took the steps that the job has today."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lab.sparks import SPARKS
from tests.matrix.job import CONNECT, FILES, JDBC, PASSED, STEPS
from tests.matrix.table import failures, on_page, results, tables

if TYPE_CHECKING:
    from tests.lab.sparks import OtherSpark


def steps(*has: str) -> set[str]:
    """Return the steps that a Spark takes which has these."""
    return {name for name, (about, _) in STEPS.items() if not about or about in has}


def test_the_page_has_the_table_of_the_last_run() -> None:
    assert on_page() == tables(results()), "type: make test-matrix WRITE=1"


def test_the_last_run_was_of_each_spark_and_found_no_failure() -> None:
    assert [*results()] == [spark.name for spark in SPARKS]
    assert failures(results()) == []


@pytest.mark.parametrize("spark", SPARKS, ids=lambda spark: spark.name)
def test_the_last_run_took_all_steps_of_the_job_that_the_spark_can_take(spark: OtherSpark) -> None:
    found = results()[spark.name]
    assert {*found["outcomes"]} == steps(FILES, JDBC, *spark.tables), "type: make test-matrix WRITE=1"
    assert {*found["connect"]} == (steps(CONNECT, *spark.tables) if spark.has_connect else set())
    assert spark.tables.items() <= found.items()


def test_a_step_that_went_wrong_is_named_and_no_cell_says_yes() -> None:
    name = next(name for name, (about, _) in STEPS.items() if about == JDBC)
    result = {
        "spark": "9.9",
        "scala": "2.13",
        "kafka": "9.9",
        "archive": PASSED,
        "outcomes": {name: "KeyError: 'x'"},
        "connect": {},
    }
    assert failures({"9.9": result}) == [f"9.9: {name}: KeyError: 'x'"]
    assert "| 0 of 1 steps |" in tables({"9.9": result})
    assert "| yes |" in tables({"9.9": {**result, "outcomes": {name: PASSED}}})
