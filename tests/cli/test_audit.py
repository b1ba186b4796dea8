"""``kafka-offsets audit``, on the answer of SQLite to the query of the docs."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.request import SCOPED, parse_replay, trigger_command
from airflow_kafka_offsets.core.window import Outcome
from tests.cli.conftest import Cli, Lake, cells

HOWTO = Path(__file__).parents[2] / "docs" / "howto" / "audit-a-table.md"
QUERY = re.findall(r"```sql\n(.*?)```", HOWTO.read_text(), flags=re.DOTALL)[0]

FIRST = [("orders", 0, offset) for offset in range(600)] + [("orders", 1, offset) for offset in range(300)]
SECOND = [("orders", 0, offset) for offset in range(600, 1000)]


def islands_of(records: Iterable[tuple[str, int, int]]) -> str:
    """Run the query of the docs on a table with these records."""
    connection = sqlite3.connect(":memory:")
    connection.execute("ATTACH ':memory:' AS lake")
    connection.execute('CREATE TABLE lake.orders (topic TEXT, "partition" INTEGER, "offset" INTEGER)')
    connection.executemany("INSERT INTO lake.orders VALUES (?, ?, ?)", records)
    text = io.StringIO()
    csv.writer(text).writerows(connection.execute(QUERY))
    connection.close()
    return text.getvalue()


def file_of(folder: Path, records: Iterable[tuple[str, int, int]], name: str = "islands.csv") -> str:
    (folder / name).write_text(islands_of(records))
    return str(folder / name)


def test_a_table_with_each_record_once_is_right_and_nothing_is_written(cli: Cli, lake: Lake, tmp_path: Path) -> None:
    before = lake.dump()
    done = cli("audit", "lake.orders", "--table", file_of(tmp_path, [*SECOND, *FIRST]))
    assert (done.code, done.err) == (0, "")
    assert done.out == "The table has each record of 2 committed windows of group lake.orders once: 1300.\n"
    assert lake.dump() == before


def test_missing_and_doubled_ranges_are_named_with_their_windows_and_the_way_out(cli: Cli, tmp_path: Path) -> None:
    short = [record for record in FIRST if record[1:] not in {(0, 17), (0, 18), (1, 299)}]
    done = cli("audit", "lake.orders", "--table", file_of(tmp_path, [*short, *SECOND, *SECOND[10:12]]))
    assert done.code == 1
    rows = [cells(line) for line in done.out.splitlines() if line.startswith("lake.orders-")]
    assert rows == [
        ["lake.orders-000001", "orders", "0", "17", "19", "2"],
        ["lake.orders-000001", "orders", "1", "299", "300", "1"],
        ["lake.orders-000002", "orders", "0", "610", "612", "2", "2"],
    ]
    assert "Missing: 3 records of lake.orders-000001, at these offsets:" in done.out
    assert "More than once: offsets of lake.orders-000002:" in done.out
    assert f"{trigger_command('lake.orders', {'windows': '1-2'}, 'orders')}\n" in done.out


def test_several_tables_that_belong_together_are_one(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = file_of(tmp_path, FIRST, "one.csv"), file_of(tmp_path, SECOND, "other.csv")
    assert cli("audit", "lake.orders", "--table", first).code == 1
    assert cli("audit", "lake.orders", "--table", first, "--table", second).code == 0
    assert cli("audit", "lake.orders", "--table", str(tmp_path)).code == 0, "a folder"
    stdin = io.TextIOWrapper(io.BytesIO(Path(second).read_bytes()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert cli("audit", "lake.orders", "--table", first, "--table", "-").code == 0
    done = cli("audit", "lake.orders", "--table", first, "--table", second, "--table", second, "-o", "json")
    assert [finding["window"] for finding in done.json["doubled"]] == ["lake.orders-000002"]


def test_what_an_open_window_has_published_is_told_and_no_fault(cli: Cli, tmp_path: Path) -> None:
    ahead = [("orders", 1, offset) for offset in range(300, 310)]
    done = cli("audit", "lake.orders", "--table", file_of(tmp_path, [*FIRST, *SECOND, *ahead]))
    assert done.code == 0
    assert "Outside the committed windows: 10 offsets, orders-1: [300, 310). Still open:" in done.out
    assert "lake.orders-000003" in done.out


def test_offsets_without_a_record_are_counted_and_no_fault(cli: Cli, lake: Lake, tmp_path: Path) -> None:
    group = KafkaGroup("lake.logs", topics=["logs"], expect_gaps=True)
    lake.log.create("logs")
    lake.log.produce(TopicPartition("logs", 0), 10)
    window, claim = lake.plan(group, 1)
    attempt = lake.service.start_attempt(window, claim)
    lake.service.end_attempt(attempt, Outcome.SUCCEEDED, 8)
    lake.service.commit(window.id, claim, attempt)
    kept = [("logs", 0, offset) for offset in (0, 1, 2, 4, 5, 6, 8, 9)]
    done = cli("audit", "lake.logs", "--table", file_of(tmp_path, kept))
    assert done.code == 0
    assert "2 offsets held no record, by the counts of the jobs." in done.out
    again = lake.service.start_attempt(window, claim)
    lake.service.end_attempt(again, Outcome.SUCCEEDED, None)  # such as an append, which finds itself done
    done = cli("audit", "lake.logs", "--table", file_of(tmp_path, kept[1:]))
    assert done.code == 1
    assert "Missing: 1 record of lake.logs-000001, among these offsets:" in done.out


def test_a_part_of_the_windows_and_what_is_refused(cli: Cli, tmp_path: Path) -> None:
    table = file_of(tmp_path, SECOND)
    assert cli("audit", "lake.orders", "--table", table, "--windows", "2").code == 0
    done = cli("audit", "lake.orders", "--table", table, "--windows", "3")
    assert (done.code, "lake.orders-000003 (planned)" in done.err) == (1, True)
    assert cli("audit", "lake.orders", "--table", table, "--windows", "9").code == 2
    assert cli("audit", "nowhere", "--table", table).code == 2
    assert cli("audit", "lake.orders", "--table", str(tmp_path / "none.csv")).code == 2
    (tmp_path / "empty").mkdir()
    assert cli("audit", "lake.orders", "--table", str(tmp_path / "empty")).code == 2
    empty = file_of(tmp_path, [], "nothing.csv")
    done = cli("audit", "lake.orders", "--table", empty)
    assert (done.code, "has no line" in done.err) == (2, True)


def test_what_is_missing_before_the_first_window_has_its_replay(cli: Cli, lake: Lake, tmp_path: Path) -> None:
    group = KafkaGroup("lake.moved", topics=["orders"], starting_offsets={"orders": {"0": 500, "1": 200}})
    lake.commit(group, 1)
    old = [("orders", 0, offset) for offset in range(480)] + [("orders", 1, offset) for offset in range(200)]
    new = [("orders", 0, offset) for offset in range(500, 1000)] + [
        ("orders", 1, offset) for offset in range(200, 5000)
    ]
    table = file_of(tmp_path, [*old, *new])
    done = cli("audit", "lake.moved", "--table", table)
    assert done.code == 1, done.out + done.err
    assert "Missing before the group's first window" in done.out
    [conf] = re.findall(r"airflow dags trigger moved --conf '(.*)'", done.out)
    replay = json.loads(conf)[SCOPED]
    assert replay == {
        "group": "lake.moved",
        "starting_offsets": {"orders": {"0": 480}},
        "ending_offsets": {"orders": {"0": 500}},
    }
    assert "If nothing should be there" in done.out
    assert "\n    kafka-offsets audit lake.moved --table ... --windows FIRST-LAST" in done.out
    assert cli("audit", "lake.moved", "--table", table, "--windows", "1").code == 0
    command = (
        "--starting-offsets",
        json.dumps(replay["starting_offsets"]),
        "--ending-offsets",
        json.dumps(replay["ending_offsets"]),
    )
    [again] = cli("plan", "lake.moved", *command, "-o", "json").json["new"]
    assert [(r["partition"], r["start"], r["end"]) for r in again["ranges"] if r["span"]] == [(0, 480, 500)]
    assert parse_replay("lake.moved", replay) == parse_replay(
        "lake.moved", {k: json.dumps(v) if k != "group" else v for k, v in replay.items()}
    )


def test_a_window_with_records_of_a_topic_that_was_recreated_is_told_and_not_replayed(
    cli: Cli, lake: Lake, tmp_path: Path
) -> None:
    group = KafkaGroup("lake.both", topics=["orders", "clicks"])
    lake.log.produce(TopicPartition("clicks", 0), 5)
    lake.commit(group, 1)
    lake.log.delete("clicks")
    lake.log.create("clicks", 1)
    lake.service.reset(group, "earliest", "ada", "recreated", topics=["clicks"])
    short = file_of(tmp_path, [*FIRST, *SECOND, *(("orders", 1, offset) for offset in range(302, 5000))])
    done = cli("audit", "lake.both", "--table", short)
    assert done.code == 1
    assert "Missing: 2 records of lake.both-000001," in done.out
    assert "Left out: what lake.both-000001 read of an earlier topic of the same name" in done.out
    assert "No replay of lake.both-000001, as a topic was recreated:" in done.out
    assert "and remove by hand what is there twice" in done.out
    assert "airflow dags trigger" not in done.out


def test_what_a_reset_told_to_keep_is_not_said_to_be_removed(cli: Cli, lake: Lake, tmp_path: Path) -> None:
    group = KafkaGroup("lake.both", topics=["orders", "clicks"])
    owned = lake.commit(group, 1).ranges[TopicPartition("clicks", 0)]
    kept = [("clicks", 0, offset) for offset in range(owned.start, owned.end)]
    alone = KafkaGroup("lake.both", topics=["orders"])
    lake.service.reset(alone, "earliest", "ada", "read again", topics=["orders"], supersede=True)
    lake.commit(alone, 2)
    orders = [*FIRST, *SECOND, *(("orders", 1, offset) for offset in range(300, 5000))]
    table = file_of(tmp_path, [*orders, *kept])
    done = cli("audit", "lake.both", "--table", table)
    assert f"clicks-0: [{owned.start}, {owned.end})" in done.out
    assert "but keep what a reset told you to keep" in done.out
