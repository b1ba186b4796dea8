"""Arguments of operators, sensors and the decorator that can't be used are refused when the DAG is parsed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import task

from airflow_kafka_offsets import (
    CommitWindowOperator,
    KafkaLagSensor,
    KafkaOffsetsTrigger,
    KafkaSparkOperator,
    KafkaSparkSqlOperator,
    KafkaSparkSubmitOperator,
    KafkaTimeSensor,
    KafkaUnreadSensor,
    PlanBacklogOperator,
    PlanWindowOperator,
    WindowCommittedSensor,
)
from airflow_kafka_offsets.core.errors import BadInputError
from tests.core.examples import group
from tests.versions import needs_task_state

GROUP = group()


def load(spark: Any, window: Any) -> None:
    """Do nothing."""


def decorated(**arguments: Any) -> Any:
    """Make a task of `load`."""
    arguments.pop("task_id")
    return task.kafka_spark(**arguments)(load)()


SUBMIT = (KafkaSparkSubmitOperator, {"group": GROUP, "application": "job.py"})
CALL = (KafkaSparkOperator, {"group": GROUP, "python_callable": load})
SQL = (KafkaSparkSqlOperator, {"group": GROUP, "sql": "select * from kafka_window"})
DECORATED = (decorated, {"group": GROUP})
PLAN = (PlanWindowOperator, {"group": GROUP})
PLANS = (PlanBacklogOperator, {"group": GROUP})
COMMIT = (CommitWindowOperator, {"window": "lake-000001"})
ENOUGH = (KafkaUnreadSensor, {"group": GROUP, "min_span": 5})
TIME = (KafkaTimeSensor, {"group": GROUP, "until": "{{ data_interval_end }}"})
LAG = (KafkaLagSensor, {"group": GROUP, "max_lag": 5})
COMMITTED = (WindowCommittedSensor, {"group": GROUP, "until": "{{ data_interval_end }}"})

WRONG: list[tuple[tuple[Callable[..., Any], dict[str, Any]], dict[str, Any], str]] = [
    *((one, {"group": "lake"}, "group must be a KafkaGroup; got 'lake'") for one in (SUBMIT, CALL, SQL, DECORATED, PLAN, PLANS)),
    *((one, {"group": None}, "group must be a KafkaGroup; got None") for one in (ENOUGH, TIME, LAG)),
    *((one, {"poll_interval": "10"}, "poll_interval must be a number of seconds") for one in (SUBMIT, CALL, SQL, DECORATED, PLAN, PLANS)),
    *((one, {"on_open_window": True}, "on_open_window must be one of wait, skip, fail; got True") for one in (SUBMIT, PLAN)),
    *((one, {"emit_empty": "false"}, "emit_empty must be True or False; got 'false'") for one in (SUBMIT, CALL, DECORATED)),
    *((one, {"connector": ""}, "connector must be a text that is not empty, or None; got ''") for one in (SUBMIT, CALL)),
    (SUBMIT, {"ship": None}, "ship must be True, False or a path; got None"),
    (SUBMIT, {"deferrable": "false"}, "deferrable must be True or False; got 'false'"),
    (CALL, {"python_callable": 5}, "python_callable must be a function; got 5"),
    (CALL, {"op_kwargs": "canary"}, "op_kwargs must be a mapping, or None; got a str"),
    (COMMIT, {"ledger_conn_id": 5}, "ledger_conn_id must be a connection id"),
    (ENOUGH, {"min_span": "5"}, "min_span must be a whole number"),
    (ENOUGH, {"max_age": 60}, "max_age must be a timedelta above zero, or None; got 60"),
    (ENOUGH, {"deferrable": "false"}, "deferrable must be True or False; got 'false'"),
    (TIME, {"idle_after": 60}, "idle_after must be a timedelta above zero, or None; got 60"),
    (LAG, {"max_lag": 10**30}, "max_lag must be a whole number"),
    (COMMITTED, {"group": 5}, "group must be a KafkaGroup or the name of one, or None; got 5"),
    (COMMITTED, {"group": "no name"}, "A group's name"),
    (COMMITTED, {"ledger_conn_id": ""}, "ledger_conn_id must be a connection id"),
]  # fmt: skip


@pytest.mark.parametrize(("made", "values", "says"), WRONG)
def test_an_argument_of_another_kind_is_refused(
    made: tuple[Callable[..., Any], dict[str, Any]], values: dict[str, Any], says: str
) -> None:
    make, arguments = made
    make(task_id="t", **arguments)
    with pytest.raises(BadInputError) as refused:
        make(task_id="t", **{**arguments, **values})
    assert str(refused.value).startswith(says)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"durable": False}, "deferrable=True needs durable=True"),
        ({"deploy_mode": "client"}, "With deploy_mode='client' the driver ends with the task"),
        ({"yarn_rm_auth": ("me", "hunter 2")}, "deferrable=True can't keep yarn_rm_auth in Airflow's database"),
    ],
)
@needs_task_state
def test_a_launch_that_no_trigger_could_watch_is_not_deferrable(values: dict[str, Any], says: str) -> None:
    make, arguments = SUBMIT
    make(task_id="t", **arguments, **values)
    make(task_id="t", **arguments, deferrable=True)
    with pytest.raises(BadInputError) as refused:
        make(task_id="t", **arguments, **values, deferrable=True)
    assert says in str(refused.value)
    assert "hunter" not in str(refused.value)


@pytest.mark.parametrize("one", [CALL, SQL])
def test_an_operator_whose_driver_is_on_the_worker_has_no_such_argument(one: Any) -> None:
    make, arguments = one
    with pytest.raises(TypeError, match=r"(?s)Invalid arguments.*deferrable"):
        make(task_id="t", **arguments, deferrable=True)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"max_age": 60}, "max_age must be a timedelta above zero"),
        ({"poll_interval": None}, "poll_interval must be a number of seconds"),
        ({"group": "lake"}, "group must be a KafkaGroup"),
        ({"min_span": True}, "min_span must be a whole number"),
    ],
)
def test_a_trigger_refuses_too(values: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        KafkaOffsetsTrigger(**{"group": GROUP, "min_span": 5, **values})


def test_a_trigger_that_was_stored_is_made_again_whatever_is_refused_today() -> None:
    made = KafkaOffsetsTrigger(group=GROUP, min_span=5, max_age=timedelta(minutes=1))
    kwargs = made.serialize()[1]
    kwargs["group"]["max_offsets"] = 10**30
    kwargs["poll_interval"] = -1
    again = KafkaOffsetsTrigger(**kwargs)
    assert again.enough.max_age == timedelta(minutes=1)
    assert again.enough.group.max_offsets == 10**30
