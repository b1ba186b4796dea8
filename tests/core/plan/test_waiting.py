"""What a sensor waits for: when it is there, and when it is not."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.conditions import (
    Arrived,
    CommittedUntil,
    LagAtMost,
    LogCondition,
    TimePassed,
    UnreadAtLeast,
    condition_from_json,
    condition_to_json,
)
from airflow_kafka_offsets.core.errors import (
    BadInputError,
    DataLossError,
    IllegalStepError,
    KafkaRefusedError,
    KafkaUnavailableError,
    LedgerSchemaError,
    LedgerUnavailableError,
    LogTruncatedError,
    MissingPartitionError,
    TopicRecreatedError,
    may_pass,
)
from airflow_kafka_offsets.core.history import Frontier, Gap
from airflow_kafka_offsets.core.log import Bounds
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.ownership import GroupState
from airflow_kafka_offsets.core.plan.waiting import (
    CALL_AGAIN_AFTER,
    GroupSnapshot,
    decide_log,
    decide_until,
    decide_window,
    lookup_times,
)
from airflow_kafka_offsets.core.window import State, Window, WindowRecord
from tests.core.examples import NOON, claim, group, log, position, standing, tp, window

HOUR = timedelta(hours=1)


def state(offsets: Mapping[TopicPartition, int] | None, *open_windows: Window) -> GroupState:
    """Let the ledger hold a group at these offsets."""
    return GroupState(
        1, position(offsets) if offsets else None, tuple(WindowRecord.of(w, claim()) for w in open_windows)
    )


def seen(
    condition: LogCondition,
    offsets: Mapping[TopicPartition, int] | None,
    bounds: Mapping[TopicPartition, tuple[int, int]],
    *at: Mapping[TopicPartition, int | None],
    **more: Any,
) -> GroupSnapshot:
    """Let ledger and Kafka hold this, and the timestamp index say this for each lookup time."""
    times = lookup_times(condition, NOON)
    return GroupSnapshot(NOON, state(offsets), log(bounds), dict(zip(times, at, strict=True)), **more)


def is_met(condition: LogCondition, *what: Any, **more: Any) -> bool:
    """Decide."""
    return decide_log(condition, seen(condition, *what, **more)).is_met


@pytest.mark.parametrize(("ends", "expected"), [((60, 39), False), ((60, 40), True), ((160, 0), True)])
def test_enough_is_a_sum_over_the_partitions(ends: tuple[int, int], expected: bool) -> None:
    bounds = {tp(0): (0, ends[0]), tp(1): (0, ends[1])}
    assert is_met(UnreadAtLeast(group(), min_span=100), {tp(0): 0, tp(1): 0}, bounds) is expected


def test_only_what_lies_above_the_watermark_is_unread() -> None:
    found = decide_log(
        UnreadAtLeast(group(), min_span=10), seen(UnreadAtLeast(group(), 10), {tp(0): 95}, {tp(0): (0, 100)})
    )
    assert not found.is_met
    assert found.facts == {"span": 5, "partitions": 1, "behind": ["orders-0"]}


def test_a_sensor_that_was_stored_before_its_options_were_refused_still_decides() -> None:
    stored = condition_to_json(UnreadAtLeast(group(), min_span=5))
    stored["group"]["spark_options"] = {"kafka.ssl.keystore.password": "hunter2${"}
    condition = condition_from_json(stored)
    assert isinstance(condition, UnreadAtLeast)
    assert is_met(condition, {tp(0): 95}, {tp(0): (0, 100)})


def test_a_group_without_watermark_counts_all_that_kafka_holds() -> None:
    condition = UnreadAtLeast(group(starting_offsets="latest"), min_span=90)
    assert is_met(condition, None, {tp(0): (10, 100)})
    assert not is_met(condition, None, {tp(0): (11, 100)})


def test_a_partition_new_to_the_group_counts_from_its_beginning() -> None:
    condition = UnreadAtLeast(group(), min_span=7)
    assert is_met(condition, {tp(0): 5}, {tp(0): (0, 5), tp(1): (3, 10)})


def test_the_cap_of_a_window_does_not_limit_what_is_unread() -> None:
    assert is_met(UnreadAtLeast(group(max_offsets=10), min_span=100), {tp(0): 0}, {tp(0): (0, 100)})


def test_an_open_window_is_unread_to_a_sensor() -> None:
    open_window = window({tp(0): (0, 100)}, state=State.PLANNED)
    condition = UnreadAtLeast(group(), min_span=100)
    look = GroupSnapshot(NOON, state({tp(0): 100}, open_window), log({tp(0): (0, 100)}))
    assert decide_log(condition, look).is_met


@pytest.mark.parametrize(
    ("watermark", "end", "first_recent", "expected"),
    [
        (5, 5, None, False),  # nothing unread
        (5, 5, 3, False),
        (5, 8, None, True),  # all unread is older
        (5, 8, 6, True),  # one unread record is older
        (5, 8, 5, False),  # the oldest unread one is young
        (5, 8, 2, False),
    ],
)
def test_old_enough_by_the_timestamp_index(watermark: int, end: int, first_recent: int | None, expected: bool) -> None:
    condition = UnreadAtLeast(group(), max_age=HOUR)
    assert lookup_times(condition, NOON) == [NOON - HOUR]
    assert is_met(condition, {tp(0): watermark}, {tp(0): (0, end)}, {tp(0): first_recent}) is expected


@given(
    times=st.lists(st.integers(0, 100), max_size=12),
    watermark=st.integers(0, 12),
    cut=st.integers(0, 100),
)
def test_old_enough_is_never_said_without_an_older_unread_record(times: list[int], watermark: int, cut: int) -> None:
    watermark = min(watermark, len(times))
    condition = UnreadAtLeast(group(), max_age=HOUR)
    first = next((offset for offset, time in enumerate(times) if time >= cut), None)
    found = is_met(condition, {tp(0): watermark}, {tp(0): (0, len(times))}, {tp(0): first})
    is_older = [time < cut for time in times[watermark:]]
    # Out of order, an old record may hide behind a young one; min_span is for those.
    assert found == (bool(is_older) and is_older[0] and (first is None or first > watermark))


def test_either_bound_is_enough() -> None:
    condition = UnreadAtLeast(group(), min_span=10, max_age=HOUR)
    assert is_met(condition, {tp(0): 0}, {tp(0): (0, 10)}, {tp(0): 0})
    assert is_met(condition, {tp(0): 0}, {tp(0): (0, 1)}, {tp(0): None})
    assert not is_met(condition, {tp(0): 0}, {tp(0): (0, 9)}, {tp(0): 0})


def test_an_age_beyond_1970_is_looked_up_at_1970() -> None:
    assert lookup_times(UnreadAtLeast(group(), max_age=timedelta(days=40_000)), NOON) == [
        datetime(1970, 1, 1, tzinfo=UTC)
    ]


@pytest.mark.parametrize("kind", [lambda g: UnreadAtLeast(g, min_span=1), lambda g: LagAtMost(g, 10), Arrived])
def test_what_planning_would_refuse_is_an_error_not_a_wait(kind: Any) -> None:
    condition = Arrived(UnreadAtLeast(group(), 1)) if kind is Arrived else kind(group())
    with pytest.raises(DataLossError, match=r"offsets \[5, 10\) expired"):
        is_met(condition, {tp(0): 5}, {tp(0): (10, 20)})
    with pytest.raises(MissingPartitionError, match="Kafka has no topic orders"):
        is_met(condition, None, {})
    with pytest.raises(TopicRecreatedError):
        decide_log(condition, GroupSnapshot(NOON, state({tp(0): 5}), log({tp(0): (0, 9)}, orders="another")))
    with pytest.raises(LogTruncatedError):
        is_met(condition, {tp(0): 5}, {tp(0): (0, 4)})


def test_a_log_that_fell_back_for_a_moment_is_nothing_unread() -> None:
    recovered = {tp(0): Bounds(0, 6)}
    assert not is_met(UnreadAtLeast(group(), min_span=1), {tp(0): 5}, {tp(0): (0, 4)}, recovered=recovered)


def test_lost_offsets_that_the_policy_skips_are_not_waited_for() -> None:
    assert not is_met(UnreadAtLeast(group(on_data_loss="skip"), min_span=15), {tp(0): 0}, {tp(0): (10, 20)})


# What has arrived, for the event trigger


def test_what_an_open_window_has_does_not_call_another_run() -> None:
    open_window = window({tp(0): (0, 100)}, state=State.PLANNED)
    look = GroupSnapshot(NOON, state({tp(0): 100}, open_window), log({tp(0): (0, 109)}))
    assert not decide_log(Arrived(UnreadAtLeast(group(), min_span=10)), look).is_met


def test_the_same_records_call_once_until_a_run_has_planned() -> None:
    enough = UnreadAtLeast(group(), min_span=10)
    first = decide_log(Arrived(enough), seen(Arrived(enough), {tp(0): 0}, {tp(0): (0, 100)}))
    assert first.is_met
    again = Arrived(enough, first.event)
    assert not is_met(again, {tp(0): 0}, {tp(0): (0, 100)})
    assert not is_met(again, {tp(0): 0}, {tp(0): (0, 109)})
    assert is_met(again, {tp(0): 0}, {tp(0): (0, 110)})


def test_after_a_run_has_planned_the_rest_of_a_backlog_calls_again() -> None:
    enough = UnreadAtLeast(group(max_offsets=30), min_span=10)
    event = decide_log(Arrived(enough), seen(Arrived(enough), {tp(0): 0}, {tp(0): (0, 100)})).event
    assert is_met(Arrived(enough, event), {tp(0): 30}, {tp(0): (0, 100)})
    assert not is_met(Arrived(enough, event), {tp(0): 95}, {tp(0): (0, 100)})


def test_a_call_that_leads_to_no_plan_is_repeated_once_no_window_is_open() -> None:
    enough, dead = UnreadAtLeast(group(), min_span=10), window({tp(0): (0, 50)}, state=State.PLANNED)
    waits, free = state({tp(0): 50}, dead), state({tp(0): 50})
    kafka = log({tp(0): (0, 60)})
    event = decide_log(Arrived(enough), GroupSnapshot(NOON, waits, kafka)).event
    later = NOON + CALL_AGAIN_AFTER
    assert not decide_log(Arrived(enough, event), GroupSnapshot(later - timedelta(seconds=1), free, kafka)).is_met
    assert not decide_log(Arrived(enough, event), GroupSnapshot(later, waits, kafka)).is_met
    again = decide_log(Arrived(enough, event), GroupSnapshot(later, free, kafka))
    assert again.is_met
    assert not decide_log(Arrived(enough, again.event), GroupSnapshot(later, free, kafka)).is_met


def test_a_first_run_is_called_once_too() -> None:
    enough = UnreadAtLeast(group(), min_span=10)
    event = decide_log(Arrived(enough), seen(Arrived(enough), None, {tp(0): (0, 100)})).event
    assert not is_met(Arrived(enough, event), None, {tp(0): (0, 100)})
    assert is_met(Arrived(enough, event), {tp(0): 0}, {tp(0): (0, 100)})


def test_an_old_record_calls_once_too() -> None:
    enough = UnreadAtLeast(group(), max_age=HOUR)
    event = decide_log(Arrived(enough), seen(Arrived(enough), {tp(0): 0}, {tp(0): (0, 5)}, {tp(0): None})).event
    assert not is_met(Arrived(enough, event), {tp(0): 0}, {tp(0): (0, 5)}, {tp(0): None})
    assert is_met(Arrived(enough, event), {tp(0): 0}, {tp(0): (0, 6)}, {tp(0): None})


# Kafka's time


@pytest.mark.parametrize(
    ("at", "expected"),
    [({tp(0): 3, tp(1): 0}, True), ({tp(0): 3, tp(1): None}, False), ({tp(0): None, tp(1): None}, False)],
)
def test_time_has_passed_when_every_partition_says_so(at: dict[TopicPartition, int | None], expected: bool) -> None:
    assert is_met(TimePassed(group(), NOON - HOUR), None, {tp(0): (0, 9), tp(1): (0, 9)}, at) is expected


def test_a_record_of_the_future_does_not_make_time_pass() -> None:
    condition = TimePassed(group(), NOON + HOUR)
    assert lookup_times(condition, NOON) == []
    assert not is_met(condition, None, {tp(0): (0, 9)})


def test_an_idle_partition_is_excused_and_named() -> None:
    condition = TimePassed(group(), NOON - HOUR, idle_after=timedelta(minutes=5))
    assert lookup_times(condition, NOON) == [NOON - HOUR, NOON - timedelta(minutes=5)]
    bounds = {tp(0): (0, 9), tp(1): (0, 0)}
    found = decide_log(condition, seen(condition, None, bounds, {tp(0): 3, tp(1): None}, {tp(0): None, tp(1): None}))
    assert found.is_met
    assert found.facts["idle"] == ["orders-1"]


def test_a_partition_that_still_speaks_of_earlier_times_is_waited_for() -> None:
    condition = TimePassed(group(), NOON, idle_after=timedelta(minutes=5))
    found = decide_log(condition, seen(condition, None, {tp(0): (0, 9)}, {tp(0): None}, {tp(0): 8}))
    assert not found.is_met
    assert found.facts["held_back_by"] == ["orders-0"]


def test_a_missing_topic_does_not_pass_any_time() -> None:
    with pytest.raises(MissingPartitionError, match="Kafka has no topic orders"):
        is_met(TimePassed(group(), NOON - HOUR), None, {}, {})


def test_at_most_ten_partitions_are_named() -> None:
    partitions = [tp(i) for i in range(50)]
    condition = TimePassed(group(), NOON - HOUR)
    found = decide_log(condition, seen(condition, None, dict.fromkeys(partitions, (0, 0)), dict.fromkeys(partitions)))
    assert len(found.facts["held_back_by"]) == 10
    assert found.facts["partitions"] == 50


# Lag and commits


@pytest.mark.parametrize(("end", "expected"), [(104, True), (105, True), (106, False)])
def test_lag_is_at_most_the_bound(end: int, expected: bool) -> None:
    assert is_met(LagAtMost(group(), 5), {tp(0): 100}, {tp(0): (0, end)}) is expected


@pytest.mark.parametrize(
    ("life", "expected"), [(State.PLANNED, False), (State.COMMITTING, False), (State.COMMITTED, True)]
)
def test_a_window_is_committed_or_waited_for(life: State, expected: bool) -> None:
    assert decide_window(standing(life)).is_met is expected


@pytest.mark.parametrize("life", [State.ABANDONED, State.SUPERSEDED])
def test_a_window_that_was_given_up_is_not_waited_for(life: State) -> None:
    with pytest.raises(IllegalStepError, match=f"lake-000001 is {life}"):
        decide_window(standing(life))


def test_a_time_that_has_not_come_is_not_committed_even_if_a_window_was_planned_until_then() -> None:
    found = decide_until(
        CommittedUntil("lake", NOON), Frontier("lake-000001", NOON + HOUR), NOON - timedelta(seconds=1)
    )
    assert (found.is_met, found.facts["held_back_by"]) == (False, ["the clock"])


@pytest.mark.parametrize("minutes", [1, 30, 60])
def test_the_time_of_a_window_that_left_a_gap_never_is_committed_as_later_windows_do_not_have_its_offsets(
    minutes: int,
) -> None:
    gap = Gap("lake-000002", NOON, NOON + HOUR)
    frontier, late = Frontier("lake-000003", NOON + 2 * HOUR, gaps=(gap,)), NOON + 5 * HOUR
    with pytest.raises(IllegalStepError, match="lake-000002 was abandoned"):
        decide_until(CommittedUntil("lake", NOON + timedelta(minutes=minutes)), frontier, late)
    for other in (NOON, NOON + timedelta(minutes=61)):
        assert decide_until(CommittedUntil("lake", other), frontier, late).is_met


@pytest.mark.parametrize(
    ("frontier", "expected"),
    [
        (Frontier(), None),
        (Frontier("lake-000001", NOON), "lake-000001"),
        (Frontier("lake-000001", NOON + HOUR, ("lake-000002",)), "lake-000001"),
        (Frontier("lake-000001", NOON - HOUR, ("lake-000002", "lake-000003")), None),
        (Frontier(open=("lake-000001",)), None),
    ],
)
def test_all_that_was_there_at_a_cut_time_is_committed(frontier: Frontier, expected: str | None) -> None:
    found = decide_until(CommittedUntil("lake", NOON), frontier, NOON)
    assert found.is_met is (expected is not None)
    assert found.facts["window_id"] == expected
    assert found.facts["held_back_by"] == ([] if found.is_met else list(frontier.open))


# What users write


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (KafkaUnavailableError("silent"), True),
        (LedgerUnavailableError("silent"), True),
        (KafkaRefusedError("no"), False),
        (LedgerSchemaError("old"), False),
        (BadInputError("wrong"), False),
        (TimeoutError("of a library"), False),
    ],
)
def test_waiting_heals_silence_and_nothing_else(error: Exception, expected: bool) -> None:
    assert may_pass(error) is expected
