"""The page has the results of the last run of the matrix, and that run took the job of today."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.lab.sparks import SPARKS
from tests.matrix.job import CONNECT, JDBC, PASSED, STEPS, SUBMIT, steps_of
from tests.matrix.table import ON_PAGE, failures, job_now, results, tables

if TYPE_CHECKING:
    from tests.lab.sparks import OtherSpark

AGAIN = "type: make test-matrix WRITE=1"


def test_the_page_has_the_table_of_the_last_run() -> None:
    assert ON_PAGE.read() == tables(results()), AGAIN


def test_the_last_run_was_of_each_spark_and_found_no_failure() -> None:
    assert [*results()] == [spark.name for spark in SPARKS], AGAIN
    assert failures(results()) == []


@pytest.mark.parametrize("spark", SPARKS, ids=lambda spark: spark.name)
def test_the_last_run_took_the_job_of_today_with_all_steps_that_the_spark_can_take(spark: OtherSpark) -> None:
    found = results()[spark.name]
    assert found["job"] == job_now(), AGAIN
    assert [*found[SUBMIT]] == steps_of(SUBMIT, spark.tables)
    assert [*found[CONNECT]] == (steps_of(CONNECT, spark.tables) if spark.has_connect else [])
    assert spark.tables.items() <= found.items()
    assert (found["spark"], found["scala"]) == (spark.version, spark.scala)


def test_the_page_says_when_the_runs_were_and_of_which_job_side() -> None:
    runs = {name: {"date": f"2026-01-0{name}", "commit": "abc1234", SUBMIT: {}, CONNECT: {}} for name in "112"}
    facts = {"spark": "9.9", "scala": "2.13"}
    one, both = ({name: {**runs[name], **facts} for name in names} for names in ("1", "12"))
    assert tables(one).startswith("Seen on 2026-01-01 with the job side of commit abc1234:\n")
    assert tables(both).startswith(
        "Seen on 2026-01-01 with the job side of commit abc1234 (Spark 1), and on 2026-01-02 with the job side of commit abc1234 (Spark 2):\n"
    )


def test_a_step_that_went_wrong_is_named_and_no_cell_says_yes() -> None:
    def result(outcome: str) -> dict[str, Any]:
        facts = {
            "spark": "9.9",
            "scala": "2.13",
            "python": "3.11.1",
            "java": "17.0.1",
            "kafka": "9.9",
            "date": "2026-01-31",
            "commit": "abc1234",
        }
        return {"9.9": {**facts, SUBMIT: {of(SUBMIT): outcome}, CONNECT: {of(CONNECT): outcome}}}

    def of(way: str) -> str:
        return next(name for name, step in STEPS.items() if step.about == JDBC and way in step.ways)

    bad = result("KeyError: 'x'")
    assert failures(bad) == [f"9.9: {way}: {of(way)}: KeyError: 'x'" for way in (SUBMIT, CONNECT)]
    assert tables(bad).count("| 0 of 1 steps |") == 2
    assert "| yes |" not in tables(bad)
    good = tables(result(PASSED))
    assert (good.count("| yes |"), good.count("| refused |")) == (1, 1)
