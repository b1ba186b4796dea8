"""The tables of docs/compatibility.md say no more than was seen, and say when it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bounds.tables import tables
from tests.seen import Tables


def test_what_was_not_run_is_not_shown_as_if_it_was() -> None:
    cell = {"end": "pass", "date": "2026-01-31", "commit": "abc1234"}
    later = {"end": "fail", "date": "2026-02-01", "commit": "def5678"}
    results = {
        "environments": {"old": {"versions": {"apache-airflow": "3.1.8"}, "seen": {"a": cell, "b": later, "c": cell}}},
        "pythons": {"3.11": {"newest versions": {**cell, "end": "fit together"}}},
    }
    of_environments, of_pythons, runs = tables(results, ["old", "new"], ["a", "b", "c", "d"], ["3.11", "3.12"]).split(
        "\n\n"
    )
    assert of_environments.splitlines()[2:] == [
        "| old | 3.1.8 |  |  |  |  |  | pass | fail | pass | not run |",
        "| new |  |  |  |  |  |  | not run | not run | not run | not run |",
    ]
    assert of_pythons.splitlines()[2:] == [
        "| 3.11 | not run | fit together | not run |",
        "| 3.12 | not run | not run | not run |",
    ]
    assert runs.splitlines()[2:] == [
        "| old: a, c | 2026-01-31 | abc1234 |",
        "| old: b | 2026-02-01 | def5678 |",
        "| Python 3.11: newest versions | 2026-01-31 | abc1234 |",
    ]


def test_a_commit_that_no_one_noted_is_not_made_up() -> None:
    seen = {"a": {"end": "pass", "date": "2026-01-31", "commit": None}}
    _, _, runs = tables({"environments": {"old": {"seen": seen}}, "pythons": {}}, ["old"], ["a"], []).split("\n\n")
    assert runs.splitlines()[2:] == ["| old: a | 2026-01-31 | not noted |"]


def test_the_tables_of_one_command_replace_no_others(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- make a -->\nold\n<!-- end -->\nbetween\n<!-- make b -->\nkept\n<!-- end -->\nafter\n")
    Tables("make a", page).write("new\n")
    assert Tables("make a", page).read() == "new\n"
    assert Tables("make b", page).read() == "kept\n"
    assert page.read_text().startswith("before\n<!-- make a -->\nnew\n<!-- end -->\nbetween\n")
    assert page.read_text().endswith("after\n")


def test_a_page_without_a_place_for_the_tables_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- make a -->\nno end\n")
    with pytest.raises(ValueError, match=r"page\.md has no place for tables: <!-- make a --> \.\.\. <!-- end -->"):
        Tables("make a", page).write("new\n")
    assert page.read_text() == "<!-- make a -->\nno end\n"
