"""What was seen of each environment, as the tables of docs/compatibility.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results.json")
"""What `python -m tests.bounds --note` saw last."""

QUICK_TESTS = "quick tests"
"""The column of what `make test-unit` runs."""

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


def tables(
    results: Mapping[str, Any], environments: Iterable[str], cases: Sequence[str], pythons: Iterable[str]
) -> Iterator[str]:
    """Return the lines of the tables: one of environments, one of Pythons. What is not among the results was not run."""
    yield from _table(
        ["", *DISTRIBUTIONS.values(), QUICK_TESTS, *cases],
        (_of_environment(name, results["environments"].get(name, {}), cases) for name in environments),
    )
    yield ""
    seen = ("lowest versions", "newest versions", QUICK_TESTS)
    of_pythons = results["pythons"]
    yield from _table(
        ["Python", *seen],
        ([python, *(of_pythons.get(python, {}).get(name, NOT_RUN) for name in seen)] for python in pythons),
    )


def _of_environment(name: str, noted: Mapping[str, Any], cases: Sequence[str]) -> list[str]:
    versions, of_cases = noted.get("versions", {}), noted.get("cases", {})
    return [
        name,
        *(versions.get(distribution, "") for distribution in DISTRIBUTIONS),
        noted.get("quick", NOT_RUN),
        *(of_cases.get(case, NOT_RUN) for case in cases),
    ]


def _table(head: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    yield _row(head)
    yield "|---" * len(head) + "|"
    yield from map(_row, rows)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
