"""The DAGs that we ship, run as they stand; one after the other, as each starts a Spark of its own.

All read one topic, of which a test takes some records away: what is there is counted, because any of them may come first.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from airflow_kafka_offsets.airflow_versions import has_partitions
from airflow_kafka_offsets.core.window import State, Window
from tests.acceptance.conftest import PARTITIONS, Lab, expect_once, expect_tiling
from tests.lab.processes import wait_until
from tests.lab.topics import create_topic, delete_records, end_offset, offsets_left, produce

FIRST_HOUR = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture(scope="module", autouse=True)
def orders(lab: Lab) -> None:
    """Fill the topic with orders of the first hour, and some of now."""
    create_topic(lab.kafka, "orders", PARTITIONS, {"retention.ms": "-1"})
    for partition in range(PARTITIONS):
        for time in (FIRST_HOUR + timedelta(minutes=30), datetime.now(UTC)):
            produce(lab.kafka, "orders", 10, partition=partition, timestamp_ms=int(time.timestamp() * 1000))


def there(lab: Lab) -> int:
    """Return how many orders the topic has."""
    return sum(offsets_left(lab.kafka, "orders", partition) for partition in range(PARTITIONS))


def run_by_hand(lab: Lab, dag_id: str) -> None:
    """Start a run and wait for it; at a full hour, one of the schedule may have been faster."""
    lab.api.unpause(dag_id)
    lab.api.run_to(dag_id)


def load_all(lab: Lab, dag_id: str, group: str) -> None:
    """Load what the topic has, unless another test did: after a loss, no run of the group succeeds before a person acts."""
    if not lab.windows(group):
        run_by_hand(lab, dag_id)
        assert wait_for_load(lab, group).span == there(lab)
        lab.api.pause(dag_id)


def wait_for_load(lab: Lab, group: str) -> Window:
    """Return the first window of a group that is committed with its orders."""

    def loaded() -> list[Window]:
        rows = lab.windows(group)
        return [row.window for row in rows if row.window.span and row.committed_at]

    wait_until(loaded, what=f"{group} has loaded a window", interval=1)
    return loaded()[0]


def expect_loaded(lab: Lab, group: str) -> None:
    """Check that the lake of a group holds its committed windows, and that these tile the log."""
    windows = [row.window for row in lab.windows(group)]
    expect_tiling(windows)
    expect_once(lab, group, [w for w in windows if w.state is State.COMMITTED])


@pytest.mark.parametrize(
    ("dag_id", "group"),
    [("example_orders", "example.orders"), ("example_orders_backlog", "example.orders_backlog")],
    ids=["hourly", "backlog"],
)
def test_the_hourly_load_and_the_backlog(lab: Lab, dag_id: str, group: str) -> None:
    load_all(lab, dag_id, group)
    expect_loaded(lab, group)


def test_the_load_by_size_waits_until_it_is_worth_it(lab: Lab) -> None:
    lab.api.unpause("example_orders_by_size")
    lab.api.trigger("example_orders_by_size")
    assert wait_for_load(lab, "example.orders_by_size").span == there(lab)
    lab.api.pause("example_orders_by_size")
    first = lab.windows("example.orders_by_size")[0]
    assert lab.api.xcom("example_orders_by_size", first.holder.run_id, "enough")["span"] == there(lab)
    expect_loaded(lab, "example.orders_by_size")


def test_the_replay_by_the_form(lab: Lab) -> None:
    run_by_hand(lab, "example_orders_replayable")
    first = wait_for_load(lab, "example.orders_replayable")
    # As the form sends it.
    form = {"windows": str(first.seq), **dict.fromkeys(("from", "to", "starting_offsets", "ending_offsets"))}
    replay = lab.api.run_to("example_orders_replayable", form)
    lab.api.pause("example_orders_replayable")
    told = lab.api.xcom("example_orders_replayable", replay, "load")
    assert (told["window_id"], told["is_rerun"]) == (first.id, True)
    expect_loaded(lab, "example.orders_replayable")


def test_the_load_by_hour_catches_up(lab: Lab) -> None:
    if has_partitions():
        lab.api.unpause("example_orders_by_hour_report")
    lab.api.unpause("example_orders_by_hour")
    wait_until(
        lambda: len(lab.windows("example.orders_by_hour")) >= 2,
        what="two hours are planned",
        interval=1,
    )
    lab.api.pause("example_orders_by_hour")
    windows = [row.window for row in lab.windows("example.orders_by_hour")]
    assert [w.planned_until for w in windows[:2]] == [FIRST_HOUR + timedelta(hours=h) for h in (1, 2)]
    # All of partition 0's first hour is gone if anything of it is.
    full = PARTITIONS - (offsets_left(lab.kafka, "orders") < 20)
    assert [w.span for w in windows[:2]] == [10 * full, 0]
    assert wait_for_load(lab, "example.orders_by_hour").id == windows[0].id
    expect_loaded(lab, "example.orders_by_hour")
    if has_partitions():
        report = lab.api.wait_for_first_run("example_orders_by_hour_report")
        lab.api.wait_for_run("example_orders_by_hour_report", report["dag_run_id"])
        assert lab.api.xcom("example_orders_by_hour_report", report["dag_run_id"], "tell") == "2026-11-01T00:00:00"
        lab.api.pause("example_orders_by_hour_report")


def test_the_chain_without_a_clock(lab: Lab) -> None:
    for dag_id in ("example_orders_on_arrival_report", "example_orders_on_arrival"):
        lab.api.unpause(dag_id)
    lab.api.reparse("example_orders_on_arrival")
    first = wait_for_load(lab, "example.orders_on_arrival")
    report = lab.api.wait_for_first_run("example_orders_on_arrival_report")
    lab.api.wait_for_run("example_orders_on_arrival_report", report["dag_run_id"])
    assert lab.api.xcom("example_orders_on_arrival_report", report["dag_run_id"], "tell") == [first.id]
    for dag_id in ("example_orders_on_arrival", "example_orders_on_arrival_report"):
        lab.api.pause(dag_id)
    expect_loaded(lab, "example.orders_on_arrival")


def test_whoever_must_act_is_told_by_a_run_that_fails(lab: Lab) -> None:
    load_all(lab, "example_orders", "example.orders")
    lab.api.unpause("example_orders_verdict")
    lab.api.reparse("example_orders_verdict")
    produce(lab.kafka, "orders", 10)
    delete_records(lab.kafka, "orders", end_offset(lab.kafka, "orders") - 4)
    run = lab.api.wait_for_first_run("example_orders_verdict")
    lab.api.wait_for_run("example_orders_verdict", run["dag_run_id"], state="failed")
    lab.api.pause("example_orders_verdict")
    path = f"/dags/example_orders_verdict/dagRuns/{run['dag_run_id']}/upstreamAssetEvents"
    [event] = lab.api.request("GET", path)["asset_events"]
    seen = event["extra"]["payload"]
    assert (seen["group"], seen["verdict"], seen["lost"]) == ("example.orders", "LOST", 6)
    assert seen["reason"].startswith("6 offsets expired before they were read: orders-0 ")
