"""What stays known of windows that are gone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.errors import PrunedWindowError, UnknownWindowError
from airflow_kafka_offsets.core.plan.pruning import Pruned, absent, without
from airflow_kafka_offsets.core.window import Lane, State, Window
from tests.core.examples import NOON, tp, window

_SPANS = st.lists(st.integers(0, 9), min_size=1, max_size=12)
_STATES = st.sampled_from([State.COMMITTED, State.COMMITTED, State.SUPERSEDED, State.ABANDONED])


def _windows(spans: list[int], states: list[State]) -> list[Window]:
    at, made = 0, []
    for seq, (span, state) in enumerate(zip(spans, states, strict=False), start=1):
        one = window({tp(): (at, at + span)}, seq, state)
        made.append(replace(one, planned_until=NOON + timedelta(hours=seq)))
        at += span
    return made


@given(_SPANS, st.lists(_STATES, min_size=12, max_size=12), st.integers(1, 11))
def test_two_parts_leave_the_same_as_one(spans: list[int], states: list[State], cut: int) -> None:
    windows = _windows(spans, states)
    once = without(windows, Pruned("lake"))
    first, rest = windows[:cut], windows[cut:]
    twice = without(rest, without(first, Pruned("lake"))) if rest else without(first, Pruned("lake"))
    assert once == twice
    owners = [w for w in windows if w.state.owns and w.span]
    assert once.floors_of({"orders": "id-of-orders"}).get(tp(), 0) == max(
        (w.ranges[tp()].end for w in owners), default=0
    )
    assert once.first == len(windows) + 1


def test_only_a_live_window_that_left_nothing_unread_proves_how_far_a_group_has_come() -> None:
    live, capped, backfill = _windows([1, 1, 1], [State.COMMITTED] * 3)
    capped, backfill = replace(capped, is_capped=True), replace(backfill, lane=Lane.BACKFILL)
    assert without([live, capped, backfill], Pruned("lake")).proof == (1, live.planned_until)
    assert without([capped, backfill], Pruned("lake")).proof is None


def test_a_window_that_is_gone_is_told_from_one_that_never_was() -> None:
    assert "Window lake-000003 was pruned from the ledger: " in str(absent("lake", [3, 12], 9))
    assert "Windows lake-000002; lake-000003 were pruned" in str(absent("lake", [3, 2], 9)).replace(", ", "; ")
    assert isinstance(absent("lake", [8], 9), PrunedWindowError)
    for seq in (0, 9):
        assert type(absent("lake", [seq], 9)) is UnknownWindowError
