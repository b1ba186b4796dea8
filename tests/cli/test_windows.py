"""``kafka-offsets windows``."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, text

from airflow_kafka_offsets.core.plan.request import parse_replay
from airflow_kafka_offsets.core.run import Try
from airflow_kafka_offsets.core.schemas import Subject
from airflow_kafka_offsets.core.window import Claim
from tests.cli.conftest import ORDERS, Cli, Lake, cells


def test_windows_are_listed_newest_first(cli: Cli) -> None:
    done = cli("windows", "lake.orders")
    assert done.code == 0
    header, _, *rows = map(cells, done.out.splitlines())
    assert header == ["id", "state", "lane", "planned until", "span", "records", "attempts", "last run"]
    third, second, first = rows
    assert third[:3] == ["lake.orders-000003", "planned", "live"]
    assert third[3:] == ["2026-01-31 00:09:00Z", "1000", "-", "2", "orders/scheduled__3/load"]
    assert second[1:7] == ["committed", "live", "2026-01-31 00:05:00Z", "400", "400", "1"]
    assert first[1:7] == ["committed", "live", "2026-01-31 00:01:00Z", "900", "900", "1"]


def test_the_run_of_a_replay_is_the_last_run_of_a_window_and_not_its_only_one(cli: Cli, lake: Lake) -> None:
    replay = Claim("replays", "manual__1", "load")
    lake.service.plan(ORDERS, replay, lambda claim: True, parse_replay("lake.orders", {"windows": "1"}))
    assert cells(cli("windows", "lake.orders").out.splitlines()[-1])[-1] == "replays/manual__1/load"
    committed = cli("windows", "lake.orders-000001").out
    assert "last run:  replays/manual__1/load" in committed
    assert "orders/scheduled__1/load" in committed, "its history names who committed it"
    assert "held by" not in committed
    assert "held by:   orders/scheduled__3/load" in cli("windows", "lake.orders-000003").out, "it is open"


def test_windows_by_state(cli: Cli) -> None:
    def ids(*arguments: str) -> list[str]:
        return [w["id"][-1] for w in cli("windows", "lake.orders", "-o", "json", *arguments).json["windows"]]

    assert ids("--state", "planned") == ["3"]
    assert ids("--state", "planned", "--state", "committed") == ["3", "2", "1"]
    assert ids("--limit", "2") == ["3", "2"]
    assert ids("--state", "abandoned") == []
    assert cli("windows", "lake.orders", "--state", "abandoned").out == "Group lake.orders has no such windows.\n"


def test_a_cut_list_says_so(cli: Cli) -> None:
    assert cli("windows", "lake.orders", "--limit", "2").out.endswith("The newest 2; --limit shows more.\n")


def test_windows_in_detail(cli: Cli) -> None:
    done = cli("windows", "lake.orders", "--ids", "2-3")
    assert done.code == 0
    assert "window:    lake.orders-000002" in done.out
    assert "state:     planned, live lane, read_committed" in done.out
    spans = [line for line in done.out.splitlines() if line.startswith("span:")]
    assert spans == ["span:      400 in 1 partition", "span:      1000 in 1 partition; capped"]
    failed, running = map(cells, done.out.splitlines()[-2:])
    assert failed == [
        "1",
        "orders/scheduled__3/load",
        "1",
        "failed",
        "-",
        "2026-01-31 00:10:00Z",
        "2026-01-31 00:11:00Z",
    ]
    assert running == ["2", "orders/scheduled__3/load", "2", "running", "-", "2026-01-31 00:12:00Z", "-"]


def test_which_version_of_the_bundle_each_attempt_ran_is_shown(cli: Cli, lake: Lake) -> None:
    def shown(*arguments: str) -> list[list[str]]:
        return [cells(line) for line in cli("windows", *arguments).out.splitlines()]

    window = lake.ledger.window("lake.orders-000003")
    assert "bundle version" not in [*shown("lake.orders")[0], *shown(window.id)[-4]], "no run has one"
    lake.service.start_attempt(window.window, window.holder, Try(3, bundle_version="3f2a"))
    header, _, third, second, _ = shown("lake.orders")
    assert (header[-1], third[-1], second[-1]) == ("bundle version", "3f2a", "-")
    header, _, _, before, newest = shown(window.id)[-5:]
    assert (header[-1], before[-1], newest[-1]) == ("bundle version", "-", "3f2a")
    [document] = cli("windows", window.id, "-o", "json").json["windows"]
    assert [attempt["bundle_version"] for attempt in document["history"]] == [None, None, "3f2a"]
    assert document["bundle_version"] == "3f2a"


def test_which_windows_were_capped_is_known_to_programs(cli: Cli) -> None:
    windows = cli("windows", "lake.orders", "-o", "json").json["windows"]
    assert {w["seq"]: w["is_capped"] for w in windows} == {1: False, 2: False, 3: True}


def test_what_was_unread_when_a_window_was_cut_is_told(cli: Cli) -> None:
    windows = cli("windows", "lake.orders", "-o", "json").json["windows"]
    assert {w["seq"]: w["unread"] for w in windows} == {1: 900, 2: 400, 3: 4700}, "of 4,700, the third one took 1,000"
    assert "unread:    4700 when it was cut" in cli("windows", "lake.orders-000003").out


def test_of_a_window_from_before_it_was_recorded_the_lag_is_not_known(cli: Cli, lake: Lake) -> None:
    engine = create_engine(lake.url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE kafka_offsets_windows SET unread = NULL"))
    engine.dispose()
    assert cli("windows", "lake.orders-000003", "-o", "json").json["windows"][0]["unread"] is None
    assert "unread:    -\n" in cli("windows", "lake.orders-000003").out


def test_detail_for_programs(cli: Cli) -> None:
    [window] = cli("windows", "lake.clicks", "--ids", "2", "-o", "json").json["windows"]
    assert window["lost"] == [{"topic": "clicks", "partition": 0, "start": 50, "end": 80, "span": 30}]
    assert window["ranges"] == [{"topic": "clicks", "partition": 0, "start": 80, "end": 90, "span": 10}]
    assert window["topic_ids"] == {"clicks": "id-2"}
    [attempt] = window["history"]
    assert (attempt["number"], attempt["outcome"]) == (1, "succeeded")
    assert attempt["attempt"] > 1, "the ledger's own number runs through all windows"


def test_the_schemas_that_are_frozen_with_a_window_are_shown(cli: Cli, lake: Lake) -> None:
    assert "schemas" not in cli("windows", "lake.orders-000002").out
    assert cli("windows", "lake.orders-000002", "-o", "json").json["windows"][0]["schemas"] is None
    frozen = {"orders-value": Subject("AVRO", 7, {3: '"int"', 7: '"long"'}), "orders-key": None}
    window = lake.ledger.window("lake.orders-000002").window
    lake.ledger.freeze([(window, frozen)])
    shown = cli("windows", "lake.orders-000002").out.partition("Frozen schemas:\n\n")[2].splitlines()[:4]
    assert [cells(shown[0]), *map(cells, shown[2:])] == [
        ["subject", "kind", "latest", "ids"],
        ["orders-key", "not there", "-", "-"],
        ["orders-value", "AVRO", "7", "3, 7"],
    ]
    frozen = cli("windows", "lake.orders-000002", "-o", "json").json["windows"][0]["schemas"]
    assert frozen == {"orders-key": None, "orders-value": {"kind": "AVRO", "latest": 7, "ids": [3, 7]}}


def test_lost_ranges_are_shown(cli: Cli) -> None:
    assert "Lost to retention before this window:" in cli("windows", "lake.clicks-000002").out


@pytest.mark.parametrize("arguments", [("lake.orders-000002",), ("lake.orders", "--ids", "lake.orders-000002")])
def test_one_window_by_its_id(cli: Cli, arguments: tuple[str, ...]) -> None:
    assert [w["seq"] for w in cli("windows", *arguments, "-o", "json").json["windows"]] == [2]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (
            "9",
            "The ledger has no window lake.orders-000009. List those that it has:\n    kafka-offsets windows lake.orders",
        ),
        ("2-9", "The ledger has no window lake.orders-000004, lake.orders-000005,"),
        ("x", "'x' is not a window id such as lake.orders-000012"),
        ("2-", "'2-' is not a window id"),
        (
            "1,,2",
            "'1,,2' has an empty part: write e.g. 3,12-14",
        ),
        ("2, ", "'2, ' has an empty part"),
        ("3-2", "'3-2' names no window"),
        ("0", "'0' names no window"),
        ("1-5000", "'1-5000' are more than 1000 windows"),
        ("lake.clicks-000001", "Window lake.clicks-000001 belongs to group lake.clicks, not to lake.orders"),
    ],
)
def test_bad_ids(cli: Cli, ids: str, message: str) -> None:
    done = cli("windows", "lake.orders", "--ids", ids)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(message)


def test_an_unknown_group(cli: Cli) -> None:
    done = cli("windows", "lake.nothing")
    assert (done.code, done.err) == (2, "The ledger has no group lake.nothing; it has lake.clicks, lake.orders\n")
    assert cli("windows", "lake.nothing-000001").code == 2


@pytest.mark.parametrize("limit", ["0", "-1", "many", "1.5"])
def test_a_bad_limit_is_a_usage_error(cli: Cli, limit: str) -> None:
    assert cli("windows", "lake.orders", "--limit", limit).code == 2
