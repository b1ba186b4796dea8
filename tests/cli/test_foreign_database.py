"""A database that holds something else: a question leaves it byte for byte as it is, and nothing is made in it unasked."""

from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import make_url

from airflow_kafka_offsets.ledger import schema
from airflow_kafka_offsets.ledger.ledger import Ledger
from tests.cli.conftest import Cli, Lake
from tests.ledger.examples import add

DAG_FILE = """
from airflow.sdk import DAG
from airflow_kafka_offsets import KafkaGroup, PlanWindowOperator

with DAG("new"):
    PlanWindowOperator(task_id="plan", group=KafkaGroup("g", topics=["orders"]))
"""

QUESTIONS = [
    ("status", "--offline"),
    ("status",),
    ("windows", "g"),
    ("plan", "g"),
    ("plan", "--dag", "./new.py"),
    ("verify", "g"),
    ("export", "g"),
    ("db", "current"),
]


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Return what lies in a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def a_shop(path: Path, journal: str = "delete") -> sqlite3.Connection:
    """Make the database of another application, and return the connection that it works with."""
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA journal_mode={journal}")
    connection.execute("CREATE TABLE customers (name TEXT)")
    connection.execute("CREATE TABLE invoices (number INTEGER)")
    connection.commit()
    return connection


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Return the database of another application, alone in its folder."""
    (tmp_path / "shop").mkdir()
    # Before SQLAlchemy 2.1, no URL could name a file with a question mark.
    may_ask = make_url("sqlite:///%3F").database == "?"
    path = tmp_path / "shop" / f"it's 100% ours{'?' if may_ask else ''}#1.db"
    a_shop(path).close()
    return path


def with_write_ahead_log(path: Path) -> None:
    """Let the other application use a write-ahead log; no one has the file open."""
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
    connection.close()


def as_it_was(path: Path) -> None:
    """Leave it."""


@pytest.mark.parametrize("prepare", [as_it_was, with_write_ahead_log])
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_leaves_the_file_of_another_application_as_it_is(
    cli: Cli, shop: Path, question: tuple[str, ...], prepare: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(shop)
    monkeypatch.chdir(shop.parent.parent)
    Path("new.py").write_text(DAG_FILE)
    before = bytes_of(shop.parent)
    done = cli(*question, "--ledger", f"sqlite:///{str(shop).replace('?', '%3F')}")
    assert bytes_of(shop.parent) == before
    assert done.code == 3
    assert "holds 2 tables of something else (customers, invoices)" in done.err
    assert "kafka-offsets db upgrade --ledger" in done.err
    assert done.err.endswith(" --beside-others\n")


def test_the_command_of_the_refusal_as_typed_makes_the_ledger_in_that_file(cli: Cli, tmp_path: Path) -> None:
    a_shop(tmp_path / "it's ours.db").close()
    ledger = ("--ledger", f"sqlite:///{tmp_path}/it's ours.db")
    command = shlex.split(cli("status", "--offline", *ledger).err.splitlines()[-1])
    assert cli(*command[1:]).code == 0
    assert cli("status", "--offline", *ledger).out.startswith("The ledger has no groups yet")


def test_a_question_leaves_the_log_of_an_application_at_work_as_it_is(cli: Cli, tmp_path: Path) -> None:
    application = a_shop(tmp_path / "shop.db", "wal")
    application.execute("INSERT INTO customers VALUES ('Zoë')")
    application.commit()
    before = {name: data for name, data in bytes_of(tmp_path).items() if not name.endswith("-shm")}
    done = cli("status", "--offline", "--ledger", f"sqlite:///{tmp_path / 'shop.db'}")
    assert (done.code, "customers, invoices" in done.err) == (3, True)
    assert {name: data for name, data in bytes_of(tmp_path).items() if not name.endswith("-shm")} == before
    application.close()


def copy_of(folder: Path, *names: str) -> Path:
    """Return a folder with the bytes that some files of another have now."""
    copied = folder / "copied"
    copied.mkdir()
    for name in names:
        (copied / name).write_bytes((folder / name).read_bytes())
    return copied


def test_a_question_makes_no_file_beside_a_copied_database_and_its_log(cli: Cli, tmp_path: Path) -> None:
    application = a_shop(tmp_path / "shop.db", "wal")
    application.execute("PRAGMA wal_autocheckpoint=0")
    application.execute("INSERT INTO customers VALUES ('Zoë')")
    application.commit()
    copied = copy_of(tmp_path, "shop.db", "shop.db-wal")
    application.close()
    before = bytes_of(copied)
    done = cli("status", "--offline", "--ledger", f"sqlite:///{copied / 'shop.db'}")
    assert bytes_of(copied) == before
    assert done.code == 3
    assert "holds 2 tables of something else (customers, invoices)" in done.err, "they are in the log alone"
    upgrade = cli("db", "upgrade", "--ledger", f"sqlite:///{copied / 'shop.db'}")
    assert upgrade.code == 3
    assert "holds 2 tables of something else (customers, invoices)" in upgrade.err


@pytest.mark.parametrize(
    ("question", "shown"),
    [
        (("status", "--offline"), "lake-000001"),
        (("windows", "lake"), "lake-000001"),
        (("db", "current"), f"at revision {schema.REVISION}"),
    ],
)
def test_a_ledger_that_was_copied_with_its_log_shows_what_only_the_log_holds(
    cli: Cli, tmp_path: Path, question: tuple[str, ...], shown: str
) -> None:
    holds_the_log = sqlite3.connect(tmp_path / "new.db")  # the last connection to be closed would empty it
    holds_the_log.execute("PRAGMA journal_mode=WAL")
    holds_the_log.execute("SELECT * FROM sqlite_master").fetchall()
    add(Ledger(f"sqlite:///{tmp_path / 'new.db'}", create=True), "lake", 0, 10)
    copied = copy_of(tmp_path, "new.db", "new.db-wal")
    holds_the_log.close()
    done = cli(*question, "--ledger", f"sqlite:///{copied / 'new.db'}")
    assert (done.code, done.err) == (0, "")
    assert shown in done.out


@pytest.mark.parametrize(
    ("url", "option"),
    [
        ("sqlite:///ledger.db", "timeout"),
        ("postgresql://u@127.0.0.1:1/d", "port"),
        ("mysql://u@127.0.0.1:1/d", "read_timeout"),
        ("mysql://u@127.0.0.1:1/d", "client_flag"),
    ],
)
def test_an_option_that_can_not_be_used_is_named_without_its_value(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, option: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cli("status", "--offline", "--ledger", f"{url}?{option}=canary")
    assert (done.code, done.out) == (2, "")
    assert f"Its options are {option}." in done.err
    assert "canary" not in done.err


@pytest.mark.parametrize("place", [".", "/", "..", "shop"])
@pytest.mark.parametrize("command", [("status", "--offline"), ("db", "current"), ("db", "upgrade")])
def test_a_folder_is_no_ledger(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, command: tuple[str, ...]
) -> None:
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path)
    done = cli(*command, "--ledger", f"sqlite:///{place}")
    assert (done.code, done.out) == (2, "")
    assert done.err == f"The ledger's URL sqlite:///{place} names a folder: name a file in it\n"


@pytest.mark.parametrize("command", [("status", "--offline"), ("db", "current"), ("db", "upgrade")])
@pytest.mark.parametrize(
    "url", ["sqlite:///file:new.db?uri=true", "sqlite:///file:new.db?mode=rwc&uri=true", "sqlite:///file:new.db"]
)
def test_a_file_in_the_form_of_sqlites_own_uri_is_refused_and_not_made(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, command: tuple[str, ...]
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    done = cli(*command, "--ledger", url)
    assert list(Path.cwd().iterdir()) == []
    assert (done.code, done.out) == (2, "")
    assert (
        done.err == "The ledger's URL begins with file: - write a path, such as sqlite:////var/lib/kafka_offsets.db\n"
    )


def test_a_question_does_not_roll_back_what_another_application_left_half_way(cli: Cli, tmp_path: Path) -> None:
    application = a_shop(tmp_path / "shop.db")
    application.execute("PRAGMA cache_size=1")
    application.execute("INSERT INTO customers SELECT hex(randomblob(2000)) FROM pragma_function_list LIMIT 200")
    crashed = copy_of(tmp_path, "shop.db", "shop.db-journal")
    application.close()
    before = bytes_of(crashed)
    done = cli("status", "--offline", "--ledger", f"sqlite:///{crashed / 'shop.db'}")
    assert (done.code, "customers, invoices" in done.err) == (3, True)
    assert bytes_of(crashed) == before


@pytest.mark.parametrize("question", [("status", "--offline"), ("windows", "lake.orders"), ("db", "current")])
@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_question_leaves_the_ledger_as_it_is(
    cli: Cli, lake: Lake, tmp_path: Path, journal: str, question: tuple[str, ...]
) -> None:
    connection = sqlite3.connect(lake.path)
    assert connection.execute(f"PRAGMA journal_mode={journal}").fetchone() == (journal,)
    connection.close()
    before = bytes_of(tmp_path)
    assert cli(*question).code == 0
    assert bytes_of(tmp_path) == before


def test_upgrade_refuses_the_file_of_another_application_unless_that_is_meant(cli: Cli, shop: Path) -> None:
    ledger = ("--ledger", f"sqlite:///{str(shop).replace('?', '%3F')}")
    before = bytes_of(shop.parent)
    done = cli("db", "upgrade", *ledger)
    assert bytes_of(shop.parent) == before
    assert (done.code, done.out) == (3, "")
    assert "holds 2 tables of something else (customers, invoices)" in done.err

    assert f"{schema.REVISION} now" in cli("db", "upgrade", "--beside-others", *ledger).out
    assert cli("db", "current", *ledger).code == 0
    assert cli("status", "--offline", *ledger).out.startswith("The ledger has no groups yet")
    assert "was there" in cli("db", "upgrade", *ledger).out, "nothing has to be meant twice"
    application = sqlite3.connect(shop)
    assert application.execute("PRAGMA journal_mode").fetchone() == ("delete",), "that is theirs to choose"
    assert application.execute("SELECT * FROM customers").fetchall() == []
    application.close()


def test_upgrade_gives_a_ledger_of_our_own_its_write_ahead_log_back(cli: Cli, lake: Lake) -> None:
    connection = sqlite3.connect(lake.path)
    connection.execute("PRAGMA journal_mode=DELETE")
    connection.close()
    assert cli("db", "upgrade").code == 0
    connection = sqlite3.connect(lake.path)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_a_file_that_is_empty_is_taken_for_a_ledger_to_be(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "new.db").touch()
    ledger = ("--ledger", f"sqlite:///{tmp_path / 'new.db'}")
    assert "has no tables yet" in cli("status", "--offline", *ledger).err
    assert (tmp_path / "new.db").read_bytes() == b""
    assert cli("db", "upgrade", *ledger).code == 0
