"""Two runs of one group at once: one works, the other waits, skips or fails as told.

One that waits for a job of spark-submit is in `test_ordinary.py`.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from airflow_kafka_offsets.core.window import Lane, State
from tests.acceptance.conftest import PARTITIONS, Hold, Lab, expect_once, expect_tiling
from tests.lab.topics import create_topic, produce


def test_the_second_run_skips_or_fails_as_told(lab: Lab) -> None:
    for dag_id, state in (("skips", "skipped"), ("refuses", "failed")):
        lab.topic(dag_id)
        first = lab.api.trigger(dag_id)
        with lab.hold(dag_id) as hold:
            hold.wait()
            second = lab.api.trigger(dag_id)
            lab.api.wait_for_task(dag_id, second, "load", state)
            assert f"{dag_id}-000001 is being worked on by {dag_id}/{first}/load" in lab.api.log(dag_id, second, "load")
        lab.api.wait_for_run(dag_id, first, "success")
        assert len(lab.windows(dag_id)) == 1


@pytest.mark.parametrize(
    ("answer", "met", "ends"),
    [
        ("wait", "deferred", {"success": 5}),
        ("skip", "skipped", {"success": 5}),
        ("fail", "failed", {"success": 3, "failed": 2}),
    ],
)
def test_scheduled_manual_and_backfill_runs_of_one_group_at_once(
    lab: Lab, answer: str, met: str, ends: dict[str, int]
) -> None:
    """Two scheduled runs, one by hand and a backfill of two, while one of them is at work."""
    dag_id = f"together_{answer}"
    day = datetime(2026, 1, 4, tzinfo=UTC)
    produce_at(lab, dag_id, [day + timedelta(hours=h) for h in (0.5, 1.5, 13, 14)])
    # Not lab.hold(): the other scheduled run may fail, as it should, before this one is at work.
    with Hold(lab.folder / "hold" / dag_id) as hold:
        lab.api.unpause(dag_id)
        hold.wait()
        lab.api.trigger(dag_id)
        lab.api.backfill(dag_id, day, day + timedelta(hours=1))
        runs = lab.api.wait_for_some_runs(dag_id, 5)
        (at_work,) = lab.windows(dag_id)[:1]
        for run in runs:
            run_id = run["dag_run_id"]
            if run["run_type"] == "backfill":
                lab.api.wait_for_run(dag_id, run_id, "success")
            elif run_id != at_work.holder.run_id:
                lab.api.wait_for_task(dag_id, run_id, "plan", met)
                assert f"{dag_id}-000001 is being worked on by {at_work.holder}" in lab.api.log(dag_id, run_id, "plan")
        windows = [row.window for row in lab.windows(dag_id)]
        assert [(w.lane, w.state, w.span) for w in windows] == [
            (Lane.LIVE, State.PLANNED, 40),
            (Lane.BACKFILL, State.COMMITTED, 20),
            (Lane.BACKFILL, State.COMMITTED, 20),
        ]
    lab.api.wait_for_quiet(dag_id)
    assert Counter(run["state"] for run in lab.api.runs(dag_id)) == ends
    windows = [row.window for row in lab.windows(dag_id)]
    live = [w for w in windows if w.lane is Lane.LIVE]
    assert [w.span for w in live] == ([40, 0, 0] if answer == "wait" else [40])
    assert {w.state for w in windows} == {State.COMMITTED}
    expect_tiling(live)
    expect_once(lab, dag_id, windows)


def produce_at(lab: Lab, dag_id: str, times: list[datetime]) -> None:
    """Append five records of each time to each partition of a new topic."""
    create_topic(lab.kafka, dag_id, PARTITIONS, {"retention.ms": "-1"})
    for partition in range(PARTITIONS):
        for time in times:
            produce(lab.kafka, dag_id, 5, partition=partition, timestamp_ms=int(time.timestamp() * 1000))
