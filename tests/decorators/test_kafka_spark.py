"""`@task.kafka_spark` as a DAG file uses it; nothing runs here."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import DAG, task

from airflow_kafka_offsets import KafkaGroup, KafkaSparkOperator, PlanBacklogOperator
from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.operators.kafka_spark import call, hide_injected
from tests.versions import stored

ORDERS = KafkaGroup("lake.orders", topics=["orders"])


def serialized(dag: DAG) -> dict[str, Any]:
    tasks = stored(dag)["dag"]["tasks"]
    return {t["__var"]["task_id"]: t["__var"] for t in tasks}


def test_airflow_finds_the_decorator_and_the_function_needs_no_defaults() -> None:
    with DAG("d") as dag:

        @task.kafka_spark(group=ORDERS, conn_id="spark_{{ var.value.cluster }}")
        def load(spark, window, table):  # type: ignore[no-untyped-def]
            """Load."""

        load("orders")
    operator = dag.get_task("load")
    assert isinstance(operator, KafkaSparkOperator)
    assert list(operator.op_args) == ["orders"]
    assert {"conn_id", "config_kwargs", "window", "op_args", "op_kwargs"} <= set(operator.template_fields)
    assert serialized(dag)["load"]["_task_module"] == "airflow_kafka_offsets.decorators.kafka_spark"


def test_one_function_makes_several_tasks() -> None:
    with DAG("d") as dag:

        @task.kafka_spark(group=ORDERS)
        def load(window, spark):  # type: ignore[no-untyped-def]
            """Load."""

        load()
        load.override(task_id="again", group=KafkaGroup("other", topics=["orders"]))()
    assert [t.group.name for t in dag.tasks] == ["lake.orders", "other"]


def test_the_window_that_a_call_names_is_the_operators_and_makes_the_plan_task_come_first() -> None:
    with DAG("d") as dag:
        plan = PlanBacklogOperator(task_id="plan", group=ORDERS)

        @task.kafka_spark(group=ORDERS)
        def load(spark, window):  # type: ignore[no-untyped-def]
            """Load."""

        load(window=plan.output)
        KafkaSparkOperator(
            task_id="plain", group=ORDERS, python_callable=load.function, op_kwargs={"window": "lake.orders-000001"}
        )
    assert dag.get_task("load").upstream_task_ids == {"plan"}
    assert dag.get_task("load").op_kwargs == {}
    assert dag.get_task("plain").window == "lake.orders-000001"


@pytest.mark.parametrize("names_operator", [True, False])
def test_windows_are_mapped_over_tasks(names_operator: bool) -> None:
    def load(spark, window, table="orders"):  # type: ignore[no-untyped-def]
        """Load."""

    with DAG("d") as dag:
        plan = PlanBacklogOperator(task_id="plan", group=ORDERS)
        if names_operator:
            KafkaSparkOperator.partial(task_id="load", group=ORDERS, python_callable=load).expand(window=plan.output)
        else:
            task.kafka_spark(group=ORDERS)(load).partial(table="t").expand(window=plan.output)
    mapped = dag.get_task("load")
    assert mapped.is_mapped
    assert mapped.upstream_task_ids == {"plan"}
    assert serialized(dag)["load"]["_is_mapped"] is True
    given = {"window": {"window_id": "lake.orders-000007"}}
    unmapped = mapped.unmap(given if names_operator else {"op_kwargs": {"table": "t", **given}})
    assert unmapped.window == given["window"]
    assert unmapped.op_kwargs == ({} if names_operator else {"table": "t"})


def test_other_arguments_are_mapped_too() -> None:
    with DAG("d") as dag:

        @task.kafka_spark(group=ORDERS)
        def load(spark, window, table):  # type: ignore[no-untyped-def]
            """Load."""

        load.expand(table=["a", "b"])
    assert dag.get_task("load").unmap({"op_kwargs": {"table": "b"}}).op_kwargs == {"table": "b"}


def test_an_argument_that_nobody_gives_is_still_missed_when_the_dag_is_read() -> None:
    with DAG("d"):

        @task.kafka_spark(group=ORDERS)
        def load(spark, window, table):  # type: ignore[no-untyped-def]
            """Load."""

        with pytest.raises(TypeError, match="table"):
            load()


def reads_nothing(spark: Any) -> None:
    """Has no window."""


async def asynchronous(spark: Any, window: Any) -> None:
    """Is not done when it returns."""


def yielding(window: Any) -> Any:
    yield


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (reads_nothing, r"reads_nothing\(spark\) has no argument `window`"),
        (asynchronous, "must be a function without async and yield"),
        (yielding, "must be a function without async and yield"),
        (lambda window, *rest: None, "must not have / or"),
    ],
)
def test_a_function_that_can_not_work_is_refused_when_the_dag_is_read(function: Any, why: str) -> None:
    with pytest.raises(BadInputError, match=why):
        KafkaSparkOperator(task_id="load", group=ORDERS, python_callable=function)


def test_another_answer_to_an_open_window_is_refused() -> None:
    with pytest.raises(BadInputError, match="on_open_window"):
        KafkaSparkOperator(task_id="load", group=ORDERS, python_callable=lambda window: 1, on_open_window="ignore")


INJECTED = {"spark": "S", "window": "W"}


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "result"),
    [
        (lambda spark, window: (spark, window), (), {}, ("S", "W")),
        (lambda window: window, (), {}, "W"),
        (lambda spark, table, window=None: (table, window), ("t",), {}, ("t", "W")),
        (lambda window, *, table: table, (), {"table": "t"}, "t"),
        (lambda **rest: rest, (), {"table": "t"}, {"table": "t", **INJECTED}),
        (lambda window, table=1, **rest: (window, table, rest), (2,), {"x": 3}, ("W", 2, {"x": 3, "spark": "S"})),
    ],
)
def test_spark_and_window_are_given_by_name_wherever_they_stand(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> None:
    hide_injected(function)
    hide_injected(function)
    assert call(function, args, kwargs, INJECTED) == result
