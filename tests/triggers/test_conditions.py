"""What the triggerer runs for a sensor, and what it leaves in the metadata database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_kafka_offsets.core.conditions import UnreadAtLeast, condition_to_json
from airflow_kafka_offsets.core.errors import KafkaRefusedError, KafkaUnavailableError, LedgerUnavailableError
from airflow_kafka_offsets.triggers.conditions import ConditionTrigger
from tests.core.examples import group, tp
from tests.service.test_watch import MoodyLog
from tests.triggers.conftest import Places
from tests.triggers.test_polling import EVERY, run, until


def trigger(**options: Any) -> ConditionTrigger:
    """Make a trigger as the triggerer does: from what another one left."""
    condition = condition_to_json(UnreadAtLeast(group(), 5))
    return remade(ConditionTrigger(condition=condition, poll_interval=EVERY, **options))


def remade(given: Any) -> Any:
    """Send a trigger through the database."""
    path, kwargs = given.serialize()
    module, _, name = path.rpartition(".")
    assert (module, name) == (type(given).__module__, type(given).__name__)
    return type(given)(**json.loads(json.dumps(kwargs)))


async def first(events: AsyncIterator[TriggerEvent]) -> Any:
    """Return the payload of the first event."""
    return (await anext(aiter(events))).payload


def moody(places: Places) -> MoodyLog:
    """Put a Kafka behind the connection that fails on demand."""
    kafka = MoodyLog()
    kafka.create("orders")
    places.logs["kafka_default"] = kafka
    return kafka


def test_it_fires_once_with_what_was_seen(places: Places) -> None:
    places.world.kafka.produce(tp(0), 5)

    async def scene() -> list[Any]:
        return [event.payload async for event in trigger().run()]

    (payload,) = run(scene())
    assert payload == {"seen": {"span": 5, "partitions": 1, "behind": ["orders-0"]}}


def test_a_pattern_travels_through_the_database_and_is_looked_up_at_each_look(places: Places) -> None:
    kafka = moody(places)
    condition = condition_to_json(UnreadAtLeast(group(topics=(), topics_pattern="shop-.*"), 5))
    waiting_for = remade(ConditionTrigger(condition=condition, poll_interval=EVERY))
    kafka.create("shop-eu")

    async def scene() -> Any:
        waiting = asyncio.create_task(first(waiting_for.run()))
        await until(lambda: kafka.calls.count("snapshot") >= 2)
        kafka.create("shop-us")
        kafka.produce(tp(0, "shop-us"), 5)
        return await waiting

    assert run(scene()) == {"seen": {"span": 5, "partitions": 1, "behind": ["shop-us-0"]}}


def test_kafka_that_goes_away_is_waited_for(places: Places) -> None:
    kafka = moody(places)
    kafka.fails = {"orders": KafkaUnavailableError("gone")}

    async def scene() -> Any:
        waiting = asyncio.create_task(first(trigger().run()))
        await until(lambda: kafka.calls.count("snapshot") >= 3)
        kafka.fails = {}
        kafka.produce(tp(0), 5)
        return await waiting

    assert run(scene())["seen"]["span"] == 5


def test_a_ledger_that_goes_away_is_waited_for(places: Places) -> None:
    places.is_ledger_gone = LedgerUnavailableError("gone")
    places.world.kafka.produce(tp(0), 5)

    async def scene() -> Any:
        waiting = asyncio.create_task(first(trigger().run()))
        await until(lambda: places.refused >= 3)
        places.is_ledger_gone = None
        return await waiting

    assert run(scene())["seen"]["span"] == 5


def test_a_login_that_is_refused_ends_the_waiting(places: Places) -> None:
    moody(places).fails = {"orders": KafkaRefusedError("wrong password")}
    assert run(first(trigger().run())) == {"error": "KafkaRefusedError", "message": "wrong password"}


def test_silent_fail_waits_on_whatever_happens(places: Places) -> None:
    kafka = moody(places)
    kafka.fails = {"orders": KafkaRefusedError("wrong password")}

    async def scene() -> Any:
        waiting = asyncio.create_task(first(trigger(silent_fail=True).run()))
        await until(lambda: kafka.calls.count("snapshot") >= 3)
        kafka.fails = {}
        kafka.produce(tp(0), 5)
        return await waiting

    assert run(scene())["seen"]["span"] == 5


def test_it_is_a_plain_trigger_that_airflow_can_store() -> None:
    from airflow.serialization.serialized_objects import BaseSerialization

    given = trigger()
    assert isinstance(given, BaseTrigger)
    kwargs = given.serialize()[1]
    assert BaseSerialization.deserialize(BaseSerialization.serialize(kwargs)) == kwargs
