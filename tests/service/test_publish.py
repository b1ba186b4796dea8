"""The offset store follows the watermark; a crash at each point in between is rolled forward (docs/design.md, Offset stores)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from itertools import permutations
from pathlib import Path

import pytest

from airflow_kafka_offsets.core.errors import (
    BadInputError,
    ConcurrentChangeError,
    StoreAnswerError,
    StoreBehindError,
    StoreDriftError,
    StoreError,
    StoreOutcomeUnknownError,
    StoreRefusedError,
    StoreUnavailableError,
)
from airflow_kafka_offsets.core.history import Act
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition
from airflow_kafka_offsets.core.plan.request import Live, TimeSpan, Windows
from airflow_kafka_offsets.core.window import Lane, State, Window
from airflow_kafka_offsets.service import freshness
from airflow_kafka_offsets.service.move import Moving, Selection
from airflow_kafka_offsets.service.sources import LedgerSource
from airflow_kafka_offsets.service.windows import WindowService
from tests.core.examples import NOON, claim, tp
from tests.service.world import World
from tests.stores.memory import MemoryStore

ONE, TWO, THREE = claim("run-1"), claim("run-2"), claim("run-3")
AWAY = StoreUnavailableError("store away")
SILENT = StoreOutcomeUnknownError("store silent while it wrote")


@pytest.fixture
def store() -> MemoryStore:
    """Return an empty store."""
    return MemoryStore()


@pytest.fixture
def world(quick_folder: Path, store: MemoryStore) -> World:
    """Return a group with an offset store, and records."""
    world = World(quick_folder, store, max_offsets=10)
    world.kafka.produce(tp(0), 35)
    return world


@pytest.fixture
def many(quick_folder: Path, store: MemoryStore) -> World:
    """Return a group with an offset store and up to three open windows."""
    world = World(quick_folder, store, max_offsets=10, max_open_windows=3)
    world.kafka.produce(tp(0), 35)
    return world


def at(hours: float) -> datetime:
    """Name a moment by its distance from noon."""
    return NOON + timedelta(hours=hours)


def stands(store: MemoryStore) -> dict[int, int]:
    """Return what the store holds, by partition."""
    return {p.partition: offset for p, offset in store.groups.get("lake", {}).items()}


def state_of(world: World, window: Window) -> State:
    """Return a window's state."""
    return world.service.ledger.window(window.id).window.state


def test_every_commit_moves_the_store(world: World, store: MemoryStore) -> None:
    world.run(ONE)
    assert stands(store) == {0: 10, 1: 0}
    world.run(TWO)
    assert stands(store) == {0: 20, 1: 0}
    assert store.windows == ["lake-000001", "lake-000002"]


def test_a_window_without_records_is_published_too(world: World, store: MemoryStore) -> None:
    for run in (ONE, TWO, THREE, claim("run-4")):
        world.run(run)
    store.groups.clear()  # as offsets expire in Kafka
    assert world.run(claim("run-5")).span == 0
    assert stands(store) == {0: 35, 1: 0}


def test_what_expired_from_the_store_is_no_first_run(world: World, store: MemoryStore) -> None:
    world.run(ONE)
    store.groups.clear()
    assert world.plan(TWO).window.ranges[tp(0)].start == 10
    world.do(world.plan(TWO).window, TWO)
    assert stands(store) == {0: 20, 1: 0}


@pytest.mark.parametrize("is_written", [False, True], ids=["before the store has it", "after the store has it"])
class TestACrashInTheMiddle:
    """The store fails between the two steps in the ledger."""

    def crash(self, world: World, store: MemoryStore, is_written: bool) -> Window:
        window = world.plan(ONE).window
        store.failure, store.fails_after_write = SILENT if is_written else AWAY, is_written
        with pytest.raises(type(store.failure)):
            world.do(window, ONE)
        assert state_of(world, window) is State.COMMITTING
        assert world.watermark == {0: 0, 1: 0}
        return window

    def test_the_same_commit_again_finishes_it(self, world: World, store: MemoryStore, is_written: bool) -> None:
        window = self.crash(world, store, is_written)
        store.failure = None
        attempt = world.ledger.attempts(window.id)[0].id
        assert world.service.commit(window.id, ONE, attempt) is True
        assert (state_of(world, window), stands(store)) == (State.COMMITTED, {0: 10, 1: 0})

    def test_the_retry_of_the_task_does_not_run_the_job_again(
        self, world: World, store: MemoryStore, is_written: bool
    ) -> None:
        window = self.crash(world, store, is_written)
        with pytest.raises(type(store.failure)):
            world.plan(ONE)
        store.failure = None
        retry = world.plan(ONE)
        assert (retry.window.id, retry.needs_job, retry.is_rerun) == (window.id, False, False)
        assert (state_of(world, window), stands(store)) == (State.COMMITTED, {0: 10, 1: 0})

    def test_the_next_run_of_anybody_finishes_it_first(
        self, world: World, store: MemoryStore, is_written: bool
    ) -> None:
        window = self.crash(world, store, is_written)
        with pytest.raises(type(store.failure)):
            world.plan(TWO)
        store.failure = None
        assert world.plan(TWO).window.ranges[tp(0)].start == 10
        assert (state_of(world, window), stands(store)) == (State.COMMITTED, {0: 10, 1: 0})

    def test_without_the_store_in_the_definition_the_ledger_goes_on(
        self, world: World, store: MemoryStore, is_written: bool
    ) -> None:
        window = self.crash(world, store, is_written)
        service = WindowService(world.ledger, world.kafka, clock=lambda: world.now)
        [planned] = service.plan(world.group, TWO, world.over.__contains__)
        assert (planned.window.seq, state_of(world, window)) == (2, State.COMMITTED)


def test_drift_is_seen_before_the_job_runs(world: World, store: MemoryStore) -> None:
    world.run(ONE)
    store.groups["lake"][tp(0)] = 7
    with pytest.raises(StoreDriftError, match=r"orders-0: found 7, expected 10"):
        world.plan(TWO)
    assert [row.window.seq for row in world.ledger.windows("lake")] == [1]
    assert stands(store) == {0: 7, 1: 0}


def test_a_group_with_members_is_refused_before_its_job_runs(world: World, store: MemoryStore) -> None:
    world.run(ONE)
    store.members.add("lake")
    for _ in range(2):
        with pytest.raises(StoreRefusedError, match="has members"):
            world.plan(TWO)
    assert len(world.ledger.windows("lake")) == 1
    world.die(TWO)
    assert world.plan(THREE, Windows((1,))).is_rerun, "its commit moves no store"
    world.die(THREE)
    store.members.clear()
    left = world.plan(TWO).window
    world.die(TWO)
    store.members.add("lake")
    with pytest.raises(StoreRefusedError, match="has members"):
        world.plan(claim("adopts"))
    assert world.ledger.window(left.id).holder == TWO


def verdict_of(world: World) -> tuple[str | None, str]:
    """Look at the group, with a ledger and a Kafka, and without its store."""
    lag = freshness.look([world.group], world.ledger, lambda _: world.kafka, world.now)["lake"]
    return lag.verdict, lag.reason


@pytest.mark.parametrize("cause", ["drift at planning", "drift in a commit", "members"])
@pytest.mark.parametrize("mend", ["a run", "an act"])
def test_a_group_whose_store_refuses_is_stalled_until_a_run_or_a_person_mends_it(
    world: World, store: MemoryStore, cause: str, mend: str
) -> None:
    world.configure()
    window = world.run(ONE)
    stood = dict(store.groups["lake"])
    assert verdict_of(world)[0] == "OK"
    if cause == "drift in a commit":
        window = world.plan(TWO).window
    if cause == "members":
        store.members.add("lake")
    else:
        store.groups["lake"] = {tp(0): 7}
    with pytest.raises(StoreError):
        world.do(window, TWO) if cause == "drift in a commit" else world.plan(TWO)
    verdict, reason = verdict_of(world)
    assert verdict == "STALLED"
    assert reason.startswith("No run gets on: memory://")
    what = "group lake has members" if cause == "members" else "orders-0: found 7, expected 35"
    assert reason.endswith(what), "what to do stands in the error itself"
    assert world.ledger.load("lake").refused is not None
    store.members.clear()
    store.groups["lake"] = stood
    if mend == "an act":
        world.ledger.record("lake", Act("copy", "ada", "mended", world.now))
    else:
        world.die(TWO)
        world.plan(THREE)
    assert verdict_of(world)[0] == "OK"


def test_a_group_that_drops_a_store_that_refused_is_not_stalled(world: World, store: MemoryStore) -> None:
    world.run(ONE)
    store.groups["lake"] = {tp(0): 7}
    with pytest.raises(StoreDriftError):
        world.plan(TWO)
    service = WindowService(world.ledger, world.kafka, clock=lambda: world.now)
    service.plan(world.group, TWO, world.over.__contains__)
    assert world.ledger.load("lake").refused is None


def test_a_store_that_is_away_makes_no_verdict(world: World, store: MemoryStore) -> None:
    world.configure()
    world.run(ONE)
    store.failure = AWAY
    with pytest.raises(StoreUnavailableError):
        world.plan(TWO)
    assert verdict_of(world)[0] == "OK", "a retry may find it back"


def test_while_windows_are_open_drift_is_seen_by_the_commit_that_would_move_the_store(
    many: World, store: MemoryStore
) -> None:
    many.run(ONE)
    second = many.plan(TWO).window
    store.groups["lake"][tp(0)] = 7
    third = many.plan(THREE).window
    assert (second.ranges[tp(0)].start, third.ranges[tp(0)].start) == (10, 20)
    many.do(third, THREE)  # it leaves the store to the older one
    with pytest.raises(StoreDriftError, match=r"orders-0: found 7, expected 10"):
        many.do(second, TWO)
    assert (state_of(many, second), stands(store)) == (State.COMMITTING, {0: 7, 1: 0})
    assert many.watermark == {0: 10, 1: 0}


def test_drift_while_the_job_runs_leaves_the_window_committing(world: World, store: MemoryStore) -> None:
    window = world.plan(ONE).window
    store.groups["lake"] = {tp(0): 3}
    with pytest.raises(
        StoreDriftError, match=r"orders-0: found 3, expected 0 \(the old offset\) or 10 \(the new one\)"
    ):
        world.do(window, ONE)
    assert (state_of(world, window), stands(store)) == (State.COMMITTING, {0: 3})
    store.groups["lake"][tp(0)] = 0  # a person puts it right
    assert world.plan(ONE).needs_job is False
    assert (state_of(world, window), stands(store)) == (State.COMMITTED, {0: 10, 1: 0})


def test_what_the_store_holds_of_a_partition_that_is_new_to_the_group_does_not_count(
    world: World, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    world.run(ONE)
    world.kafka.create("clicks", 1)
    world.kafka.produce(tp(0, "clicks"), 9)
    world.kafka.add_partitions("orders")
    store.groups["lake"] |= {tp(0, "clicks"): 5, tp(2): 40}
    world.configure(topics=["orders", "clicks"])
    window = world.plan(TWO).window
    assert "partitions that are new to the group, clicks-0: 5; orders-2: 40" in caplog.text
    assert window.ranges.starts == {tp(0, "clicks"): 0, tp(0): 10, tp(1): 0, tp(2): 0}
    world.do(window, TWO)
    assert store.groups["lake"] == {tp(0, "clicks"): 9, tp(0): 35, tp(1): 0, tp(2): 0}


@pytest.mark.parametrize("is_committing", [False, True])
def test_nor_does_it_count_while_windows_are_open(many: World, store: MemoryStore, is_committing: bool) -> None:
    """The other partitions stand wherever the commits of these windows are."""
    first = many.plan(ONE).window
    if is_committing:
        store.failure = AWAY
        with pytest.raises(StoreUnavailableError):
            many.do(first, ONE)
        store.failure = None
    many.kafka.add_partitions("orders")
    store.groups["lake"] = {tp(2): 40}
    second = many.plan(TWO).window
    assert stands(store)[2] == 0
    many.do(second, TWO)
    many.do(first, ONE)
    assert stands(store) == {0: 20, 1: 0, 2: 0}


class PlansMeanwhile(MemoryStore):
    """A store during whose next read something else happens."""

    event: Callable[[], object] | None = None

    def read(self, group: str, topics: Sequence[str]) -> dict[TopicPartition, int]:
        event, self.event = self.event, None
        if event:
            event()
        return super().read(group, topics)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_run_that_plans_and_commits_at_the_same_moment_is_no_drift(quick_folder: Path, is_first: bool) -> None:
    store = PlansMeanwhile()
    world = World(quick_folder, store, max_offsets=10)
    world.kafka.produce(tp(0), 35)
    if not is_first:
        world.run(claim("run-0"))
    store.event = lambda: world.run(TWO)
    window = world.plan(ONE).window
    assert window.ranges[tp(0)].start == (10 if is_first else 20)


def test_a_run_that_commits_a_new_partition_at_the_same_moment_is_not_taken_back(quick_folder: Path) -> None:
    store = PlansMeanwhile()
    world = World(quick_folder, store)
    world.run(claim("run-0"))
    world.kafka.add_partitions("orders")
    world.kafka.produce(tp(2), 9)
    store.event = lambda: world.run(TWO)
    assert world.plan(ONE).window.ranges[tp(2)].start == 9
    assert stands(store) == {0: 0, 1: 0, 2: 9}


def test_an_entry_of_nobody_does_not_hold_up_two_windows_that_wait(many: World, store: MemoryStore) -> None:
    first, second = (p.window for p in many.ask(ONE, Live(at_most=2)))
    store.groups["lake"] = {tp(7): 99}
    store.failure, store.fails_after_write = SILENT, True
    with pytest.raises(StoreOutcomeUnknownError):
        many.do(first, ONE)
    store.failure = None
    many.do(second, ONE)
    assert store.groups["lake"] == {tp(0): 20, tp(1): 0, tp(7): 99}


def test_a_store_that_wrote_only_a_part_is_finished_with_two_windows_too(many: World, store: MemoryStore) -> None:
    many.kafka.produce(tp(1), 35)
    first, second = (p.window for p in many.ask(ONE, Live(at_most=2)))
    store.failure, store.fails_after_write = SILENT, True
    with pytest.raises(StoreOutcomeUnknownError):
        many.do(first, ONE)
    store.failure = None
    store.groups["lake"][tp(0)] = second.ranges[tp(0)].end  # as plain commits leave it that die in the middle
    many.do(second, ONE)
    assert store.groups["lake"] == second.ranges.ends


@pytest.mark.parametrize("failure", [AWAY, StoreRefusedError("wrong password")], ids=["gives no answer", "says no"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_store_that_gives_no_answer_or_says_no_is_seen_before_anything_is_written(
    world: World, store: MemoryStore, is_first: bool, failure: Exception
) -> None:
    if not is_first:
        world.run(ONE)

    def written() -> tuple[object, ...]:
        return world.ledger.groups(), world.ledger.load("lake", TWO), world.ledger.windows("lake"), dict(store.groups)

    before = written()
    store.failure = failure
    with pytest.raises(type(failure), match=str(failure)):
        world.plan(TWO)
    assert written() == before
    store.failure = None
    assert world.run(TWO).seq == (1 if is_first else 2)


def test_a_group_begins_where_its_store_stands(world: World, store: MemoryStore) -> None:
    store.groups["lake"] = {tp(0): 12, tp(1): 0}
    world.configure(starting_offsets="committed", max_offsets=10)
    assert world.run(ONE).ranges.starts == {tp(0): 12, tp(1): 0}
    assert stands(store) == {0: 22, 1: 0}


def test_a_group_does_not_begin_elsewhere_than_its_store_stands(world: World, store: MemoryStore) -> None:
    store.groups["lake"] = {tp(0): 12}
    with pytest.raises(BadInputError, match=r"orders-0: 12, starting_offsets: 0.*starting_offsets='committed'"):
        world.plan(ONE)
    assert world.ledger.windows("lake") == []


def test_a_store_that_stands_outside_of_the_log_says_how_to_begin_anew(world: World, store: MemoryStore) -> None:
    store.groups["lake"] = {tp(0): 500, tp(1): 0}
    world.configure(starting_offsets="committed")
    with pytest.raises(BadInputError, match=r"orders-0: 500 \(beginning offset .*give the group another name"):
        world.plan(ONE)


def test_records_that_were_lost_lie_on_the_way(quick_folder: Path, store: MemoryStore) -> None:
    world = World(quick_folder, store, on_data_loss="skip")
    world.kafka.produce(tp(0), 20)
    world.run(ONE)
    world.kafka.produce(tp(0), 10)
    world.kafka.expire(tp(0), 25)
    window = world.run(TWO)
    assert (window.lost[tp(0)].start, window.ranges[tp(0)].start) == (20, 25)
    assert stands(store) == {0: 30, 1: 0}


def test_a_backfill_window_moves_no_store(quick_folder: Path, store: MemoryStore) -> None:
    world = World(quick_folder, store, starting_offsets="latest")
    world.kafka.produce(tp(0), 20, at=at(-4))
    world.run(ONE)
    before = dict(stands(store))
    store.failure = AWAY  # no one asks it
    [planned] = world.ask(TWO, TimeSpan(at(-5), at(-3)))
    world.do(planned.window, TWO)
    assert state_of(world, planned.window) is State.COMMITTED
    assert stands(store) == before == {0: 20, 1: 0}


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_windows_committed_in_any_order_move_the_store_with_the_watermark(
    many: World, store: MemoryStore, order: tuple[int, ...]
) -> None:
    windows = [p.window for p in many.ask(ONE, Live(at_most=3))]
    done: set[int] = set()
    for index in order:
        many.do(windows[index], ONE)
        done.add(index)
        prefix = next((i for i in range(3) if i not in done), 3)
        assert many.watermark == {0: 10 * prefix, 1: 0}
        assert stands(store) == ({0: 10 * prefix, 1: 0} if prefix else {})


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_crashes_in_any_order_are_rolled_forward(
    many: World, store: MemoryStore, order: tuple[int, ...], is_written: bool
) -> None:
    windows = [p.window for p in many.ask(ONE, Live(at_most=3))]
    store.fails_after_write = is_written
    for index in order:
        store.failure = SILENT if is_written else AWAY
        try:
            many.do(windows[index], ONE)
        except StoreAnswerError:
            assert state_of(many, windows[index]) is State.COMMITTING
        store.failure = None
    many.run(TWO)
    assert {state_of(many, window) for window in windows} == {State.COMMITTED}
    assert stands(store) == {0: 35, 1: 0}


class Meanwhile(MemoryStore):
    """A store during whose advance something else happens, once."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list = []

    def advance(self, *args, **kwargs) -> None:
        if self.events:
            self.events.pop()()
        super().advance(*args, **kwargs)


def test_the_next_window_is_published_by_another_commit_at_the_same_moment(quick_folder: Path) -> None:
    store = Meanwhile()
    world = World(quick_folder, store, max_offsets=10, max_open_windows=3)
    world.kafka.produce(tp(0), 35)
    first, second, third = (p.window for p in world.ask(ONE, Live(at_most=3)))
    attempts = {w.id: world.work(w, ONE) for w in (first, second, third)}
    # While the first is under way to the store, the second is committed, and takes the first along.
    store.events = [lambda: world.service.commit(second.id, ONE, attempts[second.id])]
    world.service.commit(first.id, ONE, attempts[first.id])
    assert stands(store) == {0: 20, 1: 0}
    assert world.watermark == {0: 20, 1: 0}
    # The same between the look of the third, out of order, and its end.
    world.service.commit(third.id, ONE, attempts[third.id])
    assert stands(store) == {0: 30, 1: 0}


def test_a_commit_that_died_after_it_had_published_this_window_too_is_no_drift(quick_folder: Path) -> None:
    store = Meanwhile()
    world = World(quick_folder, store, max_offsets=10, max_open_windows=3)
    world.kafka.produce(tp(0), 35)
    first, second = (p.window for p in world.ask(ONE, Live(at_most=2)))
    attempts = {w.id: world.work(w, ONE) for w in (first, second)}

    def die_after_the_write() -> None:
        store.failure, store.fails_after_write = SILENT, True
        with pytest.raises(StoreOutcomeUnknownError):
            world.service.commit(second.id, ONE, attempts[second.id])
        store.failure, store.fails_after_write = None, False

    store.events = [die_after_the_write]
    world.service.commit(first.id, ONE, attempts[first.id])
    assert stands(store) == world.watermark == {0: 20, 1: 0}


def test_a_window_committed_out_of_order_is_published_by_whoever_closes_the_gap(quick_folder: Path) -> None:
    store = Meanwhile()
    world = World(quick_folder, store, max_offsets=10, max_open_windows=3)
    world.kafka.produce(tp(0), 35)
    first, second, third = (p.window for p in world.ask(ONE, Live(at_most=3)))
    attempts = {w.id: world.work(w, ONE) for w in (first, second, third)}

    def commit_third_then_second() -> None:
        world.service.commit(third.id, ONE, attempts[third.id])
        world.service.commit(second.id, ONE, attempts[second.id])

    store.events = [commit_third_then_second]
    world.service.commit(first.id, ONE, attempts[first.id])
    assert stands(store) == world.watermark == {0: 30, 1: 0}
    assert {state_of(world, w) for w in (first, second, third)} == {State.COMMITTED}


@pytest.mark.slow
def test_writers_that_never_stop_are_told_of(world: World, store: MemoryStore) -> None:
    window = world.plan(ONE).window
    store.failure = ConcurrentChangeError("busy")
    with pytest.raises(ConcurrentChangeError, match="that happened 60 times"):
        world.do(window, ONE)
    assert state_of(world, window) is State.COMMITTING


class TestReset:
    """A reset moves the store as well."""

    def test_forwards_and_backwards(self, world: World, store: MemoryStore) -> None:
        world.run(ONE)
        world.service.reset(world.group, "latest", "ada", "skip")
        assert stands(store) == {0: 35, 1: 0}
        world.service.reset(world.group, "earliest", "ada", "again", supersede=True)
        assert stands(store) == {0: 0, 1: 0}

    def test_a_store_that_drifted_refuses_before_anything_moves(self, world: World, store: MemoryStore) -> None:
        world.run(ONE)
        store.groups["lake"][tp(0)] = 3
        with pytest.raises(StoreDriftError):
            world.service.reset(world.group, "latest", "ada", "skip")
        assert world.watermark == {0: 10, 1: 0}
        assert world.ledger.acts("lake") == []

    @pytest.mark.parametrize("failure", [AWAY, ConcurrentChangeError("others wrote")], ids=["away", "busy"])
    def test_a_store_that_does_not_follow_is_told_with_the_way_out(self, world: World, failure: Exception) -> None:
        assert self._left_behind(world, FailsWhenAdvanced(failure)).__cause__ is failure

    def test_a_drift_that_the_store_does_not_explain_is_told_with_the_way_out(self, world: World) -> None:
        assert "orders-0: found 40, expected 10" in str(self._left_behind(world, DriftsThenAway(AWAY)))

    def _left_behind(self, world: World, store: MemoryStore) -> StoreBehindError:
        """Reset a group whose store does not follow; return the error, which has the command that moves it."""
        world.run(ONE)
        store.groups = {"lake": {tp(0): 10, tp(1): 0}}
        service = WindowService(world.ledger, world.kafka, clock=lambda: world.now, store=store)
        with pytest.raises(StoreBehindError, match="kafka-offsets copy lake --from ledger --to 'memory://'") as caught:
            service.reset(world.group, "latest", "ada", "skip")
        assert world.watermark == {0: 35, 1: 0}
        return caught.value

    def test_partitions_that_vanish_with_their_topic_stay_in_the_store(self, world: World, store: MemoryStore) -> None:
        world.run(ONE)
        world.kafka.recreate("orders", 1)
        world.kafka.produce(tp(0), 3)
        world.service.reset(world.group, "earliest", "ada", "a smaller topic")
        assert stands(store) == {0: 0, 1: 0}

    def test_a_topic_that_was_recreated(self, world: World, store: MemoryStore) -> None:
        world.run(ONE)
        world.kafka.recreate("orders")
        world.kafka.produce(tp(0), 3)
        world.service.reset(world.group, "earliest", "ada", "another topic")
        assert stands(store) == {0: 0, 1: 0}
        world.run(TWO)
        assert stands(store) == {0: 3, 1: 0}


class FailsWhenAdvanced(MemoryStore):
    """It can still be read."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def advance(self, *args, **kwargs) -> None:
        raise self.error


class DriftsThenAway(FailsWhenAdvanced):
    """Another writer moves it, and then it goes away."""

    def advance(self, *args, **kwargs) -> None:
        self.failure = self.error
        raise StoreDriftError(self.name, "lake", {tp(0): (10, 35, 40)})

    def window_ids(self, group: str, topics: Sequence[str]) -> Collection[str]:
        self._fail()
        return super().window_ids(group, topics)


# Exactly one of competing commits wins, although each takes three steps.


class Interrupted(MemoryStore):
    """Lets something else happen in the middle of the first commit, before the store is read, before it is advanced or after."""

    def __init__(self, step: str) -> None:
        super().__init__()
        self.step = step
        self.meanwhile: Callable[[], object] | None = None

    def advance(self, group: str, before: Offsets, after: Offsets, window_id: str = "") -> None:
        if self.step == "before":
            self._interrupt()
        super().advance(group, before, after, window_id)
        if self.step == "after":
            self._interrupt()

    def _interrupt(self) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()


STEPS = pytest.mark.parametrize("step", ["before", "after"])


def interrupted(folder: Path, step: str) -> tuple[World, Interrupted, Window, int | None]:
    """Return a window whose job has succeeded, and whose first commit will be interrupted."""
    store = Interrupted(step)
    world = World(folder, store)
    world.kafka.produce(tp(0), 10)
    window = world.plan(ONE).window
    return world, store, window, world.work(window, ONE)


@STEPS
def test_of_two_commits_of_one_window_exactly_one_wins(quick_folder: Path, step: str) -> None:
    world, store, window, attempt = interrupted(quick_folder, step)
    answers: list[bool] = []
    store.meanwhile = lambda: answers.append(world.service.commit(window.id, ONE, attempt))
    answers.append(world.service.commit(window.id, ONE, attempt))
    assert answers == [True, False]
    assert world.service.commit(window.id, ONE, attempt) is False
    assert (state_of(world, window), stands(store)) == (State.COMMITTED, {0: 10, 1: 0})


@STEPS
def test_a_commit_that_a_plan_has_finished_does_not_win_a_second_time(quick_folder: Path, step: str) -> None:
    world, store, window, attempt = interrupted(quick_folder, step)
    store.meanwhile = lambda: world.plan(TWO)
    assert world.service.commit(window.id, ONE, attempt) is False
    assert (state_of(world, window), stands(store)) == (State.COMMITTED, {0: 10, 1: 0})


def test_a_backfill_window_beside_a_store_is_committed_once(quick_folder: Path, store: MemoryStore) -> None:
    world = World(quick_folder, store, starting_offsets="latest")
    world.kafka.produce(tp(0), 20, at=at(-4))
    world.run(ONE)
    [planned] = world.ask(TWO, TimeSpan(at(-5), at(-3)))
    attempt = world.work(planned.window, TWO)
    answers = [world.service.commit(planned.window.id, TWO, attempt) for _ in range(2)]
    assert (planned.window.lane, answers) == (Lane.BACKFILL, [True, False])


@pytest.mark.parametrize("given_up", [0, 1])
def test_the_store_follows_the_watermark_over_the_gap_of_an_abandoned_window(
    many: World, store: MemoryStore, given_up: int
) -> None:
    windows = [p.window for p in many.ask(ONE, Live(at_most=3))]
    many.do(windows[2], ONE)
    many.do(windows[1 - given_up], ONE)
    assert stands(store) == ({0: 10, 1: 0} if given_up else {})
    many.service.abandon(windows[given_up].id, "ada", "poison", leave_gap=True)
    assert stands(store) == many.watermark == {0: 30, 1: 0}
    assert many.run(TWO).ranges[tp(0)].start == 30
    assert stands(store) == {0: 35, 1: 0}


def test_an_older_open_window_holds_the_store_back_whatever_gap_is_left_behind_it(
    many: World, store: MemoryStore
) -> None:
    first, second, third = (p.window for p in many.ask(ONE, Live(at_most=3)))
    many.do(third, ONE)
    many.service.abandon(second.id, "ada", "poison", leave_gap=True)
    assert stands(store) == {}
    many.do(first, ONE)
    assert stands(store) == many.watermark == {0: 30, 1: 0}


def test_the_store_follows_over_a_gap_behind_the_window_that_is_committed_next(many: World, store: MemoryStore) -> None:
    first, second, third = (p.window for p in many.ask(ONE, Live(at_most=3)))
    many.service.abandon(second.id, "ada", "poison", leave_gap=True)
    many.do(first, ONE)
    assert stands(store) == many.watermark == {0: 20, 1: 0}
    many.do(third, ONE)
    assert stands(store) == many.watermark == {0: 30, 1: 0}


def test_the_store_follows_over_gaps_up_to_where_the_next_window_will_start(many: World, store: MemoryStore) -> None:
    first, second, third = (p.window for p in many.ask(ONE, Live(at_most=3)))
    many.service.abandon(second.id, "ada", "poison", leave_gap=True)
    many.service.abandon(third.id, "ada", "poison")
    many.do(first, ONE)
    assert stands(store) == many.watermark == {0: 20, 1: 0}
    many.die(ONE)
    assert many.run(TWO).ranges[tp(0)].start == 20


def test_the_store_follows_when_an_empty_window_held_the_watermark(many: World, store: MemoryStore) -> None:
    for number in range(4):
        many.run(claim(f"before-{number}"))
    empty = many.plan(ONE).window
    assert empty.span == 0
    many.kafka.produce(tp(0), 5)
    many.run(TWO)
    many.service.abandon(empty.id, "ada", "died")
    assert stands(store) == many.watermark == {0: 40, 1: 0}


def test_a_store_that_does_not_follow_over_a_gap_is_told_and_put_right_as_the_error_says(
    many: World, store: MemoryStore
) -> None:
    first, second = (p.window for p in many.ask(ONE, Live(at_most=2)))
    many.do(second, ONE)
    store.failure = AWAY
    with pytest.raises(StoreBehindError, match="copy lake --from ledger"):
        many.service.abandon(first.id, "ada", "poison", leave_gap=True)
    store.failure = None
    assert state_of(many, first) is State.ABANDONED
    assert many.watermark == {0: 20, 1: 0}


def test_the_store_follows_what_a_person_commits(world: World, store: MemoryStore) -> None:
    window = world.plan(ONE).window
    world.service.commit_by_hand(window.id, "ada", "its job read all of it")
    assert stands(store) == world.watermark == {0: 10, 1: 0}
    assert state_of(world, window) is State.COMMITTED


def abandon_during_a_look(world: World, window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a person abandon a window after the group is loaded, and before its windows are read."""
    real = world.ledger.windows

    def after_the_abandon(*args, **kwargs):
        monkeypatch.setattr(world.ledger, "windows", real)
        world.service.abandon(window.id, "ada", "why")
        return real(*args, **kwargs)

    monkeypatch.setattr(world.ledger, "windows", after_the_abandon)


def test_a_window_that_is_abandoned_while_a_commit_looks_is_not_in_the_store(
    many: World, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = many.plan(ONE).window
    second = many.plan(TWO).window
    attempt = many.work(first, ONE)
    abandon_during_a_look(many, second, monkeypatch)
    many.service.commit(first.id, ONE, attempt)
    assert stands(store) == many.watermark == {0: 10, 1: 0}


def test_a_window_that_is_abandoned_while_a_copy_looks_is_not_passed(
    many: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = many.plan(ONE).window
    abandon_during_a_look(many, window, monkeypatch)
    assert LedgerSource(many.ledger, "lake").read().offsets == {tp(0): 0, tp(1): 0}


def test_a_copy_puts_a_partition_of_no_window_back_to_where_it_starts(many: World, store: MemoryStore) -> None:
    first = many.plan(ONE).window
    many.kafka.add_partitions("orders")
    many.kafka.produce(tp(2), 5)
    second = many.plan(TWO).window
    assert tp(2) in second.ranges
    many.service.abandon(second.id, "ada", "why")
    many.crash_in_commit(first)
    many.die(ONE)
    store.groups["lake"] = {tp(2): 2}
    with pytest.raises(StoreDriftError, match="orders-2"):
        many.run(THREE)
    moving, source = Moving(many.ledger), LedgerSource(many.ledger, "lake")
    copy = moving.plan_copy(many.ledger.group("lake"), Selection(source, "lake"), store, lambda _: many.kafka)
    moving.carry_out_copy(copy, store, "ada", "why")
    assert stands(store) == {0: 0, 1: 0, 2: 0}
    many.run(THREE)
    assert state_of(many, first) is State.COMMITTED
    assert stands(store) == many.watermark
