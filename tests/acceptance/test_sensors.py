"""Sensors and the event trigger under the real scheduler and triggerer. All wait side by side."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from airflow_kafka_offsets.adapters.kafka.log import KafkaLog
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.window import Claim, Scope, State
from airflow_kafka_offsets.service.windows import WindowService
from tests.acceptance.conftest import Lab, expect_tiling
from tests.lab.kafka import KafkaBroker
from tests.lab.processes import wait_until
from tests.lab.topics import delete_topic, produce

DEFERRED = ["wait_span", "wait_age", "wait_time", "wait_lag", "wait_verdict", "wait_flaky"]
WAITING = [*DEFERRED, "wait_gone", "wait_downstream"]
NEARLY_EXPIRED = timedelta(days=6, hours=20)
"""Of the seven days for which a topic keeps its records."""
Runs = dict[str, str]


@pytest.fixture(scope="module")
def runs(lab: Lab, own_kafka: KafkaBroker) -> Runs:
    """Let all sensors defer, restart the triggerer under them, and only then let come what they wait for."""
    for dag_id in ("wait_lag", "wait_there", "wait_upstream"):
        lab.topic(dag_id, 10)
    for dag_id in ("wait_span", "wait_age", "wait_time", "wait_gone", "wait_late", "wait_soft", "arrivals"):
        lab.topic(dag_id, 0)
    lab.topic("wait_verdict", 0)
    commit_all(lab, "wait_verdict")
    lab.topic("wait_flaky", 0, kafka=own_kafka)
    for dag_id in ("wait_downstream", "wait_nowhere"):
        lab.api.unpause(dag_id)
    lab.api.reparse("arrivals")
    now = datetime.now(UTC)
    runs = {dag_id: lab.api.trigger(dag_id, logical_date=now) for dag_id in [*WAITING, "wait_late", "wait_soft"]}
    for dag_id in WAITING:
        lab.api.wait_for_task(dag_id, runs[dag_id], "wait", "deferred")
    own_kafka.stop()
    lab.servers.control().restart("triggerer")
    for dag_id in ("wait_there", "wait_nowhere"):
        runs[dag_id] = lab.api.trigger(dag_id)
    fulfil(lab)
    wait_until(
        lambda: "Still waiting: Kafka at" in lab.api.log("wait_flaky", runs["wait_flaky"], "wait"),
        what="the sensor notices that its broker is away",
        interval=1,
    )
    own_kafka.start()
    lab.produce("wait_flaky", 13, kafka=own_kafka)
    return runs


def fulfil(lab: Lab) -> None:
    """Let happen what the sensors wait for, and for one what makes its waiting pointless."""
    lab.produce("wait_span", 13)
    lab.produce("wait_age", 1)
    lab.produce("wait_time", 1)
    lab.produce("arrivals", 20)
    late = int((datetime.now(UTC) - NEARLY_EXPIRED).timestamp() * 1000)
    produce(lab.kafka, "wait_verdict", 5, partition=2, timestamp_ms=late)
    delete_topic(lab.kafka, "wait_gone")
    commit_all(lab, "wait_lag")
    lab.api.trigger("wait_upstream")


def commit_all(lab: Lab, name: str) -> None:
    """Plan and commit all that a group has not read, as another DAG would."""
    service = WindowService(lab.ledger, KafkaLog(lab.kafka.client_config(), 240))
    claim = Claim("test", name, "task", scope=Scope.RUN)
    service.commit(service.plan(KafkaGroup(name, topics=[name]), claim, lambda _: True)[0].window.id, claim)


@pytest.mark.parametrize("dag_id", DEFERRED)
def test_a_sensor_defers_and_goes_on_when_it_is_there(lab: Lab, runs: Runs, dag_id: str) -> None:
    lab.api.wait_for_run(dag_id, runs[dag_id], "success")
    assert lab.api.task(dag_id, runs[dag_id], "wait")["try_number"] == 1


def test_the_result_says_what_was_seen(lab: Lab, runs: Runs) -> None:
    lab.api.wait_for_run("wait_span", runs["wait_span"])
    seen = lab.api.xcom("wait_span", runs["wait_span"], "wait")
    assert seen == {"span": 52, "partitions": 4, "behind": [f"wait_span-{p}" for p in range(4)]}


def test_a_group_at_risk_ends_the_wait_and_the_result_says_why(lab: Lab, runs: Runs) -> None:
    lab.api.wait_for_run("wait_verdict", runs["wait_verdict"], "success")
    seen = lab.api.xcom("wait_verdict", runs["wait_verdict"], "wait")
    assert (seen["verdict"], seen["behind"]) == ("AT RISK", ["wait_verdict-2"])
    assert seen["reason"].startswith("Retention may remove unread records of wait_verdict-2 in ")


def test_what_is_there_already_costs_no_deferral(lab: Lab, runs: Runs) -> None:
    lab.api.wait_for_run("wait_there", runs["wait_there"])
    assert lab.api.xcom("wait_there", runs["wait_there"], "wait")["span"] == 40
    assert "defer" not in lab.api.log("wait_there", runs["wait_there"], "wait").lower()


def test_a_downstream_dag_waits_for_the_commit(lab: Lab, runs: Runs) -> None:
    lab.api.wait_for_run("wait_downstream", runs["wait_downstream"], "success")
    seen = lab.api.xcom("wait_downstream", runs["wait_downstream"], "wait")
    assert seen["window_id"] == "wait_upstream-000001"
    (row,) = lab.windows("wait_upstream")
    assert row.window.state is State.COMMITTED
    assert row.committed_at is not None
    ended = lab.api.task("wait_downstream", runs["wait_downstream"], "wait")["end_date"]
    assert row.committed_at < datetime.fromisoformat(ended)


def test_a_time_out_fails_the_task_as_with_any_sensor(lab: Lab, runs: Runs) -> None:
    lab.api.wait_for_run("wait_late", runs["wait_late"], "failed")
    assert "AirflowSensorTimeout" in lab.api.log("wait_late", runs["wait_late"], "wait")


def test_a_soft_time_out_skips_the_task(lab: Lab, runs: Runs) -> None:
    assert lab.api.wait_for_task("wait_soft", runs["wait_soft"], "wait", "skipped")["state"] == "skipped"


@pytest.mark.parametrize("dag_id", ["wait_gone", "wait_nowhere"])
def test_a_topic_that_is_not_there_fails_the_task_with_a_clear_error(lab: Lab, runs: Runs, dag_id: str) -> None:
    lab.api.wait_for_run(dag_id, runs[dag_id], "failed")
    assert f"MissingPartitionError: Kafka has no topic {dag_id}" in lab.api.log(dag_id, runs[dag_id], "wait")


def test_a_dag_runs_when_enough_has_arrived_and_once_for_the_same_records(lab: Lab, runs: Runs) -> None:
    def finished() -> int:
        return sum(run["state"] == "success" for run in lab.api.runs("arrivals"))

    wait_until(lambda: finished() >= 1, what="enough has arrived", interval=1)
    lab.produce("arrivals", 20)
    wait_until(lambda: finished() >= 2, what="enough has arrived again", interval=1)
    windows = [row.window for row in lab.windows("arrivals")]
    assert [window.span for window in windows] == [80, 80]
    assert {window.state for window in windows} == {State.COMMITTED}
    expect_tiling(windows)
    assert {run["run_type"] for run in lab.api.runs("arrivals")} == {"asset_triggered"}
