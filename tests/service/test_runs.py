"""Rules 1 to 4 of docs/design.md: windows, runs and reruns."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_kafka_offsets.core.errors import (
    BadInputError,
    ConcurrentChangeError,
    DataLossError,
    IllegalStepError,
    KafkaUnavailableError,
    LogTruncatedError,
    MissingPartitionError,
    NoEvidenceError,
    TopicRecreatedError,
    UnknownWindowError,
    WindowBusyError,
)
from airflow_kafka_offsets.core.plan.request import Live, Refused, Request, TimeSpan, Windows
from airflow_kafka_offsets.core.run import Try
from airflow_kafka_offsets.core.window import Claim, Outcome, Scope, State, Window
from airflow_kafka_offsets.service.base import RACES
from tests.core.examples import NOON, claim, group, ranges, tp
from tests.service.world import World, after_clear

ONE, TWO, THREE = claim("run-1"), claim("run-2"), claim("run-3")


def test_runs_tile_the_log(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    first = world.run(ONE)
    world.kafka.produce(tp(0), 5)
    world.kafka.produce(tp(1), 3)
    second = world.run(TWO)
    assert (first.id, first.ranges) == ("lake-000001", ranges({tp(0): (0, 10), tp(1): (0, 0)}))
    assert (second.id, second.ranges) == ("lake-000002", ranges({tp(0): (10, 15), tp(1): (0, 3)}))
    assert world.watermark == {0: 15, 1: 3}


# Rule 1: the same run asks again.


def test_a_retry_gets_the_same_window_although_more_was_written_since(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    before = world.plan(ONE)
    world.kafka.produce(tp(0), 90)
    again = world.plan(ONE)
    assert (before.how, again.how) == ("new", "again")
    assert again.window == before.window
    assert not again.is_rerun


def test_a_cleared_run_gets_its_window_although_others_came_after(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    first = world.run(ONE)
    world.kafka.produce(tp(0), 10)
    world.run(TWO)
    again = world.plan(ONE, last_clear=1)
    assert again.is_rerun
    assert (again.window.id, again.window.ranges) == (first.id, first.ranges)
    assert world.service.commit(first.id, ONE, world.work(again.window, ONE)) is False
    assert world.watermark == {0: 20, 1: 0}


def test_a_cleared_run_gets_its_committed_window_while_another_works_on_the_next(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    first = world.run(ONE)
    world.kafka.produce(tp(0), 10)
    world.plan(TWO)
    assert world.plan(ONE).window.id == first.id


def test_a_cleared_run_whose_window_another_run_finished_waits_for_that_run(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    world.plan(ONE)
    world.die(ONE)
    adopted = world.plan(TWO).window
    with pytest.raises(WindowBusyError):
        world.plan(ONE)
    world.service.commit(adopted.id, TWO, world.work(adopted, TWO))
    world.die(TWO)
    assert world.plan(ONE).is_rerun


def test_a_rerun_does_not_look_at_the_records_that_were_written_since(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    world.run(ONE)
    world.configure(max_offsets=1, topics=["orders", "another"])
    assert world.plan(ONE).window.ranges[tp(0)].span == 10


def test_a_run_that_asks_for_what_it_had_gets_nothing_new(world: World) -> None:
    world.kafka.produce(tp(0), 5)
    window = world.plan(ONE).window
    refused = Refused(BadInputError("a typo"))
    for nothing in (None, refused):
        [again] = world.service.plan(world.group, ONE, world.over.__contains__, nothing)
        assert again.window == window
    world.service.abandon(window.id, "ada", "why")
    assert world.service.plan(world.group, ONE, world.over.__contains__, None) == []
    with pytest.raises(BadInputError, match="a typo"):
        world.service.plan(world.group, ONE, world.over.__contains__, refused)


def test_a_run_with_an_abandoned_window_plans_anew(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    given_up = world.plan(ONE).window
    world.service.abandon(given_up.id, "me", "poison")
    world.kafka.produce(tp(0), 10)
    anew = world.plan(ONE)
    assert (anew.how, anew.window.id) == ("new", "lake-000002")
    assert anew.window.ranges == ranges({tp(0): (0, 20), tp(1): (0, 0)})
    assert world.service.ledger.window(given_up.id).window.state is State.ABANDONED


def test_a_run_with_a_superseded_window_stops(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    first = world.run(ONE)
    world.service.reset(world.group, "earliest", "me", "wrong output", supersede=True)
    with pytest.raises(IllegalStepError, match=f"offsets of {first.id} of this run to other"):
        world.plan(ONE)


def test_a_topic_recreated_between_plan_and_retry_is_an_error(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    world.plan(ONE)
    world.kafka.recreate("orders", 2)
    world.kafka.produce(tp(0), 50)
    for run in (ONE, TWO):
        world.die(ONE)
        with pytest.raises(TopicRecreatedError, match="orders-0"):
            world.plan(run)


def test_the_way_out_of_a_recreated_topic_is_the_one_that_the_errors_name(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    window = world.plan(ONE).window
    world.kafka.recreate("orders", 1)
    world.kafka.produce(tp(0), 5)
    world.service.abandon(window.id, "me", "topic recreated")
    with pytest.raises(TopicRecreatedError, match="reset lake --topic orders --to earliest"):
        world.plan(ONE)
    world.service.reset(world.group, "earliest", "me", "topic recreated", topics=["orders"])
    assert world.plan(ONE).window.ranges == ranges({tp(0): (0, 5)})


def test_retention_before_a_rerun_is_an_error_with_the_ranges(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    world.run(ONE)
    world.kafka.expire(tp(0), 4)
    with pytest.raises(DataLossError, match=r"orders-0: offsets \[0, 10\) are not all in the log \[4, "):
        world.plan(ONE, last_clear=1)  # cleared
    assert world.watermark == {0: 10, 1: 0}


def test_what_a_retry_does_not_run_again_may_have_expired(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    window = world.run(ONE)
    world.kafka.expire(tp(0), 4)
    again = world.plan(ONE)
    assert again.earlier_success is not None
    assert again.window.id == window.id


def test_retention_before_a_retry_is_an_error_and_then_the_policys_business(world: World) -> None:
    world.configure(on_data_loss="skip")
    world.kafka.produce(tp(0), 10)
    window = world.plan(ONE).window
    world.kafka.expire(tp(0), 4)
    with pytest.raises(DataLossError, match=f"abandon {window.id}"):
        world.plan(ONE)
    world.service.abandon(window.id, "me", "expired")
    anew = world.plan(ONE).window
    assert anew.ranges[tp(0)].start == 4
    assert anew.lost == ranges({tp(0): (0, 4)})


# Rule 2: adoption.


def test_a_dead_runs_window_is_adopted_unchanged(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    dead = world.plan(ONE).window
    world.die(ONE)
    world.kafka.produce(tp(0), 90)
    adopted = world.plan(TWO)
    assert adopted.how == "adopted"
    assert adopted.window == dead
    assert world.ledger.window(dead.id).holder == TWO
    world.service.commit(dead.id, TWO, world.work(dead, TWO))
    world.die(TWO)
    assert world.plan(THREE).window.ranges[tp(0)].start == 10


def test_a_dead_run_that_wakes_up_commits_nothing_after_its_window_was_adopted(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    window = world.plan(ONE).window
    attempt = world.work(window, ONE)
    world.die(ONE)
    world.plan(TWO)
    with pytest.raises(WindowBusyError, match="dag/run-2/load"):
        world.service.commit(window.id, ONE, attempt)
    assert world.watermark == {0: 0, 1: 0}


def test_a_task_whose_window_went_to_another_task_of_its_run_commits_nothing(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    window = world.plan(ONE).window
    attempt = world.work(window, ONE)
    world.die(ONE)
    world.plan(claim("run-1", map_index=2))
    with pytest.raises(WindowBusyError, match=r"load\[2\]"):
        world.service.commit(window.id, ONE, attempt)


def test_a_window_is_adopted_as_it_is_whatever_the_definition_says_now(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    window = world.plan(ONE).window
    world.die(ONE)
    world.kafka.create("refunds")
    world.configure(topics=["orders", "refunds"], isolation_level="read_uncommitted", max_offsets=1)
    assert world.plan(TWO).window == window


# Rule 3: another run works on the open window.


def test_a_window_that_a_living_run_works_on_is_busy(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    window = world.plan(ONE).window
    with pytest.raises(WindowBusyError, match="dag/run-1/load") as raised:
        world.plan(TWO)
    assert (raised.value.window_id, raised.value.holder) == (window.id, ONE)
    assert world.ledger.window(window.id).holder == ONE


def test_a_holder_that_comes_back_while_somebody_asks_about_it_keeps_its_window(world: World) -> None:
    """Airflow said that it was over; before that could be used, it was cleared and asked again."""
    world.kafka.produce(tp(0), 10)
    window = world.plan(ONE).window
    answers = iter([True])

    def is_over(claim: Claim) -> bool:
        if next(answers, False):
            world.plan(ONE)
            return True
        return False

    with pytest.raises(WindowBusyError):
        world.service.plan(world.group, TWO, is_over)
    assert world.ledger.window(window.id).holder == ONE


def test_a_log_that_lags_for_a_moment_is_looked_at_twice_before_a_window_is_called_unreadable(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    window = world.plan(ONE).window
    world.kafka.fall_back_once(tp(0), 4)
    assert world.plan(ONE).window == window


# Rule 4: commit.


def test_commit_twice_equals_commit_once(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    window = world.plan(ONE).window
    attempt = world.work(window, ONE)
    assert world.service.commit(window.id, ONE, attempt) is True
    committed = world.ledger.window(window.id)
    world.now += timedelta(hours=1)
    assert world.service.commit(window.id, ONE, attempt) is False
    assert world.ledger.window(window.id) == committed


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.KILLED])
def test_a_job_that_did_not_succeed_commits_nothing(world: World, outcome: Outcome) -> None:
    world.kafka.produce(tp(0), 10)
    window = world.plan(ONE).window
    with pytest.raises(NoEvidenceError):
        world.service.commit(window.id, ONE, world.work(window, ONE, outcome))
    assert world.watermark == {0: 0, 1: 0}


def test_a_green_task_without_a_recorded_success_commits_nothing(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    window = world.plan(ONE).window
    running = world.service.start_attempt(window, ONE)
    for attempt in (None, running, 4711):
        with pytest.raises(NoEvidenceError):
            world.service.commit(window.id, ONE, attempt)


def test_the_success_at_another_window_is_no_evidence(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    window = world.plan(ONE).window
    attempt = world.work(window, ONE)
    world.service.commit(window.id, ONE, attempt)
    world.die(ONE)
    world.kafka.produce(tp(0), 10)
    second = world.plan(TWO).window
    with pytest.raises(NoEvidenceError):
        world.service.commit(second.id, TWO, attempt)


def test_what_is_recorded_of_an_attempt_stays(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    window = world.plan(ONE).window
    attempt = world.work(window, ONE, Outcome.KILLED)
    assert attempt is not None
    world.service.end_attempt(attempt, Outcome.SUCCEEDED, 10)
    assert [a.outcome for a in world.ledger.attempts(window.id)] == [Outcome.KILLED]


def test_around_a_foreign_launcher_another_task_of_the_run_commits(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    window = world.plan(claim(task="plan", scope=Scope.RUN)).window
    assert world.service.commit(window.id, claim(task="commit", scope=Scope.RUN)) is True
    assert world.watermark == {0: 10, 1: 0}


def test_a_task_that_got_another_operator_is_not_in_its_own_way(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    window = world.plan(claim(scope=Scope.RUN)).window
    again = world.plan(claim(scope=Scope.TASK))
    assert again.window == window
    with pytest.raises(NoEvidenceError):
        world.service.commit(window.id, claim(scope=Scope.TASK))


def test_an_abandoned_window_is_not_committed(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    window = world.plan(ONE).window
    attempt = world.work(window, ONE)
    world.service.abandon(window.id, "me", "because")
    with pytest.raises(IllegalStepError, match="is abandoned"):
        world.service.commit(window.id, ONE, attempt)


def test_after_the_job_the_topic_must_still_be_the_same(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    window = world.plan(ONE).window
    world.service.check_same_topics(window)
    world.kafka.recreate("orders", 2)
    with pytest.raises(TopicRecreatedError):
        world.service.check_same_topics(window)


# Empty windows and first runs.


def test_an_empty_window_commits_and_asks_kafka_nothing_again(world: World) -> None:
    window = world.plan(ONE).window
    assert window.span == 0
    world.kafka.calls.clear()
    assert world.plan(ONE).window == window
    world.service.check_same_topics(window)
    assert world.service.commit(window.id, ONE) is True
    assert world.kafka.calls == []
    assert world.watermark == {0: 0, 1: 0}


@pytest.mark.parametrize(
    ("choice", "starts"),
    [
        ("latest", {0: 8, 1: 0}),
        (timedelta(hours=2), {0: 5, 1: 0}),
        (NOON, {0: 8, 1: 0}),
        ('{"orders":{"0":3,"1":-1}}', {0: 3, 1: 0}),
        ("committed", {0: 4, 1: 0}),
    ],
)
def test_what_the_first_run_chose_is_persisted_at_once(quick_folder: Path, choice: Any, starts: dict[int, int]) -> None:
    world = World(quick_folder, starting_offsets=choice, max_offsets=1)
    world.kafka.produce(tp(0), 5, at=NOON - timedelta(hours=3))
    world.kafka.produce(tp(0), 3, at=NOON - timedelta(hours=1))
    world.kafka.commit("lake", {tp(0): 4, tp(1): 0})
    first = world.plan(ONE).window
    assert {p.partition: o for p, o in first.ranges.starts.items()} == starts
    assert world.watermark == starts
    # Time goes on, and the choice would mean something else now.
    world.kafka.produce(tp(0), 100, at=NOON)
    world.kafka.commit("lake", {tp(0): 50, tp(1): 0})
    world.now += timedelta(days=1)
    world.service.abandon(first.id, "me", "because")
    assert world.watermark == starts
    assert world.plan(TWO).window.ranges.starts == first.ranges.starts


def test_a_consumer_group_without_offsets_is_no_first_run(quick_folder: Path) -> None:
    world = World(quick_folder, starting_offsets="committed")
    with pytest.raises(MissingPartitionError, match="has no offset of orders-0, orders-1"):
        world.plan(ONE)
    assert world.watermark == {}


def test_a_partition_added_later_is_read_from_its_beginning(quick_folder: Path) -> None:
    world = World(quick_folder, starting_offsets="latest")
    world.kafka.produce(tp(0), 10)
    world.run(ONE)
    world.kafka.add_partitions("orders")
    world.kafka.produce(tp(2), 7)
    assert world.run(TWO).ranges == ranges({tp(0): (10, 10), tp(1): (0, 0), tp(2): (0, 7)})


# Errors write nothing.


def test_a_plan_that_fails_writes_nothing(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    world.run(ONE)
    before = (world.ledger.load("lake"), world.ledger.windows("lake"))
    for disaster in (
        lambda: world.kafka.truncate(tp(0), 5),
        lambda: world.kafka.recreate("orders", 2),
        lambda: world.kafka.delete("orders"),
    ):
        disaster()
        with pytest.raises((LogTruncatedError, TopicRecreatedError, MissingPartitionError)):
            world.plan(TWO)
        assert (world.ledger.load("lake"), world.ledger.windows("lake")) == before


def test_a_kafka_that_does_not_answer_writes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*_: Any) -> Any:
        raise KafkaUnavailableError("down")

    monkeypatch.setattr(world.kafka, "snapshot", down)
    with pytest.raises(KafkaUnavailableError):
        world.plan(ONE)
    assert world.ledger.groups() == []


def test_an_end_offset_that_falls_back_for_a_moment_is_looked_at_twice(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    world.kafka.produce(tp(1), 10)
    world.run(ONE)
    world.kafka.produce(tp(1), 5)
    world.kafka.fall_back_once(tp(0), 6)
    assert world.run(TWO).ranges == ranges({tp(0): (10, 10), tp(1): (10, 15)})


def test_an_open_transaction_ends_the_window(world: World) -> None:
    world.kafka.produce(tp(0), 4)
    world.kafka.open_transaction(tp(0))
    world.kafka.produce(tp(0), 6)
    assert world.plan(ONE).window.ranges[tp(0)].end == 4
    world.configure(isolation_level="read_uncommitted")
    assert world.service.next_window(world.group, None).ranges[tp(0)].end == 10


def test_the_cut_time_is_the_one_given_or_the_moment(world: World) -> None:
    assert world.plan(ONE, Live(until=NOON - timedelta(hours=5))).window.planned_until == NOON - timedelta(hours=5)
    world.service.commit("lake-000001", ONE)
    assert world.plan(TWO).window.planned_until == world.now


def test_no_kafka_call_is_made_per_partition(world: World) -> None:
    world.kafka.create("wide", 500)
    world.configure(topics=["wide"])
    world.kafka.produce(tp(0, "wide"), 1)
    world.plan(ONE)
    assert set(world.kafka.calls) == {"snapshot", "retentions"}
    assert len(world.kafka.calls) == 2


def test_who_lost_a_race_looks_again_a_few_times(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.kafka.produce(tp(0), 10)
    tries = 0
    original = world.ledger.add_windows

    def slow(*arguments: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries < RACES:
            raise ConcurrentChangeError("too late")
        return original(*arguments)

    monkeypatch.setattr(world.ledger, "add_windows", slow)
    assert world.plan(ONE).how == "new"
    tries = -10 * RACES
    world.service.commit("lake-000001", ONE, world.work(world.service.ledger.window("lake-000001").window, ONE))
    with pytest.raises(ConcurrentChangeError):
        world.plan(TWO)


# Other questions.


def test_lag_is_end_minus_watermark(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    assert world.lag == 10
    world.run(ONE)
    world.kafka.produce(tp(0), 3)
    assert world.lag == 3


def test_an_open_window_does_not_move_the_watermark(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    world.plan(ONE)
    assert world.watermark == {0: 0, 1: 0}
    assert world.lag == 10


def test_an_unknown_window_is_named(world: World) -> None:
    with pytest.raises(UnknownWindowError, match="lake-000009"):
        world.service.take(world.group, "lake-000009", ONE, lambda _: True)
    with pytest.raises(UnknownWindowError, match="lake"):
        world.service.commit("lake-000009", ONE)


# The definition that commits, sensors and people go by is the newest that someone planned with.


def test_whoever_takes_over_a_window_leaves_its_own_definition(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    world.plan(ONE)
    world.die(ONE)
    world.configure(output_tables="sales")
    adopted = world.plan(TWO)
    assert adopted.how == "adopted"
    assert world.ledger.group("lake").output_tables == ("sales",), "CommitWindowOperator would publish nothing"


@pytest.mark.parametrize("request_", [Live(), Windows((1,))])
def test_a_run_that_gets_windows_that_are_there_leaves_its_own_definition(world: World, request_: Request) -> None:
    world.kafka.produce(tp(0), 10)
    world.run(ONE)
    world.configure(expect_gaps=True)
    [planned] = world.ask(ONE if request_ == Live() else TWO, request_)
    assert planned.how != "new"
    assert world.ledger.group("lake") == world.group


def test_another_task_of_the_dag_leaves_the_definition_of_the_one_that_plans(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    window = world.plan(replace(ONE, scope=Scope.RUN)).window
    before = world.group
    world.configure(expect_gaps=True)
    world.service.take(world.group, window.id, replace(ONE, task_id="work", map_index=0), world.over.__contains__)
    assert world.ledger.group("lake") == before


def test_what_kafka_lost_is_put_right_by_the_definition_of_the_plan_that_found_it(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    world.run(ONE)
    world.kafka.produce(tp(0), 10)
    world.kafka.expire(tp(0), 15)
    world.configure(expect_gaps=True)
    with pytest.raises(DataLossError):
        world.plan(TWO)
    assert world.ledger.group("lake") == world.group, "a reset would go by topics that the group reads no more"


def test_a_plan_that_waits_for_another_run_leaves_the_definition_as_it_was(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    world.plan(ONE)
    before = world.group
    world.configure(expect_gaps=True)
    with pytest.raises(WindowBusyError):
        world.plan(TWO)
    assert world.ledger.group("lake") == before


# A run that was deleted and made again under its old id, and a group under another name.

TOMORROW = NOON + timedelta(days=1)


def test_a_run_that_was_deleted_and_made_again_runs_its_window_again_and_says_so(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    window = world.run(ONE)
    world.kafka.produce(tp(0), 10)
    made_again = Try(1, 2, 2, TOMORROW)
    [planned] = world.ask(ONE, this_try=made_again)
    assert (planned.window.id, planned.needs_job) == (window.id, True)
    [warning] = planned.warnings
    assert "made again" in warning
    assert window.id in warning
    assert "nothing new" in warning
    retry = replace(made_again, number=2)
    assert world.plan(ONE, this_try=retry).needs_job, "what the deleted run did is not done"


@pytest.mark.parametrize("this_try", [Try(2, 2, 2, NOON), Try(2, 1 + 2, 2, TOMORROW)], ids=["retry", "clear"])
def test_a_retry_and_a_clear_are_no_run_that_was_made_again(world: World, this_try: Try) -> None:
    world.kafka.produce(tp(0), 10)
    world.run(ONE)
    assert world.plan(ONE, this_try=this_try).warnings == ()


RENAMED = group("lake2")


@pytest.mark.parametrize("state", [State.PLANNED, State.COMMITTED])
def test_a_clear_of_an_old_run_cuts_no_window_in_the_group_of_another_name(world: World, state: State) -> None:
    world.kafka.produce(tp(0), 10)
    window = world.run(ONE) if state is State.COMMITTED else world.plan(ONE).window
    world.group = RENAMED
    for is_known in (False, True):
        with pytest.raises(BadInputError, match=f"{window.id}.* lake2.*[Tt]rigger a new run") as raised:
            world.plan(ONE, last_clear=1)
        assert "lake" in str(raised.value)
        assert (len(world.ledger.windows("lake2")) == 1) is is_known
        if not is_known:
            world.run(TWO)  # a new run is welcome


def test_a_window_that_was_given_up_in_the_group_of_before_is_no_obstacle(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    world.service.abandon(world.plan(ONE).window.id, "me", "the group is renamed")
    world.group = RENAMED
    assert world.plan(ONE).window.id == "lake2-000001"


def test_a_backfill_may_reprocess_a_run_in_the_group_of_another_name(world: World) -> None:
    world.kafka.produce(tp(0), 10, at=NOON - timedelta(minutes=30))
    world.run(ONE)
    world.group = group("lake2", starting_offsets="latest")
    world.run(TWO)
    hour = TimeSpan(NOON - timedelta(hours=1), NOON + timedelta(hours=1), is_interval=True)
    assert {planned.window.group for planned in world.ask(ONE, hour, last_clear=1)} == {"lake2"}


def test_two_runs_that_need_each_others_windows_do_not_both_wait(world: World) -> None:
    world.configure(max_offsets=4, max_open_windows=2)
    world.kafka.produce(tp(0), 8)
    (one, other), plans = two_runs_with_the_same_windows(world), [plan_of("a"), plan_of("b")]
    alone = Claim("dag", "a", "work", 0)
    world.service.take(world.group, one, alone, world.over.__contains__)
    world.over.clear()  # both runs are cleared
    with pytest.raises(WindowBusyError) as waits:
        world.ask(plans[0])
    assert waits.value.crossed is None, "its name sorts first, so it waits for the other one to give up"
    with pytest.raises(
        WindowBusyError, match=r"need each other's windows .*Clear this task when that run is over"
    ) as refused:
        world.ask(plans[1])
    assert (refused.value.holder, refused.value.crossed) == (alone, other)
    world.over.update({plans[1], *(Claim("dag", "b", "work", index) for index in (0, 1))})
    assert [planned.window.id for planned in world.ask(plans[0])] == [one, other]


def plan_of(run: str) -> Claim:
    """Return the plan task of a run."""
    return Claim("dag", run, "plan", scope=Scope.RUN)


def two_runs_with_the_same_windows(world: World) -> list[str]:
    """Let one run read two windows with mapped tasks, and let another one replay them."""
    requests: dict[str, Request] = {"a": Live(at_most=2), "b": Windows((1, 2))}
    windows: list[Window] = []
    for run, request in requests.items():
        windows = [planned.window for planned in world.ask(plan_of(run), request)]
        for index, window in enumerate(windows):
            task = Claim("dag", run, "work", index)
            world.service.take(world.group, window.id, task, world.over.__contains__)
            world.do(window, task)
            world.die(task)
        world.die(plan_of(run))
    return [window.id for window in windows]


def test_two_mapped_tasks_that_wait_for_each_others_runs_do_not_both_wait(world: World) -> None:
    """Although an attempt of one of the windows has no recorded end: its worker may be dead."""
    world.configure(max_offsets=4, max_open_windows=2)
    world.kafka.produce(tp(0), 8)
    one, other = two_runs_with_the_same_windows(world)
    alone = Claim("dag", "a", "work", 0)
    window = world.service.take(world.group, one, alone, world.over.__contains__).window
    world.service.start_attempt(window, alone, after_clear(1))
    world.over.clear()
    with pytest.raises(WindowBusyError) as waits:
        world.service.take(world.group, other, Claim("dag", "a", "work", 1), world.over.__contains__)
    assert waits.value.crossed is None
    with pytest.raises(WindowBusyError) as refused:
        world.service.take(world.group, one, Claim("dag", "b", "work", 0), world.over.__contains__)
    assert refused.value.crossed == other


def test_a_plan_task_that_is_given_a_window_holds_it_and_its_rerun_is_noted(world: World) -> None:
    world.kafka.produce(tp(0), 8)
    window = world.plan(plan_of("a")).window
    taker = Claim("dag", "a", "take", 0, Scope.RUN)
    world.service.take(world.group, window.id, taker, world.over.__contains__)
    assert world.ledger.window(window.id).holder == taker
    world.service.commit(window.id, Claim("dag", "a", "commit", 0, Scope.RUN))
    assert world.ledger.window(window.id).rerun is None
    world.service.take(world.group, window.id, taker, world.over.__contains__)
    assert world.ledger.window(window.id).rerun is Outcome.RUNNING
    world.service.commit(window.id, Claim("dag", "a", "commit", 0, Scope.RUN))
    assert world.ledger.window(window.id).rerun is None


def test_a_clear_runs_what_a_reset_has_left_of_its_windows(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.configure(max_offsets=4, max_open_windows=2)
    world.kafka.produce(tp(0), 8)
    first, second = world.run_all(claim("1"), Live(at_most=2))
    world.service.reset(world.group, "", "ada", "why", to_window=second.id, supersede=True)
    [planned] = world.ask(claim("1"), last_clear=1)
    assert planned.window.id == first.id
    assert f"offsets of {second.id} of this run to other windows; the others run again" in caplog.text


def test_the_success_of_a_job_whose_output_another_run_has_overwritten_since_is_no_evidence(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    window = world.plan(claim("1")).window
    success = world.work(window, claim("1"))
    world.die(claim("1"))
    assert world.plan(claim("2")).how == "adopted"
    world.work(window, claim("2"), Outcome.FAILED)
    world.die(claim("2"))
    [again] = world.ask(claim("1"), this_try=Try(2, 2, 2, NOON))
    assert again.needs_job
    with pytest.raises(NoEvidenceError):
        world.service.commit(window.id, claim("1"), success)


def test_a_zombie_begins_no_job_on_a_window_that_it_lost(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    window = world.plan(claim("1")).window
    world.die(claim("1"))
    world.plan(claim("2"))
    with pytest.raises(WindowBusyError):
        world.service.start_attempt(window, claim("1"))
    assert world.ledger.attempts(window.id) == []
