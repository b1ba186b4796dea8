"""Rule 10 of docs/design.md: a group belongs to the DAG and task that plan it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_kafka_offsets.core.errors import (
    BadInputError,
    ForeignGroupError,
    UnknownGroupError,
    UnreadTopicError,
    WindowBusyError,
)
from airflow_kafka_offsets.core.plan.ownership import Owner
from airflow_kafka_offsets.core.plan.request import Live, Ranges, TimeSpan, Windows
from airflow_kafka_offsets.core.source.offsets import Meaning
from airflow_kafka_offsets.core.window import Claim, Scope
from airflow_kafka_offsets.service.move import Moving, Selection
from airflow_kafka_offsets.service.plan import Planned
from airflow_kafka_offsets.service.sources import LedgerSource
from tests.core.examples import NOON, claim, group, ranges, tp
from tests.service.world import World

ONE, TWO = claim("run-1"), claim("run-2")
ELSEWHERE = Claim("reports", "run-1", "load")
SIBLING = claim("run-1", "load_again")
REPLAYS = [Windows((1,)), TimeSpan(NOON.replace(year=2000), NOON.replace(year=2100)), Ranges(ranges({tp(0): (0, 5)}))]


def everything(world: World) -> object:
    """Return what the ledger has of the group."""
    return world.ledger.load("lake"), world.ledger.windows("lake"), world.ledger.acts("lake"), world.ledger.groups()


@pytest.mark.parametrize("other", [ELSEWHERE, SIBLING, replace(ELSEWHERE, scope=Scope.RUN)])
def test_another_dag_or_task_gets_no_live_window_and_is_told_the_ways_out(world: World, other: Claim) -> None:
    world.kafka.produce(tp(0), 10)
    world.run(ONE)
    world.kafka.produce(tp(0), 310)
    before = everything(world)
    with pytest.raises(ForeignGroupError) as refused:
        world.plan(other)
    assert everything(world) == before
    told = str(refused.value)
    assert f"{other.dag_id}/{other.task_id} asks for live windows of group lake, which belongs to dag/load" in told
    copied, look, act = [
        told.index(words) for words in ("give this task a group of its own", "status lake", "take-over")
    ]
    assert copied < look < act, "the usual cause first, and an act last"
    assert told.endswith(f"kafka-offsets take-over lake --dag {other.dag_id} --task {other.task_id} --why '...'")


def test_a_window_that_a_run_of_another_dag_left_behind_is_not_adopted(world: World) -> None:
    world.kafka.produce(tp(0), 310)
    left = world.plan(ONE).window
    world.die(ONE)
    with pytest.raises(ForeignGroupError):
        world.plan(ELSEWHERE)
    assert world.ledger.window(left.id).holder == ONE
    assert world.plan(TWO).window == left


def test_a_group_with_several_open_windows_has_one_owner_too(world: World) -> None:
    world.configure(max_open_windows=4, max_offsets=10)
    world.kafka.produce(tp(0), 40)
    world.ask(ONE, Live(at_most=2))
    with pytest.raises(ForeignGroupError):
        world.ask(ELSEWHERE, Live(at_most=2))


def test_all_runs_and_all_mapped_tasks_of_the_task_are_the_owner(world: World) -> None:
    world.configure(max_open_windows=4, max_offsets=10)
    world.kafka.produce(tp(0), 40)
    planned = [world.plan(claim("run-1", map_index=index)) for index in range(2)]
    planned += [world.plan(who) for who in (claim("run-2", map_index=-1), claim("run-3", scope=Scope.RUN))]
    assert [p.window.seq for p in planned] == [1, 2, 3, 4]


@pytest.mark.parametrize("request_", REPLAYS)
def test_another_dag_replays_on_purpose(world: World, request_: Windows | TimeSpan | Ranges) -> None:
    world.kafka.produce(tp(0), 10)
    window = world.run(ONE)
    again = world.plan(ELSEWHERE, request_)
    assert (again.how, again.window.id) == ("replay", window.id)
    world.die(ELSEWHERE)
    world.kafka.produce(tp(0), 10)
    assert world.run(TWO).seq == 2, "the group is still its own"


def test_a_replay_that_cuts_backfill_windows_makes_nobody_the_owner_and_changes_no_definition(world: World) -> None:
    world.configure(starting_offsets="latest")
    world.kafka.produce(tp(0), 10)
    world.run(ONE)
    world.configure(starting_offsets="latest", max_offsets=3)
    assert [p.how for p in world.ask(ELSEWHERE, Ranges(ranges({tp(0): (0, 6)})))] == ["new", "new"]
    assert world.ledger.load("lake").owner == Owner("dag", "load")
    assert world.ledger.group("lake").max_offsets is None


def test_a_run_keeps_the_windows_that_it_has_when_the_group_changes_hands(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    window = world.run(ONE)
    world.service.take_over("lake", Owner("reports", "load"), "ada", "renamed")
    assert world.plan(ONE, last_clear=1).window.id == window.id
    world.kafka.produce(tp(0), 10)
    with pytest.raises(ForeignGroupError, match="belongs to reports/load"):
        world.plan(TWO)


# Taking over.


def test_the_way_out_after_a_rename_is_the_one_that_the_error_names(world: World) -> None:
    world.kafka.produce(tp(0), 310)
    left = world.plan(ONE).window
    world.die(ONE)
    with pytest.raises(ForeignGroupError, match="kafka-offsets take-over lake --dag reports --task load"):
        world.plan(ELSEWHERE)
    before = world.service.take_over("lake", Owner("reports", "load"), "ada", "orders is called reports now")
    assert before == Owner("dag", "load")
    (act,) = world.ledger.acts("lake")
    assert (act.kind, act.who, act.why, act.at) == ("take-over", "ada", "orders is called reports now", world.now)
    assert act.details == {"from": "dag/load", "to": "reports/load"}
    adopted = world.plan(ELSEWHERE)
    assert (adopted.how, adopted.window) == ("adopted", left)


def renamed(world: World, who: Claim) -> Claim:
    """Let a run read a window; then its DAG or task gets the name `who` has, and takes the group over."""
    world.kafka.produce(tp(0), 10)
    world.run(ONE)
    world.service.take_over("lake", Owner.of(who), "ada", "renamed")
    world.kafka.produce(tp(0), 10)
    return who


# A DAG is renamed with its runs if a person renames these in Airflow's database. The first run of a new DAG may have the name, too.
@pytest.mark.parametrize("who", [SIBLING, ELSEWHERE], ids=["task", "dag"])
@pytest.mark.parametrize("request_", [Live(), Live(until=NOON, ends_at=NOON)], ids=["end offset", "interval"])
def test_an_old_run_gets_no_window_under_the_new_name_of_its_task_or_dag(
    world: World, who: Claim, request_: Live
) -> None:
    who = renamed(world, who)
    before = everything(world)
    with pytest.raises(BadInputError, match=r"had lake-000001 under another name .*[Tt]rigger a new run"):
        world.plan(who, request_, last_clear=1)
    assert everything(world) == before
    assert world.plan(replace(who, run_id="run-2")).window.ranges.without_empty() == ranges({tp(0): (10, 20)})


def test_an_old_run_is_known_under_each_name_that_its_task_had(world: World) -> None:
    renamed(world, SIBLING)
    world.service.take_over("lake", Owner("reports", "load"), "ada", "renamed once more")
    with pytest.raises(BadInputError, match="lake-000001 under another name"):
        world.plan(ELSEWHERE)


def test_an_old_run_whose_windows_a_reset_superseded_gets_no_others_under_its_new_name(world: World) -> None:
    who = renamed(world, SIBLING)
    world.service.reset(world.group, "earliest", "ada", "again", supersede=True)
    with pytest.raises(BadInputError, match="lake-000001 under another name"):
        world.plan(who)


def test_an_old_run_whose_window_was_given_up_asks_like_a_new_one_under_its_new_name(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    world.service.abandon(world.plan(ONE).window.id, "ada", "bad")
    world.service.take_over("lake", Owner.of(SIBLING), "ada", "renamed")
    assert world.plan(SIBLING).window.id == "lake-000002"


def test_a_replay_means_the_same_under_any_name_of_its_task(world: World) -> None:
    who = renamed(world, SIBLING)
    assert world.plan(who, Windows((1,))).window.id == "lake-000001"


def test_what_another_task_of_a_run_replayed_is_no_earlier_name_of_the_owner(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    world.run(ONE)
    world.run(claim("run-2", "load_again"), Windows((1,)))
    world.kafka.produce(tp(0), 10)
    assert world.plan(TWO).window.id == "lake-000002"


def test_a_window_that_is_worked_on_while_the_group_changes_hands_is_waited_for(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    window = world.plan(ONE).window
    world.service.take_over("lake", Owner("reports", "load"), "ada", "renamed")
    with pytest.raises(WindowBusyError):
        world.plan(ELSEWHERE)
    assert world.do(window, ONE) is True


def test_a_group_that_is_not_there_can_not_be_taken_over(world: World) -> None:
    with pytest.raises(UnknownGroupError):
        world.service.take_over("lake", Owner("reports", "load"), "ada", "renamed")


@pytest.mark.parametrize(("who", "why"), [("", "because"), ("ada", " "), ("ada", "...")])
def test_a_take_over_is_signed_and_has_a_reason(world: World, who: str, why: str) -> None:
    world.run(ONE)
    before = everything(world)
    with pytest.raises(BadInputError):
        world.service.take_over("lake", Owner("reports", "load"), who, why)
    assert everything(world) == before


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "x" * 251])
def test_a_name_that_no_dag_or_task_has_owns_nothing(name: str) -> None:
    with pytest.raises(BadInputError):
        Owner(name, "load")
    with pytest.raises(BadInputError):
        Owner("dag", name)


def test_who_planned_with_an_old_owner_in_mind_looks_again(world: World) -> None:
    """The group changes hands between the look at it and the new window."""
    world.kafka.produce(tp(0), 10)
    world.run(ONE)
    world.kafka.produce(tp(0), 10)
    look = world.kafka.snapshot

    def overtaken(*arguments):  # type: ignore[no-untyped-def]
        world.kafka.snapshot = look  # type: ignore[method-assign]
        world.service.take_over("lake", Owner("reports", "load"), "ada", "renamed")
        return look(*arguments)

    world.kafka.snapshot = overtaken  # type: ignore[method-assign]
    with pytest.raises(ForeignGroupError):
        world.plan(TWO)


def test_a_group_that_was_moved_by_import_belongs_to_the_first_that_plans_it(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    world.run(ONE)
    moving = Moving(world.ledger, lambda: world.now)
    found = moving.plan_import(
        "new", Selection(LedgerSource(world.ledger, "lake"), "lake", Meaning.NEXT), lambda _: world.kafka
    )
    moving.carry_out_import(found, "ada", "renamed")
    assert world.ledger.load("new").owner is None
    world.group = group("new")
    world.run(ELSEWHERE)
    assert world.ledger.load("new").owner == Owner("reports", "load")
    with pytest.raises(ForeignGroupError):
        world.plan(TWO)


# Topics that the definition does not read.


@pytest.fixture
def two_topics(world: World) -> World:
    """A run died over a window of orders and clicks; then clicks left the definition."""
    world.kafka.create("clicks")
    world.configure(topics=["orders", "clicks"])
    world.kafka.produce(tp(0), 10)
    world.kafka.produce(tp(0, "clicks"), 5)
    world.plan(ONE)
    world.die(ONE)
    world.configure(topics=["orders"])
    return world


@pytest.mark.parametrize("max_open", [1, 3])
def test_a_window_of_a_topic_that_the_definition_no_longer_reads_is_not_adopted(
    two_topics: World, max_open: int
) -> None:
    world = two_topics
    world.configure(topics=["orders"], max_open_windows=max_open)
    before = everything(world)
    with pytest.raises(UnreadTopicError) as refused:
        world.plan(TWO)
    assert everything(world) == before
    told = str(refused.value)
    assert "Window lake-000001 has records of clicks, which group lake no longer reads" in told
    assert "clear dag/run-1/load" in told
    assert "kafka-offsets abandon lake-000001" in told


def test_its_own_run_has_it_still_and_then_the_group_goes_on(two_topics: World) -> None:
    world = two_topics
    window = world.plan(ONE, last_clear=1).window
    assert world.do(window, ONE, last_clear=1) is True
    world.die(ONE)
    world.kafka.produce(tp(0), 3)
    world.kafka.produce(tp(0, "clicks"), 4)
    assert world.run(TWO).ranges.without_empty() == ranges({tp(0): (10, 13)})


def test_a_topic_that_was_quiet_in_it_is_no_obstacle(world: World) -> None:
    world.kafka.create("clicks")
    world.configure(topics=["orders", "clicks"])
    world.kafka.produce(tp(0), 10)
    left = world.plan(ONE).window
    world.die(ONE)
    world.configure(topics=["orders"])
    assert world.plan(TWO).window == left


def test_abandon_is_a_way_out_of_a_topic_that_left(two_topics: World) -> None:
    two_topics.service.abandon("lake-000001", "ada", "clicks is gone")
    assert two_topics.plan(TWO).window.ranges.without_empty() == ranges({tp(0): (0, 10)})


@pytest.mark.parametrize("request_", [Windows((1,)), TimeSpan(NOON.replace(year=2000), NOON.replace(year=2100))])
def test_another_dag_does_not_replay_what_it_does_not_read(world: World, request_: Windows | TimeSpan) -> None:
    world.kafka.produce(tp(0), 10)
    world.run(ONE)
    world.kafka.create("clicks")
    world.configure(topics=["clicks"])
    with pytest.raises(UnreadTopicError, match="records of orders, which reports/load leaves out of group lake"):
        world.plan(ELSEWHERE, request_)
    assert world.plan(TWO, Windows((1,))).window.seq == 1, "its owner may: the topic left it since"


# A window that is asked for by its name (`window=`), not planned.


def given(world: World, who: Claim, window_id: str = "lake-000001") -> Planned:
    """Let a task ask for one window by its name."""
    world.over.discard(who)
    return world.service.take(world.group, window_id, who, world.over.__contains__)


@pytest.mark.parametrize("topic", ["orders", "clicks"])
def test_a_windows_name_is_no_way_round_the_owner(world: World, topic: str) -> None:
    world.kafka.produce(tp(0), 310)
    world.plan(ONE)
    world.kafka.create("clicks")
    world.configure(topics=[topic])
    with pytest.raises(WindowBusyError):
        given(world, ELSEWHERE)
    world.die(ONE)
    before = everything(world)
    with pytest.raises(
        ForeignGroupError, match="reports/load asks for live windows of group lake, which belongs to dag"
    ):
        given(world, ELSEWHERE)
    assert everything(world) == before


def test_a_windows_name_is_no_way_round_the_topics_of_a_replay(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    world.run(ONE)
    assert given(world, ELSEWHERE).is_rerun, "a DAG that replays for the same output names windows, too"
    world.die(ELSEWHERE)
    world.kafka.create("clicks")
    world.configure(topics=["clicks"])
    with pytest.raises(UnreadTopicError, match="records of orders, which reports/load leaves out of group lake"):
        given(world, replace(ELSEWHERE, run_id="run-2"))
    assert given(world, ELSEWHERE).is_rerun, "who had it runs it again"


def test_a_second_task_of_the_owners_dag_runs_a_committed_window_again_whatever_its_topics(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    world.run(ONE)
    world.kafka.create("clicks")
    world.configure(topics=["clicks"])
    assert given(world, claim("run-2", "load_again")).is_rerun


def test_a_windows_name_is_no_way_round_the_topics_of_the_group(two_topics: World) -> None:
    before = everything(two_topics)
    with pytest.raises(UnreadTopicError, match="Window lake-000001 has records of clicks"):
        given(two_topics, TWO)
    assert everything(two_topics) == before


def test_the_workers_of_the_owners_dag_have_windows_by_name_whichever_run_held_them(world: World) -> None:
    planner, work = claim("run-1", "plan", scope=Scope.RUN), claim("run-1", "work", map_index=0)
    world.kafka.produce(tp(0), 10)
    world.plan(planner)
    assert given(world, work).window.seq == 1
    world.die(work)
    world.die(planner)
    world.plan(replace(planner, run_id="run-2"))
    world.die(replace(planner, run_id="run-2"))
    assert given(world, work).window.seq == 1
    world.die(work)
    assert given(world, replace(work, run_id="run-3")).window.seq == 1


def test_the_first_window_of_a_group_names_the_group_that_its_task_had_on_the_same_topics(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    assert world.plan(ONE).warnings == ()
    world.run(ONE)
    world.configure(name="lake.ordres")
    first = world.plan(TWO)
    [told] = first.warnings
    assert told.startswith("dag/load has planned the same topics as group lake, and lake.ordres begins at its own")
    assert "docs/howto/rename-a-group.md" in told
    assert first.window.span == 10, "it is said and not refused: another output of the same task may be meant"
    world.do(first.window, TWO)
    world.die(TWO)
    world.kafka.produce(tp(0), 1)
    assert world.plan(claim("run-3")).warnings == (), "it is said once"


@pytest.mark.parametrize(("asks", "topic"), [(SIBLING, "orders"), (ELSEWHERE, "orders"), (TWO, "clicks")])
def test_a_group_of_another_task_or_other_topics_is_no_slip_in_a_name(world: World, asks: Claim, topic: str) -> None:
    world.kafka.create("clicks", 1)
    world.kafka.produce(tp(0), 10)
    world.run(ONE)
    world.configure(name="lake.other", topics=[topic])
    assert world.plan(asks).warnings == ()


def test_a_group_that_an_import_founded_is_a_rename_that_was_done(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    world.run(ONE)
    world.configure(name="lake.sales")
    moving = Moving(world.ledger, lambda: world.now)
    asked = Selection(LedgerSource(world.ledger, "lake"), "lake", Meaning.NEXT)
    moving.carry_out_import(moving.plan_import("lake.sales", asked, lambda _: world.kafka), "ada", "renamed")
    world.kafka.produce(tp(0), 5)
    assert world.plan(TWO).warnings == ()
