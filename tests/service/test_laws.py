"""Whatever runs and people do, and in whatever order: every offset has one owner, and nothing is lost or read twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from airflow_kafka_offsets.core.errors import (
    BadInputError,
    ConfirmationError,
    DataLossError,
    ForeignGroupError,
    IllegalStepError,
    NoEvidenceError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
    WindowBusyError,
)
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.ownership import Owner
from airflow_kafka_offsets.core.plan.request import Live, Ranges, Request, TimeSpan, Windows
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.window import Claim, Lane, Outcome, Scope, State, Window, WindowRecord
from airflow_kafka_offsets.service.plan import Planned
from tests.core.examples import NOON, claim, tp
from tests.lab.memory import IN_MEMORY
from tests.service.world import World, after_clear
from tests.stores.memory import MemoryStore

Record = tuple[TopicPartition, int]


def records(ranges: OffsetRanges) -> set[Record]:
    """Spell out ranges."""
    return {(p, offset) for p, r in ranges.items() for offset in range(r.start, r.end)}


class Lake(RuleBasedStateMachine):
    """Runs that plan, work, die, come back as zombies and commit; people who replay, abandon and reset; a living topic.

    The group starts at the latest offsets, with older records below that no one owns.
    """

    MAX_OPEN: ClassVar[int]

    runs = Bundle("runs")

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory(dir=IN_MEMORY)
        options = {"on_data_loss": "skip", "max_offsets": 7, "max_open_windows": self.MAX_OPEN}
        self.store = MemoryStore()
        self.world = World(Path(self.folder.name), self.store, starting_offsets="latest", **options)
        self.produce(0, 9)
        self.produce(1, 3)
        self.seen: dict[str, Window] = {}  # each window as it was when it was planned
        self.sink: dict[str, set[Record]] = {}  # what lies under each window id
        self.working: dict[Claim, list[Window]] = {}
        # Jobs that did well: the attempt, or None where a launcher that is not ours was green.
        self.succeeded: dict[tuple[Claim, str], int | None] = {}
        self.first_commit: dict[str, tuple[Claim, int]] = {}  # by whom, and after how many clears
        self.given: dict[Claim, str] = {}  # what mapped tasks were told to do
        self.last_clear: Counter[Claim] = Counter()
        self.number = 0
        self.dag = "dag"  # whose the group is: its task load plans

    def teardown(self) -> None:
        self.folder.cleanup()

    # The topic.

    @rule(partition=st.integers(0, 1), number=st.integers(1, 10))
    def produce(self, partition: int, number: int) -> None:
        # Every third record is dated out of order.
        for i in range(number):
            self.world.kafka.produce(tp(partition), 1, at=self.world.now - timedelta(minutes=7 * (i % 3)))

    @rule()
    def add_partition(self) -> None:
        if len(self.world.kafka.snapshot(["orders"], self.world.group.isolation_level).bounds) < 4:
            self.world.kafka.add_partitions("orders")

    @rule(partition=st.integers(0, 1), ahead=st.integers(-5, 3))
    def expire(self, partition: int, ahead: int) -> None:
        watermark = self.world.watermark.get(partition, 0)
        self.world.kafka.expire(tp(partition), max(0, watermark + ahead))

    # Runs.

    @rule(target=runs, at_most=st.integers(1, 3), by_time=st.booleans())
    def start_run(self, at_most: int = 1, by_time: bool = False) -> Claim:
        run = self._new_run()
        self._ask(run, Live(ends_at=self.world.now - timedelta(minutes=5) if by_time else None, at_most=at_most))
        return run

    @rule(target=runs, at_most=st.integers(1, 3))
    def start_run_around_another_launcher(self, at_most: int) -> Claim:
        plan = replace(self._new_run(), scope=Scope.RUN)
        self._ask(plan, Live(at_most=at_most))
        return plan

    @rule(target=runs, at_most=st.integers(1, 3))
    def start_run_with_mapped_tasks(self, at_most: int) -> multiple:  # type: ignore[valid-type]
        plan = self.start_run_around_another_launcher(at_most)
        mapped = [replace(plan, task_id="work", map_index=i, scope=Scope.TASK) for i in range(at_most)]
        for task, window in zip(mapped, self.working.get(plan, []), strict=False):
            self.given[task] = window.id
            self._take(task)
        return multiple(plan, *mapped)

    @rule(target=runs, data=st.data(), does_well=st.booleans(), scope=st.sampled_from(Scope))
    def replay_windows(self, data: st.DataObject, does_well: bool, scope: Scope) -> Claim:
        some = st.lists(st.integers(1, max(1, len(self.seen))), min_size=1, max_size=3, unique=True)
        return self._replay(Windows(tuple(sorted(data.draw(some)))), does_well, scope)

    @rule(
        target=runs,
        data=st.data(),
        is_interval=st.booleans(),
        does_well=st.booleans(),
        scope=st.sampled_from(Scope),
    )
    def replay_span(self, data: st.DataObject, is_interval: bool, does_well: bool, scope: Scope) -> Claim:
        return self._replay(replace(data.draw(self._spans()), is_interval=is_interval), does_well, scope)

    def _spans(self) -> st.SearchStrategy[TimeSpan]:
        minutes = int((self.world.now - NOON) / timedelta(minutes=1)) + 1
        edges = st.lists(st.integers(-15, minutes), min_size=2, max_size=2, unique=True).map(sorted)
        return edges.map(lambda edge: TimeSpan(*(NOON + timedelta(minutes=m) for m in edge)))

    @rule(
        target=runs,
        partition=st.integers(0, 2),
        back=st.integers(-3, 15),
        span=st.integers(1, 12),
        does_well=st.booleans(),
    )
    def replay_offsets(self, partition: int, back: int, span: int, does_well: bool) -> Claim:
        start = max(0, self.world.watermark.get(partition, 0) - back)
        return self._replay(Ranges(OffsetRanges({tp(partition): OffsetRange(start, start + span)})), does_well)

    def _replay(self, request: Request, does_well: bool, scope: Scope = Scope.TASK) -> Claim:
        run = replace(self._new_run(), scope=scope)
        if self.number % 2:
            run = replace(run, dag_id="replays")  # a DAG of its own for the same output
        half_way = any(h.window.state is State.COMMITTING for h in self._rows())  # whoever asks finishes that
        before = self.world.watermark
        self._ask(run, request)
        if does_well:
            self._do_well(run)
        assert half_way or self.world.watermark == before, "a replay moved the watermark"
        return run

    def _do_well(self, run: Claim) -> None:
        self.work(run)
        self._commit(run, self.working.get(run, []))
        self.world.die(run)

    def _new_run(self) -> Claim:
        self.number += 1
        return replace(claim(f"run-{self.number}"), dag_id=self.dag)

    @rule(run=runs, is_clear=st.booleans())
    def retry_or_clear(self, run: Claim, is_clear: bool) -> None:
        self.last_clear[run] += is_clear
        self._ask_again(run, Live())

    @rule(run=runs, data=st.data())
    def reprocess(self, run: Claim, data: st.DataObject) -> None:
        """Let a backfill clear a run, which is one of the backfill from now on, and asks for its interval."""
        self.last_clear[run] += 1
        self._ask_again(run, replace(data.draw(self._spans()), is_interval=True))

    def _ask_again(self, run: Claim, request: Request) -> None:
        if run in self.given:
            self._take(run)
        elif not self.seen and run.dag_id != self.dag:
            return  # the group would be its own
        elif run.map_index < 0:
            self._ask(run, request)

    def _ask(self, run: Claim, request: Request) -> None:
        had = [w for w in self.working.get(run, []) if self.world.service.ledger.window(w.id).window.state.owns]
        was = [
            w
            for w in self.working.get(run, [])
            if self.world.service.ledger.window(w.id).window.state is State.SUPERSEDED
        ]
        before = self._rows()
        self._settle(run)
        try:
            planned = self.world.ask(run, request, last_clear=self.last_clear[run])
        except (WindowBusyError, DataLossError):
            assert self._is_as_before(before)
            self.world.die(run)
            return
        except ForeignGroupError:
            assert isinstance(request, Live)
            assert run.dag_id != self.dag
            assert not had
            assert self._is_as_before(before)
            self.world.die(run)
            return
        except BadInputError:
            assert not isinstance(request, Live)
            assert self._is_as_before(before)
            self.world.die(run)
            return
        except IllegalStepError:
            assert was or isinstance(request, Windows)
            self.world.die(run)
            return
        if had:
            assert {w.id for w in had} <= {p.window.id for p in planned}, "the run did not get the windows that it had"
        self._note(run, planned)

    def _take(self, task: Claim) -> None:
        self._settle(task)
        self.world.over.discard(task)
        is_over = self.world.over.__contains__
        try:
            planned = self.world.service.take(
                self.world.group, self.given[task], task, is_over, after_clear(self.last_clear[task])
            )
        except (WindowBusyError, DataLossError, IllegalStepError):
            self.world.die(task)
            return
        assert planned.window.id == self.given[task]
        self._note(task, [planned])

    def _settle(self, run: Claim) -> None:
        """Forget which attempts were good: whoever asks again works again, unless he is told that it is done."""
        self.succeeded = {key: attempt for key, attempt in self.succeeded.items() if key[0] != run}

    def _note(self, run: Claim, planned: Sequence[Planned]) -> None:
        for p in planned:
            assert p.how == "new" or p.window.id in self.seen
            is_own_commit = p.earlier_success and self.first_commit.get(p.window.id) == (run, self.last_clear[run])
            assert p.is_rerun == (p.window.state is State.COMMITTED) or is_own_commit
            self.seen.setdefault(p.window.id, replace(p.window, state=State.PLANNED))
            if p.earlier_success:
                assert p.window.id in self.sink
                self.succeeded[run, p.window.id] = p.earlier_success.id
        self.working[run] = [p.window for p in planned]

    def _is_as_before(self, before: list[WindowRecord]) -> bool:
        """Whether nothing was written but the end of commits that stopped half-way."""
        half_way = {h.window.seq for h in before if h.window.state is State.COMMITTING}
        return [h for h in self._rows() if h.window.seq not in half_way] == [
            h for h in before if h.window.seq not in half_way
        ]

    def _rows(self) -> list[WindowRecord]:
        return list(self.world.ledger.windows("lake", limit=10_000))

    @rule(run=runs)
    def work(self, run: Claim) -> None:
        """Run the jobs; a zombie, whose run is over, can do this too: it writes the same records under the same id."""
        for window in self.working.get(run, []):
            if (run, window.id) not in self.succeeded:
                self._work(run, window)

    def _work(self, run: Claim, window: Window) -> None:
        self.sink[window.id] = records(window.ranges)
        is_ours = run.scope is Scope.TASK
        attempt = self.world.work(window, run, last_clear=self.last_clear[run]) if is_ours else None
        self.succeeded[run, window.id] = attempt

    @rule(run=runs, outcome=st.sampled_from([Outcome.FAILED, Outcome.KILLED]), data=st.data())
    def fail(self, run: Claim, outcome: Outcome, data: st.DataObject) -> None:
        """Let one job fail, after those before it did well."""
        windows = self.working.get(run, [])
        if not windows:
            return
        failing = data.draw(st.integers(0, len(windows) - 1))
        for window in windows[:failing]:
            self._work(run, window)
        if run.scope is Scope.TASK:
            self.world.work(windows[failing], run, outcome, last_clear=self.last_clear[run])
        self.world.die(run)

    @rule(run=runs)
    def vanish(self, run: Claim) -> None:
        self.world.die(run)

    @rule(run=runs, data=st.data())
    def commit(self, run: Claim, data: st.DataObject) -> None:
        """Commit in any order, all or some of them."""
        windows = self.working.get(run, [])
        if not windows:
            return
        some = data.draw(st.lists(st.sampled_from(windows), unique_by=lambda w: w.id))
        self._commit(run, some)
        if len(some) == len(windows):
            self.world.die(run)

    def _commit(self, run: Claim, windows: Sequence[Window]) -> None:
        for window in windows:
            if run.scope is Scope.TASK:
                self._commit_one(run, run, window)
            elif window.span == 0 or (run, window.id) in self.succeeded:  # else Airflow does not start the commit task
                self._commit_one(run, replace(run, task_id="commit"), window)

    def _commit_one(self, run: Claim, committer: Claim, window: Window) -> None:
        evidence = self.succeeded.get((run, window.id))
        try:
            is_first = self.world.service.commit(window.id, committer, evidence)
        except NoEvidenceError:
            assert committer == run
            assert evidence is None
        except (WindowBusyError, IllegalStepError):
            held = self.world.ledger.window(window.id)
            assert held.holder != run or not held.window.state.owns
        else:
            assert self.world.ledger.window(window.id).holder == run, "committed what another works on"
            self.sink.setdefault(window.id, set())  # empty: there was no job
            if is_first:
                self.first_commit[window.id] = (run, self.last_clear[run])

    @rule(run=runs, is_written=st.booleans())
    def crash_in_commit(self, run: Claim, is_written: bool) -> None:
        """Die in the middle of a commit, before the offset store has it or after."""
        for window in self.working.get(run, []):
            held = self.world.ledger.window(window.id)
            has_evidence = window.span == 0 or (run, window.id) in self.succeeded
            if held.holder == run and held.window.state is State.PLANNED and has_evidence:
                self.sink.setdefault(window.id, set())
                self.first_commit[window.id] = (run, self.last_clear[run])
                failure = StoreOutcomeUnknownError("silent") if is_written else StoreUnavailableError("away")
                self.store.failure, self.store.fails_after_write = failure, is_written
                with suppress(type(failure)):  # raised unless an open window before this one holds the watermark
                    self.world.service.commit(window.id, run, self.succeeded.get((run, window.id)))
                self.store.failure = None
        self.world.die(run)

    # People.

    @rule(all_of_them=st.booleans())
    def abandon(self, all_of_them: bool) -> None:
        for held in reversed(self.world.ledger.load("lake").open):
            if held.window.state is State.COMMITTING:
                return
            try:
                self.world.service.abandon(held.window.id, "ada", "because")
            except ConfirmationError:
                later = [h.window for h in self._rows() if h.window.seq > held.window.seq]
                assert any(w.lane is Lane.LIVE for w in later)
                return
            if not all_of_them:
                return

    @rule(data=st.data())
    def leave_a_gap(self, data: st.DataObject) -> None:
        planned = [h.window.id for h in self.world.ledger.load("lake").open if h.window.state is State.PLANNED]
        if planned:
            self.world.service.abandon(data.draw(st.sampled_from(planned)), "ada", "because", leave_gap=True)

    @rule()
    def abandon_backfill(self) -> None:
        for held in self._rows():
            if held.window.lane is Lane.BACKFILL and held.window.state is State.PLANNED:
                self.world.service.abandon(held.window.id, "ada", "because")
                return

    @rule(dag=st.sampled_from(["dag", "renamed"]))
    def take_over(self, dag: str) -> None:
        """Rename the DAG, and give it the group."""
        if self.seen:
            self.world.service.take_over("lake", Owner(dag, "load"), "ada", "renamed")
            self.dag = dag

    @rule(other=st.sampled_from([("elsewhere", "load"), ("dag", "load_again")]), at_most=st.integers(1, 3))
    def ask_from_elsewhere(self, other: tuple[str, str], at_most: int) -> None:
        """Let a task ask that has the group's name by mistake."""
        if not self.seen:
            return  # the group would be its own
        self.number += 1
        before = self._rows()
        with pytest.raises(ForeignGroupError):
            self.world.ask(Claim(other[0], f"run-{self.number}", other[1]), Live(at_most=at_most))
        assert self._is_as_before(before)

    @rule(data=st.data(), supersede=st.booleans())
    def reset(self, data: st.DataObject, supersede: bool) -> None:
        if not self.world.watermark or self.world.ledger.load("lake").open:
            return
        ids = [held.window.id for held in self._rows()]
        to_window = data.draw(st.none() | st.sampled_from(ids))
        to = data.draw(st.sampled_from(["earliest", "latest", *self._somewhere()]))
        try:
            self.world.service.reset(self.world.group, to, "ada", "why", to_window=to_window, supersede=supersede)
        except ConfirmationError:
            assert not supersede
        except (IllegalStepError, ValueError):  # it would cut a window, or lies outside of the log
            pass

    def _somewhere(self) -> list[str]:
        watermark = self.world.watermark[0]
        return [f'{{"orders":{{"0":{max(0, watermark + step)}}}}}' for step in (-3, 2)]

    @rule()
    def read_ahead(self) -> None:
        """Let three runs in a row do well, so that longer histories come about."""
        for _ in range(3):
            self._do_well(self.start_run())

    # The laws.

    @invariant()
    def the_laws_hold(self) -> None:
        windows = [held.window for held in self._rows()]
        self._every_offset_has_one_owner(windows)
        self._windows_are_never_cut_again_nor_renamed(windows)
        live = [w for w in windows if w.lane is Lane.LIVE]
        assert sum(w.state.is_open for w in live) <= self.MAX_OPEN
        self._live_windows_tile_the_log(live[::-1])
        self._the_watermark_is_the_end_of_the_gap_free_prefix(live[::-1])
        self._below_the_watermark_all_is_read_once_or_recorded_as_a_gap(windows)

    def _every_offset_has_one_owner(self, windows: list[Window]) -> None:
        owners = Counter(record for w in windows if w.state.owns for record in records(w.ranges))
        assert set(owners.values()) <= {1}

    def _windows_are_never_cut_again_nor_renamed(self, windows: list[Window]) -> None:
        now = {w.id: replace(w, state=State.PLANNED) for w in windows}
        assert now == self.seen
        assert sorted(w.seq for w in windows) == list(range(1, len(now) + 1))

    def _live_windows_tile_the_log(self, live: list[Window]) -> None:
        """Each starts where the one before ends, or the gap is recorded."""
        gaps = self._gaps(live)
        at: dict[TopicPartition, int] = {}
        for w in live:
            if not w.state.owns:
                continue
            for p, r in w.ranges.without_empty().items():
                skipped = {(p, o) for o in range(at.get(p, r.start), r.start)}
                assert at.get(p, 0) <= r.start
                assert skipped <= gaps, f"{w.id} does not start where the one before ends"
                at[p] = r.end

    def _the_watermark_is_the_end_of_the_gap_free_prefix(self, live: list[Window]) -> None:
        owning = [w for w in live if w.state.owns]
        first_open = next((w for w in owning if w.state.is_open), None)
        if first_open is not None:
            assert self.world.watermark == {p.partition: start for p, start in first_open.ranges.starts.items()}
        for w in owning:
            if first_open is None or w.seq < first_open.seq:
                assert w.state is State.COMMITTED
                read = w.ranges.without_empty()  # over an empty one, a reset goes back without a word
                assert all(r.end <= self.world.watermark[p.partition] for p, r in read.items())

    @invariant()
    def the_store_stands_at_the_watermark_or_on_the_way_of_a_commit(self) -> None:
        found = {p.partition: offset for p, offset in self.store.groups.get("lake", {}).items()}
        live = [h.window for h in reversed(self._rows()) if h.window.lane is Lane.LIVE and h.window.state.owns]
        done = list(takewhile(lambda w: w.state is State.COMMITTED, live))
        assert {p.partition for w in done for p in w.ranges} <= found.keys(), "committed, and not published"
        ahead = [w.ranges for w in live if w.state is not State.PLANNED]
        # Its commit passes what had expired before it was cut.
        lost = next((w.lost for w in live if w.state is not State.COMMITTED), OffsetRanges({}))
        for partition, offset in found.items():
            on_the_way = {r[tp(partition)].end for r in ahead if tp(partition) in r}
            is_under_way = any(w.state is State.COMMITTING for w in live)
            # A partition that came later may be in the store before the watermark knows it, by a commit that is under way.
            stands = lost[tp(partition)].start if tp(partition) in lost else self.world.watermark.get(partition)
            assert offset == stands or (is_under_way and offset in on_the_way)

    def _below_the_watermark_all_is_read_once_or_recorded_as_a_gap(self, windows: list[Window]) -> None:
        """Look at the sink as a reader does, after people removed what they were told to remove."""
        read = Counter(record for w in windows if w.state is State.COMMITTED for record in self.sink[w.id])
        assert set(read.values()) <= {1}
        assert set(read) == {r for w in windows if w.state is State.COMMITTED for r in records(w.ranges)}
        gaps = self._gaps(windows)
        filled = {r for w in windows if w.lane is Lane.BACKFILL and w.state.owns for r in records(w.ranges)}
        for partition, watermark in self.world.watermark.items():
            missing = {(tp(partition), o) for o in range(watermark)} - read.keys() - gaps
            assert not missing, f"the watermark passed {sorted(missing)}"
            assert all(o < watermark for p, o in filled if p.partition == partition)

    def _gaps(self, windows: list[Window]) -> set[Record]:
        lost = {record for w in windows if w.state is not State.ABANDONED for record in records(w.lost)}
        return lost | self._skipped()

    def _skipped(self) -> set[Record]:
        gaps = [act.details.get("skipped", {}).items() for act in self.world.ledger.acts("lake")]
        by_people = {
            (tp(int(name.rpartition("-")[2])), o) for gap in gaps for name, bounds in gap for o in range(*bounds)
        }
        # What was there before the group first saw the partition was never its own.
        first: dict[TopicPartition, int] = {}
        for w in self.seen.values():
            if w.lane is Lane.LIVE:
                for p, start in w.ranges.starts.items():
                    first.setdefault(p, w.lost[p].start if p in w.lost else start)
        return by_people | {(p, o) for p, start in first.items() for o in range(start)}


class OneOpen(Lake):
    """At most one live window is open at a time."""

    MAX_OPEN = 1


class ThreeOpen(Lake):
    """A backlog is drained by several jobs."""

    MAX_OPEN = 3


PROFILE = settings(
    max_examples=min(12, settings.default.max_examples),
    stateful_step_count=min(25, settings.default.stateful_step_count),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

TestOneOpen = OneOpen.TestCase
TestOneOpen.settings = PROFILE
TestThreeOpen = ThreeOpen.TestCase
TestThreeOpen.settings = PROFILE
