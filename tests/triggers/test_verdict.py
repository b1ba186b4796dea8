"""Whoever waits for a verdict hears of it, and of each change once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from airflow.triggers.base import BaseEventTrigger

from airflow_kafka_offsets import KafkaVerdictSensor, KafkaVerdictTrigger
from airflow_kafka_offsets.airflow_versions import TaskDeferred
from airflow_kafka_offsets.core.conditions import VerdictIn, condition_from_json, condition_to_json
from airflow_kafka_offsets.core.errors import BadInputError, KafkaRefusedError, KafkaUnavailableError
from airflow_kafka_offsets.core.lag.words import GroupVerdict
from airflow_kafka_offsets.core.plan.waiting import Decision
from airflow_kafka_offsets.service import freshness
from tests.core.examples import claim, group, tp
from tests.service.memory_log import MemoryLog, NoTimes
from tests.service.world import World
from tests.triggers.conftest import Places
from tests.triggers.test_conditions import moody, remade
from tests.triggers.test_event import Calls, looks
from tests.triggers.test_polling import EVERY, run

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def trigger(**options: Any) -> KafkaVerdictTrigger:
    """Watch the verdict on `lake`."""
    return remade(KafkaVerdictTrigger(group=group(), poll_interval=EVERY, **options))  # type: ignore[no-any-return]


def behind(world: World, places: Places, time: timedelta) -> None:
    """Commit a window now, and let another record wait."""
    world.kafka.configure("orders", retention_ms="604800000")
    world.now = places.now()
    world.run(claim("first"))
    world.kafka.produce(tp(0), 5, places.now())
    places.later(time)


def verdicts(calls: Calls) -> list[tuple[str | None, str]]:
    """Return the changes that fired."""
    return [(payload["before"], payload["verdict"]) for payload in calls.payloads]


def test_each_change_fires_once(places: Places) -> None:
    world = places.world
    behind(world, places, HOUR)

    async def scene() -> None:
        calls = Calls(trigger().run())
        await looks(places)
        assert calls.payloads == []  # at the first look all is well
        places.later(3 * DAY)
        await calls.wait_for(1)
        await looks(places)
        places.later(3 * DAY + 20 * HOUR)
        await calls.wait_for(2)
        world.now = places.now()
        world.run(claim("second"))
        await calls.wait_for(3)
        await looks(places)
        await calls.stop()
        assert verdicts(calls) == [("OK", "STALLED"), ("STALLED", "AT RISK"), ("AT RISK", "OK")]
        assert calls.payloads[1]["group"] == "lake"
        assert calls.payloads[1]["behind"] == ["orders-0"]
        assert calls.payloads[1]["reason"].startswith("Retention may remove unread records of orders-0 in ")

    run(scene())


def test_a_first_look_that_is_not_ok_fires(places: Places) -> None:
    behind(places.world, places, 3 * DAY)

    async def scene() -> None:
        calls = Calls(trigger().run())
        await calls.wait_for(1)
        await looks(places)
        await calls.stop()
        assert verdicts(calls) == [(None, "STALLED")]

    run(scene())


def test_verdicts_that_do_not_count_are_ok(places: Places) -> None:
    behind(places.world, places, 3 * DAY)

    async def scene() -> None:
        calls = Calls(trigger(verdicts=["AT RISK", "LOST"]).run())
        await looks(places)
        assert calls.payloads == []
        places.later(3 * DAY + 20 * HOUR)
        await calls.wait_for(1)
        await calls.stop()
        assert verdicts(calls) == [("OK", "AT RISK")]

    run(scene())


def test_a_group_that_comes_to_a_verdict_that_does_not_count_is_ok_in_the_event_too(places: Places) -> None:
    behind(places.world, places, 6 * DAY + 20 * HOUR)

    async def scene() -> None:
        calls = Calls(trigger(verdicts=["AT RISK", "LOST"]).run())
        await calls.wait_for(1)
        places.world.kafka.configure("orders", retention_ms=str(30 * 86_400_000))  # what people do about AT RISK
        await calls.wait_for(2)
        await calls.stop()
        assert verdicts(calls) == [(None, "AT RISK"), ("AT RISK", "OK")]
        assert "the oldest record waits for 6 d " in calls.payloads[1]["reason"], "it is STALLED"

    run(scene())


def test_with_ok_alone_only_a_group_that_is_ok_again_fires(places: Places) -> None:
    world = places.world
    behind(world, places, HOUR)

    async def scene() -> None:
        calls = Calls(trigger(verdicts=["OK"]).run())
        await looks(places)
        places.later(3 * DAY)
        await looks(places)
        await looks(places)
        assert calls.payloads == []
        world.now = places.now()
        world.run(claim("second"))
        await calls.wait_for(1)
        await looks(places)
        await calls.stop()
        assert verdicts(calls) == [("STALLED", "OK")]

    run(scene())


def test_an_error_that_stays_fires_once_and_one_that_passes_does_not(places: Places) -> None:
    kafka = moody(places)

    async def scene() -> None:
        calls = Calls(trigger().run())
        kafka.fails = {"orders": KafkaUnavailableError("away")}
        await looks(places)
        assert calls.payloads == []
        kafka.fails = {"orders": KafkaRefusedError("wrong password")}
        await calls.wait_for(1)
        await looks(places)
        await calls.stop()
        assert [(payload["error"], payload["before"]) for payload in calls.payloads] == [("wrong password", None)]

    run(scene())


def test_an_error_that_comes_again_after_an_answer_without_a_change_fires_again(places: Places) -> None:
    kafka = moody(places)

    async def scene() -> None:
        calls = Calls(trigger().run())
        await looks(places)
        for number, message in enumerate(("wrong password", "another one"), start=1):
            kafka.fails = {"orders": KafkaRefusedError(message)}
            await calls.wait_for(number)
            kafka.fails = {"orders": KafkaUnavailableError("no answer ends nothing")}
            await looks(places)
            kafka.fails = {"orders": KafkaRefusedError(message)}
            await looks(places)
            kafka.fails = {}
            await looks(places)
        await calls.stop()
        told = [(payload["error"], payload["before"]) for payload in calls.payloads]
        assert told == [("wrong password", "OK"), ("another one", "OK")]

    run(scene())


def test_an_answer_without_times_is_no_change_back_to_ok(places: Places) -> None:
    behind(places.world, places, 6 * DAY + 20 * HOUR)
    kafka = places.world.kafka

    async def scene() -> None:
        calls = Calls(trigger(verdicts=["AT RISK", "LOST"]).run())
        await calls.wait_for(1)
        kafka.__class__ = NoTimes
        await looks(places)
        kafka.__class__ = MemoryLog
        await looks(places)
        await calls.stop()
        assert verdicts(calls) == [(None, "AT RISK")]

    run(scene())


def test_airflow_knows_the_trigger_again_after_a_parse() -> None:
    one, other = (KafkaVerdictTrigger(group=group(), horizon=HOUR) for _ in range(2))
    assert isinstance(one, BaseEventTrigger)
    assert BaseEventTrigger.hash(*one.serialize()) == BaseEventTrigger.hash(*other.serialize())
    assert remade(one).serialize() == one.serialize()


@pytest.mark.parametrize("wrong", ["LOST", [], ["AT_RISK"], ["lost"], None, 5])
def test_verdicts_are_a_list_of_known_ones(wrong: Any) -> None:
    with pytest.raises(BadInputError, match=f"verdicts must be a list of some of {', '.join(GroupVerdict)}; got"):
        KafkaVerdictTrigger(group=group(), verdicts=wrong)
    with pytest.raises(BadInputError, match="verdicts must be a list"):
        KafkaVerdictSensor(task_id="wait", group=group(), verdicts=wrong)


def test_a_sensor_waits_in_the_triggerer_and_returns_the_reason(places: Places) -> None:
    behind(places.world, places, HOUR)
    sensor = KafkaVerdictSensor(task_id="wait", group=group(), timeout=600)
    with pytest.raises(TaskDeferred) as waiting:
        sensor.execute({})  # type: ignore[typeddict-item]
    assert remade(waiting.value.trigger).serialize() == waiting.value.trigger.serialize()
    places.later(6 * DAY + 20 * HOUR)
    found = sensor.execute({})  # type: ignore[typeddict-item]
    assert (found["verdict"], found["lag"], found["behind"]) == ("AT RISK", 5, ["orders-0"])
    early = KafkaVerdictSensor(task_id="early", group=group(), horizon=30 * DAY)
    assert early.execute({})["verdict"] == "AT RISK"  # type: ignore[typeddict-item]


def test_a_condition_survives_its_way_through_the_database() -> None:
    condition = VerdictIn(group(), (GroupVerdict.LOST,), HOUR)
    assert condition_from_json(condition_to_json(condition)) == condition


def test_many_groups_are_one_look_and_two_definitions_of_one_group_are_two(places: Places) -> None:
    world = places.world
    conditions = [VerdictIn(group(f"g{number}"), tuple(GroupVerdict)) for number in range(20)]
    answers = freshness.ask(conditions, lambda: world.ledger, lambda: world.kafka, now=world.now)
    assert all(isinstance(answer, Decision) and answer.is_met for answer in answers)
    assert world.kafka.calls == ["snapshot"]
    world.kafka.calls.clear()
    twice = [VerdictIn(group(), (GroupVerdict.OK,)), VerdictIn(group(max_offsets=5), (GroupVerdict.OK,), None)]
    assert len(freshness.ask(twice, lambda: world.ledger, lambda: world.kafka, now=world.now)) == 2
    assert world.kafka.calls == ["snapshot", "snapshot"]
