"""What the triggerer runs for a task whose driver is at work on a cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_kafka_offsets.core.launch.jobs import SILENT_LOOKS
from airflow_kafka_offsets.triggers import polling
from airflow_kafka_offsets.triggers.driver import DriverTrigger
from airflow_kafka_offsets.wiring import runs
from tests.lab.processes import LOOPBACK, wait_until
from tests.lab.small_server import Handler, SmallServer
from tests.triggers.conftest import threads
from tests.triggers.test_conditions import first, remade
from tests.triggers.test_polling import EVERY, run, until

LEADING = {
    "conn_id": "cluster",
    "deploy_mode": None,
    "keytab": None,
    "principal": None,
    "spark.kubernetes.namespace": None,
}
FIRED = {"driver": "driver-1"}


class Master:
    """The REST server of a Spark master, as far as a trigger asks it.

    Attributes:
        drivers: the state of each driver.
        asked: the paths that were asked for.
        is_silent: hang up instead of answering.
    """

    def __init__(self) -> None:
        self.drivers = {"driver-1": "RUNNING"}
        self.asked: list[str] = []
        self.is_silent = False

    def answer(self, path: str) -> str | None:
        """Return the answer to a request, or None for no answer."""
        self.asked.append(path.removeprefix("/v1/submissions/"))
        if self.is_silent:
            return None
        state = self.drivers.get(path.rpartition("/")[2])
        return json.dumps({"success": state is not None, "driverState": state})


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> Iterator[Master]:
    found = Master()

    class Answers(Handler):
        def do_GET(self) -> None:
            answer = found.answer(self.path)
            if answer is not None:
                self.send(200, answer, {})
            self.close_connection = True

        do_POST = do_GET

    monkeypatch.setattr(polling, "MIN_POLL", EVERY)
    monkeypatch.setattr(polling, "shortest_deferral", lambda: EVERY)
    with SmallServer(Answers) as server:
        extra = {"deploy-mode": "cluster", "rest-port": server.port}
        connection = {"conn_type": "spark", "host": f"spark://{LOOPBACK}:7077", "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(connection))
        yield found
        wait_until(lambda: not threads(), what="the pollers stop when no one waits")


def trigger(driver: str = "driver-1", **options: Any) -> DriverTrigger:
    """Make a trigger as the triggerer does: from what another one left."""
    made = DriverTrigger(cluster=LEADING, driver=driver, poll_interval=EVERY, **options)
    return remade(made)  # type: ignore[no-any-return]


async def fires_after(change: Any, waiting_for: DriverTrigger, seen: Any) -> Any:
    """Return the event that comes after a change, which is made once something was seen."""
    waiting = asyncio.create_task(first(waiting_for.run()))
    await until(seen)
    assert not waiting.done()
    change()
    return await waiting


@pytest.mark.parametrize("state", ["FINISHED", "FAILED", "KILLED", None])
def test_it_fires_when_the_driver_has_ended_or_is_unknown(master: Master, state: str | None) -> None:
    def end() -> None:
        master.drivers = {"driver-1": state} if state else {}

    assert run(fires_after(end, trigger(), lambda: len(master.asked) > 2)) == FIRED
    assert set(master.asked) == {"status/driver-1"}


def test_a_master_in_recovery_and_a_driver_on_the_way_to_a_worker_are_waited_for(master: Master) -> None:
    for state in ("SUBMITTED", "UNKNOWN", "RELAUNCHING"):
        master.drivers["driver-1"], seen = state, len(master.asked)
        waiting = fires_after(
            lambda: master.drivers.update({"driver-1": "FINISHED"}),
            trigger(),
            lambda seen=seen: len(master.asked) > seen,
        )
        assert run(waiting) == FIRED


def test_a_cluster_that_is_silent_has_the_patience_of_a_poll(master: Master) -> None:
    master.is_silent = True
    assert run(first(trigger().run())) == FIRED, "the task looks itself"
    assert len(master.asked) == SILENT_LOOKS


def test_a_connection_that_is_gone_leaves_no_driver_without_a_watcher(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_CLUSTER")
    assert run(first(trigger().run())) == FIRED


def test_the_task_goes_on_when_its_time_is_over(master: Master) -> None:
    past = (datetime.now(UTC) - timedelta(minutes=1)).isoformat()
    assert run(first(trigger(until=past).run())) == FIRED
    assert master.drivers["driver-1"] == "RUNNING", "the task stops it"


def test_many_drivers_of_a_cluster_share_one_thread_and_one_silence(master: Master) -> None:
    master.drivers = dict.fromkeys((f"driver-{n}" for n in range(50)), "RUNNING")

    async def scene() -> list[Any]:
        waiting = [asyncio.create_task(first(trigger(driver).run())) for driver in master.drivers]
        await until(lambda: len(threads()) == 1 and len(set(master.asked)) == 50)
        master.drivers = dict.fromkeys(master.drivers, "FINISHED")
        return await asyncio.gather(*waiting)

    assert run(scene()) == [{"driver": driver} for driver in master.drivers]


def test_a_silent_cluster_is_asked_about_one_driver_and_not_about_each(master: Master) -> None:
    master.is_silent = True

    async def scene() -> int:
        waiting = [asyncio.create_task(first(trigger(f"driver-{n}").run())) for n in range(50)]
        await asyncio.gather(*waiting)
        return len(master.asked)

    assert run(scene()) < 50 * SILENT_LOOKS / 2


@pytest.mark.parametrize(
    ("state", "asked"),
    [
        *((ended, ["status/driver-1", "kill/driver-1"]) for ended in ("failed", "success", None)),
        *((goes_on, []) for goes_on in ("deferred", "scheduled", "queued", "running")),
    ],
)
def test_a_person_stops_the_driver_and_no_other_triggerer_does(
    master: Master, monkeypatch: pytest.MonkeyPatch, state: str | None, asked: list[str]
) -> None:
    claims: list[Any] = []
    monkeypatch.setattr(runs, "task_state", lambda claim: claims.append(claim) or state)
    stopped: Any = trigger()
    stopped.task_instance = SimpleNamespace(dag_id="d", run_id="r", task_id="load", map_index=3)
    run(stopped.on_kill())
    assert [str(claim) for claim in claims] == ["d/r/load[3]"]
    assert master.asked == asked


def test_a_driver_that_has_ended_is_left_with_its_success(master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "task_state", lambda claim: "failed")
    master.drivers["driver-1"] = "FINISHED"
    marked: Any = trigger()
    marked.task_instance = SimpleNamespace(dag_id="d", run_id="r", task_id="load", map_index=-1)
    run(marked.on_kill())
    assert master.asked == ["status/driver-1"]
