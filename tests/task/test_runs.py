"""Runs as Airflow has them: whether the holder of a window is over, and what a run requests."""

from __future__ import annotations

import json
import re
import shlex
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pendulum
import pytest
from airflow.sdk import DAG

from airflow_kafka_offsets import (
    KafkaSparkSubmitOperator,
    KafkaUnreadSensor,
    PlanBacklogOperator,
    PlanWindowOperator,
    replay_params,
    wiring,
)
from airflow_kafka_offsets.adapters.kafka.log import epoch_milliseconds
from airflow_kafka_offsets.airflow_versions import AirflowFailException, AirflowSkipException
from airflow_kafka_offsets.core.errors import (
    BadInputError,
    JobUnseenError,
    KafkaRefusedError,
    KafkaUnavailableError,
    LedgerSchemaError,
    NotYetError,
    StoreOutcomeUnknownError,
    StoreRefusedError,
    StoreUnavailableError,
    UnknownGroupError,
    UnknownWindowError,
    WindowBusyError,
)
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.plan.request import REPLAY_KEYS, SCOPED, Live, Refused, TimeSpan, Windows, request_of
from airflow_kafka_offsets.core.run import Run, Try
from airflow_kafka_offsets.core.window import Claim, Scope
from airflow_kafka_offsets.operators.kafka_spark import KafkaSparkOperator
from airflow_kafka_offsets.operators.kafka_spark_sql import KafkaSparkSqlOperator
from airflow_kafka_offsets.operators.window import CommitWindowOperator
from airflow_kafka_offsets.task.airflow import Task
from airflow_kafka_offsets.task.definition import failing_at_once
from airflow_kafka_offsets.task.plan import plan
from airflow_kafka_offsets.wiring import connections
from airflow_kafka_offsets.wiring.runs import task_is_over
from tests.core.examples import tp
from tests.operators.logs import as_logged
from tests.service.world import World
from tests.task.airflow import context_of

WORKING = [None, "scheduled", "queued", "running", "restarting", "deferred", "up_for_retry", "up_for_reschedule"]
ENDED = ["failed", "skipped", "upstream_failed", "removed"]


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("state", WORKING)
def test_a_task_that_may_still_work_keeps_its_window(scope: Scope, state: str | None) -> None:
    assert not task_is_over(Claim("d", "r", "t", scope=scope), {"t": state})


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("state", ENDED)
def test_a_task_that_ended_badly_is_over(scope: Scope, state: str) -> None:
    assert task_is_over(Claim("d", "r", "t", scope=scope), {"t": state})


def test_a_green_task_is_over_but_a_green_plan_task_leaves_the_window_to_its_run() -> None:
    assert task_is_over(Claim("d", "r", "t", scope=Scope.TASK), {"t": "success"})
    assert not task_is_over(Claim("d", "r", "t", scope=Scope.RUN), {"t": "success"})


def test_a_task_that_is_no_longer_part_of_its_run_is_over() -> None:
    assert task_is_over(Claim("d", "r", "t"), {})
    assert task_is_over(Claim("d", "r", "t"), {"other": "running"})


def test_a_mapped_task_is_asked_for_by_its_index() -> None:
    states = {"t_0": "failed", "t_1": "running"}
    assert task_is_over(Claim("d", "r", "t", 0), states)
    assert not task_is_over(Claim("d", "r", "t", 1), states)


def requested(kind: str, group: KafkaGroup, at_most: int = 1, **more: Any) -> Any:
    """Return what a run of this kind asks of a group; `more` is what else the context has."""
    conf, params = more.pop("conf", None), more.pop("params", {})
    dag = more.pop("dag", None) or SimpleNamespace(params=dict.fromkeys(REPLAY_KEYS), tasks=[])
    context = context_of(kind=kind, conf=conf, params=params, dag=dag, **more)
    request = request_of(Task(PlanWindowOperator(task_id="plan", group=group), context).run, group, at_most)
    if isinstance(request, Refused):
        raise request.error
    return request


HOUR = {
    "data_interval_start": pendulum.datetime(2026, 1, 31, 11, tz="Europe/Berlin"),
    "data_interval_end": pendulum.datetime(2026, 1, 31, 12, tz="Europe/Berlin"),
}
START, END = datetime(2026, 1, 31, 10, tzinfo=UTC), datetime(2026, 1, 31, 11, tzinfo=UTC)
ORDERS = KafkaGroup("lake", topics=["orders"])
BY_TIME = KafkaGroup("lake", topics=["orders"], until="data_interval_end")


def test_a_scheduled_run_plans_live_up_to_the_end_or_to_its_interval() -> None:
    assert requested("scheduled", ORDERS, **HOUR) == Live(until=END)
    assert requested("scheduled", BY_TIME, 3, **HOUR) == Live(until=END, ends_at=END, at_most=3)
    with pytest.raises(BadInputError, match="no data interval, so until="):
        requested("scheduled", BY_TIME)


@pytest.mark.parametrize("kind", ["asset_triggered", "manual", "operator_triggered"])
def test_other_runs_end_at_the_end_offset_of_the_moment(kind: str) -> None:
    assert requested(kind, BY_TIME, **HOUR) == Live()


def test_a_backfill_run_replays_its_interval_whatever_its_conf_says() -> None:
    wanted = TimeSpan(START, END, is_interval=True)
    assert requested("backfill", ORDERS, conf={"windows": "1"}, **HOUR) == wanted
    with pytest.raises(BadInputError, match="no data interval"):
        requested("backfill", ORDERS)


def test_only_values_that_are_not_null_choose_a_replay() -> None:
    nulls = dict.fromkeys(REPLAY_KEYS)
    assert requested("manual", ORDERS, conf=nulls, **HOUR) == Live()
    assert requested("manual", ORDERS, conf={**nulls, "windows": "1-2"}, **HOUR) == Windows((1, 2))
    assert requested("manual", ORDERS, params={"windows": "3"}) == Windows((3,))


@pytest.mark.parametrize("kind", ["scheduled", "asset_triggered"])
def test_a_default_of_the_params_does_not_turn_a_scheduled_run_into_a_replay(kind: str) -> None:
    assert requested(kind, ORDERS, params={"windows": "3"}) == Live()


def test_times_of_airflow_can_be_looked_up_in_kafka() -> None:
    request = requested("backfill", ORDERS, **HOUR)
    assert isinstance(request, TimeSpan)
    assert epoch_milliseconds(request.end) == END.timestamp() * 1000


def test_names_that_a_dag_uses_for_something_else_choose_no_replay() -> None:
    report = SimpleNamespace(params={"from": "2026-01-01", "to": "ada@example.org"}, tasks=[])
    values = {"from": "2026-01-01", "to": "ada@example.org"}
    assert requested("manual", ORDERS, conf=values, dag=report) == Live()
    assert requested("manual", ORDERS, conf={**values, "windows": "3"}, dag=report) == Windows((3,))
    none = SimpleNamespace(params={}, tasks=[])
    assert requested("manual", ORDERS, conf={"windows": "3"}, dag=none) == Windows((3,))


def test_a_try_is_known_by_what_airflow_says_of_it() -> None:
    context = context_of(this_try=Try(3, 2, run_started=START))
    for retries in (0, 1):
        operator = PlanWindowOperator(task_id="plan", group=ORDERS, retries=retries)
        assert Task(operator, context).run.this_try == Try(3, 2, retries, START)


@pytest.mark.parametrize(("number", "max_tries", "next_try"), [(1, 0, None), (1, 1, 2), (2, 1, None), (3, 4, 4)])
def test_a_retry_is_left_as_long_as_airflow_counts_one(number: int, max_tries: int, next_try: int | None) -> None:
    assert Run(Claim("d", "r", "t"), Try(number, max_tries)).next_try == next_try


@pytest.mark.parametrize("key", ["window", "Windows"])
def test_a_conf_with_a_key_that_looks_like_ours_makes_no_ordinary_run(key: str) -> None:
    with pytest.raises(BadInputError, match="looks like 'windows'"):
        requested("manual", ORDERS, conf={key: "12-15"})
    own = SimpleNamespace(params={key: None}, tasks=[])
    assert requested("manual", ORDERS, conf={key: "12-15"}, dag=own) == Live()


@pytest.mark.parametrize("kind", ["manual", "backfill"])
def test_a_conf_with_a_key_that_looks_like_group_is_not_of_all_groups(kind: str) -> None:
    with pytest.raises(BadInputError, match="'Group', which looks like 'group'"):
        requested(kind, ORDERS, conf={"Group": "lake.b", "windows": "3"}, **HOUR)


def test_a_backfill_does_not_mind_what_else_its_conf_has() -> None:
    assert isinstance(requested("backfill", ORDERS, conf={"Windows": "3"}, **HOUR), TimeSpan)


class Executes:
    """What an operator's `execute` may do."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    @failing_at_once
    def execute(self, context: Any) -> str:
        """Do it."""
        if self.error:
            raise self.error
        return "done"


@pytest.mark.parametrize(
    "wrong",
    [
        BadInputError("a typo"),
        UnknownGroupError("no such group"),
        UnknownWindowError("no such window"),
        JobUnseenError("another try would not see it"),
    ],
)
def test_bad_input_is_not_tried_again(wrong: Exception) -> None:
    with pytest.raises(AirflowFailException, match=str(wrong)) as raised:
        Executes(wrong).execute({})
    [only] = as_logged(raised.value)
    assert only.frames[-1].filename == __file__, "where it was raised is still told"


def test_what_lies_below_bad_input_is_still_told() -> None:
    def fail(_: Any, context: Any) -> None:
        try:
            raise ZeroDivisionError("what it stumbled on")
        except ZeroDivisionError as exc:
            raise BadInputError("in the function's own words") from exc

    with pytest.raises(AirflowFailException) as raised:
        failing_at_once(fail)(None, {})
    assert [stack.exc_type for stack in as_logged(raised.value)] == ["AirflowFailException", "ZeroDivisionError"]


@pytest.mark.parametrize(
    "may_pass",
    [
        NotYetError("above the watermark"),
        KafkaUnavailableError("away"),
        KafkaRefusedError("wrong password"),
        StoreUnavailableError("away"),
        StoreOutcomeUnknownError("silent while it wrote"),
        StoreRefusedError("wrong password"),
        WindowBusyError("lake-000001", "x"),
        ValueError("of the job"),
    ],
)
def test_what_may_pass_and_what_a_job_raises_is_tried_again(may_pass: Exception) -> None:
    with pytest.raises(type(may_pass)):
        Executes(may_pass).execute({})
    assert Executes().execute({}) == "done"


OF_GROUP: dict[str, Any] = {"task_id": "load", "group": ORDERS}
OPERATORS: list[Any] = [
    KafkaSparkSubmitOperator(**OF_GROUP, application="job.py"),
    KafkaSparkOperator(**OF_GROUP, python_callable=lambda spark, window: None, conn_id="spark"),
    KafkaSparkSqlOperator(**OF_GROUP, sql="SELECT * FROM kafka_window"),
    PlanWindowOperator(**OF_GROUP),
    PlanBacklogOperator(**OF_GROUP),
    CommitWindowOperator(task_id="commit", window="lake-000001"),
]


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: type(operator).__name__)
def test_every_operator_fails_at_once_on_bad_input(operator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise BadInputError("a typo")

    for question in ("open_service", "open_service_for"):
        monkeypatch.setattr(wiring, question, refuse)
    for question in ("find_connection", "kafka_extra"):
        monkeypatch.setattr(connections, question, refuse)
    for method in ("execute", "resume"):
        if hasattr(operator, method):
            with pytest.raises(AirflowFailException, match="a typo"):
                getattr(operator, method)(context_of())


@pytest.mark.parametrize("operator", OPERATORS[:-1], ids=lambda operator: type(operator).__name__)
def test_a_task_fails_with_what_the_triggerer_could_not_wait_for(operator: Any) -> None:
    with pytest.raises(LedgerSchemaError, match="of another version"):
        operator.resume({}, {"error": "LedgerSchemaError", "message": "of another version"})


# A DAG with several groups.

CLICKS = KafkaGroup("clicks", topics=["clicks"])


def several(**params: Any) -> Any:
    """Return a DAG whose tasks plan windows of two groups, and that waits for a third one."""
    with DAG("several", schedule=None, params={**replay_params(), **params}) as dag:
        KafkaUnreadSensor(task_id="wait", group=KafkaGroup("far", topics=["far"]), min_span=1)
        PlanWindowOperator(task_id="plan", group=ORDERS)
        plan = PlanBacklogOperator(task_id="plan_all", group=CLICKS)
        KafkaSparkSubmitOperator.partial(task_id="load", group=CLICKS, application="job.py").expand(window=plan.output)
    return dag


def requested_of_both(kind: str, dag: Any, **conf: Any) -> list[Any]:
    return [requested(kind, group, conf=conf, dag=dag, **HOUR) for group in (ORDERS, CLICKS)]


def test_a_replay_in_a_dag_with_several_groups_is_of_the_one_that_it_names() -> None:
    assert requested_of_both("manual", several(), group="clicks", windows="3") == [None, Windows((3,))]
    assert requested_of_both("manual", several(), group="lake", windows="3") == [Windows((3,)), None]


@pytest.mark.parametrize("conf", [{"windows": "3"}, {"from": "2026-01-31T00:00:00Z", "to": "2026-02-01T00:00:00Z"}])
def test_a_replay_that_names_no_group_where_there_are_several_is_refused(conf: dict[str, Any]) -> None:
    with pytest.raises(BadInputError, match=r'names none of the groups.*clicks, lake.*"group": "clicks"'):
        requested_of_both("manual", several(), **conf)


@pytest.mark.parametrize("kind", ["manual", "backfill"])
def test_a_replay_of_a_group_that_the_dag_does_not_have_is_refused(kind: str) -> None:
    for named in ("far", "lakes", 5):
        with pytest.raises(BadInputError, match=f"has no group {named}.*it has clicks, lake"):
            requested_of_both(kind, several(), group=named, windows="3")


def replaying(world: World, planned: KafkaGroup, /, **conf: Any) -> list[int]:
    """Let a run of the DAG with several groups ask for its windows of one of them; return their numbers."""
    operator: Any = SimpleNamespace(group=planned, on_open_window="fail", retries=0)
    claim = Claim("several", "manual__1", "load")
    context = context_of(claim, Try(2, 2), kind="manual", conf=conf, dag=several())
    return [p.window.seq for p in plan(operator, Task(operator, context).run, world.service)]


def test_a_run_that_is_cleared_gets_its_window_whatever_its_conf_means_by_now(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.kafka.produce(tp(0), 5)
    first = world.run(Claim("several", "scheduled__1", "load"))
    world.kafka.produce(tp(0), 5)
    world.run(Claim("several", "manual__1", "load"), Windows((1,)))
    assert replaying(world, world.group, windows="1") == [first.seq], "when it ran, the DAG had one group"
    assert replaying(world, world.group, windows="1", group="gone") == [first.seq]
    assert replaying(world, world.group, windows="1", group="clicks") == [first.seq]
    with pytest.raises(AirflowSkipException, match="replays another group"):
        replaying(world, CLICKS, windows="1", group="lake")
    with pytest.raises(BadInputError, match="names none of the groups"):
        replaying(world, CLICKS, windows="1")


def replayed(world: World, monkeypatch: pytest.MonkeyPatch, conf: dict[str, Any]) -> Any:
    """Let a plan task of a run with this conf hand its window off."""
    monkeypatch.setattr(wiring, "open_service", lambda _: world.service)
    monkeypatch.setattr("airflow_kafka_offsets.task.plan.is_over", world.over.__contains__)
    dag = SimpleNamespace(params=replay_params(), tasks=[])
    context = context_of(Claim("dag", "manual__1", "plan"), kind="manual", conf=conf, dag=dag)
    return PlanWindowOperator(task_id="plan", group=world.group).execute(context)


def written(world: World) -> Any:
    """Return what the ledger has of the group."""
    return world.ledger.load("lake"), world.ledger.windows("lake"), world.ledger.acts("lake")


@pytest.fixture
def read_once(tmp_path: Path) -> World:
    """Return a world in which one window is committed, and Kafka has five newer records."""
    world = World(tmp_path)
    world.kafka.produce(tp(0), 5)
    world.run(Claim("dag", "scheduled__1", "plan"))
    world.kafka.produce(tp(0), 5)
    return world


@pytest.mark.parametrize(
    "conf", [{"window": "1"}, {"windows": "1-x"}, {"windows": "7"}, {SCOPED: {"windows": "x"}}, {SCOPED: {"window": 1}}]
)
def test_what_is_mistyped_in_a_replay_fails_its_task_at_once_and_names_the_run_that_replaces_it(
    read_once: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, conf: dict[str, Any]
) -> None:
    before = written(read_once)
    with pytest.raises(AirflowFailException):
        replayed(read_once, monkeypatch, conf)
    assert written(read_once) == before
    told = caplog.messages[-1]
    assert "next: no retry is left. A clear keeps this run's conf: if the error is in it, start a new run" in told
    [typed] = re.findall(r"type: (airflow dags trigger dag --conf .*)$", told)
    as_it_stands = json.loads(shlex.split(typed)[-1])
    with pytest.raises(AirflowFailException, match=r"'\.\.\.' is not a window id"):
        replayed(read_once, monkeypatch, as_it_stands)
    assert written(read_once) == before
    filled_in = json.loads(shlex.split(typed.replace("...", "1"))[-1])
    assert replayed(read_once, monkeypatch, filled_in)["window_id"] == "lake-000001"


@pytest.mark.parametrize("conf", [{"windows": 1}, {SCOPED: {"windows": 1}}])
def test_a_number_names_a_window(read_once: World, monkeypatch: pytest.MonkeyPatch, conf: dict[str, Any]) -> None:
    assert replayed(read_once, monkeypatch, conf)["window_id"] == "lake-000001"


def test_a_number_names_the_group_that_is_called_so() -> None:
    assert requested("manual", KafkaGroup("5", topics=["t"]), conf={"group": 5, "windows": 1}) == Windows((1,))


def test_a_replay_of_what_no_live_window_has_passed_yet_writes_nothing_and_is_tried_again(
    read_once: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = {"starting_offsets": {"orders": {"0": 5}}, "ending_offsets": {"orders": {"0": 10}}}
    before = written(read_once)
    with pytest.raises(NotYetError, match=r"orders-0: offsets \[5, 10\) \(watermark 5\)"):
        replayed(read_once, monkeypatch, second)
    assert written(read_once) == before
    read_once.run(Claim("dag", "scheduled__2", "plan"))
    assert replayed(read_once, monkeypatch, second)["window_id"] == "lake-000002"


def test_a_backfill_is_of_all_groups_or_of_the_one_that_its_conf_names() -> None:
    interval = TimeSpan(START, END, is_interval=True)
    assert requested_of_both("backfill", several()) == [interval, interval]
    assert requested_of_both("backfill", several(), group="clicks") == [None, interval]


@pytest.mark.parametrize("kind", ["scheduled", "manual", "asset_triggered"])
def test_a_live_run_is_of_all_groups(kind: str) -> None:
    assert all(isinstance(requested, Live) for requested in requested_of_both(kind, several()))
    assert all(isinstance(requested, Live) for requested in requested_of_both(kind, several(), group="clicks"))


def test_in_a_dag_with_one_group_its_name_may_be_left_out() -> None:
    with DAG("one", schedule=None, params=replay_params()) as dag:
        PlanWindowOperator(task_id="plan", group=ORDERS)
    for params in ({}, {"group": "lake"}):
        assert requested("manual", ORDERS, conf={"windows": "3"}, dag=dag, params=params) == Windows((3,))


def test_a_param_that_a_dag_calls_group_and_means_otherwise_names_none() -> None:
    with DAG("own", schedule=None, params={"group": "emea"}) as dag:
        PlanWindowOperator(task_id="plan", group=ORDERS)
    own = {"dag": dag, "params": {"group": "emea"}}
    assert requested("manual", ORDERS, conf={"windows": "3"}, **own) == Windows((3,))
    assert requested("backfill", ORDERS, **HOUR, **own) == TimeSpan(START, END, is_interval=True)


# A conf with an object of its own.


def own_params() -> Any:
    """Return a DAG whose own params have the names of ours, and other meanings."""
    with DAG("own", schedule=None, params={"windows": "12 panes", "group": "emea", "from": "ada@example.org"}) as dag:
        PlanWindowOperator(task_id="plan", group=ORDERS)
    return dag


@pytest.mark.parametrize("dag", [own_params(), several()], ids=["own params", "the form"])
def test_what_is_in_the_object_counts_whatever_the_dag_declares(dag: Any) -> None:
    conf = {SCOPED: {"group": "lake", "windows": "3-4"}}
    assert requested("manual", ORDERS, conf=conf, dag=dag, params=dict(dag.params)) == Windows((3, 4))


def test_the_object_names_the_group_too() -> None:
    inner = {"group": "clicks", "windows": "3"}
    assert requested_of_both("manual", several(), **{SCOPED: inner}) == [None, Windows((3,))]
    assert requested_of_both("backfill", several(), **{SCOPED: {"group": "clicks"}}) == [
        None,
        TimeSpan(START, END, is_interval=True),
    ]
    with pytest.raises(BadInputError, match="has no group far"):
        requested_of_both("manual", several(), **{SCOPED: {**inner, "group": "far"}})


@pytest.mark.parametrize(
    ("conf", "told"),
    [
        ({SCOPED: {"group": "lake"}}, "without a replay"),
        ({SCOPED: {"group": "lake", "windows": None}}, "without a replay"),
        ({SCOPED: {"group": "lake", "windows": "3"}, "windows": "4"}, "names a replay twice"),
        ({SCOPED: "lake"}, "must be an object"),
    ],
)
def test_an_object_that_could_end_in_another_run_is_refused(conf: dict[str, Any], told: str) -> None:
    with pytest.raises(BadInputError, match=told):
        requested_of_both("manual", several(), **conf)
