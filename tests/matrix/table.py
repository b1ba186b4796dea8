"""The tables of docs/compatibility.md, from the results of the last run of the matrix: results.json."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.matrix import job
from tests.matrix.job import (
    CONNECT,
    DELTA,
    EXCHANGE,
    FILES,
    ICEBERG,
    JDBC,
    LAUNCH,
    PASSED,
    READ,
    STAGED,
    STEPS,
    SUBMIT,
    VALUES,
)
from tests.seen import Tables

if TYPE_CHECKING:
    from collections.abc import Mapping

RESULTS = Path(__file__).with_name("results.json")
"""For each Spark, its versions, the job that it ran, and the outcome of each step of that job, for each way to get a Spark."""
JOB_SIDE = "airflow_kafka_offsets/spark"
ON_PAGE = Tables("make test-matrix")
_COLUMNS = {
    "launch": LAUNCH,
    "read, counts, `check()`": READ,
    "values decoded": VALUES,
    "report in an exchange": EXCHANGE,
    "Parquet, ORC, JSON": FILES,
    "`write_jdbc`": JDBC,
    "`stage_jdbc`": STAGED,
    "Delta": DELTA,
    "Iceberg": ICEBERG,
}
_NOTHING, _REFUSED = "-", "refused"
_REFUSED_THERE = {(CONNECT, FILES), (CONNECT, JDBC)}
"""The steps make sure that these are refused."""


def results() -> dict[str, dict[str, Any]]:
    """Return the results of the last run."""
    last_run: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text())
    return last_run


def job_now() -> str:
    """Return the digest of the job of today."""
    return hashlib.sha256(Path(job.__file__).read_bytes()).hexdigest()[:16]


def failures(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a line for each step that went wrong."""
    return [
        f"{name}: {way}: {step}: {outcome}"
        for name, result in found.items()
        for way in (SUBMIT, CONNECT)
        for step, outcome in result[way].items()
        if outcome != PASSED
    ]


def tables(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return in Markdown what came of the steps, and the coordinates of the table formats."""
    outcomes = [_row(result, way) for result in found.values() for way in (SUBMIT, CONNECT) if result[way]]
    formats = dict.fromkeys(
        (*_spark(result), *(f"`{result[name]}`" if name in result else _NOTHING for name in (DELTA, ICEBERG)))
        for result in found.values()
    )
    return "\n".join(
        [
            _runs(found),
            _table(["Spark", "Scala", "Python, Java", "Kafka client", "session", *_COLUMNS], outcomes),
            _table(["Spark", "Scala", "Delta", "Iceberg"], list(map(list, formats))),
        ]
    )


def _runs(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return when the runs were, in one line for those of one day and one job side."""
    together: dict[tuple[str, str], list[str]] = {}
    for name, result in found.items():
        together.setdefault((result["date"], result["commit"]), []).append(name)
    runs = [
        f"on {date} with the job side of commit {commit}"
        + (f" (Spark {', '.join(names)})" if len(together) > 1 else "")
        for (date, commit), names in together.items()
    ]
    return f"Seen {', and '.join(runs)}:\n"


def _table(heads: list[str], rows: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (heads, ["---"] * len(heads), *rows))


def _row(result: Mapping[str, Any], way: str) -> list[str]:
    driver = f"{_minor(result['python'])}, {_major(result['java'])}"
    cells = [_cell(result, way, about) for about in _COLUMNS.values()]
    return [*_spark(result), driver, result["kafka"], way, *cells]


def _spark(result: Mapping[str, Any]) -> list[str]:
    return [result["spark"], result["scala"]]


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _major(version: str) -> str:
    return version.partition(".")[0]


def _cell(result: Mapping[str, Any], way: str, about: str) -> str:
    outcomes = [outcome for name, outcome in result[way].items() if STEPS[name].about == about]
    if not outcomes:
        return _NOTHING
    passed = outcomes.count(PASSED)
    if passed < len(outcomes):
        return f"{passed} of {len(outcomes)} steps"
    if (way, about) in _REFUSED_THERE:
        return _REFUSED
    return str(result[about]).rpartition(":")[2] if about in (DELTA, ICEBERG) else "yes"
