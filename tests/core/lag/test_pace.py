"""The pace of a group, from its last commits."""

from __future__ import annotations

from datetime import timedelta

from airflow_kafka_offsets.core.group import Until
from airflow_kafka_offsets.core.lag.pace import Commit, Pace, commits_wanted, pace_of
from airflow_kafka_offsets.core.plan.ownership import GroupState
from airflow_kafka_offsets.core.window import State, WindowRecord
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
    state = GroupState(version=1, open=(WindowRecord.of(window({tp(): (0, 5)}, seq=2, state=State.PLANNED), claim()),))
    assert pace_of(group(), state, commits(0, 1, 2)).caught_up_at == NOON


def burst(hour: float, first: int, number: int = 8, minutes: float = 6) -> list[Commit]:
    """Let one run plan windows, which are committed one after the other; newest first."""
    planned = NOON + hour * HOUR
    made = [
        Commit(seq, planned, planned + (1 + place) * timedelta(minutes=minutes), True, minutes * 60)
        for place, seq in enumerate(range(first, first + number))
    ]
    return made[::-1]


def test_windows_that_one_run_planned_count_once() -> None:
    pace = pace_of(group(max_open_windows=8), GroupState(), burst(2, 17) + burst(1, 9) + burst(0, 1))
    assert pace.interval_seconds == 3600
    assert pace.last_commit_at == NOON + 2 * HOUR + timedelta(minutes=48)


def test_where_several_windows_are_open_a_job_takes_from_planning_to_commit() -> None:
    """A window that is one of several may wait until others are done; the eighth of these is committed after 48 minutes."""
    assert pace_of(group(max_open_windows=8), GroupState(), burst(0, 1)).longest_seconds == 42 * 60
    assert pace_of(group(), GroupState(), burst(0, 1)).longest_seconds == 6 * 60


def test_as_many_commits_are_asked_for_as_tell_the_pace() -> None:
    wanted = {most: commits_wanted(group(max_open_windows=most)) for most in (1, 8, 50, 1000)}
    assert wanted == {1: 11, 8: 88, 50: 200, 1000: 3000}


def test_one_slow_job_of_several_does_not_count() -> None:
    quick, slow = commits(1, 2, 3, 4), commits(0, minutes=480)
    assert pace_of(group(), GroupState(), quick + slow).longest_seconds == 600
    assert pace_of(group(), GroupState(), quick[1:] + slow).longest_seconds == 480 * 60
    assert pace_of(group(), GroupState(), quick + slow + slow).longest_seconds == 480 * 60
