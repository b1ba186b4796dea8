"""``kafka-offsets verify``."""

from __future__ import annotations

from pathlib import Path

from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.offsets import TopicPartition
from tests.cli.conftest import (
    CLICKS_0,
    ORDERS_0,
    ORDERS_1,
    Cli,
    Lake,
    Stores,
    cells,
    half_way,
    read_past_an_open_transaction,
)

REDIS = "redis://redis_default"
VERIFY = ("verify", "lake.orders", "--store", REDIS)
ORDERS_2 = TopicPartition("orders", 2)


def test_all_agree(cli: Cli, lake: Lake, stores: Stores) -> None:
    stores[REDIS].groups["lake.orders"] = {ORDERS_0: 1000, ORDERS_1: 300}
    before = lake.dump()
    done = cli(*VERIFY)
    assert (done.code, done.err) == (0, "")
    assert done.out == f"The ledger, {REDIS} and Kafka agree on group lake.orders: 2 partitions.\n"
    assert lake.dump() == before


def test_a_store_that_takes_no_commit_is_shown(cli: Cli, lake: Lake, stores: Stores) -> None:
    stores[REDIS].groups["lake.orders"] = {ORDERS_0: 1000, ORDERS_1: 300}
    stores[REDIS].members.add("lake.orders")
    before = lake.dump()
    done = cli(*VERIFY)
    assert done.code == 1
    assert done.out.startswith("No commit is possible: ")
    assert "group lake.orders has members. Stop them" in done.out
    assert "agree on group lake.orders: 2 partitions" in done.out
    document = cli(*VERIFY, "-o", "json").json
    assert (document["same"], "has members" in document["refused"]) == (True, True)
    assert lake.dump() == before


def test_only_differences_are_shown(cli: Cli, lake: Lake, stores: Stores) -> None:
    stores[REDIS].groups["lake.orders"] = {ORDERS_0: 1000, ORDERS_1: 312, ORDERS_2: 8}
    before = lake.dump()
    done = cli(*VERIFY)
    assert done.code == 1
    rows = [cells(line) for line in done.out.splitlines() if line.startswith("orders")]
    assert rows == [["orders", "1", "300", "312", "0", "5000", "store ahead by 12"]], (
        "Kafka has no third partition (any more)"
    )
    assert f"kafka-offsets copy lake.orders --from ledger --to '{REDIS}' --why" in done.out
    assert "If the ledger was restored from an older copy, keep the output" in done.out
    assert f"kafka-offsets import lake.orders_2 --from '{REDIS}' --as lake.orders --topic orders --why" in done.out
    assert "import lake.orders --from" not in done.out
    document = cli(*VERIFY, "-o", "json").json
    assert (document["same"], document["partitions"], len(document["differences"])) == (False, 2, 1)
    assert lake.dump() == before


def test_a_store_with_a_window_that_the_ledger_never_committed(cli: Cli, stores: Stores) -> None:
    stores[REDIS].groups["lake.orders"] = {ORDERS_0: 1000, ORDERS_1: 5000}
    for last, is_older in (("lake.orders-000002", False), ("lake.orders-000007", True), ("lake.orders-000003", True)):
        stores[REDIS].last["lake.orders"] = last
        done = cli(*VERIFY)
        assert (f"never committed {last}: keep the output" in done.out) is is_older
        assert ("kafka-offsets import lake.orders_2 --from" in done.out) is is_older
        assert ("kafka-offsets copy" in done.out) is not is_older
        assert "import lake.orders --from" not in done.out
        assert cli(*VERIFY, "-o", "json").json["never_committed"] == (last if is_older else None)


def test_a_store_that_is_behind_may_be_imported(cli: Cli, stores: Stores) -> None:
    stores[REDIS].groups["lake.orders"] = {ORDERS_0: 990, ORDERS_1: 300}
    assert f"kafka-offsets import lake.orders --from '{REDIS}' --why" in cli(*VERIFY).out


def test_what_expired_in_the_store(cli: Cli, stores: Stores) -> None:
    stores[REDIS].groups["lake.orders"] = {ORDERS_0: 990}
    problems = [d["problems"] for d in cli(*VERIFY, "-o", "json").json["differences"]]
    assert problems == [["store behind by 10"], ["not in the store"]]


def test_without_a_store_ledger_and_kafka_are_compared(cli: Cli, lake: Lake) -> None:
    assert cli("verify", "lake.orders").out == "The ledger and Kafka agree on group lake.orders: 2 partitions.\n"
    lake.log.expire(ORDERS_1, 400)
    done = cli("verify", "lake.orders")
    assert done.code == 1
    assert ["orders", "1", "300", "-", "400", "5000", "data loss"] in map(cells, done.out.splitlines())
    assert "kafka-offsets plan lake.orders" in done.out
    assert "copy" not in done.out


def test_offsets_of_an_earlier_topic_are_not_to_be_copied_into_todays(cli: Cli, lake: Lake, stores: Stores) -> None:
    stores[REDIS].groups["lake.orders"] = {ORDERS_0: 990, ORDERS_1: 300}
    assert "kafka-offsets copy" in cli(*VERIFY).out
    lake.log.recreate("orders", 2)
    done = cli(*VERIFY)
    assert "store behind by 10, topic recreated" in done.out
    assert "kafka-offsets copy" not in done.out
    assert "kafka-offsets import" not in done.out
    assert "kafka-offsets plan lake.orders" in done.out


def test_a_topic_that_was_recreated_and_one_that_is_gone(cli: Cli, lake: Lake) -> None:
    lake.log.recreate("orders", 1)
    lake.log.delete("clicks")
    assert [d["problems"] for d in cli("verify", "lake.orders", "-o", "json").json["differences"]] == [
        ["topic recreated"],
        ["topic recreated"],
    ]
    assert [d["problems"] for d in cli("verify", "lake.clicks", "-o", "json").json["differences"]] == [["missing"]]


def test_an_open_transaction_below_the_watermark_is_no_truncated_log(cli: Cli, lake: Lake) -> None:
    read_past_an_open_transaction(lake)
    assert cli("verify", "lake.clicks").out == "The ledger and Kafka agree on group lake.clicks: 1 partition.\n"
    lake.log.truncate(CLICKS_0, 93)
    [difference] = cli("verify", "lake.clicks", "-o", "json").json["differences"]
    assert difference["problems"] == ["log truncated"]


def test_the_groups_own_store_is_the_default(cli: Cli, lake: Lake, stores: Stores) -> None:
    defined = KafkaGroup("lake.clicks", topics=["clicks"], on_data_loss="skip", offset_store="sql://db")  # type: ignore[arg-type]
    lake.plan(defined, 3)
    stores["sql://db"].groups["lake.clicks"] = {CLICKS_0: 1}
    document = cli("verify", "lake.clicks", "-o", "json").json
    assert (document["store"], document["differences"][0]["store"]) == ("sql://db", 1)


def test_a_store_that_has_followed_a_commit_under_way_is_right(cli: Cli, lake: Lake, stores: Stores) -> None:
    half_way(lake)
    window = lake.ledger.load("lake.orders").open[0].window
    for stands in (window.ranges.starts, window.ranges.ends):
        stores[REDIS].groups["lake.orders"] = dict(stands)
        done = cli(*VERIFY)
        assert done.code == 0
        assert "The commit of lake.orders-000003 is under way" in done.out
    stores[REDIS].groups["lake.orders"] = {**window.ranges.ends, ORDERS_1: 301}
    done = cli(*VERIFY)
    assert done.code == 1
    assert "To finish the commit of lake.orders-000003, let its task retry" in done.out
    assert f"If the store is wrong:\n    kafka-offsets copy lake.orders --from ledger --to '{REDIS}' --why" in done.out
    assert "import" not in done.out  # it would be refused now


def test_what_kafka_does_not_hold_is_no_fault_of_the_store(cli: Cli, lake: Lake, stores: Stores) -> None:
    lake.log.expire(ORDERS_1, 400)
    stores[REDIS].groups["lake.orders"] = {ORDERS_0: 1000, ORDERS_1: 300}
    done = cli(*VERIFY)
    assert "kafka-offsets plan lake.orders" in done.out
    assert "copy" not in done.out
    stores[REDIS].groups["lake.orders"] = {ORDERS_0: 999, ORDERS_1: 300}
    assert "copy lake.orders --from ledger" in cli(*VERIFY).out


def test_a_group_that_an_import_founded_is_compared_with_any_store(
    cli: Cli, lake: Lake, stores: Stores, tmp_path: Path
) -> None:
    (tmp_path / "x.csv").write_text("orders,0,900\norders,1,40\n")
    cli("import", "nightly", "--from", f"csv:{tmp_path / 'x.csv'}", "--why", "w", "--yes")
    assert lake.ledger.group("nightly").offset_store is None
    stores[REDIS].groups["nightly"] = {ORDERS_0: 900, ORDERS_1: 39}
    document = cli("verify", "nightly", "--store", REDIS, "-o", "json").json
    assert [(d["partition"], d["problems"]) for d in document["differences"]] == [(1, ["store behind by 1"])]
    cli("copy", "nightly", "--from", "ledger", "--to", REDIS, "--why", "w", "--yes")
    assert cli("verify", "nightly", "--store", REDIS).code == 0


def test_a_new_partition_in_kafka_is_no_difference(cli: Cli, lake: Lake) -> None:
    lake.log.add_partitions("orders", 1)
    assert cli("verify", "lake.orders").code == 0


def test_kafka_that_is_down(cli: Cli, lake: Lake) -> None:
    lake.log.is_down = True
    done = cli("verify", "lake.orders")
    assert (done.code, done.out) == (3, "")
