"""``kafka-offsets reset``."""

from __future__ import annotations

import pytest

from airflow_kafka_offsets.core.errors import LogTruncatedError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.plan.request import trigger_command
from airflow_kafka_offsets.core.ranges import OffsetRange
from tests.cli.conftest import ORDERS, ORDERS_0, ORDERS_1, Cli, Lake, cells

RESET = ("reset", "lake.orders", "--why", "w")


def test_forwards_shows_the_gap_and_changes_nothing(cli: Cli, quiet: Lake) -> None:
    before = quiet.dump()
    done = cli(*RESET, "--to", "latest")
    assert done.code == 4
    assert "This would be a recorded gap" in done.out
    assert done.out.endswith("Nothing was changed. To do it, add --yes\n")
    document = cli(*RESET, "--to", "latest", "-o", "json").json
    assert document["done"] is False
    assert document["moves"] == [{"topic": "orders", "partition": 1, "from": 300, "to": 5000}]
    assert document["skipped"] == [{"topic": "orders", "partition": 1, "start": 300, "end": 5000, "span": 4700}]
    assert quiet.dump() == before


def test_backwards_names_the_windows_and_the_replay_that_is_meant(cli: Cli, quiet: Lake) -> None:
    before = quiet.dump()
    done = cli(*RESET, "--to", "earliest")
    assert done.code == 4
    assert "Would be superseded, and read again by new windows: 2 committed windows. After that, remove" in done.out
    assert "lake.orders-000001" in done.out
    assert "the only copy" not in done.out
    assert (
        f"To run these windows again instead:{trigger_command('lake.orders', {'windows': '1-2'}, 'orders')}" in done.out
    )
    assert "add --yes --supersede" in done.out
    assert quiet.dump() == before


def test_yes_alone_does_not_supersede(cli: Cli, quiet: Lake) -> None:
    before = quiet.dump()
    done = cli(*RESET, "--to", "earliest", "--yes")
    assert (done.code, done.out) == (4, "")
    assert "To do it all the same, add --supersede" in done.err
    assert done.err.endswith(f"{trigger_command('lake.orders', {'windows': '1-2'}, 'orders')}\n")
    assert quiet.dump() == before


def test_confirmed_it_moves_and_is_recorded(cli: Cli, quiet: Lake) -> None:
    document = cli(*RESET, "--to-window", "2", "--yes", "--supersede", "--who", "ann", "-o", "json").json
    assert document["done"] is True
    assert [window["id"] for window in document["superseded"]] == ["lake.orders-000002"]
    assert document["superseded"][0]["held_by"]["run_id"] == "scheduled__2"
    assert quiet.ledger.window("lake.orders-000002").window.state == "superseded"
    assert quiet.ledger.acts("lake.orders")[-1].who == "ann"
    shown = [cells(line)[1:4] for line in cli("status", "lake.orders").out.splitlines()]
    assert ["reset", "lake.orders-000002", "ann"] in shown
    assert quiet.watermark() == {
        0: 600,
        1: 300,
    }
    [seen] = cli("status", "lake.orders", "-o", "json").json["groups"]
    assert [(p["watermark"], p["lag"]) for p in seen["partitions"]] == [(600, 400), (300, 4700)], "unread from there on"


def test_done_is_told_in_the_past(cli: Cli, quiet: Lake) -> None:
    done = cli(*RESET, "--to-window", "lake.orders-000001", "--yes", "--supersede")
    assert done.code == 0
    assert "The watermark of group lake.orders has moved" in done.out
    assert "Superseded, and read again by new windows: 2 committed windows. Remove the output" in done.out
    assert "ould be superseded" not in done.out
    assert "After that" not in done.out
    assert "Nothing was changed" not in done.out
    [row] = [cells(line) for line in cli("status", "lake.orders").out.splitlines() if " reset " in line]
    assert row[1:3] == ["reset", "1-2"]


def test_a_gap_that_is_made_is_told_as_one(cli: Cli, quiet: Lake) -> None:
    assert "This is a recorded gap" in cli(*RESET, "--to", "latest", "--yes").out


@pytest.mark.parametrize("confirmed", [(), ("--yes", "--supersede")])
def test_output_that_kafka_no_longer_holds_is_put_aside_before_any_is_removed(
    cli: Cli, quiet: Lake, confirmed: tuple[str, ...]
) -> None:
    quiet.log.truncate(ORDERS_0, 700)
    sentence = "Kafka no longer holds lake.orders-000002 orders-0 [600, 1000): put this output aside first"
    back = (*RESET, "--to", "earliest")
    refused = cli(*back, "--yes").err
    done = cli(*back, *confirmed)
    for text in (refused, done.out):
        assert sentence in text
    assert done.out.index("put this output aside first") < done.out.index("emove the output")


def test_json_moves_only_what_it_names(cli: Cli, quiet: Lake) -> None:
    assert cli(*RESET, "--to", '{"orders":{"1":4000}}', "--yes").code == 0
    assert quiet.watermark() == {0: 1000, 1: 4000}


def test_a_reset_to_where_it_is_writes_nothing(cli: Cli, quiet: Lake) -> None:
    before = quiet.dump()
    done = cli(*RESET, "--to", '{"orders":{"1":300}}', "--yes")
    assert (done.code, done.out) == (0, "The watermark of group lake.orders is already there. Nothing was changed.\n")
    assert quiet.dump() == before


def test_a_reset_to_where_it_is_settles_records_that_kafka_replaced(cli: Cli, quiet: Lake) -> None:
    quiet.log.truncate(ORDERS_1, 290)
    quiet.log.produce(ORDERS_1, 20)
    with pytest.raises(LogTruncatedError, match=r"""reset lake.orders --to '{"orders":{"1":300}}'"""):
        quiet.plan(ORDERS, 4)
    before = quiet.dump()
    to = ("--to", '{"orders":{"1":300}}')
    preview = cli(*RESET, *to)
    assert preview.code == 4
    assert "The watermark of group lake.orders stays where it is." in preview.out
    assert "Other records have these offsets now. No window reads them" in preview.out
    assert quiet.dump() == before
    document = cli(*RESET, *to, "--yes", "-o", "json").json
    assert document["replaced"] == [{"topic": "orders", "partition": 1, "start": 290, "end": 300, "span": 10}]
    assert quiet.ledger.acts("lake.orders")[-1].details["replaced"] == {"orders-1": [290, 300]}
    assert quiet.plan(ORDERS, 4)[0].ranges[ORDERS_1] == OffsetRange(300, 310)


@pytest.mark.parametrize(
    ("to", "message"),
    [
        (("--to", '{"orders":{"1":'), "Offsets must be JSON like"),
        (("--to", '{"orders":{"1":"x"}}'), "an offset must be a whole number"),
        (("--to", '{"orders":{"1":-2}}'), "-2 (earliest) is not allowed here"),
        (("--to", '{"orders":{"7":1}}'), "Kafka has no partition orders-7"),
        (("--to", '{"orders":{"1":9999}}'), "orders-1: 9999 (beginning offset"),
        (("--to", "2026-01-31T00:00:00"), "--to: the time 2026-01-31T00:00:00 has no zone"),
        (("--to", "committed"), "--to: 'committed' is not 'earliest', 'latest', Spark's JSON of offsets or a time"),
        (("--to", "yesterday"), "--to: 'yesterday' is not 'earliest', 'latest', Spark's JSON of offsets or a time"),
        (("--to", "1969-01-31T00:00:00Z"), "--to: 1969-01-31T00:00:00+00:00 is before 1970"),
        (("--to", "latest", "--topic", "clicks"), "Group lake.orders doesn't read clicks"),
        (("--to-window", "lake.clicks-000001"), "Window lake.clicks-000001 belongs to group lake.clicks"),
        (("--to-window", "77"), "The ledger has no window lake.orders-000077"),
        (("--to-window", "x"), "'x' is not a window id"),
        (("--to", "latest", "--to-window", "1"), "Name the new position: either --to"),
        ((), "Name the new position: either --to"),
    ],
)
def test_bad_input_changes_nothing(cli: Cli, quiet: Lake, to: tuple[str, ...], message: str) -> None:
    before = quiet.dump()
    done = cli(*RESET, *to, "--yes", "--supersede")
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert "starting_offsets" not in done.err
    assert quiet.dump() == before


def test_an_open_window_is_in_the_way(cli: Cli, lake: Lake) -> None:
    done = cli(*RESET, "--to", "latest")
    assert (done.code, done.out) == (1, "")
    assert "kafka-offsets abandon lake.orders-000003 --why" in done.err


def test_a_reset_that_cuts_a_window_is_refused(cli: Cli, quiet: Lake) -> None:
    done = cli(*RESET, "--to", '{"orders":{"0":700}}', "--yes", "--supersede")
    assert done.code == 1
    assert "--to-window lake.orders-000002" in done.err


def test_what_nobody_reads_again_is_told_by_its_reason(cli: Cli, lake: Lake) -> None:
    both = KafkaGroup("lake.both", topics=["orders", "clicks"])
    on_orders = ("reset", "lake.both", "--why", "w", "--topic", "orders", "--to", "earliest")
    lake.commit(both, 1)
    lake.log.recreate("clicks", 1)
    assert cli("reset", "lake.both", "--why", "w", "--topic", "clicks", "--to", "earliest", "--yes").code == 0
    recreated = cli(*on_orders)
    assert recreated.code == 4
    assert "No window reads lake.both-000001 clicks-0 [80, 90) again, as their topic was recreated" in recreated.out
    assert "no longer reads" not in recreated.out
    assert ["clicks", "0", "80", "90", "10"] in [cells(line) for line in recreated.out.splitlines()]
    refused = cli(*on_orders, "--yes")
    [sentence] = [line for line in recreated.out.splitlines() if "was recreated" in line]
    assert sentence in refused.err, "one text for both"


def test_a_topic_that_left_the_group_is_put_back_before_its_output_goes(cli: Cli, lake: Lake) -> None:
    lake.commit(KafkaGroup("lake.both", topics=["orders", "clicks"]), 1)
    lake.log.produce(ORDERS_1, 1)
    lake.commit(KafkaGroup("lake.both", topics=["orders"]), 2)
    done = cli("reset", "lake.both", "--why", "w", "--topic", "orders", "--to", "earliest")
    assert (
        "No window reads lake.both-000001 clicks-0 [80, 90) again, as the group no longer reads their topic: put the topic back first, or keep that part of the output"
        in done.out
    )
    assert "was recreated" not in done.out
