"""``kafka-offsets plan``."""

from __future__ import annotations

from dataclasses import replace

from airflow_kafka_offsets.core.plan.request import trigger_command
from tests.cli.conftest import CLICKS_0, ORDERS_1, Cli, Lake, cells


def test_an_open_window_comes_first(cli: Cli, lake: Lake) -> None:
    before = lake.dump()
    done = cli("plan", "lake.orders")
    assert done.code == 0
    assert done.out.startswith(
        "Window lake.orders-000003 (planned, span 1000, 2 attempts, held by orders/scheduled__3/load) comes first: the next run"
    )
    assert "After it, the next window would have span 1000 in 1 of 2 partitions, at most 1000." in done.out
    assert cells(done.out.splitlines()[-1]) == ["orders", "1", "continue", "1300", "2300", "1000"]
    assert lake.dump() == before


def test_a_window_with_nothing_to_read_says_in_how_many_partitions(cli: Cli, quiet: Lake) -> None:
    quiet.commit(replace(quiet.ledger.group("lake.orders"), max_offsets=None), 9)
    done = cli("plan", "lake.orders")
    assert done.code == 0
    assert done.out.startswith("The next window would have span 0: nothing to read in 2 partitions.\n")


def test_the_next_window_for_programs(cli: Cli, quiet: Lake) -> None:
    document = cli("plan", "lake.orders", "-o", "json").json
    assert document["open_window"] is None
    assert document["span"] == 1000
    assert document["partitions"][1] == {
        "topic": "orders",
        "partition": 1,
        "start": 300,
        "end": 1300,
        "span": 1000,
        "verdict": "continue",
    }


def test_a_plan_that_is_refused_names_every_partition_and_what_to_type(cli: Cli, quiet: Lake) -> None:
    quiet.log.expire(ORDERS_1, 400)
    done = cli("plan", "lake.orders")
    assert done.code == 1
    assert done.out.startswith("The next window can't be planned.")
    assert "orders-1: offsets [300, 400) expired before they were read" in done.out
    assert "kafka-offsets reset lake.orders --to" in done.err
    document = cli("plan", "lake.orders", "-o", "json").json
    assert [(p["topic"], p["partition"]) for p in document["problems"]] == [("orders", 1)]
    assert document["refused"] == done.err.strip()


def test_what_would_be_lost_is_shown(cli: Cli, lake: Lake) -> None:
    lake.log.produce(CLICKS_0, 30)
    lake.log.expire(CLICKS_0, 100)
    done = cli("plan", "lake.clicks")
    assert done.code == 0
    assert "Recorded as lost" in done.out
    [warning] = [line for line in done.out.splitlines() if line.startswith("Warning: ")]
    assert "clicks-0" in warning
    assert "[90, 100)" in warning


def test_kafka_down_is_exit_code_3(cli: Cli, lake: Lake) -> None:
    lake.log.is_down = True
    done = cli("plan", "lake.orders")
    assert (done.code, done.out, done.err) == (3, "", "Kafka at nowhere:9092 did not answer within 1.0 s\n")


def test_an_unknown_group(cli: Cli) -> None:
    assert cli("plan", "no one").code == 2


def test_what_a_replay_would_run_is_shown_and_nothing_is_written(cli: Cli, lake: Lake) -> None:
    before = lake.dump()
    done = cli("plan", "lake.orders", "--windows", "1-2")
    assert done.code == 0
    assert done.out.startswith("A replay would run 2 windows again:")
    assert done.out.endswith(f"To run it:{trigger_command('lake.orders', {'windows': '1-2'}, 'orders')}\n")
    again = cli("plan", "lake.orders", "--windows", "1-2", "-o", "json").json["again"]
    assert [(w["id"], w["state"]) for w in again] == [
        ("lake.orders-000001", "committed"),
        ("lake.orders-000002", "committed"),
    ]
    assert lake.dump() == before


def test_a_replay_that_would_be_refused_says_why(cli: Cli, lake: Lake) -> None:
    refused = {
        ("--windows", "3"): (1, "lake.orders-000003 is planned"),
        ("--windows", "9"): (2, "no window lake.orders-000009"),
        ("--from", "2026-01-01T00:00:00Z"): (2, "'to' is missing"),
        ("--starting-offsets", '{"orders":{"1":0}}', "--ending-offsets", '{"orders":{"1":5000}}'): (2, "watermark 300"),
    }
    for arguments, (code, message) in refused.items():
        done = cli("plan", "lake.orders", *arguments)
        assert (done.code, done.out) == (code, "")
        assert message in done.err
