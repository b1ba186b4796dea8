"""Whatever a message suggests, typed as it stands, loses nothing and doubles nothing, or asks beforehand.

Two environments with a group of one name read one topic, and write to one lake. Their ledgers may be restored from a copy, someone else
may move their offset stores, and other DAGs may ask. People only type what a message has suggested, at any later time, and then do what
its answer says about output. After that, the lake has each record once. For many sequences, by hand::

    TYPED_EXAMPLES=2000 python -m pytest -q tests/service/test_typed.py
"""

from __future__ import annotations

import os
import re
import shlex
import sqlite3
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from airflow_kafka_offsets.cli.parser import make_parser
from airflow_kafka_offsets.core.errors import ConfirmationError, KafkaOffsetsError
from airflow_kafka_offsets.core.log import IsolationLevel
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.ownership import Owner, watermark
from airflow_kafka_offsets.core.plan.request import Live, Request, Windows
from airflow_kafka_offsets.core.window import Claim, Outcome
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.service.move import Moving, Selection
from airflow_kafka_offsets.service.sources import LedgerSource, StoreSource
from airflow_kafka_offsets.service.windows import WindowService
from airflow_kafka_offsets.spark.errors import KafkaWindowError
from tests.core.examples import tp
from tests.lab.memory import IN_MEMORY
from tests.service.lake import Lake
from tests.service.world import World
from tests.stores.memory import MemoryStore

COMMAND = re.compile(
    r"^ *(kafka-offsets (?:abandon|commit|copy|import|inherit|reset|take-over) .*--why '\.\.\.')$", re.M
)
ROUNDS = 30
Record = tuple[TopicPartition, int]


class Environment:
    """A ledger with its offset store and the DAGs that use it."""

    def __init__(self, folder: Path, lake: Lake, store: MemoryStore | None) -> None:
        folder.mkdir()
        self.folder = folder
        self.lake = lake
        self.store = store
        self.world = World(folder, store, max_open_windows=2, max_offsets=9)
        self.number = 0
        self.copies = 0
        self.is_restored = False
        self.dag = "dag"
        self.said: list[str] = []
        self.by_hand: set[str] = set()

    def use(self, ledger: Ledger) -> None:
        """Open the use cases on a ledger."""
        world, world.ledger = self.world, ledger
        world.service = WindowService(
            ledger, world.kafka, clock=lambda: world.now, sleep=lambda _: None, store=self.store
        )

    def copy(self) -> None:
        """Copy the ledger, as a backup does."""
        self.copies += 1
        source = str(self.world.ledger._engine.url.database)
        with sqlite3.connect(source) as old, sqlite3.connect(self.folder / f"copy-{self.copies}.db") as new:
            old.backup(new)

    def restore(self) -> None:
        """Bring the newest copy back."""
        if self.copies:
            self.world.close()
            restored = self.folder / f"restored-{self.number}.db"
            with sqlite3.connect(self.folder / f"copy-{self.copies}.db") as old, sqlite3.connect(restored) as new:
                old.backup(new)
            self.use(Ledger(f"sqlite:///{restored}"))
            self.is_restored = True

    def run(
        self, request: Request, good: int, dag: str | None = None, *, ends: bool = True
    ) -> KafkaOffsetsError | KafkaWindowError | None:
        """Let a run read; so many of its windows succeed, and the job of the next one writes and fails, or stays at work."""
        self.number += 1
        claim = Claim(dag or self.dag, f"run-{self.number}", "load")
        refused: KafkaOffsetsError | KafkaWindowError | None = None
        try:
            for number, planned in enumerate(self.world.ask(claim, request)):
                attempt = self.world.service.start_attempt(planned.window, claim) if planned.window.span else None
                if attempt is not None:
                    self.lake.write(self.world, planned)
                    if number >= good:
                        if ends:
                            self.world.service.end_attempt(attempt, Outcome.FAILED)
                        break
                    self.world.service.end_attempt(attempt, Outcome.SUCCEEDED, planned.window.span)
                self.world.service.commit(planned.window.id, claim, attempt)
        except (KafkaOffsetsError, KafkaWindowError) as exc:
            refused = exc
            self.said += COMMAND.findall(str(exc))
        if ends:
            self.world.die(claim)
        return refused

    def stop_all(self) -> None:
        """Let what is at work end."""
        for group in self.world.ledger.groups():
            for record in self.world.ledger.windows(group.name, limit=1000):
                self.world.die(record.holder)

    # People.

    def type(self, command: str, confirms: bool) -> None:
        """Type a command with a reason of one's own; confirm what it asks for, or leave it."""
        args = make_parser().parse_args(shlex.split(command.replace("'...'", "'a reason'"))[1:])
        try:
            self._acts[args.function.partition(".")[2]](args, confirms)
        except ConfirmationError as exc:
            self.said += COMMAND.findall(str(exc))
        except KafkaOffsetsError as exc:
            self.said += COMMAND.findall(str(exc))

    @property
    def _acts(self) -> dict[str, Callable[[Namespace, bool], object]]:
        return {
            "abandon": self._abandon,
            "commit": self._commit,
            "copy": self._copy_offsets,
            "import_offsets": self._import,
            "inherit": lambda args, _: self.world.service.inherit(args.group, args.ledger_id, "ada", args.why),
            "reset": self._reset,
            "take_over": self._take_over,
        }

    def _abandon(self, args: Namespace, confirms: bool) -> None:
        """Stop the job, abandon, and remove what this ledger wrote under the window's id; the only copy is kept, as the preview says."""
        self.world.die(self.world.ledger.window(args.window_id).holder)
        if self.is_restored and args.window_id in self.lake.outputs:
            return self._commit(args, confirms)
        self.world.service.abandon(args.window_id, "ada", args.why, leave_gap=confirms)
        self._remove(args.window_id)
        return None

    def _remove(self, window_id: str) -> None:
        note, _ = self.lake.outputs.get(window_id, ({}, []))
        if note.get("ledger") == self.world.ledger.ledgers(self.world.group.name)[0]:
            del self.lake.outputs[window_id]

    def _commit(self, args: Namespace, _: bool) -> None:
        """Vouch for a window whose output is whole."""
        window = self.world.ledger.window(args.window_id).window
        records = [(p, offset) for p, r in window.ranges.items() for offset in range(r.start, r.end)]
        if self.lake.outputs.get(window.id, ({}, []))[1] == records:
            self.world.service.commit_by_hand(window.id, "ada", args.why)

    def _copy_offsets(self, args: Namespace, _: bool) -> None:
        moving, store = Moving(self.world.ledger), self.store
        assert store is not None
        asked = Selection(LedgerSource(self.world.ledger, args.group), args.group)
        found = moving.plan_copy(self.world.ledger.group(args.group), asked, store, lambda _: self.world.kafka)
        moving.carry_out_copy(found, store, "ada", args.why)

    def _import(self, args: Namespace, _: bool) -> None:
        """Import, and give the DAG's group the name that the command has."""
        assert self.store is not None
        name = args.as_name or args.group
        moving, asked = Moving(self.world.ledger), Selection(StoreSource(self.store, name), name)
        found = moving.plan_import(args.group, asked, lambda _: self.world.kafka)
        moving.carry_out_import(found, "ada", args.why, store=self.store)
        self.world.group = replace(self.world.group, name=args.group)

    def _reset(self, args: Namespace, confirms: bool) -> None:
        done = self.world.service.reset(
            self.world.group, args.to or "", "ada", args.why, to_window=args.to_window, supersede=confirms
        )
        for window in done.superseded:
            self._remove(window.id)

    def _take_over(self, args: Namespace, _: bool) -> None:
        owner = Owner(args.dag, args.task)
        self.world.service.take_over(args.group, owner, "ada", args.why)
        self.dag = owner.dag_id

    # The law.

    def gaps(self) -> set[Record]:
        """Return the offsets that were left out, and recorded."""
        found: set[Record] = set()
        for group in self.world.ledger.groups():
            for act in self.world.ledger.acts(group.name):
                for name, bounds in act.details.get("skipped", {}).items():
                    found |= {(tp(int(name.rpartition("-")[2])), offset) for offset in range(*bounds)}
        return found

    def read(self) -> set[Record]:
        """Return all below the watermark of the group that the DAG has now."""
        position = watermark(self.world.ledger.load(self.world.group.name))
        offsets = position.offsets if position else {}
        return {(p, offset) for p, end in offsets.items() for offset in range(end)}


class Typing(RuleBasedStateMachine):
    """What can happen to two environments, and what people type then."""

    @initialize(has_store=st.booleans(), names_windows=st.booleans())
    def begin(self, has_store: bool, names_windows: bool) -> None:
        self.folder = TemporaryDirectory(dir=IN_MEMORY)
        self.lake = Lake()
        stores = [MemoryStore(names_windows=names_windows) if has_store else None, None]
        self.environments = [
            Environment(Path(self.folder.name) / str(number), self.lake, store) for number, store in enumerate(stores)
        ]
        first, second = self.environments
        second.world.kafka = first.world.kafka
        for environment in self.environments:  # each with an id of its own, which a copy of one would not have
            environment.world.close()
            environment.use(Ledger(f"sqlite:///{environment.folder / 'own.db'}", create=True))
        self.produce(9, 9)
        first.run(Live(), 1)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            try:
                self._check()
            finally:
                for environment in self.environments:
                    environment.world.close()
                self.folder.cleanup()

    @rule(first=st.integers(0, 9), second=st.integers(0, 9))
    def produce(self, first: int, second: int) -> None:
        for partition, number in enumerate((first, second)):
            self.environments[0].world.kafka.produce(tp(partition), number)

    @rule(which=st.integers(0, 3), at_most=st.integers(1, 2), good=st.integers(0, 2))
    def run(self, which: int, at_most: int, good: int) -> None:
        """The first environment runs more often."""
        self.environments[which == 3].run(Live(at_most=at_most), good)

    @rule(which=st.integers(0, 3), good=st.integers(0, 1))
    def leave_a_run_at_work(self, which: int, good: int) -> None:
        self.environments[which == 3].run(Live(at_most=2), good, ends=False)

    @rule(which=st.integers(0, 1), seq=st.integers(1, 4), good=st.integers(0, 1))
    def replay(self, which: int, seq: int, good: int) -> None:
        self.environments[which].run(Windows((seq,)), good)

    @rule(which=st.integers(0, 1), good=st.integers(0, 1))
    def ask_from_a_copied_dag(self, which: int, good: int) -> None:
        self.environments[which].run(Live(), good, dag="copied")

    @rule(which=st.integers(0, 1))
    def copy(self, which: int) -> None:
        self.environments[which].copy()

    @rule(which=st.integers(0, 1))
    def restore(self, which: int) -> None:
        self.environments[which].restore()

    @rule(partition=st.integers(0, 1), by=st.integers(-5, 5))
    def let_someone_else_move_the_store(self, partition: int, by: int) -> None:
        store, group = self.environments[0].store, self.environments[0].world.group.name
        if store is not None and (offsets := store.groups.get(group)):
            offsets[tp(partition)] = max(0, offsets.get(tp(partition), 0) + by)

    @rule(which=st.integers(0, 1), data=st.data(), confirms=st.booleans())
    def type(self, which: int, data: st.DataObject, confirms: bool) -> None:
        environment = self.environments[which]
        if environment.said:
            environment.type(data.draw(st.sampled_from(environment.said)), confirms)
            self._check_once()

    def _check_once(self) -> None:
        twice = {record: number for record, number in self.lake.records.items() if number > 1}
        assert not twice, f"the lake has these more than once: {twice}"

    def _check(self) -> None:
        """Let each environment read to the end, or to a refusal that no command ends; then compare the lake with the log."""
        for environment in self.environments:
            environment.stop_all()
            for number in range(ROUNDS):
                before = len(environment.said)
                refused = environment.run(Live(at_most=2), 2)
                if refused is None and environment.read() >= self._log():
                    break
                if new := environment.said[before:]:
                    environment.type(new[number % len(new)], confirms=True)
                elif refused is not None:
                    break
        self._check_once()
        first = self.environments[0]
        missing = first.read() - set(self.lake.records) - first.gaps()
        assert not missing, f"passed, and not in the lake: {sorted(missing)}"
        [mine, *_] = first.world.ledger.ledgers(first.world.group.name)
        assert {note.get("ledger") for note, _ in self.lake.outputs.values()} <= {mine}, "the other environment wrote"

    def _log(self) -> set[Record]:
        bounds = self.environments[0].world.kafka.bounds([tp(0), tp(1)], IsolationLevel.READ_COMMITTED)
        return {(p, offset) for p, b in bounds.items() for offset in range(b.end)}


TestTyping = Typing.TestCase
TestTyping.settings = settings(
    max_examples=int(os.environ.get("TYPED_EXAMPLES") or min(30, settings.default.max_examples)),
    stateful_step_count=min(20, settings.default.stateful_step_count),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def test_what_a_drifted_store_and_a_copied_dag_suggest_leaves_each_record_once() -> None:
    typing = Typing()
    try:
        typing.begin(has_store=True, names_windows=True)
        first = typing.environments[0]
        typing.let_someone_else_move_the_store(partition=0, by=3)
        typing.run(which=0, at_most=1, good=1)
        typing.ask_from_a_copied_dag(which=0, good=1)
        suggested = list(first.said)
        assert {command.split()[1] for command in suggested} == {"copy", "take-over"}
        for command in suggested:
            first.type(command, confirms=True)
        typing.produce(first=5, second=5)
    finally:
        typing.teardown()
    assert set(typing.lake.records.values()) == {1}
