"""One poll serves all who wait, and no one is forgotten."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, TypeVar

import pytest

from airflow_kafka_offsets.core.conditions import UnreadAtLeast, WindowCommitted, condition_to_json
from airflow_kafka_offsets.core.errors import (
    BadInputError,
    KafkaUnavailableError,
    LedgerUnavailableError,
    MissingPartitionError,
)
from airflow_kafka_offsets.core.log import IsolationLevel, LogSnapshot
from airflow_kafka_offsets.core.plan.waiting import Decision
from airflow_kafka_offsets.triggers import polling
from airflow_kafka_offsets.triggers.conditions import ConditionTrigger
from airflow_kafka_offsets.triggers.polling import answered, shortest_deferral
from tests.core.examples import claim, group, tp
from tests.lab.processes import wait_until
from tests.service.memory_log import MemoryLog
from tests.triggers.conftest import Places, threads

T = TypeVar("T")

EVERY = 0.02


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run in an event loop of its own, for a bounded time."""

    async def bounded() -> T:
        return await asyncio.wait_for(coroutine, 300)

    return asyncio.run(bounded())


async def until(condition: Any) -> None:
    """Let the loop run until something is so."""
    while not condition():
        await asyncio.sleep(0.005)


def enough(span: int = 5, **options: Any) -> UnreadAtLeast:
    """Wait for this span."""
    return UnreadAtLeast(group(**options), span)


def test_whoever_waits_is_woken_when_it_is_there(places: Places) -> None:
    async def scene() -> Decision:
        waiting = asyncio.create_task(answered(enough(), EVERY))
        await until(lambda: "snapshot" in places.world.kafka.calls)
        assert not waiting.done()
        places.world.kafka.produce(tp(0), 5)
        return await waiting

    assert run(scene()).facts["span"] == 5


def test_whoever_takes_any_answer_has_that_of_the_first_look(places: Places) -> None:
    found = run(answered(enough(), EVERY, met_or_not=True))
    assert (found.is_met, found.facts["span"]) == (False, 0)
    assert places.world.kafka.calls == ["snapshot"]


def test_a_thousand_who_wait_share_one_thread_and_one_snapshot(places: Places) -> None:
    kafka = places.world.kafka

    async def scene() -> None:
        waiting = [asyncio.create_task(answered(enough(i % 9 + 1), EVERY)) for i in range(1000)]
        await until(lambda: len(threads()) == 1)
        kafka.produce(tp(0), 9)
        await asyncio.gather(*waiting)
        assert len(threads()) <= 1

    run(scene())
    # All join within one turn of the loop; what is due later is another poll.
    assert len(kafka.calls) < 20
    assert set(kafka.calls) == {"snapshot"}


async def first_look_of(wait: Awaitable[object]) -> float:
    """Begin to wait, return when the first look is due, and wait no longer."""
    waits = asyncio.ensure_future(wait)
    await until(lambda: polling._pollers)
    [poller] = polling._pollers.values()
    [waiting] = poller._waiting
    waits.cancel()
    return waiting.due


@pytest.mark.parametrize(("heartbeat", "seconds"), [(None, 10.0), ("30", 35.0)])
def test_a_deferral_lasts_longer_than_a_worker_can_miss_the_end_of_the_deferred_task(
    places: Places, monkeypatch: pytest.MonkeyPatch, heartbeat: str | None, seconds: float
) -> None:
    if heartbeat:
        monkeypatch.setenv("AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL", heartbeat)
    monkeypatch.setattr(polling, "MIN_POLL", 5.0)
    monkeypatch.setattr(polling, "shortest_deferral", shortest_deferral)
    trigger = ConditionTrigger(condition=condition_to_json(enough()), poll_interval=5)
    began = polling.time.monotonic()
    due = run(first_look_of(anext(trigger.run())))
    assert began + seconds <= due <= polling.time.monotonic() + seconds + 5.0
    assert due % 5.0 == 0.0


def test_an_event_trigger_looks_sooner_as_it_resumes_no_task(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "MIN_POLL", 5.0)
    began = polling.time.monotonic()
    assert began + 5.0 <= run(first_look_of(answered(enough(), 5.0))) <= polling.time.monotonic() + 10.0


def test_the_same_interval_means_the_same_moments(places: Places) -> None:
    one, other = (polling._Waiting(enough(), 7.0, None, None) for _ in range(2))  # type: ignore[arg-type]
    one.put_off(100.0)
    other.put_off(104.9)
    assert one.due == other.due == 105.0
    one.put_off(105.0)
    assert one.due == 112.0


def test_who_is_cancelled_is_asked_for_no_more(places: Places) -> None:
    async def scene() -> None:
        waiting = asyncio.create_task(answered(enough(), EVERY))
        await until(threads)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: not threads())

    run(scene())


def test_the_thread_ends_with_the_last_one_however_late_it_was_due(places: Places) -> None:
    async def scene() -> None:
        waiting = asyncio.create_task(answered(enough(), 3600))
        await until(threads)
        waiting.cancel()
        await until(lambda: not threads())

    run(scene())


def test_a_patient_one_does_not_make_an_impatient_one_wait(places: Places) -> None:
    places.world.kafka.produce(tp(0), 5)

    async def scene() -> None:
        patient = asyncio.create_task(answered(enough(1_000_000), 3600))
        await until(lambda: polling._pollers and next(iter(polling._pollers.values()))._sleeps_until)
        await answered(enough(), EVERY)
        assert not patient.done()
        patient.cancel()

    run(scene())


def test_an_answer_that_comes_after_a_cancel_is_dropped(places: Places) -> None:
    async def scene() -> list[Any]:
        loop, complaints = asyncio.get_running_loop(), []
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        waiting = polling._Waiting(enough(), EVERY, loop, loop.create_future())
        waiting.future.cancel()
        waiting.settle(Decision(True, {}))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return complaints

    assert run(scene()) == []


def test_a_loop_that_is_gone_stops_nobody_else(places: Places) -> None:
    loop = asyncio.new_event_loop()
    abandoned = loop.create_task(answered(enough(1), EVERY))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()

    async def scene() -> None:
        waiting = asyncio.create_task(answered(enough(1), EVERY))
        await asyncio.sleep(0)
        places.world.kafka.produce(tp(0), 1)
        await waiting

    run(scene())
    wait_until(lambda: not threads(), what="the poller stops")
    abandoned._log_destroy_pending = False  # type: ignore[attr-defined]


def test_two_loops_share_one_poller(places: Places) -> None:
    answers: list[Decision] = []
    others = [threading.Thread(target=lambda: answers.append(run(answered(enough(), EVERY)))) for _ in range(3)]
    for thread in others:
        thread.start()
    wait_until(lambda: "snapshot" in places.world.kafka.calls, what="the first look")
    assert len(threads()) == 1
    places.world.kafka.produce(tp(0), 5)
    for thread in others:
        thread.join(300)
    assert len(answers) == 3


def test_what_is_wrong_with_one_fails_that_one(places: Places) -> None:
    async def scene() -> None:
        good = asyncio.create_task(answered(enough(), EVERY))
        with pytest.raises(MissingPartitionError, match="nowhere"):
            await answered(enough(name="other", topics=["nowhere"]), EVERY)
        assert not good.done()
        places.world.kafka.produce(tp(0), 5)
        await good

    run(scene())


def test_a_wait_that_is_collected_while_its_thread_holds_the_lock_does_not_wait_for_itself(places: Places) -> None:
    """The garbage collector ends the waits of a loop that is gone, at any moment and in any thread."""

    async def scene() -> None:
        waiting = answered(enough(), EVERY)
        waiting.send(None)

        def join_and_collect() -> None:
            with polling._lock:
                waiting.close()

        thread = threading.Thread(target=join_and_collect, daemon=True)
        thread.start()
        thread.join(300)
        hangs = thread.is_alive()
        if hangs:
            polling._lock.release()  # else each test after this one would hang, too
        assert not hangs

    run(scene())


def test_an_error_nobody_foresaw_reaches_those_who_wait(places: Places) -> None:
    places.is_ledger_gone = ZeroDivisionError("a bug")

    async def scene() -> None:
        with pytest.raises(ZeroDivisionError):
            await answered(enough(), EVERY)

    run(scene())


class HangingLog(MemoryLog):
    """A Kafka that does not answer before it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.is_asked = threading.Event()

    def snapshot(self, topics: Sequence[str], isolation_level: IsolationLevel) -> LogSnapshot:
        """Hang."""
        self.is_asked.set()
        self.go.wait()
        raise KafkaUnavailableError("silent")


def test_a_kafka_that_hangs_delays_neither_another_one_nor_the_loop(places: Places) -> None:
    hanging = places.logs["hanging"] = HangingLog()

    async def scene() -> None:
        stuck = asyncio.create_task(answered(enough(name="stuck", kafka_conn_id="hanging"), EVERY))
        await until(hanging.is_asked.is_set)
        places.world.kafka.produce(tp(0), 5)
        await answered(enough(), EVERY)
        assert not stuck.done()
        hanging.go.set()
        with pytest.raises(KafkaUnavailableError):
            await stuck

    run(scene())


def test_a_kafka_that_hangs_does_not_delay_who_waits_for_a_commit(places: Places) -> None:
    hanging = places.logs["hanging"] = HangingLog()
    places.world.kafka.produce(tp(0), 5)
    window = places.world.run(claim())

    async def scene() -> None:
        stuck = asyncio.create_task(answered(enough(name="stuck", kafka_conn_id="hanging"), EVERY))
        await until(hanging.is_asked.is_set)
        assert (await answered(WindowCommitted(window.id), EVERY)).is_met
        hanging.go.set()
        with pytest.raises(KafkaUnavailableError):
            await stuck

    run(scene())


def test_a_connection_that_is_not_found_for_a_moment_is_used_as_it_was(
    places: Places, caplog: pytest.LogCaptureFixture
) -> None:
    kafka = places.logs["kafka_default"]

    async def scene() -> None:
        waiting = asyncio.create_task(answered(enough(), EVERY))
        await until(lambda: "snapshot" in kafka.calls)
        del places.logs["kafka_default"]
        seen = len(places.opened)
        await until(lambda: len(places.opened) > seen + 1)
        assert not waiting.done()
        kafka.produce(tp(0), 5)
        await waiting

    with caplog.at_level(logging.WARNING):
        run(scene())
    assert "Continuing with the connection of the last poll" in caplog.text


def test_a_connection_that_was_never_there_is_an_error(places: Places) -> None:
    async def scene() -> None:
        with pytest.raises(BadInputError, match="no connection 'nowhere'"):
            await answered(enough(kafka_conn_id="nowhere"), EVERY)

    run(scene())


def test_a_ledger_that_comes_back_is_asked_again_by_whoever_waits_on(places: Places) -> None:
    places.is_ledger_gone = LedgerUnavailableError("away")

    async def scene() -> None:
        with pytest.raises(LedgerUnavailableError):
            await answered(enough(), EVERY)
        places.is_ledger_gone = None
        places.world.kafka.produce(tp(0), 5)
        assert (await answered(enough(), EVERY)).is_met

    run(scene())
