"""What a task does with its windows, and what it logs: on a real ledger, with a Kafka in memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import tenacity
from airflow.sdk import Asset, AssetAlias
from airflow.sdk.execution_time.context import OutletEventAccessors

from airflow_kafka_offsets.adapters.registry import ConfluentRegistry
from airflow_kafka_offsets.airflow_versions import AirflowTaskTimeout, TaskDeferred
from airflow_kafka_offsets.core.conditions import WindowFree, condition_from_json
from airflow_kafka_offsets.core.errors import (
    BadInputError,
    DataLossError,
    KafkaOffsetsError,
    LedgerUnavailableError,
    StoreUnavailableError,
    TopicRecreatedError,
    WindowBusyError,
)
from airflow_kafka_offsets.core.evidence import Report
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.plan.request import Windows
from airflow_kafka_offsets.core.run import Run, Try
from airflow_kafka_offsets.core.schemas import Subject
from airflow_kafka_offsets.core.window import Outcome, State
from airflow_kafka_offsets.service.plan import Planned
from airflow_kafka_offsets.service.windows import WindowService
from airflow_kafka_offsets.task import plan as planning
from airflow_kafka_offsets.task.airflow import Task, event_extra
from airflow_kafka_offsets.task.definition import Stop
from airflow_kafka_offsets.task.links import WindowLink
from airflow_kafka_offsets.task.plan import named_window
from airflow_kafka_offsets.task.work import task_result
from tests.core.examples import NOON, claim, tp
from tests.lab.memory import IN_MEMORY
from tests.lab.registry import Registry
from tests.service.test_turns import before_the_turn
from tests.service.world import World, after_clear
from tests.stores.memory import MemoryStore
from tests.task.airflow import context_of, work_on

REPLAY, NEW = claim("replay"), claim("new")


@pytest.fixture
def world() -> Iterator[World]:
    """Return a world in which three windows are committed."""
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        world = World(Path(folder))
        for n in range(3):
            world.kafka.produce(tp(0), 10)
            world.run(claim(f"run-{n}"))
        yield world


def all_of(world: World, planned: list[Planned], job: Callable[[Planned], Report], **more: Any) -> list[dict[str, Any]]:
    """Let a task work on windows, as the operators do; `more` are its try, claim, stop, and whether it drives here."""
    run = Run(more.pop("claim", REPLAY), more.pop("this_try"), keeps_state=more.pop("keeps_state", False))
    return work_on(world.service, world.group, run, planned, job, **more)


def work(
    world: World,
    run: Callable[[Planned], Report],
    planned: list[Planned],
    *,
    last_clear: int = 0,
    stop: Stop | None = None,
) -> list[dict[str, Any]]:
    return all_of(world, planned, run, this_try=after_clear(last_clear), stop=stop)


def ask(world: World, last_clear: int = 0) -> list[Planned]:
    return world.ask(REPLAY, Windows((1, 2, 3)), last_clear=last_clear)


def test_a_retry_goes_on_where_the_try_before_it_stopped_and_a_clear_begins_again(world: World) -> None:
    ran: list[int] = []

    def run(planned: Planned) -> Report:
        ran.append(planned.window.seq)
        if ran == [1, 2]:
            raise RuntimeError("killed in the second window")
        return Report(planned.window.span)

    with pytest.raises(RuntimeError):
        work(world, run, ask(world))
    results = work(world, run, ask(world))
    assert ran == [1, 2, 2, 3]
    assert [(r["seq"], r["records"]) for r in results] == [(1, 10), (2, 10), (3, 10)]
    work(world, run, ask(world, last_clear=1), last_clear=1)
    assert ran == [1, 2, 2, 3, 1, 2, 3]


@pytest.mark.parametrize(
    ("cleared", "retry"),
    [
        (Try(2, 1 + 1, 1, NOON), Try(3, 1 + 1, 3, NOON)),  # retries=3 is deployed after the clear
        (Try(2, 1 + 0, 0, NOON), Try(3, 1 + 0, 0, NOON)),  # retries=0 before it: the number of tries is that of before
    ],
)
def test_editing_retries_does_not_bring_back_what_was_done_before_a_clear(
    world: World, cleared: Try, retry: Try
) -> None:
    world.kafka.produce(tp(0), 10)
    ran: list[int] = []

    def one_try(this_try: Try, *, fails: bool = False) -> None:
        def run(planned: Planned) -> Report:
            ran.append(this_try.number)
            if fails:
                raise RuntimeError("half-way through the sink")
            return Report(planned.window.span)

        all_of(world, world.ask(NEW, this_try=this_try), run, this_try=this_try, claim=NEW)

    one_try(Try(1, 1, 1, NOON))
    with pytest.raises(RuntimeError):
        one_try(cleared, fails=True)
    one_try(retry)
    assert ran == [1, 2, 3], "the sink holds a part of the window until its job has run again"


def test_a_task_that_is_stopped_starts_nothing_more_and_commits_nothing(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    stop = Stop()

    def run(planned: Planned) -> Report:
        stop.set()  # on_kill, in the middle of the job
        return Report(planned.window.span)

    planned = world.ask(REPLAY)
    with pytest.raises(KafkaOffsetsError, match="nothing is committed"):
        work(world, run, planned, stop=stop)
    row = world.ledger.window(planned[0].window.id)
    assert row.window.state is State.PLANNED
    assert [a.outcome.value for a in world.ledger.attempts(row.window.id)] == ["killed"]
    with pytest.raises(KafkaOffsetsError, match="nothing more is launched"):
        work(world, lambda p: pytest.fail("it ran"), world.ask(REPLAY), stop=stop)


def test_a_topic_that_is_recreated_while_the_job_runs_is_noticed_before_the_commit(world: World) -> None:
    world.kafka.produce(tp(0), 10)

    def run(planned: Planned) -> Report:
        world.kafka.recreate("orders", 2)
        world.kafka.produce(tp(0), 50)  # so its offsets look plausible
        return Report(planned.window.span)

    with pytest.raises(TopicRecreatedError, match="topic orders was recreated"):
        all_of(world, world.ask(NEW), run, this_try=Try(), claim=NEW)
    assert world.service.ledger.window("lake-000004").window.state is State.PLANNED
    assert [attempt.outcome for attempt in world.service.ledger.attempts("lake-000004")] == [Outcome.FAILED]


def test_a_job_is_told_how_many_records_the_last_successful_run_that_told_has_read(world: World) -> None:
    counts: list[int | None] = []
    reports = iter([Report(10), Report(7), Report(None), RuntimeError("failed"), Report(10)])

    def run(planned: Planned) -> Report:
        counts.append(planned.read_before)
        report = next(reports)
        if isinstance(report, Exception):
            raise report
        return report

    for clear in range(5):
        try:
            work(world, run, world.ask(REPLAY, Windows((1,)), last_clear=clear), last_clear=clear)
        except RuntimeError:
            continue
    assert counts == [10, 10, 7, 7, 7]


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (Report(10, took_window=True), "10 records read of 10 offsets"),
        (Report(4, took_window=True), "4 records read of 10 offsets; 6 offsets (60.0 %) gave none"),
        (Report(10, took_window=True, bad=2), "10 records read of 10 offsets; 2 records could not be decoded"),
        (
            Report(took_window=False),
            "never called current_window(); the only evidence is exit code 0",
        ),
        (Report(took_window=True), "it succeeded, and reported no count"),
        (Report(took_window=None), "it succeeded, and reported no count"),
        (Report(written=False, took_window=True), "an earlier run had written it"),
    ],
)
def test_the_log_of_the_task_says_what_the_commit_rests_on(
    world: World, caplog: pytest.LogCaptureFixture, report: Report, words: str
) -> None:
    caplog.set_level("INFO")
    work(world, lambda _: report, world.ask(REPLAY, Windows((2,))))
    last = caplog.records[-1].getMessage()
    assert last.startswith("Window lake-000002: run again")
    assert words in last
    assert sum(words in record.getMessage() for record in caplog.records) == 1, "it is told once"


def test_a_time_out_is_a_failure_and_no_kill_by_a_person(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    stop = Stop()

    def run(planned: Planned) -> Report:
        stop.set()  # as on_kill does
        raise AirflowTaskTimeout

    planned = world.ask(REPLAY)
    with pytest.raises(AirflowTaskTimeout):
        work(world, run, planned, stop=stop)
    assert [a.outcome.value for a in world.ledger.attempts(planned[0].window.id)] == ["failed"]


def test_a_result_is_the_window_or_all_of_them(world: World) -> None:
    results = work(world, lambda p: Report(p.window.span), ask(world))
    assert task_result(world.group, results[:1]) == results[0]
    assert task_result(world.group, results) == {"group": "lake", "windows": results}


def test_outlets_say_which_windows_were_committed_and_empty_ones_make_no_event(world: World) -> None:
    lake, alias = Asset("lake"), AssetAlias("alias")
    planned = ask(world)
    results, windows = work(world, lambda p: Report(p.window.span), planned), [p.window for p in planned]
    events = OutletEventAccessors()
    events[lake].extra["mine"] = 1
    operator: Any = SimpleNamespace(outlets=[lake, alias], retries=0)
    task = Task(operator, context_of(outlet_events=events))
    task.emit(windows, results, lambda **_: None, emit_empty=False)
    assert events[lake].extra == {"mine": 1, **event_extra(results)}
    assert events[alias].extra == {}
    assert [(w["window_id"], w["is_rerun"]) for w in events[lake].extra["windows"]] == [
        (f"lake-00000{n}", True) for n in (1, 2, 3)
    ]
    empty = [{**results[0], "span": 0}]
    task.emit(windows, empty, lambda **_: None, emit_empty=True)
    assert operator.outlets == [lake, alias]
    task.emit(windows, empty, lambda **_: None, emit_empty=False)
    assert operator.outlets == []


def test_who_waits_says_first_that_it_waits_and_then_for_whom(caplog: pytest.LogCaptureFixture) -> None:
    group = KafkaGroup("lake", topics=["orders"], ledger_conn_id="ours")
    operator: Any = SimpleNamespace(on_open_window="wait", poll_interval=5.0, group=group, execution_timeout=None)
    service: Any = SimpleNamespace(plan=Mock(side_effect=WindowBusyError("lake-000001", claim("other"))))
    with pytest.raises(TaskDeferred) as deferred, caplog.at_level("INFO"):
        planning.plan(operator, Run(REPLAY), service)
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("Waiting: Window lake-000001 is being worked on by dag/other/load.")
    assert line.endswith("\n    kafka-offsets abandon lake-000001 --why '...'")
    trigger: Any = deferred.value.trigger
    assert condition_from_json(trigger.condition) == WindowFree(("lake-000001",), False, "ours")


def test_a_window_is_named_by_its_id_or_by_what_a_plan_task_returned() -> None:
    assert named_window("lake-000001") == ("lake-000001", None)
    assert named_window({"window_id": "lake-000001", "ledger_conn_id": "l"}) == ("lake-000001", "l")
    for wrong in (None, 7, {}, ["lake-000001"]):
        with pytest.raises(BadInputError, match=r"plan\.output"):
            named_window(wrong)


def test_a_try_that_fails_has_the_link_to_its_window(world: World) -> None:
    def run(planned: Planned) -> Report:
        raise RuntimeError("half-way through the sink")

    world.kafka.produce(tp(0), 10)
    operator: Any = SimpleNamespace(retries=1)
    task, planned = Task(operator, context_of(NEW, Try(1, 1, 1, NOON))), world.ask(NEW)
    task.show([p.window for p in planned])
    with pytest.raises(RuntimeError):
        all_of(world, planned, run, this_try=task.run.this_try, claim=NEW)
    # Airflow asks for the link when a try has ended, however it did.
    ti: Any = SimpleNamespace(dag_id="orders", run_id="manual__1", task_id="load", map_index=-1)
    assert WindowLink().get_link(operator, ti_key=ti).endswith("kafka-offsets/windows/lake-000004")


def test_a_job_gets_the_schemas_that_its_window_has_when_its_attempt_begins(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Registry() as registry:
        registry.register("orders-value", '"long"')
        world.configure(registry="registry")
        world.service = WindowService(world.ledger, world.kafka, registry=ConfluentRegistry(registry.url, "registry"))
        world.kafka.produce(tp(0), 10)
        planned = world.ask(NEW)
    newer, seen = {"orders-value": Subject("AVRO", 102, {102: '"string"'})}, []

    def freeze() -> None:
        world.ledger.freeze([(world.ledger.window(planned[0].window.id).window, newer)])

    def run(planned: Planned) -> Report:
        seen.append(planned.frozen)
        return Report(planned.window.span)

    before_the_turn(world, monkeypatch, freeze, at="start_attempt")
    all_of(world, planned, run, this_try=Try(), claim=NEW)
    assert seen == [newer]


@pytest.mark.parametrize(
    ("drives_here", "keeps_state", "outcome", "is_warned"),
    [
        pytest.param(True, False, None, True, id="its worker may have ended without it"),
        pytest.param(True, False, Outcome.FAILED, False, id="it ended, and said so"),
        pytest.param(True, True, None, False, id="this Airflow asks the task to stop"),
        pytest.param(False, False, None, False, id="a driver in a cluster is found there"),
    ],
)
def test_a_try_warns_of_the_job_of_the_one_before_that_may_still_run_on_another_worker(
    world: World,
    caplog: pytest.LogCaptureFixture,
    drives_here: bool,
    keeps_state: bool,
    outcome: Outcome | None,
    is_warned: bool,
) -> None:
    world.kafka.produce(tp(0), 10)
    before = world.service.start_attempt(world.plan(NEW).window, NEW, Try(1, 1, 1, NOON))
    if outcome is not None:
        world.service.end_attempt(before, outcome)
    again = Try(2, 1, 1, NOON)
    more: Any = {"claim": NEW, "drives_here": drives_here, "keeps_state": keeps_state}
    all_of(world, world.ask(NEW, this_try=again), lambda p: Report(p.window.span), this_try=again, **more)
    warned = [line for line in caplog.messages if "try 1 of new has no recorded end" in line]
    assert len(warned) == is_warned
    assert all("lake-000004" in line for line in warned)


@pytest.mark.parametrize("error", [LedgerUnavailableError("no answer"), AirflowTaskTimeout("too late")])
def test_a_ledger_that_is_away_for_this_warning_does_not_fail_the_try_and_an_end_of_the_task_meanwhile_is_recorded(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    world.kafka.produce(tp(0), 10)
    planned = world.ask(NEW)
    attempts = world.ledger.attempts

    def away(window_id: str) -> Any:
        monkeypatch.setattr(world.ledger, "attempts", attempts)
        raise error

    before_the_turn(world, monkeypatch, lambda: monkeypatch.setattr(world.ledger, "attempts", away), at="start_attempt")
    is_fatal = not isinstance(error, KafkaOffsetsError)
    with pytest.raises(AirflowTaskTimeout) if is_fatal else contextlib.nullcontext():
        all_of(world, planned, lambda p: Report(p.window.span), this_try=Try(), claim=NEW, drives_here=True)
    [attempt] = world.service.ledger.attempts("lake-000004")
    assert attempt.outcome is (Outcome.FAILED if is_fatal else Outcome.SUCCEEDED)
    assert is_fatal != any("Unknown whether the job of an earlier try" in line for line in caplog.messages)


def test_a_deferred_task_goes_on_in_the_same_attempt_and_its_log_says_nothing_of_a_failure(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    world.kafka.produce(tp(0), 10)

    def give_slot_back(_: Planned) -> Report:
        raise TaskDeferred(trigger=Mock(), method_name="reconnect")

    this_try = Try(1, 1, 1, NOON)
    with pytest.raises(TaskDeferred):
        all_of(world, world.ask(NEW, this_try=this_try), give_slot_back, this_try=this_try, claim=NEW)
    [attempt] = world.ledger.attempts("lake-000004")
    assert attempt.outcome is Outcome.RUNNING
    assert "not committed" not in caplog.text
    assert "job:" not in caplog.text

    resumed = replace(this_try, is_resumed=True)
    planned = world.ask(NEW, this_try=resumed)
    assert [(p.window.id, p.warnings) for p in planned] == [("lake-000004", ())], "not a run that was made again"
    all_of(world, planned, lambda p: Report(p.window.span), this_try=resumed, claim=NEW)
    [after] = world.ledger.attempts("lake-000004")
    assert (after.id, after.outcome) == (attempt.id, Outcome.SUCCEEDED)
    assert world.ledger.window("lake-000004").state is State.COMMITTED


def test_records_that_expire_while_the_driver_runs_do_not_cost_a_resumed_task_its_commit(world: World) -> None:
    world.kafka.produce(tp(0), 10)

    def give_slot_back(_: Planned) -> Report:
        raise TaskDeferred(trigger=Mock(), method_name="reconnect")

    this_try = Try(1, 1, 1, NOON)
    with pytest.raises(TaskDeferred):
        all_of(world, world.ask(NEW, this_try=this_try), give_slot_back, this_try=this_try, claim=NEW)
    world.kafka.expire(tp(0), world.ledger.window("lake-000004").window.ranges[tp(0)].end)
    with pytest.raises(DataLossError):
        world.ask(NEW, this_try=this_try)  # a job that begins now would not find them
    resumed = replace(this_try, is_resumed=True)
    all_of(world, world.ask(NEW, this_try=resumed), lambda p: Report(p.window.span), this_try=resumed, claim=NEW)
    assert world.ledger.window("lake-000004").state is State.COMMITTED


def test_a_replay_that_gave_its_slot_back_at_its_second_window_does_not_run_the_first_again(world: World) -> None:
    ran: list[str] = []
    both = world.ask(REPLAY, Windows((1, 2)), this_try=Try(1, 1, 1, NOON))

    def second_is_deferred(planned: Planned) -> Report:
        ran.append(planned.window.id)
        if len(ran) == 2:
            raise TaskDeferred(trigger=Mock(), method_name="reconnect")
        return Report(planned.window.span)

    with pytest.raises(TaskDeferred):
        all_of(world, both, second_is_deferred, this_try=Try(1, 1, 1, NOON))
    resumed = Try(1, 1, 1, NOON, is_resumed=True)
    all_of(world, world.ask(REPLAY, Windows((1, 2)), this_try=resumed), second_is_deferred, this_try=resumed)
    assert ran == ["lake-000001", "lake-000002", "lake-000002"]
    for window_id in ("lake-000001", "lake-000002"):
        of_run, of_replay = world.ledger.attempts(window_id)
        assert (of_run.outcome, of_replay.outcome) == (Outcome.SUCCEEDED, Outcome.SUCCEEDED)


class Clock:
    """The time of a task that waits for an answer; `at_pause` gets the number of each pause."""

    def __init__(self, at_pause: Callable[[int], None]) -> None:
        self.now = 0.0
        self._pauses = 0
        self._at_pause = at_pause

    def monotonic(self) -> float:
        """Return the time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        self._pauses += 1
        self._at_pause(self._pauses)


class Away:
    """An offset store or a ledger that does not answer a commit, until it is back after so many pauses, or never if None."""

    def __init__(self, world: World, what: str, back_after: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock(lambda pause: self._come_back() if pause == back_after else None)
        self._world = world
        self._is_store = what == "offset store"
        self._monkeypatch = monkeypatch
        self._commit = world.ledger.commit
        monkeypatch.setattr(tenacity, "time", self.clock)
        monkeypatch.setattr(tenacity.nap, "time", self.clock)

    def go(self) -> None:
        """Be away from now on."""
        assert self._world.store is not None
        if self._is_store:
            self._world.store.failure = StoreUnavailableError("no answer")
        else:
            silent = Mock(side_effect=LedgerUnavailableError("no answer"))
            self._monkeypatch.setattr(self._world.ledger, "commit", silent)

    def _come_back(self) -> None:
        assert self._world.store is not None
        self._world.store.failure = None
        self._monkeypatch.setattr(self._world.ledger, "commit", self._commit)


@pytest.fixture
def with_store() -> Iterator[World]:
    """Return a world with an offset store and ten records to read."""
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        world = World(Path(folder), MemoryStore())
        world.kafka.produce(tp(0), 10)
        yield world


def commit_without_answer(world: World, away: Away) -> None:
    """Let a task run its job, and get no answer to its commit."""

    def run(planned: Planned) -> Report:
        away.go()
        return Report(planned.window.span)

    all_of(world, world.ask(NEW), run, this_try=Try(), claim=NEW)


@pytest.mark.parametrize("what", ["offset store", "ledger"])
def test_an_answer_to_the_commit_that_is_late_by_seconds_costs_no_retry(
    with_store: World, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    away = Away(with_store, what, 3, monkeypatch)
    commit_without_answer(with_store, away)
    assert away.clock.now > 0
    assert with_store.service.ledger.window("lake-000001").window.state is State.COMMITTED
    assert [attempt.outcome for attempt in with_store.service.ledger.attempts("lake-000001")] == [Outcome.SUCCEEDED]
    assert with_store.store is not None
    assert with_store.store.groups["lake"][tp(0)] == 10


@pytest.mark.parametrize(
    ("what", "error", "stays"),
    [("offset store", StoreUnavailableError, State.COMMITTING), ("ledger", LedgerUnavailableError, State.PLANNED)],
)
def test_a_commit_without_an_answer_is_tried_for_a_minute_and_then_the_task_fails(
    with_store: World, monkeypatch: pytest.MonkeyPatch, what: str, error: type[Exception], stays: State
) -> None:
    away = Away(with_store, what, None, monkeypatch)
    with pytest.raises(error):
        commit_without_answer(with_store, away)
    assert 60 <= away.clock.now < 70, "a pause before the last question is at most ten seconds"
    assert with_store.service.ledger.window("lake-000001").window.state is stays
    assert with_store.watermark == {0: 0, 1: 0}
