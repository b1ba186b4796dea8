"""What the page asks Airflow to run is what a task of that run reads."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_kafka_offsets import KafkaGroup, PlanWindowOperator, replay_params
from airflow_kafka_offsets.core.plan.request import Windows
from airflow_kafka_offsets.page.replays import Preview, Row
from airflow_kafka_offsets.task.runs import request_of

ORDERS = KafkaGroup("lake.orders", topics=["orders"])


def row(seq: int, refused: str | None = None) -> Row:
    """Return a window that was chosen."""
    return Row(f"lake.orders-{seq:06d}", seq, f"{seq:06d}", 10, 10, None, refused)


@pytest.mark.parametrize("params", [{}, {"windows": 12, "group": "emea"}, replay_params()], ids=["none", "own", "form"])
def test_a_task_runs_what_was_confirmed_whatever_params_its_dag_has(params: dict[str, Any]) -> None:
    with DAG("orders", schedule=None, params=params) as dag:
        PlanWindowOperator(task_id="plan", group=ORDERS)
    preview = Preview("lake.orders", [row(3), row(4), row(5, "expired"), row(7)], [], None)
    posted = json.loads(preview.body)["conf"]
    context: Any = {"dag": dag, "params": {**dag.params, **posted}}
    context["dag_run"] = SimpleNamespace(run_type="manual", conf=posted)
    assert request_of(context, ORDERS) == Windows((3, 4, 7))
    assert json.loads(preview.command.split("'")[1]) == posted
