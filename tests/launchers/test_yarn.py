"""YARN in cluster mode: whatever dies between submit and commit, one application of the window is at work at a time."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from tests.lab.processes import wait_until
from tests.lab.start import spark_on_clusters
from tests.lab.waiting import ANSWER
from tests.lab.yarn import Yarn
from tests.launchers.conftest import JOBS, LIGHT, LIGHT_CONF, Task, fires, is_over, light


@pytest.fixture
def task(yarn: Yarn, make_task: Any) -> Task:
    """Return a task with a job that reads the window, and a tag of its own."""
    made: Task = make_task(
        yarn.connection(),
        yarn.environment,
        application=str(JOBS / "to_parquet.py"),
        yarn_track_via_rm_api=True,
        conf={**LIGHT_CONF, **spark_on_clusters(), **yarn.conf, "spark.yarn.tags": "team-lake"},
    )
    return made


@pytest.fixture
def light_task(task: Task) -> Task:
    """Return a task with the light job, which YARN wants to have a session."""
    task.operator |= light(task.folder)
    task.operator["application"] = str(LIGHT)
    task.operator["application_args"].append("session")
    return task


def attempts_of(yarn: Yarn, app: str) -> int:
    """Return how often YARN itself tried an application."""
    answer = requests.get(f"{yarn.webapp}/ws/v1/cluster/apps/{app}/appattempts", timeout=ANSWER)
    return len(answer.json()["appAttempts"]["appAttempt"])


def test_workers_die_and_a_clear_and_a_person_kill_and_no_application_has_a_twin(yarn: Yarn, light_task: Task) -> None:
    task = light_task
    with task.hold() as hold:
        task.die("before the id is noted")
        hold.wait()
        (first,) = yarn.alive()
        window = task.window().window.id
        assert {"team-lake", window} <= set(yarn.apps()[first]["applicationTags"].split(","))
        task.note("application_1_0001")  # an application of an earlier resource manager
        found = task.start()
        found.says("Reconnecting")
        assert list(task.store().values()) == [first]
        found.terminate()
        found.says("the driver continues")
        found.kill()
        assert yarn.alive() == [first], "the stop of a worker is no stop of its task"

        (python,) = task.processes("light.py")
        task.clear()
        cleared = task.start()
        cleared.says("Submitted application")
        assert is_over(python), "the old driver was at work when the new one came"
        assert yarn.apps()[first]["finalStatus"] == "KILLED"
        (second,) = yarn.alive()
        wait_until(lambda: second in task.store().values(), what="its id is noted")
        cleared.kill()
        reconnected = task.start()
        reconnected.says("Reconnecting")
        task.set_state("failed")
        reconnected.terminate()
        wait_until(lambda: not yarn.alive(), what="a person's kill stops the application", interval=0.5)
        assert reconnected.wait() == 1
    assert [app["finalStatus"] for app in yarn.apps(window).values()] == ["KILLED", "KILLED"]
    assert task.ran() == []
    assert task.outcomes()[-1] == "killed"


def test_a_task_gives_its_slot_back_and_whatever_dies_one_application_does_it_all(
    yarn: Yarn, light_task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, before = light_task.deferring(monkeypatch), set(yarn.apps())
    with task.hold() as hold:
        task.die("before the id is noted")
        hold.wait()
        trigger = task.defer()
        assert yarn.alive() == [trigger.driver]
    event = fires(trigger)
    task.die("before the evidence", event=event)
    task.start().succeed()
    assert set(yarn.apps()) - before == {trigger.driver}
    assert task.outcomes() == ["lost", "lost", "succeeded"]
    assert len(task.ran()) == 1


def test_a_failing_driver_runs_once_and_one_that_ended_unseen_is_the_result(yarn: Yarn, task: Task) -> None:
    before = set(yarn.apps())
    task.die("before submit")
    assert set(yarn.apps()) == before
    fail = task.folder / f"hold.fail-{task.window().window.id}"
    fail.touch()
    assert task.start().wait() == 1
    (failed,) = set(yarn.apps()) - before
    assert yarn.apps()[failed]["finalStatus"] == "FAILED"
    assert attempts_of(yarn, failed) == 1, "YARN ran the failing driver again"
    task.die("before the id is noted")
    wait_until(lambda: not yarn.alive(), what="the application ends", interval=0.5)
    task.start().succeed()
    assert len(set(yarn.apps()) - before) == 2
    assert task.is_whole()
    assert task.outcomes() == ["lost", "failed", "lost", "succeeded"]
