"""Schemas are frozen with a window when it is planned, and no registry is asked for it again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from airflow_kafka_offsets.adapters.registry import ConfluentRegistry
from airflow_kafka_offsets.core.errors import (
    NotYetError,
    RegistryRefusedError,
    RegistryUnavailableError,
    WindowBusyError,
)
from airflow_kafka_offsets.core.plan.ownership import How
from airflow_kafka_offsets.core.plan.request import Windows
from airflow_kafka_offsets.core.schemas import Registry, Subject
from airflow_kafka_offsets.core.window import Window
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.service.windows import WindowService
from tests.core.examples import claim, tp
from tests.lab import registry as lab
from tests.service.test_turns import before_the_turn, plan_aside
from tests.service.world import World

ONE, TWO, THREE = claim("run-1"), claim("run-2"), claim("run-3")


@pytest.fixture
def registry() -> Iterator[lab.Registry]:
    with lab.Registry() as server:
        server.register("orders-value", '"long"')
        yield server


@pytest.fixture
def world(quick_folder: Path, registry: lab.Registry) -> World:
    world = World(quick_folder, registry="registry")
    world.service = WindowService(
        world.ledger,
        world.kafka,
        clock=lambda: world.now,
        sleep=lambda _: None,
        registry=ConfluentRegistry(registry.url, "registry"),
    )
    world.kafka.produce(tp(0), 10)
    return world


def rows(world: World, what: str) -> list[Any]:
    with world.ledger._engine.connect() as connection:
        return list(connection.execute(text(what)))


def ids_of(world: World, window: Window, subject: str = "orders-value") -> list[int]:
    frozen = world.service.frozen(window.id)[subject]
    assert frozen is not None
    return list(frozen.schemas)


def test_a_new_window_has_the_schemas_of_its_moment(world: World, registry: lab.Registry) -> None:
    first = world.plan(ONE).window
    assert world.service.frozen(first.id) == {"orders-key": None, "orders-value": Subject("AVRO", 101, {101: '"long"'})}
    world.do(first, ONE)
    registry.register("orders-value", '"string"')
    world.kafka.produce(tp(0), 1)
    second = world.plan(TWO).window
    assert (ids_of(world, first), ids_of(world, second)) == ([101], [101, 102])


def test_each_schema_is_kept_once(world: World, registry: lab.Registry) -> None:
    for number in range(5):
        world.run(claim(f"run-{number}"))
        world.kafka.produce(tp(0), 1)
    assert len(rows(world, "SELECT DISTINCT schemas FROM kafka_offsets_windows")) == 1
    assert len(rows(world, "SELECT * FROM kafka_offsets_schemas")) == 2
    registry.register("orders-value", '"string"')
    world.run(claim("run-9"))
    assert len(rows(world, "SELECT * FROM kafka_offsets_schemas")) == 4


@pytest.mark.parametrize("how", [How.AGAIN, How.ADOPTED, How.GIVEN])
def test_who_gets_a_window_again_asks_no_registry(world: World, registry: lab.Registry, how: How) -> None:
    window = world.plan(ONE).window
    world.die(ONE)
    registry.answer, asked = (500, ""), len(registry.asked)
    if how is How.GIVEN:
        planned = world.service.take(world.group, window.id, TWO, world.over.__contains__)
    else:
        planned = world.plan(ONE if how is How.AGAIN else TWO)
    assert (planned.window.id, planned.how) == (window.id, how)
    assert ids_of(world, window) == [101]
    assert len(registry.asked) == asked


@pytest.mark.parametrize(
    ("answer", "error"), [((500, ""), RegistryUnavailableError), ((401, "{}"), RegistryRefusedError)]
)
def test_without_the_registry_nothing_is_planned(
    world: World, registry: lab.Registry, answer: tuple[int, str], error: type[Exception]
) -> None:
    registry.answer = answer
    with pytest.raises(error):
        world.plan(ONE)
    assert rows(world, "SELECT * FROM kafka_offsets_groups") == []
    registry.answer = None
    assert ids_of(world, world.plan(ONE).window) == [101]


def test_a_subject_that_is_not_there_yet_keeps_the_window_from_being_planned(world: World) -> None:
    world.configure(registry=Registry("registry", subjects={"orders": ["orders-value", "refunds"]}))
    with pytest.raises(NotYetError, match="has no subject refunds for the values of orders"):
        world.plan(ONE)
    assert rows(world, "SELECT * FROM kafka_offsets_windows") == []


def test_if_a_window_lacks_a_subject_nothing_is_frozen_with_another_one(world: World, registry: lab.Registry) -> None:
    world.configure()
    first = world.run(ONE)
    world.kafka.create("clicks", 1)
    world.kafka.produce(tp(0, "clicks"), 5)
    world.configure(topics=["orders", "clicks"])
    second = world.run(TWO)
    world.configure(topics=["orders", "clicks"], registry="registry")
    with pytest.raises(NotYetError, match="has no subject clicks-value for the values of clicks"):
        world.ask(THREE, Windows((first.seq, second.seq)))
    assert (world.service.frozen(first.id), rows(world, "SELECT * FROM kafka_offsets_schemas")) == ({}, [])
    registry.register("clicks-value", '"int"')
    world.ask(THREE, Windows((first.seq, second.seq)))
    assert (ids_of(world, first), ids_of(world, second, "clicks-value")) == ([101], [102])


def test_a_plan_that_loses_a_race_freezes_nothing(
    world: World, registry: lab.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.configure()
    window = world.run(ONE)
    world.configure(registry="registry")

    def faster() -> None:
        Ledger.hold(world.ledger, [world.ledger.window(window.id)], THREE, world.now)

    before_the_turn(world, monkeypatch, faster, at="turn")
    with pytest.raises(WindowBusyError):
        world.ask(TWO, Windows((window.seq,)))
    assert (world.service.frozen(window.id), rows(world, "SELECT * FROM kafka_offsets_schemas")) == ({}, [])


def test_a_window_with_nothing_to_read_needs_no_schemas(world: World, registry: lab.Registry) -> None:
    world.run(ONE)
    registry.answer, asked = (500, ""), len(registry.asked)
    assert world.plan(TWO).window.schemas is None
    assert len(registry.asked) == asked


def test_windows_from_before_the_registry_get_schemas_when_they_are_run_again(
    world: World, registry: lab.Registry
) -> None:
    world.configure()
    window = world.plan(ONE).window
    assert (window.schemas, world.service.frozen(window.id)) == (None, {})
    world.configure(registry="registry")
    assert world.plan(ONE).window.id == window.id
    assert ids_of(world, window) == [101]
    registry.register("orders-value", '"string"')
    world.plan(ONE)
    assert ids_of(world, window) == [101]


def test_a_subject_that_is_named_later_is_added_to_the_window_and_the_others_stay(
    world: World, registry: lab.Registry
) -> None:
    window = world.plan(ONE).window
    registry.register("orders-value", '"string"')
    registry.register("refunds", '"int"')
    world.configure(registry=Registry("registry", subjects={"orders": ["orders-value", "refunds"]}))
    world.plan(ONE)
    assert (ids_of(world, window), ids_of(world, window, "refunds")) == ([101], [103])


def test_a_schema_that_came_too_late_is_added_by_another_subject_that_has_it(
    world: World, registry: lab.Registry
) -> None:
    window = world.plan(ONE).window
    late = registry.register("orders-value", '"string"')
    assert registry.register("orders-late", '"string"') == late
    world.do(window, ONE)
    world.configure(registry=Registry("registry", subjects={"orders": ["orders-value", "orders-late"]}))
    assert world.plan(ONE, last_clear=1).window.id == window.id
    assert (ids_of(world, window), ids_of(world, window, "orders-late")) == ([101], [late])


def test_what_an_abandoned_window_owned_is_planned_again_with_the_schemas_of_that_moment(
    world: World, registry: lab.Registry
) -> None:
    window = world.plan(ONE).window
    late = registry.register("orders-value", '"string"')
    world.service.abandon(window.id, "ann", "the replica was behind")
    again = world.plan(ONE).window
    assert again.ranges == window.ranges
    assert (ids_of(world, window), ids_of(world, again)) == ([101], [101, late])


def test_a_window_of_before_a_topic_joined_is_run_again_as_it_was(world: World, registry: lab.Registry) -> None:
    window = world.run(ONE)
    world.kafka.create("clicks", 1)
    world.configure(topics=["orders", "clicks"], registry="registry")
    registry.answer, asked = (500, ""), len(registry.asked)
    world.ask(TWO, Windows((window.seq,)))
    assert len(registry.asked) == asked
    assert set(world.service.frozen(window.id)) == {"orders-key", "orders-value"}


def test_a_window_of_before_the_registry_gets_the_subjects_of_its_own_topics(
    world: World, registry: lab.Registry
) -> None:
    world.configure()
    window = world.run(ONE)
    world.kafka.create("clicks", 1)
    world.configure(topics=["orders", "clicks"], registry="registry")
    world.ask(TWO, Windows((window.seq,)))
    assert set(world.service.frozen(window.id)) == {"orders-key", "orders-value"}


def test_a_new_window_has_the_subjects_of_quiet_topics_too(world: World, registry: lab.Registry) -> None:
    world.kafka.create("clicks", 1)
    world.configure(topics=["orders", "clicks"], registry="registry")
    window = world.run(ONE)
    assert set(world.service.frozen(window.id)) == {"clicks-key", "clicks-value", "orders-key", "orders-value"}


def test_the_loser_of_a_race_asks_the_registry_nothing_more(
    world: World, registry: lab.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.configure(registry="registry", max_open_windows=9, max_offsets=3)
    asked: list[int] = []

    def other() -> None:
        before = world.group
        world.configure(max_open_windows=9, max_offsets=3)
        plan_aside(world, TWO)
        world.group = before
        asked.append(len(registry.asked))

    before_the_turn(world, monkeypatch, other)
    window = world.plan(ONE).window
    assert (window.ranges[tp(0)].start, ids_of(world, window)) == (3, [101])
    assert asked == [len(registry.asked)]


def test_the_registry_is_asked_after_kafka(
    world: World, monkeypatch: pytest.MonkeyPatch, registry: lab.Registry
) -> None:
    snapshot, seen = world.kafka.snapshot, []

    def asked(*arguments: Any) -> Any:
        seen.append(list(registry.asked))
        return snapshot(*arguments)

    monkeypatch.setattr(world.kafka, "snapshot", asked)
    world.plan(ONE)
    assert seen == [[]]
    assert registry.asked != []
