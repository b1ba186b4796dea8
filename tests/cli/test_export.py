"""``kafka-offsets export``."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflow_kafka_offsets.adapters.sources import csv_file
from tests.cli.conftest import ORDERS_0, ORDERS_1, Cli, Lake, Stores

EXPORT = ("export", "lake.orders")


def test_to_stdout_it_is_a_question(cli: Cli, lake: Lake) -> None:
    before = lake.dump()
    done = cli(*EXPORT)
    assert (done.code, done.out) == (0, "orders,0,1000\norders,1,300\n")
    assert lake.dump() == before


def test_for_programs(cli: Cli) -> None:
    document = cli(*EXPORT, "-o", "json").json
    assert (document["done"], document["to"], document["from"], document["meaning"]) == (False, "-", "ledger", "next")
    assert document["offsets"][1] == {"topic": "orders", "partition": 1, "found": 300, "meaning": "next", "to": 300}


def test_into_a_file_it_is_a_dry_run_first(cli: Cli, lake: Lake, tmp_path: Path) -> None:
    before = lake.dump()
    file = tmp_path / "offsets.csv"
    done = cli(*EXPORT, "--to", str(file), "--why", "handing over")
    assert done.code == 4
    assert f"This would write the next offsets of 2 partitions from ledger to {file}" in done.out
    assert not file.exists()
    assert lake.dump() == before
    done = cli(*EXPORT, "--to", str(file), "--why", "handing over", "--who", "ann", "--yes")
    assert done.code == 0
    assert file.read_bytes() == b"orders,0,1000\norders,1,300\n"
    act = lake.ledger.acts("lake.orders")[-1]
    assert (act.kind, act.who, act.why) == ("export", "ann", "handing over")
    assert (act.details["to"], act.details["offsets"]) == (str(file), {"orders-0": 1000, "orders-1": 300})


def test_the_export_is_shown_among_what_people_did(cli: Cli, tmp_path: Path) -> None:
    cli(*EXPORT, "--to", str(tmp_path / "x.csv"), "--why", "handing over", "--who", "ann", "--yes")
    [act] = cli("status", "lake.orders", "-o", "json").json["groups"][0]["acts"]
    assert (act["kind"], act["details"]["source"]) == ("export", "ledger")


def test_a_file_that_may_have_been_written_is_recorded(
    cli: Cli, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def on_a_full_disk(path: str, mode: str, **more: Any) -> Any:
        Path(path).touch(exist_ok=False)
        return open("/dev/full", "w", **more)

    monkeypatch.setattr(csv_file, "open", on_a_full_disk, raising=False)
    done = cli(*EXPORT, "--to", str(tmp_path / "x.csv"), "--why", "w", "--yes")
    assert done.code == 2
    assert "No space left on device; the file may be incomplete" in done.err
    assert [act.kind for act in lake.ledger.acts("lake.orders")] == ["export"]


@pytest.mark.parametrize("name", ["dangling", "x" * 300, "no/folder", "."])
def test_a_file_that_can_not_be_made_is_not_recorded(cli: Cli, lake: Lake, tmp_path: Path, name: str) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere" / "at all")
    before = lake.dump()
    assert cli(*EXPORT, "--to", str(tmp_path / name), "--why", "w", "--yes").code == 2
    assert lake.dump() == before


def test_an_export_that_can_not_be_recorded_leaves_no_file(cli: Cli, lake: Lake, tmp_path: Path) -> None:
    with closing(sqlite3.connect(lake.path)) as connection:
        connection.execute("DROP TABLE kafka_offsets_acts")
    assert cli(*EXPORT, "--to", str(tmp_path / "x.csv"), "--why", "w", "--yes").code == 3
    assert not (tmp_path / "x.csv").exists()


def test_a_file_is_never_written_over(cli: Cli, lake: Lake, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text("mine")
    before = lake.dump()
    for more in ((), ("--yes",)):
        done = cli(*EXPORT, "--to", str(file), "--why", "w", *more)
        assert done.code == 2
        assert "already exists: name another file" in done.err
    assert file.read_text() == "mine"
    assert lake.dump() == before


def test_a_file_wants_a_reason_and_a_folder(cli: Cli, tmp_path: Path) -> None:
    assert "An export into a file needs --why" in cli(*EXPORT, "--to", str(tmp_path / "x.csv")).err
    done = cli(*EXPORT, "--to", str(tmp_path / "no" / "x.csv"), "--why", "w")
    assert (done.code, done.err) == (2, f"There is no folder {tmp_path / 'no'}\n")


def test_from_another_place_under_another_name_and_meaning(cli: Cli, stores: Stores) -> None:
    stores["sql://db"].groups["old"] = {ORDERS_0: 41, ORDERS_1: 7}
    done = cli(*EXPORT, "--from", "sql://db", "--as", "old", "--meaning", "last-read")
    assert done.out == "orders,0,42\norders,1,8\n"


def test_what_a_place_has_to_say_goes_to_stderr(cli: Cli, tmp_path: Path) -> None:
    for folder, last in (("offsets", 2), ("commits", 1)):
        (tmp_path / folder).mkdir()
        for batch in range(last):
            (tmp_path / folder / str(batch)).write_text('v1\n{}\n{"orders":{"0":7}}')
    done = cli(*EXPORT, "--from", f"checkpoint:{tmp_path}")
    assert done.out == "orders,0,7\n"
    assert done.err.startswith("Note: batch 1 was planned but not committed")


def test_a_group_that_the_ledger_does_not_know(cli: Cli) -> None:
    done = cli("export", "no one")
    assert (done.code, done.out) == (2, "")
    assert "The ledger has no group no one" in done.err
