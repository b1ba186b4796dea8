"""docs/compatibility.md shows what `make test-bounds` and `make test-schedulers` saw last, of the versions that the package allows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.bounds.__main__ import CASES, ENVIRONMENTS, FIT, LOWEST, NEWEST
from tests.bounds.environments import ROOT, pythons, required
from tests.bounds.tables import QUICK_TESTS, RESULTS, tables

PAGE = ROOT / "docs" / "compatibility.md"


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """Return what was seen last."""
    found: dict[str, Any] = json.loads(RESULTS.read_text())
    return found


def test_the_page_shows_what_was_seen(results: dict[str, Any]) -> None:
    shown = PAGE.read_text().partition("<!-- make test-bounds -->\n")[2].partition("\n<!-- end -->")[0]
    assert shown == "\n".join(tables(results)), "copy the tables that make test-bounds prints"


def test_all_was_seen_and_all_was_good(results: dict[str, Any]) -> None:
    seen = results["environments"]
    assert list(seen) == [environment.name for environment in ENVIRONMENTS]
    assert {noted["quick"] for noted in seen.values()} == {"pass"}
    for environment in ("Airflow 3.1", NEWEST.name):
        assert seen[environment]["cases"] == dict.fromkeys(CASES, "pass")
    assert list(results["pythons"]) == pythons()
    for noted in results["pythons"].values():
        assert {noted[each.name] for each in (LOWEST, NEWEST)} == {FIT}
        assert noted.get(QUICK_TESTS, "pass") == "pass"


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
