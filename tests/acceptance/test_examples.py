"""The DAGs that we ship, run as they stand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from airflow_kafka_offsets.core.window import State, Window
from tests.acceptance.conftest import PARTITIONS, Lab, expect_once, expect_tiling
from tests.lab.processes import wait_until
from tests.lab.topics import create_topic, produce

FIRST_HOUR = datetime(2026, 11, 1, tzinfo=UTC)
BY_HAND = ("orders", "orders_replayable", "orders_backlog", "sensor_driven")


@pytest.fixture(scope="module")
def orders(lab: Lab) -> dict[str, str]:
    """Fill the topic with old orders and some of today, let all DAGs run, and return the runs that were started by hand."""
    create_topic(lab.kafka, "orders", PARTITIONS, {"retention.ms": "-1"})
    for partition in range(PARTITIONS):
        for time in (FIRST_HOUR + timedelta(minutes=30), datetime.now(UTC)):
            produce(lab.kafka, "orders", 10, partition=partition, timestamp_ms=int(time.timestamp() * 1000))
    for dag_id in (*BY_HAND, "orders_by_hour", "asset_driven_report", "asset_driven"):
        lab.api.unpause(dag_id)
    return {dag_id: lab.api.trigger(dag_id) for dag_id in BY_HAND}


def expect_loaded(lab: Lab, group: str) -> list[Window]:
    """Check that the lake of a group holds its windows, and return these."""
    windows = [row.held.window for row in lab.windows(group)]
    expect_tiling(windows)
    expect_once(lab, group, [w for w in windows if w.state is State.COMMITTED])
    return windows


def test_the_load_by_hour_catches_up(lab: Lab, orders: dict[str, str]) -> None:
    wait_until(lambda: len(lab.windows("lake.orders_by_hour")) >= 2, timeout=300, what="two hours are planned")
    lab.api.pause("orders_by_hour")
    first, second = lab.api.wait_for_some_runs("orders_by_hour", 2)[:2]
    for run in (first, second):
        lab.api.wait_for_run("orders_by_hour", run["dag_run_id"], "success", timeout=300)
    windows = expect_loaded(lab, "lake.orders_by_hour")
    assert [w.until for w in windows[:2]] == [FIRST_HOUR + timedelta(hours=h) for h in (1, 2)]
    assert [w.span for w in windows[:2]] == [10 * PARTITIONS, 0]


def test_the_hourly_load_and_the_backlog(lab: Lab, orders: dict[str, str]) -> None:
    for dag_id, group in {"orders": "lake.orders", "orders_backlog": "lake.orders_backlog"}.items():
        lab.api.wait_for_run(dag_id, orders[dag_id], "success", timeout=300)
        assert expect_loaded(lab, group)[0].span == 20 * PARTITIONS


def test_the_load_by_size_waits_until_it_is_worth_it(lab: Lab, orders: dict[str, str]) -> None:
    # Whose run it is depends on the time of day: those of the schedule wait for it, too.
    wait_until(
        lambda: any(row.committed_at for row in lab.windows("lake.orders_by_size")), timeout=300, what="a load by size"
    )
    first = lab.windows("lake.orders_by_size")[0]
    assert lab.api.xcom("sensor_driven", first.held.holder.run_id, "enough")["span"] == 20 * PARTITIONS
    assert expect_loaded(lab, "lake.orders_by_size")[0].span == 20 * PARTITIONS


def test_the_replay_by_the_form(lab: Lab, orders: dict[str, str]) -> None:
    lab.api.wait_for_run("orders_replayable", orders["orders_replayable"], "success", timeout=300)
    # As the form sends it.
    form = {"windows": "1", **dict.fromkeys(("from", "to", "starting_offsets", "ending_offsets"))}
    replay = lab.api.run_to("orders_replayable", form, timeout=300)
    told = lab.api.xcom("orders_replayable", replay, "load")
    assert (told["window_id"], told["is_rerun"]) == ("lake.orders_replayable-000001", True)
    assert expect_loaded(lab, "lake.orders_replayable")[0].span == 20 * PARTITIONS


def test_the_chain_without_a_clock(lab: Lab, orders: dict[str, str]) -> None:
    run = lab.api.wait_for_first_run("asset_driven", timeout=180)
    lab.api.wait_for_run("asset_driven", run["dag_run_id"], "success", timeout=300)
    expect_loaded(lab, "lake.orders_on_arrival")
    report = lab.api.wait_for_first_run("asset_driven_report", timeout=120)
    lab.api.wait_for_run("asset_driven_report", report["dag_run_id"], "success", timeout=180)
    assert lab.api.xcom("asset_driven_report", report["dag_run_id"], "tell") == ["lake.orders_on_arrival-000001"]
    for dag_id in (
        "asset_driven",
        "asset_driven_report",
        "orders",
        "orders_replayable",
        "orders_backlog",
        "sensor_driven",
    ):
        lab.api.pause(dag_id)
