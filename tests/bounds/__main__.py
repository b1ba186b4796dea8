"""`make test-versions`: the tests with other versions of Airflow and of all other dependencies, on other Pythons, too.

It prints the tables of docs/compatibility.md. With `--note`, the page and results.json get what was seen.
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
from tests.bounds.tables import ON_PAGE, QUICK, RESULTS, tables
from tests.lab.cache import keep
from tests.seen import run_now

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.bounds.environments import Made, Outcome

LOWEST = Environment("lowest versions", resolution="lowest-direct")
AIRFLOW_3_1 = Environment("Airflow 3.1", ("apache-airflow==3.1.*",))
AIRFLOW_3_2 = Environment("Airflow 3.2", ("apache-airflow==3.2.*",))
NEWEST = Environment("newest versions")
ON_PYTHONS = tuple(replace(NEWEST, name=f"Python {python}", python=python) for python in pythons())
"""The newest versions on each Python."""

FIT = "fit together"
PASS = "pass"

# Not those of the page, which compare it with what is seen here.
_WHICH = ("-m", "not server and not slow", "--ignore=tests/bounds")
_QUICK = (*_WHICH, "--hypothesis-profile=quick", "--numprocesses=2", "--dist=worksteal", "-q")
# As in `make test`.
_WITH_SERVERS = ("--numprocesses=2", "--dist=loadfile", "--max-worker-restart=0", "-q")

_STORES = ("kafka", "redis", "zookeeper", "hbase", "s3", "hdfs", "sql")
_ORDINARY = "tests/acceptance/test_ordinary.py"
_FAILURES = "tests/acceptance/test_failures.py"
ON_SCHEDULER = {
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

TESTS = {
    "servers": (
        "tests/adapters/kafka/test_log.py",
        "tests/adapters/kafka/test_log_contract.py",
        "tests/adapters/kafka/test_other_brokers.py",
        "tests/ledger/test_contract.py",
        *(f"tests/stores/test_{store}.py" for store in _STORES),
    ),
    **ON_SCHEDULER,
}
"""All that needs servers."""
CASES = (QUICK, *TESTS)

PLAN = {
    LOWEST: (QUICK, "servers", "ordinary"),
    AIRFLOW_3_1: (QUICK, *ON_SCHEDULER),
    AIRFLOW_3_2: (QUICK,),
    NEWEST: (QUICK, "servers", *ON_SCHEDULER),
    **dict.fromkeys(ON_PYTHONS, (QUICK,)),
}
"""The cases of each environment that run if no other ones are asked for."""
ENVIRONMENTS = tuple(each for each in PLAN if each not in ON_PYTHONS)


def run(environment: Environment, cases: Iterable[str]) -> dict[str, Any]:
    """Run cases in an environment, and return what is to be noted: its versions, and how each case ended."""
    print(f"==> {environment.name}: {', '.join(cases)}", flush=True)
    made = make(environment)
    ends: dict[str, str] = {}
    if QUICK in cases:
        ends[QUICK] = _run(made, environment.name, _QUICK).word
    with_servers = [case for case in cases if case != QUICK]
    if with_servers:
        tests = sorted({test for case in with_servers for test in TESTS[case]})
        outcome = _run(made, environment.name, (*_WITH_SERVERS, *tests))
        ends.update({case: outcome.of(*TESTS[case]) for case in with_servers})
    return {"versions": made.versions(sorted({wanted.name for wanted in required()})), "seen": _seen(ends)}


def _run(made: Made, name: str, arguments: Sequence[str]) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        outcome = made.pytest(*arguments, report=Path(folder, "report.xml"))
    print(f"==> {name}: {outcome.passed} passed, {outcome.skipped} skipped, {outcome.word}", flush=True)
    return outcome


def run_on_python(environment: Environment) -> dict[str, Any]:
    """Look whether versions fit together on a Python; if the machine has it, run the quick tests, too, with the newest ones."""
    seen = _seen({each.name: fits_together(replace(each, python=environment.python)) for each in (LOWEST, NEWEST)})
    if environment.python == NEWEST.python:
        return seen
    if environment.has_python():
        return seen | run(environment, [QUICK])["seen"]
    print(f"{environment.name} is not on this machine's PATH: the quick tests do not run on it", file=sys.stderr)
    return seen


def _seen(ends: dict[str, str]) -> dict[str, dict[str, str]]:
    now = run_now("airflow_kafka_offsets")
    return {name: {"end": end, **now} for name, end in ends.items()}


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
    parser = argparse.ArgumentParser(prog="python -m tests.bounds", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"only these ones of {', '.join(each.name for each in PLAN)}")
    parser.add_argument("--case", action="append", help=f"only this one of {', '.join(CASES)}", choices=CASES)
    parser.add_argument("--note", action="store_true", help=f"write {RESULTS.name} and {ON_PAGE.page.name}")
    args = parser.parse_args(arguments)
    if unknown := set(args.names) - {each.name for each in PLAN}:
        parser.error(f"no such environment: {', '.join(sorted(unknown))}")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"environments": {}, "pythons": {}}
    is_good = True
    for environment, planned in PLAN.items():
        cases = args.case or planned
        # What needs servers runs on one Python.
        if environment in ON_PYTHONS and QUICK not in cases:
            continue
        if environment.name in args.names or not args.names:
            is_good &= add(results, environment, cases) <= {PASS, FIT}
            if args.note:
                write(results)
    print(page_of(results), end="")
    return 0 if is_good else 1


def write(results: dict[str, Any]) -> None:
    """Put what was seen into results.json and the page."""
    keep(RESULTS, json.dumps(in_order(results), indent=2) + "\n")
    ON_PAGE.write(page_of(results))


def add(results: dict[str, Any], environment: Environment, cases: Sequence[str]) -> set[str]:
    """Add to the results what is seen of an environment, and return the words of that."""
    on_pythons = results["pythons"]
    if environment in ON_PYTHONS:
        seen = run_on_python(environment)
        on_pythons.setdefault(environment.python, {}).update(seen)
    else:
        noted = run(environment, cases)
        seen = noted["seen"]
        earlier = results["environments"].setdefault(environment.name, {})
        earlier["versions"] = noted["versions"]
        earlier.setdefault("seen", {}).update(seen)
        if environment == NEWEST and QUICK in seen:
            on_pythons.setdefault(environment.python, {})[QUICK] = seen[QUICK]
    return {cell["end"] for cell in seen.values()}


def page_of(results: dict[str, Any]) -> str:
    """Return the tables of docs/compatibility.md."""
    return tables(results, [each.name for each in ENVIRONMENTS], CASES, pythons())


def in_order(results: dict[str, Any]) -> dict[str, Any]:
    """Return the results in the order of the tables, whatever ran first."""
    environments = {each.name: results["environments"].get(each.name) for each in ENVIRONMENTS}
    of_pythons = {python: results["pythons"].get(python) for python in pythons()}
    columns = (LOWEST.name, NEWEST.name, QUICK)
    return {
        "environments": {
            name: {"versions": noted["versions"], "seen": _only(CASES, noted["seen"])}
            for name, noted in environments.items()
            if noted
        },
        "pythons": {python: _only(columns, seen) for python, seen in of_pythons.items() if seen},
    }


def _only(names: Iterable[str], of: dict[str, Any]) -> dict[str, Any]:
    return {name: of[name] for name in names if name in of}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
