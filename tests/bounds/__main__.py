"""`make test-bounds`, `make test-schedulers`: the tests with other versions of Airflow and of all other dependencies.

Both print the tables of docs/compatibility.md. With `--note` they write what they saw into the file that the page is checked against.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bounds.environments import Environment, NoEnvironmentError, make, pythons
from tests.bounds.tables import DISTRIBUTIONS, RESULTS, tables
from tests.lab.cache import keep

if TYPE_CHECKING:
    from collections.abc import Sequence

LOWEST = Environment("lowest versions", resolution="lowest-direct")
NEWEST = Environment("newest versions")
ENVIRONMENTS = (
    LOWEST,
    Environment("Airflow 3.1", ("apache-airflow==3.1.8",)),
    Environment("Airflow 3.2", ("apache-airflow==3.2.2",)),
    NEWEST,
)

# Not those of the page, which compare it with what is seen here.
_WHICH = ("-m", "not server and not slow", "--ignore=tests/bounds")
QUICK = (*_WHICH, "--hypothesis-profile=quick", "--numprocesses=2", "--dist=worksteal", "-q")

_ORDINARY = "tests/acceptance/test_ordinary.py"
_FAILURES = "tests/acceptance/test_failures.py"
CASES = {
    "ordinary": (_ORDINARY,),
    "retry": (
        f"{_FAILURES}::test_a_killed_driver_is_retried_on_the_same_window",
        f"{_FAILURES}::test_a_killed_worker_is_retried_on_the_same_window_and_leaves_no_twin",
        f"{_FAILURES}::test_a_worker_that_is_told_to_stop_takes_its_job_along_and_the_retry_has_the_same_window",
    ),
    "clear": (
        f"{_ORDINARY}::test_a_cleared_run_runs_its_window_again_and_leaves_the_watermark",
        f"{_FAILURES}::test_clearing_a_sibling_while_ours_waits_for_its_retry_changes_nothing_for_us",
    ),
    "replay": ("tests/acceptance/test_replay.py",),
}
"""What a real scheduler runs with a real Kafka and a real Spark, by the name in the table."""


def resolve() -> dict[str, Any]:
    """Look whether the lowest and the newest versions fit together on each Python, without installing them."""
    found: dict[str, Any] = {}
    for python in pythons():
        for environment in (LOWEST, NEWEST):
            there = Environment(environment.name, environment.pins, environment.resolution, python)
            try:
                there.requirements()
                answer = "fit together"
            except NoEnvironmentError as exc:
                print(exc, file=sys.stderr)
                answer = "do not fit together"
            found.setdefault(python, {})[environment.name] = answer
    return found


def run(environment: Environment, *, schedulers: bool) -> dict[str, Any]:
    """Run the quick tests in an environment, or the cases on its scheduler, and return what is to be noted."""
    print(f"==> {environment.name}", flush=True)
    made = make(environment)
    noted: dict[str, Any] = {"versions": {name: made.version(name) for name in DISTRIBUTIONS}}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        if schedulers:
            tests = sorted({test for of_case in CASES.values() for test in of_case})
            outcome = made.pytest("-q", *tests, report=report)
            noted["cases"] = {case: outcome.of(*of_case) for case, of_case in CASES.items()}
        else:
            outcome = made.pytest(*QUICK, report=report)
            noted["quick"] = outcome.word
    print(f"==> {environment.name}: {outcome.passed} passed, {outcome.skipped} skipped, {outcome.word}", flush=True)
    return noted


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for, and print the tables of all that is noted."""
    parser = argparse.ArgumentParser(prog="python -m tests.bounds", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"environments; all: {', '.join(e.name for e in ENVIRONMENTS)}")
    parser.add_argument(
        "--schedulers", action="store_true", help="run the cases on real schedulers, not the quick tests"
    )
    parser.add_argument("--note", action="store_true", help=f"keep the results in {RESULTS.name}")
    args = parser.parse_args(arguments)
    chosen = [e for e in ENVIRONMENTS if not args.names or e.name in args.names]
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"environments": {}, "pythons": {}}
    is_good = True
    if not args.schedulers and not args.names:
        results["pythons"] = resolve()
        is_good = all(answer == "fit together" for of in results["pythons"].values() for answer in of.values())
    for environment in chosen:
        noted = run(environment, schedulers=args.schedulers)
        results["environments"].setdefault(environment.name, {}).update(noted)
        is_good &= all(word == "pass" for word in [*noted.get("cases", {}).values(), noted.get("quick", "pass")])
    if args.note:
        keep(RESULTS, json.dumps(results, indent=2) + "\n")
    print("\n".join(tables(results)))
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
