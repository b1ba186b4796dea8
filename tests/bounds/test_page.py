"""docs/compatibility.md shows what `make test-versions` saw last, of the versions that the package allows, and all that it runs was seen."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.bounds.__main__ import (
    AIRFLOW_3_1,
    ENVIRONMENTS,
    FIT,
    LOWEST,
    NEWEST,
    PASS,
    PLAN,
    in_order,
    page_of,
)
from tests.bounds.environments import pythons, required
from tests.bounds.tables import ON_PAGE, QUICK, RESULTS

AGAIN = "make test-versions WRITE=1"
WITHOUT_COMMITS = "2026-11-26"
"""The last day on which results came without the commit that was run."""


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """Return what was seen last."""
    found: dict[str, Any] = json.loads(RESULTS.read_text())
    return found


def test_the_page_shows_what_was_seen(results: dict[str, Any]) -> None:
    assert ON_PAGE.read() == page_of(results), AGAIN


def test_all_that_is_run_was_seen_and_nothing_failed(results: dict[str, Any]) -> None:
    missing = set()
    for environment in ENVIRONMENTS:
        seen = {case: cell["end"] for case, cell in results["environments"][environment.name]["seen"].items()}
        assert {*seen.values()} == {PASS}, environment.name
        missing |= {(environment.name, case) for case in PLAN[environment] if case not in seen}
    assert not missing, AGAIN
    fit_and_passed = {LOWEST.name: FIT, NEWEST.name: FIT, QUICK: PASS}
    for python in pythons():
        seen = {column: cell["end"] for column, cell in results["pythons"][python].items()}
        assert seen == fit_and_passed, f"Python {python}: {AGAIN}"


def test_quick_tests_run_everywhere_servers_meet_all_clients_and_the_oldest_and_the_newest_airflow_run_dags() -> None:
    assert all(QUICK in cases for cases in PLAN.values())
    assert {"servers", "ordinary"} <= {*PLAN[LOWEST]}
    assert "servers" in PLAN[NEWEST]
    for environment in (AIRFLOW_3_1, NEWEST):
        assert {"ordinary", "retry", "stop", "clear", "replay", "cluster", "page", "commands"} <= {*PLAN[environment]}


def test_each_result_has_its_day_and_its_commit(results: dict[str, Any]) -> None:
    rows = [*(noted["seen"] for noted in results["environments"].values()), *results["pythons"].values()]
    for cell in (cell for row in rows for cell in row.values()):
        assert {*cell} == {"end", "date", "commit"}
        if cell["commit"] is None:
            assert cell["date"] <= WITHOUT_COMMITS, f"{cell}: {AGAIN}"
        else:
            assert cell["commit"].isalnum(), f"{cell}: seen with changes that no commit has"


def test_the_page_knows_no_other_environment_case_or_python(results: dict[str, Any]) -> None:
    assert in_order(results) == results


def test_each_lower_bound_was_seen(results: dict[str, Any]) -> None:
    lowest = results["environments"][LOWEST.name]["versions"]
    for wanted in required():
        (bound,) = [part.version for part in wanted.specifier if part.operator in {">=", "=="}]
        seen = lowest[wanted.name]
        assert f"{seen}.".startswith(f"{bound}."), f"{wanted} was seen at {seen}: {AGAIN}"


def test_no_version_was_seen_that_the_package_does_not_allow(results: dict[str, Any]) -> None:
    for environment, noted in results["environments"].items():
        for wanted in required():
            assert noted["versions"][wanted.name] in wanted.specifier, f"{environment}: {wanted}"
