"""``kafka-offsets import``."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from airflow_kafka_offsets.core.errors import StoreOutcomeUnknownError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan import ownership
from airflow_kafka_offsets.core.ranges import OffsetRange
from airflow_kafka_offsets.core.window import Claim
from tests.cli.conftest import CLICKS_0, ORDERS, ORDERS_0, ORDERS_1, Cli, Lake, Stores, cells

NEW = ("import", "nightly", "--why", "moving over")
KNOWN = ("import", "lake.orders", "--why", "w")
REDIS = "redis://redis_default"


def csv(folder: Path, text: str) -> str:
    (folder / "offsets.csv").write_text(text)
    return f"csv:{folder / 'offsets.csv'}"


def stored_in(group: KafkaGroup, address: str, lake: Lake) -> None:
    """Let the ledger know that the group has an offset store."""
    definition = KafkaGroup(group.name, topics=group.topics, offset_store=address)
    window = lake.service.plan(definition, Claim("orders", "r", "load"), is_over=lambda claim: True)[0].window
    lake.service.abandon(window.id, "ann", "only its definition counts")


def test_a_group_is_founded_where_a_file_says(cli: Cli, lake: Lake, tmp_path: Path) -> None:
    before = lake.dump()
    place = csv(tmp_path, "orders,0,900\norders,1,40\n")
    done = cli(*NEW, "--from", place)
    assert done.code == 4
    assert "Group nightly (new) would continue from csv:" in done.out
    assert "whose numbers are the next offsets:" in done.out
    assert ["orders", "0", "900", "next", "-", "900", "1000"] in map(cells, done.out.splitlines())
    assert done.out.endswith("Nothing was changed. To do it, add --yes\n")
    assert lake.dump() == before
    document = cli(*NEW, "--from", place, "--yes", "--who", "ann", "--kafka-conn-id", "other", "-o", "json").json
    assert (document["done"], document["founded"], document["topics"]) == (True, True, ["orders"])
    assert lake.ledger.group("nightly") == KafkaGroup("nightly", topics=["orders"], kafka_conn_id="other")
    (act,) = lake.ledger.acts("nightly")
    assert (act.kind, act.who, act.why) == ("import", "ann", "moving over")
    assert (act.details["source"], act.details["meaning"]) == (place, "next")
    assert act.details["founded"] == {"orders-0": 900, "orders-1": 40}
    assert act.details["from_beginning"] == []


def test_the_first_window_starts_exactly_there(cli: Cli, lake: Lake, tmp_path: Path) -> None:
    cli(*NEW, "--from", csv(tmp_path, "orders,0,900\norders,1,40\n"), "--yes")
    defined = KafkaGroup("nightly", topics=["orders"], starting_offsets="latest", max_offsets=None)
    window = lake.commit(defined, 1)
    assert window.seq == 1
    assert window.ranges.starts == {ORDERS_0: 900, ORDERS_1: 40}
    assert window.ranges.ends == {ORDERS_0: 1000, ORDERS_1: 5000}
    assert lake.ledger.group("nightly") == defined


def test_what_kafka_did_not_say_of_place_and_group_is_told_once(cli: Cli, lake: Lake, tmp_path: Path) -> None:
    for group, offset in (("old", 900), ("known", 950)):
        cli("import", group, "--why", "w", "--from", csv(tmp_path, f"orders,0,{offset}\norders,1,40\n"), "--yes")
    lake.log.elect(ORDERS_0)
    lake.log.knows_epoch_ends = False
    sentence = "Kafka did not report the ends of leader epochs"
    from_old = ("--from", "ledger", "--as", "old", "--why", "w")
    for name in ("new", "known"):
        done = cli("import", name, *from_old)
        assert (done.code, done.out.count(sentence)) == (4, 1)
        assert cli("import", name, *from_old, "-o", "json").json["unchecked"] == [{"topic": "orders", "partition": 0}]
    assert "is checked by the next plan: orders-0.\n" in cli("import", "new", *from_old, "--yes").out
    again = cli("import", "new", *from_old)
    assert "is already where" in again.out
    assert again.out.count(sentence) == 1


def test_partitions_that_are_not_named_begin_at_their_beginning_and_are_listed(
    cli: Cli, lake: Lake, tmp_path: Path
) -> None:
    lake.log.expire(ORDERS_1, 30)
    place = csv(tmp_path, "orders,0,900\n")
    done = cli(*NEW, "--from", place)
    assert "Not in the source: orders-1, which begin at their beginning offset." in done.out
    document = cli(*NEW, "--from", place, "--yes", "-o", "json").json
    assert document["not_named"] == [{"topic": "orders", "partition": 1}]
    assert [(p["partition"], p["found"], p["to"]) for p in document["partitions"]] == [(0, 900, 900), (1, None, 30)]
    position = ownership.watermark(lake.ledger.load("nightly"))
    assert position is not None
    assert position.offsets == {ORDERS_0: 900, ORDERS_1: 30}
    assert lake.ledger.acts("nightly")[0].details["from_beginning"] == ["orders-1"]


def test_many_partitions_that_are_not_named_stay_one_sentence(cli: Cli, lake: Lake, tmp_path: Path) -> None:
    lake.log.add_partitions("orders", 12)
    assert "orders-9, orders-10, and 3 more, which begin" in cli(*NEW, "--from", csv(tmp_path, "orders,0,900\n")).out


def test_last_read_is_one_before_next(cli: Cli, lake: Lake, stores: Stores) -> None:
    stores[REDIS].groups["nightly"] = {ORDERS_0: 899, ORDERS_1: 0}
    arguments = (*NEW, "--from", REDIS, "--topic", "orders", "--meaning", "last-read")
    done = cli(*arguments)
    assert "whose numbers are the last offsets read:" in done.out
    assert ["orders", "0", "899", "last-read", "-", "900", "1000"] in map(cells, done.out.splitlines())
    document = cli(*arguments, "--yes", "-o", "json").json
    assert [(p["found"], p["meaning"], p["to"]) for p in document["partitions"]] == [
        (899, "last-read", 900),
        (0, "last-read", 1),
    ]
    assert lake.ledger.acts("nightly")[0].details["meaning"] == "last-read"
    assert lake.ledger.acts("nightly")[0].details["found"] == {"orders-0": 899, "orders-1": 0}


def test_a_place_may_know_the_group_under_another_name(cli: Cli, lake: Lake, stores: Stores) -> None:
    stores[REDIS].groups["spark-loader-v2"] = {ORDERS_0: 900}
    place = (*NEW, "--from", REDIS, "--topic", "orders")
    done = cli(*place)
    assert done.code == 2
    assert "holds no offsets of these topics under the name nightly" in done.err
    assert "--as NAME" in done.err
    assert cli(*place, "--as", "spark-loader-v2").code == 4
    cli(*place, "--as", "spark-loader-v2", "--yes")
    assert lake.ledger.acts("nightly")[0].details["name"] == "spark-loader-v2"


def test_a_store_has_to_be_asked_for_topics(cli: Cli, stores: Stores) -> None:
    stores[REDIS].groups["nightly"] = {ORDERS_0: 900}
    done = cli(*NEW, "--from", REDIS)
    assert (done.code, done.err) == (2, f"{REDIS} has to be asked for topics by name: name them with --topic\n")


def test_a_consumer_group_is_read_under_its_own_name(cli: Cli, lake: Lake, stores: Stores) -> None:
    stores["kafka://"].groups["old-loader"] = {ORDERS_0: 77, ORDERS_1: 5}
    arguments = (*NEW, "--from", "kafka://", "--as", "old-loader", "--topic", "orders", "--yes")
    assert cli(*arguments).code == 0
    position = ownership.watermark(lake.ledger.load("nightly"))
    assert position is not None
    assert position.offsets == {ORDERS_0: 77, ORDERS_1: 5}


def test_the_watermark_of_another_group(cli: Cli, lake: Lake) -> None:
    assert cli(*NEW, "--from", "ledger", "--as", "lake.orders", "--yes").code == 0
    position = ownership.watermark(lake.ledger.load("nightly"))
    assert position is not None
    assert position.offsets == {ORDERS_0: 1000, ORDERS_1: 300}  # what is planned only is not done


def test_the_watermark_of_a_topic_that_was_recreated_means_nothing(cli: Cli, lake: Lake) -> None:
    lake.log.recreate("orders", 2)
    lake.log.produce(ORDERS_0, 5000)
    done = cli(*NEW, "--from", "ledger", "--as", "lake.orders", "--yes")
    assert (done.code, done.out) == (1, "")
    assert "offsets of an earlier topic orders" in done.err


def test_csv_from_a_pipe(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'"orders",0,900\n\n')))
    assert cli(*NEW, "--from", "csv:-", "-o", "json").json["partitions"][0]["to"] == 900


def test_a_mark_at_the_start_of_a_file_means_nothing(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "offsets.csv").write_bytes(b"\xef\xbb\xbforders,0,900\r\n")
    assert cli(*NEW, "--from", f"csv:{tmp_path / 'offsets.csv'}", "-o", "json").json["partitions"][0]["to"] == 900


def test_csv_of_several_groups(cli: Cli, tmp_path: Path) -> None:
    place = csv(tmp_path, "other,orders,0,1\nold,orders,0,900\n")
    done = cli(*NEW, "--from", place)
    assert "has no line of group nightly; it has old, other: choose with --as" in done.err
    assert cli(*NEW, "--from", place, "--as", "old", "-o", "json").json["partitions"][0]["to"] == 900


def test_a_checkpoint(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "commits").mkdir()
    for batch, end in enumerate((10, 900, 1000)):
        offsets = json.dumps({"orders": {"0": end, "1": end}})
        (tmp_path / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{offsets}')
    for batch in (0, 1):
        (tmp_path / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    done = cli(*NEW, "--from", f"checkpoint:{tmp_path}")
    assert done.code == 4
    assert "Note: batch 2 was planned but not committed, and the first window reads it again" in done.out
    assert ["orders", "0", "900", "next", "-", "900", "1000"] in map(cells, done.out.splitlines())


# What can't be


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("redis", "This is not a source. Write one of: ledger,"),
        ("mongo://m", "There is no offset store 'mongo'"),
        ("redis://user:secret@host", "holds no host, user or password"),
        ("csv:", "This is not a source"),
        ("csv:/nowhere.csv", "Can't read /nowhere.csv: No such file or directory"),
        ("checkpoint:/nowhere", "checkpoint:/nowhere has no commits"),
        ("checkpoint:~no-such-user/x", "checkpoint:~no-such-user/x has no commits"),
        ("checkpoint:gopher://x", "Nothing installed here reads gopher://"),
        ("checkpoint:s3://key:secret@bucket/x", "must not hold a password"),
        ("ledger", "The ledger has no group nightly"),
    ],
)
def test_what_is_no_place_changes_nothing(cli: Cli, lake: Lake, place: str, message: str) -> None:
    before = lake.dump()
    done = cli(*NEW, "--from", place, "--yes")
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert "secret" not in done.err
    assert lake.dump() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--from", "ledger", "--as", "lake.orders", "--meaning", "last-read"), "are next offsets"),
        (("--from", "checkpoint:/x", "--meaning", "last-read"), "are next offsets"),
        (("--from", "checkpoint:/x", "--as", "y"), "keeps no group's name: leave --as out"),
    ],
)
def test_what_a_place_can_not_mean(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    done = cli(*NEW, *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_an_offset_above_the_end_is_refused_with_both_numbers(cli: Cli, lake: Lake, tmp_path: Path) -> None:
    before = lake.dump()
    done = cli(*NEW, "--from", csv(tmp_path, "orders,0,1001\n"), "--yes")
    assert (done.code, done.out) == (2, "")
    assert "orders-0: 1001 is above the end offset 1000" in done.err
    done = cli(*NEW, "--from", csv(tmp_path, "orders,0,1000\n"), "--meaning", "last-read", "--yes")
    assert "(next offsets already? Then --meaning next)" in done.err
    assert lake.dump() == before


def test_what_retention_removed_is_named_and_recorded(cli: Cli, lake: Lake, tmp_path: Path) -> None:
    lake.log.expire(ORDERS_0, 950)
    before = lake.dump()
    place = csv(tmp_path, "orders,0,900\norders,1,40\n")
    done = cli(*NEW, "--from", place, "--yes")
    assert (done.code, done.out) == (1, "")
    assert "orders-0: offsets [900, 950) expired before they were read" in done.err
    assert "add --skip-lost" in done.err
    assert lake.dump() == before
    document = cli(*NEW, "--from", place, "--skip-lost", "--yes", "-o", "json").json
    assert document["lost"] == [{"topic": "orders", "partition": 0, "start": 900, "end": 950, "span": 50}]
    assert [p["to"] for p in document["partitions"]] == [950, 40]
    assert lake.ledger.acts("nightly")[0].details["lost"] == {"orders-0": [900, 950]}


def test_partitions_and_topics_that_kafka_does_not_have(cli: Cli, tmp_path: Path) -> None:
    assert "names orders-7, which this Kafka does not have" in cli(*NEW, "--from", csv(tmp_path, "orders,7,1\n")).err
    done = cli(*NEW, "--from", csv(tmp_path, "order,0,1\norders,0,5\n"))
    assert done.code == 1
    assert "Kafka has no topic order: choose others with --topic" in done.err
    assert cli(*NEW, "--from", csv(tmp_path, "order,0,1\norders,0,5\n"), "--topic", "orders").code == 4


# A group of the ledger


def test_a_known_group_is_reset(cli: Cli, quiet: Lake, tmp_path: Path) -> None:
    before = quiet.dump()
    place = csv(tmp_path, "orders,1,400\n")
    done = cli(*KNOWN, "--from", place)
    assert done.code == 4
    assert "This would be a recorded gap" in done.out
    assert "Not in the source: orders-0, which stay." in done.out
    assert quiet.dump() == before
    assert cli(*KNOWN, "--from", place, "--yes", "--who", "zoe").code == 0
    assert quiet.watermark() == {0: 1000, 1: 400}
    act = quiet.ledger.acts("lake.orders")[-1]
    assert (act.kind, act.who, act.details["source"]) == ("import", "zoe", place)
    assert act.details["moves"] == {"orders-1": [300, 400]}
    assert act.details["skipped"] == {"orders-1": [300, 400]}
    assert "from_beginning" not in act.details  # orders-0 stays where it is


def test_what_lies_before_a_partition_that_is_new_to_a_known_group_is_a_gap(
    cli: Cli, quiet: Lake, tmp_path: Path
) -> None:
    quiet.log.add_partitions("orders")
    quiet.log.produce(TopicPartition("orders", 2), 60)
    done = cli(*KNOWN, "--from", csv(tmp_path, "orders,2,40\n"), "--yes", "-o", "json")
    assert done.json["skipped"] == [{"topic": "orders", "partition": 2, "start": 0, "end": 40, "span": 40}]
    assert quiet.watermark() == {0: 1000, 1: 300, 2: 40}
    act = quiet.ledger.acts("lake.orders")[-1]
    assert (act.details["moves"], act.details["skipped"]) == ({"orders-2": [None, 40]}, {"orders-2": [0, 40]})


def test_the_import_is_shown_among_what_people_did(cli: Cli, quiet: Lake, tmp_path: Path) -> None:
    cli(*KNOWN, "--from", csv(tmp_path, "orders,1,400\n"), "--yes", "--who", "zoe")
    rows = [cells(line)[1:] for line in cli("status", "lake.orders").out.splitlines() if " zoe " in line]
    assert rows == [["import", "-", "zoe", "w"]]


def test_backwards_supersedes_and_wants_that_confirmed(cli: Cli, quiet: Lake, tmp_path: Path) -> None:
    before = quiet.dump()
    place = csv(tmp_path, "orders,0,600\n")
    done = cli(*KNOWN, "--from", place)
    assert "Would be superseded, and read again by new windows: 1 committed window. After that, remove" in done.out
    assert done.out.endswith("To do it, add --yes --supersede\n")
    done = cli(*KNOWN, "--from", place, "--yes")
    assert (done.code, done.out) == (4, "")
    assert "To do it all the same, add --supersede" in done.err
    assert quiet.dump() == before
    done = cli(*KNOWN, "--from", place, "--yes", "--supersede")
    assert done.code == 0
    assert "Superseded, and read again by new windows: 1 committed window. Remove the output" in done.out
    assert quiet.ledger.window("lake.orders-000002").window.state == "superseded"
    assert quiet.watermark() == {0: 600, 1: 300}


def test_records_that_kafka_replaced_are_named_before_an_import_settles_them(
    cli: Cli, quiet: Lake, tmp_path: Path
) -> None:
    quiet.log.truncate(ORDERS_1, 290)
    quiet.log.produce(ORDERS_1, 120)
    replaced = [{"topic": "orders", "partition": 1, "start": 290, "end": 300, "span": 10}]
    before = quiet.dump()
    for to in (300, 400):
        place = csv(tmp_path, f"orders,1,{to}\n")
        preview = cli(*KNOWN, "--from", place)
        assert preview.code == 4
        assert "Other records have these offsets now. No window reads them" in preview.out
        assert cli(*KNOWN, "--from", place, "-o", "json").json["replaced"] == replaced
        assert quiet.dump() == before
    assert cli(*KNOWN, "--from", csv(tmp_path, "orders,1,300\n"), "--yes").code == 0
    assert quiet.ledger.acts("lake.orders")[-1].details["replaced"] == {"orders-1": [290, 300]}
    assert quiet.plan(ORDERS, 4)[0].ranges[ORDERS_1] == OffsetRange(300, 410)


def test_an_open_window_is_in_the_way(cli: Cli, lake: Lake, tmp_path: Path) -> None:
    before = lake.dump()
    done = cli(*KNOWN, "--from", csv(tmp_path, "orders,1,400\n"), "--yes")
    assert (done.code, done.out) == (1, "")
    assert "kafka-offsets abandon lake.orders-000003 --why" in done.err
    assert lake.dump() == before


def test_where_it_is_already_nothing_is_written(cli: Cli, quiet: Lake, tmp_path: Path) -> None:
    before = quiet.dump()
    place = csv(tmp_path, "orders,1,300\n")
    done = cli(*KNOWN, "--from", place, "--yes")
    assert (done.code, done.out) == (0, f"Group lake.orders is already where {place} is. Nothing was changed.\n")
    assert quiet.dump() == before


def test_the_number_of_an_earlier_topic_of_the_name_is_not_where_the_group_stands(
    cli: Cli, lake: Lake, tmp_path: Path
) -> None:
    lake.log.recreate("clicks")
    lake.log.produce(CLICKS_0, 100)
    command, place = ("import", "lake.clicks", "--why", "w"), csv(tmp_path, "clicks,0,90\n")
    before = lake.dump()
    done = cli(*command, "--from", place)
    assert done.code == 4
    assert "Group lake.clicks would continue from csv:" in done.out
    assert ["clicks", "0", "90", "next", "-", "90", "100"] in map(cells, done.out.splitlines())
    assert done.out.endswith("Nothing was changed. To do it, add --yes\n")
    assert cli(*command, "--from", place, "-o", "json").json["needed"]
    assert lake.dump() == before
    assert "Group lake.clicks continues from csv:" in cli(*command, "--from", place, "--yes").out
    again = cli(*command, "--from", place)
    assert (again.code, again.out.startswith("Group lake.clicks is already where csv:")) == (0, True)


def test_a_known_group_keeps_its_topics_and_its_connection(cli: Cli, quiet: Lake, tmp_path: Path) -> None:
    place = csv(tmp_path, "orders,1,300\nclicks,0,85\n")
    assert "Group lake.orders doesn't read clicks; it reads orders" in cli(*KNOWN, "--from", place).err
    assert cli(*KNOWN, "--from", place, "--topic", "orders").code == 0
    assert "Group lake.orders doesn't read clicks" in cli(*KNOWN, "--from", place, "--topic", "clicks").err
    done = cli(*KNOWN, "--from", place, "--topic", "orders", "--kafka-conn-id", "elsewhere")
    assert "which its DAG sets: leave --kafka-conn-id out" in done.err


def test_the_groups_own_store_follows(cli: Cli, quiet: Lake, stores: Stores, tmp_path: Path) -> None:
    stored_in(quiet.ledger.group("lake.orders"), REDIS, quiet)
    stores[REDIS].groups["lake.orders"] = {ORDERS_0: 1000, ORDERS_1: 300}
    assert cli(*KNOWN, "--from", csv(tmp_path, "orders,1,400\n"), "--yes").code == 0
    assert stores[REDIS].groups["lake.orders"] == {ORDERS_0: 1000, ORDERS_1: 400}


def test_the_groups_own_store_may_be_where_the_offsets_are_from(cli: Cli, quiet: Lake, stores: Stores) -> None:
    stored_in(quiet.ledger.group("lake.orders"), REDIS, quiet)
    stores[REDIS].groups["lake.orders"] = {ORDERS_0: 1000, ORDERS_1: 400}
    refused = cli(*KNOWN, "--from", REDIS, "--yes")
    assert refused.code == 2
    assert f"kafka-offsets import lake.orders_2 --from '{REDIS}' --as lake.orders --topic orders --why" in refused.err
    assert quiet.watermark() == {0: 1000, 1: 300}
    assert cli(*KNOWN, "--from", REDIS, "--leave-gap", "--yes").code == 0
    assert quiet.watermark() == {0: 1000, 1: 400}


def test_a_store_that_somebody_else_moved_stops_the_import(
    cli: Cli, quiet: Lake, stores: Stores, tmp_path: Path
) -> None:
    stored_in(quiet.ledger.group("lake.orders"), REDIS, quiet)
    stores[REDIS].groups["lake.orders"] = {ORDERS_0: 1000, ORDERS_1: 333}
    before = quiet.dump()
    done = cli(*KNOWN, "--from", csv(tmp_path, "orders,1,400\n"), "--yes")
    assert (done.code, done.out) == (1, "")
    assert "orders-1: found 333, expected 300 (the old offset) or 400 (the new one)" in done.err
    assert quiet.dump() == before


def test_a_store_that_does_not_follow_is_told_with_what_to_type(
    cli: Cli, quiet: Lake, stores: Stores, tmp_path: Path
) -> None:
    stored_in(quiet.ledger.group("lake.orders"), REDIS, quiet)
    store = stores[REDIS]
    store.groups["lake.orders"] = {ORDERS_0: 1000, ORDERS_1: 300}

    def advance(*_: object) -> None:
        raise StoreOutcomeUnknownError(f"{REDIS} went silent")

    store.advance = advance  # type: ignore[method-assign]
    done = cli(*KNOWN, "--from", csv(tmp_path, "orders,1,400\n"), "--yes")
    assert done.code == 3
    assert f"kafka-offsets copy lake.orders --from ledger --to '{REDIS}' --why" in done.err
    assert quiet.watermark() == {0: 1000, 1: 400}


def test_somebody_who_was_faster_wins(cli: Cli, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The DAG plans for the first time while a person founds the group."""
    found = lake.ledger.found.__func__  # type: ignore[attr-defined]

    def plan_first(self: object, *arguments: object) -> None:
        lake.commit(KafkaGroup("nightly", topics=["orders"]), 1)
        found(self, *arguments)

    monkeypatch.setattr(type(lake.ledger), "found", plan_first)
    done = cli(*NEW, "--from", csv(tmp_path, "orders,0,5\n"), "--yes")
    assert (done.code, done.out) == (1, "")
    assert lake.ledger.acts("nightly") == []


def test_several_topics_at_once(cli: Cli, lake: Lake, tmp_path: Path) -> None:
    assert cli(*NEW, "--from", csv(tmp_path, "orders,0,5\nclicks,0,85\n"), "--yes").code == 0
    position = ownership.watermark(lake.ledger.load("nightly"))
    assert position is not None
    assert position.offsets == {CLICKS_0: 85, ORDERS_0: 5, ORDERS_1: 0}
    assert TopicPartition("orders", 2) not in position.offsets


def test_open_windows_of_the_group_that_the_offsets_are_of_are_named(cli: Cli, lake: Lake) -> None:
    place = (*NEW, "--from", "ledger", "--as", "lake.orders")
    note = "not committed there: lake.orders-000003 (planned, held by orders/scheduled__3/load)"
    done = cli(*place)
    assert f"Note: {note}. The new group reads them again" in done.out
    [window] = cli(*place, "-o", "json").json["left_open"]
    assert window["id"] == "lake.orders-000003"
    assert window["held_by"]["run_id"] == "scheduled__3"
    assert note in cli(*place, "--yes").out
    assert lake.ledger.acts("nightly")[0].details["left_open"] == ["lake.orders-000003"]


def test_a_reset_to_before_the_import_names_what_the_other_reader_has_read(
    cli: Cli, lake: Lake, tmp_path: Path
) -> None:
    cli(*NEW, "--from", csv(tmp_path, "orders,0,900\norders,1,40\n"), "--yes")
    done = cli("reset", "nightly", "--to", "earliest", "--why", "oops")
    assert "Another reader read these offsets before the import" in done.out
    assert [line.split() for line in done.out.splitlines() if line.startswith("orders  ")][-2:] == [
        ["orders", "0", "0", "900", "900"],
        ["orders", "1", "0", "40", "40"],
    ]


def test_a_group_without_an_open_window_has_none_to_name(cli: Cli, quiet: Lake) -> None:
    place = (*NEW, "--from", "ledger", "--as", "lake.orders")
    assert "not committed there" not in cli(*place).out
    assert cli(*place, "-o", "json").json["left_open"] == []
    cli(*place, "--yes")
    assert "left_open" not in quiet.ledger.acts("nightly")[0].details
