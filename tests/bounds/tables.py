"""What was seen of each environment, as the tables of docs/compatibility.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.seen import Tables

RESULTS = Path(__file__).with_name("results.json")
"""What `python -m tests.bounds --note` saw last: `end`, `date` and `commit` of each cell of both tables, by its row and its column.

A commit is null if the run did not note it; the date is then that of the commit which brought the result.
"""

ON_PAGE = Tables("make test-versions")

QUICK = "quick tests"
"""The case that is what `make test-unit` runs."""

DISTRIBUTIONS = {
    "apache-airflow": "Airflow",
    "apache-airflow-providers-apache-spark": "Spark provider",
    "apache-airflow-providers-apache-kafka": "Kafka provider",
    "apache-airflow-providers-common-compat": "common.compat",
    "confluent-kafka": "confluent-kafka",
    "sqlalchemy": "SQLAlchemy",
}
"""The distributions whose versions the page shows, and its words for them."""

NOT_RUN = "not run"
NOT_NOTED = "not noted"


def tables(
    results: Mapping[str, Any], environments: Sequence[str], cases: Sequence[str], pythons: Sequence[str]
) -> str:
    """Return in Markdown a table of environments, one of Pythons, and one of the runs. What is not among the results was not run."""
    on_python = ("lowest versions", "newest versions", QUICK)
    noted = {name: results["environments"].get(name, {}) for name in environments}
    rows = {name: each.get("seen", {}) for name, each in noted.items()}
    of_pythons = {python: results["pythons"].get(python, {}) for python in pythons}
    runs = [row for name, seen in rows.items() for row in _runs(name, seen, cases)]
    runs += [row for python, seen in of_pythons.items() for row in _runs(f"Python {python}", seen, on_python)]
    return "\n".join(
        [
            _table(
                ["", *DISTRIBUTIONS.values(), *cases],
                ([name, *_versions(noted[name]), *_ends(seen, cases)] for name, seen in rows.items()),
            ),
            _table(
                ["Python", *on_python],
                ([python, *_ends(seen, on_python)] for python, seen in of_pythons.items()),
            ),
            _table(["run", "date", "commit"], runs),
        ]
    )


def _versions(noted: Mapping[str, Any]) -> list[str]:
    return [noted.get("versions", {}).get(distribution, "") for distribution in DISTRIBUTIONS]


def _ends(seen: Mapping[str, Mapping[str, str]], columns: Iterable[str]) -> list[str]:
    return [seen[column]["end"] if column in seen else NOT_RUN for column in columns]


def _runs(name: str, seen: Mapping[str, Mapping[str, Any]], columns: Iterable[str]) -> Iterator[list[str]]:
    """Give a row for what ran on one day with one commit."""
    together: dict[tuple[str, str | None], list[str]] = {}
    for column in columns:
        if column in seen:
            together.setdefault((seen[column]["date"], seen[column]["commit"]), []).append(column)
    for (date, commit), ran in together.items():
        yield [f"{name}: {', '.join(ran)}", date, NOT_NOTED if commit is None else commit]


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    return "".join(f"{line}\n" for line in (_row(head), "|---" * len(head) + "|", *map(_row, rows)))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
