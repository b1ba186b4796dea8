"""``kafka-offsets take-over``."""

from __future__ import annotations

import getpass
import re
import shlex

import pytest

from airflow_kafka_offsets.core.errors import ForeignGroupError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.plan.ownership import Owner
from airflow_kafka_offsets.core.window import Claim
from tests.cli.conftest import ORDERS, Cli, Lake

TAKE_OVER = ("take-over", "lake.orders", "--dag", "orders_v2", "--task", "load", "--why", "the DAG was renamed")


def test_a_dry_run_says_what_would_happen_and_changes_nothing(cli: Cli, lake: Lake) -> None:
    before = lake.dump()
    done = cli(*TAKE_OVER)
    assert done.code == 4
    assert "Group lake.orders would belong to orders_v2/load, and no longer to orders/load. Make sure that" in done.out
    assert "lake.orders-000003" in done.out
    assert "orders/scheduled__3/load" in done.out
    assert done.out.endswith("Nothing was changed. To do it, add --yes\n")
    assert lake.dump() == before


def test_yes_gives_the_group_away_and_records_who_and_why(cli: Cli, lake: Lake) -> None:
    lake.log.is_down = True
    document = cli(*TAKE_OVER, "--yes", "-o", "json").json
    assert document["done"] is True
    assert document["from"] == {"dag_id": "orders", "task_id": "load"}
    assert document["to"] == {"dag_id": "orders_v2", "task_id": "load"}
    assert [window["id"] for window in document["open_windows"]] == ["lake.orders-000003"]
    assert lake.ledger.load("lake.orders").owner == Owner("orders_v2", "load")
    [act] = lake.ledger.acts("lake.orders")
    assert (act.kind, act.who, act.why) == ("take-over", getpass.getuser(), "the DAG was renamed")
    again = cli(*TAKE_OVER, "--yes")
    assert (again.code, again.out) == (0, "Group lake.orders already belongs to orders_v2/load. Nothing was changed.\n")
    assert len(lake.ledger.acts("lake.orders")) == 1


def test_a_group_with_an_offset_store_is_given_away_without_asking_it(cli: Cli, lake: Lake) -> None:
    definition = KafkaGroup("lake.clicks", topics=["orders"], offset_store="redis://nowhere", kafka_conn_id="nowhere")
    lake.service.plan(definition, Claim("clicks", "r", "load"), is_over=lambda claim: True)
    done = cli("take-over", "lake.clicks", *TAKE_OVER[2:], "--yes")
    assert (done.code, done.err) == (0, "")
    assert lake.ledger.load("lake.clicks").owner == Owner("orders_v2", "load")


def test_the_command_that_the_error_names_works(cli: Cli, lake: Lake) -> None:
    renamed = Claim("orders_v2", "manual__1", "etl.load")
    with pytest.raises(ForeignGroupError) as refused:
        lake.service.plan(ORDERS, renamed, is_over=lambda claim: True)
    look, command = map(shlex.split, re.findall(r"kafka-offsets (.*)", str(refused.value)))
    assert "belongs to:     orders/load" in cli(*look).out
    before = lake.dump()
    typed = cli(*command, "--yes")
    assert (typed.code, lake.dump()) == (2, before), "the reason is the person's own"
    assert "'...' is not a reason: say why" in typed.err
    command[-1] = "renamed"
    assert (cli(*command).code, cli(*command, "--yes").code) == (4, 0)
    assert lake.service.plan(ORDERS, renamed, is_over=lambda claim: True)[0].window.id == "lake.orders-000003"


def test_status_says_whose_a_group_is(cli: Cli) -> None:
    assert "belongs to:     orders/load" in cli("status", "lake.orders").out
    cli(*TAKE_OVER, "--yes")
    [group] = cli("status", "lake.orders", "-o", "json").json["groups"]
    assert group["owner"] == {"dag_id": "orders_v2", "task_id": "load"}


@pytest.mark.parametrize(
    "arguments",
    [("no one", "--dag", "d"), ("lake.orders", "--dag", "a b"), ("lake.orders", "--dag", ""), ("lake.orders",)],
)
def test_bad_input_changes_nothing(cli: Cli, lake: Lake, arguments: tuple[str, ...]) -> None:
    before = lake.dump()
    assert cli("take-over", *arguments, "--task", "load", "--why", "w", "--yes").code == 2
    assert lake.dump() == before
