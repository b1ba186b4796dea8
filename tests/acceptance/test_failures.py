"""If it dies here, this happens: the same window under the same id after the retry, each record once in the lake."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from airflow_kafka_offsets.core.window import Outcome, State
from airflow_kafka_offsets.ledger import schema
from airflow_kafka_offsets.ledger.engine import open_engine
from airflow_kafka_offsets.ledger.ledger import Ledger
from tests.acceptance.conftest import Lab, expect_once
from tests.acceptance.server import connection_of
from tests.lab.databases import Postgres
from tests.lab.kafka import KafkaBroker
from tests.lab.processes import wait_until
from tests.versions import PASSES_ON_SIGNALS


def only_window(lab: Lab, dag_id: str):
    (row,) = lab.windows(dag_id)
    return row


def expect_committed_once(lab: Lab, dag_id: str) -> None:
    row = only_window(lab, dag_id)
    assert row.window.state is State.COMMITTED
    expect_once(lab, dag_id, [row.window])


def test_a_killed_driver_is_retried_on_the_same_window(lab: Lab) -> None:
    lab.topic("driver_killed")
    run = lab.api.trigger("driver_killed")
    with lab.hold("driver_killed") as hold:
        hold.wait()
        planned = only_window(lab, "driver_killed").window
        assert planned.state is State.PLANNED
        assert not lab.lake("driver_killed"), "nothing may be visible before the job is done"
        driver = lab.airflow.driver_process("driver_killed", run, "load")
        assert driver is not None
        driver.kill()
        lab.api.wait_for_retry("driver_killed", run, "load")
        assert only_window(lab, "driver_killed").window == planned
    seen = lab.api.unfolded_log("driver_killed", run, "load", 1)
    end = seen[seen.index("Window driver_killed-000001: not committed") :]
    assert "next: Airflow starts try 2 of this task: the job runs again" in end
    assert end.index("type: kafka-offsets windows driver_killed-000001") < end.index("Task failed with exception")
    lab.api.wait_for_run("driver_killed", run, "success")
    row = only_window(lab, "driver_killed")
    assert row.window.ranges == planned.ranges
    assert [a.outcome for a in lab.attempts(row)] == [Outcome.FAILED, Outcome.SUCCEEDED]
    expect_committed_once(lab, "driver_killed")


def test_a_killed_worker_is_retried_on_the_same_window_and_leaves_no_twin(lab: Lab) -> None:
    lab.topic("worker_killed")
    run = lab.api.trigger("worker_killed")
    with lab.hold("worker_killed") as hold:
        hold.wait()
        planned = only_window(lab, "worker_killed").window
        driver = lab.airflow.driver_process("worker_killed", run, "load")
        task = lab.airflow.task_process("worker_killed", run, "load")
        worker = lab.airflow.worker_process("worker_killed", run, "load")
        assert driver
        assert task
        assert worker
        worker.kill()
        task.kill()
        wait_until(lambda: not driver.is_running(), what="the driver dies with its worker")
    lab.api.wait_for_run("worker_killed", run, "success")
    row = only_window(lab, "worker_killed")
    assert row.window.ranges == planned.ranges
    # The worker could not say how it ended; the retry knew that it was over.
    assert [a.outcome for a in lab.attempts(row)] == [Outcome.LOST, Outcome.SUCCEEDED]
    expect_committed_once(lab, "worker_killed")


@pytest.fixture
def own_ledger(lab: Lab) -> Iterator[Postgres]:
    """Run a ledger that the test stops."""
    with Postgres() as ledger:
        schema.upgrade(open_engine(ledger.url))
        lab.connect("ledger_failures", connection_of(ledger))
        yield ledger


def test_a_ledger_that_stops_between_job_and_commit_costs_a_retry_not_a_record(lab: Lab, own_ledger: Postgres) -> None:
    lab = replace(lab, ledger=Ledger(own_ledger.url))
    lab.topic("ledger_stopped")
    run = lab.api.trigger("ledger_stopped")
    with lab.hold("ledger_stopped") as hold:
        hold.wait()
        planned = only_window(lab, "ledger_stopped").window
        own_ledger.stop()
        hold.release()
        lab.api.wait_for_retry("ledger_stopped", run, "load")
    assert "LedgerUnavailableError" in lab.api.log("ledger_stopped", run, "load", 1)
    own_ledger.start()
    assert only_window(lab, "ledger_stopped").window == planned, "the watermark moved without a commit"
    lab.api.wait_for_run("ledger_stopped", run, "success")
    assert only_window(lab, "ledger_stopped").window.ranges == planned.ranges
    expect_committed_once(lab, "ledger_stopped")


def test_kafka_that_stops_during_planning_writes_nothing_and_the_retry_plans(lab: Lab, own_kafka: KafkaBroker) -> None:
    lab.topic("kafka_stopped", kafka=own_kafka)
    own_kafka.suspend()
    run = lab.api.trigger("kafka_stopped")
    try:
        lab.api.wait_for_retry("kafka_stopped", run, "load")  # while Kafka still says nothing
        assert not lab.windows("kafka_stopped")
        assert "KafkaUnavailableError" in lab.api.log("kafka_stopped", run, "load", 1)
    finally:
        own_kafka.resume()
    lab.api.wait_for_run("kafka_stopped", run, "success")
    expect_committed_once(lab, "kafka_stopped")


def test_marking_the_running_task_green_commits_nothing_and_the_next_run_adopts(lab: Lab) -> None:
    lab.topic("marked")
    run = lab.api.trigger("marked")
    with lab.hold("marked") as hold:
        hold.wait()
        planned = only_window(lab, "marked").window
        driver = lab.airflow.driver_process("marked", run, "load")
        lab.api.mark_task("marked", run, "load", "success")
        wait_until(lambda: not driver.is_running(), what="the job is killed")
        lab.wait_for_end_of_process("marked", run)
    assert lab.api.task("marked", run, "load")["state"] == "success"
    row = only_window(lab, "marked")
    assert row.window == planned, "a green mark moved the watermark"
    assert lab.attempts(row)[-1].outcome in (Outcome.KILLED, Outcome.RUNNING)
    assert not lab.lake("marked")
    lab.produce("marked", 10)
    lab.api.run_to("marked")
    assert only_window(lab, "marked").window.ranges == planned.ranges, "an adopted window was cut again"
    assert lab.attempts(row)[0].outcome in (Outcome.KILLED, Outcome.LOST)
    expect_committed_once(lab, "marked")


def test_a_run_that_failed_for_good_leaves_its_window_to_the_next_run(lab: Lab) -> None:
    lab.topic("fails_for_good")
    first = lab.api.trigger("fails_for_good")
    with lab.hold("fails_for_good") as hold:
        hold.wait()
        lab.api.mark_task("fails_for_good", first, "load", "failed")
        lab.api.wait_for_run("fails_for_good", first, "failed")
        lab.wait_for_end_of_process("fails_for_good", first)
    planned = only_window(lab, "fails_for_good").window
    assert planned.state is State.PLANNED
    lab.produce("fails_for_good", 30)
    second = lab.api.run_to("fails_for_good")
    assert lab.api.xcom("fails_for_good", second, "load", "window")["window_id"] == planned.id
    assert only_window(lab, "fails_for_good").window.ranges == planned.ranges
    third = lab.api.run_to("fails_for_good")
    assert lab.api.xcom("fails_for_good", third, "load")["seq"] == 2
    expect_once(lab, "fails_for_good", [row.window for row in lab.windows("fails_for_good")])


def test_clearing_a_sibling_while_ours_waits_for_its_retry_changes_nothing_for_us(lab: Lab) -> None:
    lab.topic("siblings")
    run = lab.api.trigger("siblings")
    with lab.hold("siblings") as hold:
        hold.wait()
        planned = only_window(lab, "siblings").window
        lab.airflow.task_process("siblings", run, "load").kill()
        lab.api.wait_for_retry("siblings", run, "load")
        lab.api.clear("siblings", run, ["sibling"])
    lab.api.wait_for_run("siblings", run, "success")
    row = only_window(lab, "siblings")
    assert row.window.ranges == planned.ranges
    assert len(lab.attempts(row)) == 2
    expect_committed_once(lab, "siblings")


def takes_its_job_along(lab: Lab) -> None:
    """Stop a worker of an Airflow that passes the signal on: nothing of the task is left."""
    run = lab.api.trigger("worker_stopped")
    with lab.hold("worker_stopped") as hold:
        hold.wait()
        planned = only_window(lab, "worker_stopped").window
        driver = lab.airflow.driver_process("worker_stopped", run, "load")
        lab.airflow.worker_process("worker_stopped", run, "load").terminate()
        wait_until(lambda: not driver.is_running(), what="the job is killed")
        lab.api.wait_for_retry("worker_stopped", run, "load")
        assert only_window(lab, "worker_stopped").window == planned
    lab.api.wait_for_run("worker_stopped", run, "success")
    assert [a.outcome for a in lab.attempts(only_window(lab, "worker_stopped"))] == [Outcome.KILLED, Outcome.SUCCEEDED]


def leaves_its_job(lab: Lab) -> None:
    """Stop a worker of an Airflow that does not pass the signal on.

    That of the LocalExecutor ignores it. Those of other executors end, and their tasks do not, as if someone killed this one alone.
    """
    run = lab.api.trigger("worker_stopped")
    with lab.hold("worker_stopped") as hold:
        hold.wait()
        lab.airflow.worker_process("worker_stopped", run, "load").terminate()
    lab.api.wait_for_run("worker_stopped", run, "success")
    assert [a.outcome for a in lab.attempts(only_window(lab, "worker_stopped"))] == [Outcome.SUCCEEDED]

    lab.produce("worker_stopped", 10)
    run = lab.api.trigger("worker_stopped")
    with lab.hold("worker_stopped") as hold:
        hold.wait()
        planned = lab.windows("worker_stopped")[-1].window
        task = lab.airflow.task_process("worker_stopped", run, "load")
        driver = lab.airflow.driver_process("worker_stopped", run, "load")
        lab.airflow.worker_process("worker_stopped", run, "load").kill()
        # Airflow misses the heartbeats, and does not know that the task is still there.
        lab.api.wait_for_retry("worker_stopped", run, "load")
        assert task.is_running()
        assert driver.is_running(), "docs/compatibility.md says that the driver continues"
        assert lab.windows("worker_stopped")[-1].window == planned
        # What docs/compatibility.md asks for, and a container does.
        task.kill()
        wait_until(lambda: not driver.is_running(), what="the driver dies with its task")
    lab.api.wait_for_run("worker_stopped", run, "success")
    assert f"try 1 of {run} has no recorded end" in lab.api.log("worker_stopped", run, "load", 2)
    assert [a.outcome for a in lab.attempts(lab.windows("worker_stopped")[-1])] == [Outcome.LOST, Outcome.SUCCEEDED]


STOP = takes_its_job_along if PASSES_ON_SIGNALS else leaves_its_job
"""What a stopped worker does, by the version of Airflow."""


def test_a_worker_that_is_told_to_stop_leaves_the_same_window_to_the_retry(lab: Lab) -> None:
    lab.topic("worker_stopped")
    STOP(lab)
    rows = lab.windows("worker_stopped")
    assert {row.window.state for row in rows} == {State.COMMITTED}
    expect_once(lab, "worker_stopped", [row.window for row in rows])
