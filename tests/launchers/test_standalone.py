"""Spark's own cluster: whatever dies between submit and commit, one driver of the window is at work at a time."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.lab.processes import wait_until
from tests.lab.spark_standalone import Drivers, SparkStandalone
from tests.launchers.conftest import JOBS, LIGHT, Task, fires, is_over, light


@pytest.fixture
def drivers(spark_standalone: SparkStandalone) -> Drivers:
    return Drivers(spark_standalone)


@pytest.fixture
def task(spark_standalone: SparkStandalone, make_task: Any, tmp_path: Path) -> Task:
    """Return a task with the light job."""
    made: Task = make_task(spark_standalone.connection(), **light(tmp_path))
    return made


def test_python_in_cluster_mode_reads_its_window_and_needs_nothing_of_the_worker(
    spark_standalone: SparkStandalone, make_task: Any, drivers: Drivers, job_side: str
) -> None:
    task: Task = make_task(spark_standalone.connection(), ship=job_side)
    task.start().succeed()
    (driver,) = drivers.all()
    assert task.is_whole(), spark_standalone.log_of(driver)[-6000:]
    assert task.outcomes() == ["succeeded"]


def test_workers_die_at_every_step_and_one_driver_does_it_all(task: Task, drivers: Drivers) -> None:
    task.die("before submit")
    assert drivers.all() == {}
    with task.hold() as hold:
        task.die("before the id is noted")
        assert task.store() == {}
        hold.wait()
        (driver,) = drivers.alive()
        second = task.start()
        wait_until(lambda: driver in task.store().values(), what="the retry finds the driver")
        second.kill()
        assert drivers.alive() == [driver], "a driver of a cluster goes on without its worker"
        stopped = task.start()
        stopped.says("Reconnecting")
        stopped.terminate()
        stopped.says("the driver continues")
        stopped.kill()
        assert drivers.alive() == [driver], "the stop of a worker is no stop of its task"
    task.die("before the evidence")
    task.die("before the commit")
    assert task.window().window.state == "planned"
    task.start().succeed()
    assert task.window().window.state == "committed"
    assert drivers.all() == {driver: "FINISHED"}
    assert task.outcomes() == ["lost"] * 5 + ["succeeded"]
    assert len(task.ran()) == 1


def test_a_clear_and_a_run_that_takes_over_stop_the_driver_before_they_launch(task: Task, drivers: Drivers) -> None:
    with task.hold() as hold:
        first = task.start()
        hold.wait()
        first.kill()
        (python,) = task.processes("light.py")
        task.clear()
        cleared = task.start()
        wait_until(lambda: len(drivers.all()) == 2, what="the cleared task launches", interval=0.5)
        old, new = drivers.all()
        assert drivers.all()[old] == "KILLED", "the old driver was at work when the new one came"
        wait_until(lambda: is_over(python), what="the old driver's Python process ends")
        wait_until(lambda: new in task.store().values(), what="the id is noted")
        cleared.kill()
        task.run_id = "run-2"
        adopting = task.start()
        wait_until(lambda: len(drivers.all()) == 3, what="the next run launches", interval=0.5)
        *others, last = drivers.all()
        assert [drivers.all()[name] for name in others] == ["KILLED", "KILLED"]
        adopting.kill()
        reconnected = task.start()
        reconnected.says("Polling driver")
        task.set_state("failed")
        reconnected.terminate()
        wait_until(lambda: drivers.alive() == [], what="a person's kill stops the driver", interval=0.5)
        assert reconnected.wait() == 1
    assert drivers.all()[last] == "KILLED"
    assert task.ran() == [], "the Python process of a driver went on without its JVM"
    assert task.window().window.state == "planned"
    assert task.outcomes()[-1] == "killed"


def test_a_driver_that_the_master_does_not_know_costs_one_launch_and_not_every_retry(
    task: Task, drivers: Drivers
) -> None:
    task.die("before submit")
    task.note("driver-20200101000000-0000")
    task.start().succeed()
    assert list(drivers.all().values()) == ["FINISHED"]
    assert len(task.ran()) == 1


@pytest.fixture
def deferring(task: Task, monkeypatch: pytest.MonkeyPatch) -> Task:
    """Return a task that gives its worker slot back; this process is its triggerer."""
    return task.deferring(monkeypatch)


def test_a_task_gives_its_slot_back_and_whatever_dies_one_driver_does_it_all(deferring: Task, drivers: Drivers) -> None:
    task = deferring
    with task.hold() as hold:
        task.die("before the id is noted")
        hold.wait()
        (driver,) = drivers.alive()
        trigger = task.defer()
        assert trigger.driver == driver
        assert drivers.alive() == [driver]
    event = fires(trigger)
    assert drivers.all() == {driver: "FINISHED"}
    task.die("before the evidence", event=event)
    task.die("before the commit")
    task.start().succeed()
    assert task.window().window.state == "committed"
    assert drivers.all() == {driver: "FINISHED"}
    assert task.outcomes() == ["lost", "lost", "succeeded"], "a resumed try has one attempt"
    assert len(task.ran()) == 1


def test_a_driver_that_failed_while_its_task_was_deferred_fails_the_try_and_the_retry_launches_another(
    deferring: Task, drivers: Drivers
) -> None:
    task = deferring
    fail = task.folder / "hold.fail"
    fail.touch()
    event = fires(task.defer())
    resumed = task.start(event=event)
    assert resumed.wait() == 1
    assert "exited with status FAILED" in resumed.log
    assert list(drivers.all().values()) == ["FAILED"], "the resumed try launched another driver"
    fail.unlink()
    event = fires(task.defer())
    task.start(event=event).succeed()
    assert list(drivers.all().values()) == ["FAILED", "FINISHED"]
    assert task.outcomes() == ["failed", "succeeded"]
    assert task.window().window.state == "committed"


def test_the_time_out_of_a_deferred_task_stops_its_driver(deferring: Task, drivers: Drivers) -> None:
    task = deferring
    with task.hold() as hold:
        trigger = task.defer()
        hold.wait()
        task.started -= timedelta(hours=1)
        late = task.start(event={"driver": trigger.driver}, limit=1800)
        assert late.wait() == 1
        assert "still ran at the execution_timeout of 0:30:00" in late.log
        wait_until(lambda: drivers.alive() == [], what="the driver is stopped", interval=0.5)
    assert list(drivers.all().values()) == ["KILLED"]
    assert task.outcomes() == ["failed"]
    assert task.ran() == []


def test_a_deferred_task_that_is_cleared_stops_the_old_driver_before_it_launches(
    deferring: Task, drivers: Drivers
) -> None:
    task = deferring
    with task.hold() as hold:
        old = task.defer().driver  # and no triggerer is there to stop it
        hold.wait()
        task.clear()
        new = task.defer().driver
        assert drivers.all()[old] == "KILLED"
        assert drivers.alive() == [new]
    wait_until(lambda: drivers.alive() == [], what="the new driver ends", interval=0.5)
    task.start(event={"driver": new}).succeed()
    assert drivers.all() == {old: "KILLED", new: "FINISHED"}
    assert len(task.ran()) == 1


def test_a_driver_on_the_worker_dies_with_it_and_the_retry_runs_the_window(
    spark_standalone: SparkStandalone, make_task: Any
) -> None:
    task: Task = make_task(
        spark_standalone.connection(**{"deploy-mode": "client"}), application=str(JOBS / "to_parquet.py")
    )
    with task.hold() as hold:
        first = task.start(**{**light(task.folder), "application": str(LIGHT)})
        hold.wait()
        (python,) = task.processes("light.py")
        first.kill()
        wait_until(lambda: is_over(python), what="the driver is gone")
    assert task.ran() == []
    task.start().succeed()
    assert task.is_whole()
    assert [attempt.records for attempt in task.attempts()] == [None, 60]


@pytest.mark.parametrize(
    ("operator", "extra", "message"),
    [
        ({"application": "/opt/jobs/orders.py"}, {}, "local:/path/on/the/nodes.py"),
        ({"ship": True}, {}, "airflow_kafka_offsets.spark.shipping"),
        ({}, {"rest-port": 1}, "spark.master.rest.enabled=true"),
        ({}, {"rest-port": "the page"}, "spark.master.rest.enabled=true"),
    ],
    ids=["not on the nodes", "job side not on the nodes", "no REST server", "another server"],
)
def test_what_can_not_work_is_refused_before_anything_is_written(
    spark_standalone: SparkStandalone,
    make_task: Any,
    drivers: Drivers,
    job_side: str,
    operator: dict[str, Any],
    extra: dict[str, Any],
    message: str,
) -> None:
    ports = {name: spark_standalone.webui_port if port == "the page" else port for name, port in extra.items()}
    task: Task = make_task(spark_standalone.connection(**ports), ship=job_side)
    refused = task.start(**operator)
    assert refused.wait() == 1
    assert message in refused.log
    assert not (task.folder / "kafka_offsets.db").exists() or not task.ledger.windows(task.group)
    assert drivers.all() == {}
