"""``kafka-offsets status``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from threading import Barrier

import pytest

from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import Act
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.run import Try
from airflow_kafka_offsets.core.window import Outcome
from airflow_kafka_offsets.core.window_id import name_window
from airflow_kafka_offsets.ports import LogOffsets
from tests.cli.conftest import (
    CLICKS,
    CLICKS_0,
    ORDERS,
    ORDERS_0,
    ORDERS_1,
    Cli,
    Lake,
    cells,
    ctrl_c_is,
    read_past_an_open_transaction,
)
from tests.lab.waiting import ANSWER
from tests.service.memory_log import NoTimes


@pytest.fixture(autouse=True)
def aging(lake: Lake) -> None:
    """Let orders keep its records for a week, as topics do."""
    lake.log.configure("orders", retention_ms="604800000")


def test_all_groups_in_short(cli: Cli) -> None:
    done = cli("status")
    assert done.code == 0
    header, _, orders, clicks, *_ = map(cells, done.out.splitlines())
    assert header == [
        *("group", "verdict", "lag", "waits", "headroom", "open window", "held by", "last committed", "at")
    ]
    waits = orders.pop(3)
    assert waits.endswith((" h", " d"))  # months; in one hour of each day these are whole days
    assert orders == [
        "lake.orders",
        "AT RISK",
        "4700",
        "0 s",
        "lake.orders-000003",
        "orders/scheduled__3/load",
        "lake.orders-000002",
        "2026-01-31 00:08:00Z",
    ]
    assert clicks[:7] == ["lake.clicks", "OK", "0", "-", "-", "-", "-"]
    assert "Group lake.orders is AT RISK: Retention may remove unread records of orders-1 at any moment" in done.out
    assert done.out.endswith("raise the retention. By partition: kafka-offsets status lake.orders\n")


def test_one_group_by_partition(cli: Cli) -> None:
    done = cli("status", "lake.orders")
    assert done.code == 0
    assert (
        "open window:    lake.orders-000003 (planned, span 1000, 2 attempts, held by orders/scheduled__3/load)"
        in done.out
    )
    assert "last committed: lake.orders-000002 at 2026-01-31 00:08:00Z, span 400" in done.out
    assert "\nverdict:        AT RISK: Retention may remove unread records of orders-1 at any moment;" in done.out
    assert "\nlag:            4700 offsets, the oldest unread record waits for " in done.out
    assert "\nheadroom:       0 s until retention; at risk below 16 h 48 min\n" in done.out
    zero, first = [cells(line) for line in done.out.splitlines()[-2:]]
    assert zero == ["orders", "0", "1000", "0", "1000", "0", "-", "-", "continue"]
    assert first[:6] + first[7:] == ["orders", "1", "300", "0", "5000", "4700", "0 s", "continue"]


def test_status_for_programs(cli: Cli) -> None:
    [group] = cli("status", "lake.orders", "-o", "json").json["groups"]
    assert group["lag"] == 4700
    assert group["open_windows"][0]["held_by"] == {
        "dag_id": "orders",
        "run_id": "scheduled__3",
        "task_id": "load",
        "map_index": -1,
    }
    assert (group["verdict"], group["headroom_seconds"], group["needed_seconds"]) == ("AT RISK", 0, 60480)
    assert (group["lost"], group["headroom_is_estimate"], group["notes"]) == (0, False, [])
    waits = group["partitions"][1].pop("lag_seconds")
    assert waits == group["lag_seconds"]
    assert waits > 86400
    assert group["partitions"][1] == {
        "topic": "orders",
        "partition": 1,
        "watermark": 300,
        "beginning": 0,
        "end": 5000,
        "lag": 4700,
        "headroom_seconds": 0,
        "headroom_offsets": 300,
        "estimate": None,
        "verdict": "continue",
    }


def test_what_people_did_is_there_for_ever(cli: Cli) -> None:
    cli("abandon", "lake.orders-000003", "--why", "poison record", "--who", "zoe", "--yes")
    assert ["abandon", "lake.orders-000003", "zoe", "poison record"] in [
        cells(line)[1:] for line in cli("status", "lake.orders").out.splitlines()
    ]
    [group] = cli("status", "lake.orders", "-o", "json").json["groups"]
    [act] = group["acts"]
    assert (act["kind"], act["details"]) == ("abandon", {"window": "lake.orders-000003"})


def test_an_open_transaction_below_the_watermark_is_no_truncated_log(cli: Cli, lake: Lake) -> None:
    read_past_an_open_transaction(lake)
    [group] = cli("status", "lake.clicks", "-o", "json").json["groups"]
    assert (group["trouble"], group["partitions"][0]["verdict"]) == (None, "continue")


def test_records_that_a_transaction_hides_again_make_no_lag_below_zero(cli: Cli, lake: Lake) -> None:
    read_past_an_open_transaction(lake)
    [group] = cli("status", "lake.clicks", "-o", "json").json["groups"]
    [partition] = group["partitions"]
    assert (partition["watermark"], partition["end"], partition["lag"], group["lag"]) == (95, 90, 0, 0)


def test_a_log_that_was_truncated_below_an_open_transaction_is_one_still(cli: Cli, lake: Lake) -> None:
    read_past_an_open_transaction(lake)
    lake.log.truncate(CLICKS_0, 93)
    [group] = cli("status", "lake.clicks", "-o", "json").json["groups"]
    [partition] = group["partitions"]
    assert (group["trouble"], partition["verdict"]) == ("clicks-0 log truncated", "log truncated")
    assert (group["lag"], partition["lag"]) == (None, None)


def test_a_group_that_keeps_up_has_lag_in_time_and_headroom(cli: Cli, quiet: Lake) -> None:
    now = datetime.now(UTC)
    quiet.commit(ORDERS, 4)  # all of it is committed, and then some arrive
    for run in range(5, 10):
        quiet.commit(ORDERS, run)
    quiet.log.produce(ORDERS_0, 3, now - timedelta(hours=2))
    [group] = cli("status", "lake.orders", "-o", "json").json["groups"]
    assert group["headroom_seconds"] == pytest.approx(7 * 86400 - 7200, abs=120)
    assert group["lag"] == 3
    assert "6 d 2" in cli("status").out


def test_what_may_not_be_known_is_a_note(cli: Cli, lake: Lake) -> None:
    lake.log.tells_configs = False
    done = cli("status", "lake.orders")
    assert "\nheadroom:       unknown\n" in done.out
    assert (
        "Note: this user may not read the configuration of orders: grant the ACL DescribeConfigs on Topic" in done.out
    )


def test_records_that_never_expire_have_no_headroom(cli: Cli, lake: Lake) -> None:
    lake.log.configure("orders", retention_ms="-1")
    done = cli("status", "lake.orders")
    assert "\nverdict:        STALLED: 4700 offsets unread, the oldest record waits for " in done.out
    assert "\nheadroom:       never\n" in done.out
    assert "never" in next(line for line in cli("status").out.splitlines() if line.startswith("lake.orders"))
    [group] = cli("status", "lake.orders", "-o", "json").json["groups"]
    assert (group["headroom_seconds"], group["headroom_is_unlimited"]) == (None, True)


def test_a_note_on_something_else_does_not_make_unlimited_headroom_unknown(cli: Cli, lake: Lake) -> None:
    lake.log.produce(CLICKS_0, 1, datetime.now(UTC) + timedelta(days=1))
    lake.commit(CLICKS, 9)
    lake.log.produce(CLICKS_0, 1, datetime.now(UTC))
    done = cli("status", "lake.clicks")
    assert "\n\nNote: a record dated in the future hides the age of those after it: clicks-0." in done.out
    assert "\nheadroom:       never\n" in done.out


def test_of_a_log_that_is_limited_in_size_and_not_full_the_headroom_is_not_known(cli: Cli, lake: Lake) -> None:
    lake.log.configure("orders", retention_ms="-1", retention_bytes="1000000")
    done = cli("status", "lake.orders")
    assert "\nheadroom:       unknown\n" in done.out
    assert "\nNote: the headroom by retention.bytes is not known yet" in done.out


def test_what_the_offset_store_refused_is_shown_without_asking_it(cli: Cli, lake: Lake) -> None:
    lake.log.configure("orders", retention_ms="-1")
    lake.ledger.note_refusal("lake.orders", "redis://r: group lake.orders has members. Stop them:\n    command")
    reason = "No run gets on: redis://r: group lake.orders has members"
    assert f"Group lake.orders is STALLED: {reason}. Its open windows" in cli("status").out
    assert f"\nverdict:        STALLED: {reason}\n" in cli("status", "lake.orders").out
    lake.log.is_down = True
    done = cli("status", "lake.orders", "--offline")
    assert done.code == 0
    assert done.out.endswith("\n\nRuns fail: redis://r: group lake.orders has members. Stop them:\n    command\n")


def test_offline_kafka_is_not_asked(cli: Cli, lake: Lake) -> None:
    lake.log.is_down = True
    done = cli("status", "lake.orders", "--offline", "-o", "json")
    [group] = done.json["groups"]
    assert (done.code, done.err, group["lag"]) == (0, "", None)
    assert [(p["watermark"], p["end"], p["lag"]) for p in group["partitions"]] == [
        (1000, None, None),
        (300, None, None),
    ]


def test_when_kafka_is_down_the_rest_is_shown_and_the_exit_code_says_so(cli: Cli, lake: Lake) -> None:
    lake.log.is_down = True
    done = cli("status")
    assert done.code == 3
    assert done.err == "Kafka at nowhere:9092 did not answer within 1.0 s\n"
    assert "lake.orders-000003" in done.out
    document = cli("status", "-o", "json").json
    assert {group["kafka_error"] for group in document["groups"]} == {done.err.strip()}


def test_when_kafka_tells_offsets_and_no_times_there_is_no_verdict_and_the_exit_code_says_so(
    cli: Cli, lake: Lake
) -> None:
    lake.log.found_times.clear()  # as in a process of its own
    lake.log.__class__ = NoTimes
    done = cli("status", "lake.orders")
    assert (done.code, done.err) == (3, "no answer about times\n")
    assert (
        "\nverdict:        unknown: Not known: no answer about times. By what is known: STALLED: 4700 off" in done.out
    )
    assert "\nlag:            4700 offsets\nheadroom:       unknown\n" in done.out


def test_a_group_whose_next_plan_fails_is_named(cli: Cli, quiet: Lake) -> None:
    quiet.log.expire(ORDERS_1, 400)
    text = "100 offsets expired before they were read: orders-1 [300, 400)"
    next_step = "What is gone, and how to continue without it: kafka-offsets plan lake.orders"
    assert f"Group lake.orders is LOST: {text}. {next_step}\n" in cli("status").out
    detail = cli("status", "lake.orders").out
    assert f"verdict:        LOST: {text}\n" in detail
    assert detail.endswith(f"\n\n{next_step}\n")
    quiet.log.recreate("orders", 2)
    [group] = cli("status", "lake.orders", "-o", "json").json["groups"]
    assert group["trouble"] == "orders-0 topic recreated, orders-1 topic recreated"
    assert [p["lag"] for p in group["partitions"]] == [None, None]


def test_what_is_unread_of_a_topic_that_is_another_one_is_not_known(cli: Cli, quiet: Lake) -> None:
    quiet.log.truncate(ORDERS_0, 20)
    assert "\nlag:            at least 4700 offsets, " in cli("status", "lake.orders").out, "of the other partition"
    quiet.log.truncate(ORDERS_1, 20)
    text = cli("status", "lake.orders").out
    assert "\nlag:            unknown: a log was cut back\nheadroom:       unknown: a log was cut back\n" in text
    quiet.log.recreate("orders", 2)
    text = cli("status", "lake.orders").out
    assert "\nlag:            unknown: a topic was recreated\nheadroom:       unknown: a topic was recreated\n" in text


def test_a_topic_that_is_gone_has_no_lag(cli: Cli, quiet: Lake) -> None:
    quiet.log.delete("orders")
    done = cli("status", "lake.orders")
    assert done.code == 0
    assert cells(done.out.splitlines()[-3]) == ["orders", "1", "300", "-", "-", "-", "-", "-", "missing"]


def test_an_unknown_group_is_named_with_those_that_are_known(cli: Cli) -> None:
    done = cli("status", "lake.order")
    assert (done.code, done.out) == (2, "")
    assert (
        done.err == "The ledger has no group lake.order (did you mean lake.orders?); it has lake.clicks, lake.orders\n"
    )


@pytest.mark.parametrize(
    ("seqs", "shown"),
    [
        ([3], "lake.orders-000003"),
        ([3, 7], "3,7"),
        ([3, 4, 5, 7], "3-5,7"),
        ([1_000_001, 1_000_002], "1000001-1000002"),
    ],
)
def test_the_windows_of_an_act_are_named_and_no_others(cli: Cli, lake: Lake, seqs: list[int], shown: str) -> None:
    superseded = [name_window("lake.orders", seq) for seq in seqs]
    lake.ledger.record("lake.orders", Act("reset", "ann", "why", lake.clock(), {"superseded": superseded}))
    [row] = [cells(line) for line in cli("status", "lake.orders").out.splitlines() if " reset " in line]
    assert row[-3:] == [shown, "ann", "why"]


def test_all_kafkas_are_asked_at_one_moment(cli: Cli, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    both_there = Barrier(2)

    def open_log(group: KafkaGroup, config: object = None) -> LogOffsets:
        both_there.wait(ANSWER)  # one after the other, the first one would wait for good
        log: LogOffsets = lake.log
        return log

    monkeypatch.setattr(wiring, "open_log", open_log)
    assert cli("status").code == 0


IN_SILENCE = r"""
import os, sys, threading
from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.cli import main

def open_log(group, config=None):
    os.write(2, b"asked\n")  # at once, where two threads that print could mix their lines
    threading.Event().wait()

wiring.open_log = open_log
main(sys.argv[1:])
"""


def test_ctrl_c_waits_for_no_silent_kafka(lake: Lake) -> None:
    command = [sys.executable, "-c", IN_SILENCE, "status", "--ledger", lake.url]
    environment = {**os.environ, "_AIRFLOW_PROCESS_CONTEXT": "server"}
    with (
        ctrl_c_is(signal.default_int_handler),
        subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        ) as process,
    ):
        try:
            assert process.stderr is not None
            for _ in range(2):
                while process.stderr.readline() not in ("asked\n", ""):
                    pass
            process.send_signal(signal.SIGINT)
            assert process.wait(ANSWER) == 130
        finally:
            process.kill()


def test_a_group_with_a_pattern_shows_what_it_matched_when_it_last_planned_and_the_lag_of_what_appeared_since(
    lake: Lake, cli: Cli
) -> None:
    shops = KafkaGroup("lake.shops", topics_pattern="shop-.*")
    lake.log.create("shop-eu")
    lake.log.produce(TopicPartition("shop-eu", 0), 5)
    lake.commit(shops, 1)
    lake.log.create("shop-us")
    lake.log.produce(TopicPartition("shop-us", 0), 3)
    done = cli("status", "lake.shops")
    assert "topics:         shop-eu\nthat match:     shop-.*\n" in done.out
    assert "\nlag:            3 offsets" in done.out
    [group] = cli("status", "lake.shops", "-o", "json").json["groups"]
    assert (group["topics"], group["topics_pattern"], group["lag"]) == (["shop-eu"], "shop-.*", 3)
    assert [partition["topic"] for partition in group["partitions"]] == ["shop-eu", "shop-us"]
    [orders] = cli("status", "lake.orders", "-o", "json").json["groups"]
    assert orders["topics_pattern"] is None


def test_a_committed_window_whose_rerun_failed_is_named_with_what_to_type(cli: Cli, lake: Lake) -> None:
    window = lake.ledger.window("lake.clicks-000001")
    attempt = lake.ledger.start_attempt(window.id, window.holder, Try(9), lake.clock())
    lake.ledger.end_attempt(attempt, Outcome.FAILED, None, lake.clock())
    for done in (cli("status"), cli("status", "lake.clicks")):
        assert "1 committed window began to run again and got no second commit" in done.out
        assert "kafka-offsets plan lake.clicks --windows 1" in done.out
    [clicks] = [g for g in cli("status", "-o", "json").json["groups"] if g["group"] == "lake.clicks"]
    assert (clicks["verdict"], clicks["needs_rerun"]) == ("NEEDS RERUN", [window.id])
    assert "committed, needs another run" in cli("windows", "lake.clicks").out
    assert "committed, needs another run" in cli("windows", window.id).out
    done = cli("commit", window.id, "--why", "looked at it", "--yes")
    assert done.code == 0, done.err
    assert "needs another run" not in cli("windows", "lake.clicks").out
