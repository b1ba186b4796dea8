"""``kafka-offsets inherit``."""

from __future__ import annotations

from tests.cli.conftest import Cli, Lake

LOST = "0123456789abcdef" * 2
INHERIT = ("inherit", "lake.orders", "--ledger-id", LOST, "--why", "the machine is gone")


def test_a_dry_run_says_what_would_happen_and_changes_nothing(cli: Cli, lake: Lake) -> None:
    before = lake.dump()
    done = cli(*INHERIT)
    assert done.code == 4
    assert f"Group lake.orders would write beside its output of ledger {LOST}. If that ledger still" in done.out
    assert done.out.endswith("Nothing was changed. To do it, add --yes\n")
    assert lake.dump() == before


def test_yes_lets_the_group_inherit_and_records_who_and_why(cli: Cli, lake: Lake) -> None:
    [own] = lake.ledger.ledgers("lake.orders")
    assert cli(*INHERIT, "--yes", "-o", "json").json["done"] is True
    assert lake.ledger.ledgers("lake.orders") == (own, LOST)
    assert lake.ledger.ledgers("lake.clicks") == (own,)
    [act] = lake.ledger.acts("lake.orders")
    assert (act.kind, act.why) == ("inherit", "the machine is gone")
    again = cli(*INHERIT, "--yes")
    assert (again.code, len(lake.ledger.acts("lake.orders"))) == (0, 1)
    assert "inherit" in cli("status", "lake.orders").out


def test_an_id_that_is_none_and_a_group_that_is_not_there_are_refused(cli: Cli, lake: Lake) -> None:
    assert "is not the id of a ledger" in cli(*INHERIT[:3], "yesterday's", *INHERIT[4:]).err
    assert cli("inherit", "lake.nothing", *INHERIT[2:]).code == 2
