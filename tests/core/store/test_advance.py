"""From where to where a store is advanced."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.store import advance as publishing
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
    assert steps == [{tp(0): 7, tp(1): 0}, {tp(0): 20, tp(1): 0}, {tp(0): 30, tp(1): 4}]


def test_what_was_lost_between_two_windows_lies_between_their_steps() -> None:
    one = window({tp(0): (0, 10)})
    two = replace(window({tp(0): (15, 20)}, 2), lost=ranges({tp(0): (10, 15)}))
    assert publishing.path([one, two]) == [{tp(0): 0}, {tp(0): 10}, {tp(0): 20}]


def test_a_partition_that_is_not_read_any_more_stays_where_it_is() -> None:
    one = window({tp(0): (10, 20), tp(1): (0, 5)})
    two = window({tp(0): (20, 30)}, 2)
    assert publishing.path([one, two])[-1] == {tp(0): 30, tp(1): 5}


@pytest.mark.parametrize("found", [10, 20, 30])
def test_a_store_may_stand_at_each_step(found: int) -> None:
    assert publishing.standing(publishing.path(windows(C, D)), {tp(0): found}) == {tp(0): found}


def test_each_partition_may_stand_at_another_step() -> None:
    one = window({tp(0): (0, 5), tp(1): (0, 5)})
    two = window({tp(0): (5, 10), tp(1): (5, 10)}, 2)
    found = {tp(0): 10, tp(1): 5}
    assert publishing.standing(publishing.path([one, two]), found) == found


def test_a_store_that_stands_at_no_step_is_compared_with_the_first() -> None:
    assert publishing.standing(publishing.path(windows(C, D)), {tp(0): 15}) == {tp(0): 10}


def test_what_the_group_does_not_have_is_left_out() -> None:
    assert publishing.standing(publishing.path(windows(C, D)), {tp(0): 20, tp(7): 99}) == {tp(0): 20}


def test_a_store_that_holds_nothing_stands_anywhere() -> None:
    assert publishing.standing(publishing.path(windows(C, D)), {}) == {tp(0): 10}
    publishing.check_standing("memory://", "lake", {tp(0): 5}, {})
    publishing.check_first("memory://", "lake", {tp(0): 5}, {})


def test_what_a_store_holds_of_partitions_that_the_group_never_had_is_foreign() -> None:
    start, known = {tp(0): 5, tp(1): 0, tp(2): 0}, {tp(0): 5}
    assert publishing.foreign_offsets(start, known, {tp(0): 7, tp(1): 40, tp(2): 0, tp(9): 1}) == {tp(1): 40}


def test_partitions_that_nobody_asked_for_are_no_drift() -> None:
    publishing.check_standing("memory://", "lake", {tp(0): 5}, {tp(0): 5, tp(7): 9})


def test_the_first_start_is_where_the_store_stands() -> None:
    publishing.check_first("memory://", "lake", {tp(0): 5, tp(1): 0}, {tp(0): 5})
    with pytest.raises(BadInputError, match=r"orders-0: 4, starting_offsets: 5\. Set starting_offsets='committed'"):
        publishing.check_first("memory://", "lake", {tp(0): 5, tp(1): 0}, {tp(0): 4})
