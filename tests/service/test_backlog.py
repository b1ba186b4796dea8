"""Rule 5 of docs/design.md: several live windows at once, for parallel jobs, and the watermark at the gap-free prefix."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, permutations
from pathlib import Path

import pytest

from airflow_kafka_offsets.core.errors import (
    BadInputError,
    ConfirmationError,
    DataLossError,
    IllegalStepError,
    NoEvidenceError,
    TopicRecreatedError,
    UnknownWindowError,
    WindowBusyError,
)
from airflow_kafka_offsets.core.plan.request import Live, Ranges, Windows
from airflow_kafka_offsets.core.window import Claim, Lane, Outcome, Scope, State, Window
from airflow_kafka_offsets.service.plan import Planned
from tests.core.examples import claim, ranges, tp
from tests.service.world import World, after_clear

ONE, TWO, THREE = claim("run-1"), claim("run-2"), claim("run-3")
MANY = Live(at_most=10)


@pytest.fixture
def world(quick_folder: Path) -> World:
    """Return a group of at most four open windows of ten offsets, and a backlog of 35."""
    world = World(quick_folder, max_open_windows=4, max_offsets=10)
    world.kafka.produce(tp(0), 35)
    return world


def planner(run: str) -> Claim:
    """Let a run's plan task ask: other tasks of the run work on what it gets."""
    return claim(run, "plan", scope=Scope.RUN)


def mapped(run: str, index: int) -> Claim:
    """Let a run's mapped task ask."""
    return claim(run, "load", map_index=index)


def seqs(planned: Sequence[Planned]) -> list[int]:
    """Return the numbers of windows."""
    return [p.window.seq for p in planned]


def holders(world: World) -> dict[int, Claim]:
    """Return who works on each open window."""
    return {held.window.seq: held.holder for held in world.ledger.load("lake").open}


def take(world: World, who: Claim, window: Window, last_clear: int = 0) -> Planned:
    """Let a mapped task have its window."""
    world.over.discard(who)
    return world.service.take(world.group, window.id, who, world.over.__contains__, after_clear(last_clear))


# Several windows of one task.


def test_a_backlog_becomes_windows_that_tile_it(world: World) -> None:
    planned = world.ask(ONE, MANY)
    assert [p.window.ranges[tp(0)] for p in planned] == [
        ranges({tp(0): (low, high)})[tp(0)] for low, high in ((0, 10), (10, 20), (20, 30), (30, 35))
    ]
    assert [p.how for p in planned] == ["new"] * 4
    assert all(b.window.ranges.starts == a.window.ranges.ends for a, b in pairwise(planned))
    assert world.watermark == {0: 0, 1: 0}


@pytest.mark.parametrize(("at_most", "expected"), [(1, [1]), (3, [1, 2, 3]), (4, [1, 2, 3, 4]), (99, [1, 2, 3, 4])])
def test_a_task_gets_no_more_windows_than_it_can_work_on(world: World, at_most: int, expected: list[int]) -> None:
    world.kafka.produce(tp(0), 100)
    assert seqs(world.ask(ONE, Live(at_most=at_most))) == expected


def test_no_more_windows_are_open_than_the_group_allows(world: World) -> None:
    world.kafka.produce(tp(0), 100)
    world.ask(ONE, Live(at_most=3))
    assert seqs(world.ask(TWO, MANY)) == [4]
    with pytest.raises(WindowBusyError, match="lake-000001 is being worked on by dag/run-1") as raised:
        world.ask(THREE, MANY)
    assert raised.value.others == ("lake-000002", "lake-000003", "lake-000004")


def test_without_a_backlog_there_is_one_window_also_if_it_is_empty(quick_folder: Path) -> None:
    world = World(quick_folder, max_open_windows=4, max_offsets=10)
    [planned] = world.ask(ONE, MANY)
    assert planned.window.span == 0
    world.kafka.produce(tp(0), 5)
    assert [p.window.span for p in world.ask(TWO, MANY)] == [5]


def test_new_runs_cut_behind_living_ones(world: World) -> None:
    first = world.ask(ONE, Live(at_most=2))
    second = world.ask(TWO, Live(at_most=1))
    assert second[0].window.ranges.starts == first[-1].window.ranges.ends
    assert holders(world) == {1: ONE, 2: ONE, 3: TWO}


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_watermark_is_the_end_of_the_gap_free_prefix_in_whatever_order_they_are_committed(
    world: World, order: tuple[int, ...]
) -> None:
    windows = [p.window for p in world.ask(ONE, Live(at_most=3))]
    done: set[int] = set()
    for i in order:
        world.do(windows[i], ONE)
        done.add(i)
        prefix = next(n for n in range(4) if n not in done)
        assert world.watermark == {0: 10 * prefix, 1: 0}


def test_the_failed_one_in_the_middle_is_adopted_alone_and_the_others_keep_their_work(world: World) -> None:
    first, failed, last = (p.window for p in world.ask(ONE, Live(at_most=3)))
    world.do(first, ONE)
    world.do(last, ONE)
    world.work(failed, ONE, Outcome.FAILED)
    world.die(ONE)
    assert world.watermark == {0: 10, 1: 0}
    [adopted] = world.ask(TWO)
    assert (adopted.window, adopted.how) == (failed, "adopted")
    world.do(failed, TWO)
    assert world.watermark == {0: 30, 1: 0}
    assert [len(world.ledger.attempts(w.id)) for w in (first, failed, last)] == [1, 2, 1]


def test_who_adopts_gets_new_windows_behind_but_no_empty_one(world: World) -> None:
    world.ask(ONE, Live(at_most=3))
    world.die(ONE)
    planned = world.ask(TWO, MANY)
    assert [(p.window.seq, p.how) for p in planned] == [(i, "adopted") for i in (1, 2, 3)] + [(4, "new")]
    world.die(TWO)
    for window in planned:
        world.do(window.window, TWO)
    world.kafka.produce(tp(0), 3)
    world.ask(claim("run-4"))
    world.die(claim("run-4"))
    assert [(p.window.seq, p.how) for p in world.ask(THREE, MANY)] == [(5, "adopted")]


def test_the_warning_of_a_plan_is_told_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.configure(max_open_windows=4, max_offsets=10, on_data_loss="skip")
    world.run(ONE)
    world.kafka.expire(tp(0), 12)
    planned = world.ask(TWO, MANY)
    assert [len(p.warnings) for p in planned] == [1, 0, 0]
    assert caplog.text.count("expired before they were read") == 1
    assert [dict(p.window.lost) for p in planned[1:]] == [{}, {}]


def test_a_retry_of_a_task_with_several_windows_does_what_is_left(world: World) -> None:
    first, second = (p.window for p in world.ask(ONE, Live(at_most=2), last_clear=1))
    world.do(first, ONE, last_clear=1)
    retry = world.ask(ONE, Live(at_most=2), last_clear=1)
    assert [(p.window.seq, p.is_rerun, p.earlier_success is not None) for p in retry] == [
        (1, False, True),
        (2, False, False),
    ]
    world.work(second, ONE, last_clear=1)  # and dies before its commit
    retry = world.ask(ONE, Live(at_most=2), last_clear=1)
    assert [p.earlier_success is not None for p in retry] == [True, True]
    assert (
        world.service.commit(second.id, ONE, retry[1].earlier_success.id if retry[1].earlier_success else None) is True
    )


def test_only_the_newest_living_window_can_be_abandoned_without_a_gap(world: World) -> None:
    first, second, third = (p.window for p in world.ask(ONE, Live(at_most=3)))
    for window in (first, second):
        with pytest.raises(ConfirmationError, match="--leave-gap"):
            world.service.abandon(window.id, "me", "because")
    world.service.abandon(third.id, "me", "because")
    world.do(second, ONE)
    with pytest.raises(ConfirmationError, match=r"Only a replay can read orders-0 \[0, 10\) after that"):
        world.service.abandon(first.id, "me", "because")
    assert seqs(world.ask(TWO, Live(at_most=1))) == [4]
    assert world.service.ledger.window("lake-000004").window.ranges == third.ranges


@pytest.mark.parametrize("is_behind_committed", [True, False])
def test_a_window_below_others_is_given_up_as_a_recorded_gap_that_a_replay_fills(
    world: World, is_behind_committed: bool
) -> None:
    poison, second, third = (p.window for p in world.ask(ONE, Live(at_most=3)))
    if is_behind_committed:
        world.do(second, ONE)
    world.service.abandon(poison.id, "ada", "poison", leave_gap=True)
    [act] = world.ledger.acts("lake")
    assert act.details == {"window": poison.id, "skipped": {"orders-0": [0, 10]}}
    assert world.watermark == {0: 20 if is_behind_committed else 10, 1: 0}
    world.die(ONE)
    [filled] = world.run_all(TWO, Ranges(ranges({tp(0): (0, 10)})))
    assert (filled.lane, filled.ranges) == (Lane.BACKFILL, ranges({tp(0): (0, 10)}))
    world.service.abandon(third.id, "ada", "because")
    rest = [w.ranges[tp(0)] for w in world.run_all(THREE, MANY)]
    assert (rest[0].start, rest[-1].end) == (20 if is_behind_committed else 10, 35)
    assert world.watermark == {0: 35, 1: 0}


def test_a_window_that_expired_below_a_committed_one_holds_nothing_for_good(world: World) -> None:
    first, second = (p.window for p in world.ask(ONE, Live(at_most=2)))
    world.do(second, ONE)
    world.die(ONE)
    world.kafka.expire(tp(0), 5)
    with pytest.raises(DataLossError, match=f"abandon {first.id}"):
        world.ask(TWO)
    world.service.abandon(first.id, "me", "expired", leave_gap=True)
    assert world.run(TWO).ranges[tp(0)].start == 20


def test_a_topic_that_was_recreated_below_a_committed_window_can_be_reset(world: World) -> None:
    first, second = (p.window for p in world.ask(ONE, Live(at_most=2)))
    world.do(second, ONE)
    world.die(ONE)
    world.kafka.recreate("orders", 2)
    with pytest.raises(TopicRecreatedError, match=f"abandon {first.id}"):
        world.ask(TWO)
    with pytest.raises(IllegalStepError, match=f"abandon {first.id}"):
        world.service.reset(world.group, "earliest", "me", "recreated")
    world.service.abandon(first.id, "me", "recreated", leave_gap=True)
    with pytest.raises(TopicRecreatedError, match=r"reset lake --topic orders --to earliest"):
        world.ask(TWO)
    world.service.reset(world.group, "earliest", "me", "recreated", topics=["orders"])
    world.kafka.produce(tp(0), 3)
    assert world.run(TWO).ranges == ranges({tp(0): (0, 3), tp(1): (0, 0)})


def test_an_empty_window_is_not_committed_behind_an_open_one(world: World) -> None:
    planned = world.ask(ONE, MANY)
    assert len(planned) == 4
    world.configure(max_open_windows=8, max_offsets=10)
    with pytest.raises(WindowBusyError, match="lake-000001 is being worked on by dag/run-1"):
        world.ask(TWO)
    world.service.abandon("lake-000004", "me", "because")
    assert seqs(world.ask(THREE)) == [5]


def test_of_several_windows_that_can_not_be_read_those_that_are_open_are_named_with_the_way_out(world: World) -> None:
    world.ask(ONE, Live(at_most=2))
    world.kafka.expire(tp(0), 15)
    with pytest.raises(
        DataLossError, match=r"abandon lake-000002 --why '...'\n    kafka-offsets abandon lake-000001 --why"
    ):
        world.ask(ONE, Live(at_most=2))


def test_a_reset_names_the_newest_open_window_first(world: World) -> None:
    world.ask(ONE, Live(at_most=3))
    with pytest.raises(
        IllegalStepError,
        match=r"abandon it first, then the same with lake-000002, lake-000001:\n    kafka-offsets abandon lake-000003 --why",
    ):
        world.service.reset(world.group, "latest", "me", "because")


def test_a_reset_wants_none_open(world: World) -> None:
    first, second = (p.window for p in world.ask(ONE, Live(at_most=2)))
    world.do(second, ONE)
    with pytest.raises(IllegalStepError, match=f"abandon {first.id}"):
        world.service.reset(world.group, "latest", "me", "because")
    world.do(first, ONE)
    world.service.reset(world.group, "latest", "me", "because")


def test_fewer_open_windows_in_the_definition_let_those_that_are_open_be_finished(world: World) -> None:
    world.ask(ONE, Live(at_most=3))
    world.configure(max_open_windows=1, max_offsets=10)
    world.die(ONE)
    assert seqs(world.ask(TWO, Live(at_most=1))) == [1]
    assert seqs(world.ask(THREE, MANY)) == [2, 3]


def test_a_plan_that_fails_writes_nothing_of_several_windows(world: World) -> None:
    world.run(ONE)
    world.kafka.expire(tp(0), 12)
    before = (world.ledger.load("lake"), world.ledger.windows("lake"))
    with pytest.raises(DataLossError):
        world.ask(TWO, MANY)
    assert (world.ledger.load("lake"), world.ledger.windows("lake")) == before


# A plan task, and mapped tasks that work on what it planned.


def test_a_plan_task_hands_each_window_over_to_a_mapped_task(world: World) -> None:
    plan = planner("run-1")
    planned = world.ask(plan, MANY)
    assert set(holders(world).values()) == {plan}
    for i, p in enumerate(planned):
        given = take(world, mapped("run-1", i), p.window)
        assert (given.window, given.how, given.is_rerun, given.earlier_success) == (p.window, "given", False, None)
    assert holders(world) == {i + 1: mapped("run-1", i) for i in range(4)}
    for i in (3, 1, 0, 2):
        assert world.do(planned[i].window, mapped("run-1", i)) is True
    assert world.watermark == {0: 35, 1: 0}


def test_a_mapped_task_that_is_tried_again_has_its_window_again(world: World) -> None:
    first, second = world.ask(planner("run-1"), Live(at_most=2))
    me = mapped("run-1", 0)
    take(world, me, first.window)
    world.work(first.window, me, Outcome.FAILED)
    assert take(world, me, first.window).earlier_success is None
    world.work(first.window, me)
    retry = take(world, me, first.window)
    assert retry.earlier_success is not None
    assert world.service.commit(first.window.id, me, retry.earlier_success.id) is True
    cleared = take(world, me, first.window, last_clear=7)
    assert (cleared.is_rerun, cleared.earlier_success) == (True, None)
    assert holders(world) == {second.window.seq: planner("run-1")}


def test_a_plan_task_that_is_asked_again_says_the_same_and_takes_nothing_away(world: World) -> None:
    plan = planner("run-1")
    planned = world.ask(plan, Live(at_most=3))
    take(world, mapped("run-1", 0), planned[0].window)
    take(world, mapped("run-1", 1), planned[1].window)
    world.do(planned[0].window, mapped("run-1", 0))
    world.kafka.produce(tp(0), 100)
    again = world.ask(plan, MANY)
    assert [p.window.id for p in again] == [p.window.id for p in planned]
    assert [p.is_rerun for p in again] == [True, False, False]
    assert holders(world) == {2: mapped("run-1", 1), 3: plan}
    assert world.do(planned[1].window, mapped("run-1", 1)) is True


def test_a_mapped_task_needs_its_own_success(world: World) -> None:
    [planned] = world.ask(planner("run-1"), Live(at_most=1))
    me = mapped("run-1", 0)
    take(world, me, planned.window)
    with pytest.raises(NoEvidenceError):
        world.service.commit(planned.window.id, me)
    with pytest.raises(WindowBusyError):
        world.service.commit(planned.window.id, mapped("run-1", 1))


def test_another_run_takes_what_failed_and_the_first_run_waits_for_it(world: World) -> None:
    plan = planner("run-1")
    planned = world.ask(plan, Live(at_most=3))
    for i in (0, 2):
        take(world, mapped("run-1", i), planned[i].window)
        world.do(planned[i].window, mapped("run-1", i))
    take(world, mapped("run-1", 1), planned[1].window)
    world.work(planned[1].window, mapped("run-1", 1), Outcome.FAILED)
    for who in (plan, *(mapped("run-1", i) for i in range(3))):
        world.die(who)
    adopted, *_ = world.ask(planner("run-2"), Live(at_most=1))
    assert (adopted.window, adopted.how) == (planned[1].window, "adopted")
    with pytest.raises(WindowBusyError, match="run-2"):
        take(world, mapped("run-1", 1), planned[1].window)
    with pytest.raises(WindowBusyError, match="run-2"):
        world.ask(plan, MANY)
    take(world, mapped("run-2", 0), adopted.window)
    world.do(adopted.window, mapped("run-2", 0))
    assert world.watermark == {0: 30, 1: 0}


def test_a_mapped_task_may_not_have_a_window_that_another_one_of_its_run_works_on(world: World) -> None:
    first, _ = world.ask(planner("run-1"), Live(at_most=2))
    take(world, mapped("run-1", 0), first.window)
    with pytest.raises(WindowBusyError, match=r"load\[0\]"):
        take(world, mapped("run-1", 1), first.window)


def test_what_can_not_be_given_to_a_task_is_refused(world: World) -> None:
    [planned] = world.ask(planner("run-1"), Live(at_most=1))
    world.service.abandon(planned.window.id, "me", "because")
    me = mapped("run-1", 0)
    with pytest.raises(IllegalStepError, match=r"lake-000001 was abandoned.*Plan again"):
        take(world, me, planned.window)
    for name, error in (("lake-000077", UnknownWindowError), ("other-000001", BadInputError), ("x", BadInputError)):
        with pytest.raises(error):
            world.service.take(world.group, name, me, lambda _: True)
    assert (
        world.service.take(world.group, str(world.ask(planner("run-2"))[0].window.seq), me, lambda _: True).window.seq
        == 2
    )


def test_a_replay_is_given_to_mapped_tasks_as_well(world: World) -> None:
    for run in ("a", "b", "c"):
        world.run(claim(run))
    plan = planner("run-1")
    planned = world.ask(plan, Windows((1, 2, 3)))
    for i, p in enumerate(planned):
        given = take(world, mapped("run-1", i), p.window)
        assert (given.window.id, given.is_rerun) == (p.window.id, True)
        assert world.do(given.window, mapped("run-1", i)) is False
    assert [p.window.id for p in world.ask(plan, Windows((1, 2, 3)))] == [p.window.id for p in planned]


# Commits that stopped half-way.


def test_half_way_commits_are_finished_by_the_next_plan_of_anybody(world: World) -> None:
    first, second = (p.window for p in world.ask(ONE, Live(at_most=2)))
    for window in (first, second):
        world.work(window, ONE)
        world.crash_in_commit(window)
    assert world.watermark == {0: 0, 1: 0}
    assert seqs(world.ask(TWO)) == [3]
    assert world.watermark == {0: 20, 1: 0}
    retry = world.ask(ONE)
    assert [(p.is_rerun, p.earlier_success is not None) for p in retry] == [(False, True), (False, True)]


def test_a_half_way_commit_in_the_middle_is_finished_and_not_run_again(world: World) -> None:
    planned = world.ask(planner("run-1"), Live(at_most=3))
    me = mapped("run-1", 1)
    take(world, me, planned[1].window)
    world.work(planned[1].window, me)
    world.crash_in_commit(planned[1].window)
    given = take(world, me, planned[1].window)
    assert (given.window.state, given.is_rerun, given.earlier_success is not None) == (State.COMMITTED, False, True)
    assert (
        world.service.commit(planned[1].window.id, me, given.earlier_success.id if given.earlier_success else None)
        is False
    )
    assert world.watermark == {0: 0, 1: 0}


def test_a_window_that_is_committing_is_not_abandoned(world: World) -> None:
    [planned] = world.ask(ONE, Live(at_most=1))
    world.crash_in_commit(planned.window)
    with pytest.raises(IllegalStepError, match="is committing"):
        world.service.abandon(planned.window.id, "me", "because")


def test_what_dead_runs_left_is_worked_on_although_nothing_can_be_cut_behind_it(world: World) -> None:
    left = world.ask(ONE, Live(at_most=1))
    world.die(ONE)
    world.kafka.produce(tp(1), 5)
    world.kafka.expire(tp(1), 3)
    assert seqs(world.ask(TWO, Live(at_most=2))) == seqs(left)
    with pytest.raises(DataLossError, match=r"orders-1: offsets \[0, 3\) expired"):
        world.ask(THREE, Live(at_most=2))
