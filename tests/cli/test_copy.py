"""``kafka-offsets copy``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from airflow_kafka_offsets.core.errors import StoreOutcomeUnknownError, StoreUnavailableError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.offsets import TopicPartition
from tests.cli.conftest import CLICKS_0, ORDERS_0, ORDERS_1, Cli, Lake, Stores, cells, half_way
from tests.stores.memory import MemoryStore

REDIS = "redis://redis_default"
COPY = ("copy", "lake.orders", "--to", REDIS, "--why", "w")
ORDERS_2 = TopicPartition("orders", 2)


def test_the_ledgers_watermark_goes_into_a_store(cli: Cli, lake: Lake, stores: Stores) -> None:
    stores[REDIS].groups["lake.orders"] = {ORDERS_0: 600, ORDERS_2: 8, CLICKS_0: 3}
    before, arguments = lake.dump(), (*COPY, "--from", "ledger")
    done = cli(*arguments)
    assert done.code == 4
    assert ["orders", "0", "1000", "next", "600", "1000"] in map(cells, done.out.splitlines())
    assert ["orders", "1", "300", "next", "-", "300"] in map(cells, done.out.splitlines())
    assert "Only in redis://redis_default, and not changed: 1 partition." in done.out
    assert stores[REDIS].groups["lake.orders"] == {ORDERS_0: 600, ORDERS_2: 8, CLICKS_0: 3}
    assert lake.dump() == before
    document = cli(*arguments, "--yes", "--who", "ann", "-o", "json").json
    assert (document["done"], document["verified"], document["unlike"]) == (True, True, [])
    assert stores[REDIS].groups["lake.orders"] == {ORDERS_0: 1000, ORDERS_1: 300, ORDERS_2: 8, CLICKS_0: 3}
    act = lake.ledger.acts("lake.orders")[-1]
    assert (act.kind, act.who, act.why) == ("copy", "ann", "w")
    assert act.details["moves"] == {"orders-0": [600, 1000], "orders-1": [None, 300]}
    assert (act.details["source"], act.details["store"]) == ("ledger", REDIS)


def test_the_copy_is_shown_among_what_people_did(cli: Cli, stores: Stores) -> None:
    cli(*COPY, "--from", "ledger", "--yes", "--who", "zoe")
    rows = [cells(line)[1:] for line in cli("status", "lake.orders").out.splitlines() if " zoe " in line]
    assert rows == [["copy", "-", "zoe", "w"]]


def test_a_topic_that_appeared_under_a_pattern_is_named(cli: Cli, lake: Lake, stores: Stores) -> None:
    lake.log.create("place-eu")
    lake.log.produce(TopicPartition("place-eu", 0), 5)
    lake.commit(KafkaGroup("lake.places", topics_pattern="place-.*"), 1)
    lake.log.create("place-us")
    copy = ("copy", "lake.places", "--to", REDIS, "--from", "ledger", "--why", "w", "--yes")
    note = "Note: ledger has no offset of place-us, which topics_pattern='place-.*' matches now"
    assert note in cli(*copy).out
    again = cli(*copy)
    assert (again.code, again.out) == (0, f"{REDIS} already holds what ledger holds. Nothing was changed.\n")
    assert again.err.startswith(note)
    exported = cli("export", "lake.places")
    assert (exported.out, exported.err.startswith(note)) == ("place-eu,0,5\n", True)


def test_from_one_store_into_another(cli: Cli, stores: Stores) -> None:
    stores["zookeeper://zk"].groups["old"] = {ORDERS_0: 41, ORDERS_1: 7}
    arguments = (*COPY, "--from", "zookeeper://zk", "--as", "old", "--meaning", "last-read", "--yes")
    done = cli(*arguments)
    assert done.code == 0
    assert "Read back: the store holds these offsets." in done.out
    assert ["orders", "0", "41", "last-read", "-", "42"] in map(cells, done.out.splitlines())
    assert stores[REDIS].groups["lake.orders"] == {ORDERS_0: 42, ORDERS_1: 8}
    assert stores["zookeeper://zk"].groups == {"old": {ORDERS_0: 41, ORDERS_1: 7}}


def test_what_is_there_already_is_not_written(cli: Cli, lake: Lake, stores: Stores) -> None:
    stores[REDIS].groups["lake.orders"] = {ORDERS_0: 1000, ORDERS_1: 300}
    before = lake.dump()
    done = cli(*COPY, "--from", "ledger", "--yes")
    assert (done.code, done.out) == (0, f"{REDIS} already holds what ledger holds. Nothing was changed.\n")
    assert (stores[REDIS].windows, lake.dump()) == ([], before)


def test_only_some_topics(cli: Cli, stores: Stores) -> None:
    stores["sql://db"].groups["lake.orders"] = {ORDERS_0: 5}
    done = cli(*COPY, "--from", "sql://db", "--topic", "clicks")
    assert (done.code, done.out) == (2, "")
    assert "sql://db holds no offsets of these topics under the name lake.orders" in done.err


def test_a_store_that_moves_meanwhile_is_not_written(
    cli: Cli, lake: Lake, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores[REDIS]
    store.groups["lake.orders"] = {ORDERS_0: 600, ORDERS_1: 300}
    advance = store.advance

    def others_first(*arguments: object) -> None:
        store.groups["lake.orders"] = {ORDERS_0: 601, ORDERS_1: 300}
        advance(*arguments)  # type: ignore[arg-type]

    store.advance = others_first  # type: ignore[method-assign]
    done = cli(*COPY, "--from", "ledger", "--yes")
    assert (done.code, done.out) == (1, "")
    assert "orders-0: found 601, expected 600 (the old offset) or 1000 (the new one)" in done.err
    assert store.groups["lake.orders"] == {ORDERS_0: 601, ORDERS_1: 300}
    assert [act.details["moves"] for act in lake.ledger.acts("lake.orders")] == [{"orders-0": [600, 1000]}]


def test_what_may_have_been_written_is_recorded_when_the_store_goes_silent(
    cli: Cli, lake: Lake, stores: Stores
) -> None:
    stores[REDIS].fails_after_write = True
    read, stores[REDIS].failure = stores[REDIS].read, StoreOutcomeUnknownError(f"{REDIS} went silent")
    stores[REDIS].read = lambda *_: {}  # type: ignore[method-assign]
    assert cli(*COPY, "--from", "ledger", "--yes", "--who", "ann").code == 3
    [act] = lake.ledger.acts("lake.orders")
    assert (act.kind, act.who) == ("copy", "ann")
    assert act.details["moves"] == {"orders-0": [None, 1000], "orders-1": [None, 300]}
    stores[REDIS].failure, stores[REDIS].read = None, read  # type: ignore[method-assign]
    assert cli("verify", "lake.orders", "--store", REDIS).code == 0


def test_a_commit_that_is_under_way_is_named(cli: Cli, lake: Lake, stores: Stores) -> None:
    half_way(lake)
    stores[REDIS].groups["lake.orders"] = {ORDERS_0: 3, ORDERS_1: 300}
    done = cli(*COPY, "--from", "ledger", "--yes")
    assert done.code == 0
    assert "Note: the commit of lake.orders-000003 is under way" in done.out
    assert stores[REDIS].groups["lake.orders"] == {ORDERS_0: 1000, ORDERS_1: 300}


def test_topics_of_a_file_that_the_group_does_not_read_are_compared_too(
    cli: Cli, stores: Stores, tmp_path: Path
) -> None:
    (tmp_path / "x.csv").write_text("clicks,0,7\n")
    stores[REDIS].groups["lake.orders"] = {ORDERS_0: 600, CLICKS_0: 5}
    document = cli(*COPY, "--from", f"csv:{tmp_path / 'x.csv'}", "--yes", "-o", "json").json
    assert [(m["topic"], m["from"], m["to"]) for m in document["moves"]] == [("clicks", 5, 7)]
    assert document["only_in_target"] == []
    assert stores[REDIS].groups["lake.orders"] == {ORDERS_0: 600, CLICKS_0: 7}


class Forgetful(MemoryStore):
    """A store that accepts a write and keeps half of it."""

    def read(self, group: str, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Return the offsets, but for partition 1."""
        return {tp: offset for tp, offset in super().read(group, topics).items() if tp.partition != 1}


def test_what_is_read_back_is_compared(cli: Cli, lake: Lake, stores: Stores) -> None:
    stores[REDIS] = Forgetful()
    done = cli(*COPY, "--from", "ledger", "--yes", "-o", "json")
    assert done.code == 1
    assert done.json["verified"] is False
    assert done.json["unlike"] == [{"topic": "orders", "partition": 1, "written": 300, "found": None}]
    assert f"kafka-offsets verify lake.orders --store '{REDIS}'" in done.err
    assert lake.ledger.acts("lake.orders")[-1].details["moves"] == {"orders-0": [None, 1000], "orders-1": [None, 300]}


@pytest.mark.parametrize(
    ("to", "message"),
    [
        ("ledger", "Use:\n    kafka-offsets import lake.orders"),
        ("csv:x.csv", "Use:\n    kafka-offsets export lake.orders"),
        ("checkpoint:/x", "Only its query can write to a checkpoint"),
        ("mongo://m", "There is no offset store 'mongo'"),
    ],
)
def test_what_is_no_offset_store(cli: Cli, to: str, message: str) -> None:
    done = cli("copy", "lake.orders", "--from", "ledger", "--to", to, "--why", "w", "--yes")
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_a_store_that_is_down(cli: Cli, stores: Stores) -> None:
    stores[REDIS].failure = StoreUnavailableError(f"{REDIS} did not answer")
    done = cli(*COPY, "--from", "ledger", "--yes")
    assert (done.code, done.out, done.err) == (3, "", f"{REDIS} did not answer\n")
