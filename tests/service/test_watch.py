"""Ledger and Kafka are asked once for many who wait, and what is wrong with one harms no other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from airflow_kafka_offsets.core.conditions import (
    CommittedUntil,
    Condition,
    LagAtMost,
    TimePassed,
    UnreadAtLeast,
    WindowCommitted,
    WindowFree,
)
from airflow_kafka_offsets.core.errors import (
    IllegalStepError,
    KafkaAnswerError,
    KafkaLacksError,
    KafkaOffsetsError,
    KafkaRefusedError,
    KafkaUnavailableError,
    LedgerUnavailableError,
    LogTruncatedError,
    MissingPartitionError,
    UnknownWindowError,
)
from airflow_kafka_offsets.core.log import IsolationLevel, LogSnapshot
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.ownership import GroupState
from airflow_kafka_offsets.core.plan.request import Live
from airflow_kafka_offsets.core.plan.waiting import Decision
from airflow_kafka_offsets.core.window import Claim, Window
from airflow_kafka_offsets.service import watch
from tests.core.examples import NOON, claim, group, tp
from tests.service.memory_log import MemoryLog
from tests.service.world import World

HOUR = timedelta(hours=1)


class MoodyLog(MemoryLog):
    """A Kafka that fails for whoever asks about some topics."""

    def __init__(self) -> None:
        super().__init__()
        self.fails: dict[str, KafkaAnswerError] = {}
        self.has_no_times: dict[str, KafkaAnswerError] = {}
        self.is_down = False

    def offsets_at(
        self, partitions: Sequence[TopicPartition], time: datetime, isolation_level: IsolationLevel
    ) -> Mapping[TopicPartition, int | None]:
        """Fail, or answer."""
        for partition in partitions:
            if partition.topic in self.has_no_times:
                raise self.has_no_times[partition.topic]
        return super().offsets_at(partitions, time, isolation_level)

    def snapshot(self, topics: Sequence[str], isolation_level: IsolationLevel) -> LogSnapshot:
        """Fail, or answer."""
        found = super().snapshot(topics, isolation_level)
        for topic in topics:
            if topic in self.fails:
                raise self.fails[topic]
        return found

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Answer, unless all is down."""
        if self.is_down:
            raise KafkaUnavailableError("down")
        return super().topic_ids(topics)


def ask(world: World, *conditions: Condition) -> list[Decision | Exception]:
    """Ask."""
    is_over = world.over.__contains__
    return watch.ask(conditions, lambda: world.ledger, lambda: world.kafka, is_over=is_over, now=world.now)


def is_met(world: World, condition: Condition) -> bool:
    """Ask for one condition."""
    (answer,) = ask(world, condition)
    assert isinstance(answer, Decision), answer
    return answer.is_met


def test_many_conditions_cost_one_snapshot_and_one_lookup_for_each_moment(world: World) -> None:
    loads: list[list[str]] = []
    load_all = world.ledger.load_all

    def counted(names: Sequence[str]) -> Mapping[str, GroupState]:
        loads.append(list(names))
        return load_all(names)

    world.ledger.load_all = counted  # type: ignore[method-assign]
    for number in range(20):
        world.kafka.create(f"t{number}", 3)
    groups = [group(f"g{i}", topics=[f"t{i % 20}"]) for i in range(40)]
    conditions: list[Condition] = []
    for g in groups:
        conditions += [
            UnreadAtLeast(g, 10, HOUR),
            UnreadAtLeast(g, max_age=HOUR),
            LagAtMost(g, 5),
            TimePassed(g, NOON - HOUR),
        ]
    answers = ask(world, *conditions)
    assert all(isinstance(answer, Decision) for answer in answers)
    # The age and the moment happen to be the same time.
    assert world.kafka.calls == ["snapshot", "offsets_at"]
    assert loads == [[g.name for g in groups]]


def test_unread_and_lag_follow_producer_and_commit(world: World) -> None:
    enough, small = UnreadAtLeast(world.group, min_span=10), LagAtMost(world.group, 9)
    world.kafka.produce(tp(0), 9)
    assert (is_met(world, enough), is_met(world, small)) == (False, True)
    world.kafka.produce(tp(1), 1)
    assert (is_met(world, enough), is_met(world, small)) == (True, False)
    world.run(claim())
    assert (is_met(world, enough), is_met(world, small)) == (False, True)


def test_a_planned_window_is_unread_until_it_is_committed(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    world.plan(claim())
    assert is_met(world, UnreadAtLeast(world.group, min_span=10))


def test_an_open_transaction_is_not_there_yet(world: World) -> None:
    world.kafka.open_transaction(tp(0))
    world.kafka.produce(tp(0), 10)
    blind = group(isolation_level="read_uncommitted")
    assert not is_met(world, UnreadAtLeast(world.group, min_span=5))
    assert is_met(world, UnreadAtLeast(blind, min_span=5))
    world.kafka.commit_transaction(tp(0))
    assert is_met(world, UnreadAtLeast(world.group, min_span=5))


def test_a_record_grows_old(world: World) -> None:
    world.kafka.produce(tp(0), 1, at=world.now)
    condition = UnreadAtLeast(world.group, max_age=HOUR)
    assert not is_met(world, condition)
    world.now += HOUR
    assert not is_met(world, condition)
    world.now += timedelta(seconds=1)
    assert is_met(world, condition)


def test_kafkas_time_passes_partition_by_partition(world: World) -> None:
    condition = TimePassed(world.group, NOON)
    world.now = NOON + timedelta(minutes=10)
    world.kafka.produce(tp(0), 1, at=NOON)
    assert not is_met(world, condition)
    assert is_met(world, TimePassed(world.group, NOON, idle_after=timedelta(minutes=5)))
    world.kafka.produce(tp(1), 1, at=NOON - HOUR)
    assert not is_met(world, condition)
    world.kafka.produce(tp(1), 1, at=NOON + timedelta(minutes=1))
    assert is_met(world, condition)


def test_a_downstream_dag_waits_for_the_commit_not_for_the_plan(world: World) -> None:
    until = CommittedUntil("lake", NOON + HOUR)
    assert not is_met(world, until)
    world.kafka.produce(tp(0), 10)
    planned = world.plan(claim(), Live(until=NOON + HOUR)).window
    window = WindowCommitted(planned.id)
    assert (is_met(world, until), is_met(world, window)) == (False, False)
    world.service.commit(planned.id, claim(), world.work(planned, claim()))
    assert (is_met(world, until), is_met(world, window)) == (False, True), "that time has not come"
    world.now = NOON + HOUR
    assert (is_met(world, until), is_met(world, window)) == (True, True)
    assert not is_met(world, CommittedUntil("lake", NOON + 2 * HOUR))
    assert world.kafka.calls == ["snapshot", "retentions"], "a question to the ledger asked Kafka"


def test_the_time_of_a_window_that_was_abandoned_with_a_gap_is_not_waited_for(world: World) -> None:
    world.configure(max_open_windows=3)
    world.run(claim("first"), Live(until=NOON - 3 * HOUR))
    [stuck] = cut(world, 1, Live(until=NOON - 2 * HOUR))
    [done] = cut(world, 1, Live(until=NOON - HOUR))
    do(world, done)
    assert not is_met(world, CommittedUntil("lake", NOON - HOUR))
    world.service.abandon(stuck.id, "ann", "its records are broken", leave_gap=True)
    (answer,) = ask(world, CommittedUntil("lake", NOON - 2 * HOUR))
    assert isinstance(answer, IllegalStepError)
    assert f"{stuck.id} was abandoned" in str(answer)
    assert is_met(world, CommittedUntil("lake", NOON - 3 * HOUR))
    assert is_met(world, CommittedUntil("lake", NOON - HOUR))


def test_a_window_whose_offsets_were_planned_again_after_it_was_abandoned_is_waited_for(world: World) -> None:
    [stuck] = cut(world, 1, Live(until=NOON - 2 * HOUR))
    world.service.abandon(stuck.id, "ann", "its records are broken")
    assert not is_met(world, CommittedUntil("lake", NOON - 2 * HOUR))
    world.run(claim("again"), Live(until=NOON - HOUR))
    assert is_met(world, CommittedUntil("lake", NOON - 2 * HOUR))


ELEVEN = NOON - HOUR


def cut(world: World, number: int, request: Live) -> list[Window]:
    """Let runs that go on get a window each, of one record."""
    windows = []
    for i in range(number):
        world.kafka.produce(tp(0), 1)
        windows.append(world.plan(claim(f"{request.until}-{i}"), request).window)
    return windows


def do(world: World, window: Window) -> None:
    """Let the run that has a window do its work."""
    world.do(window, world.ledger.window(window.id).holder)


def test_a_capped_window_is_no_proof_and_the_group_is_waited_for_until_it_has_caught_up(world: World) -> None:
    world.configure(max_offsets=100)
    world.kafka.produce(tp(0), 400)
    seen = []
    for hours in range(4):
        world.run(claim(f"run-{hours}"), Live(until=ELEVEN + hours * HOUR))
        seen.append((world.watermark[0], is_met(world, CommittedUntil("lake", ELEVEN))))
    assert seen == [(100, False), (200, False), (300, False), (400, True)]
    world.now = ELEVEN + 3 * HOUR
    assert is_met(world, CommittedUntil("lake", ELEVEN + 3 * HOUR))


def test_windows_that_were_cut_at_once_are_waited_for_to_the_last(world: World) -> None:
    world.configure(max_offsets=100, max_open_windows=4)
    world.kafka.produce(tp(0), 400)
    asked = [planned.window for planned in world.ask(claim(), Live(until=ELEVEN, at_most=4))]
    assert [window.planned_until for window in asked] == [ELEVEN] * 4
    seen = []
    for number in (0, 3, 2, 1):  # the last one is committed ahead of others
        world.do(asked[number], claim())
        seen.append(is_met(world, CommittedUntil("lake", ELEVEN)))
    assert seen == [False, False, False, True]


def test_any_number_of_windows_that_are_committed_ahead_hide_no_proof(world: World) -> None:
    world.configure(max_open_windows=100)
    for window in cut(world, 3, Live(until=ELEVEN)):
        do(world, window)
    stuck, *ahead = cut(world, 60, Live(until=NOON))
    for window in ahead:
        do(world, window)
    assert world.ledger.load("lake").open[0].window == stuck
    assert is_met(world, CommittedUntil("lake", ELEVEN))
    assert not is_met(world, CommittedUntil("lake", NOON))


def test_any_number_of_capped_windows_hide_no_proof(world: World) -> None:
    world.run(claim("caught up"), Live(until=ELEVEN))
    world.configure(max_offsets=1)
    world.kafka.produce(tp(0), 60)
    for i in range(51):
        world.run(claim(f"run-{i}"), Live(until=NOON))
    assert is_met(world, CommittedUntil("lake", ELEVEN))
    assert not is_met(world, CommittedUntil("lake", NOON))


@pytest.mark.parametrize("question", ["load_all", "frontiers"])
def test_a_window_that_is_committed_ahead_between_two_questions_is_no_proof(
    world: World, question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any question of the poll two windows are planned, and the second is committed."""
    world.configure(max_open_windows=2)
    ask_ledger = getattr(world.ledger, question)

    def busy(*args: Any, **wanted: Any) -> Any:
        monkeypatch.undo()
        found = ask_ledger(*args, **wanted)
        [_, ahead] = cut(world, 2, Live(until=NOON))
        do(world, ahead)
        return found

    monkeypatch.setattr(world.ledger, question, busy)
    assert not any(
        answer.is_met for answer in ask(world, UnreadAtLeast(world.group, 10**9), CommittedUntil("lake", NOON))
    )
    assert [held.window.seq for held in world.ledger.load("lake").open] == [1]


def test_each_error_stays_with_its_own_condition(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    answers = ask(
        world,
        UnreadAtLeast(group("other", topics=["nowhere"]), min_span=1),
        UnreadAtLeast(world.group, min_span=1),
        WindowCommitted("lake-000077"),
        TimePassed(group("another", topics=["orders", "nowhere"]), NOON - HOUR),
        LagAtMost(world.group, 10),
    )
    assert [type(answer) for answer in answers] == [
        MissingPartitionError,
        Decision,
        UnknownWindowError,
        MissingPartitionError,
        Decision,
    ]


def test_a_topic_that_is_missing_for_all_costs_nobody_else_a_time_lookup(world: World) -> None:
    (answer,) = ask(world, UnreadAtLeast(group(topics=["nowhere"]), max_age=HOUR))
    assert isinstance(answer, MissingPartitionError)


@pytest.fixture
def moody(world: World) -> World:
    """Return a world whose Kafka fails for some topics."""
    world.kafka = MoodyLog()
    for topic in ("orders", "secret"):
        world.kafka.create(topic)
    world.kafka.produce(tp(0), 5)
    return world


@pytest.mark.parametrize("error", [KafkaRefusedError("no ACL", topics=["secret"]), KafkaUnavailableError("no leader")])
def test_a_topic_that_gives_no_answer_holds_only_its_own_sensors_back(moody: World, error: KafkaAnswerError) -> None:
    moody.kafka.fails["secret"] = error  # type: ignore[attr-defined]
    secret, orders = ask(moody, UnreadAtLeast(group("s", topics=["secret"]), 1), UnreadAtLeast(group(), 1))
    assert secret is error
    assert isinstance(orders, Decision)
    assert orders.is_met


def test_a_topic_whose_message_format_has_no_times_ends_only_its_own_sensors(moody: World) -> None:
    lacks = KafkaLacksError("no times", topics=["secret"])
    moody.kafka.has_no_times["secret"] = lacks  # type: ignore[attr-defined]
    moody.now += 2 * HOUR
    ages = UnreadAtLeast(group("s", topics=["secret"]), max_age=HOUR), UnreadAtLeast(group(), max_age=HOUR)
    secret, orders = ask(moody, *ages)
    assert secret is lacks
    assert isinstance(orders, Decision)
    assert orders.is_met


def test_a_login_that_is_refused_is_tried_once_not_once_per_topic(moody: World) -> None:
    refused = KafkaRefusedError("wrong password")
    moody.kafka.fails = dict.fromkeys(["secret", "orders"], refused)  # type: ignore[attr-defined]
    asked = ask(moody, UnreadAtLeast(group("s", topics=["secret"]), 1), UnreadAtLeast(group(), 1))
    assert asked == [refused, refused]
    assert moody.kafka.calls == ["snapshot"]


def test_a_cluster_that_is_down_is_asked_twice_not_once_per_topic(moody: World) -> None:
    down = KafkaUnavailableError("down")
    moody.kafka.fails = dict.fromkeys(["secret", "orders"], down)  # type: ignore[attr-defined]
    moody.kafka.is_down = True  # type: ignore[attr-defined]
    assert ask(moody, UnreadAtLeast(group("s", topics=["secret"]), 1), UnreadAtLeast(group(), 1)) == [down, down]
    assert moody.kafka.calls == ["snapshot"]


def test_a_window_is_waited_for_until_its_holder_is_over_or_it_is_done(world: World) -> None:
    world.kafka.produce(tp(0), 5)
    window = world.plan(claim()).window
    free = WindowFree((window.id,), is_rerun=False)
    assert not is_met(world, free)
    world.die(claim())
    assert is_met(world, free)
    world.over.clear()
    world.do(window, claim())
    assert is_met(world, free), "the next window may be planned"
    assert not is_met(world, WindowFree((window.id,), is_rerun=True))


def test_of_a_holder_that_many_wait_for_airflow_is_asked_once(world: World) -> None:
    world.kafka.produce(tp(0), 5)
    window = world.plan(claim()).window
    asked: list[Claim] = []

    def is_over(holder: Claim) -> bool:
        asked.append(holder)
        return False

    conditions = [WindowFree((window.id,), is_rerun=False)] * 20
    answers = watch.ask(conditions, lambda: world.ledger, is_over=is_over, now=world.now)
    assert not any(isinstance(answer, Exception) or answer.is_met for answer in answers)
    assert asked == [claim()]


def test_one_free_window_of_several_is_enough(world: World) -> None:
    world.configure(max_offsets=5, max_open_windows=2)
    world.kafka.produce(tp(0), 10)
    one, other = (world.plan(claim(run)).window for run in ("one", "other"))
    free = WindowFree((one.id, other.id), is_rerun=False)
    assert not is_met(world, free)
    world.die(claim("other"))
    assert is_met(world, free)


def test_a_ledger_that_is_down_is_asked_once_and_leaves_time_alone(world: World) -> None:
    opened: list[None] = []

    def open_ledger() -> World:
        opened.append(None)
        raise LedgerUnavailableError("down")

    world.now = NOON
    world.kafka.produce(tp(0), at=NOON)
    world.kafka.produce(tp(1), at=NOON)
    groups = [group(f"g{i}") for i in range(5)]
    conditions: list[Condition] = [*(UnreadAtLeast(g, 1) for g in groups), TimePassed(groups[0], NOON)]
    *silent, time = watch.ask(conditions, open_ledger, lambda: world.kafka, now=world.now)  # type: ignore
    assert {type(answer) for answer in silent} == {LedgerUnavailableError}
    assert isinstance(time, Decision)
    assert time.is_met
    assert len(opened) == 1


def test_a_leader_that_lags_for_a_moment_is_looked_at_twice(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    world.run(claim())
    world.kafka.fall_back_once(tp(0), 4)
    assert not is_met(world, UnreadAtLeast(world.group, min_span=1))
    world.kafka.truncate(tp(0), 4)
    (answer,) = ask(world, UnreadAtLeast(world.group, min_span=1))
    assert isinstance(answer, LogTruncatedError)


def test_what_a_sensor_calls_unread_is_what_the_next_window_reads(world: World) -> None:
    world.kafka.produce(tp(0), 7)
    world.kafka.produce(tp(1), 5)
    (answer,) = ask(world, UnreadAtLeast(world.group, min_span=1))
    assert not isinstance(answer, Exception | KafkaOffsetsError)
    assert answer.facts["span"] == world.plan(claim()).window.span == 12


def test_a_doubtful_log_of_one_group_is_no_other_groups_trouble(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    world.run(claim())
    world.kafka.truncate(tp(0), 4)
    blind = group("blind", isolation_level="read_uncommitted")
    truncated, *others = ask(
        world,
        UnreadAtLeast(world.group, 1),
        UnreadAtLeast(blind, 1),
        UnreadAtLeast(group("new"), 1),
        TimePassed(world.group, NOON),
    )
    assert isinstance(truncated, LogTruncatedError)
    assert [answer.is_met for answer in others if isinstance(answer, Decision)] == [True, True, False]
