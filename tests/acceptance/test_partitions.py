"""Partitions of assets: windows that end with an hour run another DAG once for each hour."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from airflow_kafka_offsets.airflow_versions import has_partitions
from airflow_kafka_offsets.core.window import State
from tests.acceptance.conftest import PARTITIONS, Lab, expect_once, expect_tiling
from tests.lab.processes import wait_until
from tests.lab.topics import create_topic, produce

DAY = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)

pytestmark = pytest.mark.skipif(not has_partitions(), reason="tasks give events a partition key from Airflow 3.3 on")


def start(lab: Lab, dag_id: str) -> None:
    """Let the DAG and its consumers run, with records of four hours, the first four of the day."""
    create_topic(lab.kafka, dag_id, PARTITIONS, {"retention.ms": "-1"})
    for partition in range(PARTITIONS):
        for number in range(4):
            time = DAY + (number + 0.5) * HOUR
            produce(lab.kafka, dag_id, 5, partition=partition, timestamp_ms=int(time.timestamp() * 1000))
    for name in (f"{dag_id}_consumer", f"{dag_id}_plain_consumer", dag_id):
        lab.api.unpause(name)


def keys(lab: Lab, dag_id: str) -> list[str]:
    """Return the keys of the consumer's runs."""
    return sorted(run["partition_key"] for run in lab.api.runs(f"{dag_id}_consumer"))


def hours(*numbers: int) -> list[str]:
    """Name partitions by the hour of the day at which they begin."""
    return [f"2026-01-05T{number:02}:00:00" for number in numbers]


def wait_for_keys(lab: Lab, dag_id: str, wanted: list[str]) -> None:
    """Wait until the consumer has runs of these partitions, and no others."""
    wait_until(lambda: len(keys(lab, dag_id)) >= len(wanted), what=f"{dag_id} has {len(wanted)} consumers", interval=1)
    assert keys(lab, dag_id) == wanted
    for run in lab.api.runs(f"{dag_id}_consumer"):
        lab.api.wait_for_run(f"{dag_id}_consumer", run["dag_run_id"])


def expect_hours(lab: Lab, dag_id: str, ends: list[int]) -> None:
    """Check that the windows are committed, and end at these hours."""
    windows = [row.window for row in lab.windows(dag_id)]
    assert [w.planned_until for w in windows] == [DAY + end * HOUR for end in ends]
    assert {w.state for w in windows} == {State.COMMITTED}
    expect_tiling(windows)
    expect_once(lab, dag_id, windows)


def test_each_hour_that_is_complete_triggers_its_consumer_once(lab: Lab) -> None:
    """The run of two o'clock fails for good, and the next one adopts its window."""
    dag_id = "by_hour"
    start(lab, dag_id)
    runs = lab.api.wait_for_some_runs(dag_id, 4)
    lab.api.wait_for_run(dag_id, runs[-1]["dag_run_id"])
    assert [lab.api.run(dag_id, run["dag_run_id"])["state"] for run in runs] == ["success", "failed", *["success"] * 2]
    expect_hours(lab, dag_id, [1, 2, 4])
    once = hours(0, 1, 3)
    wait_for_keys(lab, dag_id, once)
    plain = lab.api.wait_for_first_run(f"{dag_id}_plain_consumer")
    lab.api.wait_for_run(f"{dag_id}_plain_consumer", plain["dag_run_id"])
    assert plain["partition_key"] is None

    lab.api.run_to(dag_id, {"windows": "1"})
    lab.api.clear_run(dag_id, runs[0]["dag_run_id"])
    lab.api.wait_for_run(dag_id, runs[0]["dag_run_id"])
    assert lab.api.xcom(dag_id, runs[0]["dag_run_id"], "commit")["is_rerun"]
    # Had the two before triggered a consumer, its run would be there before that of this one.
    lab.api.run_to(dag_id, {"windows": "2", "trigger_consumers": True})
    wait_for_keys(lab, dag_id, sorted([*once, *hours(1)]))
    expect_hours(lab, dag_id, [1, 2, 4])


def test_the_runs_of_partitions_end_with_them_and_a_backfill_of_partitions_replays_them(lab: Lab) -> None:
    dag_id = "of_partition"
    start(lab, dag_id)
    runs = lab.api.wait_for_some_runs(dag_id, 4)
    lab.api.wait_for_run(dag_id, runs[-1]["dag_run_id"])
    assert [run["partition_key"] for run in runs] == hours(0, 1, 2, 3)
    assert {run["data_interval_end"] for run in runs} == {None}
    expect_hours(lab, dag_id, [1, 2, 3, 4])
    wait_for_keys(lab, dag_id, hours(0, 1, 2, 3))

    lab.api.wait_for_backfill(lab.api.backfill(dag_id, DAY + HOUR, DAY + 2 * HOUR, reprocess="completed"))
    filled = [run["dag_run_id"] for run in lab.api.runs(dag_id) if run["run_type"] == "backfill"]
    planned = [lab.api.xcom(dag_id, run, "plan") for run in filled]
    again = sorted((window["window_id"], window["is_rerun"]) for window in planned)
    assert again == [(f"{dag_id}-000002", True), (f"{dag_id}-000003", True)]
    assert lab.api.runs(f"{dag_id}_plain_consumer") == [], "Airflow gives each event of such a run a key"
    lab.api.run_to(dag_id, {"windows": "4", "trigger_consumers": True})
    wait_for_keys(lab, dag_id, hours(0, 1, 2, 3, 3))
    expect_hours(lab, dag_id, [1, 2, 3, 4])
