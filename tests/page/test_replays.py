"""The conf that the page gives to Airflow is the one that a task of the run reads."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_kafka_offsets import KafkaGroup, PlanWindowOperator, replay_params
from airflow_kafka_offsets.core.plan.request import Windows, request_of, trigger_command
from airflow_kafka_offsets.page import render
from airflow_kafka_offsets.page.replays import Dag, Preview, Row
from airflow_kafka_offsets.task.airflow import Task
from tests.task.airflow import context_of

ORDERS = KafkaGroup("lake.orders", topics=["orders"])


def row(seq: int, refused: str | None = None) -> Row:
    """Return a window that was chosen."""
    return Row(f"lake.orders-{seq:06d}", seq, f"{seq:06d}", 10, 10, None, refused)


@pytest.mark.parametrize("params", [{}, {"windows": 12, "group": "emea"}, replay_params()], ids=["none", "own", "form"])
def test_a_task_runs_what_was_confirmed_whatever_params_its_dag_has(params: dict[str, Any]) -> None:
    with DAG("orders", schedule=None, params=params) as dag:
        operator = PlanWindowOperator(task_id="plan", group=ORDERS)
    preview = Preview("lake.orders", [row(3), row(4), row(5, "expired"), row(7)], [], None)
    posted = json.loads(preview.body)["conf"]
    context = context_of(kind="manual", conf=posted, dag=dag, params={**dag.params, **posted})
    assert request_of(Task(operator, context).run, ORDERS) == Windows((3, 4, 7))
    assert json.loads(preview.command.split("'")[1]) == posted


def dialog(*rows: Row, dags: Sequence[Dag] = (), chosen: str | None = None, unknown: str | None = None) -> str:
    """Return the dialog of a preview."""
    return render.html("replay.html", {"view": Preview("lake.orders", rows, dags, chosen, unknown)})


def test_a_refused_window_says_why_in_a_row_of_its_own() -> None:
    text = dialog(row(3), row(4, "offsets [0, 1301) expired (beginning offset 1400)"), chosen="orders")
    assert '<tr class="refused"><td>000004</td>' in text
    assert 'class="why"><small>offsets [0, 1301) expired (beginning offset 1,400).</small>' in text
    assert "Replay 1 window?" in text


def test_nothing_is_promised_if_nothing_can_run() -> None:
    text = dialog(row(4, "expired"))
    assert "Nothing of this can run" in text
    assert "read again" not in text


def test_if_no_dag_can_run_it_each_says_why_and_none_is_offered() -> None:
    dags = [
        Dag("orders", False, "its file has an import error"),
        Dag("gone", False, "Airflow has no such DAG"),
    ]
    text = dialog(row(3), dags=dags)
    assert "orders (its file has an import error), gone (Airflow has no such DAG)." in text
    command = trigger_command("lake.orders", {"windows": "3"}).strip()
    assert html.unescape(text).count(command) == 1
    assert "<select" not in text
    assert "data-confirm" not in text


def test_without_an_answer_of_kafka_no_window_is_said_to_run() -> None:
    text = dialog(row(3), row(4, "superseded"), chosen="orders", unknown="Kafka is away")
    badges = re.findall(r'class="badge (\w+)"[^>]*>(.*?)</span>', text)
    assert [tone for tone, _ in badges] == ["plain", "bad"]
    assert badges[0][1] == "not known"
    assert "Kafka is away." in text
    assert "data-confirm" in text, "whoever knows that Kafka is back may go on"
