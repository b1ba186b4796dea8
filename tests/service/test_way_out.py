"""Every state has a way out: the commands that the errors name work, one after the other, until a run reads on.

Runs, people and Kafka do what they like; then nobody does anything but what the errors say.
"""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from airflow_kafka_offsets.cli.parser import make_parser
from airflow_kafka_offsets.core.errors import (
    ConfirmationError,
    KafkaOffsetsError,
    MissingPartitionError,
    StoreUnavailableError,
)
from airflow_kafka_offsets.core.request import Live, Offsets, Windows
from airflow_kafka_offsets.core.window import Lane, Outcome, State, Window
from tests.core.examples import claim, ranges, tp
from tests.lab.memory import IN_MEMORY
from tests.service.world import World
from tests.stores.memory import MemoryStore

COMMAND = re.compile(r"kafka-offsets (?:abandon|commit|reset|copy) .*?--why '\.\.\.'(?: --yes)?")
STEPS = 40
"""More commands than that are no way out: each open window may need one, and each topic a few."""

ORDERS = ["orders"]
BOTH = ["orders", "clicks"]


class Maze(RuleBasedStateMachine):
    """One group, its topics and its offset store, and all that can happen to them."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory(dir=IN_MEMORY)
        self.store = MemoryStore()
        self.options = {"max_open_windows": 3, "max_offsets": 6}
        self.world = World(Path(self.folder.name), self.store, **self.options)
        self.world.kafka.create("clicks", 1)
        self.partitions = {tp(0), tp(1), tp(0, "clicks")}
        self.number = 0

    def teardown(self) -> None:
        self.find_the_way_out(0)
        self.folder.cleanup()

    # The topics.

    @rule(which=st.integers(0, 3), number=st.integers(1, 15))
    def produce(self, which: int, number: int) -> None:
        self.world.kafka.produce(self._partition(which), number, at=self.world.now)

    @rule()
    def add_partition(self) -> None:
        there = sum(p.topic == "orders" for p in self.partitions)
        if there < 3:
            self.world.kafka.add_partitions("orders")
            self.partitions.add(tp(there))

    @rule(which=st.integers(0, 3), before=st.integers(0, 25))
    def expire(self, which: int, before: int) -> None:
        self.world.kafka.expire(self._partition(which), before)

    @rule(which=st.integers(0, 3), end=st.integers(0, 15))
    def truncate(self, which: int, end: int) -> None:
        self.world.kafka.truncate(self._partition(which), end)

    @rule(topic=st.sampled_from(BOTH), number=st.integers(1, 2))
    def recreate(self, topic: str, number: int) -> None:
        if topic in self.world.kafka.topic_ids([topic]):
            self.world.kafka.delete(topic)
        self.world.kafka.create(topic, number)
        self.partitions = {p for p in self.partitions if p.topic != topic} | {tp(i, topic) for i in range(number)}

    @rule()
    def delete(self) -> None:
        if "clicks" in self.world.kafka.topic_ids(["clicks"]):
            self.world.kafka.delete("clicks")
            self.partitions -= {p for p in self.partitions if p.topic == "clicks"}

    def _partition(self, which: int):  # type: ignore[no-untyped-def]
        return sorted(self.partitions)[which % len(self.partitions)]

    # Runs.

    @rule(at_most=st.integers(1, 3), good=st.sets(st.integers(0, 2)), is_half_way=st.booleans())
    def run(self, at_most: int, good: set[int], is_half_way: bool) -> None:
        """Plan; some of the windows are committed, one perhaps only half-way, and the others fail for good."""
        self._work(Live(at_most=at_most), good, is_half_way)

    @rule(at_most=st.integers(1, 3))
    def read_on(self, at_most: int) -> None:
        self._work(Live(at_most=at_most), {0, 1, 2}, False)

    @rule(good=st.sets(st.integers(0, 2), max_size=2), is_half_way=st.booleans())
    def leave_a_backlog(self, good: set[int], is_half_way: bool) -> None:
        """Let three windows be open at once, of which some are committed."""
        self.world.kafka.produce(tp(0), 18, at=self.world.now)
        self._work(Live(at_most=3), good, is_half_way)

    @rule(how=st.sampled_from(["expire", "truncate", "recreate"]))
    def spoil_an_open_window(self, how: str) -> None:
        """Let Kafka lose what the oldest open window is to read."""
        is_open = self.world.ledger.load("lake").open
        if not is_open or not (wanted := is_open[0].window.ranges.without_empty()):
            return
        partition, owned = next(iter(wanted.items()))
        if how == "recreate" or partition not in self.partitions:
            self.recreate(partition.topic, 2)
        elif how == "expire":
            self.world.kafka.expire(partition, owned.start + 1)
        else:
            self.world.kafka.truncate(partition, owned.end - 1)

    @rule(seq=st.integers(1, 4), good=st.sets(st.integers(0, 1)))
    def replay(self, seq: int, good: set[int]) -> None:
        self._work(Windows((seq,)), good, False)

    @rule(which=st.integers(0, 1), start=st.integers(0, 10), good=st.sets(st.integers(0, 1)))
    def backfill(self, which: int, start: int, good: set[int]) -> None:
        self._work(Offsets(ranges({tp(which): (start, start + 3)})), good, False)

    def _work(self, request: Live | Windows | Offsets, good: set[int], is_half_way: bool) -> None:
        self.number += 1
        run = claim(f"run-{self.number}")
        with suppress(KafkaOffsetsError):
            windows = [planned.window for planned in self.world.ask(run, request)]
            for i, window in enumerate(windows):
                if i not in good:
                    self.world.work(window, run, Outcome.FAILED)
                    continue
                self.store.failure = StoreUnavailableError("away") if is_half_way and i == max(good) else None
                self.world.do(window, run)
        self.store.failure = None
        self.world.die(run)

    # People.

    @rule(topics=st.sampled_from([ORDERS, BOTH]), skips=st.booleans(), level=st.booleans(), max_open=st.integers(1, 4))
    def define(self, topics: list[str], skips: bool, level: bool, max_open: int) -> None:
        self.options |= {
            "topics": topics,
            "on_data_loss": "skip" if skips else "fail",
            "isolation_level": "read_committed" if level else "read_uncommitted",
            "max_open_windows": max_open,
        }
        self.world.configure(**self.options)

    @rule(data=st.data(), leave_gap=st.booleans())
    def abandon(self, data: st.DataObject, leave_gap: bool) -> None:
        windows = [w for w in self._windows() if w.state is State.PLANNED]
        if windows:
            with suppress(ConfirmationError):
                window = data.draw(st.sampled_from(windows))
                self.world.service.abandon(window.id, "ada", "why", leave_gap=leave_gap)

    @rule(to=st.sampled_from(["earliest", "latest"]), which=st.integers(0, 5))
    def reset(self, to: str, which: int) -> None:
        ids = [None, *(window.id for window in self._windows())]
        with suppress(KafkaOffsetsError):
            to_window = ids[which % len(ids)]
            self.world.service.reset(self.world.group, to, "ada", "why", to_window=to_window, supersede=True)

    def _windows(self) -> list[Window]:
        return [row.held.window for row in self.world.ledger.windows("lake", limit=1000)]

    # The law.

    @rule(which=st.integers(0, 3))
    def find_the_way_out(self, which: int) -> None:
        """Do what the errors say, of several commands any, until a run has read all that is open, and one plans on."""
        for _ in range(STEPS):
            self.number += 1
            run = claim(f"run-{self.number}")
            try:
                planned = self.world.ask(run, Live(at_most=10))
                for one in planned:
                    self.world.do(one.window, run)
                self.world.die(run)
            except KafkaOffsetsError as exc:
                self.world.die(run)
                if self._follow(exc, which):
                    return
                continue
            if all(one.how == "new" for one in planned):
                assert not any(w.state.is_open for w in self._windows() if w.lane is Lane.LIVE)
                return
        pytest.fail("the errors name commands in a circle")

    def _follow(self, error: KafkaOffsetsError, which: int) -> bool:
        """Do what an error says; True: it says that this group can't be helped, and another one has to read the topic."""
        message = str(error)
        if commands := COMMAND.findall(message):
            return self._do(commands[which % len(commands)], which)
        if isinstance(error, MissingPartitionError):
            there = [t for t in self.world.group.topics if t in self.world.kafka.topic_ids(BOTH)]
            self.world.configure(**{**self.options, "topics": there or ORDERS})
            return False
        assert "under another group's name" in message, f"no way out: {message}"
        return True

    def _do(self, command: str, which: int) -> bool:
        args = make_parser().parse_args(shlex.split(command)[1:])
        if args.function.endswith(".abandon"):
            self._abandon(args.window_id)
            return False
        if args.function.endswith(".commit"):
            self.world.service.commit_by_hand(args.window_id, "ada", "why")
            return False
        if args.function.endswith(".reset"):
            return self._reset(args.to or "", args.to_window, args.topic or (), which)
        position = self.world.service.watermark("lake")
        assert position is not None
        self.store.groups["lake"] = {**self.store.groups.get("lake", {}), **position.offsets}  # copy --from ledger
        return False

    def _abandon(self, window_id: str) -> None:
        try:
            self.world.service.abandon(window_id, "ada", "why")
        except ConfirmationError as exc:
            assert "--leave-gap" in str(exc)  # noqa: PT017
            self.world.service.abandon(window_id, "ada", "why", leave_gap=True)

    def _reset(self, to: str, to_window: str | None, topics: list[str], which: int) -> bool:
        def reset(supersede: bool) -> None:
            group = self.world.group
            self.world.service.reset(group, to, "ada", "why", topics=topics, to_window=to_window, supersede=supersede)

        try:
            reset(False)
        except ConfirmationError as exc:
            assert "--supersede" in str(exc)  # noqa: PT017
            reset(True)
        except KafkaOffsetsError as exc:
            return self._follow(exc, which)
        return False


TestMaze = Maze.TestCase
TestMaze.settings = settings(
    max_examples=min(30, settings.default.max_examples),
    stateful_step_count=min(20, settings.default.stateful_step_count),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
