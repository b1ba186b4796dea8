"""Where groups stand, as metrics: nothing disappears, and what is not known is not taken for zero."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from math import inf, isnan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.lag.lag import GroupLag, GroupVerdict, PartitionLag
from airflow_kafka_offsets.core.lag.pace import Pace
from airflow_kafka_offsets.core.lag.retention import Retention
from airflow_kafka_offsets.core.plan.planning import Verdict
from airflow_kafka_offsets.core.state_metrics import GroupNow, OpenWindows, Values, families, group_now
from airflow_kafka_offsets.core.window import Lane
from tests.core.examples import NOON, group, tp

WEEK = Retention(timedelta(days=7))
FOREVER = Retention(None)


def partition(**values: Any) -> PartitionLag:
    return PartitionLag(**{"watermark": 5, "beginning": 0, "end": 10, "lag": 5, "headroom_offsets": 5, **values})


def lag_of(*partitions: PartitionLag, **values: Any) -> GroupLag:
    found = {tp(number): one for number, one in enumerate(partitions)}
    return GroupLag("lake", NOON, **{"verdict": GroupVerdict.OK, "reason": "", "partitions": found, **values})


def values_of(name: str, *groups: GroupNow, **more: Any) -> Values:
    found = {family.name: family for family in families(groups, NOON, **more)}
    return found[f"kafka_offsets_{name}"].values


def one(name: str, *partitions: PartitionLag) -> float:
    """Return a value of the group's only topic."""
    return values_of(name, GroupNow(group(), lag_of(*partitions), True))[("lake", "orders")]


def test_a_group_without_lag_has_zeros_and_no_end_of_its_headroom() -> None:
    still = partition(lag=0, lag_seconds=0.0, watermark=10, headroom_offsets=10)
    assert (one("lag", still), one("lag_seconds", still), one("lost_offsets", still)) == (0, 0, 0)
    assert (one("headroom_seconds", still), one("headroom_offsets", still)) == (inf, inf)


def test_a_topic_has_the_sum_of_its_lag_and_the_worst_of_the_rest() -> None:
    found = (
        partition(lag=3, lag_seconds=7.0, headroom_seconds=100.0, headroom_offsets=4),
        partition(lag=5, lag_seconds=9.0, headroom_seconds=50.0, headroom_offsets=-2),
        partition(lag=0, lag_seconds=0.0),
    )
    assert (one("lag", *found), one("lag_seconds", *found)) == (8, 9)
    assert (one("headroom_seconds", *found), one("headroom_offsets", *found), one("lost_offsets", *found)) == (
        50,
        -2,
        2,
    )


def test_what_is_not_known_is_no_number() -> None:
    blind = partition(lag_seconds=None, headroom_seconds=None, retention=None)
    assert isnan(one("lag_seconds", blind))
    read = partition(lag=0, lag_seconds=0.0)
    assert isnan(one("lag_seconds", blind, read)), "that others are read says nothing of this one"
    assert isnan(one("headroom_seconds", blind))
    assert isnan(one("headroom_seconds", blind, partition(lag=0)))
    assert one("headroom_seconds", blind, partition(headroom_seconds=9.0)) == 9


def test_unread_records_of_a_topic_that_keeps_all_are_never_at_risk() -> None:
    assert one("headroom_seconds", partition(retention=FOREVER)) == inf
    assert isnan(one("headroom_seconds", partition(retention=WEEK)))


def test_a_group_whose_kafka_never_answered_has_all_its_series() -> None:
    silent = lag_of(verdict=None, error="no answer")
    now = group_now(group(), silent, {}, None)
    found = families([now], NOON)
    by_name = {family.name: family.values for family in found}
    assert all(family.values for family in found)
    assert isnan(by_name["kafka_offsets_lag"][("lake", "orders")])
    assert by_name["kafka_offsets_up"] == {("lake", "kafka_default"): 0}
    assert by_name["kafka_offsets_answer_timestamp_seconds"] == {("lake",): 0}
    assert by_name["kafka_offsets_verdict"] == {("lake", verdict): 0 for verdict in GroupVerdict}


def test_the_last_answer_stays_while_kafka_is_down_and_the_ledger_is_that_of_now() -> None:
    before = group_now(group(), lag_of(partition(), verdict=GroupVerdict.AT_RISK), {}, None)
    later = Pace(last_commit_at=NOON + timedelta(hours=1))
    silent = GroupLag("lake", NOON + timedelta(hours=1), None, "", pace=later, error="no answer")
    still = group_now(group(), silent, {Lane.LIVE: OpenWindows(1, NOON)}, before)
    again = group_now(group(), silent, {}, still)
    for down in (still, again):
        assert values_of("lag", down)[("lake", "orders")] == 5
        assert values_of("verdict", down)[("lake", "AT RISK")] == 1
        assert values_of("up", down)[("lake", "kafka_default")] == 0
        assert values_of("answer_timestamp_seconds", down)[("lake",)] == NOON.timestamp()
        assert values_of("last_commit_timestamp_seconds", down)[("lake",)] == NOON.timestamp() + 3600
    assert values_of("open_windows", still)[("lake", "live")] == 1


def test_a_group_has_exactly_one_verdict() -> None:
    for verdict in GroupVerdict:
        found = values_of("verdict", GroupNow(group(), lag_of(verdict=verdict), True))
        assert [key[1] for key, value in found.items() if value] == [verdict.value]


def test_an_open_window_grows_older_and_none_is_zero() -> None:
    now = GroupNow(group(), lag_of(), True, NOON, {Lane.LIVE: OpenWindows(2, NOON - timedelta(minutes=5))})
    assert values_of("open_windows", now) == {("lake", "live"): 2, ("lake", "backfill"): 0}
    assert values_of("open_window_age_seconds", now) == {("lake", "live"): 300, ("lake", "backfill"): 0}


def test_a_ledger_that_is_down_is_told_and_when_it_answered_last() -> None:
    assert values_of("ledger_up", is_ledger_up=False) == {(): 0}
    assert values_of("scrape_timestamp_seconds") == {(): 0}
    assert values_of("scrape_timestamp_seconds", collected_at=NOON) == {(): NOON.timestamp()}


def test_partitions_are_told_only_if_someone_asks() -> None:
    now = GroupNow(group(), lag_of(partition(), partition(lag=2)), True)
    assert values_of("lag", now) == {("lake", "orders"): 7}
    assert values_of("lag", now, per_partition=True) == {("lake", "orders", "0"): 5, ("lake", "orders", "1"): 2}


@pytest.mark.parametrize("per_partition", [False, True])
def test_a_topic_that_has_left_the_group_has_no_series(per_partition: bool) -> None:
    gone = PartitionLag(7, 0, 9, Verdict.LEFT_GROUP)
    now = GroupNow(group(), replace(lag_of(partition()), partitions={tp(0): partition(), tp(0, "bills"): gone}), True)
    for name in ("lag", "lag_seconds", "headroom_seconds", "headroom_offsets", "lost_offsets"):
        assert {key[1] for key in values_of(name, now, per_partition=per_partition)} == {"orders"}


@pytest.mark.parametrize("per_partition", [False, True])
@given(
    st.lists(st.tuples(st.integers(0, 9), st.none() | st.floats(0, 1e6), st.none() | st.integers(-9, 9)), max_size=9)
)
def test_every_value_has_all_labels_of_its_metric(
    per_partition: bool, found: list[tuple[int, float | None, int | None]]
) -> None:
    parts = [partition(lag=lag, headroom_seconds=left, headroom_offsets=offsets) for lag, left, offsets in found]
    now = GroupNow(group(), lag_of(*parts), True)
    for family in families([now], NOON, per_partition=per_partition):
        assert all(len(key) == len(family.labels) for key in family.values)
        assert not any(value is None for value in family.values.values())
