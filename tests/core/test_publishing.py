"""From where to where a store is advanced."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_kafka_offsets.core import publishing
from airflow_kafka_offsets.core.errors import BadInputError, StoreDriftError
from airflow_kafka_offsets.core.window import State, Window
from tests.core.examples import ranges, tp, window


def windows(*states: State) -> list[Window]:
    """Return windows of ten offsets each, in these states."""
    return [window({tp(0): (10 * seq, 10 * seq + 10)}, seq, state) for seq, state in enumerate(states, 1)]


P, C, D = State.PLANNED, State.COMMITTING, State.COMMITTED


@pytest.mark.parametrize(
    ("states", "number"),
    [((), 0), ((P,), 0), ((C,), 1), ((P, C, D), 0), ((C, P, C), 1), ((C, D, C, P), 3), ((C, D, D), 3)],
)
def test_the_watermark_passes_all_up_to_the_first_that_is_only_planned(states: tuple[State, ...], number: int) -> None:
    live = windows(*states)
    assert publishing.done_in_a_row(live) == live[:number]


def test_the_path_has_a_step_before_the_first_and_one_behind_each() -> None:
    assert publishing.path(windows(C, D)) == [{tp(0): 10}, {tp(0): 20}, {tp(0): 30}]


def test_what_was_lost_lies_on_the_path_and_a_new_partition_joins_it() -> None:
    lost = ranges({tp(0): (7, 10)})
    one, two = windows(C, D)
    grown = replace(two, ranges=ranges({tp(0): (20, 30), tp(1): (0, 4)}))
    steps = publishing.path([replace(one, lost=lost), grown])
    assert steps == [{tp(0): 7}, {tp(0): 20}, {tp(0): 30, tp(1): 4}]


def test_a_partition_that_is_not_read_any_more_stays_where_it_is() -> None:
    one = window({tp(0): (10, 20), tp(1): (0, 5)})
    two = window({tp(0): (20, 30)}, 2)
    assert publishing.path([one, two])[-1] == {tp(0): 30, tp(1): 5}


@pytest.mark.parametrize("found", [10, 20, 30])
def test_a_store_may_stand_at_each_step(found: int) -> None:
    steps = publishing.path(windows(C, D))
    assert publishing.standing("memory://", "lake", steps, {tp(0): found}) == {tp(0): found}


def test_a_store_that_stands_at_no_step_has_drifted() -> None:
    steps = publishing.path(windows(C, D))
    with pytest.raises(StoreDriftError, match=r"orders-0: 15 \(expected 10, to become 30\)"):
        publishing.standing("memory://", "lake", steps, {tp(0): 15})


def test_a_store_that_holds_nothing_stands_anywhere() -> None:
    steps = publishing.path(windows(C, D))
    publishing.standing("memory://", "lake", steps, {})
    publishing.check_standing("memory://", "lake", {tp(0): 5}, {})
    publishing.check_first("memory://", "lake", {tp(0): 5}, {})


def test_partitions_that_nobody_asked_for_are_no_drift() -> None:
    publishing.check_standing("memory://", "lake", {tp(0): 5}, {tp(0): 5, tp(7): 9})


def test_the_first_start_is_where_the_store_stands() -> None:
    publishing.check_first("memory://", "lake", {tp(0): 5, tp(1): 0}, {tp(0): 5})
    with pytest.raises(BadInputError, match=r"orders-0: 4, starting_offsets: 5\. To go on"):
        publishing.check_first("memory://", "lake", {tp(0): 5, tp(1): 0}, {tp(0): 4})
