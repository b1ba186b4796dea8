"""A list of windows takes as much work with many partitions as with few: Python says how many functions it called."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import pytest

from airflow_kafka_offsets.cli import windows as command
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.service import pictures
from tests.ledger.examples import add_all, claim, draft

FEW, MANY = 1_000, 4_000
"""Both are so many that ranges are packed."""

Question = Callable[[Ledger, str], Any]


def calls(step: Callable[[], Any]) -> int:
    """Do something, and return how many functions, also those in C, it called."""
    found, before = 0, sys.getprofile()

    def count(_frame: Any, event: str, _what: Any) -> None:
        nonlocal found
        found += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        step()
    finally:
        sys.setprofile(before)
    return found


QUESTIONS: dict[str, Question] = {
    "of a run": lambda ledger, name: pictures.windows_of_run(ledger, ledger.windows_of_run("dag", name)),
    "of a group": lambda ledger, name: command._list(ledger, name, Namespace(state=None, limit=50)),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_windows_are_listed_without_their_ranges(sqlite_url: str, name: str, question: str) -> None:
    ledger, ask = Ledger(sqlite_url), QUESTIONS[question]
    names = [f"{name}-{partitions}" for partitions in (FEW, MANY)]
    for one, partitions in zip(names, (FEW, MANY), strict=True):
        add_all(ledger, one, [draft(n, n + 1, partitions=partitions) for n in range(3)], claim(one))
        ask(ledger, one)  # what the first question of a process builds is kept
    few, many = (calls(lambda one=one: ask(ledger, one)) for one in names)
    assert many <= 1.2 * few, f"{few} calls for {FEW} partitions, {many} for {MANY}"
