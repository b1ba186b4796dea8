"""What Airflow shows of a task's windows: a link, and a label."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_kafka_offsets import (
    CommitWindowOperator,
    KafkaSparkOperator,
    KafkaSparkSubmitOperator,
    PlanBacklogOperator,
    PlanWindowOperator,
)
from airflow_kafka_offsets.task.airflow import MAX_LABEL, Task, label_of
from airflow_kafka_offsets.task.links import WindowLink
from tests.core.examples import group, tp, window
from tests.task.airflow import context_of

TI: Any = SimpleNamespace(dag_id="orders", run_id="manual__1", task_id="load", map_index=-1)


def planner() -> PlanWindowOperator:
    """Return a task."""
    return PlanWindowOperator(task_id="plan", group=group())


@pytest.mark.parametrize(
    "operator",
    [CommitWindowOperator, KafkaSparkOperator, KafkaSparkSubmitOperator, PlanBacklogOperator, PlanWindowOperator],
)
def test_every_operator_has_the_link(operator: Any) -> None:
    assert [link.name for link in operator.operator_extra_links] == ["Kafka window"]


def test_a_task_without_a_window_links_nowhere() -> None:
    operator = planner()
    Task(operator, context_of()).show([])
    assert WindowLink().get_link(operator, ti_key=TI) == ""


def test_a_task_shows_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "http://example.org/air")
    operator, context = planner(), context_of()
    task = Task(operator, context)
    task.show([window({tp(): (0, 3)}, 12)])
    assert WindowLink().get_link(operator, ti_key=TI) == "plugin/kafka-windows/air/kafka-offsets/windows/lake-000012"
    assert (context["map_index_template"], context["kafka_window"]) == ("{{ kafka_window }}", "lake-000012 · 3 offsets")
    task.show([window({tp(): (0, 3)}, 12)], 2)
    assert context["kafka_window"] == "lake-000012 · 2 records"


def test_a_template_of_the_dag_stays() -> None:
    context = context_of(map_index_template="mine: {{ kafka_window }}")
    Task(planner(), context).show([window({tp(): (0, 3)}, 12)])
    assert context["map_index_template"] == "mine: {{ kafka_window }}"


def test_several_windows_are_a_list() -> None:
    operator = planner()
    Task(operator, context_of()).show([window({tp(): (n, n + 1)}, n + 1) for n in range(3)])
    assert "kafka-offsets/task?dag_id=orders" in WindowLink().get_link(operator, ti_key=TI)


def test_a_label_fits_into_airflows_table() -> None:
    assert len(label_of(["x" * 230 + "-000001"], 10**15, None)) == MAX_LABEL
