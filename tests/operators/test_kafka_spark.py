"""What `KafkaSparkOperator` decides without a Spark."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_kafka_offsets import KafkaGroup, KafkaSparkOperator, spark
from airflow_kafka_offsets.airflow_versions import (
    AirflowRescheduleException,
    AirflowSkipException,
    DownstreamTasksSkipped,
    TaskAwaitingInput,
    TaskDeferred,
)
from airflow_kafka_offsets.core.errors import BadInputError, KafkaOffsetsError, NotYetError
from airflow_kafka_offsets.core.launch.login import reader_options
from airflow_kafka_offsets.core.run import Run
from airflow_kafka_offsets.launch.session import SessionLaunch, session_settings
from airflow_kafka_offsets.operators.kafka_spark import _AtWork
from airflow_kafka_offsets.service.plan import Planned
from airflow_kafka_offsets.spark.connector import connector_package
from airflow_kafka_offsets.task.airflow import Task
from airflow_kafka_offsets.task.work import Work
from airflow_kafka_offsets.wiring.connections import find_connection
from tests.core.examples import claim, tp
from tests.launch.test_job_files import window_of
from tests.service.world import World, after_clear
from tests.task.airflow import context_of
from tests.versions import needs_awaiting_input

MINE = {"spark.jars.packages": "my:jar:1"}


def operator_with(**values: Any) -> KafkaSparkOperator:
    return KafkaSparkOperator(
        task_id="load",
        group=KafkaGroup("g", topics=["t"]),
        **{"python_callable": lambda window: None, **values},
    )


def at_work(operator: KafkaSparkOperator, **more: Any) -> _AtWork:
    """Let an operator be at work, with a Kafka that has no login."""
    reader = reader_options({"bootstrap.servers": "b:9092"}, {})
    given: dict[str, Any] = dict.fromkeys(("task", "service", "planned", "work"))
    operator._at_work = _AtWork(operator, **{**given, "launch": SessionLaunch({}, None, reader), **more})
    return operator._at_work


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"conn_id": "with_package"}, {}),
        ({"config_kwargs": {"spark.jars": "/jars/spark-sql-kafka-0-10_2.13-4.0.0.jar"}}, {}),
        ({"conn_id": "connect"}, {}),
        ({"config_kwargs": {"spark.remote": "sc://server"}}, {}),
        ({"connector": None}, {}),
        ({"connector": "my:connector:2"}, {"spark.jars.packages": "my:connector:2"}),
        ({"config_kwargs": MINE}, {"spark.jars.packages": f"my:jar:1,{connector_package()}"}),
        ({"conn_id": "master", "config_kwargs": MINE}, {"spark.jars.packages": f"my:jar:1,{connector_package()}"}),
    ],
)
def test_a_session_of_the_tasks_own_loads_the_connector_once(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, Any], told: dict[str, str]
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_MASTER", '{"conn_type": "spark", "host": "spark://m", "port": 7077}')
    monkeypatch.setenv("AIRFLOW_CONN_CONNECT", '{"conn_type": "spark_connect", "host": "sc://server"}')
    with_package = (
        '{"conn_type": "spark", "host": "local", "extra": {"spark.jars.packages": "org.apache:spark-sql-kafka:1"}}'
    )
    monkeypatch.setenv("AIRFLOW_CONN_WITH_PACKAGE", with_package)
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", '{"conn_type": "kafka", "extra": {"bootstrap.servers": "b:9092"}}')
    operator = operator_with(**values)
    extra = find_connection(operator.conn_id, "spark").extra_dejson if operator.conn_id else {}
    settings = operator._check_and_prepare(Task(operator, context_of())).settings
    given = {**extra, **operator.config_kwargs}
    assert {k: v for k, v in settings.items() if k.startswith("spark.jars") and given.get(k) != v} == told


def test_a_session_of_the_tasks_own_draws_no_progress_bar_unless_somebody_asks_for_it() -> None:
    name = "spark.ui.showConsoleProgress"
    assert session_settings(None, {}, "d-t") == {name: "false", "spark.master": "local[*]", "spark.app.name": "d-t"}
    assert session_settings(None, {name: "true"}, "d-t")[name] == "true"


def test_a_connection_that_is_missing_is_an_error_and_not_another_spark() -> None:
    with pytest.raises(NotYetError, match="no connection 'nowhere'"):
        operator_with(conn_id="nowhere").execute(context_of())


@pytest.mark.parametrize(
    ("values", "result"),
    [
        ([{"rows": 1}], {"rows": 1}),
        ([None], None),
        ([{"rows": 1}, {"rows": 2, "late": 3}], {"rows": [1, 2], "late": [None, 3]}),
        ([{"rows": 1}, None], {"rows": [1, None]}),
    ],
)
def test_several_outputs_of_several_windows_are_a_list_for_each_key(values: list[Any], result: Any) -> None:
    assert operator_with(multiple_outputs=True)._return_value(values) == result


def test_several_windows_give_a_list_and_one_window_the_value_itself() -> None:
    assert operator_with()._return_value(["a"]) == "a"
    assert operator_with()._return_value(["a", None]) == ["a", None]


class Session:
    """Stands for a Spark that is at work."""

    def __init__(self, *, is_connect: bool) -> None:
        self.told: list[tuple[str, bool]] = []
        if not is_connect:
            self._jvm = object()
            self.sparkContext = SimpleNamespace(cancelAllJobs=lambda: self.hear("cancelAllJobs"))

    def interruptAll(self) -> None:
        self.hear("interruptAll")

    def stop(self) -> None:
        self.hear("stop")

    def clearTags(self) -> None:
        """There are none."""

    def addTag(self, tag: str) -> None:
        """Nothing is at work."""

    def hear(self, what: str) -> None:
        self.told.append((what, threading.current_thread() is threading.main_thread()))


@pytest.mark.parametrize(("is_connect", "told"), [(True, ["interruptAll", "stop"]), (False, ["cancelAllJobs"])])
def test_a_killed_task_stops_its_spark_from_another_thread_and_commits_nothing(
    is_connect: bool, told: list[str]
) -> None:
    operator, session = operator_with(), Session(is_connect=is_connect)
    at_work(operator, spark=session)
    operator.on_kill()
    assert session.told == [(what, False) for what in told], "the main thread may be in the middle of an answer"
    with pytest.raises(KafkaOffsetsError, match="nothing is committed"):
        operator._stop.check()


def test_a_task_that_is_killed_before_it_has_a_spark_has_nothing_to_stop() -> None:
    operator = operator_with()
    operator.on_kill()
    assert operator._stop.is_set


def test_a_task_that_was_stopped_while_its_session_opened_calls_no_function() -> None:
    operator = operator_with(python_callable=lambda window: pytest.fail("the function was called"))
    operator.on_kill()  # finds no session yet
    session: Any = Session(is_connect=True)
    with pytest.raises(KafkaOffsetsError, match="nothing more is launched"):
        at_work(operator).job(session, Planned(window_of(3), False, "new"))


class Window:
    """A window of which nothing is read."""

    def __init__(self, *_: object) -> None:
        self.is_released = False

    def finish(self) -> None:
        pytest.fail("the function did not return")

    def release(self) -> None:
        self.is_released = True


class Read(Window):
    """A window of which everything is read."""

    def finish(self) -> None:
        """Nothing is missing."""


@pytest.mark.parametrize(
    "make",
    [
        lambda: DownstreamTasksSkipped(tasks=["report"]),
        lambda: TaskDeferred(trigger=object(), method_name="resume"),
        lambda: AirflowRescheduleException(datetime(2026, 1, 1, tzinfo=UTC)),
        pytest.param(lambda: TaskAwaitingInput(method_name="resume"), marks=needs_awaiting_input),
    ],
    ids=["DownstreamTasksSkipped", "TaskDeferred", "AirflowRescheduleException", "TaskAwaitingInput"],
)
def test_a_function_can_not_end_its_task_in_a_way_that_leaves_a_green_task_and_an_open_window(
    make: Callable[[], BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    end = make()

    def load(window: Any) -> None:
        raise end

    session: Any = Session(is_connect=True)
    monkeypatch.setattr(spark, "KafkaWindow", Window)
    with pytest.raises(
        BadInputError, match=f"The function raised {type(end).__name__}: nothing is committed"
    ) as caught:
        at_work(operator_with(python_callable=load)).job(session, Planned(window_of(3), False, "new"))
    assert caught.value.__cause__ is end, "where it was raised"


def test_a_function_may_skip_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(window: Any) -> None:
        raise AirflowSkipException("not today")

    session: Any = Session(is_connect=True)
    monkeypatch.setattr(spark, "KafkaWindow", Window)
    with pytest.raises(AirflowSkipException):
        at_work(operator_with(python_callable=load)).job(session, Planned(window_of(3), False, "new"))


@pytest.mark.parametrize("is_read", [True, False])
def test_what_spark_keeps_for_a_window_is_released_however_its_function_ends(
    is_read: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[Window] = []

    def load(window: Any) -> None:
        held.append(window)
        assert not window.is_released
        if not is_read:
            raise ValueError("mine")

    session: Any = Session(is_connect=True)
    monkeypatch.setattr(spark, "KafkaWindow", Read)
    with nullcontext() if is_read else pytest.raises(ValueError, match="mine"):
        at_work(operator_with(python_callable=load)).job(session, Planned(window_of(3), False, "new"))
    assert [window.is_released for window in held] == [True]


def test_a_try_has_no_value_of_the_try_before_it_on_the_same_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tries of `airflow dags test` run on shallow copies of one object, in one process."""
    monkeypatch.setattr(spark, "KafkaWindow", Read)
    world, mine, task = World(tmp_path), claim("mine"), operator_with(python_callable=lambda window: "of the first try")
    session: Any = Session(is_connect=True)
    world.kafka.produce(tp(0), 10)

    first, planned = task.prepare_for_execution(), world.plan(mine)
    at_work(first).job(session, planned)
    assert first._at_work is not None
    assert list(first._at_work.returned.values()) == ["of the first try"]
    world.work(planned.window, mine)  # its success is recorded, and then its worker dies

    second, planned = task.prepare_for_execution(), world.plan(mine, this_try=replace(after_clear(0), number=2))
    work = Work(Run(mine), world.service, world.group, [planned], second._stop)
    at_work(second, planned=[planned], work=work)
    with work:
        assert second.execute_callable() is None
    assert [result["window_id"] for result in work.results()] == [planned.window.id]


WITHOUT_A_SERVER = """
from airflow_kafka_offsets.launch.session import open_session
with open_session({"spark.master": "local[1]"}, {}):
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("variable", [{"SPARK_REMOTE": "sc://elsewhere"}, {"SPARK_CONNECT_MODE_ENABLED": "1"}])
def test_a_worker_that_is_set_up_for_spark_connect_says_what_is_missing(variable: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_A_SERVER],
        env={**os.environ, **variable},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "BadInputError: The task names no Spark Connect server" in done.stderr
