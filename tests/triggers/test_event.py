"""A DAG is called when enough has arrived, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from airflow.triggers.base import BaseEventTrigger

from airflow_kafka_offsets import KafkaOffsetsTrigger
from airflow_kafka_offsets.core.errors import BadInputError, KafkaRefusedError, KafkaUnavailableError
from airflow_kafka_offsets.core.plan.waiting import CALL_AGAIN_AFTER
from tests.core.examples import claim, group, tp
from tests.triggers.conftest import Places
from tests.triggers.test_conditions import moody, remade
from tests.triggers.test_polling import EVERY, run, until


def trigger(**options: Any) -> KafkaOffsetsTrigger:
    """Watch `orders`."""
    made = KafkaOffsetsTrigger(group=group(), poll_interval=EVERY, **{"min_span": 5, **options})
    return remade(made)  # type: ignore[no-any-return]


class Calls:
    """The events of a trigger that goes on in the background."""

    def __init__(self, events: AsyncIterator[Any]) -> None:
        self.payloads: list[Any] = []
        self._task = asyncio.create_task(self._collect(events))

    async def _collect(self, events: AsyncIterator[Any]) -> None:
        async for event in events:
            self.payloads.append(event.payload)

    async def wait_for(self, number: int) -> None:
        """Wait for that many events in all."""
        await until(lambda: len(self.payloads) >= number or self._task.done())
        assert len(self.payloads) == number

    async def stop(self) -> None:
        """Stop, as the triggerer does."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def looks(places: Places, number: int = 3) -> None:
    """Wait for some more looks at Kafka."""
    kafka = places.logs["kafka_default"]
    seen = kafka.calls.count("snapshot")
    await until(lambda: kafka.calls.count("snapshot") >= seen + number)


def test_each_record_calls_once(places: Places) -> None:
    kafka = places.world.kafka

    async def scene() -> None:
        calls = Calls(trigger().run())
        kafka.produce(tp(0), 5)
        await calls.wait_for(1)
        await looks(places)
        kafka.produce(tp(1), 4)
        await looks(places)
        assert len(calls.payloads) == 1
        kafka.produce(tp(1), 1)
        await calls.wait_for(2)
        await calls.stop()
        assert [payload["span"] for payload in calls.payloads] == [5, 5]
        assert calls.payloads[0]["group"] == "lake"

    run(scene())


def test_a_backlog_calls_again_as_soon_as_a_run_has_planned_a_part_of_it(places: Places) -> None:
    world = places.world
    world.configure(max_offsets=20)

    async def scene() -> None:
        calls = Calls(trigger().run())
        world.kafka.produce(tp(0), 50)
        await calls.wait_for(1)
        world.run(claim("run-1"))
        await calls.wait_for(2)
        world.run(claim("run-2"))
        await calls.wait_for(3)
        world.run(claim("run-3"))
        await looks(places)
        await calls.stop()
        assert [payload["span"] for payload in calls.payloads] == [50, 30, 10]

    run(scene())


def test_what_a_dead_runs_window_kept_from_being_read_calls_again(places: Places) -> None:
    world = places.world

    async def scene() -> None:
        world.kafka.produce(tp(0), 50)
        world.plan(claim("dead"))
        world.die(claim("dead"))
        calls = Calls(trigger().run())
        world.kafka.produce(tp(0), 5)
        await calls.wait_for(1)
        assert world.run(claim("called")).span == 50
        await looks(places)
        assert len(calls.payloads) == 1
        places.later(CALL_AGAIN_AFTER)
        await calls.wait_for(2)
        assert world.run(claim("called-again")).span == 5
        await looks(places)
        await calls.stop()
        assert len(calls.payloads) == 2

    run(scene())


def test_a_trigger_that_is_started_again_calls_at_most_once_more(places: Places) -> None:
    places.world.kafka.produce(tp(0), 5)

    async def scene() -> None:
        for _ in range(2):
            calls = Calls(trigger().run())
            await calls.wait_for(1)
            await looks(places)
            await calls.stop()
            assert len(calls.payloads) == 1
        places.world.run(claim())
        calls = Calls(trigger().run())
        await looks(places)
        await calls.stop()
        assert calls.payloads == []

    run(scene())


def test_what_only_a_person_can_mend_calls_one_run_which_then_fails(places: Places) -> None:
    kafka = moody(places)

    async def scene() -> None:
        calls = Calls(trigger().run())
        kafka.fails = {"orders": KafkaRefusedError("wrong password")}
        await calls.wait_for(1)
        await looks(places)
        assert [payload["error"] for payload in calls.payloads] == ["wrong password"]
        kafka.fails = {}
        kafka.produce(tp(0), 5)
        await calls.wait_for(2)
        await calls.stop()

    run(scene())


def test_what_has_to_be_mended_again_calls_again_although_too_little_arrived_in_between(places: Places) -> None:
    kafka = moody(places)

    async def scene() -> None:
        calls = Calls(trigger().run())
        for number, message in enumerate(("wrong password", "another one"), start=1):
            kafka.fails = {"orders": KafkaRefusedError(message)}
            await calls.wait_for(number)
            kafka.fails = {}
            await looks(places)
        kafka.produce(tp(0), 5)
        await calls.wait_for(3)
        await calls.stop()
        assert [payload.get("error") for payload in calls.payloads] == ["wrong password", "another one", None]

    run(scene())


def test_kafka_that_is_away_calls_nobody(places: Places) -> None:
    kafka = moody(places)
    kafka.fails = {"orders": KafkaUnavailableError("away")}

    async def scene() -> None:
        calls = Calls(trigger().run())
        await looks(places)
        await calls.stop()
        assert calls.payloads == []

    run(scene())


def test_airflow_knows_it_again_after_a_parse() -> None:
    """The triggerer keeps one trigger for equal kwargs: a parse must not make another one."""
    one, other = (
        KafkaOffsetsTrigger(group=group(starting_offsets=timedelta(hours=1)), max_age=timedelta(minutes=5))
        for _ in range(2)
    )
    assert isinstance(one, BaseEventTrigger)
    assert BaseEventTrigger.hash(*one.serialize()) == BaseEventTrigger.hash(*other.serialize())
    assert remade(one).serialize() == one.serialize()


def test_it_wants_to_know_when_it_is_enough() -> None:
    with pytest.raises(BadInputError, match="min_span, max_age or both"):
        KafkaOffsetsTrigger(group=group())
