"""The tables of docs/compatibility.md, from what the last run of the matrix found: results.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.matrix.job import CONNECT, DELTA, FILES, ICEBERG, JDBC, PASSED, STEPS

if TYPE_CHECKING:
    from collections.abc import Mapping

RESULTS = Path(__file__).with_name("results.json")
"""For each Spark, what it is, what came of the steps of its job, and of those over Spark Connect: `outcomes`, `connect`."""
PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"

_BEGIN, _END = "<!-- make test-matrix -->\n", "<!-- end -->\n"
_COLUMNS = {
    "read, counts, `check()`": "",
    "Parquet, ORC, JSON": FILES,
    "JDBC": JDBC,
    "Delta": DELTA,
    "Iceberg": ICEBERG,
    "Spark Connect": CONNECT,
}
_NOTHING = "-"


def results() -> dict[str, dict[str, Any]]:
    """Return what the last run found."""
    found: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text())
    return found


def failures(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a line for each step that went wrong."""
    return [
        f"{name}: {where}{step}: {outcome}"
        for name, result in found.items()
        for where, outcomes in (
            ("", result["outcomes"]),
            ("Spark Connect: ", result["connect"]),
        )
        for step, outcome in outcomes.items()
        if outcome != PASSED
    ]


def tables(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return in Markdown what came of the steps, and the coordinates of the table formats."""
    outcomes = [_row(result) for result in found.values()]
    formats = [
        [*_spark(result), *(f"`{result[name]}`" if name in result else _NOTHING for name in (DELTA, ICEBERG))]
        for result in found.values()
    ]
    return "\n".join(
        [
            _table(["Spark", "Scala", "Kafka client", *_COLUMNS], outcomes),
            _table(["Spark", "Scala", "Delta", "Iceberg"], formats),
        ]
    )


def _table(heads: list[str], rows: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (heads, ["---"] * len(heads), *rows))


def on_page() -> str:
    """Return the tables that the page has."""
    return PAGE.read_text().partition(_BEGIN)[2].partition(_END)[0]


def write_page(text: str) -> None:
    """Put the tables into the page."""
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    PAGE.write_text(before + _BEGIN + text + _END + rest.partition(_END)[2])


def _row(result: Mapping[str, Any]) -> list[str]:
    return [*_spark(result), result["kafka"], *(_cell(result, about) for about in _COLUMNS.values())]


def _spark(result: Mapping[str, Any]) -> list[str]:
    return [result["spark"], result["scala"]]


def _cell(result: Mapping[str, Any], about: str) -> str:
    outcomes = _outcomes(result, about)
    if not outcomes:
        return _NOTHING
    passed = sum(outcome == PASSED for outcome in outcomes.values())
    if passed < len(outcomes):
        return f"{passed} of {len(outcomes)} steps"
    return str(result[about]).rpartition(":")[2] if about in (DELTA, ICEBERG) else "yes"


def _outcomes(result: Mapping[str, Any], about: str) -> Mapping[str, str]:
    if about == CONNECT:
        found: Mapping[str, str] = result["connect"]
        return found
    return {name: outcome for name, outcome in result["outcomes"].items() if STEPS[name][0] == about}
