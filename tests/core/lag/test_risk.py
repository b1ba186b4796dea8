"""What planning does about records that retention may remove before their window has run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.errors import AtRiskError, LogError
from airflow_kafka_offsets.core.group import OnAtRisk
from airflow_kafka_offsets.core.lag.lag import GroupVerdict, PartitionLag
from airflow_kafka_offsets.core.lag.pace import Pace
from airflow_kafka_offsets.core.lag.retention import Retention
from airflow_kafka_offsets.core.lag.risk import (
    Danger,
    dangers,
    endangered,
    needed,
    probes,
    together,
    warn_of_risk,
    warning_of,
)
from airflow_kafka_offsets.core.lag.search import Hit
from airflow_kafka_offsets.core.lag.verdict import danger as verdict_of
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.planning import Plan, cut
from airflow_kafka_offsets.core.ranges import OffsetRange
from tests.core.examples import NOON, group, ids, log, position, ranges, tp, window

NOW = 1_780_000_000_000
DAY = 86_400_000
WEEK = {"orders": Retention(timedelta(days=7))}
HOURLY = Pace(NOON, 3600.0, 900.0)
BACKLOG = {tp(0): (0, 100), tp(1): (50, 90), tp(2): (7, 7)}
THERE = log({tp(0): (0, 100), tp(1): (0, 90), tp(2): (0, 7)})


def plan(bounds: Mapping[TopicPartition, tuple[int, int]] = BACKLOG) -> Plan:
    """Plan all that there is to read."""
    there = ranges(bounds)
    return Plan(there, ids(there), NOON, group().isolation_level)


def danger(end: int = 60, headroom: float = 300.0, start: int = 1) -> Danger:
    """Put the first offsets of a partition in danger."""
    return Danger(OffsetRange(start, end), headroom, 2700.0)


def test_a_partition_is_asked_about_the_headroom_that_a_window_needs() -> None:
    asked = probes(plan().ranges, WEEK, HOURLY, NOW)
    assert list(asked) == [tp(0), tp(1)]  # the third has nothing to read
    # A tenth of the week is more than three times the longest window.
    assert {probe.time_ms for probe in asked.values()} == {NOW - 7 * DAY + 7 * DAY // 10}


def test_without_retention_by_time_nothing_is_asked() -> None:
    assert probes(plan().ranges, {"orders": Retention(None, 5)}, HOURLY, NOW) == {}
    assert probes(plan().ranges, {}, HOURLY, NOW) == {}


paces = st.builds(Pace, st.just(NOON), st.floats(0, 1e7), st.one_of(st.none(), st.floats(0, 1e7)))


@given(paces, st.floats(1, 1e8))
def test_no_pace_puts_records_that_have_just_arrived_in_danger(pace: Pace, seconds: float) -> None:
    how_much = needed(pace, Retention(timedelta(seconds=seconds)))
    assert how_much is not None
    assert how_much <= seconds / 2 + 1e-6


@given(paces, st.floats(1, 1e8), st.floats(0, 1e8))
def test_what_is_at_risk_when_its_run_is_there_is_at_risk_by_the_verdict(
    pace: Pace, seconds: float, headroom: float
) -> None:
    retention = Retention(timedelta(seconds=seconds))
    how_much = needed(pace, retention)
    assert how_much is not None
    if headroom < how_much:
        lag = PartitionLag(None, None, None, retention=retention, headroom_seconds=headroom)
        assert verdict_of(lag, pace) is GroupVerdict.AT_RISK


def test_only_records_before_the_first_one_that_stays_are_in_danger() -> None:
    there, asked = plan().ranges, probes(plan().ranges, WEEK, HOURLY, NOW)
    first, second = asked[tp(0)], asked[tp(1)]
    assert endangered(there, asked, {first: Hit(0, NOW), second: Hit(50, NOW)}) == {}
    assert endangered(there, asked, {first: Hit(30, NOW), second: None}) == ranges({tp(0): (0, 30), tp(1): (50, 90)})
    assert endangered(there, asked, {first: Hit(300, NOW), second: Hit(3, NOW)}) == ranges({tp(0): (0, 100)})


def test_what_expires_first_comes_first() -> None:
    ages = {tp(0): 6.5 * 86400, tp(1): 6.9 * 86400}
    found = dangers(ranges({tp(0): (0, 60), tp(1): (50, 80)}), ages, WEEK, HOURLY)
    assert list(found) == [tp(1), tp(0)]
    assert found[tp(1)].headroom_seconds == pytest.approx(0.1 * 86400)


def test_a_warning_names_partitions_numbers_and_what_to_do() -> None:
    [warned] = warn_of_risk(group(), [plan()], {tp(0): danger()}, None, THERE)
    assert warned.warnings == (
        "retention may remove records of this window before a job has read them: orders-0 offsets [1, 60) in 5 min. To gain "
        "time, raise retention.ms of orders until the window is committed:\n    kafka-configs --bootstrap-server ... --alter --entity-type topics "
        "--entity-name orders --add-config retention.ms=...",
    )


def test_a_cap_that_leaves_records_at_risk_is_a_warning() -> None:
    [warned] = warn_of_risk(group(max_offsets=30), cut(plan(), 1, 30), {tp(0): danger(headroom=9000.0)}, None, THERE)
    text = warned.warnings[-1]
    assert text.startswith(
        "max_offsets=30 leaves out records that retention may remove: orders-0 offsets [1, 60) in 2 h 30 min"
    )
    assert text.endswith("raise it or max_open_windows")


def test_without_danger_a_plan_stays_as_it_is() -> None:
    plans = [plan()]
    assert warn_of_risk(group(), plans, {}, None, THERE) == plans


def test_fail_plans_nothing_and_says_why() -> None:
    strict = group(on_at_risk="fail")
    assert strict.on_at_risk is OnAtRisk.FAIL
    with pytest.raises(AtRiskError) as caught:
        warn_of_risk(strict, [plan()], {tp(0): danger(headroom=0.2)}, position({tp(0): 1}), THERE)
    assert isinstance(caught.value, LogError)
    assert str(caught.value) == (
        "orders-0: retention may remove offsets [1, 60) at any moment, and a window needs 45 min. "
        "To read what can still be read: KafkaGroup(on_at_risk='warn'). "
        "To gain time, raise retention.ms of orders until the window is committed:\n    kafka-configs --bootstrap-server ... --alter "
        "--entity-type topics --entity-name orders --add-config retention.ms=..."
    )
    assert list(caught.value.partitions) == [tp(0)]


def test_what_is_read_from_the_beginning_of_the_log_is_warned_about_but_never_refused() -> None:
    there, strict = log({tp(0): (7, 100), tp(1): (3, 90)}), group(on_at_risk="fail")
    at, at_risk = position({tp(0): 7, tp(1): 50}), {tp(0): danger(start=7), tp(1): danger(start=50)}
    assert len(warn_of_risk(strict, [plan()], at_risk, None, there)[0].warnings) == 1
    assert len(warn_of_risk(strict, [plan()], {tp(0): danger(start=7)}, at, there)[0].warnings) == 1
    with pytest.raises(AtRiskError) as caught:
        warn_of_risk(strict, [plan()], at_risk, at, there)
    assert list(caught.value.partitions) == [tp(1)]


def test_windows_that_run_as_they_are_are_warned_about_by_name() -> None:
    assert warning_of(["lake-000001", "lake-000002"], {tp(0): danger()}).startswith(
        "retention may remove records of lake-000001, lake-000002 before a job has read them: orders-0 offsets [1, 60) in 5 min. To"
    )


def test_several_windows_are_looked_at_from_the_first_to_the_last_of_their_offsets() -> None:
    windows = [window({tp(0): (5, 9), tp(1): (3, 3)}), window({tp(0): (20, 30), tp(1): (3, 4)}, seq=2)]
    assert together(windows) == ranges({tp(0): (5, 30), tp(1): (3, 4)})
    assert together([window({tp(1): (3, 3)})]) == {}
