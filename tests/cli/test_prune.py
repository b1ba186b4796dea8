"""``kafka-offsets prune``."""

from __future__ import annotations

import getpass
from typing import Any

import pytest

from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.core.errors import BadInputError, LedgerUnavailableError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.ports import LogOffsets
from tests.cli.conftest import CLICKS_0, ORDERS_0, ORDERS_1, Cli, Lake

PRUNE = ("prune", "lake.orders", "--older-than", "1d")


@pytest.fixture
def old(lake: Lake) -> Lake:
    """Let Kafka lose what the first two windows read. The second one was committed last."""
    lake.log.expire(ORDERS_0, 1000)
    lake.log.expire(ORDERS_1, 300)
    return lake


def test_a_dry_run_says_what_would_leave_and_why_the_rest_stays(cli: Cli, old: Lake) -> None:
    before = old.dump()
    done = cli(*PRUNE)
    assert done.code == 4
    assert done.out.startswith("1 window would leave the ledger. The output and the watermark stay:")
    assert "lake.orders          1           1  lake.orders-000001  lake.orders-000001" in done.out
    assert (
        "lake.orders-000002 and later windows stay, because the watermark or the last commit rests on it.\n" in done.out
    )
    assert done.out.endswith("Nothing was changed. To do it, add --yes\n")
    assert old.dump() == before


def test_yes_prunes_and_records_who_and_why(cli: Cli, old: Lake) -> None:
    document = cli(*PRUNE, "--yes", "-o", "json").json
    assert (document["done"], document["why"], document["older_than"]) == (True, "older than 1d", "1d")
    assert document["groups"] == [
        {
            "group": "lake.orders",
            "windows": 1,
            "attempts": 1,
            "lost": 0,
            "first": "lake.orders-000001",
            "last": "lake.orders-000001",
            "pruned_before": 2,
            "kept": "lake.orders-000002",
            "kept_because": "the watermark or the last commit rests on it",
            "error": None,
        }
    ]
    [act] = old.ledger.acts("lake.orders")
    assert (act.kind, act.who, act.why, act.details["windows"]) == ("prune", getpass.getuser(), "older than 1d", 1)


def test_a_second_one_has_nothing_to_do(cli: Cli, old: Lake) -> None:
    assert cli(*PRUNE, "--yes", "--why", "monthly").code == 0
    done = cli(*PRUNE, "--yes")
    assert done.code == 0
    assert "lake.orders-000002 and later windows stay, because" in done.out
    assert done.out.endswith("No window can be pruned. Nothing was changed.\n")
    assert [act.why for act in old.ledger.acts("lake.orders")] == ["monthly"]


def test_it_is_shown_where_the_history_begins(cli: Cli, old: Lake) -> None:
    assert "pruned" not in cli("status", "lake.orders").out + cli("windows", "lake.orders").out
    assert cli("status", "-o", "json").json["groups"][1]["pruned_before"] is None
    assert cli(*PRUNE, "--yes").code == 0
    status = cli("status", "lake.orders").out
    assert "pruned before:  lake.orders-000002" in status
    assert "before 000002" in status
    assert cli("windows", "lake.orders").out.endswith("Pruned before lake.orders-000002.\n")
    assert cli("windows", "lake.orders", "--state", "abandoned").out == (
        "Group lake.orders has no such windows.\n\nPruned before lake.orders-000002.\n"
    )
    assert cli("windows", "lake.orders", "-o", "json").json["pruned_before"] == 2
    assert [group["pruned_before"] for group in cli("status", "-o", "json").json["groups"]] == [None, 2]


@pytest.mark.parametrize(
    "command",
    [
        ("windows", "lake.orders-000001"),
        ("windows", "lake.orders", "--ids", "1"),
        ("plan", "lake.orders", "--windows", "1"),
        ("abandon", "lake.orders-000001", "--why", "w"),
        ("reset", "lake.orders", "--to-window", "1", "--why", "w"),
    ],
)
def test_what_is_said_of_a_window_that_has_left(cli: Cli, old: Lake, command: tuple[str, ...]) -> None:
    assert cli(*PRUNE, "--yes").code == 0
    assert cli("abandon", "lake.orders-000003", "--why", "w", "--yes").code == 0
    done = cli(*command)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Window lake.orders-000001 was pruned from the ledger: Kafka no longer")


def test_all_groups_and_one_of_them_can_not_ask_its_kafka(cli: Cli, old: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    real = wiring.open_log

    def open_log(group: KafkaGroup, config: object = None) -> LogOffsets:
        if group.name == "lake.clicks":
            raise BadInputError("Airflow has no connection 'other'")
        return real(group, config)  # type: ignore[arg-type]

    old.log.expire(CLICKS_0, 90)
    assert [entry["windows"] for entry in cli("prune", "--all", "--older-than", "1d", "-o", "json").json["groups"]] == [
        1,
        1,
    ]
    monkeypatch.setattr(wiring, "open_log", open_log)
    done = cli("prune", "--all", "--older-than", "1d", "--yes", "-o", "json")
    assert (done.code, done.err) == (2, "Airflow has no connection 'other'\n")
    assert [(entry["windows"], entry["error"]) for entry in done.json["groups"]] == [
        (0, "Airflow has no connection 'other'"),
        (1, None),
    ]


def test_what_a_group_lost_before_it_failed_is_told(cli: Cli, old: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    old_windows = Ledger.old_windows

    def breaks_off(self: Ledger, group: str, *, since: int, limit: int) -> Any:
        if group == "lake.orders" and since > 1:
            raise LedgerUnavailableError("The ledger did not answer")
        return old_windows(self, group, since=since, limit=1 if group == "lake.orders" else limit)

    monkeypatch.setattr(Ledger, "old_windows", breaks_off)
    done = cli("prune", "--all", "--older-than", "1d", "--yes", "-o", "json")
    outcomes = {entry["group"]: (entry["windows"], entry["last"], entry["error"]) for entry in done.json["groups"]}
    assert outcomes["lake.orders"] == (1, "lake.orders-000001", "The ledger did not answer")
    assert old.ledger.acts("lake.orders")[0].details["windows"] == 1


def test_a_group_whose_kafka_is_down_is_not_pruned(cli: Cli, old: Lake) -> None:
    before = old.dump()
    old.log.is_down = True
    done = cli(*PRUNE, "--yes")
    assert (done.code, done.out) == (3, "")
    assert "did not answer" in done.err
    assert old.dump() == before


def test_a_topic_that_is_not_there_needs_a_word(cli: Cli, old: Lake) -> None:
    old.log.delete("orders")
    assert "add --deleted-topics" in cli(*PRUNE).out
    assert cli(*PRUNE, "--deleted-topics", "-o", "json").json["groups"][0]["windows"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("prune", "--older-than", "1d"), "Name a group, or add --all"),
        (("prune", "lake.orders", "--all", "--older-than", "1d"), "Name a group, or add --all"),
        (
            ("prune", "--all", "--older-than", "1d", "--deleted-topics"),
            "--deleted-topics is for one group, not for --all",
        ),
        (("prune", "lake.orders"), "--older-than"),
        (("prune", "lake.orders", "--older-than", "90"), "'90' is not a length of time such as 90d"),
        (("prune", "lake.orders", "--older-than", "0d"), "'0d' is not a length of time"),
        (("prune", "lake.orders", "--older-than", "999999w"), "at most 100 years"),
        (("prune", "lake.orders", "--older-than", "-1d"), "--older-than"),
        (("prune", "lake.ordres", "--older-than", "1d"), "did you mean lake.orders?"),
    ],
)
def test_bad_arguments(cli: Cli, lake: Lake, arguments: tuple[str, ...], message: str) -> None:
    before = lake.dump()
    done = cli(*arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert lake.dump() == before
