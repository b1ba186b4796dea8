"""The pace of a group, from its last commits."""

from __future__ import annotations

from datetime import timedelta

from airflow_kafka_offsets.core.group import Until
from airflow_kafka_offsets.core.lag.pace import Commit, Pace, pace_of
from airflow_kafka_offsets.core.plan.ownership import GroupState
from airflow_kafka_offsets.core.window import Held, State
from tests.core.examples import NOON, claim, group, tp, window

HOUR = timedelta(hours=1)


def commits(*hours: float, minutes: float = 10, is_capped: bool = False) -> list[Commit]:
    """Let windows be planned at these hours from noon on, and committed some minutes later; newest first."""
    made = [
        Commit(seq, NOON + h * HOUR, NOON + h * HOUR + timedelta(minutes=minutes), is_capped, minutes * 60)
        for seq, h in enumerate(hours, start=1)
    ]
    return made[::-1]


def test_one_commit_an_hour_is_an_interval_of_an_hour_whatever_one_night_was() -> None:
    pace = pace_of(group(), GroupState(), commits(0, 1, 2, 10, 11, 12))
    assert (pace.interval_seconds, pace.longest_seconds) == (3600, 600)
    assert pace.last_commit_at == NOON + 12 * HOUR + timedelta(minutes=10)
    assert pace.caught_up_at == NOON + 12 * HOUR


def test_of_one_commit_no_interval_is_known_and_of_none_nothing() -> None:
    assert pace_of(group(), GroupState(), commits(0)).interval_seconds is None
    assert pace_of(group(), GroupState(), []) == Pace()


def test_a_capped_window_left_something_unread() -> None:
    assert pace_of(group(), GroupState(), commits(0, 1, is_capped=True)).caught_up_at is None


def test_a_window_that_ends_by_time_does_not_tell_what_had_arrived() -> None:
    by_time = group(until=Until.INTERVAL_END)
    assert pace_of(by_time, GroupState(), commits(0, 1)).caught_up_at is None


def test_only_windows_before_the_oldest_open_one_are_below_the_watermark() -> None:
    state = GroupState(version=1, open=(Held(window({tp(): (0, 5)}, seq=2, state=State.PLANNED), claim()),))
    assert pace_of(group(), state, commits(0, 1, 2)).caught_up_at == NOON
