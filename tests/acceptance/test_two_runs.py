"""Two runs of one group at once: one works, the other waits, skips or fails as told."""

from __future__ import annotations

from airflow_kafka_offsets.core.window import State
from tests.acceptance.conftest import Lab, expect_once, expect_tiling


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
