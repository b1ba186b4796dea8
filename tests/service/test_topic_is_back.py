"""A topic is back under an id that its group has read: each offset has the owner that it had, and none is passed without a word."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from airflow_kafka_offsets.cli.parser import make_parser
from airflow_kafka_offsets.core.errors import BadInputError, ConfirmationError, IllegalStepError
from airflow_kafka_offsets.core.history import LEFT
from airflow_kafka_offsets.core.plan.kept import kept_parts
from airflow_kafka_offsets.core.plan.request import Ranges, TimeSpan
from airflow_kafka_offsets.core.ranges import OffsetRanges
from airflow_kafka_offsets.service.move import Asked, Moving
from airflow_kafka_offsets.service.prune import Pruning
from airflow_kafka_offsets.service.sources import StoreSource
from tests.core.examples import NOON, claim, ranges, tp
from tests.service.world import World
from tests.stores.memory import MemoryStore

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
    way_out = r"""lake-000001 owns clicks-0 offsets \[0, 5\).*--to '\{"clicks":\{"0":5\},"orders":\{"0":10,"1":0\}\}'.*--to-window lake-000001"""
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


@pytest.fixture(params=["left the group", "was recreated"])
def kept(both: World, request: pytest.FixtureRequest) -> World:
    """Let a reset supersede a window, of which people keep `clicks-0` 0 to 4: that topic is away. Then it is back, and stands at 5."""
    both.kafka.produce(tp(0), 10)
    both.kafka.produce(CLICKS, 5, at=NOON)
    first = both.run(ONE).topic_ids["clicks"]
    if request.param == "was recreated":
        _fail_over(both, "clicks")
    else:
        both.configure(topics=["orders"])
    both.service.reset(both.group, "earliest", "ada", "again", topics=["orders"], supersede=True)
    details = both.ledger.acts("lake")[-1].details
    assert details["superseded"] == ["lake-000001"]
    assert details["kept"] == {"lake-000001": {"clicks": {"id": first, "0": [0, 5]}}}
    both.run(TWO)
    both.configure(topics=["orders", "clicks"])
    if request.param == "was recreated":
        both.kafka.bring_back("clicks", first)
        both.service.reset(both.group, '{"clicks":{"0":5}}', "ada", "failed back")
    return both


def _kept(world: World) -> dict[str, OffsetRanges]:
    parts = kept_parts(act.details for act in world.ledger.acts("lake"))
    return {part.window_id: OffsetRanges({part.tp: part.offsets}) for part in parts}


def test_output_that_a_reset_told_people_to_keep_is_named_before_its_offsets_are_read_again(kept: World) -> None:
    told = r"told people to keep: lake-000001 clicks-0 \[0, 5\)\. Remove exactly this part.* add --supersede"
    with pytest.raises(ConfirmationError, match=told) as refused:
        kept.service.reset(kept.group, "earliest", "ada", "again", topics=["clicks"])
    assert "offsets away from" not in str(refused.value), "no window loses any"
    reset = kept.service.reset(kept.group, "earliest", "ada", "again", topics=["clicks"], supersede=True)
    assert (reset.superseded, [str(part) for part in reset.taken]) == ((), ["lake-000001 clicks-0 [0, 5)"])
    act = kept.ledger.acts("lake")[-1]
    assert (act.details["superseded"], act.window_ids) == ([], ("lake-000001",))
    assert act.details["taken"]["lake-000001"]["clicks"]["0"] == [0, 5]
    assert _kept(kept) == {}
    assert kept.run(THREE).ranges.without_empty() == ranges({CLICKS: (0, 5)})
    # It is named once: after that, a new window owns them.
    with pytest.raises(ConfirmationError, match="from 1 committed window: lake-000003") as refused:
        kept.service.reset(kept.group, "earliest", "ada", "again", topics=["clicks"])
    assert "lake-000001" not in str(refused.value)


def test_a_reset_to_the_middle_of_what_was_kept_takes_only_the_part_from_there_on(kept: World) -> None:
    reset = kept.service.reset(kept.group, '{"clicks":{"0":3}}', "ada", "again", supersede=True)
    assert [str(part) for part in reset.taken] == ["lake-000001 clicks-0 [3, 5)"]
    assert _kept(kept) == {"lake-000001": ranges({CLICKS: (0, 3)})}
    assert kept.run(THREE).ranges.without_empty() == ranges({CLICKS: (3, 5)})
    reset = kept.service.reset(kept.group, '{"clicks":{"0":1}}', "ada", "again", supersede=True)
    assert [window.id for window in reset.superseded] == ["lake-000003"]
    assert [str(part) for part in reset.taken] == ["lake-000001 clicks-0 [1, 3)"]
    assert _kept(kept) == {"lake-000001": ranges({CLICKS: (0, 1)})}


def test_what_was_kept_is_known_after_its_window_was_pruned(kept: World) -> None:
    """Kafka holds again what it had removed, as another cluster may."""
    for partition in (tp(0), CLICKS):
        kept.kafka.expire(partition, 5)
    kept.kafka.expire(tp(0), 10)
    kept.kafka.produce(tp(0), 1)
    kept.run(THREE)
    kept.now += 9 * DAY
    pruning = Pruning(kept.ledger, kept.kafka, lambda: kept.now, lambda _: None)
    assert pruning.prune(kept.group, DAY, "ada", "old", are_deleted=True).windows
    kept.kafka.restore(CLICKS, 0)
    with pytest.raises(ConfirmationError, match=r"lake-000001 clicks-0 \[2, 5\)"):
        kept.service.reset(kept.group, '{"clicks":{"0":2}}', "ada", "again")


def test_an_import_names_what_was_kept_too(kept: World) -> None:
    kept.run(THREE)  # an import goes by the definition of the last plan
    moving = Moving(kept.ledger, lambda: kept.now)
    store = MemoryStore("redis://old")
    store.groups["lake"] = {CLICKS: 2}
    source = StoreSource(store, "lake")
    found = moving.plan_import("lake", Asked(source, "lake"), lambda _: kept.kafka)
    with pytest.raises(ConfirmationError, match=r"lake-000001 clicks-0 \[2, 5\)"):
        moving.carry_out_import(found, "ada", "again")
    moving.carry_out_import(found, "ada", "again", supersede=True)
    assert _kept(kept) == {"lake-000001": ranges({CLICKS: (0, 2)})}


def test_what_was_kept_of_a_topic_that_is_another_one_now_stays_kept(kept: World) -> None:
    _fail_over(kept, "clicks")
    assert _kept(kept) == {"lake-000001": ranges({CLICKS: (0, 5)})}


def test_a_replay_leaves_out_what_was_kept(kept: World, caplog: pytest.LogCaptureFixture) -> None:
    kept.kafka.produce(CLICKS, 3, at=kept.now)
    kept.service.reset(kept.group, '{"clicks":{"0":8}}', "ada", "later")
    found, [new], parts = kept.service.preview_replay(kept.group, Ranges(ranges({CLICKS: (1, 8)})))
    assert (found, new.ranges) == ([], ranges({CLICKS: (5, 8)}))
    assert list(map(str, parts)) == ["lake-000001 clicks-0 [1, 5)"]
    assert "lake-000001 clicks-0 [1, 5)" in caplog.text
    caplog.clear()
    span = TimeSpan(NOON, kept.now + DAY)
    found, [new], parts = kept.service.preview_replay(kept.group, span)
    assert ([window.id for window in found], new.ranges) == (["lake-000002"], ranges({CLICKS: (5, 8)}))
    assert list(map(str, parts)) == ["lake-000001 clicks-0 [0, 5)"]
    assert "lake-000001 clicks-0 [0, 5)" in caplog.text


def test_what_is_kept_of_another_topic_of_the_name_hides_nothing(kept: World) -> None:
    """The recreated topic has the same offsets, and no one has read these."""
    _fail_over(kept, "clicks")
    kept.kafka.produce(CLICKS, 5)
    kept.service.reset(kept.group, '{"clicks":{"0":5}}', "ada", "later")
    found, [new], _ = kept.service.preview_replay(kept.group, Ranges(ranges({CLICKS: (0, 5)})))
    assert (found, new.ranges) == ([], ranges({CLICKS: (0, 5)}))


def test_a_span_of_nothing_but_what_was_kept_names_it_too(kept: World) -> None:
    span = TimeSpan(NOON - timedelta(hours=1), NOON + timedelta(seconds=1))
    with pytest.raises(BadInputError, match=r"nothing to replay.*lake-000001 clicks-0 \[0, 5\).*reset lake"):
        kept.service.preview_replay(kept.group, span)


def test_a_run_that_a_backfill_reprocesses_leaves_out_what_was_kept(
    kept: World, caplog: pytest.LogCaptureFixture
) -> None:
    """It has its own window, and gets what else belongs to its interval."""
    kept.kafka.produce(CLICKS, 1, at=kept.now)
    own = kept.run(THREE)
    interval = TimeSpan(NOON, kept.now + DAY, is_interval=True)
    planned = kept.ask(THREE, interval, last_clear=1)
    assert [one.window.id for one in planned] == ["lake-000002", own.id]
    assert "lake-000001 clicks-0 [0, 5)" in caplog.text


def test_a_replay_of_nothing_but_what_was_kept_names_the_command_that_reads_it_again(kept: World) -> None:
    note = (
        r"""nothing to replay.*lake-000001 clicks-0 \[1, 4\).*reset lake --to '\{"clicks":\{"0":1\}\}' --why '\.\.\.'"""
    )
    with pytest.raises(BadInputError, match=note):
        kept.service.preview_replay(kept.group, Ranges(ranges({CLICKS: (1, 4)})))
    kept.service.reset(kept.group, '{"clicks":{"0":1}}', "ada", "as it says", supersede=True)
    assert kept.run(THREE).ranges.without_empty() == ranges({CLICKS: (1, 5)})


def _follow(world: World, error: Exception) -> list[str]:
    """Do what an error says, and return what was typed; if that is refused, do what that error says, and then the first again."""
    [command] = re.findall(r"kafka-offsets (reset .*?) --why '\.\.\.'", str(error))
    args = make_parser().parse_args([*shlex.split(command), "--why", "as it says"])
    do = partial(world.service.reset, world.group, args.to or "", "ada", args.why, to_window=args.to_window)
    try:
        do(supersede=True)
    except IllegalStepError as refused:
        return [*_follow(world, refused), *_follow(world, error)]
    return [command]


def test_the_commands_that_a_replay_of_what_was_kept_leads_to_read_it_again(kept: World) -> None:
    """The reset would cut windows that read the topic since, together with another one."""
    for run in (THREE, FOUR):
        kept.kafka.produce(tp(0), 3)
        kept.kafka.produce(CLICKS, 2)
        kept.run(run)
    with pytest.raises(BadInputError) as refused:
        kept.service.preview_replay(kept.group, Ranges(ranges({CLICKS: (0, 5)})))
    done = _follow(kept, refused.value)
    assert done == ["reset lake --to-window lake-000003", """reset lake --to '{"clicks":{"0":0}}'"""]
    assert kept.run(claim("run-5")).ranges.without_empty() == ranges({tp(0): (10, 16), CLICKS: (0, 9)})


def test_a_reset_that_would_cut_a_window_is_not_led_further_back_than_kafka_holds(kept: World) -> None:
    for run in (THREE, FOUR):
        kept.kafka.produce(tp(0), 3)
        kept.kafka.produce(CLICKS, 2)
        kept.run(run)
    kept.kafka.expire(tp(0), 13)
    whole = """--to-window lake-000004 --why '...'. This group can't go back further: Kafka no longer holds the start of a window before lake-000004"""
    with pytest.raises(IllegalStepError, match=re.escape(whole)):
        kept.service.reset(kept.group, '{"clicks":{"0":0}}', "ada", "again", supersede=True)
