"""docs/compatibility.md shows what `make test-bounds` and `make test-schedulers` saw last, of the versions that the package allows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.bounds.__main__ import CASES, ENVIRONMENTS, LOWEST, NEWEST
from tests.bounds.environments import ROOT, project, pythons
from tests.bounds.tables import RESULTS, tables

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
    assert all(answer == "fit together" for of in results["pythons"].values() for answer in of.values())


def test_what_was_seen_is_what_the_package_allows(results: dict[str, Any]) -> None:
    lowest = results["environments"][LOWEST.name]["versions"]
    for line in project()["dependencies"]:
        requirement = Requirement(line)
        if requirement.name not in lowest or (requirement.marker and not requirement.marker.evaluate()):
            continue
        (bound,) = [part.version for part in requirement.specifier if part.operator == ">="]
        seen = lowest[requirement.name]
        assert f"{seen}.".startswith(f"{bound}."), f"{line} was seen at {seen}: make test-bounds NOTE=1"
