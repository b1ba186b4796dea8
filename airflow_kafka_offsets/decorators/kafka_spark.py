"""`@task.kafka_spark`: a PySpark function on the run's window."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, task_decorator_factory

from airflow_kafka_offsets.operators.kafka_spark import KafkaSparkOperator, hide_injected


class _KafkaSparkDecoratedOperator(DecoratedOperator, KafkaSparkOperator):  # type: ignore[misc]
    custom_operator_name = "@task.kafka_spark"

    # DecoratedOperator comes first, and names only the function's arguments.
    template_fields: Sequence[str] = KafkaSparkOperator.template_fields
    template_fields_renderers = KafkaSparkOperator.template_fields_renderers

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Collection[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        hide_injected(python_callable)  # before Airflow binds the arguments
        given: dict[str, Any] = {"python_callable": python_callable, "op_args": op_args, "op_kwargs": op_kwargs}
        super().__init__(kwargs_to_upstream=given, **given, **kwargs)


def kafka_spark_task(
    python_callable: Callable[..., Any] | None = None, multiple_outputs: bool | None = None, **kwargs: Any
) -> TaskDecorator:
    """Make a task of a function: its window is planned before, checked and committed after it returns.

    The function gets the arguments `spark` and `window` (see `airflow_kafka_offsets.spark.KafkaWindow`), and what it is
    called with in the DAG. Call or expand it with ``window=`` to name the window instead of planning one.

    :param python_callable: the function.
    :param multiple_outputs: push each item of a returned dict as an XCom of its own.
    :param kwargs: of `KafkaSparkOperator`, first of all `group` and `conn_id`.
    """
    return task_decorator_factory(
        python_callable=python_callable,
        multiple_outputs=multiple_outputs,
        decorated_operator_class=_KafkaSparkDecoratedOperator,
        **kwargs,
    )
