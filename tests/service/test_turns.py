"""Whoever loses a race waits for its turn, in which only the ledger is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_kafka_offsets.core.errors import ConcurrentChangeError, LogTruncatedError, WindowBusyError
from airflow_kafka_offsets.core.plan.request import Live
from airflow_kafka_offsets.core.window import Claim
from airflow_kafka_offsets.service.windows import WindowService
from tests.core.examples import NOON, claim, ranges, tp
from tests.service.world import World
from tests.stores.memory import MemoryStore

ONE, TWO, THREE = claim("run-1"), claim("run-2"), claim("run-3")


@pytest.fixture
def busy(world: World) -> World:
    """Return a group that may have many windows open, each of at most three offsets."""
    world.configure(max_open_windows=9, max_offsets=3)
    world.kafka.produce(tp(0), 10)
    return world


def before_the_turn(world: World, monkeypatch: pytest.MonkeyPatch, *acts: Callable[[], Any], at: str = "turn") -> None:
    """Let these happen, one before each of the next turns: after the look at Kafka and Airflow that the decision relies on."""
    original, left = getattr(world.ledger, at), list(acts)

    def late(*arguments: Any) -> Any:
        if left:
            left.pop(0)()
        return original(*arguments)

    monkeypatch.setattr(world.ledger, at, late)


def plan_aside(world: World, by: Claim) -> None:
    """Let another process plan."""
    calls = list(world.kafka.calls)
    WindowService(world.ledger, world.kafka, lambda: world.now).plan(world.group, by, lambda _: False)
    world.kafka.calls[:] = calls


def test_the_loser_gets_the_next_window_and_asks_kafka_nothing_more(
    busy: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_the_turn(busy, monkeypatch, lambda: plan_aside(busy, TWO))
    assert busy.plan(ONE).window.ranges[tp(0)] == ranges({tp(0): (3, 6)})[tp(0)]
    assert busy.kafka.calls == ["snapshot", "retentions"]


def test_the_loser_asks_airflow_about_no_one_who_began_since(busy: World, monkeypatch: pytest.MonkeyPatch) -> None:
    busy.plan(THREE)
    before_the_turn(busy, monkeypatch, lambda: plan_aside(busy, TWO))
    asked: list[Claim] = []

    def is_over(by: Claim) -> bool:
        asked.append(by)
        return False

    [planned] = busy.service.plan(busy.group, ONE, is_over)
    assert planned.window.ranges[tp(0)].start == 6
    assert asked == [THREE]


def test_what_others_have_seen_since_is_not_taken_for_a_truncated_log(
    busy: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def more_arrives() -> None:
        busy.kafka.produce(tp(0), 5)
        busy.kafka.produce(tp(1), 2)
        for number in range(6):
            plan_aside(busy, claim(f"other-{number}"))

    before_the_turn(busy, monkeypatch, more_arrives)
    with pytest.raises(WindowBusyError):
        busy.plan(ONE)
    assert busy.kafka.calls == ["snapshot", "retentions"]
    assert busy.ledger.load("lake").position.offsets == {tp(0): 15, tp(1): 2}  # type: ignore[union-attr]


def test_a_partition_that_others_have_seen_since_is_looked_at(busy: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def a_partition_is_added() -> None:
        busy.kafka.add_partitions("orders", 1)
        busy.kafka.produce(tp(2), 1)
        plan_aside(busy, TWO)

    before_the_turn(busy, monkeypatch, a_partition_is_added)
    assert busy.plan(ONE).window.seq == 2
    assert busy.kafka.calls == ["snapshot", "retentions", "snapshot", "retentions"]


def test_a_loss_that_is_seen_in_the_turn_is_looked_at_again(busy: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person goes on below what retention leaves, where the topic was made again; nothing of that was in the first look."""
    busy.run(THREE)

    def made_again() -> None:
        busy.kafka.recreate("orders", 2)
        busy.kafka.produce(tp(0), 7)
        busy.service.reset(busy.group, "earliest", "ada", "made again")

    before_the_turn(busy, monkeypatch, made_again)
    assert busy.plan(ONE).window.ranges[tp(0)] == ranges({tp(0): (0, 3)})[tp(0)]
    assert busy.kafka.calls.count("snapshot") > 1


def test_a_log_that_really_ends_too_early_is_told_after_a_look(busy: World, monkeypatch: pytest.MonkeyPatch) -> None:
    busy.run(THREE)

    def truncated() -> None:
        plan_aside(busy, TWO)
        busy.kafka.truncate(tp(0), 2)

    before_the_turn(busy, monkeypatch, truncated)
    planned = busy.plan(ONE)  # by what Kafka held when it was asked
    assert planned.window.ranges[tp(0)] == ranges({tp(0): (6, 9)})[tp(0)]
    with pytest.raises(LogTruncatedError):
        busy.plan(claim("run-4"))


def test_whoever_would_adopt_a_window_that_is_committed_meanwhile_looks_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look asks Kafka for nothing new, and a commit leaves the group's version as it is."""
    world.configure(max_offsets=3)
    world.kafka.produce(tp(0), 10)
    held = world.plan(TWO).window
    before_the_turn(world, monkeypatch, lambda: world.do(held, TWO))
    [planned] = world.service.plan(world.group, ONE, lambda _: True)
    assert planned.window.ranges[tp(0)] == ranges({tp(0): (3, 6)})[tp(0)]


def test_a_cut_time_is_looked_up_once(busy: World, monkeypatch: pytest.MonkeyPatch) -> None:
    before_the_turn(busy, monkeypatch, lambda: plan_aside(busy, TWO))
    busy.plan(ONE, Live(until=NOON + timedelta(minutes=1), ends_at=NOON + timedelta(minutes=1)))
    assert busy.kafka.calls == ["snapshot", "offsets_at", "retentions"]


def test_the_offset_store_is_asked_before_the_turn_and_not_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    world = World(tmp_path, store, max_open_windows=9, max_offsets=3)
    world.kafka.produce(tp(0), 10)
    original = world.ledger.turn

    @contextmanager
    def without_a_store(group: str) -> Iterator[None]:
        with original(group), monkeypatch.context() as away:
            away.setattr(MemoryStore, "read", None)
            away.setattr(MemoryStore, "advance", None)
            yield

    monkeypatch.setattr(world.ledger, "turn", without_a_store)
    before_the_turn(world, monkeypatch, lambda: plan_aside(world, TWO))
    assert world.plan(ONE).window.seq == 2


def test_whoever_loses_its_turn_too_tries_again(busy: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a turn's transaction is ended by the database, as a victim of a deadlock."""

    def lost() -> None:
        raise ConcurrentChangeError("too late")

    before_the_turn(busy, monkeypatch, *[lost] * 5)
    assert busy.plan(ONE).window.seq == 1
    assert busy.kafka.calls == ["snapshot", "retentions"]
