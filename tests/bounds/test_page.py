"""docs/compatibility.md shows what `make test-bounds` and `make test-schedulers` saw last, of the versions that the package allows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.bounds.__main__ import CASES, ENVIRONMENTS, FIT, LOWEST, NEWEST, lines
from tests.bounds.environments import ROOT, pythons, required
from tests.bounds.tables import QUICK_TESTS, RESULTS

PAGE = ROOT / "docs" / "compatibility.md"


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """Return what was seen last."""
    found: dict[str, Any] = json.loads(RESULTS.read_text())
    return found


def test_the_page_shows_what_was_seen(results: dict[str, Any]) -> None:
    shown = PAGE.read_text().partition("<!-- make test-bounds -->\n")[2].partition("\n<!-- end -->")[0]
    assert shown == "\n".join(lines(results)), "copy the tables that make test-bounds prints"


def test_nothing_that_was_seen_failed(results: dict[str, Any]) -> None:
    for noted in results["environments"].values():
        assert {noted.get("quick", "pass"), *noted.get("cases", {}).values()} == {"pass"}
    for noted in results["pythons"].values():
        assert {noted.get(each.name, FIT) for each in (LOWEST, NEWEST)} == {FIT}
        assert noted.get(QUICK_TESTS, "pass") == "pass"


def test_the_scheduler_of_the_oldest_airflow_was_seen(results: dict[str, Any]) -> None:
    assert {"ordinary", "retry", "clear", "replay"} <= set(results["environments"]["Airflow 3.1"]["cases"])


def test_the_page_knows_no_other_environment_case_or_python(results: dict[str, Any]) -> None:
    assert set(results["environments"]) <= {environment.name for environment in ENVIRONMENTS}
    assert {case for noted in results["environments"].values() for case in noted.get("cases", {})} <= set(CASES)
    assert set(results["pythons"]) <= set(pythons())


def test_each_lower_bound_was_seen(results: dict[str, Any]) -> None:
    lowest = results["environments"][LOWEST.name]["versions"]
    for wanted in required():
        (bound,) = [part.version for part in wanted.specifier if part.operator in {">=", "=="}]
        seen = lowest[wanted.name]
        assert f"{seen}.".startswith(f"{bound}."), f"{wanted} was seen at {seen}: make test-bounds NOTE=1"


def test_no_version_was_seen_that_the_package_does_not_allow(results: dict[str, Any]) -> None:
    for environment, noted in results["environments"].items():
        for wanted in required():
            assert noted["versions"][wanted.name] in wanted.specifier, f"{environment}: {wanted}"
