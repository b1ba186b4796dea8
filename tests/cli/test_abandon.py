"""``kafka-offsets abandon``."""

from __future__ import annotations

import getpass
from dataclasses import replace

import pytest

from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.cli import airflow_runs
from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.request import Ranges
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.window import Claim, Outcome
from airflow_kafka_offsets.ports import LogOffsets
from tests.cli.conftest import ORDERS, Cli, Lake

WINDOW = "lake.orders-000003"


def test_a_dry_run_says_what_would_happen_and_changes_nothing(cli: Cli, lake: Lake) -> None:
    before = lake.dump()
    done = cli("abandon", WINDOW, "--why", "the job was wrong")
    assert done.code == 4
    assert (
        f"This would abandon window {WINDOW} (planned, span 1000, 2 attempts, held by orders/scheduled__3/load)"
        in done.out
    )
    assert "Its last attempt, from 2026-01-31 00:12:00Z, has no recorded end" in done.out
    assert "orders/scheduled__3/load may still run (no Airflow here to ask). Make sure that its job is over" in done.out
    assert cli("abandon", WINDOW, "--why", "x", "-o", "json").json["done"] is False
    assert lake.dump() == before


def test_yes_abandons_and_records_who_and_why(cli: Cli, lake: Lake) -> None:
    done = cli("abandon", WINDOW, "--why", "the job was wrong", "--yes")
    assert done.code == 0
    assert lake.ledger.window(WINDOW).window.state == "abandoned"
    [act] = lake.ledger.acts("lake.orders")
    assert (act.kind, act.who, act.why) == ("abandon", getpass.getuser(), "the job was wrong")


@pytest.mark.parametrize("yes", [(), ("--yes",)])
def test_output_that_a_sink_refused_to_replace_is_kept(cli: Cli, yes: tuple[str, ...]) -> None:
    done = cli("abandon", WINDOW, "--why", "the job was wrong", *yes)
    assert f"emove what its job wrote under {WINDOW}, or records count twice. But keep what a sink refused" in done.out


@pytest.mark.parametrize("yes", [(), ("--yes",)])
@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (True, "orders/scheduled__3/load is over. Make sure that its job is over"),
        (False, "orders/scheduled__3/load still runs: mark its task as failed"),
        (None, "orders/scheduled__3/load may still run (no Airflow here to ask). Make sure that its job is over"),
    ],
)
def test_it_is_told_whether_the_holder_is_at_work(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, yes: tuple[str, ...], answer: bool | None, sentence: str
) -> None:
    claims: list[Claim] = []

    def is_over(claim: Claim) -> bool | None:
        claims.append(claim)
        return answer

    monkeypatch.setattr(airflow_runs, "is_over", is_over)
    abandon = ("abandon", WINDOW, "--why", "w")
    assert cli(*abandon, "-o", "json").json["holder_is_over"] is answer
    assert sentence in cli(*abandon, *yes).out
    assert claims == [Claim("orders", "scheduled__3", "load")] * 2


def test_somebody_else_may_be_named(cli: Cli, lake: Lake) -> None:
    document = cli("abandon", WINDOW, "--why", "w", "--who", "ann", "--yes", "-o", "json").json
    assert (document["done"], document["who"], lake.ledger.acts("lake.orders")[0].who) == (True, "ann", "ann")


def test_a_window_is_given_up_while_kafka_is_down(cli: Cli, lake: Lake) -> None:
    lake.log.is_down = True
    assert cli("abandon", WINDOW, "--why", "w", "--yes").code == 0


@pytest.mark.parametrize(
    "command",
    [
        ("abandon", WINDOW),
        ("commit", WINDOW),
        ("take-over", "lake.orders", "--dag", "orders_v2", "--task", "load"),
    ],
)
def test_what_asks_nothing_of_kafka_needs_no_connection_to_it(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    def open_log(group: KafkaGroup, config: object = None) -> LogOffsets:
        raise BadInputError("Airflow has no connection 'kafka_default'")

    monkeypatch.setattr(wiring, "open_log", open_log)
    assert cli(*command, "--why", "w").code == 4
    assert cli(*command, "--why", "w", "--yes").code == 0
    assert cli("plan", "lake.orders").code == 2


@pytest.mark.parametrize("yes", [(), ("--yes",)])
def test_a_committed_window_is_refused(cli: Cli, lake: Lake, yes: tuple[str, ...]) -> None:
    before = lake.dump()
    done = cli("abandon", "lake.orders-000002", "--why", "w", *yes)
    assert (done.code, done.out) == (1, "")
    assert done.err == "Window lake.orders-000002 is committed and can't become abandoned\n"
    assert lake.dump() == before


@pytest.mark.parametrize("window", ["lake.orders-3", "lake.orders", "lake.orders-000009", "no one-000001", "-000001"])
def test_bad_window_ids(cli: Cli, window: str) -> None:
    done = cli("abandon", "--why", "w", "--yes", "--", window)
    assert (done.code, done.out, done.err.count("\n") <= 2) == (2, "", True)


@pytest.mark.parametrize("arguments", [(), ("--why", " ")])
def test_a_reason_is_wanted(cli: Cli, lake: Lake, arguments: tuple[str, ...]) -> None:
    before = lake.dump()
    assert cli("abandon", WINDOW, "--yes", *arguments).code == 2
    assert lake.dump() == before


def test_a_name_that_the_ledger_can_not_keep_is_refused_in_a_dry_run_too(cli: Cli) -> None:
    done = cli("abandon", WINDOW, "--why", "w", "--who", "x" * 201)
    assert (done.code, done.out) == (2, "")
    assert "in at most 200 characters" in done.err


def test_the_next_run_reads_the_same_offsets_under_another_id(cli: Cli, lake: Lake) -> None:
    abandoned = lake.ledger.window(WINDOW).window
    cli("abandon", WINDOW, "--why", "w", "--yes")
    window, _ = lake.plan(ORDERS, 4)
    assert (window.id, window.ranges) == ("lake.orders-000004", abandoned.ranges)


@pytest.fixture
def backlog(lake: Lake) -> Lake:
    """A fourth window behind the third, which is open: committed."""
    group = replace(ORDERS, max_open_windows=2)
    claim = Claim("orders", "scheduled__4", "load")
    [planned] = lake.service.plan(group, claim, is_over=lambda claim: False)
    attempt = lake.service.start_attempt(planned.window, claim)
    lake.service.end_attempt(attempt, Outcome.SUCCEEDED, planned.window.span)
    lake.service.commit(planned.window.id, claim, attempt)
    return lake


def test_a_window_below_a_committed_one_is_given_up_as_a_gap_that_is_named_before(cli: Cli, backlog: Lake) -> None:
    before = backlog.dump()
    done = cli("abandon", WINDOW, "--why", "poison")
    assert done.code == 4
    assert "This would be a recorded gap" in done.out
    assert done.out.endswith("To do it, add --yes --leave-gap\n")
    refused = cli("abandon", WINDOW, "--why", "poison", "--yes")
    assert (refused.code, refused.err.count("--leave-gap")) == (4, 1)
    assert backlog.dump() == before
    document = cli("abandon", WINDOW, "--why", "poison", "--yes", "--leave-gap", "-o", "json").json
    assert [(r["topic"], r["partition"], r["start"], r["end"]) for r in document["skipped"]] == [
        ("orders", 1, 300, 1300)
    ]
    assert backlog.watermark() == {0: 1000, 1: 2300}


def test_what_is_told_of_a_backfill_window_is_what_later_runs_do(cli: Cli, backlog: Lake) -> None:
    cli("abandon", WINDOW, "--why", "poison", "--yes", "--leave-gap")
    gap = Ranges(OffsetRanges({TopicPartition("orders", 1): OffsetRange(300, 1300)}))
    [filling] = backlog.service.plan(ORDERS, Claim("orders", "manual__5", "load"), lambda _: True, gap)
    abandon = ("abandon", filling.window.id, "--why", "poison, too")
    assert "Only a replay would plan these offsets again, under another id" in cli(*abandon).out
    assert "Only a replay plans these offsets again, under another id" in cli(*abandon, "--yes").out
    live, _ = backlog.plan(ORDERS, 6)
    assert live.ranges[TopicPartition("orders", 1)].start == 2300
    [again] = backlog.service.plan(ORDERS, Claim("orders", "manual__7", "load"), lambda _: True, gap)
    assert (again.window.ranges, again.window.id) == (filling.window.ranges, "lake.orders-000007")


def test_a_person_commits_a_window_whose_job_read_all_of_it(cli: Cli, lake: Lake) -> None:
    before = lake.dump()
    done = cli("commit", WINDOW, "--why", "its log says so")
    assert done.code == 4
    assert f"This would commit window {WINDOW} (planned, span 1000, 2 attempts" in done.out
    assert "Nothing proves that its job read all of it" in done.out
    assert lake.dump() == before
    done = cli("commit", WINDOW, "--why", "its log says so", "--yes")
    assert (done.code, done.out) == (0, f"Window {WINDOW} is committed, by {getpass.getuser()}.\n")
    assert lake.ledger.window(WINDOW).window.state == "committed"
    assert lake.watermark() == {0: 1000, 1: 1300}


def test_a_committed_window_is_not_committed_by_hand(cli: Cli, lake: Lake) -> None:
    before = lake.dump()
    done = cli("commit", "lake.orders-000002", "--why", "w", "--yes")
    assert done.code == 1
    assert done.err == "Window lake.orders-000002 is committed and needs no other run: there is nothing to commit\n"
    assert lake.dump() == before
