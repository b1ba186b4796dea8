"""Whatever is pruned, and whenever: each offset that Kafka holds has the owner that it would have in a ledger that keeps everything.

Two ledgers live through the same history, on one Kafka. One of them is pruned at any moment, and its prunes are killed. What runs and
people ask gets the same answer from both, or is refused by the pruned one because of what it no longer knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from airflow_kafka_offsets.core.errors import DataLossError, IllegalStepError, KafkaOffsetsError, PrunedWindowError
from airflow_kafka_offsets.core.plan.request import Live, Ranges, Request, TimeSpan, Windows
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.window import State, Window
from airflow_kafka_offsets.service import prune
from airflow_kafka_offsets.service.prune import Pruning
from airflow_kafka_offsets.service.windows import WindowService
from tests.core.examples import claim, tp
from tests.lab.memory import IN_MEMORY
from tests.service.world import World

Step = tuple[Any, ...]
Answer = object


class KilledError(Exception):
    """The prune was killed between two of its transactions."""


class Twins:
    """A group in two ledgers, one of which is pruned."""

    def __init__(self, folder: Path) -> None:
        self.worlds = [self._world(folder / name) for name in ("pruned", "whole")]
        self.pruned, self.whole = self.worlds
        self.kafka = self.pruned.kafka
        self.whole.kafka = self.kafka
        for world in self.worlds:
            world.service = WindowService(
                world.ledger, self.kafka, clock=lambda world=world: world.now, sleep=lambda _: None
            )
        self.runs = 0
        self.was_restored = False

    def _world(self, folder: Path) -> World:
        folder.mkdir()
        return World(folder, max_open_windows=3, max_offsets=7, starting_offsets="latest", on_data_loss="skip")

    def close(self) -> None:
        """Close both ledgers."""
        for world in self.worlds:
            world.close()

    # What happens to both.

    def produce(self, partition: int, number: int) -> None:
        """Append records to a partition."""
        self._now(timedelta(minutes=1))
        if tp(partition) in self._held():
            self.kafka.produce(tp(partition), number, at=self.pruned.now)

    def read(self, runs: int, records: int) -> None:
        """Let runs read what is written meanwhile."""
        for _ in range(runs):
            for partition in range(2):
                self.produce(partition, records)
            self.live(3)

    def expire(self, partition: int, number: int) -> None:
        """Let retention remove some more records."""
        if bounds := self._held().get(tp(partition)):
            self.kafka.expire(tp(partition), bounds.beginning + number)

    def retire(self, number: int, *prune: Any) -> None:
        """Let retention remove some more records everywhere, and prune."""
        for p in self._held():
            self.expire(p.partition, number)
        self.prune(*prune)

    def expire_all(self) -> None:
        """Let retention remove all that was read."""
        for p, bounds in self._held().items():
            self.kafka.expire(p, bounds.end)

    def restore(self, partition: int, number: int) -> None:
        """Let a log begin earlier than it did."""
        if bounds := self._held().get(tp(partition)):
            self.kafka.restore(tp(partition), max(0, bounds.beginning - number))
            self.was_restored = True

    def grow(self) -> None:
        """Add a partition."""
        if len(self._held()) < 3:
            self.kafka.add_partitions("orders")

    def recreate(self) -> None:
        """Make the topic again, and let a person begin at its beginning."""
        self.kafka.recreate("orders", 2)
        self.reset("earliest", None)

    def live(self, at_most: int) -> None:
        """Let a run read what is new, and adopt what is open."""
        self._run(Live(at_most=at_most))

    def leave_open(self) -> None:
        """Let a run plan and die."""
        self._run(Live(at_most=2), is_dying=True)

    def replay(self, *seqs: int) -> None:
        """Let a run replay windows by number."""
        self._run(Windows(tuple(sorted(set(seqs)))))

    def replay_offsets(self, partition: int, start: int, span: int) -> None:
        """Let a run replay offsets, whoever owns them; it may die before it commits."""
        self._run(Ranges(OffsetRanges({tp(partition): OffsetRange(start, start + span)})), is_dying=span % 5 == 0)

    def replay_held(self, partition: int) -> None:
        """Let a run replay all that Kafka holds of a partition."""
        if bounds := self._held().get(tp(partition)):
            self._run(Ranges(OffsetRanges({tp(partition): OffsetRange(bounds.beginning, bounds.end)})))

    def replay_span(self, ago: int, minutes: int, is_interval: bool) -> None:
        """Let a run replay a time span."""
        start = self.pruned.now - timedelta(minutes=ago)
        self._run(TimeSpan(start, start + timedelta(minutes=minutes), is_interval=is_interval))

    def again(self, number: int) -> None:
        """Let a person clear an earlier run."""
        if number < self.runs:
            self._run(Live(), number=number)

    def reset(self, to: str, to_window: int | None) -> None:
        """Let a person move the watermark."""
        window_id = None if to_window is None else f"lake-{to_window:06d}"
        self._both(
            lambda world: (
                world.service.reset(world.group, to, "ada", "why", to_window=window_id, supersede=True).position
            )
        )

    def reset_to(self, partition: int, offset: int) -> None:
        """Let a person move the watermark of a partition to an offset."""
        self.reset(f'{{"orders": {{"{partition}": {offset}}}}}', None)

    def abandon(self, *, leave_gap: bool) -> None:
        """Let a person abandon the oldest open window."""
        rows = self.whole.ledger.windows("lake", states=[State.PLANNED], limit=100)
        if rows:
            window_id = rows[-1].window.id
            self._both(lambda world: world.service.abandon(window_id, "ada", "why", leave_gap=leave_gap).window.id)

    # What happens to one of them.

    def prune(self, minutes: int, killed_after: int, are_deleted: bool) -> None:
        """Prune, in transactions of two windows; be killed after some of them."""
        left = killed_after

        def die(answer: Callable[..., int], *args: Any) -> int:
            nonlocal left
            if not left:
                raise KilledError
            left -= 1
            return answer(*args)

        ledger = self.pruned.ledger
        real, before = ledger.prune, ledger.pruned("lake").first
        service = Pruning(ledger, self.kafka, lambda: self.pruned.now)
        with ExitStack() as patched:
            patched.enter_context(patch.object(prune, "FIRST_PAGE", 2))
            patched.enter_context(patch.object(prune, "LONGEST_PAGE", 2))
            patched.enter_context(patch.object(ledger, "prune", lambda *args: die(real, *args)))
            try:
                found = service.preview(self.pruned.group, timedelta(minutes=minutes), are_deleted=are_deleted)
                done = service.prune(
                    self.pruned.group, timedelta(minutes=minutes), "ada", "why", are_deleted=are_deleted
                )
                assert done == found
            except KilledError:
                event("a prune was killed")
            except KafkaOffsetsError:
                assert not self._is_planned  # there is no such group
        if self._is_planned and ledger.pruned("lake").first > before:
            event("windows were pruned")
            self._check_gone(before)

    @property
    def _is_planned(self) -> bool:
        return self.whole.ledger.load("lake").position is not None

    def _check_gone(self, before: int) -> None:
        """No window left that is open, young, or owns what Kafka holds."""
        now = self.pruned.ledger.pruned("lake").first
        bounds = self._held()
        ids = self.kafka.topic_ids(["orders"])
        for window in self._windows(self.whole):
            if before <= window.seq < now:
                assert not window.state.is_open
                if window.topic_ids == ids:
                    held = [str(p) for p, r in window.ranges.without_empty().items() if r.end > bounds[p].beginning]
                    assert not held, f"{window.id} was pruned, and Kafka holds {held}"

    # What holds.

    def check(self) -> None:
        """Both have the same windows from the first that is kept on, the same watermark, and the same next id."""
        if not self._is_planned:
            return
        before = self.pruned.ledger.pruned("lake").first
        kept = [self._facts(window) for window in self._windows(self.whole) if window.seq >= before]
        assert [self._facts(window) for window in self._windows(self.pruned)] == kept
        positions = [world.ledger.load("lake").position for world in self.worlds]
        assert positions[0] == positions[1]
        first, second = (world.ledger.frontiers(["lake"])["lake"] for world in self.worlds)
        assert (first.planned_until, first.open) == (second.planned_until, second.open)

    def _facts(self, window: Window) -> Answer:
        return (
            window.seq,
            window.lane,
            window.state,
            window.ranges,
            window.lost,
            window.planned_until,
            window.topic_ids,
        )

    def _windows(self, world: World) -> list[Window]:
        return [row.window for row in reversed(world.ledger.windows("lake", limit=10_000))]

    def _held(self) -> Any:
        return self.kafka.snapshot(["orders"], self.pruned.group.isolation_level).bounds

    def _now(self, later: timedelta) -> None:
        for world in self.worlds:
            world.now = self.pruned.now + later if world is self.pruned else self.pruned.now

    def _run(self, request: Request, *, is_dying: bool = False, number: int | None = None) -> None:
        if number is None:
            number, self.runs = self.runs, self.runs + 1
        by = claim(f"run-{number}")

        def step(world: World) -> Answer:
            try:
                asked = [planned.window for planned in world.ask(by, request)]
                for window in asked:
                    if not is_dying:
                        world.do(window, by)
            finally:
                world.die(by)
            return [self._facts(window) for window in asked]

        self._both(step)

    def _both(self, step: Callable[[World], Answer]) -> None:
        now = self.pruned.now
        first = _answer(step, self.pruned)
        if isinstance(first, KafkaOffsetsError) and "pruned" in str(first):
            event(f"{type(first).__name__}: pruned")
            assert isinstance(first, PrunedWindowError | DataLossError | IllegalStepError)
            # No Kafka lets a log begin earlier. So no one misses what is refused.
            assert self.was_restored or not isinstance(first, IllegalStepError), first
            return
        self.whole.now = now
        second = _answer(step, self.whole)
        self.whole.now = self.pruned.now
        if isinstance(first, KafkaOffsetsError):
            assert (type(first), str(first)) == (type(second), str(second))
        else:
            assert first == second


def _answer(step: Callable[[World], Answer], world: World) -> Answer:
    try:
        return step(world)
    except KafkaOffsetsError as exc:
        return exc


@contextmanager
def twins() -> Iterator[Twins]:
    """Make two ledgers in memory."""
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        both = Twins(Path(folder))
        try:
            yield both
        finally:
            both.close()


_PARTITION = st.integers(0, 2)
_SEQ = st.integers(1, 25)
_HOW = (st.sampled_from([0, 0, 0, 5]), st.sampled_from([1, 99, 99, 99]), st.booleans())
_PRUNE = st.tuples(st.just("prune"), *_HOW)
_RETIRE = st.tuples(st.just("retire"), st.sampled_from([5, 12, 99]), *_HOW)
_READ = st.tuples(st.just("read"), st.integers(1, 3), st.integers(1, 5))
_STEPS = st.one_of(
    *([_RETIRE] * 6),
    *([_READ] * 4),
    _PRUNE,
    st.tuples(st.just("live"), st.integers(1, 3)),
    st.tuples(st.just("produce"), _PARTITION, st.integers(1, 9)),
    st.tuples(st.just("expire"), _PARTITION, st.integers(1, 12)),
    st.tuples(st.just("leave_open")),
    st.tuples(st.just("replay"), _SEQ, _SEQ),
    st.tuples(st.just("replay_offsets"), _PARTITION, st.integers(0, 40), st.integers(1, 12)),
    st.tuples(st.just("replay_held"), _PARTITION),
    st.tuples(st.just("replay_span"), st.integers(1, 40), st.integers(1, 20), st.booleans()),
    st.tuples(st.just("replay_span"), st.just(600), st.just(600), st.booleans()),
    st.tuples(st.just("again"), st.integers(0, 20)),
    st.tuples(st.just("reset"), st.sampled_from(["earliest", "latest"]), st.none()),
    st.tuples(st.just("reset"), st.just(""), _SEQ),
    st.tuples(st.just("reset_to"), _PARTITION, st.integers(0, 40)),
    st.tuples(st.just("abandon")),
    st.tuples(st.just("grow")),
    st.tuples(st.just("recreate")),
    st.tuples(st.just("restore"), _PARTITION, st.integers(1, 20)),
)


@pytest.mark.slow
@settings(max_examples=min(25, settings.default.max_examples), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_STEPS, min_size=5, max_size=25))
def test_each_offset_that_kafka_holds_has_the_owner_that_it_had(steps: list[Step]) -> None:
    with twins() as both:
        both.produce(0, 9)  # below where the group starts: no one owns it
        both.read(3, 4)
        for name, *args in steps:
            if name == "abandon":
                both.abandon(leave_gap=True)
            else:
                getattr(both, name)(*args)
            both.check()
