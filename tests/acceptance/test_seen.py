"""What Airflow's metrics and its OpenLineage provider say of windows: tasks on a real scheduler, a StatsD, events in files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_kafka_offsets.task import metrics as names
from airflow_kafka_offsets.task.openlineage import FACET
from tests.acceptance.conftest import Lab
from tests.lab.processes import wait_until
from tests.lab.statsd import StatsdServer
from tests.task.test_lineage import check_facet, ranges_in, totals_in

Event = dict[str, Any]


@dataclass(frozen=True)
class Submitted:
    """The runs of a DAG that launches Spark: its first try fails; then its window is replayed; and what StatsD got of both."""

    run: str
    replay: str
    statsd: StatsdServer


def events(lab: Lab, dag_id: str, task_id: str = "load") -> list[Event]:
    """Return the events of a task, oldest first."""
    found = [json.loads(path.read_text()) for path in (lab.folder / "lineage").glob("event*") if path.stat().st_size]
    mine = [event for event in found if event["job"]["name"] == f"{dag_id}.{task_id}"]
    return sorted(mine, key=lambda event: event["eventTime"])


def wait_for(lab: Lab, dag_id: str, kinds: list[str], task_id: str = "load") -> list[Event]:
    """Wait until a task has sent events of these kinds, and return them. They are written when Airflow knows the task's state already."""

    def sent() -> list[Event] | None:
        found = events(lab, dag_id, task_id)
        return found if [event["eventType"] for event in found] == kinds else None

    return wait_until(sent, what=f"{dag_id}.{task_id} sends {', '.join(kinds)}")


@pytest.fixture(scope="module")
def statsd(lab: Lab) -> Iterator[StatsdServer]:
    """Listen where Airflow sends its metrics."""
    with StatsdServer(lab.servers.statsd_port) as server:
        yield server


@pytest.fixture(scope="module")
def submitted(lab: Lab, statsd: StatsdServer) -> Submitted:
    """Run, with a first try that fails, and replay."""
    (lab.folder / "hold" / "seen_submit.fail-seen_submit-000001").touch()
    lab.topic("seen_submit", 25)
    run = lab.api.run_to("seen_submit")
    return Submitted(run, lab.api.run_to("seen_submit", {"windows": "1"}), statsd)


def test_openlineage_gets_the_ranges_of_each_try_and_the_outlets_stay(lab: Lab, submitted: Submitted) -> None:
    kinds = ["START", "FAIL", "START", "COMPLETE", "START", "COMPLETE"]
    _, failed, _, first, _, replayed = wait_for(lab, "seen_submit", kinds)
    servers = lab.kafka.client_config()["bootstrap.servers"]
    for event in (failed, first, replayed):
        (topic,) = event["inputs"]
        assert (topic["namespace"], topic["name"]) == (f"kafka://{servers}", "seen_submit")
        assert sorted(ranges_in(event)) == [(p, 0, 25, "seen_submit-000001") for p in range(4)]
        assert [output["name"] for output in event["outputs"]] == [f"{lab.folder}/lake/seen_submit"]
        assert totals_in(event)["seen_submit"]["span"] == 100
    assert [e["inputs"][0]["inputFacets"]["inputStatistics"]["rowCount"] for e in (first, replayed)] == [100, 100]
    said = [check_facet(window_of(event))["windows"][0] for event in (failed, first, replayed)]
    assert [(w["isRerun"], w["isCommitted"]) for w in said] == [(False, False), (False, True), (True, True)]


def window_of(event: Event) -> Event:
    """Return an event in the form that `check_facet` takes."""
    return {**event, "run_facets": event["run"]["facets"]}


def test_the_job_knows_the_run_that_started_it_and_its_window(lab: Lab, submitted: Submitted) -> None:
    *_, replayed = wait_for(lab, "seen_submit", ["START", "FAIL", "START", "COMPLETE", "START", "COMPLETE"])
    conf = json.loads((lab.folder / "lake" / "seen_submit.seen_submit-000001.conf").read_text())
    assert conf["spark.openlineage.parentRunId"] == replayed["run"]["runId"]
    assert conf["spark.openlineage.parentJobName"] == "seen_submit.load"
    assert json.loads(conf["spark.kafka_offsets.window"])["window_id"] == "seen_submit-000001"


def test_statsd_gets_what_happened_to_the_window(lab: Lab, submitted: Submitted) -> None:
    statsd, whose = (
        submitted.statsd,
        {"group": "seen_submit", "dag_id": "seen_submit", "task_id": "load", "lane": "live"},
    )

    def counted() -> dict[str, float]:
        return {name: statsd.total(f"airflow.{name}", **whose) for name in names.COUNTERS}

    expected = {
        names.WINDOWS_PLANNED: 1,
        names.WINDOWS_COMMITTED: 1,
        names.WINDOWS_REPLAYED: 1,
        names.ATTEMPTS_FAILED: 1,
        names.RECORDS: 200,
        names.OFFSETS_LOST: 0,
    }
    wait_until(lambda: counted() == expected, what=f"{expected} is counted; it is {counted()}")
    tags = [s.tags for s in statsd.samples(f"airflow.{names.ATTEMPT_DURATION}") if s.tags["group"] == "seen_submit"]
    assert [tag["outcome"] for tag in tags] == ["failed", "succeeded", "succeeded"]


def test_a_function_tells_the_same_as_a_job(lab: Lab, statsd: StatsdServer) -> None:
    lab.topic("seen_taskflow", 5)
    lab.api.run_to("seen_taskflow")
    _, event = wait_for(lab, "seen_taskflow", ["START", "COMPLETE"])
    assert sorted(ranges_in(event)) == [(p, 0, 5, "seen_taskflow-000001") for p in range(4)]
    assert [output["name"] for output in event["outputs"]] == [f"{lab.folder}/lake/seen_taskflow"]
    assert check_facet(window_of(event))["windows"][0]["records"] == 20
    wait_until(lambda: statsd.total(f"airflow.{names.RECORDS}", group="seen_taskflow") == 20, what="20 records")


def test_around_another_launcher_the_commit_tells_what_was_read(lab: Lab, statsd: StatsdServer) -> None:
    lab.topic("seen_around", 5)
    lab.api.run_to("seen_around")
    _, event = wait_for(lab, "seen_around", ["START", "COMPLETE"], "commit")
    assert sorted(ranges_in(event)) == [(p, 0, 5, "seen_around-000001") for p in range(4)]
    assert [output["name"] for output in event["outputs"]] == [f"{lab.folder}/lake/seen_around"]
    _, planned = wait_for(lab, "seen_around", ["START", "COMPLETE"], "plan")
    assert planned["inputs"] == []
    assert FACET not in planned["run"]["facets"]
    wait_until(
        lambda: statsd.total(f"airflow.{names.WINDOWS_COMMITTED}", group="seen_around", task_id="commit") == 1,
        what="the commit is counted",
    )
