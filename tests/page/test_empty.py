"""Empty pages show what to do next."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_kafka_offsets.page import render

AROUND: dict[str, Any] = {"root": "/kafka-offsets", "base": "", "title": "Kafka windows", "rows": [], "dag_id": None}


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({}, "A group is here after it has planned for the first time"),
        ({"no_ledger": "sqlite:////var/ledger.db"}, "There is no ledger in sqlite:////var/ledger.db yet"),
        ({"dag_id": "orders"}, "No group belongs to this DAG"),
    ],
)
def test_a_list_without_groups(more: dict[str, Any], sentence: str) -> None:
    text = render.html("groups.html", AROUND | more)
    assert sentence in text
    assert "<table" not in text


def test_a_run_without_windows() -> None:
    text = render.html("run.html", AROUND | {"dag_id": "orders", "run_id": "manual", "task_id": None})
    assert "This run has no window" in text
