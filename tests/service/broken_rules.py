"""Breaks one rule after the other, to see whether the simulator notices.

By hand::

    python -m tests.service.broken_rules
    python -m tests.service.broken_rules --schedules 200 abandon gap

The default of 600 schedules has a reason: only schedule 514 notices that "a success counts until the next attempt" is broken.

Whoever adds a rule to the ledger's commits, holds or acts adds the way to break it here.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from sqlalchemy import Connection, select, update

from airflow_kafka_offsets.core.plan import decide, ownership, pruning
from airflow_kafka_offsets.core.plan.decide import InLedger
from airflow_kafka_offsets.core.plan.ownership import Abandonment
from airflow_kafka_offsets.core.run import Try
from airflow_kafka_offsets.core.window import Claim, Outcome, Window, WindowRecord, check_commit
from airflow_kafka_offsets.ledger import acts, runs
from airflow_kafka_offsets.ledger.tables import attempts, groups, windows
from airflow_kafka_offsets.service import acts as acts_of_people
from airflow_kafka_offsets.service import plan
from airflow_kafka_offsets.service import windows as service
from airflow_kafka_offsets.service.publish import Publisher
from tests.service.simulation import BrokenLawError, simulate

_finish = service.WindowService._finish
_find = runs.find_record
_hold = runs._hold
_newest_at = runs._newest_at
_load = plan.load_from_ledger


def _change(connection: Connection, group_id: int, window: Window, /, **values: Any) -> None:
    """Change a window, whatever became of it since."""
    here = (windows.c.group_id == group_id, windows.c.seq == window.seq)
    connection.execute(update(windows).where(*here).values(values))


def _change_when_held(*args: Any) -> None:
    with patch.object(runs, "change_window", _change):
        _hold(*args)


def _step(connection: Connection, group_id: int, seqs: Sequence[int], before: object, **values: Any) -> None:
    here = (windows.c.group_id == group_id, windows.c.seq.in_(seqs))
    connection.execute(update(windows).where(*here).values(values))


def _next_version(connection: Connection, group: str, version: int, **values: Any) -> None:
    connection.execute(update(groups).where(groups.c.name == group).values(version=groups.c.version + 1, **values))


def _load_as_seen(*args: Any, before: InLedger | None = None, **more: Any) -> InLedger:
    """Let a plan decide in its turn on what the ledger had when it looked."""
    return before or _load(*args, **more)


@contextmanager
def _both(*patches: AbstractContextManager[Any]) -> Iterator[None]:
    """Break a rule that two things keep: whoever plans loads the group again in its turn, and writes by compare-and-set."""
    with ExitStack() as stack:
        for one in (patch.object(plan, "load_from_ledger", _load_as_seen), *patches):
            stack.enter_context(one)
        yield


def _abandonment(*args: Any) -> Abandonment:
    return replace(ownership.abandonment(*args), position=None)


def _without_evidence(window: WindowRecord, claim: Claim, outcome: Outcome | None) -> bool:
    return check_commit(window, claim, Outcome.SUCCEEDED)


def _by_anybody(window: WindowRecord, claim: Claim, outcome: Outcome | None) -> bool:
    return check_commit(replace(window, holder=claim), claim, outcome)


def _find_as_recorded(
    connection: Connection, window_id: str, attempt: int | None = None
) -> tuple[WindowRecord, int, Outcome | None]:
    window, group_id, _ = _find(connection, window_id, attempt)
    outcome = connection.execute(select(attempts.c.outcome).where(attempts.c.id == attempt)).scalar()
    return window, group_id, None if outcome is None else Outcome(outcome)


@contextmanager
def _counting_old_successes() -> Iterator[None]:
    with (
        patch.object(runs, "find_record", _find_as_recorded),
        patch.object(runs, "_newest_at", lambda found: found.c.id if found is attempts else _newest_at(found)),
    ):
        yield


def _finish_and_win(self: service.WindowService, window_id: str) -> bool:
    _finish(self, window_id)
    return True


def _nothing(*args: Any) -> None:
    pass


RULES: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "a window is changed by compare-and-set": lambda: _both(patch.object(runs, "change_window", _change)),
    "a window is held by compare-and-set": lambda: _both(patch.object(runs, "_hold", _change_when_held)),
    "a commit is finished by compare-and-set": partial(patch.object, runs, "step_windows", _step),
    "a group has versions": lambda: _both(patch.object(runs, "next_version", _next_version)),
    "abandon gives the offsets back": partial(patch.object, acts, "abandonment", _abandonment),
    "a gap is recorded": partial(patch.object, Abandonment, "facts", property(lambda self: {"window": self.window.id})),
    "a gap is confirmed": partial(patch.object, acts, "check_gap", _nothing),
    "the offset store follows": partial(patch.object, Publisher, "_follow", _nothing),
    "a commit has evidence": partial(patch.object, runs, "check_commit", _without_evidence),
    "the holder commits": partial(patch.object, runs, "check_commit", _by_anybody),
    "a success counts until the next attempt": _counting_old_successes,
    "the holder begins": partial(patch.object, runs, "check_attempt", _nothing),
    "a committed window that runs again is noted": partial(patch.object, runs, "_note_rerun", _nothing),
    "an attempt that was replaced is lost": partial(patch.object, runs, "_lose", _nothing),
    "a clear begins again": partial(
        patch.multiple, Try, series=property(lambda self: "one"), continues=lambda self, earlier: True
    ),
    "one commit wins": partial(patch.object, service.WindowService, "_finish", _finish_and_win),
    "a window is taken from the dead only": partial(patch.object, ownership, "is_free_for", lambda *args, **more: True),
    "a window is given while Kafka holds it": partial(patch.object, decide, "check_readable", _nothing),
    "no reset with open windows": partial(patch.object, acts_of_people, "check_no_open_window", _nothing),
    "what Kafka holds is not pruned": partial(patch.object, pruning, "_why_held", _nothing),
    "no empty window behind open ones": partial(patch.object, ownership, "check_something", _nothing),
}


@contextmanager
def broken(rule: str) -> Iterator[None]:
    """Break a rule for a while."""
    with RULES[rule]():
        yield


def first_noticed(rule: str, schedules: int) -> tuple[int, str] | None:
    """Return the seed of the first schedule that breaks a law without a rule, and how, or None."""
    with broken(rule):
        for seed in range(schedules):
            try:
                simulate(seed)
            except BrokenLawError as exc:
                return seed, str(exc).splitlines()[0]
    return None


def main(argv: Sequence[str] | None = None) -> int:
    """Break rules one by one. Return 1 if no schedule notices one of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.service.broken_rules", description=main.__doc__)
    parser.add_argument("--schedules", type=int, default=600, help="how many of them have to suffice")
    parser.add_argument("words", nargs="*", help="only rules with one of these words")
    args = parser.parse_args(argv)
    missed = 0
    for rule in RULES:
        if args.words and not any(word in rule for word in args.words):
            continue
        began = time.process_time()
        found = first_noticed(rule, args.schedules)
        missed += found is None
        told = f"NOTICED by schedule {found[0]}: {found[1][:300]}" if found else f"MISSED by {args.schedules} schedules"
        print(f"{rule} ({time.process_time() - began:.0f} s): {told}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
