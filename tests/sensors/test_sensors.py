"""Look first, defer after, and end as Airflow users expect of a sensor."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import DAG, BaseSensorOperator

from airflow_kafka_offsets import KafkaLagSensor, KafkaTimeSensor, KafkaUnreadSensor, WindowCommittedSensor
from airflow_kafka_offsets.airflow_versions import (
    AirflowException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)
from airflow_kafka_offsets.core.errors import (
    BadInputError,
    KafkaRefusedError,
    KafkaUnavailableError,
    LedgerUnavailableError,
    MissingPartitionError,
    UnknownWindowError,
)
from airflow_kafka_offsets.core.plan.request import Live
from tests.core.examples import NOON, claim, group, tp
from tests.triggers.conftest import Places
from tests.triggers.test_conditions import moody, remade

HOUR = timedelta(hours=1)


def enough(**options: Any) -> KafkaUnreadSensor:
    """Wait for five offsets."""
    return KafkaUnreadSensor(task_id="wait", group=group(), min_span=5, **options)


def deferred(sensor: BaseSensorOperator) -> TaskDeferred:
    """Run a sensor that has to wait."""
    with pytest.raises(TaskDeferred) as found:
        sensor.execute({})  # type: ignore[typeddict-item]
    return found.value


def resumed(sensor: BaseSensorOperator, method: str, kwargs: dict[str, Any]) -> Any:
    """Let Airflow's worker go on with a sensor."""
    return sensor.resume_execution(method, kwargs, {})  # type: ignore[typeddict-item]


def test_what_is_there_is_returned_without_deferring(places: Places) -> None:
    places.world.kafka.produce(tp(0), 5)
    assert enough().execute({}) == {"span": 5, "partitions": 1, "behind": ["orders-0"]}  # type: ignore[typeddict-item]


def test_a_topic_that_matches_a_pattern_counts_as_soon_as_it_is_there(places: Places) -> None:
    by_pattern = group(topics=(), topics_pattern="shop-.*")
    sensor = KafkaUnreadSensor(task_id="wait", group=by_pattern, min_span=5)
    places.world.kafka.produce(tp(0), 9)  # of orders, which the pattern does not match
    places.world.kafka.create("shop-eu")
    deferred(sensor)
    places.world.kafka.create("shop-us")
    places.world.kafka.produce(tp(0, "shop-us"), 5)
    assert sensor.execute({}) == {"span": 5, "partitions": 1, "behind": ["shop-us-0"]}  # type: ignore[typeddict-item]


def test_what_is_not_there_is_left_to_the_triggerer(places: Places) -> None:
    waiting = deferred(enough(timeout=600, poke_interval=30))
    assert waiting.method_name == "resume"
    assert waiting.timeout == timedelta(minutes=10)
    assert waiting.trigger.poll_interval == 30  # type: ignore[attr-defined]
    assert remade(waiting.trigger).serialize() == waiting.trigger.serialize()
    assert resumed(enough(), "resume", {"event": {"seen": {"span": 7}}}) == {"span": 7}


def test_the_shorter_of_the_two_time_outs_ends_the_waiting(places: Places) -> None:
    assert deferred(enough(timeout=600, execution_timeout=timedelta(minutes=1))).timeout == timedelta(minutes=1)
    assert deferred(enough(timeout=30, execution_timeout=timedelta(minutes=1))).timeout == timedelta(seconds=30)


def test_no_secret_and_no_client_travels_to_the_triggerer(places: Places) -> None:
    text = json.dumps(deferred(enough()).trigger.serialize())
    assert "kafka_default" in text
    assert "password" not in text


def test_without_a_triggerer_it_pokes_like_any_sensor(places: Places) -> None:
    with pytest.raises(AirflowSensorTimeout):
        enough(deferrable=False, poke_interval=0.01, timeout=0.05).execute({})  # type: ignore[typeddict-item]
    places.world.kafka.produce(tp(0), 5)
    assert enough(deferrable=False).execute({})["span"] == 5  # type: ignore[typeddict-item]


@pytest.mark.parametrize("deferrable", [True, False])
def test_silence_of_kafka_or_ledger_is_waited_for(places: Places, deferrable: bool) -> None:
    sensor = enough(deferrable=deferrable)
    places.is_ledger_gone = LedgerUnavailableError("away")
    assert not sensor.poke({})  # type: ignore[typeddict-item]
    places.is_ledger_gone = None
    moody(places).fails = {"orders": KafkaUnavailableError("away")}
    assert not sensor.poke({})  # type: ignore[typeddict-item]
    if deferrable:
        deferred(sensor)


@pytest.mark.parametrize("deferrable", [True, False])
def test_what_waiting_does_not_heal_fails_at_once(places: Places, deferrable: bool) -> None:
    moody(places).fails = {"orders": KafkaRefusedError("wrong password")}
    with pytest.raises(KafkaRefusedError, match="wrong password"):
        enough(deferrable=deferrable).execute({})  # type: ignore[typeddict-item]
    with pytest.raises(MissingPartitionError, match="no topic nowhere"):
        KafkaLagSensor(task_id="wait", group=group(topics=["nowhere"]), max_lag=0).execute({})  # type: ignore[typeddict-item]
    with pytest.raises(UnknownWindowError):
        WindowCommittedSensor(task_id="wait", window_id="lake-000001").execute({})  # type: ignore[typeddict-item]


def test_an_error_of_the_triggerer_is_raised_as_what_it_is(places: Places) -> None:
    event = {"error": "MissingPartitionError", "message": "Kafka has no topic orders"}
    with pytest.raises(MissingPartitionError, match="Kafka has no topic orders"):
        resumed(enough(), "resume", {"event": event})
    with pytest.raises(MissingPartitionError):
        resumed(enough(soft_fail=True), "resume", {"event": event})
    with pytest.raises(AirflowSkipException):
        resumed(enough(never_fail=True), "resume", {"event": event})


def test_time_outs_and_lost_triggers_end_as_with_airflows_own_sensors() -> None:
    with pytest.raises(AirflowSensorTimeout):
        resumed(enough(), "__fail__", {"error": "Trigger timeout"})
    with pytest.raises(AirflowSkipException):
        resumed(enough(soft_fail=True), "__fail__", {"error": "Trigger timeout"})
    with pytest.raises(AirflowException) as lost:
        resumed(enough(), "__fail__", {"error": "Trigger failure"})
    assert type(lost.value).__name__ == "TaskDeferralError"


@pytest.mark.parametrize("deferrable", [True, False])
def test_never_fail_skips_and_soft_fail_does_not_hide_an_error(places: Places, deferrable: bool) -> None:
    moody(places).fails = {"orders": KafkaRefusedError("wrong password")}
    with pytest.raises(AirflowSkipException):
        enough(deferrable=deferrable, never_fail=True).execute({})  # type: ignore[typeddict-item]
    with pytest.raises(KafkaRefusedError):
        enough(deferrable=deferrable, soft_fail=True).execute({})  # type: ignore[typeddict-item]


def test_silent_fail_waits_on_whatever_is_wrong(places: Places) -> None:
    moody(places).fails = {"orders": KafkaRefusedError("wrong password")}
    assert deferred(enough(silent_fail=True)).trigger.silent_fail  # type: ignore[attr-defined]


def test_templates_give_times_and_ids() -> None:
    with DAG("d"):
        time = KafkaTimeSensor(task_id="time", group=group(), until="{{ data_interval_end }}")
        until = WindowCommittedSensor(task_id="until", group=group(), until="{{ data_interval_end }}")
        window = WindowCommittedSensor(task_id="window", window_id="{{ 'lake-000012' }}")
    for sensor in (time, until, window):
        sensor.render_template_fields({"data_interval_end": NOON})  # type: ignore[typeddict-unknown-key]
    assert time.condition().until == NOON
    assert until.condition().until == NOON  # type: ignore[union-attr]
    assert window.condition().window_id == "lake-000012"  # type: ignore[union-attr]


def test_a_downstream_dag_needs_no_more_than_the_groups_name(places: Places) -> None:
    places.world.kafka.produce(tp(0), 5)
    sensor = WindowCommittedSensor(task_id="wait", group="lake", until=NOON + HOUR)
    planned = places.world.plan(claim(), Live(until=NOON + HOUR)).window
    deferred(sensor)
    places.world.service.commit(planned.id, claim(), places.world.work(planned, claim()))
    assert sensor.execute({})["window_id"] == planned.id  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    "options",
    [{}, {"group": "lake"}, {"until": NOON}, {"group": "lake", "until": NOON, "window_id": "lake-000001"}],
)
def test_a_wait_for_a_commit_needs_a_cut_time_or_a_window(options: dict[str, Any]) -> None:
    with pytest.raises(BadInputError):
        WindowCommittedSensor(task_id="wait", **options)


def test_nonsense_is_refused_when_the_dag_is_read() -> None:
    with pytest.raises(BadInputError):
        KafkaUnreadSensor(task_id="wait", group=group())
    with pytest.raises(BadInputError):
        KafkaLagSensor(task_id="wait", group=group(), max_lag=-1)
