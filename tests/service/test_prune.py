"""A prune through the service: what leaves, what stays and why, and what is said of it later."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import pytest

from airflow_kafka_offsets.core.conditions import WindowCommitted
from airflow_kafka_offsets.core.errors import (
    ConcurrentChangeError,
    DataLossError,
    IllegalStepError,
    KafkaUnavailableError,
    PrunedWindowError,
    UnknownWindowError,
)
from airflow_kafka_offsets.core.history import KEPT_FROM
from airflow_kafka_offsets.core.plan.ownership import Owner
from airflow_kafka_offsets.core.plan.request import Live, Ranges, TimeSpan, Windows
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.window import Claim
from airflow_kafka_offsets.service import prune, watch
from airflow_kafka_offsets.service.prune import Prune, Pruning
from tests.core.examples import claim, group, tp
from tests.service.world import World

DAY = timedelta(days=1)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Five windows of ten offsets in each of two partitions, one a day; Kafka has lost what the first three read."""
    world = World(tmp_path)
    for day in range(5):
        _read(world, day)
    world.now += 10 * DAY
    for partition in (0, 1):
        world.kafka.expire(tp(partition), 30)
    yield world
    world.close()


def _read(world: World, day: int) -> None:
    world.now += DAY
    for partition in (0, 1):
        world.kafka.produce(tp(partition), 10, at=world.now)
    world.run(claim(f"run-{day}"))


def _pruning(world: World) -> Pruning:
    return Pruning(world.ledger, world.kafka, lambda: world.now)


def _prune(world: World, age: timedelta = DAY, **more: bool) -> Prune:
    service = _pruning(world)
    found = service.preview(world.group, age, **more)
    assert service.prune(world.group, age, "ada", "why", **more) == found
    return found


def _left(world: World) -> list[int]:
    return [row.window.seq for row in reversed(world.ledger.windows("lake"))]


def test_what_kafka_no_longer_holds_leaves(world: World) -> None:
    before = world.ledger.load("lake")
    found = _prune(world)
    assert (found.windows, found.attempts, found.first, found.last, found.kept) == (3, 3, 1, 3, 4)
    assert found.why == (
        "Kafka may still hold some of its offsets: orders-0 offsets [30, 40) (beginning offset 30), orders-1 offsets [30, 40) "
        "(beginning offset 30)"
    )
    assert _left(world) == [4, 5]
    assert world.ledger.load("lake") == before
    [act] = world.ledger.acts("lake")
    assert (act.kind, act.who, act.why, act.at) == ("prune", "ada", "why", world.now)
    assert act.details == {
        "older_than_seconds": 86_400,
        "windows": 3,
        "attempts": 3,
        "lost": 0,
        "first": "lake-000001",
        "last": "lake-000003",
        KEPT_FROM: 4,
    }


def test_a_preview_writes_nothing(world: World) -> None:
    assert _pruning(world).preview(world.group, DAY).windows == 3
    assert _left(world) == [1, 2, 3, 4, 5]
    assert world.ledger.acts("lake") == []


def test_nothing_to_prune_is_no_act(world: World) -> None:
    found = _prune(world, 100 * DAY)
    assert (found.windows, found.kept) == (0, 1)
    assert found.why is not None
    assert found.why.startswith("it was used at ")
    assert world.ledger.acts("lake") == []


def test_a_window_that_was_replayed_lately_stays(world: World) -> None:
    for partition in (0, 1):
        world.kafka.restore(tp(partition), 0)
    world.run_all(claim("replay"), Windows((2,)))
    for partition in (0, 1):
        world.kafka.expire(tp(partition), 30)
    assert _prune(world).last == 1


def test_an_open_window_keeps_all_after_it(world: World) -> None:
    world.kafka.produce(tp(0), 5, at=world.now)
    world.service.reset(world.group, "latest", "ada", "why")
    gap = Ranges(OffsetRanges({tp(0): OffsetRange(50, 55)}))
    assert world.plan(claim("backfill"), gap).window.seq == 6
    _read(world, 7)
    world.now += 9 * DAY
    for partition in (0, 1):
        world.kafka.expire(tp(partition), 90)
    found = _prune(world)
    assert (found.last, found.kept) == (5, 6)
    assert found.why == "it is planned (docs/howto/prune.md#it-stops-too-early)"


def test_the_last_commit_stays_below_an_open_window(world: World) -> None:
    world.kafka.produce(tp(0), 5, at=world.now)
    world.plan(claim("open"))
    world.now += 9 * DAY
    for partition in (0, 1):
        world.kafka.expire(tp(partition), 90)
    assert _prune(world).kept == 5
    last = world.ledger.overviews(["lake"])["lake"].last_committed
    assert last is not None
    assert last.seq == 5


def test_the_window_of_the_watermark_stays_although_kafka_has_lost_all(world: World) -> None:
    for partition in (0, 1):
        world.kafka.expire(tp(partition), 50)
    assert _prune(world).kept == 5
    assert world.watermark == {0: 50, 1: 50}
    _read(world, 6)
    assert _left(world) == [5, 6]


def test_a_topic_that_kafka_does_not_have_needs_a_word(world: World) -> None:
    world.kafka.delete("orders")
    found = _prune(world)
    assert (found.windows, found.kept) == (0, 1)
    assert found.why == (
        "Kafka has no topic orders with the id id-1: make sure that this is the right Kafka, and if the topic was deleted, add "
        "--deleted-topics"
    )
    assert _prune(world, are_deleted=True).windows == 4


def test_the_windows_of_a_topic_that_was_recreated_leave(world: World) -> None:
    world.kafka.recreate("orders", 2)
    assert _prune(world).windows == 0, "no one has said yet that the group reads the new topic"
    world.service.reset(world.group, "earliest", "ada", "why", supersede=True)
    _read(world, 6)
    world.now += 9 * DAY
    assert (_prune(world).last, _left(world)) == (5, [6])


def test_kafka_does_not_answer(world: World) -> None:
    def fail(*_: object) -> None:
        raise KafkaUnavailableError("no answer")

    with patch.object(world.kafka, "snapshot", fail), pytest.raises(KafkaUnavailableError):
        _prune(world)
    assert _left(world) == [1, 2, 3, 4, 5]


def test_a_prune_that_was_killed_is_continued(world: World) -> None:
    real = world.ledger.prune
    left = [True, False]

    def die(*args: object) -> int:
        if not left.pop(0):
            raise KeyboardInterrupt
        return real(*args)  # type: ignore[arg-type]

    with (
        patch.object(prune, "FIRST_PAGE", 2),
        patch.object(world.ledger, "prune", die),
        pytest.raises(KeyboardInterrupt),
    ):
        _pruning(world).prune(world.group, DAY, "ada", "why")
    assert _left(world) == [3, 4, 5]
    assert [act.details["windows"] for act in world.ledger.acts("lake")] == [2]
    assert _prune(world).windows == 1
    assert _left(world) == [4, 5]
    assert [act.details[KEPT_FROM] for act in world.ledger.acts("lake")] == [3, 4]


def test_who_was_faster_is_no_error(world: World) -> None:
    real = world.ledger.prune
    calls = 0

    def lose(*args: object) -> int:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise ConcurrentChangeError("someone was faster")
        return real(*args)  # type: ignore[arg-type]

    with patch.object(world.ledger, "prune", lose):
        assert _pruning(world).prune(world.group, DAY, "ada", "why").windows == 3
    assert len(world.ledger.acts("lake")) == 1


def test_the_last_commit_stays_although_a_reset_comes_between_two_pages(world: World) -> None:
    real = world.ledger.prune
    pages = 0

    def reset_after_the_first_page(*args: object) -> int:
        nonlocal pages
        pages += 1
        if pages == 2:
            world.service.reset(world.group, '{"orders": {"0": 30, "1": 30}}', "ada", "bad rows", supersede=True)
        return real(*args)  # type: ignore[arg-type]

    with patch.object(prune, "FIRST_PAGE", 2), patch.object(world.ledger, "prune", reset_after_the_first_page):
        found = _pruning(world).prune(world.group, DAY, "ada", "why")
    assert (found.windows, found.kept) == (2, 3)
    assert found.why == "the watermark or the last commit rests on it"
    assert _left(world) == [3, 4, 5]
    assert [act.kind for act in world.ledger.acts("lake")] == ["prune", "reset"]
    last = world.ledger.overviews(["lake"])["lake"].last_committed
    assert last is not None
    assert last.seq == 3


# What is refused after a prune.


def test_a_replay_of_a_window_that_is_gone_says_so(world: World) -> None:
    _prune(world)
    with pytest.raises(PrunedWindowError) as raised:
        world.plan(claim("replay"), Windows((2, 4)))
    assert str(raised.value) == (
        "Window lake-000002 was pruned from the ledger: Kafka no longer held these offsets. "
        "The ledger has the windows from lake-000004 on"
    )
    with pytest.raises(UnknownWindowError, match="has no window lake-000009"):
        world.plan(claim("replay"), Windows((9,)))
    assert [p.window.seq for p in world.ask(claim("replay"), Windows((4, 5)))] == [4, 5]


def test_a_run_whose_window_is_gone_gets_no_other_one(world: World) -> None:
    _prune(world)
    with pytest.raises(PrunedWindowError, match="Trigger a new run instead of clearing this one"):
        world.ask(claim("run-1"))
    assert _left(world) == [4, 5]
    assert [p.window.seq for p in world.ask(claim("run-4"))] == [5]


@pytest.mark.parametrize("load", ["load", "load_2"])
def test_a_run_whose_window_is_gone_gets_no_other_one_under_another_name(world: World, load: str) -> None:
    _prune(world)
    if load == "load":
        world.group = group("lake2")
    else:
        world.service.take_over("lake", Owner("dag", load), "ada", "renamed")
    with pytest.raises(PrunedWindowError, match="Trigger a new run instead of clearing this one"):
        world.ask(claim("run-1", load))
    assert world.ledger.windows("lake2") == []
    assert _left(world) == [4, 5]
    assert len(world.ask(claim("run-9", load))) == 1, "a new run is welcome"


def test_a_window_that_was_given_up_and_is_gone_is_in_nobodys_way(world: World) -> None:
    """A retry asks again after its window was abandoned, and has another one."""
    by = claim("busy")
    world.kafka.produce(tp(0), 10)
    world.service.abandon(world.plan(by).window.id, "ada", "why")
    world.now += 3 * DAY
    window = world.plan(by).window
    assert window.seq == 7
    for partition in (0, 1):
        world.kafka.expire(tp(partition), 60 - 10 * partition)
    world.service.commit(window.id, by, world.work(window, by))
    _read(world, 8)
    assert _prune(world, 2 * DAY).last == 6
    assert world.plan(by).window.id == window.id


def test_a_time_span_with_windows_that_are_gone_is_refused(world: World) -> None:
    third, fifth = (world.ledger.window(f"lake-00000{seq}").window.planned_until for seq in (3, 5))
    _prune(world)
    with pytest.raises(PrunedWindowError, match=f"starts at {third.isoformat()}".replace("+", r"\+")):
        world.ask(claim("replay"), TimeSpan(third - timedelta(minutes=1), fifth))
    assert [p.window.seq for p in world.ask(claim("replay"), TimeSpan(third, fifth))] == [4, 5]


def test_offsets_whose_windows_are_gone_are_never_free_again(world: World) -> None:
    _prune(world)
    for partition in (0, 1):  # as if a copy of the cluster had been restored
        world.kafka.restore(tp(partition), 0)
    with pytest.raises(DataLossError, match=r"orders-0: offsets \[25, 30\) \(ask for offsets from 30 on\)"):
        world.ask(claim("replay"), Ranges(OffsetRanges({tp(0): OffsetRange(25, 35)})))
    asked = world.ask(claim("replay"), Ranges(OffsetRanges({tp(0): OffsetRange(30, 35)})))
    assert [p.window.seq for p in asked] == [4]
    world.run_all(claim("replay"), Live())
    with pytest.raises(IllegalStepError, match=r"orders-0: offset 0 \(possible from 30 on\)"):
        world.service.reset(world.group, "earliest", "ada", "why", supersede=True)
    assert _left(world) == [4, 5]


def test_a_reset_goes_back_to_where_kafka_begins(world: World) -> None:
    _prune(world)
    found = world.service.reset(world.group, "earliest", "ada", "why", supersede=True)
    assert [window.seq for window in found.superseded] == [4, 5]
    with pytest.raises(PrunedWindowError):
        world.service.reset(world.group, "", "ada", "why", to_window="lake-000002")
    assert world.run(claim("next")).seq == 6


def test_a_sensor_that_waits_for_a_window_that_is_gone_is_told_so(world: World) -> None:
    _prune(world)
    [answer] = watch.ask([WindowCommitted("lake-000002")], lambda: world.ledger, now=world.now)
    assert isinstance(answer, PrunedWindowError)


def test_a_claim_with_a_window_that_is_gone_and_one_that_is_not_gets_none(world: World) -> None:
    """To run only the rest again would pass for running all again."""
    for partition in (0, 1):
        world.kafka.restore(tp(partition), 0)
    by: Claim = claim("replay")
    world.run_all(by, Windows((2, 4)))
    world.now += 9 * DAY
    for partition in (0, 1):
        world.kafka.expire(tp(partition), 30)
    _prune(world)
    with pytest.raises(PrunedWindowError):
        world.ask(by)
