"""Airflow's own backfills, and windows by time: intervals divide windows and records, each in exactly one run."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

from airflow_kafka_offsets.core.window import Lane, State, Window
from tests.acceptance.conftest import PARTITIONS, Hold, Lab, expect_once, expect_tiling
from tests.lab.processes import wait_until
from tests.lab.topics import create_topic, produce

DAY = datetime(2026, 1, 5, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
FOR_EVER = {"retention.ms": "-1"}


def write(lab: Lab, dag_id: str, times: list[datetime]) -> None:
    """Append five records of each time to each partition, in this order."""
    for partition in range(PARTITIONS):
        for time in times:
            produce(lab.kafka, dag_id, 5, partition=partition, timestamp_ms=int(time.timestamp() * 1000))


def ends(window: Window) -> list[int]:
    """Return the end of each partition."""
    return [r.end for r in window.ranges.values()]


def windows_of_runs(lab: Lab, dag_id: str, kind: str) -> dict[str, list[str]]:
    """Return the ids of windows that the plan tasks of runs of a kind handed off, by run."""
    runs = [run["dag_run_id"] for run in lab.api.runs(dag_id) if run["dag_run_id"].startswith(kind)]
    planned = {run: lab.api.xcom(dag_id, run, "plan") for run in runs}
    return {run: [window["window_id"]] for run, window in planned.items() if window}


def start_live(lab: Lab, dag_id: str, step: timedelta) -> None:
    """Let the live lane begin behind records of three past intervals, one of which came late."""
    create_topic(lab.kafka, dag_id, PARTITIONS, FOR_EVER)
    late = DAY + step / 2
    write(lab, dag_id, [DAY + step / 4, DAY + step * 1.5, late, DAY + step * 2.5, DAY + step * 2.6])
    lab.api.unpause(dag_id)


def wait_for_first_window(lab: Lab, dag_id: str) -> None:
    first = lab.api.wait_for_first_run(dag_id)
    lab.api.wait_for_run(dag_id, first["dag_run_id"], "success")


def wait_for_scheduled_window(lab: Lab, dag_id: str) -> tuple[str, str]:
    """Return a scheduled run that has a window with records, and the window's id."""
    found: dict[str, list[str]] = {}
    waiting = lab.api.watch(dag_id)

    def is_there() -> bool:
        found.update(windows_of_runs(lab, dag_id, "scheduled"))
        return bool(found)

    waiting.wait_until(is_there, what="a scheduled run has a window with records", interval=1)
    run, [window_id] = next(iter(found.items()))
    lab.api.wait_for_run(dag_id, run, "success")
    return run, window_id


def is_all_committed(lab: Lab, dag_id: str) -> bool:
    """Whether the live windows reach the end of the log, and each that has records is committed."""
    windows = [row.window for row in lab.windows(dag_id)]
    reached = {tp.partition: end for w in windows if w.lane is Lane.LIVE for tp, end in w.ranges.ends.items()}
    return reached == lab.end_offsets(dag_id) and all(w.state is State.COMMITTED for w in windows if w.span)


def expect_divided(lab: Lab, dag_id: str) -> list[Window]:
    """Check that each run of the backfill had the window of its interval, and return the backfill's windows."""
    windows = [row.window for row in lab.windows(dag_id)]
    filled = [w for w in windows if w.lane is Lane.BACKFILL]
    assert sorted(ends(w)[0] for w in filled) == [5, 15, 25]
    planned = windows_of_runs(lab, dag_id, "backfill")
    assert sorted(i for ids in planned.values() for i in ids) == sorted(w.id for w in filled)
    assert len(planned) == 3
    return filled


def test_a_backfill_divides_what_nobody_owned_among_its_runs_whatever_is_reprocessed(lab: Lab) -> None:
    behaviours = ("none", "failed", "completed")
    dags = {f"backfilled_{how}": how for how in behaviours}
    for dag_id in dags:
        start_live(lab, dag_id, HOUR)
    for dag_id in dags:
        wait_for_first_window(lab, dag_id)
    created = {dag_id: lab.api.backfill(dag_id, DAY, DAY + 2 * HOUR) for dag_id in dags}
    for backfill_id in created.values():
        lab.api.wait_for_backfill(backfill_id)
    first = {dag_id: expect_divided(lab, dag_id) for dag_id in dags}

    second_run = f"backfill__{(DAY + 2 * HOUR).isoformat()}"
    lab.api.mark_run("backfilled_failed", second_run, "failed")
    again = {dag_id: lab.api.backfill(dag_id, DAY, DAY + 2 * HOUR, reprocess=how) for dag_id, how in dags.items()}
    for dag_id in ("backfilled_failed", "backfilled_completed"):
        lab.api.wait_for_backfill(again[dag_id])  # one that leaves all as it is takes Airflow minutes to end
    for dag_id, rerun in {"backfilled_none": 0, "backfilled_failed": 1, "backfilled_completed": 3}.items():
        assert expect_divided(lab, dag_id) == first[dag_id], "a window was cut again"
        runs = windows_of_runs(lab, dag_id, "backfill")
        assert sum(lab.api.xcom(dag_id, run, "commit")["is_rerun"] for run in runs) == rerun
        expect_once(lab, dag_id, [row.window for row in lab.windows(dag_id)])


def test_a_backfill_goes_backwards_beside_the_live_schedule_and_reprocesses_its_runs(lab: Lab) -> None:
    dag_id = "backfilled_live"
    start_live(lab, dag_id, MINUTE)
    wait_for_first_window(lab, dag_id)
    lab.produce(dag_id, 20)
    live = lab.api.trigger(dag_id)
    backfill_id = lab.api.backfill(dag_id, DAY, DAY + 2 * MINUTE, backwards=True, max_active_runs=1)
    lab.api.wait_for_run(dag_id, live, "success")
    lab.api.wait_for_backfill(backfill_id)
    filled = expect_divided(lab, dag_id)
    assert [ends(w)[0] for w in filled] == [25, 15, 5], "the latest interval first"
    assert [w.planned_until for w in filled] == [DAY + n * MINUTE for n in (3, 2, 1)]

    # A scheduled run, and one by hand, whose windows belong to intervals that are now reprocessed.
    lab.produce(dag_id, 20)
    scheduled, had = wait_for_scheduled_window(lab, dag_id)
    run = lab.api.run(dag_id, scheduled)
    start = datetime.fromisoformat(run["data_interval_start"])
    lab.api.wait_for_backfill(lab.api.backfill(dag_id, start, start, reprocess="completed"))
    assert lab.api.run(dag_id, scheduled)["run_type"] == "backfill"
    assert lab.api.xcom(dag_id, scheduled, "plan")["window_id"] == had
    assert lab.api.xcom(dag_id, scheduled, "commit") == {
        "window_id": had,
        "is_rerun": True,
        "records": None,
        "bad": None,
    }
    # A paused DAG starts no further task: what was produced last, a run of the schedule may be at work on.
    wait_until(
        lambda: is_all_committed(lab, dag_id),
        what="all records are committed",
        interval=1,
    )
    lab.api.pause(dag_id)
    windows = [row.window for row in lab.windows(dag_id)]
    assert {w.state for w in windows if w.span} == {State.COMMITTED}
    expect_tiling([w for w in windows if w.lane is Lane.LIVE])
    expect_once(lab, dag_id, windows)


def test_an_interval_without_width_is_refused_with_the_way_out(lab: Lab) -> None:
    lab.topic("zero_width")
    wait_for_first_window(lab, "zero_width")
    lab.api.wait_for_backfill(lab.api.backfill("zero_width", DAY, DAY))
    (run,) = [r for r in lab.api.runs("zero_width") if r["run_type"] == "backfill"]
    assert run["state"] == "failed"
    assert "such as CronDataIntervalTimetable" in lab.api.log("zero_width", run["dag_run_id"], "plan")
    assert not [row for row in lab.windows("zero_width") if row.window.lane is Lane.BACKFILL]


def test_catchup_gives_one_window_per_interval_and_late_records_to_the_next(lab: Lab) -> None:
    dag_id = "by_interval"
    create_topic(lab.kafka, dag_id, PARTITIONS, FOR_EVER)
    times = [0.1, 0.9, 1.2, 0.8, 1.9, 2.5, 1.5]  # hours: two records come after the end of their interval
    write(lab, dag_id, [DAY + HOUR * t for t in times])
    lab.api.unpause(dag_id)
    lab.api.wait_for_runs(dag_id, 4)
    windows = [row.window for row in lab.windows(dag_id)]
    assert [(w.planned_until - DAY) / HOUR for w in windows] == [1, 2, 3, 4]
    assert [ends(w)[0] for w in windows] == [10, 25, 35, 35]
    expect_tiling(windows)
    expect_once(lab, dag_id, windows)


def test_a_topic_that_appears_under_a_pattern_is_read_by_the_next_scheduled_run(lab: Lab) -> None:
    first, second = "by_pattern", "by_pattern-eu"
    create_topic(lab.kafka, first, PARTITIONS)
    lab.produce(first, 10)
    with Hold(lab.folder / "hold" / first) as hold:
        lab.api.unpause(first)
        hold.wait()
        create_topic(lab.kafka, second, PARTITIONS)
        lab.produce(second, 5)
    runs = lab.api.wait_for_runs(first, 2)
    assert {run["run_type"] for run in runs} == {"scheduled"}
    windows = [row.window for row in lab.windows(first)]
    assert [w.state for w in windows] == [State.COMMITTED] * 2
    read = [{(tp.topic, r.start, r.end) for tp, r in w.ranges.without_empty().items()} for w in windows]
    assert read == [{(first, 0, 10)}, {(second, 0, 5)}]
    assert lab.lake(first) == Counter((p, n) for p in range(PARTITIONS) for n in (*range(10), *range(5)))
    assert lab.ledger.group(first).topics == (first, second)


def test_a_run_waits_for_the_grace_before_it_plans(lab: Lab) -> None:
    lab.topic("graceful")
    # A run comes when its interval has just ended. But the first one is due since the DAG was read, and a busy scheduler is late.
    for number in range(2, 6):
        run = lab.api.wait_for_some_runs("graceful", number)[number - 1]
        lab.api.wait_for_run("graceful", run["dag_run_id"], "success")
        if has_waited := "Waiting until" in lab.api.log("graceful", run["dag_run_id"], "plan"):
            break
    lab.api.pause("graceful")
    assert has_waited
    end = datetime.fromisoformat(run["data_interval_end"])
    (row,) = [row for row in lab.windows("graceful") if row.window.planned_until == end]
    assert row.planned_at >= end + timedelta(seconds=75)
