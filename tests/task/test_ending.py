"""How the log of a task ends, whatever happens to it: on a real ledger, with a Kafka and an offset store in memory."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import Mock

import pytest

from airflow_kafka_offsets import (
    CommitWindowOperator,
    KafkaSparkSubmitOperator,
    PlanBacklogOperator,
    PlanWindowOperator,
    wiring,
)
from airflow_kafka_offsets.airflow_versions import (
    NO_TASK_STATE,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTerminated,
    AirflowTaskTimeout,
    mask_secret,
)
from airflow_kafka_offsets.core.errors import (
    BadInputError,
    JobUnseenError,
    KafkaOffsetsError,
    KafkaRefusedError,
    KafkaUnavailableError,
    LedgerSchemaError,
    LedgerUnavailableError,
    MissingPartitionError,
    NoEvidenceError,
    OutputError,
    StoreOutcomeUnknownError,
    StoreRefusedError,
    StoreUnavailableError,
    TopicRecreatedError,
    WindowBusyError,
)
from airflow_kafka_offsets.core.evidence import Report
from airflow_kafka_offsets.core.run import Run, Try
from airflow_kafka_offsets.core.window import Claim, Scope, State
from airflow_kafka_offsets.service.plan import Planned
from airflow_kafka_offsets.spark.errors import LostRecordsError
from airflow_kafka_offsets.task import plan as planning
from airflow_kafka_offsets.task import work
from airflow_kafka_offsets.task.airflow import Task
from airflow_kafka_offsets.task.definition import Stop
from airflow_kafka_offsets.task.plan import log_failure_before_window
from tests.core.examples import NOON, claim, group, tp
from tests.lab.memory import IN_MEMORY
from tests.operators.logs import as_logged
from tests.service.world import World
from tests.stores.memory import MemoryStore
from tests.task.airflow import context_of, work_on
from tests.versions import needs_retry_policies, needs_task_state

PAGE = Path(__file__).parents[2] / "docs" / "guarantees.md"
LOAD = claim("run")
FIRST, SECOND, LAST = (Try(number, 2, 2, NOON) for number in (1, 2, 3))
CLEARED = Try(2, 3, 2, NOON)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Return a world with ten records to read in each of two partitions, and no patience with what does not answer."""
    monkeypatch.setattr(planning, "PATIENCE", 0)
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        world = World(Path(folder), MemoryStore())
        for partition in range(2):
            world.kafka.produce(tp(partition), 10)
        yield world


def task(
    world: World,
    run: Callable[[Planned], Report],
    this_try: Try = FIRST,
    stop: Stop | None = None,
    *,
    has_policy: bool = False,
) -> None:
    """Let a try of the task plan and work."""
    airflow = Run(LOAD, this_try, has_retry_policy=has_policy)
    work_on(world.service, world.group, airflow, world.ask(LOAD, this_try=this_try), run, stop)


def read(planned: Planned) -> Report:
    return Report(planned.window.span, took_window=True)


def fail(planned: Planned) -> Report:
    raise RuntimeError("half-way")


def raised(error: OSError) -> OSError:
    """Return an error as someone has caught it: without a traceback, no log shows it."""
    with pytest.raises(OSError, match=str(error)):
        raise error
    return error


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_what_spark_says_is_folded_and_the_window_stands_below(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    task(world, read)
    messages = logged(caplog)
    fold = messages.index("::group::Spark, on 1 window: lake-000001")
    assert fold < messages.index("Window lake-000001: committed") < messages.index("::endgroup::")
    assert messages.index("::endgroup::") == len(messages) - 2
    assert messages[-1].startswith("Window lake-000001: committed\n    offsets: 20 offsets in 2 partitions\n")
    assert messages[-1].endswith("job: 20 records read of 20 offsets")


def test_a_quiet_run_folds_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.run(claim("before"))
    caplog.set_level("INFO")
    task(world, fail)
    assert not any("group::" in message for message in logged(caplog))
    assert logged(caplog)[-1].startswith("Window lake-000002: committed\n    offsets: none\n")


@pytest.mark.parametrize(
    ("this_try", "error", "says"),
    [
        (FIRST, RuntimeError("half-way"), "next: Airflow starts try 2 of this task: the job runs again"),
        (LAST, RuntimeError("half-way"), "next: no retry is left. The next run adopts the window"),
        (FIRST, AirflowFailException("no"), "next: no retry is left."),
        (FIRST, AirflowSensorTimeout("no"), "next: no retry is left."),
        (FIRST, AirflowTaskTerminated("no"), "next: no retry is left."),
        (FIRST, BadInputError("no"), "next: no retry is left."),
        (FIRST, JobUnseenError("no"), "next: no retry is left."),
    ],
)
def test_a_failure_says_what_is_open_and_what_comes_next(
    world: World, caplog: pytest.LogCaptureFixture, this_try: Try, error: BaseException, says: str
) -> None:
    def run(planned: Planned) -> Report:
        raise error

    with pytest.raises(type(error)):
        task(world, run, this_try)
    last = caplog.records[-1]
    assert last.levelname == "ERROR"
    assert last.getMessage().startswith("Window lake-000001: not committed\n")
    assert says in last.getMessage()
    assert "type: kafka-offsets windows lake-000001" in last.getMessage()


def test_a_skip_is_no_failure_and_promises_no_retry(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    def skip(planned: Planned) -> Report:
        raise AirflowSkipException("not today")

    with pytest.raises(AirflowSkipException):
        task(world, skip)
    last = caplog.records[-1]
    assert last.levelname == "INFO"
    assert "next: no retry is left. The next run adopts" in last.getMessage()


def test_what_can_not_be_told_changes_nothing(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(world.ledger, "window", break_)
    with pytest.raises(RuntimeError, match="half-way"):
        task(world, fail)
    assert "The log can't show what became of" in caplog.text


def test_a_task_that_was_stopped_promises_no_retry(world: World, caplog: pytest.LogCaptureFixture) -> None:
    stop = Stop()

    def run(planned: Planned) -> Report:
        stop.set()  # as on_kill does
        raise RuntimeError("the driver was killed")

    with pytest.raises(RuntimeError):
        task(world, run, stop=stop)
    end = "next: Airflow starts try 2 of this task, unless a person stopped it: the job runs again"
    assert end in logged(caplog)[-1]


def test_a_sibling_that_has_the_window_now_is_named_and_a_retry_is_not_promised_to_commit(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    sibling = claim("run", map_index=1)

    def lose_it(planned: Planned) -> Report:
        world.die(LOAD)
        world.service.take(world.group, planned.window.id, sibling, world.over.__contains__)
        return read(planned)

    with pytest.raises(WindowBusyError):
        task(world, lose_it)
    end = logged(caplog)[-1]
    assert "dag/run/load[1] has it" in end
    assert "next: dag/run/load[1] commits it\n" in end


def test_each_try_records_and_names_the_version_of_the_bundle_that_it_ran(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(RuntimeError):
        task(world, fail, replace(LAST, bundle_version="3f2a"))
    assert "\n    code: bundle version 3f2a. A retry and a clear run it again; " in logged(caplog)[-1]
    task(world, read, replace(CLEARED, number=4, bundle_version="77c0"))
    assert logged(caplog)[-1].endswith("\n    code: bundle version 77c0")
    assert [a.bundle_version for a in world.ledger.attempts("lake-000001")] == ["3f2a", "77c0"]


def test_a_later_try_that_goes_on_is_named(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def be_taken_for_dead(planned: Planned) -> Report:
        [again] = world.ask(LOAD, this_try=SECOND)
        world.service.start_attempt(again.window, LOAD, SECOND)
        return read(planned)

    with pytest.raises(NoEvidenceError, match="a later attempt"):
        task(world, be_taken_for_dead)
    assert "next: try 2 of this task commits it\n" in logged(caplog)[-1]


@pytest.mark.parametrize("other", [claim("other"), None])
def test_a_window_that_was_committed_by_somebody_else_is_told_as_that(
    world: World, caplog: pytest.LogCaptureFixture, other: Claim | None
) -> None:
    def be_overtaken(planned: Planned) -> Report:
        world.die(LOAD)
        if other is None:
            world.service.commit_by_hand(planned.window.id, "ann", "its output is complete")
        else:
            world.run(other)
        return fail(planned)

    with pytest.raises(RuntimeError):
        task(world, be_overtaken)
    end = logged(caplog)[-1]
    assert end.startswith("Window lake-000001: committed meanwhile\n")
    ran: list[int] = []
    task(world, lambda planned: ran.append(planned.window.seq) or read(planned), SECOND)
    assert ran == [1], "its job runs again: no success of this task is recorded"
    assert "next: Airflow starts try 2" in end or other is not None
    assert ("dag/other/load" in end) == (other is not None)


def test_a_window_that_this_task_committed_before_it_was_timed_out_is_told_as_committed(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = world.service.commit

    def commit_and_be_timed_out(*args: Any) -> bool:
        commit(*args)
        raise AirflowTaskTimeout

    monkeypatch.setattr(world.service, "commit", commit_and_be_timed_out)
    with pytest.raises(AirflowTaskTimeout):
        task(world, read)
    end = logged(caplog)[-1]
    assert end.startswith("Window lake-000001: committed by this try\n")
    assert "next: nothing\n" in end
    monkeypatch.undo()
    task(world, fail, SECOND)


def test_a_rerun_whose_commit_fails_says_that_its_job_is_done(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(LOAD)

    def refuse(*_: Any) -> bool:
        raise OutputError("the table has no such column")

    monkeypatch.setattr(world.service, "commit", refuse)
    with pytest.raises(OutputError):
        task(world, read, CLEARED)
    end = logged(caplog)[-1]
    assert end.startswith("Window lake-000001: its rerun did not finish\n")
    assert "may be incomplete" not in end
    assert "job: 20 records read" in end
    assert "it only commits" in end


@pytest.mark.parametrize(
    "error", [TopicRecreatedError("recreated"), LostRecordsError("Kafka no longer holds all offsets of the window")]
)
def test_what_kafka_no_longer_has_is_not_promised_to_be_read_again(
    world: World, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def run(planned: Planned) -> Report:
        raise error

    with pytest.raises(type(error)):
        task(world, run)
    assert "next: a person decides, as the error says" in logged(caplog)[-1]
    assert "runs again" not in logged(caplog)[-1]


def test_a_task_that_was_stopped_does_not_wait_for_the_ledger(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Stop()

    def run(planned: Planned) -> Report:
        monkeypatch.setattr(world.ledger, "window", lambda _: pytest.fail("it was asked"))
        stop.set()  # as on_kill does; in five seconds Airflow kills the process
        raise RuntimeError("the driver was killed")

    with pytest.raises(RuntimeError):
        task(world, run, stop=stop)
    end = logged(caplog)[-1]
    assert end.startswith("Window lake-000001: not known to be committed\n")
    assert "now: the task was stopped" in end


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (LedgerUnavailableError("no answer from postgres"), "now: no answer from postgres"),
        (
            LedgerSchemaError("the tables are of version 3: kafka-offsets db upgrade"),
            "now: the tables are of version 3",
        ),
    ],
)
@pytest.mark.parametrize("question", ["window", "attempts"])
def test_why_the_ledger_does_not_say_is_told(
    world: World,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    question: str,
    error: Exception,
    says: str,
) -> None:
    def run(planned: Planned) -> Report:
        monkeypatch.setattr(world.ledger, question, Mock(side_effect=error))
        return fail(planned)

    with pytest.raises(RuntimeError):
        task(world, run)
    assert says in logged(caplog)[-1]


@needs_retry_policies
def test_a_retry_that_a_policy_may_refuse_is_not_promised(world: World, caplog: pytest.LogCaptureFixture) -> None:
    from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule

    policy = ExceptionRetryPolicy(rules=[RetryRule(RuntimeError, RetryAction.FAIL)])
    operator = PlanWindowOperator(task_id="plan", group=world.group, retry_policy=policy)
    with pytest.raises(RuntimeError):
        task(world, fail, has_policy=Task(operator, context_of()).run.has_retry_policy)
    assert "next: Airflow starts try 2 of this task, unless its retry policy says no: the job" in logged(caplog)[-1]


@pytest.mark.parametrize(
    ("options", "store", "says"),
    [
        pytest.param(
            {"yarn_track_via_rm_api": True},
            object(),
            "it continues with the driver; if that is gone, the job runs",
            marks=needs_task_state,
        ),
        ({"yarn_track_via_rm_api": True}, None, "try 2 of this task: the job runs again"),  # Airflow notes no driver
        ({"durable": False}, object(), "try 2 of this task: the job runs again"),
        ({"durable": False}, None, "try 2 of this task: the job runs again"),
        ({"deploy_mode": "client"}, None, "try 2 of this task: the job runs again"),
    ],
)
def test_where_a_retry_can_reconnect_to_the_driver_it_is_not_told_to_run_the_job_again(
    world: World,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    store: object,
    says: str,
) -> None:
    rm = {"yarn_resourcemanager_webapp_address": "http://rm:8088", "deploy-mode": "cluster"}
    yarn = {"conn_type": "spark", "host": "yarn", "extra": rm}
    monkeypatch.setenv("AIRFLOW_CONN_YARN", json.dumps(yarn))
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", '{"conn_type": "kafka", "extra": {"bootstrap.servers": "b:9092"}}')
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setattr(wiring, "open_service", lambda _: world.service)
    operator = KafkaSparkSubmitOperator(
        task_id="load", group=world.group, application="local:///job.py", conn_id="yarn", connector=None, **options
    )
    # No YARN is needed to see the log about a driver that failed.
    monkeypatch.setattr(operator, "_launch", lambda _task, _launch, planned, *_: fail(planned))
    context = context_of(LOAD, task_state_store=store)
    caplog.set_level("INFO")
    with pytest.raises(RuntimeError):
        operator.execute(context)
    assert says in logged(caplog)[-1]
    notice = f"{NO_TASK_STATE}: a retry stops the driver, and starts another"
    assert (notice in logged(caplog)) == (store is None and "deploy_mode" not in options)


def test_a_retry_that_takes_an_earlier_success_says_so(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    def read_and_lose_the_store(planned: Planned) -> Report:
        world.store.failure = StoreUnavailableError("no answer")
        return read(planned)

    with pytest.raises(StoreUnavailableError):
        task(world, read_and_lose_the_store)
    assert logged(caplog)[-1].startswith("Window lake-000001: its commit has begun\n")
    assert "next: Airflow starts try 2 of this task: it only commits" in logged(caplog)[-1]
    world.store.failure = None
    task(world, fail, SECOND)
    assert logged(caplog)[-1].startswith("Window lake-000001: committed\n")
    assert logged(caplog)[-1].endswith("job: try 1 of this task had run it (20 records read)")


def test_a_ledger_that_does_not_answer_is_not_asked_again(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: Any, **__: Any) -> None:
        raise LedgerUnavailableError("no answer")

    monkeypatch.setattr(world.service, "commit", silent)
    monkeypatch.setattr(world.ledger, "window", lambda _: pytest.fail("it was asked again"))
    with pytest.raises(LedgerUnavailableError):
        task(world, read)
    assert logged(caplog)[-1].startswith("Window lake-000001: not known to be committed\n")
    assert "job: 20 records read of 20 offsets" in logged(caplog)[-1]


def test_the_tasks_around_another_launcher_end_alike(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(wiring, "open_service_for", lambda *_: world.service)
    connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": "kafka:9092"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(connection))
    planner = claim("around", "plan", scope=Scope.RUN)
    window = world.plan(planner).window
    operator = CommitWindowOperator(task_id="commit", window=window.id)
    context = context_of(claim("around", "commit"))
    world.store.failure = StoreUnavailableError("no answer")
    with pytest.raises(StoreUnavailableError):
        operator.execute(context)
    assert logged(caplog)[-1].startswith("Window lake-000001: its commit has begun\n")
    world.store.failure = None
    operator.execute(context)
    assert logged(caplog)[-1].startswith("Window lake-000001: committed\n    offsets: 20 offsets in 2 partitions\n")
    assert "another launcher ran it, without a report" in logged(caplog)[-1]
    assert not any("group::" in message for message in logged(caplog)), "there is nothing to fold"
    assert world.ledger.window(window.id).window.state is State.COMMITTED


@pytest.mark.parametrize(
    "error",
    [
        KafkaUnavailableError("no answer"),
        KafkaRefusedError("wrong password"),
        StoreUnavailableError("no answer"),
        StoreOutcomeUnknownError("silent while it wrote"),
        StoreRefusedError("wrong password"),
        LedgerUnavailableError("no answer"),
    ],
)
def test_who_does_not_answer_or_says_no_before_there_is_a_window_is_told_with_one_traceback(
    error: KafkaOffsetsError, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    cause = raised(OSError("in the words of the client"))
    with pytest.raises(type(error)) as caught, log_failure_before_window(Run(LOAD, FIRST), "lake"):
        raise error from cause
    assert len(as_logged(caught.value)) == 1
    of_client = caplog.records.pop()
    assert (of_client.levelname, of_client.exc_info and of_client.exc_info[1]) == ("DEBUG", cause)
    [last] = logged(caplog)
    assert (
        last == f"This try got no window of group lake\n    error: {error}\n    next: Airflow starts try 2 of this task"
    )


def test_an_error_after_there_is_a_window_keeps_its_causes(world: World) -> None:
    def read_and_lose_the_store(planned: Planned) -> Report:
        world.store.failure = StoreUnavailableError("no answer")
        world.store.failure.__cause__ = raised(OSError("in the words of the client"))
        return read(planned)

    with pytest.raises(StoreUnavailableError) as caught:
        task(world, read_and_lose_the_store)
    assert [stack.exc_type for stack in as_logged(caught.value)] == ["StoreUnavailableError", "OSError"]


def test_a_task_whose_topic_is_missing_ends_as_the_page_shows_it(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.kafka.delete("orders")
    monkeypatch.setattr(wiring, "open_service", lambda _: world.service)
    context = context_of(Claim("orders", "run", "plan"))
    with pytest.raises(MissingPartitionError):
        PlanWindowOperator(task_id="plan", group=group("lake.orders")).execute(context)
    assert "This try got no window of group lake.orders\n" in logged(caplog)[-1]
    assert f"```\n{logged(caplog)[-1]}\n```" in PAGE.read_text()


def test_a_plan_task_that_finds_nothing_new_ends_alike(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(claim("before", "plan", scope=Scope.RUN))
    caplog.set_level("INFO")
    monkeypatch.setattr(wiring, "open_service", lambda _: world.service)
    monkeypatch.setattr(planning, "plan", lambda *_, **__: world.ask(claim("quiet", "plan", scope=Scope.RUN)))
    context = context_of(claim("quiet", "plan"))
    with pytest.raises(Exception, match="nothing to launch"):
        PlanWindowOperator(task_id="plan", group=world.group).execute(context)
    assert logged(caplog)[-1].startswith("Window lake-000002: committed\n    offsets: none\n")


def test_a_plan_task_ends_with_what_it_hands_off(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(wiring, "open_service", lambda _: world.service)
    context = context_of(claim("run", "plan"), Try(1, 0))
    plan_output = PlanWindowOperator(task_id="plan", group=world.group).execute(context)
    head = "Window lake-000001: planned\n    offsets: 20 offsets in 2 partitions\n"
    assert logged(caplog)[-1].startswith(head)
    caplog.clear()
    PlanWindowOperator(task_id="plan", group=world.group, window=plan_output).execute(context)
    assert logged(caplog)[-1].startswith(head)


def test_an_empty_window_that_was_handed_off_is_committed_and_leaves_nothing_to_launch(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "open_service", lambda _: world.service)
    context = context_of(claim("late", "plan"), Try(1, 0))
    early, late = (Claim("dag", name, "plan", scope=Scope.RUN) for name in ("early", "late"))
    [full] = world.service.plan(world.group, early, lambda _: True)
    world.service.commit(full.window.id, early)
    [empty] = world.service.plan(world.group, late, lambda _: True)
    assert not empty.window.span
    with pytest.raises(AirflowSkipException, match="empty and committed"):
        PlanWindowOperator(task_id="plan", group=world.group, window=empty.window.id).execute(context)
    assert world.service.ledger.window(empty.window.id).window.state is State.COMMITTED


def test_the_block_of_a_plan_task_is_last_also_when_its_ranges_are_left_to_the_ledger(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(wiring, "open_service", lambda _: world.service)
    monkeypatch.setattr(work, "MAX_RANGES_IN_XCOM", 1)
    context = context_of(claim("run", "plan"), Try(1, 0))
    [plan_output] = PlanBacklogOperator(task_id="plan", group=world.group).execute(context)
    assert plan_output["ranges"] is None
    assert any("stay in the ledger" in message for message in logged(caplog))
    assert logged(caplog)[-1].startswith("Window lake-000001: planned\n")


def test_a_plan_task_that_can_not_commit_an_empty_window_says_what_is_open(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(claim("before", "plan", scope=Scope.RUN))
    monkeypatch.setattr(wiring, "open_service", lambda _: world.service)
    context = context_of(claim("quiet", "plan"), Try(1, 1))
    plan = planning.plan

    def plan_and_lose_the_ledger(*args: Any, **more: Any) -> list[Planned]:
        planned = plan(*args, **more)
        monkeypatch.setattr(world.service, "commit", Mock(side_effect=LedgerUnavailableError("no answer")))
        return planned

    monkeypatch.setattr(planning, "plan", plan_and_lose_the_ledger)
    with pytest.raises(LedgerUnavailableError):
        PlanWindowOperator(task_id="plan", group=world.group).execute(context)
    assert logged(caplog)[-1].startswith("Window lake-000002: not known to be committed\n")


def test_a_failed_spark_submit_is_told_with_the_last_error_of_spark_and_without_its_secrets(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    caplog.set_level("INFO")
    mask_secret("long-secret-" * 50)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", '{"conn_type": "kafka", "extra": {"bootstrap.servers": "b:9092"}}')
    monkeypatch.setattr(wiring, "open_service", lambda _: world.service)
    program, output = tmp_path / "spark-submit", tmp_path / "told"
    output.write_text(
        f"Traceback (most recent call last):\nValueError: no table at jdbc:x?password={'long-secret-' * 50}\n"
    )
    program.write_text(f"#!/bin/sh\ncat {output}\necho 26/11/23 07:18:44 INFO Hook: called\nexit 1\n")
    program.chmod(0o755)
    operator = KafkaSparkSubmitOperator(
        task_id="load",
        group=world.group,
        application="local:///job.py",
        conn_id="spark",
        connector=None,
        spark_binary=str(program),
    )
    context = context_of(LOAD)
    with pytest.raises(Exception, match="Cannot execute"):
        operator.execute(context)
    end = logged(caplog)[-1]
    assert "\n    error: Spark: ValueError: no table at jdbc:x?password=***\n" in end
    assert "hunter2" not in end, "also where the line is cut"
    output.write_text("")
    with pytest.raises(Exception, match="Cannot execute"):
        operator.execute(context)
    assert "ValueError" not in logged(caplog)[-1], "that of the launch before is not told"
