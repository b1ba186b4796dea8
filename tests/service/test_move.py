"""Copy, import and comparison of a group that is at work meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from airflow_kafka_offsets.core.errors import (
    ConcurrentChangeError,
    KafkaRefusedError,
    LedgerUnavailableError,
    LogTruncatedError,
    StoreDriftError,
)
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.ownership import GroupState
from airflow_kafka_offsets.core.plan.request import Live, Ranges
from airflow_kafka_offsets.core.ranges import OffsetRange
from airflow_kafka_offsets.core.source.offsets import SourceOffsets
from airflow_kafka_offsets.core.window import State
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.ports import LogOffsets
from airflow_kafka_offsets.service.move import Moving, Selection
from airflow_kafka_offsets.service.sources import LedgerSource, StoreSource
from tests.core.examples import claim, group, ranges, tp
from tests.service.world import World
from tests.stores.memory import MemoryStore

ONE, TWO = claim("run-1"), claim("run-2")


class Busy(MemoryStore):
    """A store; each look at it lets something happen first."""

    def __init__(self, name: str = "memory://") -> None:
        super().__init__(name)
        self.happens: list[Callable[[], object]] = []

    def read(self, group: str, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Let the next thing happen, then return what is there."""
        if self.happens:
            self.happens.pop(0)()
        return super().read(group, topics)


class Watched:
    """The ledger; something happens once, behind the first look at a group."""

    def __init__(self, ledger: Ledger, happens: Callable[[], object]) -> None:
        self._ledger = ledger
        self._happens = [happens]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def load(self, group: str) -> GroupState:
        """Return the group as it was before that."""
        found = self._ledger.load(group)
        self._happen()
        return found

    def group(self, name: str) -> KafkaGroup:
        """Return its definition as it was before that."""
        try:
            return self._ledger.group(name)
        finally:
            self._happen()

    def _happen(self) -> None:
        if self._happens:
            self._happens.pop()()


class Slow(LedgerSource):
    """The ledger; something happens behind each look at it."""

    happens: Callable[[], object]

    def read(self, topics: Sequence[str] = ()) -> SourceOffsets:
        """Return the watermark of before."""
        found = super().read(topics)
        self.happens()
        return found


def at_work(folder: Path, store: MemoryStore, **options: int) -> World:
    """A group that has committed one window, if it does not say more, and has more to read."""
    world = World(folder, store, max_offsets=10, **options)
    world.kafka.produce(tp(0), 35)
    return world


def moving(world: World) -> Moving:
    return Moving(world.ledger, lambda: world.now)


def offsets(store: MemoryStore) -> dict[int, int]:
    return {tp.partition: offset for tp, offset in store.groups["lake"].items()}


def from_ledger(world: World) -> Selection:
    return Selection(LedgerSource(world.ledger, "lake"), "lake")


def no_kafka(group: KafkaGroup) -> LogOffsets:
    raise AssertionError(f"the topics of {group.name} are a list, so Kafka need not be asked")


def test_a_commit_between_the_looks_of_a_copy_stops_it(tmp_path: Path) -> None:
    store = MemoryStore()
    world = at_work(tmp_path, store)
    world.run(ONE)
    del store.groups["lake"][tp(1)]  # expired
    window = world.plan(TWO).window
    attempt = world.work(window, TWO)
    source = Slow(world.ledger, "lake")
    source.happens = lambda: world.service.commit(window.id, TWO, attempt)
    found = moving(world).plan_copy(world.group, Selection(source, "lake"), store, no_kafka)
    assert found.moves == {tp(1): (None, 0)}
    with pytest.raises(StoreDriftError, match="orders-0: found 20, expected 10"):
        moving(world).carry_out_copy(found, store, "ada", "w")
    assert offsets(store) == {0: 20, 1: 0} == world.watermark


def test_a_copy_never_takes_a_store_back_behind_a_commit(tmp_path: Path) -> None:
    store = MemoryStore()
    world = at_work(tmp_path, store)
    world.run(ONE)
    window = world.plan(TWO).window
    attempt = world.work(window, TWO)
    source = Slow(world.ledger, "lake")
    source.happens = lambda: world.service.commit(window.id, TWO, attempt)
    assert moving(world).plan_copy(world.group, Selection(source, "lake"), store, no_kafka).moves == {}
    assert offsets(store) == {0: 20, 1: 0}


def test_the_ledger_s_offsets_are_those_before_what_an_open_window_has_lost(tmp_path: Path) -> None:
    world = at_work(tmp_path, MemoryStore(), on_data_loss="skip")  # type: ignore[arg-type]
    world.run(ONE)
    world.kafka.expire(tp(0), 15)
    window = world.plan(TWO).window
    assert window.ranges.starts[tp(0)] == 15
    other = MemoryStore("other://")
    found = moving(world).plan_copy(world.group, from_ledger(world), other, no_kafka)
    assert moving(world).carry_out_copy(found, other, "ada", "w") == {}
    assert offsets(other) == {0: 10, 1: 0}


def test_a_commit_while_places_are_compared_is_no_difference(tmp_path: Path) -> None:
    store = Busy()
    world = at_work(tmp_path, store)
    world.run(ONE)
    window = world.plan(TWO).window
    attempt = world.work(window, TWO)
    store.happens = [lambda: world.service.commit(window.id, TWO, attempt)]
    assert moving(world).verify(world.group, store, world.kafka) == []
    store.groups["lake"][tp(0)] = 19
    assert [d.in_store for d in moving(world).verify(world.group, store, world.kafka)] == [("store behind by 1",)]


def test_a_group_that_never_rests_is_compared_a_few_times_only(tmp_path: Path) -> None:
    world = World(tmp_path, max_offsets=10)
    world.kafka.produce(tp(0), 1000)
    store, runs = Busy(), iter(range(1000))
    store.groups["lake"] = {tp(0): 999, tp(1): 0}
    store.happens = [lambda: world.run(claim(f"run-{next(runs)}"))] * 100
    world.run(ONE)
    [difference] = moving(world).verify(world.group, store, world.kafka)
    assert difference.in_store[0].startswith("store ahead by")
    assert 1 < next(runs) < 10


def test_a_store_may_stand_behind_a_window_that_was_committed_before_the_oldest(tmp_path: Path) -> None:
    store = MemoryStore()
    world = at_work(tmp_path, store, max_open_windows=3)
    first, second = (planned.window for planned in world.ask(ONE, Live(at_most=2)))
    world.do(second, ONE)
    attempt, finish = world.work(first, ONE), world.ledger.finish

    def gone(*_: object) -> None:
        raise LedgerUnavailableError("gone")

    world.ledger.finish = gone  # type: ignore[method-assign]
    with pytest.raises(LedgerUnavailableError):
        world.service.commit(first.id, ONE, attempt)
    world.ledger.finish = finish  # type: ignore[method-assign]
    assert world.ledger.window(first.id).window.state is State.COMMITTING
    assert offsets(store) == {0: 20, 1: 0}
    assert moving(world).verify(world.group, store, world.kafka) == []
    store.groups["lake"][tp(0)] = 15
    assert len(moving(world).verify(world.group, store, world.kafka)) == 1


def test_a_planned_window_holds_the_store(tmp_path: Path) -> None:
    store = MemoryStore()
    world = at_work(tmp_path, store, max_open_windows=3)
    _, second = (planned.window for planned in world.ask(ONE, Live(at_most=2)))
    world.do(second, ONE)
    store.groups["lake"] = {tp(0): 20, tp(1): 0}
    assert [d.in_store for d in moving(world).verify(world.group, store, world.kafka)] == [("store ahead by 20",)]


def test_an_import_is_refused_when_the_store_was_moved_in_a_partition_that_is_gone(tmp_path: Path) -> None:
    store = MemoryStore()
    world = World(tmp_path, store, max_offsets=100)
    world.kafka.produce(tp(0), 5)
    world.kafka.produce(tp(1), 40)
    world.run(ONE)
    world.kafka.recreate("orders", 1)
    world.kafka.produce(tp(0), 3)
    store.groups["lake"][tp(1)] = 99
    other = MemoryStore("other://")
    other.groups["lake"] = {tp(0): 2}
    found = moving(world).plan_import("lake", Selection(StoreSource(other, "lake"), "lake"), lambda _: world.kafka)
    before = world.watermark
    with pytest.raises(StoreDriftError, match="orders-1: found 99, expected 40"):
        moving(world).carry_out_import(found, "ada", "w", store=store)
    assert world.watermark == before
    assert offsets(store) == {0: 5, 1: 99}
    store.groups["lake"][tp(1)] = 40
    moving(world).carry_out_import(found, "ada", "w", store=store)
    assert offsets(store) == {0: 2, 1: 40}


def stored(world: World, *at: int, name: str = "app") -> Selection:
    """A store in which another reader has left its offsets."""
    store = MemoryStore()
    store.groups[name] = {tp(partition): offset for partition, offset in enumerate(at)}
    return Selection(StoreSource(store, name), name, topics=("orders",))


def test_a_group_that_plans_its_first_window_while_an_import_looks_keeps_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.kafka.produce(tp(0), 100)
    watched = cast("Ledger", Watched(world.ledger, lambda: world.plan(ONE)))
    moving = Moving(watched, lambda: world.now)
    with pytest.raises(ConcurrentChangeError):
        moving.carry_out_import(moving.plan_import("lake", stored(world, 50, 0), lambda _: world.kafka), "ada", "w")
    world.do(world.ledger.load("lake").open[0].window, ONE)
    world.die(ONE)
    world.kafka.produce(tp(0), 10)
    assert world.plan(TWO).window.ranges == ranges({tp(0): (100, 110), tp(1): (0, 0)})


def replace_records(world: World) -> None:
    """Cut the log of a partition with 100 records back to 60, and let it grow to 130."""
    world.kafka.truncate(tp(0), 60)
    world.kafka.produce(tp(0), 70)


def test_records_that_are_replaced_after_an_import_are_noticed_by_the_first_plan(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.kafka.produce(tp(0), 100)
    found = moving(world).plan_import("lake", stored(world, 100, 0), lambda _: world.kafka)
    moving(world).carry_out_import(found, "ada", "moving over")
    replace_records(world)
    with pytest.raises(LogTruncatedError, match=r"orders-0: offsets \[60, 100\) are other records now"):
        world.plan(ONE)


@pytest.fixture
def was_replaced(tmp_path: Path) -> World:
    """A group whose records were replaced since it read them."""
    world = World(tmp_path)
    world.kafka.produce(tp(0), 100)
    world.kafka.produce(tp(1), 10)
    world.run(ONE)
    replace_records(world)
    return world


def test_a_group_goes_past_replaced_records_under_no_new_name(was_replaced: World) -> None:
    world = was_replaced
    with pytest.raises(
        LogTruncatedError, match=r"(?s)offsets \[60, 100\) are other records now.*kafka-offsets reset lake --to"
    ):
        moving(world).plan_import("new", from_ledger(world), lambda _: world.kafka)
    world.service.reset(world.group, '{"orders":{"0":100}}', "ada", "the new ones are not needed")
    found = moving(world).plan_import("new", from_ledger(world), lambda _: world.kafka)
    moving(world).carry_out_import(found, "ada", "renamed")
    world.group = group("new")
    assert world.run(TWO).ranges == ranges({tp(0): (100, 130), tp(1): (10, 10)})


def test_what_kafka_did_not_say_of_a_group_is_asked_again_under_its_new_name(was_replaced: World) -> None:
    world = was_replaced
    world.kafka.knows_epoch_ends = False
    found = moving(world).plan_import("new", from_ledger(world), lambda _: world.kafka)
    assert [asked.partition for asked in found.unchecked] == [tp(0)]
    moving(world).carry_out_import(found, "ada", "renamed")
    assert world.ledger.acts("new")[0].details["unchecked"] == ["orders-0"]
    world.kafka.knows_epoch_ends = True
    world.group = group("new")
    with pytest.raises(LogTruncatedError, match=r"orders-0: offsets \[60, 100\) are other records now"):
        world.plan(TWO)


@pytest.mark.parametrize("at", [100, 110])
@pytest.mark.parametrize("act", ["import", "reset"])
def test_what_kafka_did_not_say_is_asked_again_after_a_move_by_hand(was_replaced: World, act: str, at: int) -> None:
    world = was_replaced
    world.kafka.produce(tp(1), 10)
    world.kafka.knows_epoch_ends = False
    if act == "import":
        found = moving(world).plan_import("lake", stored(world, at, 15), lambda _: world.kafka)
        moving(world).carry_out_import(found, "ada", "w")
        reset = found.reset
    else:
        reset = world.service.reset(world.group, f'{{"orders":{{"0":{at},"1":15}}}}', "ada", "w")
    assert reset is not None
    assert [asked.partition for asked in reset.unchecked] == [tp(0)]
    assert world.ledger.acts("lake")[0].details["unchecked"] == ["orders-0"]
    world.kafka.knows_epoch_ends = True
    with pytest.raises(LogTruncatedError, match=rf"orders-0: offsets \[60, {at}\) are other records now"):
        world.plan(TWO)


def test_a_window_that_was_committed_behind_an_open_one_is_named_as_read_again(tmp_path: Path) -> None:
    world = at_work(tmp_path, MemoryStore(), max_open_windows=3)
    first, second = (planned.window for planned in world.ask(ONE, Live(at_most=2)))
    world.do(second, ONE)
    world.die(ONE)
    found = moving(world).plan_import("new", from_ledger(world), lambda _: world.kafka)
    assert [held.window.id for held in found.left_open] == [first.id, second.id]
    assert f"committed there behind an open window: {second.id}" in found.notes[-1]
    assert f"not committed there: {first.id} (planned" in found.notes[-2]
    moving(world).carry_out_import(found, "ada", "renamed")
    assert world.ledger.acts("new")[0].details["left_open"] == [first.id, second.id]
    [note] = moving(world).plan_export(world.group, from_ledger(world), no_kafka).notes
    assert f"committed behind an open window: {second.id}" in note
    world.do(first, ONE)
    assert moving(world).plan_export(world.group, from_ledger(world), no_kafka).notes == ()


def test_a_backfill_window_that_was_committed_behind_an_open_one_is_not_read_again(tmp_path: Path) -> None:
    world = at_work(tmp_path, MemoryStore(), max_open_windows=2)
    world.run(ONE)
    world.service.reset(world.group, '{"orders":{"0":20}}', "ada", "the newest first")
    live = world.plan(TWO).window
    [backfill] = world.run_all(claim("run-3"), Ranges(ranges({tp(0): (10, 20)})))
    assert (live.ranges[tp(0)], backfill.ranges[tp(0)]) == (OffsetRange(20, 30), OffsetRange(10, 20))
    found = moving(world).plan_import("new", from_ledger(world), lambda _: world.kafka)
    assert [held.window.id for held in found.left_open] == [live.id]


def test_a_reset_to_before_an_import_says_that_another_reader_has_read_that(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.kafka.produce(tp(0), 100)
    found = moving(world).plan_import("lake", stored(world, 60, 0), lambda _: world.kafka)
    moving(world).carry_out_import(found, "ada", "moving over")
    world.run(ONE)
    assert world.service.preview_reset(world.group, '{"orders":{"0":60}}').read_by_others == ranges({})
    reset = world.service.reset(world.group, "earliest", "ada", "oops", supersede=True)
    assert reset.read_by_others == ranges({tp(0): (0, 60)})
    assert world.ledger.acts("lake")[-1].details["read_by_others"] == {"orders-0": [0, 60]}


def test_what_another_reader_has_read_is_told_by_the_reset_that_reaches_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.kafka.produce(tp(0), 100)
    found = moving(world).plan_import("lake", stored(world, 60, 0), lambda _: world.kafka)
    moving(world).carry_out_import(found, "ada", "moving over")
    first = world.service.reset(world.group, '{"orders":{"0":30}}', "ada", "from 30 on")
    assert first.read_by_others == ranges({tp(0): (30, 60)})
    second = world.service.reset(world.group, '{"orders":{"0":10}}', "ada", "from 10 on")
    assert second.read_by_others == ranges({tp(0): (10, 30)})


def test_an_import_of_one_topic_leaves_the_others_where_they_stand(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.kafka.create("clicks")
    world.configure(topics=["orders", "clicks"])
    for some in (tp(0), tp(0, "clicks")):
        world.kafka.produce(some, 100)
    world.run(ONE)
    for some in (tp(0), tp(0, "clicks")):
        world.kafka.produce(some, 20)
    found = moving(world).plan_import("lake", stored(world, 110, 0), lambda _: world.kafka)
    moving(world).carry_out_import(found, "ada", "the other reader was ahead")
    window = world.run(TWO)
    assert window.ranges[tp(0)] == OffsetRange(110, 120)
    assert window.ranges[tp(0, "clicks")] == OffsetRange(100, 120)


def test_what_another_reader_read_of_an_earlier_topic_is_not_told_of_todays(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.kafka.produce(tp(0), 100)
    found = moving(world).plan_import("lake", stored(world, 60, 0), lambda _: world.kafka)
    moving(world).carry_out_import(found, "ada", "moving over")
    world.kafka.recreate("orders", 2)
    world.service.reset(world.group, "earliest", "ada", "made again")
    world.kafka.produce(tp(0), 100)
    world.run(ONE)
    assert world.service.preview_reset(world.group, "earliest").read_by_others == ranges({})


def test_of_two_doubts_an_import_keeps_the_older_one(was_replaced: World) -> None:
    world = was_replaced
    world.kafka.knows_epoch_ends = False
    newer = moving(world).plan_import("newer", stored(world, 100, 10), lambda _: world.kafka)
    moving(world).carry_out_import(newer, "ada", "a copy")
    world.kafka.elect(tp(0))
    asked = Selection(LedgerSource(world.ledger, "newer"), "newer")
    found = moving(world).plan_import("lake", asked, lambda _: world.kafka)
    assert [asked.partition for asked in found.unchecked] == [tp(0)]
    moving(world).carry_out_import(found, "ada", "w")
    assert world.ledger.acts("lake")[-1].details["unchecked"] == ["orders-0"]
    world.kafka.knows_epoch_ends = True
    with pytest.raises(LogTruncatedError, match=r"orders-0: offsets \[60, 100\) are other records now"):
        world.plan(TWO)


def test_what_is_read_again_from_the_beginning_of_the_log_is_in_no_doubt(was_replaced: World) -> None:
    world = was_replaced
    world.kafka.knows_epoch_ends = False
    reset = world.service.reset(world.group, "earliest", "ada", "again", supersede=True)
    assert reset.unchecked == ()
    assert world.run(TWO).ranges[tp(0)] == OffsetRange(0, 130)
    world.kafka.knows_epoch_ends = True
    assert world.run(claim("run-3")).ranges[tp(0)] == OffsetRange(130, 130)


def test_a_topic_that_a_group_has_left_is_no_difference_once_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    world = World(tmp_path, store)
    world.kafka.create("clicks")
    world.configure(topics=["orders", "clicks"])
    world.run(ONE)
    world.configure(topics=["orders"])
    world.run(TWO)
    del store.groups["lake"][tp(0, "clicks")]
    assert [d.in_store for d in moving(world).verify(world.group, store, world.kafka)] == [("not in the store",)]
    world.kafka.delete("clicks")
    assert moving(world).verify(world.group, store, world.kafka) == []

    def refuse(topics: Sequence[str]) -> None:
        raise KafkaRefusedError("no right to describe clicks")

    monkeypatch.setattr(world.kafka, "topic_ids", refuse)
    assert [d.in_store for d in moving(world).verify(world.group, store, world.kafka)] == [("not in the store",)]


def test_a_partition_that_only_later_windows_have_is_right_where_planning_put_it(tmp_path: Path) -> None:
    store = MemoryStore()
    world = at_work(tmp_path, store, max_open_windows=3)
    first = world.plan(ONE).window
    world.kafka.add_partitions("orders")
    world.kafka.produce(tp(2), 5)
    store.groups["lake"] = {tp(0): 0, tp(1): 0, tp(2): 99}  # someone else's
    second = world.plan(TWO).window
    assert second.ranges.starts[tp(2)] == store.groups["lake"][tp(2)] == 0
    assert moving(world).verify(world.group, store, world.kafka) == []
    world.do(second, TWO)
    assert moving(world).verify(world.group, store, world.kafka) == []
    world.do(first, ONE)
    assert moving(world).verify(world.group, store, world.kafka) == []
