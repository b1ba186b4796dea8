"""A broker without topic ids, one that gets them by an upgrade, and one that loses them by a rollback."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_kafka_offsets.core.conditions import LagAtMost
from airflow_kafka_offsets.core.errors import (
    IllegalStepError,
    LogTruncatedError,
    MissingPartitionError,
    TopicRecreatedError,
)
from airflow_kafka_offsets.core.log import UNKNOWN_ID
from airflow_kafka_offsets.core.plan.ownership import watermark
from airflow_kafka_offsets.core.plan.request import Ranges, Windows
from airflow_kafka_offsets.core.source.islands import Island
from airflow_kafka_offsets.core.window import State
from airflow_kafka_offsets.service import watch
from airflow_kafka_offsets.service.audit import audit_table
from airflow_kafka_offsets.service.move import Moving, Selection
from airflow_kafka_offsets.service.prune import Prune, Pruning
from airflow_kafka_offsets.service.sources import LedgerSource
from tests.core.examples import claim, ranges, tp
from tests.service.world import World

ONE, TWO, THREE, FOUR = (claim(f"run-{number}") for number in range(1, 5))
BLIND = "Kafka gives no id of orders, so a topic that is deleted and made again"


@pytest.fixture
def old(world: World) -> World:
    """Return a world whose broker is older than topic ids, and whose group has a window of it."""
    world.kafka.tells_ids = False
    world.kafka.produce(tp(0), 10)
    world.run(ONE)
    return world


def noted(world: World) -> str:
    """Return the id of the topic in the position of the group."""
    position = world.ledger.load("lake").position
    assert position
    return position.topic_ids["orders"]


def test_a_plan_says_once_that_a_recreation_can_not_be_seen(world: World) -> None:
    world.kafka.tells_ids = False
    first = world.plan(ONE)
    assert [warning for warning in first.warnings if BLIND in warning]
    world.do(first.window, ONE)
    assert not world.plan(TWO).warnings


def test_after_an_upgrade_the_group_goes_on_and_remembers_the_first_real_id(old: World) -> None:
    old.kafka.tells_ids = True
    old.kafka.produce(tp(0), 5)
    assert old.run(TWO).ranges == ranges({tp(0): (10, 15), tp(1): (0, 0)})
    assert noted(old) == "id-1"
    old.kafka.recreate("orders", 2)
    old.kafka.produce(tp(0), 30)
    with pytest.raises(TopicRecreatedError, match="id id-1, now id-2"):
        old.plan(THREE)


def test_after_a_rollback_the_group_goes_on_and_keeps_the_id_that_it_knew(world: World) -> None:
    world.run(ONE)
    world.kafka.tells_ids = False
    world.kafka.produce(tp(0), 5)
    planned = world.plan(TWO)
    assert [warning for warning in planned.warnings if BLIND in warning]
    world.do(planned.window, TWO)
    assert noted(world) == "id-1"
    world.kafka.recreate("orders", 2)
    world.kafka.produce(tp(0), 30)
    world.kafka.tells_ids = True
    with pytest.raises(TopicRecreatedError):
        world.plan(THREE)


def test_a_log_that_got_shorter_is_found_without_ids(old: World) -> None:
    old.kafka.recreate("orders", 2)
    with pytest.raises(LogTruncatedError):
        old.plan(TWO)


def test_a_partition_that_is_gone_shows_without_ids_that_its_topic_was_made_again(old: World) -> None:
    old.kafka.recreate("orders", 1)
    old.kafka.produce(tp(0), 20)
    with pytest.raises(MissingPartitionError, match=r"orders was made again.*Use a group of another name"):
        old.plan(TWO)


def test_an_open_window_of_before_an_upgrade_is_adopted_run_and_committed(old: World) -> None:
    old.kafka.produce(tp(0), 5)
    window = old.plan(TWO).window
    old.die(TWO)
    old.kafka.tells_ids = True
    adopted = old.plan(THREE).window
    assert (adopted.id, adopted.topic_ids) == (window.id, {"orders": UNKNOWN_ID}), "its digest is that of then"
    old.service.check_same_topics(adopted)
    assert old.do(adopted, THREE)


def test_offsets_that_were_read_before_an_upgrade_have_their_owner_after_it(old: World) -> None:
    old.kafka.tells_ids = True
    old.kafka.produce(tp(0), 5)
    old.run(TWO)
    [again] = old.ask(THREE, Ranges(ranges({tp(0): (2, 4)})))
    assert (again.window.seq, again.is_rerun) == (1, True)
    reset = old.service.reset(old.group, "earliest", "ada", "again", supersede=True)
    assert [window.seq for window in reset.superseded] == [1, 2]


def test_a_backfill_after_a_rollback_has_the_id_that_the_group_knows(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    world.run(ONE)
    world.service.reset(world.group, "latest", "ada", "skip")
    world.kafka.produce(tp(0), 5)
    world.service.reset(world.group, "latest", "ada", "skip")
    world.kafka.tells_ids = False
    [backfill] = world.run_all(TWO, Ranges(ranges({tp(0): (11, 13)})))
    assert backfill.topic_ids == {"orders": "id-1"}


@pytest.fixture
def left(old: World) -> World:
    """Return a world whose broker got topic ids, and whose topic was recreated after that; the group reads the new one."""
    old.kafka.tells_ids = True
    old.run(TWO)
    old.kafka.recreate("orders", 2)
    old.kafka.produce(tp(0), 30)
    old.service.reset(old.group, "earliest", "ada", "recreated")
    old.run(THREE)
    return old


def test_a_window_of_before_an_upgrade_is_not_run_on_a_topic_that_replaced_its_own(left: World) -> None:
    with pytest.raises(TopicRecreatedError, match="id id-1, now id-2"):
        left.plan(FOUR, Windows((1,)))
    [(window, _)] = [(record.window, 0) for record in left.ledger.windows("lake") if record.seq == 1]
    with pytest.raises(TopicRecreatedError):
        left.service.check_same_topics(window)


def test_an_audit_leaves_out_what_was_read_before_an_upgrade_if_its_topic_is_another_now(left: World) -> None:
    audit = audit_table(left.ledger, left.group, {tp(0): [Island(0, 30, 1)]})
    assert audit.other_topics == ("lake-000001",)
    assert audit.is_right


def test_without_any_id_nothing_is_pruned_and_after_an_upgrade_it_is(old: World) -> None:
    old.kafka.produce(tp(0), 5)
    old.run(TWO)
    old.kafka.expire(tp(0), 15)
    pruning = Pruning(old.ledger, old.kafka, lambda: old.now + timedelta(days=400))
    pruned = pruning.prune(old.group, timedelta(days=365), "ada", "old")
    assert (pruned.windows, pruned.why) == (
        0,
        "the id of topic orders is unknown, so what Kafka still holds of it is, too",
    )
    old.kafka.tells_ids = True
    old.kafka.produce(tp(0), 5)
    old.run(THREE)
    assert pruning.prune(old.group, timedelta(days=365), "ada", "old").windows == 2
    assert old.ledger.pruned("lake").floors == {"id-1": {0: 15}}


def test_a_topic_that_was_deleted_before_any_id_needs_a_word_to_be_pruned(world: World) -> None:
    world.kafka.tells_ids = False
    world.kafka.create("old")
    world.configure(topics=["orders", "old"])
    world.kafka.produce(tp(0, "old"), 3)
    world.run(ONE)
    world.configure(topics=["orders"])
    world.kafka.tells_ids = True
    world.kafka.produce(tp(0), 5)
    world.run(TWO)
    world.kafka.expire(tp(0), 5)
    pruning = Pruning(world.ledger, world.kafka, lambda: world.now + timedelta(days=400))

    def prune(*, are_deleted: bool) -> Prune:
        return pruning.prune(world.group, timedelta(days=365), "ada", "old", are_deleted=are_deleted)

    assert "the id of topic old is unknown" in str(prune(are_deleted=True).why), "the topic is there"
    world.kafka.delete("old")
    assert prune(are_deleted=False).why == (
        "Kafka has no topic old: make sure that this is the right Kafka, and if the topic was deleted, add --deleted-topics"
    )
    assert prune(are_deleted=True).windows == 1
    assert world.ledger.pruned("lake").floors == {}, "an unknown id would be that of any other topic, too"


def test_a_sensor_waits_on_through_an_upgrade(old: World) -> None:
    old.kafka.tells_ids = True
    assert old.lag == 0
    [answer] = watch.ask([LagAtMost(old.group, 0)], lambda: old.ledger, lambda: old.kafka, now=old.now)
    assert not isinstance(answer, Exception)
    assert old.ledger.window("lake-000001").state is State.COMMITTED


def test_a_shorter_log_without_an_id_may_be_that_of_another_topic(old: World) -> None:
    old.kafka.recreate("orders", 2)
    old.kafka.produce(tp(0), 5)
    with pytest.raises(
        LogTruncatedError, match=r"orders may be another topic of that name: if so, use a group of another name"
    ):
        old.plan(TWO)


def recreated(old: World) -> World:
    """Let the broker learn ids, and the topic be made again, after a backfill of the time without ids."""
    old.kafka.produce(tp(0), 10)
    old.service.reset(old.group, "latest", "ada", "skip")
    old.run_all(TWO, Ranges(ranges({tp(0): (12, 15)})))
    old.kafka.tells_ids = True
    old.kafka.produce(tp(0), 1)
    old.run(THREE)
    old.kafka.recreate("orders", 2)
    old.kafka.produce(tp(0), 40)
    return old


def test_a_reset_leaves_windows_of_the_time_before_ids_to_the_topic_that_they_read(old: World) -> None:
    world = recreated(old)
    world.service.reset(world.group, "earliest", "ada", "recreated")
    window = world.run(FOUR)
    again = world.service.reset(world.group, "earliest", "ada", "again", supersede=True)
    assert [one.id for one in again.superseded] == [window.id]


def test_a_replay_fills_the_gap_of_the_new_topic_beside_windows_of_the_time_before_ids(old: World) -> None:
    world = recreated(old)
    world.service.reset(world.group, "latest", "ada", "recreated")
    [filled] = world.run_all(FOUR, Ranges(ranges({tp(0): (10, 20)})))
    assert (filled.ranges, filled.topic_ids) == (ranges({tp(0): (10, 20)}), {"orders": "id-2"})


def test_the_floor_of_a_known_id_holds_where_kafka_gives_none_any_more(world: World) -> None:
    for by in (ONE, TWO):
        world.kafka.produce(tp(0), 10)
        world.run(by)
    world.kafka.expire(tp(0), 10)
    later = world.now + timedelta(days=400)
    assert (
        Pruning(world.ledger, world.kafka, lambda: later).prune(world.group, timedelta(days=365), "ada", "old").windows
        == 1
    )
    world.kafka.restore(tp(0), 0)
    world.kafka.tells_ids = False
    with pytest.raises(IllegalStepError, match="were pruned"):
        world.service.reset(world.group, "earliest", "ada", "why", supersede=True)


def test_an_import_under_another_name_keeps_the_id_that_kafka_gives_no_more(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    world.run(ONE)
    world.kafka.tells_ids = False
    moving = Moving(world.ledger, lambda: world.now)
    selection = Selection(LedgerSource(world.ledger, "lake"), "lake")
    moving.carry_out_import(moving.plan_import("lake2", selection, lambda _: world.kafka), "ada", "another name")
    world.kafka.recreate("orders", 2)
    world.kafka.produce(tp(0), 30)
    world.kafka.tells_ids = True
    world.group = replace(world.group, name="lake2")
    with pytest.raises(TopicRecreatedError, match="id id-1, now id-2"):
        world.plan(TWO)


def test_an_open_window_of_the_time_before_ids_is_one_of_the_topic_that_was_met_first(world: World) -> None:
    world.configure(max_open_windows=3)
    world.kafka.tells_ids = False
    world.kafka.produce(tp(0), 10)
    world.plan(ONE)
    world.kafka.tells_ids = True
    world.kafka.produce(tp(0), 5)
    world.plan(TWO)
    world.kafka.recreate("orders", 2)
    world.kafka.produce(tp(0), 40)
    position = watermark(world.ledger.load("lake"))
    assert position is not None
    assert position.topic_ids == {"orders": "id-1"}
