"""A topic is back under an id that its group has read: each offset has the owner that it had, and none is passed without a word."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_kafka_offsets.core.errors import ConfirmationError, IllegalStepError
from airflow_kafka_offsets.core.history import LEFT
from airflow_kafka_offsets.core.plan.request import Ranges
from airflow_kafka_offsets.service.prune import Pruning
from tests.core.examples import claim, ranges, tp
from tests.service.world import World

ONE, TWO, THREE, FOUR = (claim(f"run-{number}") for number in range(1, 5))
CLICKS = tp(0, "clicks")
DAY = timedelta(days=1)


@pytest.fixture
def both(tmp_path: Path) -> Iterator[World]:
    """Make a group that reads two topics."""
    world = World(tmp_path, topics=["orders", "clicks"])
    world.kafka.create("clicks", 1)
    yield world
    world.close()


def _fail_over(world: World, *topics: str) -> None:
    for topic, partitions in (("orders", 2), ("clicks", 1)):
        if topic in topics:
            world.kafka.recreate(topic, partitions)
    world.service.reset(world.group, "earliest", "ada", "failed over", topics=topics)


def _bring_back(world: World, topic_ids: Mapping[str, str]) -> None:
    for topic, topic_id in topic_ids.items():
        world.kafka.bring_back(topic, topic_id)


def test_a_reset_notes_where_the_group_stood_in_a_topic_that_it_leaves(both: World) -> None:
    both.kafka.produce(tp(0), 10)
    both.kafka.produce(CLICKS, 5)
    first = both.run(ONE).topic_ids["orders"]
    _fail_over(both, "orders")
    stood = {"orders": {"id": first, "offsets": {"0": 10, "1": 0}, "leader_epochs": {"0": 0, "1": 0}}}
    assert both.ledger.acts("lake")[-1].details[LEFT] == stood
    both.service.reset(both.group, '{"clicks":{"0":5}}', "ada", "to where it is")
    assert LEFT not in both.ledger.acts("lake")[-1].details


def test_topics_of_a_cluster_that_gives_all_of_them_one_id_are_not_taken_for_each_other(both: World) -> None:
    none = both.kafka.give_no_ids()
    both.kafka.produce(tp(0), 3)
    both.kafka.produce(CLICKS, 5)
    both.run(ONE)
    _fail_over(both, "orders", "clicks")
    for topic in ("orders", "clicks"):
        both.kafka.bring_back(topic, none)
    with pytest.raises((ConfirmationError, IllegalStepError), match="lake-000001"):
        both.service.reset(both.group, '{"orders":{"0":3,"1":0},"clicks":{"0":3}}', "ada", "failed back")
    both.service.reset(both.group, '{"orders":{"0":3,"1":0},"clicks":{"0":5}}', "ada", "failed back")
    assert both.run(TWO).span == 0


@pytest.mark.parametrize("other", ["a topic", "a partition"])
def test_what_a_reset_back_gave_away_is_not_hidden_by_a_window_that_reads_something_else(
    both: World, other: str
) -> None:
    """The newest window of the earlier time has an empty range where the group stood before the reset."""
    read = CLICKS if other == "a topic" else tp(1)
    both.kafka.produce(tp(0), 10)
    first = both.run(ONE).topic_ids["orders"]
    both.kafka.produce(read, 5)
    stood = both.run(TWO).ranges.ends
    both.service.reset(both.group, '{"orders":{"0":0}}', "ada", "again", supersede=True)
    _fail_over(both, "orders")
    both.kafka.bring_back("orders", first)
    back = f'{{"orders":{{"0":10,"1":{stood[tp(1)]}}}}}'
    reset = both.service.reset(both.group, back, "ada", "failed back")
    assert reset.skipped == ranges({tp(0): (0, 10)})
    assert both.ledger.acts("lake")[-1].details["skipped"] == {"orders-0": [0, 10]}


def test_a_partition_that_no_one_named_goes_on_where_the_group_stood(both: World) -> None:
    both.kafka.produce(tp(0), 10)
    both.kafka.produce(tp(1), 7)
    first = both.run(ONE).topic_ids["orders"]
    _fail_over(both, "orders")
    both.kafka.bring_back("orders", first)
    both.service.reset(both.group, '{"orders":{"0":10}}', "ada", "failed back")
    both.kafka.produce(tp(1), 2)
    assert both.run(TWO).ranges.without_empty() == ranges({tp(1): (7, 9)})


@pytest.mark.parametrize("is_old", [False, True], ids=["", "ledger of an earlier version"])
def test_windows_that_were_pruned_while_their_topic_was_away_keep_their_offsets(world: World, is_old: bool) -> None:
    """Of the windows that own something, only one of a replay is left."""
    for partition in (0, 1):
        world.kafka.produce(tp(partition), 20)
    first = world.run(ONE).topic_ids["orders"]
    world.kafka.produce(tp(0), 10)
    world.service.reset(world.group, '{"orders":{"0":30}}', "ada", "the newest first")
    [backfill] = world.run_all(TWO, Ranges(ranges({tp(0): (22, 25)})))
    _fail_over(world, "orders")
    world.kafka.produce(tp(0), 3)
    world.run(THREE)
    world.now += 9 * DAY
    world.service.start_attempt(backfill, TWO)  # it is in use
    pruning = Pruning(world.ledger, world.kafka, lambda: world.now, lambda _: None)
    assert pruning.prune(world.group, DAY, "ada", "old", are_deleted=True).windows == 1
    if is_old:
        world.forget_where_it_stood()
    world.kafka.bring_back("orders", first)
    with pytest.raises(IllegalStepError, match=r"pruned from the ledger.*orders-1: offset 5 \(from 20 on"):
        world.service.reset(world.group, '{"orders":{"1":5}}', "ada", "failed back", supersede=True)
    world.service.reset(world.group, '{"orders":{"0":25}}', "ada", "failed back", supersede=True)
    assert world.run(FOUR).ranges.without_empty() == ranges({tp(0): (25, 30)})


def test_a_window_with_two_topics_that_are_back_is_not_cut_by_a_reset_of_one_of_them(both: World) -> None:
    both.kafka.produce(tp(0), 10)
    both.kafka.produce(CLICKS, 5)
    first = both.run(ONE).topic_ids
    _fail_over(both, "orders", "clicks")
    both.kafka.produce(CLICKS, 3)
    both.run(TWO)
    _bring_back(both, first)
    way_out = r"""lake-000001 owns clicks-0 offsets 0 to 4.*--to '\{"clicks":\{"0":5\},"orders":\{"0":10,"1":0\}\}'.*--to-window lake-000001"""
    with pytest.raises(IllegalStepError, match=way_out):
        both.service.reset(both.group, "earliest", "ada", "again", topics=["orders"], supersede=True)
    with pytest.raises(ConfirmationError, match="from 1 committed window: lake-000001"):
        both.service.reset(both.group, "", "ada", "again", to_window="lake-000001")
    reset = both.service.reset(both.group, "", "ada", "again", to_window="lake-000001", supersede=True)
    assert [window.id for window in reset.superseded] == ["lake-000001"]
    assert not reset.unread
    assert both.run(THREE).ranges.without_empty() == ranges({tp(0): (0, 10), CLICKS: (0, 5)})


def test_a_topic_that_is_back_and_is_not_named_stays_where_it_is_until_it_has_a_reset_of_its_own(both: World) -> None:
    both.kafka.produce(tp(0), 10)
    both.kafka.produce(CLICKS, 5)
    first = both.run(ONE).topic_ids
    _fail_over(both, "orders", "clicks")
    both.kafka.produce(CLICKS, 3)
    second = both.run(TWO).topic_ids
    _bring_back(both, first)
    reset = both.service.reset(both.group, '{"orders":{"0":10,"1":0}}', "ada", "failed back")
    assert (reset.position.offsets[CLICKS], reset.position.topic_ids["clicks"]) == (3, second["clicks"])
    assert reset.back_at == {tp(0): 10, tp(1): 0}
    reset = both.service.reset(both.group, '{"clicks":{"0":5}}', "ada", "failed back")
    assert (reset.position.offsets[CLICKS], reset.position.topic_ids) == (5, first)
    assert (reset.moves, reset.skipped, reset.superseded) == ({}, ranges({}), ())


@pytest.mark.parametrize(("expired", "on"), [(0, '{"0":10,"1":5}'), (15, '{"0":15,"1":5}')])
def test_the_command_that_reads_on_works_also_if_retention_has_passed_where_the_group_stood(
    world: World, expired: int, on: str
) -> None:
    world.kafka.produce(tp(0), 20)
    world.kafka.produce(tp(1), 5)
    world.configure(max_offsets=15)
    window = world.run(ONE)
    assert window.ranges.ends == {tp(0): 10, tp(1): 5}
    _fail_over(world, "orders")
    world.kafka.bring_back("orders", window.topic_ids["orders"])
    world.kafka.expire(tp(0), expired)
    with pytest.raises(
        (ConfirmationError, IllegalStepError), match=re.escape(f"""reset lake --to '{{"orders":{on}}}'""")
    ):
        world.service.reset(world.group, "earliest", "ada", "again")
    reset = world.service.reset(world.group, f'{{"orders":{on}}}', "ada", "failed back")
    assert reset.skipped == (ranges({tp(0): (10, 15)}) if expired else ranges({}))


def test_no_command_leads_on_in_a_topic_that_is_back_without_the_newest_records_that_were_read(both: World) -> None:
    both.kafka.produce(tp(0), 10)
    both.kafka.produce(CLICKS, 5)
    first = both.run(ONE).topic_ids
    _fail_over(both, "orders", "clicks")
    _bring_back(both, first)
    both.kafka.truncate(tp(0), 8)
    with pytest.raises(ConfirmationError, match=r"""topic clicks under an id again.*--to '\{"clicks":\{"0":5\}\}'"""):
        both.service.reset(both.group, "earliest", "ada", "again")
