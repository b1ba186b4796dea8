"""Drivers that go on without their worker, under a real scheduler: what only Airflow itself can say and keep."""

from __future__ import annotations

import pytest

from airflow_kafka_offsets.airflow_versions import NO_TASK_STATE
from airflow_kafka_offsets.core.window import State
from tests.acceptance.conftest import Lab
from tests.lab.processes import wait_until
from tests.lab.spark_standalone import Drivers, SparkStandalone
from tests.versions import KEEPS_TASK_STATE, needs_task_state


@pytest.fixture(scope="module")
def cluster(lab: Lab, spark_standalone: SparkStandalone) -> SparkStandalone:
    """Give Airflow the connection to a standalone cluster."""
    lab.connect("spark_cluster", spark_standalone.connection())
    return spark_standalone


def ran(lab: Lab, dag_id: str) -> list[str]:
    """Return the windows that the DAG's job has run."""
    path = lab.folder / "lake" / f"{dag_id}.ran"
    return path.read_text().splitlines() if path.exists() else []


def said(lab: Lab, dag_id: str) -> str:
    """Return what the DAG's tries have logged so far; Airflow's API shows it when they are over."""
    return "".join(path.read_text() for path in lab.airflow.home.glob(f"logs/dag_id={dag_id}/*/task_id=load/*.log"))


def reconnects(lab: Lab, cluster: SparkStandalone) -> None:
    """Check that the retry reconnects to the driver that Airflow noted, and that a stopped worker leaves it."""
    dag = "on_cluster"
    drivers = Drivers(cluster)
    lab.topic(dag)
    run = lab.api.trigger(dag)
    with lab.hold(dag) as hold:
        hold.wait()
        (driver,) = drivers.all()
        wait_until(lambda: "Polling driver" in said(lab, dag), what="the driver is noted, and watched", interval=1)
        _kill_task(lab, dag, run)
        wait_until(
            lambda: "Reconnecting" in said(lab, dag),
            what="the retry reconnects",
            interval=1,
        )
        worker = lab.airflow.worker_process(dag, run, "load")
        assert worker is not None
        worker.terminate()
        wait_until(lambda: "the driver continues" in said(lab, dag), what="the worker is told to stop", interval=1)
        assert drivers.alive() == [driver]
    _expect_one_run(lab, dag, run)
    assert set(drivers.all()) == {driver}


def _kill_task(lab: Lab, dag: str, run: str) -> None:
    task = lab.airflow.task_process(dag, run, "load")
    assert task is not None
    task.kill()


def _expect_one_run(lab: Lab, dag: str, run: str) -> None:
    lab.api.wait_for_run(dag, run, "success")
    (row,) = lab.windows(dag)
    assert row.window.state is State.COMMITTED
    assert ran(lab, dag) == [row.window.id]


def starts_again(lab: Lab, cluster: SparkStandalone) -> None:
    """Check that the retry stops the driver of the try before it and starts another, also if its worker ended without it."""
    dag = "on_cluster"
    drivers = Drivers(cluster)
    lab.topic(dag)
    run = lab.api.trigger(dag)
    with lab.hold(dag) as hold:
        hold.wait()
        wait_until(lambda: "Polling driver" in said(lab, dag), what="the driver is watched", interval=1)
        assert f"{NO_TASK_STATE}: a retry stops the driver" in said(lab, dag)
        _kill_task(lab, dag, run)
        wait_until(lambda: len(drivers.all()) == 2, what="the retry launches another", interval=0.5)
        first, second = drivers.all()
        assert drivers.all()[first] == "KILLED"
        wait_until(
            lambda: drivers.alive() == [second],
            what="the other one is at work",
            interval=0.5,
        )
        worker = lab.airflow.worker_process(dag, run, "load")
        assert worker is not None
        worker.kill()  # the LocalExecutor's ignores SIGTERM; those of other executors would end of it at once
        wait_until(lambda: len(drivers.all()) == 3, what="the retry launches a third one", interval=0.5)
        assert drivers.all()[second] == "KILLED"
    _expect_one_run(lab, dag, run)


RETRY = reconnects if KEEPS_TASK_STATE else starts_again
"""What a retry does, by the version of Airflow."""


def test_the_retry_reconnects_to_the_driver_that_airflow_noted_and_a_stopped_worker_leaves_it(
    lab: Lab, cluster: SparkStandalone
) -> None:
    RETRY(lab, cluster)


def test_a_clear_while_it_runs_stops_the_driver_first_and_a_mark_stops_it_for_good(
    lab: Lab, cluster: SparkStandalone
) -> None:
    dag = "cleared_on_cluster"
    drivers = Drivers(cluster)
    lab.topic(dag)
    run = lab.api.trigger(dag)
    with lab.hold(dag) as hold:
        hold.wait()
        lab.api.clear(dag, run, ["load"])
        wait_until(
            lambda: len(drivers.all()) == 2,
            what="the cleared task launches",
            interval=0.5,
        )
        old, new = drivers.all()
        assert drivers.all()[old] == "KILLED"
        lab.api.wait_for_task(dag, run, "load", "running")
        lab.api.mark_task(dag, run, "load", "failed")
        wait_until(
            lambda: drivers.all()[new] == "KILLED",
            what="the mark stops the driver",
            interval=0.5,
        )
    (row,) = lab.windows(dag)
    assert row.window.state is State.PLANNED
    assert ran(lab, dag) == []


def test_a_time_out_stops_the_driver_and_the_retry_launches_another(lab: Lab, cluster: SparkStandalone) -> None:
    dag = "slow_on_cluster"
    drivers = Drivers(cluster)
    lab.topic(dag)
    run = lab.api.trigger(dag)
    with lab.hold(dag) as hold:
        hold.wait()
        # On a busy machine, time was over for the tries before, too.
        slow = max(drivers.all())
        wait_until(lambda: cluster.drivers()[slow] == "KILLED", what="the time-out stops the driver", interval=0.5)
    lab.api.wait_for_run(dag, run, "success")
    (row,) = lab.windows(dag)
    assert row.window.state is State.COMMITTED
    assert ran(lab, dag) == [row.window.id]


def is_deferred(lab: Lab, dag: str, run: str, driver: str) -> None:
    """Wait until the task has given its worker slot back for a driver, which goes on."""
    wait_until(lambda: f"until driver {driver} has ended" in said(lab, dag), what="the driver is left", interval=1)
    lab.api.wait_for_task(dag, run, "load", "deferred")
    wait_until(lambda: lab.airflow.task_process(dag, run, "load") is None, what="the worker slot is free", interval=0.5)


@needs_task_state
def test_a_deferred_task_holds_no_worker_while_the_triggerer_ends_and_one_driver_runs(
    lab: Lab, cluster: SparkStandalone
) -> None:
    dag = "deferred"
    drivers = Drivers(cluster)
    lab.topic(dag)
    run = lab.api.trigger(dag)
    with lab.hold(dag) as hold:
        hold.wait()
        (driver,) = drivers.all()
        is_deferred(lab, dag, run, driver)
        lab.servers.control().restart("triggerer")
        assert lab.api.task(dag, run, "load")["state"] == "deferred"
        assert drivers.alive() == [driver], "a triggerer that ends leaves the driver"
    _expect_one_run(lab, dag, run)
    assert drivers.all() == {driver: "FINISHED"}
    assert lab.api.task(dag, run, "load")["try_number"] == 1
    (row,) = lab.windows(dag)
    assert [attempt.outcome for attempt in lab.attempts(row)] == ["succeeded"]
    assert "was deleted and made again" not in said(lab, dag)


@needs_task_state
def test_a_clear_stops_the_driver_of_a_deferred_task_and_a_mark_stops_it_for_good(
    lab: Lab, cluster: SparkStandalone
) -> None:
    dag = "deferred_and_stopped"
    drivers = Drivers(cluster)
    lab.topic(dag)
    run = lab.api.trigger(dag)
    with lab.hold(dag) as hold:
        hold.wait()
        (old,) = drivers.all()
        is_deferred(lab, dag, run, old)
        lab.api.clear(dag, run, ["load"])
        wait_until(lambda: len(drivers.all()) == 2, what="the cleared task launches", interval=0.5)
        assert drivers.all()[old] == "KILLED"
        new = max(drivers.all())
        is_deferred(lab, dag, run, new)
        lab.api.mark_task(dag, run, "load", "failed")
        wait_until(lambda: drivers.all()[new] == "KILLED", what="the mark stops the driver", interval=0.5)
    (row,) = lab.windows(dag)
    assert row.window.state is State.PLANNED
    assert ran(lab, dag) == []


@needs_task_state
def test_the_time_out_of_a_deferred_task_stops_its_driver_and_the_retry_launches_another(
    lab: Lab, cluster: SparkStandalone
) -> None:
    dag = "deferred_and_slow"
    drivers = Drivers(cluster)
    lab.topic(dag)
    run = lab.api.trigger(dag)
    with lab.hold(dag) as hold:
        hold.wait()
        slow = max(drivers.all())
        wait_until(lambda: cluster.drivers()[slow] == "KILLED", what="the time-out stops the driver", interval=0.5)
    _expect_one_run(lab, dag, run)
