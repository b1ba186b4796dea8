"""A task that gets only a window's id opens what the group's definition in the ledger names: its offset store, its output tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_kafka_offsets import CommitWindowOperator, wiring
from airflow_kafka_offsets.core.errors import OutputError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.run import Try
from airflow_kafka_offsets.core.window import Claim, Scope, State
from tests.core.examples import group, tp
from tests.ledger.test_staging import Warehouse
from tests.service.memory_log import MemoryLog
from tests.task.airflow import context_of


@pytest.fixture
def kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryLog:
    """Return a Kafka with ten records. The ledger is the default one, in a folder of its own."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.delenv("AIRFLOW__KAFKA_OFFSETS__LEDGER_CONN_ID", raising=False)
    connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": "kafka:9092"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(connection))
    kafka = MemoryLog()
    kafka.create("orders")
    kafka.produce(tp(0), 10)
    monkeypatch.setattr(wiring, "open_log", lambda _: kafka)
    return kafka


def plan(defined: KafkaGroup, run: str) -> str:
    """Let the plan task of a run plan with this definition, or adopt what is open, and return the window's id."""
    claim = Claim("dag", run, "plan", scope=Scope.RUN)
    [planned] = wiring.open_service(defined).plan(defined, claim, lambda _: True)
    return planned.window.id


def commit(window_id: str, run: str) -> None:
    """Let the commit task of a run commit."""
    context = context_of(Claim("dag", run, "commit"), Try(1, 0))
    CommitWindowOperator(task_id="commit", window=window_id).execute(context)


def state(window_id: str) -> State:
    return wiring.open_ledger().window(window_id).window.state


@pytest.mark.usefixtures("kafka")
def test_a_commit_task_moves_the_offset_store_of_the_newest_plan(tmp_path: Path) -> None:
    window_id = plan(group(), "first")
    (tmp_path / "offsets").mkdir()
    with_store = group(offset_store=f"files://{tmp_path}/offsets")
    assert plan(with_store, "second") == window_id
    commit(window_id, "second")
    assert state(window_id) is State.COMMITTED
    store = wiring.open_offset_store(with_store)
    assert store is not None
    assert store.read("lake", ["orders"]) == {tp(0): 10}


@pytest.mark.usefixtures("kafka")
def test_a_commit_task_publishes_to_the_output_tables_of_the_newest_plan() -> None:
    window_id = plan(group(), "first")
    warehouse = Warehouse(wiring.default_ledger_url())
    assert plan(group(output_tables=warehouse.table), "second") == window_id
    with pytest.raises(OutputError, match="staged nothing"):
        commit(window_id, "second")
    assert state(window_id) is State.PLANNED
    warehouse.stage(wiring.open_ledger().window(window_id), range(10))
    commit(window_id, "second")
    assert state(window_id) is State.COMMITTED
    assert warehouse.numbers(window_id) == [*range(10)]
