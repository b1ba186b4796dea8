"""Run the job on each Spark, print the table, and compare it with the one of docs/compatibility.md: `make test-matrix`.

`--write` puts the results into the page and results.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.lab.databases import Postgres
from tests.lab.jars import JarError
from tests.lab.kafka import KafkaBroker
from tests.lab.sparks import SPARKS
from tests.matrix.job import CONNECT, SUBMIT
from tests.matrix.runs import MatrixError, run_job, run_over_connect
from tests.matrix.table import JOB_SIDE, ON_PAGE, RESULTS, failures, job_now, results, tables
from tests.seen import run_now

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.lab.sparks import OtherSpark


def result_of(spark: OtherSpark, kafka: KafkaBroker, postgres: Postgres, folder: Path) -> dict[str, Any]:
    """Run the job on one Spark."""
    submitted = run_job(spark, kafka, postgres, _new(folder / "submitted"))
    remote = run_over_connect(spark, kafka, postgres, _new(folder / "connect")) if spark.has_connect else None
    return {
        **spark.facts(),
        **{name: submitted[name] for name in ("python", "java")},
        "job": job_now(),
        **run_now(JOB_SIDE),
        SUBMIT: submitted["outcomes"],
        CONNECT: remote["outcomes"] if remote else {},
    }


def _new(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def write(found: dict[str, dict[str, Any]], broken: Collection[str]) -> None:
    """Put the results into results.json and the page.

    Args:
        found: By the names of Sparks; one that was not run keeps its old results.
        broken: The names of those without a result; they keep nothing.
    """
    known = {**(results() if RESULTS.exists() else {}), **found}
    kept = {spark.name: known[spark.name] for spark in SPARKS if spark.name in known.keys() - set(broken)}
    RESULTS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    ON_PAGE.write(tables(kept))


def main() -> None:
    """Run all, or those that are named."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--only", nargs="*", metavar="SPARK", help=f"of {', '.join(spark.name for spark in SPARKS)}")
    parser.add_argument("--write", action="store_true", help="put the results into the page and results.json")
    asked = parser.parse_args()
    chosen = [spark for spark in SPARKS if asked.only is None or spark.name in asked.only]
    found: dict[str, dict[str, Any]] = {}
    broken: dict[str, Exception] = {}
    with tempfile.TemporaryDirectory() as work, KafkaBroker(Path(work, "kafka")) as kafka, Postgres() as postgres:
        for spark in chosen:
            print(f"==> Spark {spark.name}", flush=True)
            try:
                found[spark.name] = result_of(spark, kafka, postgres, Path(work, spark.name))
            except (JarError, MatrixError) as failure:
                broken[spark.name] = failure
            if asked.write:
                write(found, broken)
    print(tables(found))
    failed = [*(f"{name}: {failure}" for name, failure in broken.items()), *failures(found)]
    rows = {line for line in tables(found).splitlines() if line.startswith("|")}  # not the day of the runs
    if not rows <= {*ON_PAGE.read().splitlines()}:
        failed.append("docs/compatibility.md has other tables: make test-matrix WRITE=1")
    sys.exit("\n".join(failed) or None)


if __name__ == "__main__":
    main()
