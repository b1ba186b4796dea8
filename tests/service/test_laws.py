"""Whatever runs and people do, and in whatever order: every offset has one owner, and nothing is lost or read twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from airflow_kafka_offsets.core.errors import (
    ConfirmationError,
    DataLossError,
    IllegalStepError,
    NoEvidenceError,
    WindowBusyError,
)
from airflow_kafka_offsets.core.offsets import OffsetRanges, TopicPartition
from airflow_kafka_offsets.core.window import Claim, Outcome, State, Window
from tests.core.examples import claim, tp
from tests.service.world import QUICK, World

Record = tuple[TopicPartition, int]


def records(ranges: OffsetRanges) -> set[Record]:
    """Spell out ranges."""
    return {(p, offset) for p, r in ranges.items() for offset in range(r.start, r.end)}


class Lake(RuleBasedStateMachine):
    """Runs that plan, work, die, come back as zombies and commit; people who abandon and reset; a topic that lives."""

    runs = Bundle("runs")

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory(dir=QUICK)
        self.world = World(Path(self.folder.name), on_data_loss="skip", max_offsets=7)
        self.seen: dict[str, Window] = {}  # each window as it was when it was planned
        self.sink: dict[str, set[Record]] = {}  # what lies under each window id
        self.working: dict[Claim, Window] = {}
        self.succeeded: dict[Claim, int | None] = {}
        self.number = 0

    def teardown(self) -> None:
        self.folder.cleanup()

    @rule(partition=st.integers(0, 1), number=st.integers(1, 10))
    def produce(self, partition: int, number: int) -> None:
        self.world.kafka.produce(tp(partition), number)

    @rule()
    def add_partition(self) -> None:
        if len(self.world.kafka.snapshot(["orders"], self.world.group.isolation_level).bounds) < 4:
            self.world.kafka.add_partitions("orders")

    @rule(partition=st.integers(0, 1), ahead=st.integers(-5, 3))
    def expire(self, partition: int, ahead: int) -> None:
        watermark = self.world.watermark.get(partition, 0)
        self.world.kafka.expire(tp(partition), max(0, watermark + ahead))

    @rule(target=runs)
    def start_run(self) -> Claim:
        self.number += 1
        run = claim(f"run-{self.number}")
        self._ask(run)
        return run

    @rule(run=runs)
    def retry_or_clear(self, run: Claim) -> None:
        self._ask(run)

    def _ask(self, run: Claim) -> None:
        had = self.working.get(run)
        try:
            planned = self.world.plan(run)
        except (WindowBusyError, DataLossError):
            self.world.die(run)
            return
        except IllegalStepError:
            assert had is not None
            assert self.world.service.window(had.id).state is State.SUPERSEDED
            self.world.die(run)
            return
        window = planned.window
        if had is not None and self.world.service.window(had.id).state.owns:
            assert window.id == had.id, "the run did not get the window that it had"
        assert planned.how == "new" or window.id in self.seen
        assert planned.is_rerun == (window.state is State.COMMITTED)
        self.seen.setdefault(window.id, window)
        self.working[run] = window
        self.succeeded.pop(run, None)

    @rule(run=runs)
    def work(self, run: Claim) -> None:
        """Run the job; a zombie, whose run is over, can do this too: it writes the same records under the same id."""
        if run in self.working:
            window = self.working[run]
            self.sink[window.id] = records(window.ranges)
            self.succeeded[run] = self.world.work(window, run)

    @rule(run=runs, outcome=st.sampled_from([Outcome.FAILED, Outcome.KILLED]))
    def fail(self, run: Claim, outcome: Outcome) -> None:
        if run in self.working:
            self.world.work(self.working[run], run, outcome)
            self.world.die(run)

    @rule(run=runs)
    def vanish(self, run: Claim) -> None:
        self.world.die(run)

    @rule(run=runs)
    def commit(self, run: Claim) -> None:
        if run not in self.working:
            return
        window = self.working[run]
        try:
            self.world.service.commit(window.id, run, self.succeeded.get(run))
        except NoEvidenceError:
            assert self.succeeded.get(run) is None
        except (WindowBusyError, IllegalStepError):
            row = self.world.ledger.window(window.id).held
            assert row.holder != run or not row.window.state.owns
        else:
            self.sink.setdefault(window.id, set())  # empty: there was no job
            self.world.die(run)

    @rule()
    def abandon(self) -> None:
        for held in self.world.ledger.load("lake").open:
            self.world.service.abandon(held.window.id, "ada", "because")

    @rule(data=st.data(), supersede=st.booleans())
    def reset(self, data: st.DataObject, supersede: bool) -> None:
        if not self.world.watermark or self.world.ledger.load("lake").open:
            return
        ids = [row.held.window.id for row in self.world.ledger.windows("lake")]
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
            run = self.start_run()
            self.work(run)
            self.commit(run)

    @invariant()
    def the_laws_hold(self) -> None:
        windows = [row.held.window for row in self.world.ledger.windows("lake", limit=10_000)]
        self._every_offset_has_one_owner(windows)
        self._windows_are_never_cut_again_nor_renamed(windows)
        assert sum(w.state.is_open for w in windows) <= 1
        self._below_the_watermark_all_is_read_once_or_recorded_as_a_gap(windows)

    def _every_offset_has_one_owner(self, windows: list[Window]) -> None:
        owners = Counter(record for w in windows if w.state.owns for record in records(w.ranges))
        assert set(owners.values()) <= {1}

    def _windows_are_never_cut_again_nor_renamed(self, windows: list[Window]) -> None:
        now = {w.id: replace(w, state=State.PLANNED) for w in windows}
        assert now == {id_: replace(w, state=State.PLANNED) for id_, w in self.seen.items()}
        assert sorted(w.seq for w in windows) == list(range(1, len(now) + 1))

    def _below_the_watermark_all_is_read_once_or_recorded_as_a_gap(self, windows: list[Window]) -> None:
        """Look at the sink as a reader does, after people removed what they were told to remove."""
        read = Counter(record for w in windows if w.state is State.COMMITTED for record in self.sink[w.id])
        assert set(read.values()) <= {1}
        gaps = {record for w in windows if w.state is not State.ABANDONED for record in records(w.lost)}
        gaps |= self._skipped()
        for partition, watermark in self.world.watermark.items():
            missing = {(tp(partition), o) for o in range(watermark)} - read.keys() - gaps
            assert not missing, f"the watermark passed {sorted(missing)}"
            assert all(o < watermark for p, o in read if p.partition == partition)

    def _skipped(self) -> set[Record]:
        gaps = [act.details.get("skipped", {}).items() for act in self.world.ledger.acts("lake")]
        by_people = {
            (tp(int(name.rpartition("-")[2])), o) for gap in gaps for name, bounds in gap for o in range(*bounds)
        }
        # What had expired before the group first saw the partition was never its own.
        first: dict[TopicPartition, int] = {}
        for w in self.seen.values():
            for p, start in w.ranges.starts.items():
                first.setdefault(p, w.lost[p].start if p in w.lost else start)
        return by_people | {(p, o) for p, start in first.items() for o in range(start)}


TestLaws = Lake.TestCase
TestLaws.settings = settings(
    max_examples=12,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
