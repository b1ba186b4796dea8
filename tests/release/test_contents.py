"""What a release consists of: said once, and the same in every place that says it."""

from __future__ import annotations

import doctest
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from airflow_kafka_offsets import __version__
from tests.release import contents

ROOT = Path(__file__).parents[2]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
HOME = PYPROJECT["project"]["urls"]["Source"]


def tracked() -> list[str]:
    done = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT, check=True)
    return done.stdout.splitlines()


def description() -> str:
    """Return the README as the build writes it into the metadata."""
    hook = PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    text = "".join((ROOT / fragment["path"]).read_text() for fragment in hook["fragments"])
    for substitution in hook["substitutions"]:
        text = re.sub(substitution["pattern"], substitution["replacement"], text)
    return text.replace("$HFPR_VERSION", __version__)


def test_the_examples_of_the_functions_hold() -> None:
    assert doctest.testmod(contents).failed == 0


def test_every_link_of_the_readme_leads_somewhere_from_a_package_index() -> None:
    assert len(contents.links_in(description())) > 20
    assert contents.lost_links(description(), HOME, __version__, tracked()) == []


def test_the_links_are_all_that_the_build_changes_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    assert re.sub(rf"{HOME}/(?:blob|raw)/v{__version__}/", "", description()) == readme


def test_the_place_of_the_repository_is_said_in_one_way() -> None:
    found = re.findall(r"https://github\.com/[\w-]+/[\w-]+", (ROOT / "pyproject.toml").read_text())
    assert set(found) == {HOME}
    assert len(found) == len(PYPROJECT["project"]["urls"]) + 2


@pytest.mark.parametrize("name", ["tests/x.py", ".ci/run", "requirements.lock", "build/x", "Makefile"])
def test_what_only_developers_need_is_in_no_release(name: str) -> None:
    assert not any(name in found for found in contents.of_wheel([name], "1"))
    assert f"{contents.PACKAGE}-1/{name}" not in contents.of_sdist([name], "1")


def test_the_examples_are_where_airflow_looks_for_those_of_a_provider() -> None:
    wheel = contents.of_wheel(tracked(), __version__)
    assert {f"{contents.EXAMPLES}/{name}" for name in ("orders.py", "jobs/orders.py", ".airflowignore")} <= wheel
    assert not any("demo" in name for name in wheel)


def test_the_changelog_begins_with_this_version() -> None:
    heading = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert heading is not None
    assert re.fullmatch(rf"{re.escape(__version__)} \((unreleased|\d{{4}}-\d\d-\d\d)\)", heading[1])


def test_each_python_that_is_promised_has_its_classifier() -> None:
    low, high = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", PYPROJECT["project"]["requires-python"]).groups()  # type: ignore[union-attr]
    promised = {f"Programming Language :: Python :: 3.{minor}" for minor in range(int(low), int(high))}
    named = {c for c in PYPROJECT["project"]["classifiers"] if re.fullmatch(r".* :: 3\.\d+", c)}
    assert named == promised
