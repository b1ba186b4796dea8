"""A window's life, its claims, and who may commit it."""

from __future__ import annotations

from itertools import product

import pytest

from airflow_kafka_offsets.core.errors import IllegalStepError, NoEvidenceError, WindowBusyError
from airflow_kafka_offsets.core.window import Outcome, Scope, State, WindowRecord, check_commit
from tests.core.examples import claim, tp, window

# The whole life of a window, written down a second time.
LEGAL = {
    ("planned", "committing"),
    ("planned", "abandoned"),
    ("committing", "committed"),
    ("committed", "superseded"),
}


@pytest.mark.parametrize(("before", "after"), list(product(State, State)))
def test_only_the_steps_of_its_life_are_possible(before: State, after: State) -> None:
    one = window({tp(): (0, 5)}, state=before)
    if (before, after) in LEGAL:
        assert one.to(after).state is after
    else:
        why = f"is {before} already" if after is before else f"is {before} and can't become {after}"
        with pytest.raises(IllegalStepError, match=f"Window lake-000001 {why}"):
            one.to(after)
    assert one.state is before


def test_a_step_changes_nothing_but_the_state() -> None:
    one = window({tp(): (0, 5)}, state=State.PLANNED)
    done = one.to(State.COMMITTING, State.COMMITTED)
    assert (done.id, done.ranges, done.planned_until, done.topic_ids) == (
        one.id,
        one.ranges,
        one.planned_until,
        one.topic_ids,
    )


def test_what_owns_its_offsets() -> None:
    assert {state for state in State if state.owns} == {State.PLANNED, State.COMMITTING, State.COMMITTED}
    assert {state for state in State if state.is_open} == {State.PLANNED, State.COMMITTING}


def test_a_claim_is_the_task_whatever_its_operator() -> None:
    assert claim(scope=Scope.RUN) == claim(scope=Scope.TASK)
    assert claim(map_index=1) != claim(map_index=2)
    assert str(claim()) == "dag/run-1/load"
    assert str(claim(map_index=3)) == "dag/run-1/load[3]"
    assert claim().is_same_run(claim(task="other"))
    assert not claim().is_same_run(claim("run-2"))


HELD_BY_TASK = claim(task="load", scope=Scope.TASK)
HELD_BY_RUN = claim(task="plan", scope=Scope.RUN)
FULL, EMPTY = {tp(): (0, 5)}, {tp(): (5, 5)}


@pytest.mark.parametrize(
    ("state", "holder", "who", "span", "outcome", "answer"),
    [
        # The task that holds the window runs its job itself, and has its success on record.
        (State.PLANNED, HELD_BY_TASK, HELD_BY_TASK, FULL, Outcome.SUCCEEDED, True),
        (State.COMMITTING, HELD_BY_TASK, HELD_BY_TASK, FULL, Outcome.SUCCEEDED, True),
        (State.COMMITTED, HELD_BY_TASK, HELD_BY_TASK, FULL, Outcome.SUCCEEDED, False),
        (State.PLANNED, HELD_BY_TASK, HELD_BY_TASK, FULL, None, NoEvidenceError),
        (State.PLANNED, HELD_BY_TASK, HELD_BY_TASK, FULL, Outcome.RUNNING, NoEvidenceError),
        (State.PLANNED, HELD_BY_TASK, HELD_BY_TASK, FULL, Outcome.FAILED, NoEvidenceError),
        (State.PLANNED, HELD_BY_TASK, HELD_BY_TASK, FULL, Outcome.KILLED, NoEvidenceError),
        (State.PLANNED, HELD_BY_TASK, HELD_BY_TASK, FULL, Outcome.LOST, NoEvidenceError),
        (State.COMMITTED, HELD_BY_TASK, HELD_BY_TASK, FULL, None, NoEvidenceError),
        # Nothing was to be read, and so nothing ran.
        (State.PLANNED, HELD_BY_TASK, HELD_BY_TASK, EMPTY, None, True),
        (State.COMMITTED, HELD_BY_TASK, HELD_BY_TASK, EMPTY, None, False),
        # The run holds it, and any of its tasks commits: a green task is all the evidence there is.
        (State.PLANNED, HELD_BY_RUN, claim(task="commit"), FULL, None, True),
        (State.COMMITTED, HELD_BY_RUN, claim(task="commit"), FULL, None, False),
        # Someone else works on it.
        (State.PLANNED, HELD_BY_TASK, claim("run-2"), FULL, Outcome.SUCCEEDED, WindowBusyError),
        (State.PLANNED, HELD_BY_RUN, claim("run-2", "commit"), FULL, None, WindowBusyError),
        (State.COMMITTED, HELD_BY_TASK, claim("run-2"), FULL, Outcome.SUCCEEDED, WindowBusyError),
        # Another task of the same run took it over and writes under its id now.
        (State.PLANNED, HELD_BY_TASK, claim(task="load_2"), FULL, Outcome.SUCCEEDED, WindowBusyError),
        (State.PLANNED, HELD_BY_TASK, claim(map_index=1), FULL, Outcome.SUCCEEDED, WindowBusyError),
        # It lost its offsets in the meantime.
        (State.ABANDONED, HELD_BY_TASK, HELD_BY_TASK, FULL, Outcome.SUCCEEDED, IllegalStepError),
        (State.SUPERSEDED, HELD_BY_TASK, HELD_BY_TASK, FULL, Outcome.SUCCEEDED, IllegalStepError),
        (State.ABANDONED, HELD_BY_RUN, claim(task="commit"), FULL, None, IllegalStepError),
    ],
)
def test_who_may_commit_and_on_what_evidence(state, holder, who, span, outcome, answer) -> None:  # type: ignore[no-untyped-def]
    one = window(span, state=state)
    standing = WindowRecord.of(one, holder)
    if isinstance(answer, bool):
        assert check_commit(standing, who, outcome) is answer
    else:
        with pytest.raises(answer, match="lake-000001"):
            check_commit(standing, who, outcome)
