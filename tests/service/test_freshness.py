"""How far behind groups are: one look for many, and what is wrong with one harms no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import count
from random import Random
from threading import Barrier
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from airflow_kafka_offsets.core.errors import (
    KafkaUnavailableError,
    LedgerError,
    LedgerSchemaError,
    LedgerUnavailableError,
    NoConnectionError,
)
from airflow_kafka_offsets.core.group import KafkaGroup, OnDataLoss, Until
from airflow_kafka_offsets.core.lag.lag import GroupLag
from airflow_kafka_offsets.core.lag.search import MAX_ROUNDS, MOST_LOOKUPS
from airflow_kafka_offsets.core.log import LogSnapshot
from airflow_kafka_offsets.core.plan.request import Live
from airflow_kafka_offsets.core.state_metrics import GroupNow, families
from airflow_kafka_offsets.core.window import Claim, Outcome
from airflow_kafka_offsets.ports import LogOffsets
from airflow_kafka_offsets.service import freshness
from tests.core.examples import claim, group, tp
from tests.lab.waiting import ANSWER
from tests.service.memory_log import NoTimes
from tests.service.world import World

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def world(world: World) -> World:
    """A world whose topic keeps its records for a week, as topics do."""
    world.kafka.configure("orders", retention_ms="604800000")
    return world


def look(world: World, *groups: KafkaGroup, **more: Any) -> dict[str, GroupLag]:
    """Look at groups, or at the world's own."""
    return freshness.look(groups or [world.group], world.ledger, lambda _: world.kafka, world.now, **more)


def one(world: World, **more: Any) -> GroupLag:
    """Look at the world's group."""
    return look(world, **more)["lake"]


def run_hourly(world: World, hours: int, number: int = 60) -> None:
    """Let records arrive, and windows be committed once an hour."""
    for hour in range(hours):
        world.now += HOUR - timedelta(minutes=1)
        world.kafka.produce(tp(0), number, world.now - timedelta(minutes=30))
        world.run(claim(f"hour {hour}"))


def test_a_group_that_keeps_up_is_ok(world: World) -> None:
    run_hourly(world, 4)
    world.kafka.produce(tp(0), 5, world.now)
    world.now += timedelta(minutes=10)
    found = one(world)
    assert (found.verdict, found.lag, found.lag_seconds, found.headroom_seconds) == ("OK", 5, 600, 7 * 86400 - 600)
    assert (found.pace.interval_seconds, found.needed_seconds) == (3600, 60480)


def test_zeros_are_zeros(world: World) -> None:
    run_hourly(world, 3)
    found = one(world)
    assert (found.verdict, found.lag, found.lag_seconds, found.headroom_seconds) == ("OK", 0, 0, None)
    assert world.kafka.calls[-2:] == ["snapshot", "bounds"]  # about time there was nothing to ask


def test_a_group_that_no_one_runs_is_stalled_then_at_risk_then_lost(world: World) -> None:
    run_hourly(world, 4)
    for _ in range(24 * 7):
        world.kafka.produce(tp(0), 10, world.now)
        world.now += HOUR
    seen = []
    world.kafka.configure("orders", retention_ms=str(7 * 86_400_000 + 10 * 3_600_000))
    world.now -= 7 * DAY
    for wait in (HOUR, 2 * HOUR, 6 * DAY, 14 * HOUR):
        world.now += wait
        seen.append(one(world).verdict)
    world.kafka.expire(tp(0), 260)
    lost = one(world)
    assert [*seen, lost.verdict] == ["OK", "STALLED", "STALLED", "AT RISK", "LOST"]
    assert (lost.lost, lost.reason) == (20, "20 offsets expired before they were read: orders-0 [240, 260)")
    assert lost.partitions[tp(0)].headroom_offsets == -20
    # What is left has an age of its own.
    assert lost.lag_seconds == (6 * DAY + 15 * HOUR).total_seconds()


def test_the_look_is_the_search_of_every_offset_there_is(world: World) -> None:
    world.run(claim("first"))
    for minute in range(2000):
        world.kafka.produce(tp(minute % 2), 1, world.now + timedelta(minutes=minute))
    world.now += timedelta(minutes=2000)
    found = one(world)
    assert found.lag_seconds is not None
    # The first window was planned when there was nothing: its records are younger, whatever the index says.
    assert 2000 * 60 <= found.lag_seconds <= 2001 * 60


def test_a_record_with_an_old_time_waits_only_since_it_arrived_and_expires_by_its_time(world: World) -> None:
    run_hourly(world, 3)
    world.kafka.produce(tp(1), 1, world.now - 6 * DAY - 20 * HOUR)
    world.now += timedelta(minutes=5)
    found = one(world)
    assert found.lag_seconds == 300
    assert found.headroom_seconds == pytest.approx((4 * HOUR).total_seconds(), abs=301)
    assert found.verdict == "AT RISK"


def test_a_topic_that_is_back_has_waited_since_the_group_last_read_it(world: World) -> None:
    clicks = tp(0, "clicks")
    world.kafka.create("clicks")
    world.kafka.configure("clicks", retention_ms="604800000")
    world.configure(topics=["orders", "clicks"])
    world.kafka.produce(clicks, 10, world.now)
    run_hourly(world, 3)
    world.configure(topics=["orders"])
    world.kafka.produce(clicks, 100, world.now)
    run_hourly(world, 72)
    world.configure(topics=["orders", "clicks"])
    assert (one(world).lag_seconds, one(world).verdict) == (pytest.approx(3 * 86400, abs=60), "BEHIND")
    world.plan(claim("open"))
    assert (one(world).lag_seconds, one(world).verdict) == (pytest.approx(3 * 86400, abs=120), "BEHIND")


def test_what_a_reset_gave_back_has_waited_since_it_arrived(world: World) -> None:
    run_hourly(world, 3)
    world.kafka.produce(tp(1), 10, world.now)
    world.run(claim("the only one of this partition"))
    run_hourly(world, 72)
    world.service.reset(world.group, '{"orders": {"1": 0}}', "ada", "a bug", supersede=True)
    assert one(world).lag_seconds == pytest.approx(3 * 86400, abs=120)


def test_a_window_that_ended_by_time_is_no_proof_after_the_definition_has_changed(world: World) -> None:
    world.configure(until=Until.INTERVAL_END)
    arrived = world.now
    world.kafka.produce(tp(0), 20, arrived)
    world.now += 2 * DAY
    world.run(claim("late"), Live(until=arrived, ends_at=arrived))
    world.configure(until=Until.NOW)
    found = one(world)
    assert (found.lag, found.lag_seconds) == (20, pytest.approx(2 * 86400, abs=120))


def test_of_two_topics_one_that_was_quiet_is_not_known_to_have_been_read(world: World) -> None:
    world.kafka.create("clicks")
    world.configure(topics=["orders", "clicks"])
    run_hourly(world, 3)
    for partition in (tp(1), tp(0, "clicks")):
        world.kafka.produce(partition, 1, world.now - DAY)
    world.now += timedelta(minutes=5)
    found = one(world).partitions
    assert found[tp(1)].lag_seconds == 300
    assert found[tp(0, "clicks")].lag_seconds == DAY.total_seconds() + 300


def test_an_idle_partition_keeps_its_lag_and_its_age(world: World) -> None:
    run_hourly(world, 3)
    world.kafka.produce(tp(1), 3, world.now)
    world.plan(claim("dies"))
    world.now += 2 * DAY
    world.kafka.produce(tp(0), 3, world.now)
    found = one(world)
    assert found.partitions[tp(1)].lag_seconds == pytest.approx(2 * 86400, abs=61)
    assert found.verdict == "STALLED"


def test_retention_that_never_comes_is_no_limit(world: World) -> None:
    run_hourly(world, 3)
    world.kafka.produce(tp(0), 3, world.now)
    for values in ({"retention_ms": "-1"}, {"retention_ms": "604800000", "cleanup_policy": "compact"}):
        world.kafka.configure("orders", **values)
        found = one(world)
        assert (found.lag_seconds, found.headroom_seconds, found.notes) == (0, None, ())
        assert found.is_unlimited


def test_retention_by_size_is_an_estimate(world: World) -> None:
    world.kafka.configure("orders", retention_ms="-1", retention_bytes="1000000")
    run_hourly(world, 3)
    world.kafka.produce(tp(0), 100, world.now)
    world.now += timedelta(minutes=10)
    world.kafka.produce(tp(0), 20, world.now)
    assert one(world).headroom_seconds is None  # nothing was ever removed, so the log has not reached its limit
    world.kafka.expire(tp(0), 100)
    found = one(world)
    # 80 offsets until the first unread one, and 180 arrived in the last hour.
    assert (found.headroom_seconds, found.is_estimate) == (1600, True)
    assert (found.verdict, "(an estimate)" in found.reason) == ("AT RISK", True)
    assert found.partitions[tp(0)].estimate == "by retention.bytes and the last hour"


def test_the_headroom_of_a_log_that_holds_less_than_an_hour_is_that_of_its_own_pace(world: World) -> None:
    world.kafka.configure("orders", retention_ms="-1", retention_bytes="1000000")
    run_hourly(world, 3)
    world.kafka.produce(tp(0), 60, world.now)
    world.run(claim("last"))
    world.kafka.produce(tp(0), 60, world.now)
    world.now += timedelta(minutes=9)
    world.kafka.expire(tp(0), 200)
    # 40 offsets until the first unread one. What arrived in the last hour is partly gone: 100 offsets of ten minutes are left.
    assert one(world).headroom_seconds == 240


def test_a_log_whose_first_record_is_dated_ahead_has_no_pace_of_its_own(world: World) -> None:
    world.kafka.configure("orders", retention_ms="-1", retention_bytes="1000000")
    run_hourly(world, 3)
    world.kafka.produce(tp(0), 40, world.now + timedelta(seconds=90))
    world.run(claim("last"))  # takes a minute
    world.kafka.produce(tp(0), 60, world.now)
    world.kafka.expire(tp(0), 190)
    assert one(world).headroom_seconds == 1200  # 30 of 90 offsets, as if these were those of an hour


def test_without_the_right_to_read_the_configuration_the_definition_tells_the_retention(world: World) -> None:
    run_hourly(world, 3)
    world.kafka.produce(tp(0), 3, world.now)
    world.now += HOUR
    world.kafka.tells_configs = False
    found = one(world)
    assert (found.lag_seconds, found.headroom_seconds) == (3600, None)
    assert found.notes == (
        "this user may not read the configuration of orders: grant the ACL DescribeConfigs on Topic, or if Kafka does not support "
        "that, set KafkaGroup(retention=...)",
    )
    world.configure(retention=DAY)
    found = one(world)
    assert (found.headroom_seconds, found.is_estimate, found.notes) == (23 * 3600, True, ())


def test_a_new_partition_is_unread_from_its_beginning(world: World) -> None:
    run_hourly(world, 3)
    world.kafka.add_partitions("orders", 1)
    world.kafka.produce(tp(2), 7, world.now - DAY)
    found = one(world)
    assert (found.lag, found.lag_seconds) == (7, 86400)  # it may have been there before the last window was planned


def test_what_planning_would_refuse_is_lost(world: World) -> None:
    run_hourly(world, 3)
    world.kafka.recreate("orders", 2)
    found = one(world)
    assert (found.verdict, found.lag) == ("LOST", None)
    world.kafka.delete("orders")
    assert one(world).verdict == "LOST"


def test_a_group_that_never_planned_is_ok(world: World) -> None:
    found = one(world)
    assert (found.verdict, found.lag, found.reason) == ("OK", None, "Nothing is planned yet")


def test_with_skip_lost_records_are_lost_until_the_next_plan_records_them(world: World) -> None:
    world.configure(on_data_loss=OnDataLoss.SKIP)
    run_hourly(world, 3)
    world.kafka.produce(tp(0), 10, world.now)
    world.kafka.expire(tp(0), 185)
    assert one(world).verdict == "LOST"
    world.run(claim("skips"))
    assert one(world).verdict == "OK"


@pytest.mark.slow
def test_many_groups_cost_a_few_lookups(world: World) -> None:
    groups = []
    for number in range(60):
        if number < 20:
            world.kafka.create(f"t{number}", 5)
            for partition in range(5):
                for record in range(20):
                    world.kafka.produce(tp(partition, f"t{number}"), 1, world.now - record * HOUR)
        groups.append(group(f"g{number}", topics=[f"t{number % 20}"], max_offsets=10 + number))
        world.service.plan(groups[-1], Claim(f"d{number}", "run", "load"), lambda _: True)
    world.kafka.calls.clear()
    found = look(world, *groups)
    assert {one.verdict for one in found.values()} == {"OK"}
    assert world.kafka.calls[:2] == ["snapshot", "retentions"]
    assert set(world.kafka.calls[2:]) == {"first_records"}
    assert len(world.kafka.calls) <= 2 + MAX_ROUNDS


def test_many_partitions_cost_twelve_lookups_also_if_transactions_hide_records_and_a_log_falls_back(
    world: World,
) -> None:
    partitions, times = 200, Random(7)
    world.kafka.create("wide", partitions)
    for partition in range(partitions):
        number = 60 if partition % 2 else 40  # of the latter, nothing but what a transaction hides is unread
        for seconds in sorted(times.sample(range(2 * 86_400, 6 * 86_400), number), reverse=True):
            world.kafka.produce(tp(partition, "wide"), 1, world.now - timedelta(seconds=seconds))
    wide = group("wide", topics=["wide"], max_offsets=40 * partitions)
    claimed = Claim("d", "run", "load")
    [held] = world.service.plan(wide, claimed, lambda _: True)
    attempt = world.service.start_attempt(held.window, claimed)
    world.service.end_attempt(attempt, Outcome.SUCCEEDED, held.window.span)
    world.service.commit(held.window.id, claimed, attempt)
    for partition in range(0, partitions, 2):
        world.kafka.open_transaction(tp(partition, "wide"))
        world.kafka.produce(tp(partition, "wide"), 3, world.now - DAY)
    world.kafka.fall_back_once(tp(0, "wide"), 39)
    world.kafka.calls.clear()
    found = look(world, wide)["wide"]
    assert sum(p.hidden_to is not None for p in found.partitions.values()) == partitions / 2
    assert sum(p.lag == 20 and p.lag_seconds is not None for p in found.partitions.values()) == partitions / 2
    lookups = [call for call in world.kafka.calls if call != "retentions"]
    assert (lookups.count("snapshot"), lookups.count("bounds")) == (1, 3), (
        "the second look at the log that fell back is one"
    )
    assert len(lookups) <= MOST_LOOKUPS


def test_what_a_look_has_found_in_the_timestamp_index_is_not_asked_again_while_it_can_not_change(world: World) -> None:
    for hour in range(48, 0, -1):
        world.kafka.produce(tp(0), 5, world.now - hour * HOUR)
    world.configure(max_offsets=100)
    world.run(claim("reads-some"))
    first = one(world)
    asked = world.kafka.calls.count("first_records")
    assert asked > 1
    world.kafka.produce(tp(0), 5, world.now)
    assert one(world).lag_seconds == first.lag_seconds
    assert world.kafka.calls.count("first_records") == asked
    world.kafka.expire(tp(0), 30)
    one(world)
    assert world.kafka.calls.count("first_records") > asked, "the first record of the log is another one"
    world.run(claim("reads-more"))
    asked = world.kafka.calls.count("first_records")
    assert (one(world).lag_seconds or 0) < (first.lag_seconds or 0)
    assert world.kafka.calls.count("first_records") > asked, "the watermark has moved"


@pytest.fixture
def looked_at(world: World) -> World:
    """A group with a backlog of two days that this process has looked at."""
    for hour in range(48, 0, -1):
        world.kafka.produce(tp(0), 5, world.now - hour * HOUR)
    world.configure(max_offsets=100)
    world.run(claim("reads-some"))
    assert one(world).lag_seconds == pytest.approx(28 * 3600, rel=0.05)
    return world


def test_what_a_look_has_found_does_not_count_for_a_log_that_was_cut_back_and_filled_again(looked_at: World) -> None:
    looked_at.kafka.truncate(tp(0), looked_at.watermark[0])
    looked_at.kafka.produce(tp(0), 50, looked_at.now)
    seen = one(looked_at).lag_seconds
    looked_at.kafka.found_times.clear()  # as another process
    assert seen == one(looked_at).lag_seconds


def test_what_a_look_has_found_does_not_count_for_a_topic_without_an_id_that_may_be_another(looked_at: World) -> None:
    looked_at.kafka.tells_ids = False
    looked_at.kafka.recreate("orders", 2)
    looked_at.kafka.produce(tp(0), 300, looked_at.now)
    assert one(looked_at).lag_seconds == pytest.approx(0, abs=60)


@pytest.mark.parametrize("is_readable", [True, False])
def test_nothing_is_kept_of_a_topic_that_is_or_may_be_compacted(world: World, *, is_readable: bool) -> None:
    world.kafka.configure("orders", cleanup_policy="compact,delete")
    world.kafka.tells_configs = is_readable
    for hour in range(48, 0, -1):
        world.kafka.produce(tp(0), 5, world.now - hour * HOUR)
    world.configure(max_offsets=100)
    world.run(claim("reads-some"))
    one(world)
    assert not world.kafka.found_times


@pytest.fixture
def half(world: World) -> World:
    """A world whose Kafka tells offsets and nothing about time. Three records are unread."""
    world.kafka.__class__ = NoTimes
    run_hourly(world, 3)
    world.kafka.produce(tp(0), 3, world.now)
    return world


def test_without_an_answer_about_time_the_lag_is_known_and_the_verdict_is_not(half: World) -> None:
    found = one(half)
    assert (found.lag, found.lag_seconds, found.verdict) == (3, None, None)
    assert (found.error, found.error_kind) == ("no answer about times", "KafkaUnavailableError")
    assert found.notes == ("lag in time and headroom are not known: no answer about times",)
    half.now += 5 * HOUR
    found = one(half)
    # The silence alone would be STALLED, but the group may be AT RISK.
    assert found.verdict is None
    assert found.reason.startswith("Not known: no answer about times. By what is known: STALLED: 3 offsets unread")


def test_of_half_an_answer_about_time_no_number_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.configure(max_offsets=1_500)
    for minutes in range(0, 8_000, 4):
        world.kafka.produce(tp(0), 1, world.now - 6 * DAY + timedelta(minutes=minutes))
    world.run(claim("some of them"))
    assert one(world).lag_seconds == pytest.approx(6 * 86_400 - 6_000 * 60, rel=0.02)
    world.kafka.found_times.clear()  # as another process
    answers = [world.kafka.first_records]

    def answer_once(wanted: Any) -> Any:
        if not answers:
            raise KafkaUnavailableError("no answer about times")
        return answers.pop()(wanted)

    monkeypatch.setattr(world.kafka, "first_records", answer_once)
    found = one(world)
    assert not answers
    assert (found.lag, found.lag_seconds, found.headroom_seconds, found.verdict) == (500, None, None, None)


def test_a_topic_without_an_answer_about_time_harms_only_the_groups_that_need_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_hourly(world, 3)
    world.kafka.create("clicks")
    clicks, both = group("clicks", topics=["clicks"]), group("both", topics=["clicks", "orders"])
    for name in ("orders", "clicks"):
        world.kafka.configure(name, retention_ms=str(7 * 86_400_000))
        world.kafka.produce(tp(0, name), 5, world.now)
    for one_group in (clicks, both):
        world.service.plan(one_group, claim(one_group.name), Live())
    world.now += timedelta(minutes=10)
    answer = world.kafka.first_records

    def answer_for_orders(wanted: Any) -> Any:
        if any(probe.partition.topic == "clicks" for probe in wanted):
            raise KafkaUnavailableError("no leader (clicks-0)", topics=["clicks"])
        return answer(wanted)

    monkeypatch.setattr(world.kafka, "first_records", answer_for_orders)
    found = look(world, clicks, world.group, both)
    assert (found["lake"].verdict, found["lake"].lag_seconds, found["lake"].error) == ("OK", 600, None)
    assert found["lake"].notes == ()
    for name, lag in (("clicks", 5), ("both", 190)):
        assert (found[name].verdict, found[name].lag, found[name].error) == (None, lag, "no leader (clicks-0)")
        assert found[name].notes == ("lag in time and headroom are not known: no leader (clicks-0)",)


def test_a_topic_without_an_answer_about_transactions_harms_only_the_groups_that_need_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.kafka.create("clicks")
    clicks = group("clicks", topics=["clicks"])
    world.service.plan(clicks, claim("first"), Live())
    run_hourly(world, 3)
    world.kafka.open_transaction(tp(0))
    world.kafka.produce(tp(0), 10, world.now)
    world.now += 6 * DAY + 20 * HOUR
    run_hourly(world, 3, number=0)
    bounds = world.kafka.bounds

    def answer_for_orders(partitions: Any, level: Any) -> Any:
        if any(partition.topic == "clicks" for partition in partitions):
            raise KafkaUnavailableError("no leader (clicks-0)", topics=["clicks"])
        return bounds(partitions, level)

    monkeypatch.setattr(world.kafka, "bounds", answer_for_orders)
    found = look(world, clicks, world.group)
    assert (found["lake"].verdict, found["lake"].error) == ("AT RISK", None)
    assert (found["clicks"].verdict, found["clicks"].error) == (None, "no leader (clicks-0)")


def test_a_kafka_that_is_away_is_asked_once_for_all_its_groups(half: World) -> None:
    other = group("other")
    half.service.plan(other, claim("other"), Live())
    half.kafka.first_records = Mock(side_effect=KafkaUnavailableError("no answer (orders-0)", topics=["orders"]))  # type: ignore[method-assign]
    found = look(half, half.group, other)
    assert [lag.error for lag in found.values()] == ["no answer (orders-0)"] * 2
    assert half.kafka.first_records.call_count == 1


def test_of_half_an_answer_about_two_partitions_no_headroom_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.configure(max_offsets=1_500)
    for minutes in range(0, 9_000, 4):
        world.kafka.produce(tp(1), 1, world.now - 6 * DAY - 20 * HOUR + timedelta(minutes=minutes))
    world.run(claim("some of them"))
    world.kafka.produce(tp(0), 5, world.now - 12 * HOUR)
    assert one(world).headroom_seconds == pytest.approx(372_180, rel=0.02)
    world.kafka.found_times.clear()  # as another process
    answers = [world.kafka.first_records]

    def answer_once(wanted: Any) -> Any:
        if not answers:
            raise KafkaUnavailableError("no answer about times", topics=["orders"])
        return answers.pop()(wanted)

    monkeypatch.setattr(world.kafka, "first_records", answer_once)
    found = one(world)
    assert not answers
    assert (found.lag_seconds, found.headroom_seconds, found.needed_seconds, found.verdict) == (None, None, None, None)
    assert {p.headroom_seconds for p in found.partitions.values()} == {None}


def test_without_an_answer_about_transactions_no_headroom_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_hourly(world, 3)
    world.kafka.open_transaction(tp(1))
    world.kafka.produce(tp(1), 10, world.now)
    world.now += 6 * DAY + 20 * HOUR
    world.kafka.produce(tp(0), 10, world.now)
    assert one(world).verdict == "AT RISK"
    monkeypatch.setattr(world.kafka, "bounds", Mock(side_effect=KafkaUnavailableError("no answer about ends")))
    found = one(world)
    assert (found.lag, found.lag_seconds, found.headroom_seconds, found.verdict) == (10, 0, None, None)


def test_topics_that_fail_one_after_another_cost_no_more_than_two_searches(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"topic-{number}" for number in range(10)]
    groups = [group(name, topics=[name], max_offsets=300) for name in names]
    random = Random(3)
    for of in groups:
        world.kafka.create(of.name)
        world.kafka.configure(of.name, retention_ms=str(7 * 86_400_000))
        for age in sorted((random.randrange(86_400, 6 * 86_400) for _ in range(400)), reverse=True):
            world.kafka.produce(tp(0, of.name), 1, world.now - timedelta(seconds=age))
        world.group = of
        world.run(claim(of.name))
    answer, asked = world.kafka.first_records, count(1)

    def fail_at_each_second(wanted: Any) -> Any:
        if (number := next(asked)) % 2 == 0:
            topic = sorted(probe.partition.topic for probe in wanted)[0]
            raise KafkaUnavailableError(f"no leader ({topic}), {number}", topics=[topic])
        return answer(wanted)

    monkeypatch.setattr(world.kafka, "first_records", fail_at_each_second)
    found = look(world, *groups)
    assert next(asked) - 1 <= 2 * MAX_ROUNDS
    assert len({lag.error for lag in found.values()} - {None}) == 2


def test_what_needs_no_answer_about_time_is_known_without_one(half: World) -> None:
    half.run(claim("reads all"))
    assert (one(half).verdict, one(half).error) == ("OK", None)
    half.kafka.produce(tp(0), 9, half.now)
    half.kafka.expire(tp(0), 190)
    assert (one(half).verdict, one(half).error) == ("LOST", None)


def test_of_topics_with_different_retention_headroom_and_need_are_those_of_one_partition(world: World) -> None:
    world.kafka.create("clicks")
    world.kafka.configure("clicks", retention_ms="3600000")
    world.configure(topics=["clicks", "orders"])
    for name in ("clicks", "orders"):
        world.kafka.produce(tp(0, name), 5, world.now)
    world.run(claim("first"))
    for name in ("clicks", "orders"):
        world.kafka.produce(tp(0, name), 5, world.now)
    world.now += timedelta(minutes=20)
    found = one(world)
    assert (found.headroom_seconds, found.needed_seconds) == (40 * 60, 360), "those of clicks: orders has days"
    [needed] = [
        family for family in families([GroupNow(world.group, found, True)], world.now) if "needed" in family.name
    ]
    assert needed.values == {("lake", "clicks"): 360, ("lake", "orders"): 60480}


def test_of_a_topic_that_never_was_nothing_is_lost_and_nothing_is_known(world: World) -> None:
    typo = group("typo", topics=["ordres"])
    [found] = look(world, typo).values()
    why = "Kafka has no topic ordres: create it, or correct the group's topics"
    assert (found.verdict, found.lost, found.error, found.error_kind) == (None, 0, why, "MissingPartitionError")
    assert found.trouble == why
    run_hourly(world, 3)
    world.configure(topics=["orders", "ordres"])
    found = one(world)
    assert (found.verdict, found.lag, found.trouble) == (None, 0, why)
    assert found.reason == f"Not known: {why}. By what is known: OK: Nothing is unread"


def expire_unread(world: World) -> None:
    world.kafka.produce(tp(0), 100, world.now)
    world.kafka.expire(tp(0), 200)


def come_near_retention(world: World) -> None:
    world.kafka.produce(tp(0), 100, world.now)
    world.now += 6 * DAY + 20 * HOUR


def leave_unread(world: World) -> None:
    world.kafka.produce(tp(1), 1, world.now)
    world.now += 10 * HOUR


@pytest.mark.parametrize(
    ("happens", "verdict"),
    [
        (expire_unread, "LOST"),
        (lambda world: world.kafka.recreate("orders", 2), "LOST"),
        (lambda world: world.kafka.delete("orders"), "LOST"),
        (come_near_retention, "AT RISK"),
        (leave_unread, "STALLED"),
    ],
)
def test_a_topic_that_never_was_hides_nothing_that_is_known_of_another(
    world: World, happens: Callable[[World], None], verdict: str
) -> None:
    run_hourly(world, 3)
    happens(world)
    without = one(world)
    world.configure(topics=["orders", "ordres"])
    found = one(world)
    assert (found.verdict, found.lag, found.lost, found.error) == (verdict, without.lag, without.lost, None)
    assert found.trouble == "Kafka has no topic ordres: create it, or correct the group's topics"
    assert found.reason.startswith(without.reason)
    assert found.reason.endswith(found.trouble)


def test_a_commit_and_retention_between_ledger_and_kafka_are_no_loss(world: World) -> None:
    run_hourly(world, 3)
    other = group("other")
    world.service.plan(other, claim("other"), Live())
    world.kafka.produce(tp(0), 60, world.now)

    def open_log(_: KafkaGroup) -> LogOffsets:
        world.run(claim("meanwhile"))
        world.kafka.produce(tp(0), 5, world.now)
        world.kafka.expire(tp(0), 240)
        return world.kafka

    found = freshness.look([world.group, other], world.ledger, open_log, world.now)
    assert (found["lake"].verdict, found["lake"].lag, found["lake"].lost) == ("OK", 5, 0)
    assert (found["other"].verdict, found["other"].lost) == ("LOST", 240)
    assert world.kafka.calls.count("snapshot") == 5 + 2, "five plans, and two looks"


DAMAGES = {
    "its open window": "UPDATE kafka_offsets_windows SET ranges = 'x' WHERE state = 'planned'",
    "the times of a commit": "UPDATE kafka_offsets_windows SET planned_at = 'x' WHERE state = 'committed'",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_row_harms_only_its_own_group(world: World, damage: str) -> None:
    other = group("other")
    world.kafka.produce(tp(0), 60, world.now)
    world.group, lake = other, world.group
    world.run(claim("other"))
    world.service.plan(other, claim("other open"), Live())
    with world.ledger._engine.begin() as connection:
        connection.exec_driver_sql(damage)
    world.group = lake
    run_hourly(world, 3)
    found = look(world, lake, other)
    assert (found["lake"].verdict, found["lake"].error) == ("OK", None)
    assert (found["other"].verdict, found["other"].error_kind) == (None, "DamagedRowError")
    assert "its row is damaged" in found["other"].reason
    with pytest.raises(LedgerError, match="its row is damaged"):
        look(world, other)


def test_a_damaged_window_that_only_the_lag_in_time_needs_hides_no_loss_and_nothing_of_others(world: World) -> None:
    lake, other = world.group, group("other")
    world.kafka.produce(tp(0), 60, world.now - 3 * DAY)
    world.kafka.produce(tp(1), 60, world.now - 3 * DAY)
    for world.group in (lake, other):
        world.run(claim(world.group.name))
    world.kafka.produce(tp(0), 10, world.now - DAY)
    world.kafka.produce(tp(1), 100, world.now)
    world.plan(claim("open, so that the watermark needs no older window"))
    with world.ledger._engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE kafka_offsets_windows SET ranges = 'x' WHERE state = 'committed'"
            " AND group_id = (SELECT id FROM kafka_offsets_groups WHERE name = 'other')"
        )
    found = look(world, lake, other)
    assert (found["lake"].lag_seconds < HOUR.total_seconds(), found["lake"].notes) == (True, ())  # type: ignore[operator]
    assert (found["other"].lag, found["other"].error) == (110, None)
    assert found["other"].lag_seconds == pytest.approx(DAY.total_seconds(), rel=0.02)
    [note] = found["other"].notes
    assert note.startswith("whether records with an old time came late is not known: The ledger has ")
    world.kafka.expire(tp(1), 100)
    assert (look(world, lake, other)["other"].verdict, look(world, lake, other)["other"].lost) == ("LOST", 40)


def late_records_in(world: World, groups: Sequence[KafkaGroup]) -> None:
    """Let groups read all there is, and then a record come that is dated long before that."""
    world.kafka.produce(tp(0), 60, world.now - 3 * DAY)
    for world.group in groups:
        world.run(claim(world.group.name))
    world.kafka.produce(tp(0), 10, world.now - DAY)


def test_the_windows_that_records_with_an_old_time_need_are_read_in_one_connection(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [group(f"group-{number}") for number in range(5)]
    late_records_in(world, groups)
    opened = count()
    begin = world.ledger.one_connection
    monkeypatch.setattr(world.ledger, "one_connection", lambda: (next(opened), begin())[1])
    found = look(world, *groups)
    assert all(lag.lag_seconds < DAY.total_seconds() for lag in found.values())  # type: ignore[operator]
    assert next(opened) == 2, "what is there, and after Kafka those windows"


def test_without_the_ledger_after_kafka_the_time_of_a_record_counts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    late_records_in(world, [world.group])
    monkeypatch.setattr(world.ledger, "windows", Mock(side_effect=LedgerUnavailableError("away")))
    found = one(world)
    assert (found.lag, found.lag_seconds, found.error) == (10, pytest.approx(DAY.total_seconds(), abs=120), None)
    assert found.notes == ("whether records with an old time came late is not known: away",)


def test_a_healthy_look_asks_the_ledger_before_kafka_and_not_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_hourly(world, 3)
    world.kafka.produce(tp(0), 10, world.now)
    asked = Mock(wraps=world.ledger.load_all)
    monkeypatch.setattr(world.ledger, "load_all", asked)
    assert one(world).verdict == "OK"
    assert asked.call_count == 1


def test_without_the_ledger_after_kafka_a_loss_is_told_as_it_seems(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_hourly(world, 3)
    other = group("other")
    world.service.plan(other, claim("other"), Live())
    world.kafka.produce(tp(0), 100, world.now)
    world.kafka.expire(tp(0), 200)
    answers = [world.ledger.load_all]

    def answer_once(names: Sequence[str]) -> Any:
        if not answers:
            raise LedgerUnavailableError("away")
        return answers.pop()(names)

    monkeypatch.setattr(world.ledger, "load_all", answer_once)
    assert look(world, world.group, other)["lake"].verdict == "LOST"
    assert not answers


def test_a_statement_that_the_ledger_refuses_is_not_sent_for_each_group(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Mock(side_effect=LedgerError("the ledger refused a statement"))
    monkeypatch.setattr(world.ledger, "load_all", asked)
    with pytest.raises(LedgerError):
        look(world, *(group(f"group-{number}") for number in range(50)))
    assert asked.call_count == 1


def test_one_damaged_row_of_many_groups_costs_few_statements(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [group(f"group-{number}") for number in range(32)]
    world.kafka.produce(tp(0), 5, world.now)
    for world.group in groups:
        world.run(claim(world.group.name))
    with world.ledger._engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE kafka_offsets_windows SET ranges = 'x' WHERE group_id = (SELECT id FROM kafka_offsets_groups WHERE name = 'group-7')"
        )
    asked = Mock(wraps=world.ledger.load_all)
    monkeypatch.setattr(world.ledger, "load_all", asked)
    found = look(world, *groups)
    assert [name for name, lag in found.items() if lag.error] == ["group-7"]
    assert asked.call_count <= 1 + 2 * 5


def test_after_a_reset_the_begin_of_the_group_is_no_silence(world: World) -> None:
    run_hourly(world, 60)
    world.kafka.produce(tp(0), 1, world.now + 30 * DAY)
    world.run(claim("reads it"))
    world.service.reset(world.group, '{"orders": {"0": 3600}}', "ada", "a bug", supersede=True)
    world.kafka.produce(tp(0), 1, world.now)
    assert "nothing was ever committed" not in one(world).reason


@pytest.mark.parametrize("error", [LedgerUnavailableError("away"), LedgerSchemaError("of another version")])
def test_a_ledger_that_can_not_be_asked_is_asked_once_and_raises(
    world: World, monkeypatch: pytest.MonkeyPatch, error: LedgerError
) -> None:
    asked = Mock(side_effect=error)
    monkeypatch.setattr(world.ledger, "load_all", asked)
    with pytest.raises(type(error)):
        look(world, group("lake"), group("other"))
    assert asked.call_count == 1


def test_a_kafka_that_is_away_harms_no_group_of_another(world: World) -> None:
    run_hourly(world, 3)
    other, lost = group("other", kafka_conn_id="other"), group("lost", kafka_conn_id="lost")

    def open_log(of: KafkaGroup) -> LogOffsets:
        if of.kafka_conn_id == "lost":
            raise NoConnectionError("lost", "kafka://")
        if of.kafka_conn_id == "other":
            raise KafkaUnavailableError("Kafka did not answer")
        return world.kafka

    found = freshness.look([world.group, other, lost], world.ledger, open_log, world.now)
    assert list(found) == ["lake", "other", "lost"]
    assert found["lake"].verdict == "OK"
    assert (found["other"].verdict, found["other"].error) == (None, "Kafka did not answer")
    assert found["lost"].verdict is None
    assert "lost" in (found["lost"].error or "")


def test_groups_of_one_kafka_open_it_once_also_if_they_name_it_differently(world: World) -> None:
    opened = []

    def open_log(of: KafkaGroup) -> LogOffsets:
        opened.append(of.name)
        return world.kafka

    run_hourly(world, 1)
    groups = [world.group, group("b"), group("c", kafka_conn_id="other")]
    freshness.look(groups, world.ledger, open_log, world.now)
    assert opened == ["lake", "c"]
    opened.clear()
    freshness.look(groups, world.ledger, open_log, world.now, is_one_kafka=True)
    assert opened == ["lake"]


def test_a_run_of_many_windows_is_one_run(world: World) -> None:
    world.configure(max_offsets=10, max_open_windows=8)
    for hour in range(3):
        world.kafka.produce(tp(0), 80, world.now)
        at = world.now
        planned = world.ask(claim(f"hour {hour}"), Live(at_most=8))
        assert len(planned) == 8
        for one_of in planned:
            world.now += timedelta(minutes=1)
            world.do(one_of.window, claim(f"hour {hour}"))
        world.die(claim(f"hour {hour}"))
        world.now = at + HOUR
    world.now -= timedelta(minutes=1)
    world.kafka.produce(tp(0), 50, world.now - timedelta(minutes=45))
    found = one(world)
    assert (found.verdict, found.lag, found.pace.interval_seconds) == ("OK", 50, 3600)


def test_a_transaction_that_hangs_is_at_risk_before_its_records_are_lost(world: World) -> None:
    run_hourly(world, 3)
    world.kafka.open_transaction(tp(0))
    world.kafka.produce(tp(0), 10, world.now)
    world.now += timedelta(minutes=14)
    found = one(world)
    assert (found.verdict, found.lag, found.headroom_seconds, found.notes) == ("OK", 0, None, ())
    world.now += 6 * DAY
    run_hourly(world, 3, number=0)
    found = one(world)
    assert (found.verdict, found.lag, found.lag_seconds) == ("STALLED", 0, 0)
    assert (
        found.reason == "No run can read on: a transaction that is open for more than 15 min hides records of orders-0"
    )
    assert found.headroom_seconds == (DAY - 3 * HOUR - timedelta(minutes=14)).total_seconds()
    assert found.notes == ("an open transaction hides records: orders-0 from offset 180 on",)
    world.now += 6 * HOUR
    found = one(world)
    assert found.verdict == "AT RISK"
    assert found.reason.startswith("Retention may remove unread records of orders-0 in 14 h")


def test_records_that_come_between_two_questions_are_no_transaction(world: World) -> None:
    run_hourly(world, 3)
    bounds = world.kafka.bounds

    def busy(partitions: Any, level: Any) -> Any:
        world.kafka.produce(tp(0), 1, world.now - DAY)
        return bounds(partitions, level)

    world.kafka.bounds = busy  # type: ignore[method-assign]
    found = one(world)
    assert (found.verdict, found.lag, found.headroom_seconds, found.notes) == ("OK", 0, None, ())


def test_who_reads_uncommitted_records_is_hidden_none(world: World) -> None:
    world.configure(isolation_level="read_uncommitted")
    run_hourly(world, 3)
    world.kafka.open_transaction(tp(0))
    world.kafka.produce(tp(0), 10, world.now - DAY)
    assert (one(world).lag, world.kafka.calls.count("bounds")) == (10, 0)


def test_a_transaction_that_puts_a_group_at_risk_is_not_forgotten_if_kafka_answers_half(world: World) -> None:
    run_hourly(world, 3)
    world.kafka.open_transaction(tp(0))
    world.kafka.produce(tp(0), 10, world.now)
    world.now += 6 * DAY + 20 * HOUR
    run_hourly(world, 3, number=0)
    assert one(world).verdict == "AT RISK"
    world.kafka.found_times.clear()  # as another process
    world.kafka.__class__ = NoTimes
    found = one(world)
    assert (found.verdict, found.lag, found.error) == (None, 0, "no answer about times")


def test_without_an_answer_about_transactions_the_lag_is_known_and_the_verdict_is_not(world: World) -> None:
    run_hourly(world, 3)

    def away(partitions: Any, level: Any) -> Any:
        raise KafkaUnavailableError("no answer about ends")

    world.kafka.bounds = away  # type: ignore[method-assign]
    found = one(world)
    assert (found.verdict, found.lag, found.error) == (None, 0, "no answer about ends")
    assert found.notes == ("whether open transactions hide records is not known: no answer about ends",)


def test_a_record_dated_in_the_future_makes_no_group_on_time(world: World) -> None:
    run_hourly(world, 4)
    world.kafka.produce(tp(0), 1, world.now + 30 * DAY)
    world.run(claim("reads it"))
    world.kafka.produce(tp(0), 10, world.now)
    world.now += timedelta(minutes=30)
    found = one(world)
    assert (found.verdict, found.lag, found.lag_seconds) == ("OK", 10, None)
    assert found.headroom_seconds == 7 * 86400  # never too large: Kafka keeps the record before them for longer
    assert found.notes == ("a record dated in the future hides the age of those after it: orders-0",)
    world.now += 2 * HOUR
    assert one(world).verdict == "STALLED"


def test_a_group_whose_first_job_never_succeeds_is_stalled_also_where_the_lag_in_time_is_not_known(
    world: World,
) -> None:
    world.kafka.produce(tp(0), 1, world.now + 30 * DAY)
    world.configure(starting_offsets="latest")
    window = world.plan(claim("first")).window
    world.kafka.produce(tp(0), 10, world.now)
    for _ in range(47):
        world.work(window, claim("first"), Outcome.FAILED)
        world.now += HOUR
    found = one(world)
    assert (found.verdict, found.lag, found.lag_seconds) == ("OK", 10, None)
    world.now += 2 * HOUR
    found = one(world)
    assert found.verdict == "STALLED"
    assert found.reason == (
        "10 offsets unread, for an unknown time (no usual pace yet), and nothing was ever committed"
    )


def test_a_clock_that_runs_ahead_by_seconds_is_no_future(world: World) -> None:
    run_hourly(world, 4)
    world.kafka.produce(tp(0), 10, world.now + timedelta(seconds=50))
    found = one(world)
    assert (found.lag_seconds, found.notes) == (0, ())


def test_by_size_nothing_is_known_of_a_log_that_still_begins_at_0(world: World) -> None:
    world.kafka.configure("orders", retention_ms="-1", retention_bytes="1000000")
    run_hourly(world, 3)
    world.kafka.produce(tp(0), 100, world.now)
    found = one(world)
    assert (found.headroom_seconds, found.is_unlimited) == (None, False)
    assert found.notes == ("the headroom by retention.bytes is not known yet: orders-0",)


def test_kafkas_are_asked_at_one_moment_and_a_silent_one_makes_no_other_wait(world: World) -> None:
    run_hourly(world, 1)
    groups = [group(f"g{number}", kafka_conn_id=f"kafka-{number}") for number in range(4)]
    all_there = Barrier(len(groups))

    def open_log(of: KafkaGroup) -> Any:
        def snapshot(*asked: Any) -> LogSnapshot:
            all_there.wait(ANSWER)  # one after the other, the first one would wait for good
            if of.name == "g0":
                raise KafkaUnavailableError("Kafka did not answer")
            return world.kafka.snapshot(*asked)

        return SimpleNamespace(snapshot=snapshot)

    found = freshness.look(groups, world.ledger, open_log, world.now, at_once=4)
    assert list(found) == ["g0", "g1", "g2", "g3"]
    assert [lag.error is None for lag in found.values()] == [False, True, True, True]
