"""What planning says about records that retention may remove before their window has run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.errors import AtRiskError, LogError
from airflow_kafka_offsets.core.group import OnAtRisk
from airflow_kafka_offsets.core.lag.pace import Pace
from airflow_kafka_offsets.core.lag.retention import Retention
from airflow_kafka_offsets.core.lag.risk import (
    Danger,
    Question,
    dangers,
    endangered,
    questions,
    read_from_the_beginning,
    run_seconds,
    together,
    told,
    warning_of,
    with_urgent,
)
from airflow_kafka_offsets.core.lag.search import Hit, Probe
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.planning import Plan, cut
from airflow_kafka_offsets.core.ranges import OffsetRanges
from tests.core.examples import NOON, group, ids, log, position, ranges, tp, window

NOW = 1_780_000_000_000
DAY = 86_400_000
WEEK = {"orders": Retention(timedelta(days=7))}
HOURLY = Pace(NOON, 3600.0, 900.0)
BACKLOG = {tp(0): (0, 100), tp(1): (50, 90), tp(2): (7, 7)}


def plan(bounds: Mapping[TopicPartition, tuple[int, int]] = BACKLOG) -> Plan:
    """Plan all that there is to read."""
    there = ranges(bounds)
    return Plan(there, ids(there), NOON, group().isolation_level)


def danger(until: int = 60, headroom: float = 300.0, run: float = 2700.0, start: int = 0) -> Danger:
    """Put the first offsets of a partition in danger; half of them can't wait for the next window."""
    return Danger(start, until, headroom, run, (start + until) // 2)


def test_a_partition_is_asked_about_the_headroom_that_it_needs() -> None:
    asked = questions(plan().ranges, WEEK, HOURLY, NOW)
    assert list(asked) == [tp(0), tp(1)]  # the third has nothing to read
    # A tenth of the week is more than an hour and three times the longest window.
    assert {question.probe.time_ms for question in asked.values()} == {NOW - 7 * DAY + 7 * DAY // 10}
    # The next window is done in an hour and three times the longest window.
    assert {question.wait_probe.time_ms for question in asked.values()} == {NOW - 7 * DAY + 6_300_000}
    assert {question.run_seconds for question in asked.values()} == {2700}


def test_without_retention_by_time_nothing_is_asked() -> None:
    assert questions(plan().ranges, {"orders": Retention(None, 5)}, HOURLY, NOW) == {}
    assert questions(plan().ranges, {}, HOURLY, NOW) == {}


def test_how_long_a_window_may_take() -> None:
    assert run_seconds(HOURLY, 7 * 86400) == 2700
    assert run_seconds(Pace(NOON, 60.0, 5.0), 7 * 86400) == 600
    assert run_seconds(Pace(), 7 * 86400) == 60480
    assert run_seconds(HOURLY, 3600) == 1800
    assert run_seconds(Pace(NOON, 60.0, 5.0), 600) == 300


paces = st.builds(Pace, st.just(NOON), st.floats(0, 1e7), st.one_of(st.none(), st.floats(0, 1e7)))


@given(paces, st.floats(1, 1e8))
def test_no_pace_puts_records_that_have_just_arrived_in_danger(pace: Pace, retention: float) -> None:
    assert run_seconds(pace, retention) <= retention / 2


def test_only_records_before_the_first_one_that_stays_are_in_danger() -> None:
    asked = questions(plan().ranges, WEEK, HOURLY, NOW)
    probe = {p: question.probe for p, question in asked.items()}
    assert endangered(plan().ranges, probe, {probe[tp(0)]: Hit(0, NOW), probe[tp(1)]: Hit(50, NOW)}) == {}
    assert endangered(plan().ranges, probe, {probe[tp(0)]: Hit(30, NOW), probe[tp(1)]: None}) == {tp(0): 30, tp(1): 90}
    assert endangered(plan().ranges, probe, {probe[tp(0)]: Hit(300, NOW), probe[tp(1)]: Hit(3, NOW)}) == {tp(0): 100}


def test_what_expires_first_comes_first_and_what_can_not_wait_is_read_first() -> None:
    asked = {p: Question(Probe(p, 1), Probe(p, 2), 7 * 86400.0, 600.0) for p in (tp(0), tp(1))}
    ages = {tp(0): 6.5 * 86400, tp(1): 6.9 * 86400}
    found = dangers(plan().ranges, asked, {tp(0): 60, tp(1): 80}, {tp(1): 75}, ages)
    assert list(found) == [tp(1), tp(0)]
    assert found[tp(1)].headroom_seconds == pytest.approx(0.1 * 86400)
    assert (found[tp(0)].can_wait_from, found[tp(1)].can_wait_from) == (0, 75)
    whole = with_urgent(plan(), found)
    assert whole.urgent == {tp(1): 75}
    first, second, third = cut(whole, 3, 50)
    # Partition 1 has 25 that can't wait. What is left of the cap raises the other one, and then both.
    assert {p: r.span for p, r in first.ranges.items()} == {tp(0): 25, tp(1): 25, tp(2): 0}
    assert {p: r.span for p, r in second.ranges.items()} == {tp(0): 35, tp(1): 15, tp(2): 0}
    assert third.ranges.ends == {tp(0): 100, tp(1): 90, tp(2): 7}


def test_without_danger_a_plan_stays_as_it_is() -> None:
    whole = plan()
    assert with_urgent(whole, {}) is whole
    assert with_urgent(whole, {tp(0): replace(danger(), can_wait_from=0)}) is whole


def test_a_warning_names_partitions_numbers_and_what_to_do() -> None:
    [warned] = told(group(), [plan()], {tp(0): danger(), tp(1): danger(headroom=9000.0)})
    assert warned.warnings == (
        "retention may remove records of this window before its job has read them: orders-0 offsets [0, 60) in 5 min. To gain "
        "time, raise retention.ms of orders until the window is committed: kafka-configs --bootstrap-server ... --alter --entity-type topics "
        "--entity-name orders --add-config retention.ms=...",
    )


def test_what_a_cap_leaves_in_danger_is_said() -> None:
    whole = with_urgent(plan(), {tp(0): danger(headroom=9000.0)})
    [warned] = told(group(max_offsets=30), cut(whole, 1, 30), {tp(0): danger(headroom=9000.0)})
    [text] = warned.warnings
    assert text.startswith(
        "with max_offsets=30, 1 window can't hold all that retention may remove soon: orders-0 offsets [0, 60) in 2 h 30 min"
    )
    assert text.endswith("raise max_offsets, or let several windows run at once with max_open_windows")


def test_danger_that_is_far_enough_away_is_no_warning() -> None:
    plans = [plan()]
    assert told(group(), plans, {tp(0): danger(headroom=9000.0)}) == plans


def test_fail_plans_nothing_and_says_why() -> None:
    strict = group(on_at_risk="fail")
    assert strict.on_at_risk is OnAtRisk.FAIL
    with pytest.raises(AtRiskError) as caught:
        told(strict, [plan()], {tp(0): danger(headroom=0.2)})
    assert isinstance(caught.value, LogError)
    assert str(caught.value) == (
        "orders-0: retention may remove offsets [0, 60) at any moment, and a window of this group may take 45 min until it is read. "
        "Nothing was planned. To gain time, raise retention.ms of orders until the window is committed: kafka-configs --bootstrap-server ... --alter "
        "--entity-type topics --entity-name orders --add-config retention.ms=... To read what can still be read: "
        "KafkaGroup(on_at_risk='warn') for group lake"
    )
    assert list(caught.value.partitions) == [tp(0)]


def test_what_is_read_from_the_beginning_of_the_log_is_warned_about_but_never_refused() -> None:
    found = {tp(0): danger(start=7), tp(1): danger(start=50)}
    there = log({tp(0): (7, 100), tp(1): (3, 90)})
    assert read_from_the_beginning(found, None, there) == {tp(0), tp(1)}
    assert read_from_the_beginning(found, position({tp(0): 7, tp(1): 50}), there) == {tp(0)}
    [warned] = told(group(on_at_risk="fail"), [plan()], {tp(0): danger(start=7)}, {tp(0)})
    assert len(warned.warnings) == 1
    with pytest.raises(AtRiskError) as caught:
        told(group(on_at_risk="fail"), [plan()], found, {tp(0)})
    assert list(caught.value.partitions) == [tp(1)]


def test_windows_that_run_as_they_are_are_warned_about_by_name() -> None:
    assert warning_of(["lake-000001"], {tp(0): danger(headroom=9000.0)}) is None
    text = warning_of(["lake-000001", "lake-000002"], {tp(0): danger(), tp(1): danger(headroom=9000.0)})
    assert text is not None
    assert text.startswith(
        "retention may remove records of lake-000001, lake-000002 before a job has read them: orders-0 offsets [0, 60) in 5 min. To"
    )


def test_several_windows_are_looked_at_from_the_first_to_the_last_of_their_offsets() -> None:
    windows = [window({tp(0): (5, 9), tp(1): (3, 3)}), window({tp(0): (20, 30), tp(1): (3, 4)}, seq=2)]
    assert together(windows) == ranges({tp(0): (5, 30), tp(1): (3, 4)})
    assert together([window({tp(1): (3, 3)})]) == {}


HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Topic:
    """A topic that is read once an hour.

    Attributes:
        rates: records an hour, by partition.
        behind: how far behind the group is in each partition at first, in hours.
        kept: how long records stay, in hours.
    """

    rates: tuple[int, ...]
    behind: tuple[int, ...]
    kept: int

    def fate(self, max_offsets: int, *, is_guarded: bool, hours: int = 30) -> tuple[dict[TopicPartition, int], int]:
        """Return how many offsets of each partition retention removes before they are read, and how many are read in all."""
        starts = {tp(i): rate * (self.kept - self.behind[i]) for i, rate in enumerate(self.rates)}
        lost, read = dict.fromkeys(starts, 0), 0
        for now_ms in range(self.kept * HOUR_MS, (self.kept + hours) * HOUR_MS, HOUR_MS):
            for p, start in starts.items():
                beginning = self._first(p, now_ms - self.kept * HOUR_MS)
                lost[p] += max(0, beginning - start)
                starts[p] = max(beginning, start)
            bounds = {p: (start, self._first(p, now_ms)) for p, start in starts.items()}
            whole = plan(bounds)
            [first] = cut(with_urgent(whole, self._look(whole.ranges, now_ms)) if is_guarded else whole, 1, max_offsets)
            starts, read = first.ranges.ends, read + first.span
        return lost, read

    def _first(self, p: TopicPartition, time_ms: int) -> int:
        """Return the first offset whose record has this timestamp or a later one."""
        return -(-self.rates[p.partition] * max(0, time_ms) // HOUR_MS)

    def _look(self, there: OffsetRanges, now_ms: int) -> dict[TopicPartition, Danger]:
        retention = {"orders": Retention(timedelta(hours=self.kept))}
        asked = questions(there, retention, Pace(NOON, 3600.0, 60.0), now_ms)
        probes, waits = ({p: getattr(one, name) for p, one in asked.items()} for name in ("probe", "wait_probe"))
        hits = {probe: Hit(self._first(*probe), probe.time_ms) for probe in (*probes.values(), *waits.values())}
        ages = {p: (now_ms - there[p].start * HOUR_MS / self.rates[p.partition]) / 1000 for p in asked}
        safe_from = endangered(there, probes, hits)
        return dangers(there, asked, safe_from, endangered(there, waits, hits), {p: ages[p] for p in safe_from})


def test_of_partitions_that_are_equally_late_none_is_lost_for_the_others() -> None:
    topic = Topic((1000,) * 4, (167,) * 4, 168)
    for is_guarded in (False, True):
        lost, _ = topic.fate(8000, is_guarded=is_guarded)
        assert set(lost.values()) == {0}


@given(st.integers(1, 6), st.integers(1, 60), st.integers(1, 48), st.integers(0, 48), st.integers(0, 400))
def test_of_equal_partitions_nothing_is_lost_that_equal_shares_save(
    number: int, rate: int, kept: int, behind: int, more: int
) -> None:
    topic = Topic((rate,) * number, (min(behind, kept),) * number, kept)
    shared, guarded = (topic.fate(number + more, is_guarded=is_guarded) for is_guarded in (False, True))
    assert guarded == shared


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 48)), min_size=1, max_size=5),
    st.integers(1, 48),
    st.integers(0, 300),
)
def test_no_fewer_are_read_in_all_than_with_equal_shares(
    partitions: list[tuple[int, int]], kept: int, more: int
) -> None:
    topic = Topic(tuple(rate for rate, _ in partitions), tuple(min(behind, kept) for _, behind in partitions), kept)
    (_, shared), (_, guarded) = (
        topic.fate(len(partitions) + more, is_guarded=is_guarded) for is_guarded in (False, True)
    )
    assert guarded >= shared


def test_what_can_not_wait_is_saved_where_equal_shares_lose_it() -> None:
    topic = Topic((300, 300, 300), (24, 2, 2), 24)
    lost, _ = topic.fate(800, is_guarded=False)
    assert lost[tp(0)] > 0
    lost, _ = topic.fate(800, is_guarded=True)
    assert set(lost.values()) == {0}
