"""Which window a run gets, and where the watermark is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_kafka_offsets.core.errors import ConfirmationError, IllegalStepError, WindowBusyError
from airflow_kafka_offsets.core.plan.ownership import (
    GroupState,
    How,
    abandonment,
    adopt_or_cut,
    check_gap,
    check_something,
    is_free,
    is_free_for,
    own_windows,
    superseded_of,
    to_abandon,
    to_hold,
    watermark,
)
from airflow_kafka_offsets.core.window import Claim, Lane, Scope, State, WindowRecord
from tests.core.examples import claim, position, ranges, standing, tp, window

HERE = position({tp(): 10})
OPEN = WindowRecord.of(window({tp(): (5, 10)}, 7, State.PLANNED), claim("dead"))


def held(seq: int, state: State = State.PLANNED, by: Claim | None = None) -> WindowRecord:
    """Make a window of five offsets that a dead run left behind."""
    return WindowRecord.of(window({tp(): (5 * seq, 5 * seq + 5)}, seq, state), by or claim("dead"))


@pytest.mark.parametrize("state", [State.PLANNED, State.COMMITTING, State.COMMITTED])
def test_a_run_has_the_windows_that_it_had(state: State) -> None:
    mine = (held(3, state), held(4, state))
    assert own_windows(GroupState(4, HERE, (OPEN,), mine)) == mine


def test_an_abandoned_window_is_forgotten() -> None:
    assert own_windows(GroupState(4, HERE, (OPEN,), (held(3, State.ABANDONED), OPEN))) == (OPEN,)
    assert own_windows(GroupState(4, HERE, (OPEN,), (held(3, State.ABANDONED),))) == ()


def test_a_run_keeps_those_of_its_windows_that_no_reset_superseded() -> None:
    state = GroupState(4, HERE, (OPEN,), (held(2), held(3, State.SUPERSEDED)))
    assert own_windows(state) == (held(2),)
    assert superseded_of(state) == "A reset gave the offsets of lake-000003 of this run to other windows"


def test_a_run_whose_windows_were_all_superseded_is_refused() -> None:
    with pytest.raises(IllegalStepError, match=r"lake-000003 of this run to other windows\. Trigger a new run"):
        own_windows(GroupState(4, HERE, (OPEN,), (held(3, State.SUPERSEDED), held(4, State.ABANDONED))))


def test_a_new_run_gets_the_oldest_window_of_a_dead_run_or_a_new_one() -> None:
    state = GroupState(4, HERE, (OPEN, held(8)))
    assert adopt_or_cut(state, {claim("dead")}, at_most=1, max_open=1) == ((OPEN,), 0)
    assert adopt_or_cut(GroupState(4, HERE), (), at_most=1, max_open=1) == ((), 1)
    assert adopt_or_cut(GroupState(), (), at_most=1, max_open=1) == ((), 1)


def test_what_a_living_run_works_on_is_left_to_it_and_new_windows_come_behind() -> None:
    open_ = (held(6, by=claim("alive")), held(7), held(8, by=claim("alive")))
    state = GroupState(4, HERE, open_)
    assert adopt_or_cut(state, {claim("dead")}, at_most=1, max_open=5) == ((open_[1],), 0)
    assert adopt_or_cut(state, {claim("dead")}, at_most=9, max_open=5) == ((open_[1],), 2)
    assert adopt_or_cut(state, (), at_most=9, max_open=5) == ((), 2)


def test_no_more_windows_are_open_than_the_group_allows() -> None:
    state = GroupState(4, HERE, (OPEN, held(8)))
    for max_open in (1, 2):
        with pytest.raises(WindowBusyError) as raised:
            adopt_or_cut(state, (), at_most=1, max_open=max_open)
        assert (raised.value.window_id, raised.value.others) == (OPEN.window.id, ("lake-000008",))


def test_a_window_is_free_between_the_plan_task_and_the_other_tasks_of_a_run() -> None:
    planner, worker = claim(task="plan", scope=Scope.RUN), claim(task="load", map_index=3)
    for is_known in (True, False):
        assert is_free_for(held(1, by=planner), worker, is_known=is_known) is is_known
        assert is_free_for(held(1, by=worker), planner, is_known=is_known) is is_known
        assert is_free_for(held(1, by=worker), worker, is_known=is_known)
        assert not is_free_for(held(1, by=planner), claim("other", "load"), is_known=is_known)
        assert not is_free_for(held(1, by=claim(task="load")), worker, is_known=is_known)


def test_two_plan_tasks_of_one_run_do_not_get_one_window() -> None:
    one, other = (claim(task=task, scope=Scope.RUN) for task in ("plan_a", "plan_b"))
    assert not is_free_for(held(1, by=one), other, is_known=False)


def test_a_plan_task_leaves_to_the_tasks_of_its_run_what_they_have() -> None:
    planner, worker = claim(task="plan", scope=Scope.RUN), claim(task="load", map_index=3)
    held_windows = [held(2, by=planner), held(1, by=worker), held(3, by=claim("dead"))]
    assert [h.window.seq for h in to_hold(held_windows, planner, How.AGAIN)] == [2, 3]
    assert [h.window.seq for h in to_hold(held_windows, planner, How.GIVEN)] == [1, 2, 3]
    assert [h.window.seq for h in to_hold(held_windows, worker, How.AGAIN)] == [1, 2, 3]


def test_the_watermark_is_where_the_oldest_open_window_starts() -> None:
    newer = WindowRecord.of(window({tp(): (10, 20)}, 8, State.PLANNED), claim("dead"))
    mark = watermark(GroupState(4, position({tp(): 20}), (OPEN, newer)))
    assert mark is not None
    assert mark.offsets == {tp(): 5}
    assert watermark(GroupState(4, HERE)) == HERE
    assert watermark(GroupState()) is None


@pytest.mark.parametrize(
    ("state", "is_rerun", "holder_is_over", "free"),
    [
        (State.PLANNED, False, False, False),
        (State.PLANNED, False, True, True),
        (State.COMMITTED, False, False, True),  # who waited wants the next window
        (State.COMMITTED, True, False, False),  # who waited wants this one
        (State.COMMITTED, True, True, True),
        (State.ABANDONED, False, False, True),  # a person's way out works while the job still runs
        (State.SUPERSEDED, True, False, True),
    ],
)
def test_when_waiting_ends(state: State, is_rerun: bool, holder_is_over: bool, free: bool) -> None:
    assert is_free(standing(state, 7), is_rerun=is_rerun, holder_is_over=holder_is_over) is free


@pytest.mark.parametrize("newest", [7, 5, None])
def test_the_newest_window_gives_its_offsets_back_and_what_was_lost_before_it(newest: int | None) -> None:
    one = replace(window({tp(): (5, 10), tp(1): (3, 7)}, 7, State.PLANNED), lost=ranges({tp(): (2, 5)}))
    found = abandonment(one, position({tp(): 10, tp(1): 7, tp(0, "clicks"): 4}), newest)
    assert found.window.state is State.ABANDONED
    assert found.position == position({tp(): 2, tp(1): 3, tp(0, "clicks"): 4})
    assert (found.skipped, found.facts) == (ranges({}), {"window": one.id})
    check_gap(found, leave_gap=False)


@pytest.mark.parametrize(("newest", "end"), [(8, 20), (7, 20), (8, 10)])
def test_a_window_below_others_leaves_a_gap(newest: int, end: int) -> None:
    one = replace(window({tp(): (5, 10), tp(1): (7, 7)}, 7, State.PLANNED), lost=ranges({tp(): (2, 5)}))
    found = abandonment(one, position({tp(): end, tp(1): 7}), newest)
    assert (found.position, found.skipped) == (None, ranges({tp(): (2, 10)}))
    assert found.facts == {"window": one.id, "skipped": {"orders-0": [2, 10]}}
    with pytest.raises(ConfirmationError, match=r"Only a replay can read orders-0 \[2, 10\).*add --leave-gap"):
        check_gap(found, leave_gap=False)
    check_gap(found, leave_gap=True)


def test_a_backfill_window_leaves_what_was_nobodys() -> None:
    one = replace(window({tp(): (5, 10)}, 3, State.PLANNED), lane=Lane.BACKFILL)
    found = abandonment(one, position({tp(): 50}), 9)
    assert (found.position, found.skipped) == (None, ranges({}))


@pytest.mark.parametrize("state", [State.COMMITTING, State.COMMITTED, State.ABANDONED, State.SUPERSEDED])
def test_only_a_planned_window_can_be_given_up(state: State) -> None:
    with pytest.raises(IllegalStepError, match=r"can't become abandoned|is abandoned already"):
        abandonment(window({tp(): (5, 10)}, 7, state), position({tp(): 10}), 7)


def test_the_newest_open_window_is_given_up_first() -> None:
    assert to_abandon(GroupState(4, HERE, (OPEN, held(8), held(9, State.COMMITTING)))) == held(8)
    assert to_abandon(GroupState(4, HERE, (held(9, State.COMMITTING),))) is None


def test_an_empty_window_is_not_cut_behind_an_open_one() -> None:
    state = GroupState(4, HERE, (OPEN, held(8)))
    with pytest.raises(WindowBusyError, match="lake-000007 is being worked on"):
        check_something(state, (), [])
    check_something(state, (OPEN,), [])
    check_something(state, (), [5])
    check_something(GroupState(4, HERE), (), [])
