"""The ledger in PostgreSQL: made and upgraded by ``kafka-offsets db``."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, text

from airflow_kafka_offsets.ledger.schema import REVISION
from tests.cli.conftest import Cli, Done, in_a_process, set_revision
from tests.cli.test_foreign_database import DAG_FILE

if TYPE_CHECKING:
    from tests.lab.databases import Postgres


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.create_database(f"cli_{uuid.uuid4().hex[:12]}")


def run(url: str, *arguments: str) -> Done:
    return in_a_process(*arguments, environment={"KAFKA_OFFSETS_LEDGER": url})


def test_upgrade_prints_the_revision_before_and_after(url: str) -> None:
    assert run(url, "db", "current", "-o", "json").json == {"revision": None, "needed": REVISION, "current": False}
    first = run(url, "db", "upgrade")
    assert (first.code, first.err) == (0, "")
    assert first.out == f"The ledger is made: revision none (no tables) before, {REVISION} now.\n"
    second = run(url, "db", "upgrade", "-o", "json")
    assert second.json == {"before": REVISION, "after": REVISION}
    assert run(url, "db", "current").code == 0
    assert run(url, "status", "--offline").code == 0


def test_a_database_without_tables_names_the_command(url: str) -> None:
    done = run(url, "windows", "lake.orders")
    assert (done.code, done.out) == (3, "")
    assert "Run once, with the same ledger:\n    kafka-offsets db upgrade --ledger ...\n" in done.err
    assert "test-pw" not in done.err


def test_a_first_window_is_shown_beside_the_tables_of_others_and_the_answer_tells(
    url: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE customers (name TEXT)"))
    engine.dispose()
    monkeypatch.setenv("KAFKA_OFFSETS_LEDGER", url)
    file = tmp_path / "new.py"
    file.write_text(DAG_FILE)
    done = cli("plan", "--dag", str(file))
    assert done.code == 0, done.err
    assert "has no ledger yet: the group counts as new" in done.out
    assert "test-pw" not in done.out
    assert cli("plan", "--dag", str(file), "-o", "json").json["no_ledger_in"].startswith("postgresql")


def test_a_ledger_of_another_version_is_left_alone(url: str) -> None:
    run(url, "db", "upgrade")
    set_revision(url, "9999")
    for command in (("status", "--offline"), ("db", "upgrade")):
        done = run(url, *command)
        assert (done.code, done.out) == (3, "")
        assert "Another version of airflow-kafka-offsets made the ledger" in done.err
        assert f"(revision 9999, not {REVISION})" in done.err
        assert "test-pw" not in done.err
    current = run(url, "db", "current", "-o", "json")
    assert (current.code, current.json["revision"]) == (3, "9999")


def test_a_wrong_password_is_exit_code_3_and_not_shown(url: str) -> None:
    done = run(url.replace(":test-pw@", ":wrong-canary@"), "db", "upgrade")
    assert (done.code, done.out) == (3, "")
    assert "Traceback" not in done.err
    assert "canary" not in done.err
