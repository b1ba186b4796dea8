"""Every state has a way out: the commands that the errors name work, one after the other, until a run reads on.

Runs, people and Kafka do what they like, and now and then follow an error at once; then no one does anything but what the errors say.
Runs go by the definition in the DAG, and people's commands by the one that the ledger has. For many thousand sequences, by hand::

    WAY_OUT_EXAMPLES=2000 python -m pytest -q tests/service/test_way_out.py
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from airflow_kafka_offsets.cli.parser import make_parser
from airflow_kafka_offsets.core.errors import (
    AtRiskError,
    ConfirmationError,
    ForeignGroupError,
    KafkaOffsetsError,
    MissingPartitionError,
    OutputError,
    StoreUnavailableError,
)
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.log import IsolationLevel
from airflow_kafka_offsets.core.offsets import topics_of
from airflow_kafka_offsets.core.plan.ownership import Owner, Position
from airflow_kafka_offsets.core.plan.request import Live, Ranges, Windows
from airflow_kafka_offsets.core.window import Claim, Lane, Outcome, State, Window
from airflow_kafka_offsets.service.move import Moving, Selection
from airflow_kafka_offsets.service.plan import Planned
from airflow_kafka_offsets.service.sources import LedgerSource
from airflow_kafka_offsets.service.windows import WindowService
from tests.core.examples import ranges, tp
from tests.lab.memory import IN_MEMORY
from tests.ledger.test_staging import Warehouse
from tests.service.world import World
from tests.stores.memory import MemoryStore

COMMAND = re.compile(r"kafka-offsets (?:abandon|commit|copy|reset|take-over) .*?--why '\.\.\.'")
STEPS = 40
"""More commands than that are no way out: each open window may need one, and each topic a few."""

ORDERS = ["orders"]
BOTH = ["orders", "clicks"]
REDIS, ZOOKEEPER = "redis://redis_default", "zookeeper://zookeeper_default/offsets"
TABLES = ["first", "second"]
DAGS = ["dag", "renamed"]
"""Names of the DAG that plans the group, one after the other."""

KEPT, LONGER = "86400000", "8640000000"
"""How long the topics keep their records, in milliseconds, and how long a person may let them."""

ELSEWHERE = "reports"
"""A DAG that some day takes the group's name, too."""

EDITS = {
    "topics": st.sampled_from([ORDERS, BOTH]),
    "kafka_conn_id": st.sampled_from(["kafka_default", "kafka_again"]),
    "ledger_conn_id": st.sampled_from([None, "ledger"]),
    "starting_offsets": st.sampled_from(["earliest", "latest", "committed", timedelta(hours=1)]),
    "isolation_level": st.sampled_from(["read_committed", "read_uncommitted"]),
    "max_offsets": st.sampled_from([None, 2, 6]),
    "max_open_windows": st.integers(1, 4),
    "until": st.sampled_from(["now", "data_interval_end"]),
    "grace": st.sampled_from([timedelta(0), timedelta(minutes=5)]),
    "on_data_loss": st.sampled_from(["fail", "skip"]),
    "on_at_risk": st.sampled_from(["warn", "fail"]),
    "expect_gaps": st.booleans(),
    "expect_fewer": st.booleans(),
    "kafka_timeout": st.sampled_from([30, 60]),
    "spark_options": st.sampled_from([{}, {"minPartitions": "3"}]),
    "offset_store": st.sampled_from([None, REDIS, ZOOKEEPER]),
    "output_tables": st.sampled_from([(), TABLES[:1], TABLES[1:], TABLES]),
}
"""What a person may edit in the DAG's definition of the group: everything but its name."""

ASKS = st.sampled_from([None, None, ELSEWHERE])
"""Which DAG asks, or None for the one that plans the group."""

THEN = st.none() | st.integers(0, 3)
"""Which of the commands that an error names is followed at once, or None if people do something else first."""


class Maze(RuleBasedStateMachine):
    """One group, its topics and its offset store, and all that can happen to them."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory(dir=IN_MEMORY)
        self.stores: dict[str | None, MemoryStore] = {
            REDIS: MemoryStore(REDIS),
            ZOOKEEPER: MemoryStore(ZOOKEEPER, names_windows=False),
        }
        self.options: dict[str, Any] = {"max_open_windows": 3, "max_offsets": 6, "offset_store": REDIS}
        self.world = World(Path(self.folder.name), **self.options)
        self.world.kafka.create("clicks", 1)
        for topic in BOTH:
            self.world.kafka.configure(topic, retention_ms=KEPT)
        self.warehouse: Warehouse | None = None
        self.define({})
        self.partitions = {tp(0), tp(1), tp(0, "clicks")}
        self.number = 0
        self.dag = DAGS[0]

    def teardown(self) -> None:
        self.find_the_way_out(0)
        self.world.close()
        self.folder.cleanup()

    # The topics.

    @rule(which=st.integers(0, 3), number=st.integers(1, 15))
    def produce(self, which: int, number: int) -> None:
        self.world.kafka.produce(self._partition(which), number, at=self.world.now)

    @rule(hours=st.integers(1, 30))
    def let_time_pass(self, hours: int) -> None:
        self.world.now += timedelta(hours=hours)

    @rule()
    def add_partition(self) -> None:
        there = sum(p.topic == "orders" for p in self.partitions)
        if there < 3:
            self.world.kafka.add_partitions("orders")
            self.partitions.add(tp(there))

    @rule(which=st.integers(0, 3), before=st.integers(0, 25))
    def expire(self, which: int, before: int) -> None:
        self.world.kafka.expire(self._partition(which), before)

    @rule(which=st.integers(0, 3), on_data_loss=st.sampled_from(["fail", "skip"]))
    def let_retention_come(self, which: int, on_data_loss: str) -> None:
        """Let records get so old that a strict group refuses them, and retention remove the first of them."""
        self.find_the_way_out(which)
        self.define({"on_at_risk": "fail", "on_data_loss": on_data_loss, "topics": ORDERS})
        partition, position = tp(which % 2), self.stored_position
        watermark = position.offsets.get(partition) if position else None
        if watermark is not None and partition in self.partitions:
            self.world.kafka.produce(partition, 6, at=self.world.now)
            self.let_time_pass(24)
            self.world.kafka.expire(partition, watermark + 2)
            self.read_on(3)

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
    def upgrade_or_roll_back(self) -> None:
        """Let the broker give topic ids from now on, or no longer."""
        self.world.kafka.tells_ids = not self.world.kafka.tells_ids

    @rule(topic=st.sampled_from(BOTH), which=st.integers(0, 2))
    def bring_back(self, topic: str, which: int) -> None:
        """Let the connection lead back to a cluster where the group has been."""
        if ids := self.world.kafka.earlier_ids(topic):
            self.world.kafka.bring_back(topic, ids[which % len(ids)])
            there = self.world.kafka.snapshot([topic], IsolationLevel.READ_COMMITTED).bounds
            self.partitions = {p for p in self.partitions if p.topic != topic} | set(there)

    @rule(recreated=st.sampled_from(BOTH), number=st.integers(1, 2), end=st.integers(0, 15))
    def recreate_one_and_truncate_the_other(self, recreated: str, number: int, end: int) -> None:
        """Let a group read two topics, one of which is recreated, and the log of the other is cut back."""
        [other] = set(BOTH) - {recreated}
        self.define({"topics": BOTH})
        for partition in self.partitions:
            self.world.kafka.produce(partition, 6, at=self.world.now)
        self._work(Live(at_most=3), {0, 1, 2}, False)
        self.recreate(recreated, number)
        if tp(0, other) in self.partitions:
            self.world.kafka.truncate(tp(0, other), end)

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

    @rule(seq=st.integers(1, 4), good=st.sets(st.integers(0, 1)), dag=ASKS, then=THEN)
    def replay(self, seq: int, good: set[int], dag: str | None, then: int | None) -> None:
        self._work(Windows((seq,)), good, False, dag, then)

    @rule(which=st.integers(0, 1), start=st.integers(0, 10), good=st.sets(st.integers(0, 1)), dag=ASKS, then=THEN)
    def backfill(self, which: int, start: int, good: set[int], dag: str | None, then: int | None) -> None:
        self._work(Ranges(ranges({tp(which): (start, start + 3)})), good, False, dag, then)

    @rule(at_most=st.integers(1, 3), good=st.sets(st.integers(0, 2)), then=THEN)
    def plan_elsewhere(self, at_most: int, good: set[int], then: int | None) -> None:
        """Let another DAG plan under the group's name, and perhaps take it over, as the error says."""
        is_foreign = self.owner not in (None, Owner(ELSEWHERE, "load"))
        before = self.owner, [w.id for w in self._windows()]
        refused = self._work(Live(at_most=at_most), good, False, ELSEWHERE)
        if is_foreign:
            assert isinstance(refused, ForeignGroupError)
            assert before == (self.owner, [w.id for w in self._windows()])
            self._perhaps_follow(refused, then)

    @rule(data=st.data(), dag=ASKS, is_good=st.booleans(), then=THEN)
    def take(self, data: st.DataObject, dag: str | None, is_good: bool, then: int | None) -> None:
        """Take a window by its name, as a mapped task does that a plan task gave it to."""
        if windows := self._windows():
            window = data.draw(st.sampled_from(windows))
            run = self._claim(dag)
            take = lambda: self.world.service.take(self.world.group, window.id, run, self.world.over.__contains__)  # noqa: E731
            self._do_all(run, lambda: [take()], {0} if is_good else set(), False, then)

    @rule(dag=st.sampled_from(DAGS))
    def rename(self, dag: str) -> None:
        """Let a person rename the DAG; the error of its next run has the command that takes the group over."""
        self.dag = dag

    def _claim(self, dag: str | None = None) -> Claim:
        self.number += 1
        return Claim(dag or self.dag, f"run-{self.number}", "load")

    @property
    def owner(self) -> Owner | None:
        """The owner of the group, or None before it has one."""
        return self.world.ledger.load("lake").owner

    def _work(
        self,
        request: Live | Windows | Ranges,
        good: set[int],
        is_half_way: bool,
        dag: str | None = None,
        then: int | None = None,
    ) -> KafkaOffsetsError | None:
        run = self._claim(dag)
        return self._do_all(run, lambda: self.world.ask(run, self._until(request)), good, is_half_way, then)

    def _do_all(
        self, run: Claim, ask: Callable[[], list[Planned]], good: set[int], is_half_way: bool, then: int | None
    ) -> KafkaOffsetsError | None:
        """Ask for windows and work on them; return what stopped that, after it was followed, if that was drawn."""
        stopped: KafkaOffsetsError | None = None
        store = self.stores.get(self.world.group.offset_store)  # type: ignore[arg-type]
        try:
            windows = [planned.window for planned in ask()]
            for i, window in enumerate(windows):
                if i not in good:
                    self.world.work(window, run, Outcome.FAILED)
                    continue
                if store is not None:
                    store.failure = StoreUnavailableError("away") if is_half_way and i == max(good) else None
                self._do_job(window, run)
        except KafkaOffsetsError as exc:
            stopped = exc
        for one in self.stores.values():
            one.failure = None
        self.world.die(run)
        if isinstance(stopped, AtRiskError):
            self._check_refusal(stopped)
        if stopped is not None:
            self._perhaps_follow(stopped, then)
        return stopped

    def _perhaps_follow(self, error: KafkaOffsetsError, then: int | None) -> None:
        """Do what an error of a replay or an act says, if it names a command; most of them only say what to correct."""
        if then is not None and COMMAND.search(str(error)):
            self._follow(error, then)

    def _until(self, request: Live | Windows | Ranges) -> Live | Windows | Ranges:
        is_by_time = isinstance(request, Live) and self.world.group.until == "data_interval_end"
        return Live(ends_at=self.world.now, at_most=request.at_most) if is_by_time else request  # type: ignore[union-attr]

    def _do_job(self, window: Window, run: Claim) -> None:
        """Let the window's job run, which stages rows for the tables that the DAG names, and commit."""
        if window.span:
            for table in self.world.group.output_tables:
                self._warehouse().stage(SimpleNamespace(window=window), range(2), table=table)  # type: ignore[arg-type]
        self.world.do(window, run)

    def _warehouse(self) -> Warehouse:
        if self.warehouse is None:
            self.warehouse = Warehouse(str(self.world.ledger._engine.url), self.world.ledger._engine)
            self.warehouse.run(*(f"CREATE TABLE {t} (n INTEGER, window_id VARCHAR(255))" for t in TABLES))
        return self.warehouse

    # People.

    @rule(edits=st.fixed_dictionaries({}, optional=EDITS))
    def define(self, edits: dict[str, Any]) -> None:
        self.options |= edits
        if self.options.get("until") != "data_interval_end":
            self.options["grace"] = timedelta(0)
        self.world.configure(**self.options)
        self.world.service = self._service(self.world.group)

    def _service(self, group: KafkaGroup) -> WindowService:
        """Open what a definition names, as `wiring` does."""
        world, store = self.world, self.stores.get(group.offset_store)  # type: ignore[arg-type]
        output = group.output_tables
        return WindowService(
            world.ledger, world.kafka, clock=lambda: world.now, sleep=lambda _: None, store=store, output=output
        )

    @property
    def stored(self) -> KafkaGroup:
        """The definition by which people's commands go: that of the last plan, or the DAG's before there was one."""
        return next(iter(self.world.ledger.groups()), self.world.group)

    @property
    def people(self) -> WindowService:
        """What people's commands open."""
        return self._service(self.stored)

    @rule(data=st.data(), leave_gap=st.booleans(), then=THEN)
    def abandon(self, data: st.DataObject, leave_gap: bool, then: int | None) -> None:
        windows = [w for w in self._windows() if w.state is State.PLANNED]
        if windows:
            window = data.draw(st.sampled_from(windows))
            try:
                self.people.abandon(window.id, "ada", "why", leave_gap=leave_gap)
            except KafkaOffsetsError as exc:
                self._perhaps_follow(exc, then)

    @rule(
        to=st.sampled_from(["earliest", "latest"]),
        which=st.integers(0, 5),
        topics=st.sampled_from([(), *([topic] for topic in BOTH)]),
        then=THEN,
    )
    def reset(self, to: str, which: int, topics: Sequence[str], then: int | None) -> None:
        ids = [None, *(window.id for window in self._windows())]
        where = {"topics": topics, "to_window": ids[which % len(ids)]}
        try:
            self.people.reset(self.stored, to, "ada", "why", supersede=True, **where)
        except KafkaOffsetsError as exc:
            self._perhaps_follow(exc, then)

    def _windows(self) -> list[Window]:
        return [row.window for row in self.world.ledger.windows("lake", limit=1000)]

    # The law.

    @rule(which=st.integers(0, 3))
    def find_the_way_out(self, which: int) -> None:
        """Do what the errors say, of several commands any, until a run has read all that is open, and one plans on."""
        self.is_stuck = False
        for _ in range(STEPS):
            run = self._claim()
            try:
                planned = self.world.ask(run, self._until(Live(at_most=10)))
                for one in planned:
                    self._do_job(one.window, run)
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
        if self.stored_position is None and "starting_offsets" in message:
            return self._start_elsewhere(message)
        if isinstance(error, MissingPartitionError) and "group of another name" not in message:
            there = [t for t in self.world.group.topics if t in self.world.kafka.topic_ids(BOTH)]
            self.define({"topics": there or ORDERS})
            return False
        if isinstance(error, AtRiskError):
            return self._gain_time(error, which)
        if isinstance(error, OutputError) and "clear the task" in message:
            return False  # the next run has the same window, and runs its job
        if "needs no other run: there is nothing to commit" in message:
            return False  # what was followed said: if it needs another run
        assert "group of another name" in message, f"no way out: {message}"
        return True

    def _check_refusal(self, error: AtRiskError) -> None:
        """Nothing is refused that is read from where the log begins: no waiting helps there."""
        position, level = self.stored_position, self.world.group.isolation_level
        bounds = self.world.kafka.bounds(sorted(error.partitions), level)
        assert position
        assert all(position.offsets[p] > bounds[p].beginning for p in bounds)

    def _gain_time(self, error: AtRiskError, which: int) -> bool:
        """Raise the retention, or read what can still be read."""
        if which % 2:
            self.define({"on_at_risk": "warn"})
        else:
            for topic in topics_of(error.partitions):
                self.world.kafka.configure(topic, retention_ms=LONGER)
        return False

    @property
    def stored_position(self) -> Position | None:
        """Where the next window starts, or None before the first one."""
        return self.world.ledger.load("lake").position

    def _start_elsewhere(self, message: str) -> bool:
        """Choose another start, as a message says; True: it says that this name can't be used here."""
        if "Set starting_offsets='committed' to continue there" in message and not self.is_stuck:
            self.define({"starting_offsets": "committed"})
            self.is_stuck = True  # if the store stands outside of the log, another name is all that is left
            return False
        if "give the group another name" in message:
            return True
        is_outside = "must lie in the log" in message
        self.define({"starting_offsets": "earliest" if is_outside else self._explicit_start()})
        return False

    def _explicit_start(self) -> dict[str, dict[int, int]]:
        """Name what the offset store holds, and the beginning of all that it does not hold."""
        store, group = self.stores.get(self.world.group.offset_store), self.world.group  # type: ignore[arg-type]
        held = store.groups.get("lake", {}) if store is not None else {}
        there = self.world.kafka.snapshot(group.topics, group.isolation_level).bounds
        start = {p.topic: {q.partition: held.get(q, -2) for q in there if q.topic == p.topic} for p in there}
        return start or {"orders": {0: -2}}

    def _do(self, command: str, which: int) -> bool:
        args = make_parser().parse_args(shlex.split(command)[1:])
        if args.function.endswith(".abandon"):
            return self._act(
                lambda yes: self.people.abandon(args.window_id, "ada", "why", leave_gap=yes), "--leave-gap", which
            )
        if args.function.endswith(".commit"):
            return self._act(
                lambda _: self.people.commit_by_hand(args.window_id, "ada", "why"), "nothing to confirm", which
            )
        if args.function.endswith(".reset"):
            where = {"topics": args.topic or (), "to_window": args.to_window}
            return self._act(
                lambda yes: self.people.reset(self.stored, args.to or "", "ada", "why", supersede=yes, **where),
                "--supersede",
                which,
            )
        if args.function.endswith(".take_over"):
            owner = Owner(args.dag, args.task)
            self.people.take_over(args.group, owner, "ada", "why")
            assert self.owner == owner
            return False
        assert args.function.endswith(".copy")
        assert args.from_source == "ledger"
        moving, store = Moving(self.world.ledger), self.stores[args.to]
        asked = Selection(LedgerSource(self.world.ledger, "lake"), "lake")
        found = moving.plan_copy(self.stored, asked, store, lambda _: self.world.kafka)
        moving.carry_out_copy(found, store, "ada", "why")
        return False

    def _act(self, act: Callable[[bool], object], flag: str, which: int) -> bool:
        """Do what a person does, confirm it when that is asked, and do what the error says when it is refused."""
        for yes in (False, True):
            try:
                act(yes)
            except ConfirmationError as exc:
                assert not yes
                assert flag in str(exc)  # noqa: PT017
            except KafkaOffsetsError as exc:
                return self._follow(exc, which)
            else:
                return False
        raise AssertionError("confirmed, and not done")


TestMaze = Maze.TestCase
TestMaze.settings = settings(
    max_examples=int(os.environ.get("WAY_OUT_EXAMPLES") or min(30, settings.default.max_examples)),
    stateful_step_count=min(20, settings.default.stateful_step_count),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.parametrize(
    ("recreated", "number", "end"),
    [
        pytest.param("clicks", 1, 2, id="the offsets of the old topic lie outside of the new one"),
        pytest.param("orders", 1, 1, id="the new topic has fewer partitions"),
        pytest.param("clicks", 2, 0, id="the new topic has more partitions"),
    ],
)
def test_a_cut_back_log_has_a_way_out_before_the_other_topic_of_its_windows_is_reset(
    recreated: str, number: int, end: int
) -> None:
    maze = Maze()
    try:
        maze.recreate_one_and_truncate_the_other(recreated=recreated, number=number, end=end)
        maze.reset(to="latest", which=0, topics=(), then=0)
    finally:
        maze.teardown()
