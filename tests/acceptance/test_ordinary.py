"""The ordinary case: runs follow one another while a producer keeps writing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from airflow_kafka_offsets.core.window import Outcome, State, Window, WindowRecord
from airflow_kafka_offsets.task.links import in_airflow
from tests.acceptance.conftest import Lab, Producing, expect_at_the_end, expect_once, expect_tiling


@dataclass(frozen=True)
class Steady:
    """Three runs while a producer wrote: their ids, windows, and what the first one handed downstream.

    Attributes:
        rows_meanwhile: the windows while the second run waited for the first one.
    """

    runs: list[str]
    rows_meanwhile: list[WindowRecord]
    rows: list[WindowRecord]
    result: dict[str, Any]

    @property
    def windows(self) -> list[Window]:
        """Their windows."""
        return [row.window for row in self.rows]


@pytest.fixture(scope="module")
def steady(lab: Lab) -> Steady:
    """Run three times while a producer keeps writing; the second run comes while the first one is at work."""
    lab.topic("steady", 500)
    with Producing(lab, "steady"):
        first = lab.api.trigger("steady")
        with lab.hold("steady") as hold:
            hold.wait()
            second = lab.api.trigger("steady")
            lab.api.wait_for_task("steady", second, "load", "deferred")
            meanwhile = lab.windows("steady")
        for run in (first, second):
            lab.api.wait_for_run("steady", run)
        runs = [first, second, lab.api.run_to("steady")]
    return Steady(runs, meanwhile, lab.windows("steady"), lab.api.xcom("steady", runs[0], "load"))


def test_three_runs_while_a_producer_writes_tile_the_log(lab: Lab, steady: Steady) -> None:
    assert [w.state for w in steady.windows] == [State.COMMITTED] * 3
    assert [w.id for w in steady.windows] == ["steady-000001", "steady-000002", "steady-000003"]
    assert all(w.span > 0 for w in steady.windows)
    assert all(row.records == row.window.span for row in steady.rows)
    expect_tiling(steady.windows)
    expect_once(lab, "steady", [row.window for row in lab.windows("steady")])


def test_the_second_run_waits_deferred_and_then_reads_what_came_after(lab: Lab, steady: Steady) -> None:
    first, second, _ = steady.windows
    assert [row.window.ranges for row in steady.rows_meanwhile] == [first.ranges]
    assert lab.api.xcom("steady", steady.runs[1], "load")["seq"] == second.seq == 2
    assert second.span > 0


def test_what_downstream_gets_is_small_and_says_what_was_read(steady: Steady) -> None:
    window, result = steady.windows[0], steady.result
    assert result["window_id"] == window.id
    assert (result["group"], result["seq"], result["is_rerun"]) == ("steady", 1, False)
    assert result["span"] == result["records"] == window.span
    assert result["ranges"]["steady"]["0"] == [0, window.ranges.ends[next(iter(window.ranges))]]


def test_airflow_shows_the_window_of_a_task_without_its_log(lab: Lab, steady: Steady) -> None:
    window, run = steady.windows[1], steady.runs[1]
    links = lab.api.links("steady", run, "load")
    assert links["Kafka window"] == in_airflow(f"windows/{window.id}")
    assert lab.api.task("steady", run, "load")["rendered_map_index"] == f"{window.id} · {window.span:,} records"


def test_the_log_ends_with_the_window_and_what_spark_said_is_folded(lab: Lab, steady: Steady) -> None:
    window, log = steady.windows[0], lab.api.log("steady", steady.runs[0], "load", 1)
    seen = lab.api.unfolded_log("steady", steady.runs[0], "load", 1)
    assert "Spark-Submit cmd" in log
    assert "Spark-Submit cmd" not in seen
    size = f"{window.span} offsets"
    listed = [f"        steady-{tp.partition}: {r}" for tp, r in window.ranges.items()]
    block = [f"Window {window.id}: committed", f"    offsets: {size} in 4 partitions", *listed]
    expect_at_the_end(seen, [*block, f"    job: {window.span} records read of {size}"])


def test_a_cleared_run_runs_its_window_again_and_leaves_the_watermark(lab: Lab, steady: Steady) -> None:
    run = steady.runs[0]
    before = [row.window for row in lab.windows("steady")]
    first_directory = lab.folder / "lake" / "steady" / f"window_id={before[0].id}"
    files = {path.name for path in first_directory.glob("*.parquet")}
    lab.api.clear("steady", run, ["load"])
    lab.api.wait_for_run("steady", run, "success")
    rows = lab.windows("steady")
    assert [row.window for row in rows] == before
    assert [a.outcome for a in lab.attempts(rows[0])] == [Outcome.SUCCEEDED, Outcome.SUCCEEDED]
    assert lab.api.xcom("steady", run, "load")["is_rerun"] is True
    assert files.isdisjoint(path.name for path in first_directory.glob("*.parquet")), "the output was not replaced"
    expect_once(lab, "steady", before)


@pytest.fixture(scope="module")
def own_job(lab: Lab) -> str:
    """Run a job that knows nothing of us, and return the run."""
    lab.topic("own_job", 50)
    return lab.api.run_to("own_job")


def test_a_job_that_knows_nothing_of_us_gets_the_window_as_arguments(lab: Lab, own_job: str) -> None:
    windows = [row.window for row in lab.windows("own_job")]
    expect_once(lab, "own_job", windows)
    assert lab.api.xcom("own_job", own_job, "load")["records"] is None
    assert windows[0].state is State.COMMITTED


def test_a_run_with_nothing_to_read_launches_nothing_and_commits(lab: Lab, own_job: str) -> None:
    run = lab.api.run_to("own_job")
    row = lab.windows("own_job")[-1]
    assert row.window.span == 0
    assert row.window.state is State.COMMITTED
    assert row.attempts == 0
    assert lab.api.xcom("own_job", run, "load")["records"] == 0
    assert "spark-submit" not in lab.api.log("own_job", run, "load").lower()
    block = [
        f"Window {row.window.id}: committed",
        "    offsets: none",
        "    job: none, nothing to read",
    ]
    expect_at_the_end(lab.api.unfolded_log("own_job", run, "load"), block)


def test_plan_and_commit_work_around_another_launcher(lab: Lab) -> None:
    lab.topic("around", 25)
    run = lab.api.run_to("around")
    (row,) = lab.windows("around")
    assert row.window.state is State.COMMITTED
    assert lab.api.xcom("around", run, "commit") == {
        "window_id": "around-000001",
        "is_rerun": False,
        "records": None,
        "bad": None,
    }
    assert "Window around-000001: committed\n    offsets: 100 offsets in 4 partitions" in lab.api.log(
        "around", run, "commit"
    )
    expect_once(lab, "around", [row.window])
    for task in ("plan", "commit"):
        assert lab.api.links("around", run, task)["Kafka window"] == in_airflow("windows/around-000001")
        assert lab.api.task("around", run, task)["rendered_map_index"] == "around-000001 · 100 offsets"
    # Nothing new: the plan commits the empty window, and skips the launcher.
    second = lab.api.run_to("around")
    assert {t["task_id"]: t["state"] for t in lab.api.tasks("around", second)} == dict.fromkeys(
        ("plan", "run", "commit"), "skipped"
    )
    assert lab.windows("around")[-1].window.state is State.COMMITTED
    # A clear of the whole run runs the same window again.
    lab.api.clear_run("around", run)
    lab.api.wait_for_run("around", run, "success")
    assert lab.api.xcom("around", run, "commit") == {
        "window_id": "around-000001",
        "is_rerun": True,
        "records": None,
        "bad": None,
    }
    assert len(lab.windows("around")) == 2


def test_a_launcher_that_is_green_commits_nothing_until_its_job_has_reported(lab: Lab) -> None:
    silent = lab.folder / "hold" / "reported.silent"
    silent.touch()
    lab.topic("reported", 25)
    run = lab.api.run_to("reported", state="failed")
    states = {task["task_id"]: task["state"] for task in lab.api.tasks("reported", run)}
    assert states == {"plan": "success", "run": "success", "commit": "failed"}
    [row] = lab.windows("reported")
    assert row.window.state is State.PLANNED
    log = lab.api.log("reported", run, "commit")
    assert "no job has reported" in log
    assert "To run the job again, clear the plan task with all tasks after it" in log
    first = lab.api.xcom("reported", run, "plan")

    silent.unlink()
    lab.api.clear("reported", run, ["plan"], downstream=True)
    lab.api.wait_for_run("reported", run)
    given = lab.api.xcom("reported", run, "plan")
    assert given["window_id"] == first["window_id"] == "reported-000001"
    assert given["exchange"] != first["exchange"], "a report of the first time could count for the second one"
    done = {"window_id": "reported-000001", "is_rerun": False, "records": 100, "bad": None}
    assert lab.api.xcom("reported", run, "commit") == done
    [row] = lab.windows("reported")
    assert (row.window.state, row.records) == (State.COMMITTED, 100)
    expect_once(lab, "reported", [row.window])


def test_airflow_runs_a_dag_and_a_clear_runs_it_again(lab: Lab) -> None:
    lab.api.unpause("answer")
    run = lab.api.run_to("answer", {"question": "six times nine"})
    assert lab.api.xcom("answer", run, "say") == ["six times nine", 1]
    lab.api.clear("answer", run, ["say"])
    lab.api.wait_for_run("answer", run)
    assert lab.api.xcom("answer", run, "say") == ["six times nine", 2]
