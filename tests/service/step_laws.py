"""What has to hold at each step of a simulation: what one call may change in the ledger, and who may cause it.

The laws at the end of a schedule see harm only where it stays. These see a broken rule when it is broken: they compare the rows of
windows and attempts before and after each call, and know whom Airflow was asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_kafka_offsets.core.window import LIFE, Claim, Outcome, Scope, State
from airflow_kafka_offsets.core.window_id import parse_window_id

Require = Callable[[bool, str], None]
"""Refuses a schedule if a condition does not hold."""

READS = frozenset(
    {
        "load",
        "succeeded",
        "window",
        "windows",
        "windows_of_run",
        "attempts",
        "acts",
        "group",
        "groups",
        "pruned",
        "old_windows",
        "frontiers",
    }
)

_WINDOWS = """
    SELECT w.seq, w.state, w.holds, w.span, w.lane = 'live', w.committed_at, c.dag_id, c.run_id, c.task_id, c.map_index, c.scope
    FROM kafka_offsets_windows w JOIN kafka_offsets_claims c ON c.id = w.holder
"""
_ATTEMPTS = """
    SELECT a.id, a.seq, a.outcome, a.try_number, c.dag_id, c.run_id, c.task_id, c.map_index, c.scope
    FROM kafka_offsets_attempts a JOIN kafka_offsets_claims c ON c.id = a.claim_id
"""


@dataclass(frozen=True, slots=True)
class WindowRow:
    """What the ledger says of one window."""

    state: State
    holds: int
    span: int
    is_live: bool
    committed_at: str | None
    holder: Claim


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """What the ledger says of one attempt."""

    seq: int
    outcome: Outcome
    try_number: int
    claim: Claim


@dataclass(frozen=True, slots=True)
class _Rows:
    windows: dict[int, WindowRow]
    attempts: dict[int, AttemptRow]


class StepLaws:
    """Looks at the ledger after each call that may have written to it.

    Args:
        execute: runs a query on the ledger's SQLite, and returns rows.
        require: refuses the schedule.
        caller: who is at work now.
    """

    def __init__(
        self, execute: Callable[[str], Sequence[Any]], require: Require, caller: Callable[[], Hashable]
    ) -> None:
        self._execute = execute
        self._require = require
        self._caller = caller
        self._rows = _Rows({}, {})
        self._step = 0
        self._given: dict[int, int] = {}
        self._given_to_another: dict[int, int] = {}
        self._begun: dict[int, int] = {}
        self._said_over: dict[tuple[Hashable, Claim], int] = {}
        self._made: list[tuple[Hashable, int]] = []

    def is_over(self, claim: Claim) -> None:
        """Note that Airflow said to the caller that a claim is over."""
        self._step += 1
        self._said_over[self._caller(), claim] = self._step

    def commits_of(self, caller: Hashable) -> list[int]:
        """Return the windows that a caller has brought to the end of their commit, in this order."""
        return [seq for who, seq in self._made if who == caller]

    def called(self, name: str, args: Sequence[Any]) -> None:
        """Look at what a call of the ledger has changed."""
        if name in READS:
            return
        self._step += 1
        before, self._rows = self._rows, self._look()
        for seq, row in self._rows.windows.items():
            self._check_life(seq, before.windows.get(seq), row)
            self._check_given(seq, before.windows.get(seq), row)
        for number, attempt in self._rows.attempts.items():
            self._check_attempt(number, before.attempts.get(number), attempt)
        if name == "commit":
            self._check_commit(*args[:3])
        if name == "finish":
            self._check_finish(before, args[2])
        if name == "reset":
            left = [seq for seq, row in self._rows.windows.items() if row.is_live and row.state.is_open]
            self._require(not left, f"a reset passed the open windows {left}")

    def _look(self) -> _Rows:
        windows = {
            seq: WindowRow(State(state), holds, span, bool(is_live), at, Claim(*who, scope=Scope(scope)))
            for seq, state, holds, span, is_live, at, *who, scope in self._execute(_WINDOWS)
        }
        attempts = {
            number: AttemptRow(seq, Outcome(outcome), try_number, Claim(*who, scope=Scope(scope)))
            for number, seq, outcome, try_number, *who, scope in self._execute(_ATTEMPTS)
        }
        return _Rows(windows, attempts)

    def _check_life(self, seq: int, before: WindowRow | None, row: WindowRow) -> None:
        if before is None:
            self._require(row.state is State.PLANNED, f"window {seq} begins its life as {row.state}")
            return
        if before.committed_at is not None:
            self._require(before.committed_at == row.committed_at, f"window {seq} was committed a second time")
        if before.state is row.state:
            return
        # A commit without an offset store takes two steps at once.
        is_both = (before.state, row.state) == (State.PLANNED, State.COMMITTED)
        is_legal = is_both or row.state in LIFE[before.state]
        self._require(is_legal, f"window {seq} was {before.state}, and is {row.state}")
        if row.state is State.COMMITTED:
            self._made.append((self._caller(), seq))

    def _check_given(self, seq: int, before: WindowRow | None, row: WindowRow) -> None:
        """A window is taken from someone only after Airflow said that this one is over, and only as long as it owns its offsets."""
        if before is not None and before.holds == row.holds:
            return
        since = self._given.get(seq, 0)
        self._given[seq] = self._step
        if before is None:
            return
        self._require(row.state.owns, f"window {seq} was given to {row.holder}, and is {row.state}")
        old, new = before.holder, row.holder
        if old == new:
            return
        self._given_to_another[seq] = self._step
        is_planner = Scope.RUN in (old.scope, new.scope)
        is_within_run = is_planner and old.is_same_run(new)
        was_asked = self._said_over.get((self._caller(), old), 0) > since
        self._require(
            is_within_run or was_asked, f"window {seq} was taken from {old} by {new}, and no one said that it is over"
        )

    def _check_attempt(self, number: int, before: AttemptRow | None, row: AttemptRow) -> None:
        if before is None:
            self._begun[number] = self._step
            holder = self._rows.windows[row.seq].holder
            self._require(holder == row.claim, f"{row.claim} began at window {row.seq}, which {holder} has")
            return
        if before.outcome is row.outcome:
            return
        said = f"attempt {number} at window {row.seq} by {row.claim}"
        self._require(before.outcome is Outcome.RUNNING, f"{said} was {before.outcome}, and is {row.outcome}")
        if row.outcome is not Outcome.SUCCEEDED:
            return
        later = [
            other
            for other, one in self._rows.attempts.items()
            if other > number and (one.seq, one.claim) == (row.seq, row.claim) and one.try_number >= row.try_number
        ]
        self._require(not later, f"{said} became a success after {later} began")
        is_taken = self._given_to_another.get(row.seq, 0) > self._begun[number]
        self._require(not is_taken, f"{said} became a success after the window was given to another")

    def _check_commit(self, window_id: str, claim: Claim, attempt: int | None) -> None:
        """Who commits has the window, and rests on the recorded success of an attempt at it, where the task itself ran the job."""
        _, seq = parse_window_id(window_id)
        row = self._rows.windows[seq]
        is_own_work = row.holder.scope is Scope.TASK
        is_mine = row.holder == claim if is_own_work else row.holder.is_same_run(claim)
        self._require(is_mine, f"{claim} committed {window_id}, which {row.holder} has")
        if is_own_work and row.span:
            evidence = self._rows.attempts.get(attempt or 0)
            is_proved = evidence is not None and (evidence.seq, evidence.outcome) == (seq, Outcome.SUCCEEDED)
            self._require(is_proved, f"{claim} committed {window_id} on {evidence}")
            later = [
                number for number, one in self._rows.attempts.items() if one.seq == seq and number > (attempt or 0)
            ]
            self._require(not later, f"{claim} committed {window_id} on {evidence}, after {later} began")

    def _check_finish(self, before: _Rows, seqs: Sequence[int]) -> None:
        was = {seq: before.windows[seq].state for seq in seqs}
        wrong = {seq: str(state) for seq, state in was.items() if state is not State.COMMITTING}
        self._require(not wrong, f"commits were finished that had not begun: {wrong}")
