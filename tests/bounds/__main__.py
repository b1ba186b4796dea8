"""`make test-bounds`, `make test-schedulers`: the tests with other versions of Airflow and of all other dependencies.

Both print the tables of docs/compatibility.md. With `--note` they write what they saw into the file that the page is checked against.
Nothing is known of a Python that this machine does not have, but whether the versions fit together there.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bounds.environments import Environment, NoEnvironmentError, make, pythons, required
from tests.bounds.tables import QUICK_TESTS, RESULTS, tables
from tests.lab.cache import keep

if TYPE_CHECKING:
    from collections.abc import Sequence

LOWEST = Environment("lowest versions", resolution="lowest-direct")
NEWEST = Environment("newest versions")
ENVIRONMENTS = (
    LOWEST,
    Environment("Airflow 3.1", ("apache-airflow==3.1.*",)),
    Environment("Airflow 3.2", ("apache-airflow==3.2.*",)),
    NEWEST,
)
ON_PYTHONS = tuple(replace(NEWEST, name=f"Python {python}", python=python) for python in pythons())
"""The newest versions on each Python."""

FIT = "fit together"

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
    ),
    "stop": (f"{_FAILURES}::test_a_worker_that_is_told_to_stop_leaves_the_same_window_to_the_retry",),
    "clear": (
        f"{_ORDINARY}::test_a_cleared_run_runs_its_window_again_and_leaves_the_watermark",
        f"{_FAILURES}::test_clearing_a_sibling_while_ours_waits_for_its_retry_changes_nothing_for_us",
    ),
    "replay": ("tests/acceptance/test_replay.py",),
    "cluster": ("tests/acceptance/test_clusters.py",),
    "page": ("tests/page/test_page.py",),
    "commands": ("tests/cli/test_airflow.py",),
}
"""What a real Airflow runs, with a real Kafka and a real Spark, by the name in the table."""


def run(environment: Environment, cases: Sequence[str] = ()) -> dict[str, Any]:
    """Run the quick tests in an environment, or some cases, and return what is to be noted."""
    print(f"==> {environment.name}", flush=True)
    made = make(environment)
    noted: dict[str, Any] = {"versions": made.versions(sorted({wanted.name for wanted in required()}))}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        if cases:
            tests = sorted({test for case in cases for test in CASES[case]})
            outcome = made.pytest("-q", *tests, report=report)
            noted["cases"] = {case: outcome.of(*CASES[case]) for case in cases}
        else:
            outcome = made.pytest(*QUICK, report=report)
            noted["quick"] = outcome.word
    print(f"==> {environment.name}: {outcome.passed} passed, {outcome.skipped} skipped, {outcome.word}", flush=True)
    return noted


def run_on_python(environment: Environment) -> dict[str, str]:
    """Look whether versions fit together on a Python; if the machine has it, run the quick tests, too, with the newest ones."""
    noted = {each.name: fits_together(replace(each, python=environment.python)) for each in (LOWEST, NEWEST)}
    if environment.python == NEWEST.python:
        return noted
    if environment.has_python():
        noted[QUICK_TESTS] = run(environment)["quick"]
    else:
        print(f"{environment.name} is not on this machine's PATH: the quick tests do not run on it", file=sys.stderr)
    return noted


def fits_together(environment: Environment) -> str:
    """Look whether there are versions that fit together, without installing them, and return the words for it."""
    try:
        environment.requirements()
    except NoEnvironmentError as exc:
        print(exc, file=sys.stderr)
        return "do not fit together"
    return FIT


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for, and print the tables of all that is noted."""
    everything = (*ENVIRONMENTS, *ON_PYTHONS)
    parser = argparse.ArgumentParser(prog="python -m tests.bounds", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"all: {', '.join(each.name for each in everything)}")
    parser.add_argument("--schedulers", action="store_true", help="run the cases, not the quick tests")
    parser.add_argument("--case", action="append", help=f"only this one; all: {', '.join(CASES)}", choices=CASES)
    parser.add_argument("--note", action="store_true", help=f"keep the results in {RESULTS.name}")
    args = parser.parse_args(arguments)
    cases = args.case or (list(CASES) if args.schedulers else [])
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"environments": {}, "pythons": {}}
    is_good = True
    for environment in everything:
        if environment.name in args.names or not args.names:
            is_good &= add(results, environment, cases) <= {"pass", FIT}
            if args.note:
                keep(RESULTS, json.dumps(in_order(results), indent=2) + "\n")
    print("\n".join(lines(results)))
    return 0 if is_good else 1


def add(results: dict[str, Any], environment: Environment, cases: Sequence[str]) -> set[str]:
    """Add to the results what is seen of an environment, and return the words of that."""
    if environment in ON_PYTHONS:
        on_python = run_on_python(environment)
        results["pythons"].setdefault(environment.python, {}).update(on_python)
        return {*on_python.values()}
    noted = run(environment, cases)
    if environment == NEWEST and "quick" in noted:
        results["pythons"].setdefault(environment.python, {})[QUICK_TESTS] = noted["quick"]
    words = {*noted.get("cases", {}).values(), noted.get("quick", "pass")}
    earlier = results["environments"].setdefault(environment.name, {})
    if "cases" in noted:
        noted["cases"] = earlier.get("cases", {}) | noted["cases"]
    earlier.update(noted)
    return words


def lines(results: dict[str, Any]) -> list[str]:
    """Return the tables of docs/compatibility.md."""
    return list(tables(results, [each.name for each in ENVIRONMENTS], list(CASES), pythons()))


def in_order(results: dict[str, Any]) -> dict[str, Any]:
    """Return the results in the order of the tables, whatever ran first."""
    environments = {each.name: results["environments"].get(each.name) for each in ENVIRONMENTS}
    for noted in filter(None, environments.values()):
        if "cases" in noted:
            noted["cases"] = {case: noted["cases"][case] for case in CASES if case in noted["cases"]}
    of_pythons = {python: results["pythons"].get(python) for python in pythons()}
    return {
        "environments": {name: noted for name, noted in environments.items() if noted},
        "pythons": {python: noted for python, noted in of_pythons.items() if noted},
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
