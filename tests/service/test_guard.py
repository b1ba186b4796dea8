"""Planning near the end of retention: warn or fail, and ask Kafka little."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from airflow_kafka_offsets.core.errors import (
    AtRiskError,
    DataLossError,
    KafkaRefusedError,
    KafkaUnavailableError,
    LogTruncatedError,
)
from airflow_kafka_offsets.core.lag.search import MAX_ROUNDS
from airflow_kafka_offsets.core.plan.request import Live
from airflow_kafka_offsets.core.window import Outcome
from tests.core.examples import claim, tp
from tests.service.memory_log import NoTimes
from tests.service.test_turns import before_the_turn, plan_aside
from tests.service.world import World

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def world(world: World) -> World:
    """A group that read a first window a while ago, from a topic that keeps its records for a week."""
    world.kafka.configure("orders", retention_ms="604800000")
    world.kafka.produce(tp(0), 10, world.now)
    world.run(claim("first"))
    world.kafka.calls.clear()
    return world


def backlog(world: World) -> None:
    """Let partition 0 have records of seven days, and partition 1 of the last six."""
    for hour in range(24 * 7):
        world.kafka.produce(tp(0), 10, world.now + hour * HOUR)
        if hour >= 24:
            world.kafka.produce(tp(1), 10, world.now + hour * HOUR)
    world.now += 7 * DAY - 5 * timedelta(minutes=1)


def test_a_group_that_keeps_up_hears_nothing_and_asks_once_more(world: World) -> None:
    world.kafka.produce(tp(0), 10, world.now)
    planned = world.plan(claim("second"))
    assert planned.warnings == ()
    assert world.kafka.calls == ["snapshot", "retentions", "first_records"]


FEW = 6
"""So many questions to Kafka a plan has at most, by docs/guarantees.md, if no log ends too early and retention is far."""


def until_now(world: World) -> Live:
    """Ask for a window that ends now by the records' time, as at the end of a data interval."""
    end: datetime = world.now + timedelta(minutes=1)
    return Live(until=end, ends_at=end)


@pytest.fixture
def by_pattern(world: World) -> World:
    """Let the group read by pattern, with a topic that gets no new records; then let another broker lead."""
    world.kafka.create("orders-rare")
    world.kafka.configure("orders-rare", retention_ms="604800000")
    world.configure(topics=(), topics_pattern="orders.*")
    world.run(claim("by pattern"))
    world.kafka.elect(tp(0))
    world.kafka.produce(tp(0), 10, world.now)
    world.kafka.calls.clear()
    return world


def test_a_plan_that_asks_all_that_there_is_to_ask_asks_a_few_questions(by_pattern: World) -> None:
    assert by_pattern.plan(claim("second"), until_now(by_pattern)).window.span == 10
    calls = by_pattern.kafka.calls
    assert set(calls) == {"topics", "snapshot", "offsets_at", "epoch_ends", "retentions", "first_records"}
    assert len(calls) == FEW


def test_a_first_plan_asks_no_more_of_them(quick_folder: Any) -> None:
    (quick_folder / "other").mkdir()
    other = World(quick_folder / "other", topics=(), topics_pattern="orders.*", starting_offsets="2026-01-01T00:00:00Z")
    other.kafka.configure("orders", retention_ms="604800000")
    other.kafka.create("orders-rare")
    other.kafka.produce(tp(0), 10, other.now)
    assert other.plan(claim(), until_now(other)).window.span == 10
    assert other.kafka.calls.count("offsets_at") == 2
    assert len(other.kafka.calls) == FEW


def test_a_log_that_seems_to_end_too_early_is_looked_at_five_times_more(by_pattern: World) -> None:
    by_pattern.kafka.truncate(tp(0), 5)
    with pytest.raises(LogTruncatedError):
        by_pattern.plan(claim("second"), until_now(by_pattern))
    assert by_pattern.kafka.calls.count("bounds") == 5
    assert len(by_pattern.kafka.calls) <= FEW + 5


def test_near_the_end_of_retention_a_plan_asks_at_most_ten_questions_more(by_pattern: World) -> None:
    backlog(by_pattern)
    assert by_pattern.plan(claim("second"), until_now(by_pattern)).warnings
    more = by_pattern.kafka.calls.count("first_records") - 1
    assert 1 < more <= MAX_ROUNDS == 10
    assert len(by_pattern.kafka.calls) == FEW + more


def test_an_empty_window_asks_only_what_hides_records(world: World) -> None:
    world.plan(claim("second"))
    assert world.kafka.calls == ["snapshot", "bounds"]


def test_an_empty_window_of_a_group_that_nothing_is_hidden_from_asks_nothing_more(world: World) -> None:
    world.configure(isolation_level="read_uncommitted")
    world.plan(claim("second"))
    assert world.kafka.calls == ["snapshot"]


def test_a_run_that_reads_nothing_because_a_transaction_hangs_warns(world: World) -> None:
    world.kafka.open_transaction(tp(0))
    world.kafka.produce(tp(0), 5, world.now)
    waiting = world.plan(claim("second"))
    assert (waiting.window.span, waiting.warnings) == (0, ()), "it may end at any moment"
    world.do(waiting.window, claim("second"))
    world.now += timedelta(minutes=15)
    hanging = world.plan(claim("third"))
    assert hanging.window.span == 0
    [warning] = hanging.warnings
    assert warning.startswith(
        "this window is empty: a transaction that is open for more than 15 min hides records of orders-0"
    )
    world.do(hanging.window, claim("third"))
    world.kafka.produce(tp(1), 3, world.now)
    assert world.plan(claim("fourth")).warnings == (), "this one reads something"


def test_what_hides_records_is_only_a_warning(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise KafkaUnavailableError("away")

    monkeypatch.setattr(world.kafka, "bounds", away)
    assert world.plan(claim("second")).window.span == 0


def test_a_window_that_may_expire_is_a_warning_with_numbers(world: World) -> None:
    backlog(world)
    planned = world.plan(claim("second"))
    [warning] = planned.warnings
    assert warning.startswith(
        "retention may remove records of this window before a job has read them: orders-0 offsets [10, 180) in 4 min"
    )
    assert planned.window.span == 10 * 24 * 13


def test_fail_leaves_nothing_planned(world: World) -> None:
    world.configure(on_at_risk="fail")
    backlog(world)
    before = world.ledger.load("lake")
    with pytest.raises(AtRiskError, match=r"orders-0: retention may remove offsets \[10, 180\) in 4 min.*on_at_risk="):
        world.plan(claim("second"))
    assert world.ledger.load("lake") == before
    assert world.ledger.group("lake") == world.group
    assert world.ledger.load("lake", claim("second")).claimed == ()
    world.configure(on_at_risk="warn")
    assert world.plan(claim("second")).window.seq == 2


def test_with_fail_a_window_that_has_time_is_planned(world: World) -> None:
    world.configure(on_at_risk="fail")
    world.kafka.produce(tp(0), 10, world.now)
    world.now += 6 * DAY  # at risk by its verdict soon, but a window takes minutes
    assert world.plan(claim("second")).window.span == 10


def test_the_first_window_is_warned_about_but_planned(world: World, quick_folder: Any) -> None:
    (quick_folder / "other").mkdir()
    other = World(quick_folder / "other", on_at_risk="fail")
    other.kafka.configure("orders", retention_ms="604800000")
    other.kafka.produce(tp(0), 10, other.now - 7 * DAY)
    assert len(other.plan(claim()).warnings) == 1


def test_without_the_right_to_read_the_configuration_the_definition_counts(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    backlog(world)
    world.kafka.tells_configs = False
    assert world.service.next_window(world.group, world.ledger.load("lake").position).warnings == ()
    assert "may not read the configuration of orders: grant the ACL DescribeConfigs" in caplog.text
    world.configure(retention=7 * DAY)
    assert len(world.plan(claim("second")).warnings) == 1


def test_with_fail_a_hidden_configuration_is_refused(world: World) -> None:
    world.configure(on_at_risk="fail")
    world.kafka.produce(tp(0), 10, world.now)
    world.kafka.tells_configs = False
    with pytest.raises(KafkaRefusedError, match=r"may not read the configuration of orders.*DescribeConfigs"):
        world.plan(claim("second"))
    assert world.ledger.load("lake").open == ()
    world.configure(on_at_risk="fail", retention=7 * DAY)
    assert world.plan(claim("second")).window.span == 10


@pytest.mark.parametrize("policy", ["warn", "fail"])
def test_a_kafka_that_does_not_tell_times_stops_only_who_must_know(world: World, policy: str) -> None:
    world.configure(on_at_risk=policy)
    world.kafka.produce(tp(0), 10, world.now)
    world.kafka.__class__ = NoTimes
    if policy == "fail":
        with pytest.raises(KafkaUnavailableError):
            world.plan(claim("second"))
        assert world.ledger.load("lake").open == ()
    else:
        assert world.plan(claim("second")).window.span == 10


def test_whoever_loses_a_race_near_the_end_of_retention_looks_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    backlog(world)
    world.configure(max_open_windows=2, max_offsets=100)
    before_the_turn(world, monkeypatch, lambda: plan_aside(world, claim("other")))
    planned = world.plan(claim("second"))
    assert planned.window.seq == 3
    assert planned.window.ranges[tp(0)].start == 60
    assert world.kafka.calls.count("snapshot") == 2


def test_whoever_loses_a_race_far_from_it_asks_kafka_nothing_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.kafka.produce(tp(0), 200, world.now)
    world.configure(max_open_windows=2, max_offsets=100)
    before_the_turn(world, monkeypatch, lambda: plan_aside(world, claim("other")))
    assert world.plan(claim("second")).window.seq == 3
    assert world.kafka.calls == ["snapshot", "retentions", "first_records"]


def test_a_window_that_waits_too_long_for_its_retry_is_warned_about_and_never_refused(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.configure(on_at_risk="fail")
    world.kafka.produce(tp(0), 10, world.now)
    failed = world.plan(claim("fails")).window
    world.now += 7 * DAY - 10 * timedelta(minutes=1)
    caplog.clear()
    assert world.plan(claim("fails"), last_clear=1).window == failed
    world.die(claim("fails"))
    assert world.plan(claim("adopts")).window == failed
    warned = [record.getMessage() for record in caplog.records if "retention may remove" in record.getMessage()]
    assert len(warned) == 2
    assert all("records of lake-000002 before a job has read them: orders-0 offsets [10, 20) in" in w for w in warned)


def test_a_window_that_has_time_is_run_again_without_a_word(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.kafka.produce(tp(0), 10, world.now)
    world.plan(claim("second"))
    world.kafka.calls.clear()
    world.plan(claim("second"), last_clear=1)
    assert world.kafka.calls == ["snapshot", "retentions", "first_records"]
    assert "retention" not in caplog.text


def test_a_kafka_that_does_not_tell_times_holds_up_no_retry(world: World) -> None:
    world.configure(on_at_risk="fail")
    world.kafka.produce(tp(0), 10, world.now)
    window = world.plan(claim("second")).window
    world.kafka.__class__ = NoTimes
    assert world.plan(claim("second"), last_clear=1).window == window


def test_one_slow_job_refuses_no_record_that_has_just_arrived(world: World) -> None:
    world.kafka.configure("orders", retention_ms="86400000")
    world.configure(on_at_risk="fail")
    world.kafka.produce(tp(0), 10, world.now)
    slow = world.plan(claim("slow"))
    attempt = world.service.start_attempt(slow.window, claim("slow"))
    world.now += 9 * HOUR
    world.service.end_attempt(attempt, Outcome.SUCCEEDED)
    world.service.commit(slow.window.id, claim("slow"), attempt)
    world.die(claim("slow"))
    world.kafka.produce(tp(0), 10, world.now)
    assert world.plan(claim("next")).warnings == ()


@pytest.mark.parametrize("how", ["skip", "reset"])
def test_after_a_loss_what_is_left_is_read_also_with_fail(world: World, how: str) -> None:
    world.configure(on_at_risk="fail", on_data_loss="skip" if how == "skip" else "fail")
    backlog(world)
    world.now += HOUR
    world.kafka.expire(tp(0), 20)
    if how == "reset":
        with pytest.raises(DataLossError):
            world.plan(claim("second"))
        world.service.reset(world.group, "earliest", "ada", "what is gone is gone")
    planned = world.plan(claim("second"))
    assert planned.window.ranges[tp(0)].start == 20
    assert "this window before a job has read them: orders-0 offsets [20, " in planned.warnings[-1]


def test_whoever_loses_a_race_to_itself_is_warned_about_the_window_that_it_gets(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A task that Airflow takes for dead plans while its next try does: both ask for one run."""
    world.kafka.produce(tp(0), 300, world.now)
    backlog(world)
    world.configure(max_open_windows=3, max_offsets=100)

    def both() -> None:
        for racer in (claim("other"), claim("second")):
            plan_aside(world, racer)
        caplog.clear()

    before_the_turn(world, monkeypatch, both)
    assert world.plan(claim("second")).window.seq == 3
    [warned] = [r.getMessage() for r in caplog.records if "retention may remove records of" in r.getMessage()]
    assert "records of lake-000003 before a job has read them: orders-0 offsets" in warned
