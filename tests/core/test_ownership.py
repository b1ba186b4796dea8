"""Which window a run gets, and where the watermark is."""

from __future__ import annotations

import pytest

from airflow_kafka_offsets.core.errors import IllegalStepError
from airflow_kafka_offsets.core.ownership import Adopt, Again, Cut, GroupState, choose, is_free, may_take, watermark
from airflow_kafka_offsets.core.window import Held, State
from tests.core.examples import claim, position, tp, window

HERE = position({tp(): 10})
OPEN = Held(window({tp(): (5, 10)}, 7, State.PLANNED), claim("dead"))


@pytest.mark.parametrize("state", [State.PLANNED, State.COMMITTING, State.COMMITTED])
def test_a_run_gets_the_window_it_had_before_anything_else(state: State) -> None:
    mine = Held(window({tp(): (0, 5)}, 3, state), claim())
    assert choose(GroupState(4, HERE, (OPEN,), mine)) == Again(mine)


def test_an_abandoned_window_is_forgotten() -> None:
    mine = Held(window({tp(): (0, 5)}, 3, State.ABANDONED), claim())
    assert choose(GroupState(4, HERE, (OPEN,), mine)) == Adopt(OPEN)
    assert choose(GroupState(4, HERE, (), mine)) == Cut(HERE)


def test_a_superseded_window_stops_its_run() -> None:
    mine = Held(window({tp(): (0, 5)}, 3, State.SUPERSEDED), claim())
    with pytest.raises(IllegalStepError, match="lake-000003 of this run was superseded"):
        choose(GroupState(4, HERE, (OPEN,), mine))


def test_a_new_run_gets_the_oldest_open_window_or_a_new_one() -> None:
    newer = Held(window({tp(): (10, 20)}, 8, State.PLANNED), claim("dead"))
    assert choose(GroupState(4, HERE, (OPEN, newer))) == Adopt(OPEN)
    assert choose(GroupState(4, HERE)) == Cut(HERE)
    assert choose(GroupState()) == Cut(None)


def test_a_window_may_be_taken_by_its_holder_or_after_it() -> None:
    assert may_take(OPEN, claim("dead"), holder_is_over=False)
    assert may_take(OPEN, claim("new"), holder_is_over=True)
    assert not may_take(OPEN, claim("new"), holder_is_over=False)


def test_the_watermark_is_where_the_oldest_open_window_starts() -> None:
    newer = Held(window({tp(): (10, 20)}, 8, State.PLANNED), claim("dead"))
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
    held = Held(window({tp(): (5, 10)}, 7, state), claim("other"))
    assert is_free(held, is_rerun=is_rerun, holder_is_over=holder_is_over) is free
