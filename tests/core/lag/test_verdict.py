"""The verdict on a group: examples, and what holds for any numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.history import Rerun
from airflow_kafka_offsets.core.lag.lag import GroupLag, GroupVerdict, PartitionLag
from airflow_kafka_offsets.core.lag.pace import Pace
from airflow_kafka_offsets.core.lag.retention import Retention
from airflow_kafka_offsets.core.lag.verdict import GONE, danger, judged, urgency, usual_wait
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.planning import Verdict
from airflow_kafka_offsets.core.window import Outcome
from tests.core.examples import NOON, tp

HOUR, DAY = 3600.0, 86_400.0
WEEK = Retention(timedelta(days=7))
WORST = {verdict: place for place, verdict in enumerate(GroupVerdict)}
HOURLY = Pace(NOON - timedelta(minutes=30), HOUR, 600.0)


def partition(lag: int, lag_seconds: float = 0.0, headroom: float | None = None, **more: object) -> PartitionLag:
    """Let a partition have a lag."""
    values = {"lag": lag, "lag_seconds": lag_seconds, "headroom_seconds": headroom, "retention": WEEK, **more}
    return replace(PartitionLag(100, 0, 100 + lag, Verdict.CONTINUE), **values)  # type: ignore[arg-type]


def look(*partitions: PartitionLag, pace: Pace = HOURLY) -> GroupLag:
    """Judge a group of these partitions."""
    return judged("lake", NOON, {tp(i): p for i, p in enumerate(partitions)}, pace)


def silent(seconds: float) -> Pace:
    """Let the last commit of an hourly group be this long ago."""
    return replace(HOURLY, last_commit_at=NOON - timedelta(seconds=seconds))


def test_an_hourly_group_is_ok_just_before_its_commit() -> None:
    found = look(partition(500, HOUR + 600, 6 * DAY), pace=silent(HOUR + 600))
    assert (found.verdict, found.reason) == ("OK", "500 offsets unread, the oldest record waits for 1 h 10 min")


def test_nothing_unread_is_ok_however_long_no_one_commits() -> None:
    found = look(partition(0), partition(0), pace=silent(30 * DAY))
    assert (found.verdict, found.reason) == ("OK", "Nothing is unread")


def test_a_record_after_a_silent_weekend_does_not_stall_a_group() -> None:
    assert look(partition(1, 60, 6 * DAY), pace=silent(3 * DAY)).verdict == "OK"


def test_records_that_wait_although_windows_are_committed_are_behind() -> None:
    found = look(partition(9, 60), partition(900, 5 * HOUR, 6 * DAY))
    assert found.verdict == "BEHIND"
    assert found.reason == (
        "909 offsets unread, the oldest record waits for 5 h (usually at most 1 h 10 min), although the last commit was "
        "30 min ago"
    )


def test_records_that_wait_while_nothing_is_committed_are_stalled() -> None:
    found = look(partition(900, 5 * HOUR, 6 * DAY), pace=silent(5 * HOUR))
    assert found.verdict == "STALLED"
    assert found.reason.endswith("and the last commit was 5 h ago")


def test_a_group_that_never_committed_has_a_day() -> None:
    assert look(partition(1, 1.9 * DAY, 5 * DAY), pace=Pace()).verdict == "OK"
    found = look(partition(1, 2.1 * DAY, 4.9 * DAY), pace=Pace())
    assert (found.verdict, found.reason[-26:]) == ("STALLED", "nothing was ever committed")


def test_unread_records_that_expire_before_a_commit_can_be_expected_are_at_risk() -> None:
    found = look(partition(5, 1.0, 2 * DAY), partition(900, 6.5 * DAY, 0.5 * DAY))
    assert found.verdict == "AT RISK"
    assert (
        found.reason == "Retention may remove unread records of orders-1 in 12 h; this group needs at least 16 h 48 min"
    )


def test_an_estimate_is_called_one() -> None:
    assert "in 20 min (an estimate);" in look(partition(900, 1.0, 1200.0, estimate="by size")).reason


def test_with_a_short_retention_the_pace_decides() -> None:
    short = Retention(timedelta(hours=2))
    assert look(partition(5, 600, 1.6 * HOUR, retention=short)).verdict == "OK"
    assert (
        look(partition(5, 2400, 1.4 * HOUR, retention=short)).verdict == "AT RISK"
    )  # an hour, and three times ten minutes


def test_a_slow_job_puts_no_record_at_risk_that_has_just_arrived() -> None:
    day = Retention(timedelta(days=1))
    slow = replace(HOURLY, longest_seconds=8 * HOUR)
    assert look(partition(5, 60, DAY - 60, retention=day), pace=slow).verdict == "OK"
    found = look(partition(5, 12 * HOUR, 12 * HOUR, retention=day), pace=slow)
    assert found.reason.endswith("in 12 h; this group needs at least 13 h")


def test_a_longer_horizon_warns_earlier() -> None:
    partitions = {tp(): partition(5, 10, 2 * DAY)}
    assert judged("lake", NOON, partitions, HOURLY).verdict == "OK"
    assert judged("lake", NOON, partitions, HOURLY, horizon=timedelta(days=3)).verdict == "AT RISK"


def test_expired_offsets_are_lost_and_named() -> None:
    found = look(partition(900, 6 * DAY, 1.0, verdict=Verdict.DATA_LOSS, beginning=140, headroom_offsets=-40))
    assert (found.verdict, found.lost) == ("LOST", 40)
    assert found.reason == "40 offsets expired before they were read: orders-0 [100, 140)"


@pytest.mark.parametrize("verdict", sorted(GONE - {Verdict.DATA_LOSS}))
def test_what_stops_the_next_plan_is_lost(verdict: Verdict) -> None:
    found = look(partition(0, verdict=verdict))
    assert (found.verdict, found.reason) == (
        "LOST",
        f"Kafka no longer holds what the group reads next: orders-0 {verdict}",
    )


def test_headroom_and_need_are_those_of_the_partition_that_the_verdict_is_about() -> None:
    clicks = partition(9, 1.0, 2 * HOUR, retention=Retention(timedelta(hours=10)))
    orders = partition(9, 1.0, 5 * HOUR)
    found = look(clicks, orders, pace=Pace())
    assert (found.verdict, found.tightest) == ("AT RISK", tp(1))
    assert (found.headroom_seconds, found.needed_seconds) == (5 * HOUR, 16.8 * HOUR)
    sooner = look(replace(clicks, headroom_seconds=0.5 * HOUR), orders, pace=Pace())
    assert (sooner.tightest, sooner.headroom_seconds, sooner.needed_seconds) == (tp(0), 0.5 * HOUR, HOUR)
    assert "orders-0 in 30 min, and of 1 more partition soon; this group needs at least 1 h" in sooner.reason


def test_of_what_is_not_at_risk_headroom_and_need_are_those_of_the_partition_that_comes_closest() -> None:
    clicks = partition(9, 1.0, 5 * HOUR, retention=Retention(timedelta(hours=10)))
    orders = partition(9, 1.0, 17 * HOUR)
    found = look(clicks, orders, pace=Pace())
    assert (found.verdict, found.headroom_seconds, found.needed_seconds) == ("OK", 17 * HOUR, 16.8 * HOUR)
    assert look(partition(0)).tightest is None


def test_what_is_gone_leaves_no_sum_of_zero() -> None:
    gone = PartitionLag(5, None, None, Verdict.MISSING)
    assert (look(gone, partition(0, 0.0)).lag, look(gone, partition(0, 0.0)).lag_seconds) == (None, None)
    assert look(gone, partition(7, 30.0)).lag == 7


def test_sums_and_extremes() -> None:
    found = look(partition(5, 10, 100.0, headroom_offsets=7), partition(0), partition(2, 30, 50.0, estimate="by size"))
    assert (found.lag, found.lag_seconds, found.headroom_seconds, found.headroom_offsets) == (7, 30, 50, 7)
    assert found.is_estimate
    assert look(partition(5, None), partition(1, 3.0)).lag_seconds is None  # type: ignore[arg-type]


seconds = st.floats(0, 30 * DAY)
paces = st.builds(
    lambda ago, interval, longest: Pace(
        None if ago is None else NOON - timedelta(seconds=ago), None if ago is None else interval, longest
    ),
    st.one_of(st.none(), seconds),
    st.one_of(st.none(), st.floats(0, DAY)),
    st.one_of(st.none(), st.floats(0, DAY)),
)
lags = st.builds(
    lambda lag, waits: partition(lag, waits if lag else 0.0, max(0.0, 7 * DAY - waits) if lag else None),
    st.integers(0, 1000),
    st.floats(0, 7 * DAY),
)
groups = st.lists(lags, min_size=1, max_size=4).map(lambda found: {tp(i): p for i, p in enumerate(found)})


def place(partitions: Mapping[TopicPartition, PartitionLag], pace: Pace) -> int:
    """Return how bad the verdict is."""
    verdict = judged("lake", NOON, partitions, pace).verdict
    assert verdict is not None
    return WORST[verdict]


@given(groups, paces, st.integers(0, 3), st.integers(0, 1000), st.floats(0, 7 * DAY))
def test_more_lag_never_makes_a_better_verdict(
    partitions: dict[TopicPartition, PartitionLag], pace: Pace, which: int, more: int, longer: float
) -> None:
    at = tp(which % len(partitions))
    before = partitions[at]
    lag, waits = (before.lag or 0) + more, min(7 * DAY, (before.lag_seconds or 0.0) + longer)
    assume(lag)
    worse = partitions | {at: partition(lag, waits, 7 * DAY - waits)}
    assert place(worse, pace) >= place(partitions, pace)


@given(groups, paces, st.floats(0, 30 * DAY))
def test_a_longer_silence_never_makes_a_better_verdict(
    partitions: dict[TopicPartition, PartitionLag], pace: Pace, longer: float
) -> None:
    assume(pace.last_commit_at is not None)
    assert pace.last_commit_at
    later = replace(pace, last_commit_at=pace.last_commit_at - timedelta(seconds=longer))
    assert place(partitions, later) >= place(partitions, pace)


@given(groups, paces)
def test_without_lag_every_pace_is_ok(partitions: dict[TopicPartition, PartitionLag], pace: Pace) -> None:
    assert judged("lake", NOON, dict.fromkeys(partitions, partition(0)), pace).verdict is GroupVerdict.OK


@given(groups, paces, st.sampled_from(sorted(GONE)))
def test_what_is_lost_is_lost_whatever_else_there_is(
    partitions: dict[TopicPartition, PartitionLag], pace: Pace, verdict: Verdict
) -> None:
    assert (
        judged("lake", NOON, {**partitions, tp(99): partition(0, verdict=verdict)}, pace).verdict is GroupVerdict.LOST
    )


@given(groups, paces)
def test_every_verdict_has_one_sentence(partitions: dict[TopicPartition, PartitionLag], pace: Pace) -> None:
    found = judged("lake", NOON, partitions, pace)
    assert found.reason
    assert "\n" not in found.reason
    assert not found.reason.endswith(".")
    assert usual_wait(pace) >= 60


def test_where_it_is_not_known_how_long_records_wait_the_silence_decides() -> None:
    unknown = partition(900, None, 7 * DAY)  # type: ignore[arg-type]
    assert look(unknown).verdict == "OK"
    found = look(unknown, partition(5, 60.0), pace=silent(5 * HOUR))
    assert (found.verdict, found.lag_seconds) == ("STALLED", None)
    assert found.reason.startswith("905 offsets unread, for an unknown time (usually at most 1 h 10 min), and the")


def test_one_partition_of_which_it_is_not_known_hides_no_other() -> None:
    found = look(partition(900, None, 7 * DAY), partition(5, 5 * HOUR))  # type: ignore[arg-type]
    assert found.verdict == "BEHIND"
    assert "905 offsets unread, a record waits for 5 h (usually" in found.reason


def test_the_partition_that_needs_a_look_most_lost_records_and_then_is_at_risk_and_then_has_lag() -> None:
    lost, lost_more = (partition(9, headroom=0.0, headroom_offsets=-n, verdict=Verdict.DATA_LOSS) for n in (5, 50))
    soon, sooner = partition(1, headroom=HOUR), partition(1, headroom=HOUR / 2)
    behind, read = partition(1_000_000, headroom=6 * DAY), partition(0)
    ordered = [read, behind, soon, sooner, lost, lost_more]
    assert all(urgency(one, HOURLY) < urgency(worse, HOURLY) for one, worse in pairwise(ordered))
    assert [danger(one, HOURLY) for one in ordered] == ["OK", "OK", "AT RISK", "AT RISK", "LOST", "LOST"]


@given(st.sampled_from(Verdict), st.none() | st.floats(0, 8 * DAY))
def test_what_endangers_a_partition_endangers_its_group(verdict: Verdict, headroom: float | None) -> None:
    one = partition(5, headroom=headroom, verdict=verdict)
    alone = danger(one, HOURLY)
    assert alone is GroupVerdict.OK or look(one).verdict is alone


@pytest.mark.parametrize(
    ("outcome", "ago", "verdict"),
    [
        (Outcome.FAILED, 1, "NEEDS RERUN"),
        (Outcome.LOST, 1, "NEEDS RERUN"),
        (Outcome.SUCCEEDED, 1, "NEEDS RERUN"),
        (Outcome.RUNNING, 2 * (HOUR + 600) - 1, "OK"),
        (Outcome.RUNNING, 2 * (HOUR + 600) + 1, "NEEDS RERUN"),
    ],
)
def test_a_window_that_ran_again_without_success_needs_another_run(outcome: Outcome, ago: float, verdict: str) -> None:
    rerun = Rerun("lake-000003", outcome, NOON - timedelta(seconds=ago))
    found = judged("lake", NOON, {tp(): partition(0)}, HOURLY, reruns=[rerun])
    assert found.verdict == verdict
    assert found.reruns == (("lake-000003",) if verdict == "NEEDS RERUN" else ())


def test_a_loss_outranks_a_rerun_and_a_rerun_outranks_a_silence() -> None:
    reruns = [Rerun("lake-000003", Outcome.FAILED, NOON)]
    late = partition(900, 5 * HOUR, 6 * DAY)
    lost = partition(10, verdict=Verdict.RECREATED)
    assert judged("lake", NOON, {tp(): late}, silent(DAY), reruns=reruns).verdict == "NEEDS RERUN"
    assert judged("lake", NOON, {tp(): lost}, HOURLY, reruns=reruns).verdict == "LOST"
