"""What was seen of each environment, as the tables of docs/compatibility.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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


def tables(results: Mapping[str, Any]) -> Iterator[str]:
    """Return the lines of the tables: one of environments, one of Pythons."""
    environments: Mapping[str, Any] = results["environments"]
    cases = list(dict.fromkeys(case for noted in environments.values() for case in noted.get("cases", {})))
    yield from _table(
        ["", *DISTRIBUTIONS.values(), QUICK_TESTS, *cases],
        (
            [name, *(noted["versions"][of] for of in DISTRIBUTIONS), noted.get("quick", "not run")]
            + [noted.get("cases", {}).get(case, "not run") for case in cases]
            for name, noted in environments.items()
        ),
    )
    yield ""
    pythons: Mapping[str, Mapping[str, str]] = results["pythons"]
    seen = list(dict.fromkeys([name for noted in pythons.values() for name in noted if name != QUICK_TESTS]))
    yield from _table(
        ["Python", *seen, QUICK_TESTS],
        ([python, *(noted.get(name, "not run") for name in [*seen, QUICK_TESTS])] for python, noted in pythons.items()),
    )


def _table(head: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    yield _row(head)
    yield "|---" * len(head) + "|"
    yield from map(_row, rows)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
