"""Two runs of one group at once: one works, the other waits, skips or fails as told."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

from airflow_kafka_offsets.core.window import Lane, State
from tests.acceptance.conftest import PARTITIONS, Lab, expect_once, expect_tiling
from tests.lab.processes import wait_until
from tests.lab.topics import create_topic, produce


def test_the_second_run_waits_deferred_and_then_reads_what_came_after(lab: Lab) -> None:
    lab.topic("waits")
    first = lab.api.trigger("waits")
    with lab.hold("waits") as hold:
        hold.wait()
        lab.produce("waits", 40)
        second = lab.api.trigger("waits")
        lab.api.wait_for_task("waits", second, "load", "deferred")
        assert len(lab.windows("waits")) == 1
    lab.api.wait_for_run("waits", first, "success")
    lab.api.wait_for_run("waits", second, "success")
    windows = [row.held.window for row in lab.windows("waits")]
    assert [w.state for w in windows] == [State.COMMITTED] * 2
    assert lab.api.xcom("waits", second, "load")["seq"] == 2
    expect_tiling(windows)
    expect_once(lab, "waits", windows)


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


def test_scheduled_manual_and_backfill_runs_of_one_group_at_once(lab: Lab) -> None:
    """Two scheduled runs, a backfill of two and one by hand, all at the same moment, for each answer."""
    dags = ("together_wait", "together_skip", "together_fail")
    day = datetime(2026, 1, 4, tzinfo=UTC)
    before, after = ([day + timedelta(hours=h) for h in hours] for hours in ([0.5, 1.5], [13, 14]))
    for dag_id in dags:
        create_topic(lab.kafka, dag_id, PARTITIONS, {"retention.ms": "-1"})
        for partition in range(PARTITIONS):
            for time in (*before, *after):
                produce(lab.kafka, dag_id, 5, partition=partition, timestamp_ms=int(time.timestamp() * 1000))
    for dag_id in dags:
        lab.api.unpause(dag_id)
        lab.api.wait_for_first_run(dag_id)
        wait_until(lambda d=dag_id: lab.windows(d), timeout=120, what=f"{dag_id} has a watermark")  # type: ignore[misc]
        lab.api.trigger(dag_id)
        lab.api.backfill(dag_id, day, day + timedelta(hours=1))
    for dag_id in dags:
        lab.api.wait_for_some_runs(dag_id, 5, timeout=120)
        lab.api.wait_for_quiet(dag_id, timeout=300)
        windows = [row.held.window for row in lab.windows(dag_id)]
        expect_tiling([w for w in windows if w.lane is Lane.LIVE])
        expect_once(lab, dag_id, [w for w in windows if w.state is State.COMMITTED])
        states = Counter(run["state"] for run in lab.api.runs(dag_id))
        if dag_id == "together_wait":
            assert states == {"success": 5}
            assert {w.state for w in windows} == {State.COMMITTED}
        assert "failed" not in states or dag_id == "together_fail"
        # A backfill works on other windows than the live lane: it never stands in its way.
        assert sorted(w.span for w in windows if w.lane is Lane.BACKFILL) == [20, 20]
