"""A ledger that was restored from an older copy: what the messages say, typed as it stands, loses nothing and doubles nothing."""

from __future__ import annotations

import re
import shlex
import sqlite3
from argparse import Namespace
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_kafka_offsets.cli.parser import make_parser
from airflow_kafka_offsets.core.errors import BadInputError, KafkaOffsetsError, StoreDriftError
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.source.offsets import SourceOffsets
from airflow_kafka_offsets.core.window import Claim, State
from airflow_kafka_offsets.launch.job_files import handoff_of
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.ports import OffsetSource
from airflow_kafka_offsets.service.move import Moving, Selection
from airflow_kafka_offsets.service.plan import Planned
from airflow_kafka_offsets.service.sources import StoreSource
from airflow_kafka_offsets.service.windows import WindowService
from airflow_kafka_offsets.spark.errors import OtherWindowError
from airflow_kafka_offsets.spark.label import label_of
from airflow_kafka_offsets.task.work import ready
from tests.core.examples import claim, tp
from tests.service.world import World
from tests.stores.memory import MemoryStore

STORES = pytest.mark.parametrize("names_windows", [True, False], ids=["a store of windows", "a store of offsets"])


class Lake:
    """A sink that replaces its output by window id, and keeps each window's note; what the job side's sinks do."""

    def __init__(self) -> None:
        self.outputs: dict[str, tuple[dict[str, Any], list[tuple[TopicPartition, int]]]] = {}
        self.marks: dict[str, str] = {}

    def write(self, world: World, planned: Planned) -> None:
        """Write what a window reads, or refuse."""
        planned = ready(world.service, world.group, planned)
        label = label_of(handoff_of(planned, {}, world.group, None))
        if label.must_mark("lake", self.marks.get(label.group)):
            self.marks[label.group] = label.ledgers[0]
        if label.window_id in self.outputs:
            label.refuse_other("lake", self.outputs[label.window_id][0])
        records = [
            (partition, offset) for partition, r in planned.window.ranges.items() for offset in range(r.start, r.end)
        ]
        self.outputs[label.window_id] = label.note, records

    @property
    def records(self) -> Counter[tuple[TopicPartition, int]]:
        """How often each record is in the output."""
        return Counter(record for _, records in self.outputs.values() for record in records)


class Ends:
    """The ends of all output, as a person writes them into a CSV."""

    name = "csv:offsets.csv"

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def read(self, topics: object = ()) -> SourceOffsets:
        """Return them."""
        ends: dict[TopicPartition, int] = {}
        for partition, offset in self._lake.records:
            ends[partition] = max(ends.get(partition, 0), offset + 1)
        return SourceOffsets(ends)


class Restored:
    """Four windows in a lake; the ledger that comes back has two of them, and the third one is open."""

    def __init__(self, folder: Path, store: MemoryStore | None) -> None:
        self.world = World(folder, store)
        self.lake = Lake()
        self.number = 0
        self.run()
        self.run()
        self._produce()
        third = self.world.plan(self._claim())
        copy = folder / "copy.db"
        with sqlite3.connect(folder / "ledger.db") as old, sqlite3.connect(copy) as new:
            old.backup(new)
        self._work(third, self._claim(0))
        self.run()
        self.world.die(self._claim(0))
        self.world.close()
        self.world.ledger = Ledger(f"sqlite:///{copy}")
        self.use(store)
        self._produce()

    def use(self, store: MemoryStore | None) -> None:
        """Open the use cases on the ledger."""
        world = self.world
        world.service = WindowService(
            world.ledger, world.kafka, clock=lambda: world.now, sleep=lambda _: None, store=store
        )

    def run(self) -> Planned:
        """Let the topic grow, and a run read it."""
        self._produce()
        planned = self.world.plan(self._claim())
        self._work(planned, self._claim(0))
        return planned

    def _work(self, planned: Planned, claim: Claim) -> None:
        self.lake.write(self.world, planned)
        self.world.do(planned.window, claim)
        self.world.die(claim)

    def _produce(self) -> None:
        self.world.kafka.produce(tp(0), 10)
        self.world.kafka.produce(tp(1), 3)

    def _claim(self, step: int = 1) -> Claim:
        self.number += step
        return claim(f"run-{self.number}")

    def import_(self, args: Namespace, source: OffsetSource, **more: Any) -> None:
        """Do what ``kafka-offsets import`` does."""
        moving, asked = (
            Moving(self.world.ledger),
            Selection(source, args.as_name or args.group, topics=tuple(args.topic or ())),
        )
        found = moving.plan_import(args.group, asked, lambda _: self.world.kafka, **more)
        moving.carry_out_import(found, "ada", args.why, store=self.world.store)

    def move_on(self, error: BaseException, store: MemoryStore) -> None:
        """Type the import that an error names, and give the DAG that name."""
        [command] = re.findall(r"^    (kafka-offsets import .*)$", str(error), re.MULTILINE)
        args = make_parser().parse_args(shlex.split(command.replace("...", "the ledger was restored"))[1:])
        assert (args.group, args.yes) == ("lake_2", False)
        assert args.from_source == store.name
        self.import_(args, StoreSource(store, args.as_name))
        self.world.group = self.world.ledger.group(args.group)

    def check(self) -> None:
        """Each record is in the output once."""
        self.run()
        there = {
            tp(p): bounds
            for p in (0, 1)
            for bounds in [self.world.kafka.bounds([tp(p)], self.world.group.isolation_level)[tp(p)]]
        }
        assert self.lake.records == {(p, offset): 1 for p, bounds in there.items() for offset in range(bounds.end)}


@STORES
def test_the_open_window_is_committed_and_the_store_stays(quick_folder: Path, names_windows: bool) -> None:
    store = MemoryStore(names_windows=names_windows)
    restored = Restored(quick_folder, store)
    before = dict(store.groups["lake"])
    adopted = restored.run()
    assert (adopted.window.seq, adopted.how) == (3, "adopted")
    assert restored.world.ledger.window(adopted.window.id).state is State.COMMITTED
    assert store.groups["lake"] == before
    assert set(restored.lake.records.values()) == {1}


@STORES
def test_without_a_run_a_person_commits_the_open_window(quick_folder: Path, names_windows: bool) -> None:
    store = MemoryStore(names_windows=names_windows)
    restored = Restored(quick_folder, store)
    before = dict(store.groups["lake"])
    restored.world.service.commit_by_hand("lake-000003", "ada", "the lost ledger committed it")
    assert restored.world.ledger.window("lake-000003").state is State.COMMITTED
    assert store.groups["lake"] == before


@STORES
@pytest.mark.parametrize("is_adopted", [True, False])
def test_the_plan_names_the_import_under_another_name(
    quick_folder: Path, names_windows: bool, is_adopted: bool
) -> None:
    store = MemoryStore(names_windows=names_windows)
    restored = Restored(quick_folder, store)
    if is_adopted:
        restored.run()
    else:
        restored.world.service.commit_by_hand("lake-000003", "ada", "the lost ledger committed it")
    with pytest.raises(StoreDriftError) as refused:
        restored.run()
    assert "docs/howto/keep-the-ledger.md" in str(refused.value)
    assert ("never committed lake-000004" in str(refused.value)) is names_windows
    assert ("kafka-offsets copy" in str(refused.value)) is not names_windows
    restored.move_on(refused.value, store)
    restored.check()


@STORES
def test_an_import_under_the_same_name_is_refused_without_the_flag(quick_folder: Path, names_windows: bool) -> None:
    store = MemoryStore(names_windows=names_windows)
    restored = Restored(quick_folder, store)
    restored.run()
    args = make_parser().parse_args(["import", "lake", "--from", "memory://", "--why", "w"])
    source = StoreSource(store, "lake")
    with pytest.raises(BadInputError) as refused:
        restored.import_(args, source)
    restored.import_(args, source, leave_gap=True)
    with pytest.raises(OtherWindowError, match="restored from an older copy"):
        restored.run()
    restored.move_on(refused.value, store)
    restored.check()


@STORES
def test_a_ledger_that_was_made_again_does_not_go_on_where_the_store_has_windows(
    quick_folder: Path, names_windows: bool
) -> None:
    store = MemoryStore(names_windows=names_windows)
    restored = Restored(quick_folder, store)
    restored.world.ledger = Ledger(f"sqlite:///{quick_folder / 'new.db'}", create=True)
    restored.use(store)
    restored.world.configure(starting_offsets="committed")
    if names_windows:
        with pytest.raises(BadInputError, match="never committed lake-000004") as refused:
            restored.run()
        restored.move_on(refused.value, store)
        restored.check()
    else:
        with pytest.raises(OtherWindowError, match="made again"):
            restored.run()


def test_a_second_environment_writes_nothing_beside_the_first_whatever_the_number(quick_folder: Path) -> None:
    restored = Restored(quick_folder, None)
    before = dict(restored.lake.outputs)
    restored.world.ledger = Ledger(f"sqlite:///{quick_folder / 'other.db'}", create=True)
    restored.use(None)
    for seq in range(1, 7):
        with pytest.raises(OtherWindowError, match="two environments write there") as refused:
            restored.run()
        assert "abandon" not in str(refused.value)
        restored.world.service.abandon(f"lake-{seq:06d}", "ada", "a number that is free")
    assert restored.lake.outputs == before
    restored.world.configure()
    restored.world.group = replace(restored.world.group, name="staging.lake")
    restored.run()
    assert restored.lake.outputs.keys() - before.keys() == {"staging.lake-000001"}


def test_a_person_lets_a_group_write_beside_its_output_of_a_lost_ledger(quick_folder: Path) -> None:
    restored = Restored(quick_folder, None)
    old = restored.world.ledger.ledgers("lake")
    restored.lake.outputs.clear()  # a person moved it away
    restored.world.ledger = Ledger(f"sqlite:///{quick_folder / 'new.db'}", create=True)
    restored.use(None)
    with pytest.raises(OtherWindowError, match=old[0]):
        restored.run()
    restored.world.service.inherit("lake", old[0], "ada", "the machine is gone")
    new, *inherited = restored.world.ledger.ledgers("lake")
    assert (new != old[0], inherited) == (True, [*old])
    restored.world.die(restored._claim(0))
    restored.run()
    restored.check()
    assert restored.lake.marks == {"lake": new}
    [act] = restored.world.ledger.acts("lake")
    assert (act.kind, act.who, act.why, act.details) == ("inherit", "ada", "the machine is gone", {"ledger": old[0]})


def test_without_a_store_the_sink_is_the_first_to_notice(quick_folder: Path) -> None:
    restored = Restored(quick_folder, None)
    restored.run()
    with pytest.raises(OtherWindowError, match="may hold records that no window will write again"):
        restored.run()
    args = make_parser().parse_args(
        ["import", "lake_2", "--from", "csv:offsets.csv", "--as", "lake", "--topic", "orders", "--why", "w"]
    )
    restored.import_(args, Ends(restored.lake))
    restored.world.group = restored.world.ledger.group("lake_2")
    restored.check()
    restored.world.service.commit_by_hand("lake-000004", "ada", "the lost ledger committed it")
    assert not restored.world.ledger.load("lake").open
    restored.check()


def test_a_store_that_someone_else_moved_under_a_window_that_was_committed_is_drift(quick_folder: Path) -> None:
    store = MemoryStore()
    world = World(quick_folder, store)
    world.kafka.produce(tp(0), 10)
    world.run(claim("run-1"))
    store.groups["lake"][tp(0)] = 12
    with pytest.raises(KafkaOffsetsError) as refused:
        world.plan(claim("run-2"))
    assert "if the ledger is right, copy its offsets" in str(refused.value)
    assert "import" not in str(refused.value)
