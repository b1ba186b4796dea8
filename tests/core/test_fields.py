"""Times and durations of any library: what a person gives becomes Python's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta, timezone
from itertools import product
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pendulum
import pytest
from dateutil import tz
from dateutil.relativedelta import relativedelta
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kafka_offsets.adapters.kafka.log import epoch_milliseconds
from airflow_kafka_offsets.core import conditions
from airflow_kafka_offsets.core.conditions import (
    CommittedUntil,
    TimePassed,
    UnreadAtLeast,
    VerdictIn,
    condition_to_json,
)
from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.fields import plain
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.lag.measure import to_ms
from airflow_kafka_offsets.core.lag.words import GroupVerdict
from airflow_kafka_offsets.core.plan.request import TimeSpan, parse_replay
from airflow_kafka_offsets.core.starting import lookup_time
from airflow_kafka_offsets.sensors.kafka import KafkaTimeSensor, KafkaUnreadSensor, KafkaVerdictSensor
from airflow_kafka_offsets.sensors.window import WindowCommittedSensor
from airflow_kafka_offsets.triggers.event import KafkaOffsetsTrigger, KafkaVerdictTrigger
from tests.core.examples import NOON, group

# Where the clocks go back, an hour comes twice.
ZONES = ("Europe/Berlin", "America/New_York", "Asia/Kathmandu", "UTC")
YEAR_2100 = datetime(2100, 1, 1, tzinfo=UTC)

moments = st.datetimes(datetime(1971, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))
durations = st.timedeltas(timedelta(microseconds=1), timedelta(days=30))

TIMES: dict[str, Callable[[datetime, str], datetime]] = {
    "pendulum": lambda at, zone: pendulum.instance(at).in_timezone(zone),
    "zoneinfo": lambda at, zone: at.astimezone(ZoneInfo(zone)),
    "dateutil": lambda at, zone: at.astimezone(tz.gettz(zone)),
}
DURATIONS: dict[str, Callable[[timedelta], Any]] = {
    "pendulum": lambda length: pendulum.duration(
        days=length.days, seconds=length.seconds, microseconds=length.microseconds
    ),
    "an interval of pendulum": lambda length: pendulum.instance(NOON + length) - pendulum.instance(NOON),
    "dateutil": lambda length: relativedelta(
        days=length.days, seconds=length.seconds, microseconds=length.microseconds
    ),
}

OF_A_TIME: dict[str, Callable[[Any], Any]] = {
    "KafkaGroup.starting_offsets": lambda at: group(starting_offsets=at),
    "TimePassed.until": lambda at: TimePassed(group(), at),
    "CommittedUntil.until": lambda at: CommittedUntil("lake", at),
    "a time sensor": lambda at: KafkaTimeSensor(task_id="t", group=group(), until=at).condition(),
    "a commit sensor": lambda at: WindowCommittedSensor(task_id="t", group="lake", until=at).condition(),
    "a conf": lambda at: parse_replay("lake", {"from": at, "to": YEAR_2100}),
    "the end of a conf": lambda at: parse_replay("lake", {"from": "1970-01-01T00:00:00Z", "to": at}),
}  # fmt: skip
OF_A_DURATION: dict[str, Callable[[Any], Any]] = {
    "KafkaGroup.starting_offsets": lambda length: group(starting_offsets=length),
    "KafkaGroup.grace": lambda length: group(until="data_interval_end", grace=length),
    "KafkaGroup.retention": lambda length: group(retention=length),
    "UnreadAtLeast.max_age": lambda length: UnreadAtLeast(group(), max_age=length),
    "TimePassed.idle_after": lambda length: TimePassed(group(), NOON, length),
    "VerdictIn.horizon": lambda length: VerdictIn(group(), (GroupVerdict.LOST,), length),
    "an unread sensor": lambda length: KafkaUnreadSensor(task_id="t", group=group(), max_age=length).condition(),
    "a time sensor": lambda length: KafkaTimeSensor(task_id="t", group=group(), until=NOON, idle_after=length).condition(),
    "a verdict sensor": lambda length: KafkaVerdictSensor(task_id="t", group=group(), horizon=length).condition(),
    "an event trigger": lambda length: KafkaOffsetsTrigger(group=group(), max_age=length).enough,
    "a verdict trigger": lambda length: KafkaVerdictTrigger(group=group(), horizon=length).wanted,
}  # fmt: skip


def values(made: Any) -> list[Any]:
    """Return all values in a value, but those of a group inside a condition."""
    own = [getattr(made, f.name) for f in fields(made)]
    return [made.start if isinstance(made, KafkaGroup) else None, *own]


def check_plain(made: Any, expected: Any) -> None:
    """Compare what was made of a library's value with what was made of Python's own, down to the types."""
    assert made == expected
    for value in values(made):
        assert not isinstance(value, datetime) or (type(value) is datetime and value.tzinfo is UTC)
        assert not isinstance(value, timedelta) or type(value) is timedelta
    if isinstance(made, KafkaGroup):
        assert json.dumps(made.to_json()) == json.dumps(expected.to_json())
        at = lookup_time(made.start, NOON)
        assert at is None or (epoch_milliseconds(at) >= 0 and to_ms(at) >= 0 and type(at) is datetime)
    elif not isinstance(made, TimeSpan):
        assert json.dumps(condition_to_json(made)) == json.dumps(condition_to_json(expected))


@pytest.mark.parametrize(("library", "field"), list(product(TIMES, OF_A_TIME)))
@settings(max_examples=10)
@given(at=moments, zone=st.sampled_from(ZONES))
def test_a_time_of_any_library_is_plain_in_every_field(library: str, field: str, at: datetime, zone: str) -> None:
    check_plain(OF_A_TIME[field](TIMES[library](at, zone)), OF_A_TIME[field](at))


@pytest.mark.parametrize(("library", "field"), list(product(DURATIONS, OF_A_DURATION)))
@settings(max_examples=10)
@given(length=durations)
def test_a_duration_of_any_library_is_plain_in_every_field(library: str, field: str, length: timedelta) -> None:
    check_plain(OF_A_DURATION[field](DURATIONS[library](length)), OF_A_DURATION[field](length))


def test_no_field_of_a_time_or_a_duration_is_left_out() -> None:
    kinds = [
        kind for kind in vars(conditions).values() if is_dataclass(kind) and kind.__module__ == conditions.__name__
    ]
    timed = {
        f"{kind.__name__}.{f.name}"
        for kind in (KafkaGroup, *kinds)
        for f in fields(kind)
        if any(word in str(f.type) for word in ("datetime", "timedelta", "StartingOffsets"))
    }
    assert timed - {"Event.at"} <= OF_A_TIME.keys() | OF_A_DURATION.keys()  # an event is our own


@pytest.mark.parametrize("hour", [0, 1])
@pytest.mark.parametrize("library", TIMES)
def test_each_of_two_equal_hours_stays_itself(library: str, hour: int) -> None:
    at = datetime(2026, 10, 25, hour, 30, tzinfo=UTC)  # both are half past two in Berlin
    assert plain(TIMES[library](at, "Europe/Berlin")) == at


@pytest.mark.parametrize(
    "length",
    [
        relativedelta(months=1), relativedelta(years=1), relativedelta(day=1), relativedelta(hour=5),
        pendulum.duration(months=1), pendulum.duration(years=1), pendulum.duration(months=1, days=-30), "PT1H",
    ],
)  # fmt: skip
def test_what_has_no_fixed_length_is_no_duration(length: Any) -> None:
    for make in OF_A_DURATION.values():
        with pytest.raises(BadInputError):
            make(length)


@pytest.mark.parametrize("field", OF_A_TIME)
@pytest.mark.parametrize(
    ("at", "why"),
    [
        (pendulum.naive(2026, 1, 31), "has no zone"),
        (pendulum.datetime(1969, 12, 31), "before 1970"),
        (datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=12))), "years 1 to 9999"),
    ],
)
def test_a_time_that_kafka_can_not_have_is_refused_in_every_field(field: str, at: datetime, why: str) -> None:
    with pytest.raises(BadInputError, match=why):
        OF_A_TIME[field](at)


def test_airflow_s_own_times_are_plain() -> None:
    from airflow_kafka_offsets.task.airflow import _run

    start, end = pendulum.datetime(2026, 1, 1, tz="Europe/Berlin"), pendulum.datetime(2026, 1, 2, tz="Europe/Berlin")
    bundle = SimpleNamespace(version=None)
    ti = SimpleNamespace(
        dag_id="d", run_id="r", task_id="t", map_index=None, try_number=1, max_tries=0, bundle_instance=bundle
    )
    dag_run = SimpleNamespace(run_type="scheduled", start_date=start, conf=None)
    context: Mapping[str, Any] = {
        "ti": ti, "dag_run": dag_run, "dag": SimpleNamespace(params={}, tasks=[]), "params": {},
        "data_interval_start": start, "data_interval_end": end,
    }  # fmt: skip
    run: Any = _run(SimpleNamespace(retries=0), context, "task", is_resumed=False)  # type: ignore[arg-type]
    assert [type(at) for at in (*run.interval, run.this_try.run_started)] == [datetime] * 3
