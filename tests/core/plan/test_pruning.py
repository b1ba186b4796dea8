"""What stays known of windows that are gone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.errors import PrunedWindowError, UnknownWindowError
from airflow_kafka_offsets.core.plan.pruning import NOTHING_PRUNED, Pruned, absent, without
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
    once = without(windows, NOTHING_PRUNED)
    first, rest = windows[:cut], windows[cut:]
    twice = without(rest, without(first, NOTHING_PRUNED)) if rest else without(first, NOTHING_PRUNED)
    assert once == twice
    owners = [w for w in windows if w.state.owns and w.span]
    assert once.floor(tp(), {"orders": "id-of-orders"}) == max((w.ranges[tp()].end for w in owners), default=0)
    assert once.before == len(windows) + 1


def test_only_a_live_window_that_left_nothing_unread_proves_how_far_a_group_has_come() -> None:
    live, capped, backfill = _windows([1, 1, 1], [State.COMMITTED] * 3)
    capped, backfill = replace(capped, is_capped=True), replace(backfill, lane=Lane.BACKFILL)
    assert without([live, capped, backfill], NOTHING_PRUNED).proof == (1, live.planned_until)
    assert without([capped, backfill], NOTHING_PRUNED).proof is None


def test_a_window_that_is_gone_left_with_the_first_prune_that_went_so_far() -> None:
    pruned = Pruned(9, prunes=((3, NOON), (9, NOON + timedelta(days=1))))
    assert "000002 was pruned from the ledger on 2026-01-31" in str(absent("lake", [2], pruned))
    assert "000003 was pruned from the ledger on 2026-02-01" in str(absent("lake", [3, 12], pruned))
    assert isinstance(absent("lake", [8], pruned), PrunedWindowError)
    for seq in (0, 9):
        error = absent("lake", [seq], pruned)
        assert type(error) is UnknownWindowError
