"""Partitions of assets: where a run of a partition ends, and which events get a key (docs/design.md, rule 14)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, Asset
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.timetables import interval as core_interval

from airflow_kafka_offsets import PlanWindowOperator, wiring
from airflow_kafka_offsets.airflow_versions import AirflowFailException, has_partitions
from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.evidence import Report
from airflow_kafka_offsets.core.plan.request import Live, Refused, TimeSpan, Windows, request_of, triggers_consumers
from airflow_kafka_offsets.core.run import Run
from airflow_kafka_offsets.core.window import Window
from airflow_kafka_offsets.service.plan import Planned
from airflow_kafka_offsets.task.airflow import Task
from airflow_kafka_offsets.task.definition import Stop
from airflow_kafka_offsets.task.work import Work
from tests.core.examples import NOON, claim, group, tp
from tests.lab.memory import IN_MEMORY
from tests.service.test_time_cut import at, until
from tests.service.world import World, after_clear
from tests.stores.memory import MemoryStore
from tests.task.airflow import all_of, context_of

if has_partitions():
    from airflow.sdk import (
        CronDataIntervalTimetable,
        CronPartitionTimetable,
        CronTriggerTimetable,
        PartitionedAssetTimetable,
    )

    from airflow_kafka_offsets.task.partitions import interval_of, keys_of
else:
    pytest.skip("tasks give events a partition key from Airflow 3.3 on", allow_module_level=True)

HOURLY = CronPartitionTimetable("0 * * * *", timezone="UTC")
BY_TIME = group(until="data_interval_end")
ELEVEN = at(-1)
KEY_OF_ELEVEN = "2026-01-31T11:00:00"


def schedule(given: Any) -> Any:
    """Return what a task has of its DAG's schedule."""
    return DAG("orders", schedule=given).timetable


@pytest.mark.parametrize(
    ("given", "keys"),
    [
        ("@hourly", [KEY_OF_ELEVEN]),  # intervals without width
        (CronDataIntervalTimetable("@hourly", timezone="UTC"), [KEY_OF_ELEVEN]),
        (core_interval.CronDataIntervalTimetable("@hourly", timezone="UTC"), [KEY_OF_ELEVEN]),
        (CronTriggerTimetable("0 */6 * * *", timezone="UTC", interval=timedelta(hours=6)), ["2026-01-31T06:00:00"]),
        (CronDataIntervalTimetable("@hourly", timezone="Europe/Berlin"), ["2026-01-31T12:00:00"]),
        (HOURLY, [KEY_OF_ELEVEN]),
        (CronPartitionTimetable("0 * * * *", timezone="UTC", run_offset=-1), [KEY_OF_ELEVEN]),
        (CronPartitionTimetable("0 13 * * *", timezone="Europe/Berlin", key_format="%Y/%m/%d"), ["2026/01/30"]),
        ("30 * * * *", []),  # noon is no tick of it
        (timedelta(hours=1), []),
        (None, []),
        (PartitionedAssetTimetable(assets=Asset("lake")), []),
    ],
    ids=(
        *("hourly", "intervals", "intervals of core", "triggers", "Berlin", "partitions", "offset", "format"),
        *("another minute", "delta", "none", "assets"),
    ),
)
def test_a_partition_has_the_key_that_airflow_gives_to_the_tick_before_its_end(given: Any, keys: list[str]) -> None:
    assert keys_of(schedule(given), [NOON]) == keys


def test_a_moment_between_two_ticks_ends_no_partition() -> None:
    assert keys_of(schedule("@hourly"), [NOON + timedelta(microseconds=1), NOON, at(-0.5)]) == [KEY_OF_ELEVEN]


@pytest.mark.parametrize("run_offset", [0, -1, 2])
def test_airflow_itself_gives_the_run_of_a_partition_the_key_that_we_give_to_its_end(run_offset: int) -> None:
    berlin = CronPartitionTimetable("0 * * * *", timezone="Europe/Berlin", run_offset=run_offset)
    made = airflow_run(berlin)
    interval = interval_of(schedule(berlin), made.partition_date)
    assert interval is not None
    assert interval[1] - interval[0] == timedelta(hours=1)
    assert keys_of(schedule(berlin), [interval[1]]) == [made.partition_key]


def airflow_run(timetable: Any) -> Any:
    """Return what Airflow's scheduler makes of a schedule: its first run since noon."""
    from airflow.sdk.timezone import coerce_datetime
    from airflow.serialization.encoders import coerce_to_core_timetable
    from airflow.timetables.base import TimeRestriction

    first = TimeRestriction(coerce_datetime(NOON), None, catchup=True)
    return coerce_to_core_timetable(timetable).next_dagrun_info_v2(last_dagrun_info=None, restriction=first)


def run_of(kind: str, given: Any = HOURLY, conf: dict[str, Any] | None = None, **partition: Any) -> Run:
    """Return a run that has a partition and no data interval."""
    context = context_of(kind=kind, conf=conf, dag=DAG("orders", schedule=given))
    partition = partition or {"partition_key": KEY_OF_ELEVEN, "partition_date": ELEVEN}
    vars(context["dag_run"]).update(partition)
    return Task(PlanWindowOperator(task_id="plan", group=BY_TIME), context).run


def test_the_window_of_a_partition_ends_where_the_partition_ends() -> None:
    assert request_of(run_of("scheduled"), BY_TIME) == Live(until=NOON, ends_at=NOON)


def test_the_backfill_of_a_partition_replays_its_interval() -> None:
    assert request_of(run_of("backfill"), BY_TIME) == TimeSpan(ELEVEN, NOON, is_interval=True)


def test_a_window_that_ends_now_does_not_claim_to_reach_the_end_of_its_runs_partition() -> None:
    assert request_of(run_of("scheduled"), group()) == Live()


@pytest.mark.parametrize("kind", ["scheduled", "backfill"])
@pytest.mark.parametrize(
    ("given", "partition"),
    [
        (HOURLY, {"partition_key": KEY_OF_ELEVEN}),  # all that Airflow 3.2 tells
        (PartitionedAssetTimetable(assets=Asset("lake")), {"partition_key": "eu", "partition_date": ELEVEN}),
    ],
    ids=["without a date", "another timetable"],
)
def test_a_partition_whose_end_is_unknown_is_refused_before_anything_is_planned(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str, given: Any, partition: dict[str, Any]
) -> None:
    refused = request_of(run_of(kind, given, **partition), BY_TIME)
    assert isinstance(refused, Refused)
    assert "such as CronDataIntervalTimetable" in str(refused.error)
    monkeypatch.setattr(wiring, "open_service", lambda _: world.service)
    context = context_of(kind=kind, dag=DAG("orders", schedule=given))
    vars(context["dag_run"]).update(partition)
    with pytest.raises(AirflowFailException, match="This run has no data interval"):
        PlanWindowOperator(task_id="plan", group=BY_TIME).execute(context)
    assert not world.ledger.windows("lake")


@pytest.fixture
def world() -> Iterator[World]:
    """Return a world of a group that is cut by time, with records of three hours."""
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        world = World(Path(folder), until="data_interval_end", max_open_windows=3)
        for hours in (-2.5, -1.5, -0.5):
            world.kafka.produce(tp(0), 10, at=at(hours))
        yield world


def done(world: World, planned: Sequence[Planned], **run: Any) -> Work:
    """Let a task run the jobs of windows, commit them, and be over."""
    asking = claim(run.pop("name"))
    this_try = after_clear(run.pop("last_clear", 0))
    work = Work(Run(asking, this_try, **run), world.service, world.group, planned, Stop())
    with work:
        all_of(work, planned, lambda p: Report(p.window.span))
    world.die(asking)
    return work


def hours(work: Work, *, emit_empty: bool = False) -> list[float] | None:
    """Return up to which hours, counted from noon, all is committed with the windows of a task."""
    reached = work.reached(emit_empty=emit_empty)
    return None if reached is None else sorted((end - NOON) / timedelta(hours=1) for end in reached)


def test_a_window_that_ends_with_its_interval_reaches_its_end(world: World) -> None:
    for end in (-2, -1):
        name = f"until-{end}"
        assert hours(done(world, world.ask(claim(name), until(end)), name=name)) == [end]


def test_a_window_that_waits_for_an_older_one_leaves_its_end_to_it(world: World) -> None:
    first, second, third = ([world.plan(claim(f"of-{end}"), until(end))] for end in (-2, -1, 0))
    assert hours(done(world, second, name="of--1")) == []
    assert hours(done(world, first, name="of--2")) == [-2, -1]
    assert hours(done(world, third, name="of-0")) == [0]


def test_with_an_offset_store_the_last_commit_reaches_the_ends_of_all_that_waited_for_it() -> None:
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        options = {"until": "data_interval_end", "max_open_windows": 3, "offset_store": "redis://redis_default"}
        world = World(Path(folder), MemoryStore(), **options)
        world.kafka.produce(tp(0), 10, at=at(-2.5))
        world.kafka.produce(tp(0), 10, at=at(-1.5))
        first, second = ([world.plan(claim(f"of-{end}"), until(end))] for end in (-2, -1))
        assert hours(done(world, second, name="of--1")) == []
        assert hours(done(world, first, name="of--2")) == [-2, -1]


def test_a_retry_after_the_commit_takes_nothing_from_windows_that_were_committed_since(world: World) -> None:
    first = world.ask(claim("of--2"), until(-2))
    done(world, first, name="of--2")
    done(world, world.ask(claim("of--1"), until(-1)), name="of--1")
    again = world.ask(claim("of--2"), until(-2))
    assert hours(done(world, again, name="of--2")) == [-2]


def test_a_window_that_the_cap_cuts_reaches_no_end(world: World) -> None:
    world.configure(until="data_interval_end", max_open_windows=3, max_offsets=4)
    work = done(world, world.ask(claim("of--2"), until(-2, at_most=2)), name="of--2")
    assert [p.window.is_capped for p in work._planned] == [True, True]
    assert hours(work) == []
    assert hours(done(world, world.ask(claim("of--1"), until(-2)), name="of--1")) == [-2]


def test_an_interval_without_a_record_counts_only_if_empty_windows_do(world: World) -> None:
    work = done(world, world.ask(claim("of--3"), until(-3)), name="of--3")
    assert hours(work) == []
    assert hours(work, emit_empty=True) == [-3]


@pytest.mark.parametrize(
    ("conf", "wanted"),
    [
        ({}, []),
        ({"trigger_consumers": False}, []),
        ({"trigger_consumers": True}, [-2]),
        ({"kafka_offsets": {"trigger_consumers": True, "windows": 1}}, [-2]),
    ],
)
def test_a_replay_and_a_clear_reach_an_end_again_only_if_their_run_asks_for_it(
    world: World, conf: dict[str, Any], wanted: list[float]
) -> None:
    done(world, world.ask(claim("of--2"), until(-2)), name="of--2")
    replay = world.ask(claim("replay"), Windows((1,)))
    assert hours(done(world, replay, name="replay", conf=conf)) == wanted
    cleared = world.ask(claim("of--2"), until(-2), last_clear=1)
    assert cleared[0].is_rerun
    assert hours(done(world, cleared, name="of--2", last_clear=1, conf=conf)) == wanted


def test_a_backfill_window_reaches_the_end_of_its_interval_only_if_its_run_asks_for_it(world: World) -> None:
    world.configure(until="data_interval_end", starting_offsets="latest")
    world.run(claim("live"))
    filled = world.ask(claim("fill"), TimeSpan(at(-3), at(-2), is_interval=True))
    assert [p.is_rerun for p in filled] == [False]
    work = done(world, filled, name="fill")
    assert hours(work) == []
    work._run = replace(work._run, conf={"trigger_consumers": True})
    assert hours(work) == [-2]


def test_a_group_that_is_not_cut_by_time_leaves_events_as_airflow_makes_them(world: World) -> None:
    world.configure()
    assert hours(done(world, world.ask(claim("now")), name="now")) is None
    assert hours(done(world, world.ask(claim("again"), Windows((1,))), name="again")) == []


@pytest.mark.parametrize("wrong", ["yes", 1, "true"])
def test_what_is_neither_true_nor_false_does_not_trigger_consumers(wrong: Any) -> None:
    with pytest.raises(BadInputError, match='"trigger_consumers" in the conf must be true or false'):
        triggers_consumers(Run(claim(), conf={"trigger_consumers": wrong}))
    assert isinstance(request_of(run_of("backfill", conf={"trigger_consumers": wrong}), BY_TIME), Refused)
    assert isinstance(request_of(run_of("manual", conf={"trigger_consumer": True}), BY_TIME), Refused), "misspelled"


LAKE = Asset("lake")


def emitted(
    ends: Sequence[datetime] | None, *, span: int = 10, partition: str | None = None, emit_empty: bool = False
) -> list[str | None] | None:
    """Return the keys of the events that Airflow gets of a task, None for one without a key; or None if there is no event."""
    from airflow.sdk.execution_time.task_runner import _serialize_outlet_events

    events = OutletEventAccessors()
    operator: Any = SimpleNamespace(outlets=[LAKE], retries=0)
    context = context_of(outlet_events=events, dag=DAG("orders", schedule="@hourly"))
    vars(context["dag_run"]).update(partition_key=partition)
    window: Any = SimpleNamespace(spec=Window, id="lake-000001", span=span)
    result = dict.fromkeys(("seq", "lane", "planned_until", "is_rerun", "ranges"))
    result |= {"window_id": window.id, "group": "lake", "span": span, "records": span}
    Task(operator, context).emit([window], [result], lambda **_: ends, emit_empty=emit_empty)
    if not operator.outlets:
        return None
    sent: list[Any] = list(_serialize_outlet_events(events))
    assert all(event["extra"]["windows"][0]["window_id"] == window.id for event in sent)
    return sorted((event.get("partition_key") for event in sent), key=str)


def test_consumers_of_partitions_get_an_event_with_a_key_and_others_get_one_without() -> None:
    assert emitted([NOON]) == [KEY_OF_ELEVEN, None]
    assert emitted([NOON, ELEVEN]) == ["2026-01-31T10:00:00", KEY_OF_ELEVEN, None]


@pytest.mark.parametrize("ends", [None, [], [at(-0.5)]])
def test_without_a_partition_that_is_complete_there_is_only_the_event_without_a_key(ends: Any) -> None:
    assert emitted(ends) == [None]


def test_in_the_run_of_a_partition_an_event_has_the_key_of_what_is_complete_or_there_is_none() -> None:
    assert emitted([NOON], partition=KEY_OF_ELEVEN) == [KEY_OF_ELEVEN]
    assert emitted([ELEVEN], partition=KEY_OF_ELEVEN) == ["2026-01-31T10:00:00"], "it adopted an earlier window"
    assert emitted([], partition=KEY_OF_ELEVEN) is None
    assert emitted(None, partition=KEY_OF_ELEVEN) == [None], "as Airflow makes it, which adds the run's key"


def test_an_empty_window_makes_no_event_without_a_key_but_others_that_waited_for_it_get_theirs() -> None:
    assert emitted([], span=0) is None
    assert emitted([NOON], span=0) == [KEY_OF_ELEVEN]
    assert emitted([NOON], span=0, emit_empty=True) == [KEY_OF_ELEVEN, None]


def test_a_task_without_outlets_does_not_ask_the_ledger() -> None:
    def never(**_: Any) -> None:
        raise AssertionError

    operator: Any = SimpleNamespace(outlets=[], retries=0)
    Task(operator, context_of()).emit([], [], never, emit_empty=False)
