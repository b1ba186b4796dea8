"""Connections to the ledger's database."""

from __future__ import annotations

import os
import sqlite3
import ssl
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from sqlalchemy import NullPool, event, inspect

from airflow_kafka_offsets.core.errors import LedgerUnavailableError, NoLedgerError
from airflow_kafka_offsets.ledger.engine import looking, open_engine, reading, shared_engine
from airflow_kafka_offsets.ledger.ledger import Ledger
from tests.ledger.examples import NOW, claim, draft, group


def test_connections_to_mysql_read_the_certificates_of_the_system_once(
    mariadb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That takes 20 ms of CPU, and each question to the ledger is a connection."""
    made = Mock(wraps=ssl.create_default_context)
    monkeypatch.setattr(ssl, "create_default_context", made)
    engine = open_engine(mariadb_url)
    for _ in range(3):
        with reading(engine) as connection:
            assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    assert made.call_count <= 1


def test_certificates_that_the_user_names_are_those_of_the_connection(mariadb_url: str, tmp_path: Path) -> None:
    with reading(open_engine(mariadb_url)):
        pass
    authority = tmp_path / "ca.pem"
    authority.write_text("no certificate")
    engine = open_engine(f"{mariadb_url}{'&' if '?' in mariadb_url else '?'}ssl_ca={authority}")
    with pytest.raises(LedgerUnavailableError, match=r"\(OperationalError: SSLError: "), reading(engine):
        pass


def test_a_look_while_another_process_opens_the_ledger_leaves_its_log_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ledger.db"
    with closing(sqlite3.connect(file)) as other:
        other.execute("PRAGMA journal_mode=WAL")
        other.execute("CREATE TABLE t (n)")
        other.commit()
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        log = Path(f"{file}-wal")
        assert log.stat().st_size == 0
        exists = os.path.exists
        monkeypatch.setattr(os.path, "exists", lambda path: not str(path).endswith("-shm") and exists(path))
        with looking(open_engine(f"sqlite:///{file}")) as connection:
            assert inspect(connection).get_table_names() == ["t"]
        assert log.exists()
        other.execute("INSERT INTO t VALUES (1)")
        other.commit()
        with closing(sqlite3.connect(file)) as third:
            assert third.execute("SELECT n FROM t").fetchall() == [(1,)]


def test_an_engine_that_is_kept_is_the_same_one_and_holds_no_connection(sqlite_url: str) -> None:
    kept = shared_engine(sqlite_url)
    with reading(kept) as connection:
        connection.exec_driver_sql("SELECT 1")
    assert shared_engine(sqlite_url) is kept
    assert isinstance(kept.pool, NullPool)


def test_a_ledger_that_is_asked_often_sees_what_others_wrote_and_that_its_tables_are_gone(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    url = f"sqlite:///{file}"
    writer = Ledger(url, create=True)
    assert not Ledger(url, is_asked_often=True).outlines(["orders"])
    writer.add_windows(group("orders"), 0, [draft(0, 1)], claim(), NOW)
    assert Ledger(url, is_asked_often=True).outlines(["orders"])["orders"].given == 1
    file.unlink()
    with pytest.raises(NoLedgerError):
        Ledger(url, is_asked_often=True)


def test_postgresql_compiles_no_statement_about_many_groups(postgres_url: str) -> None:
    """It takes them for long ones, and to compile one takes longer than to run it. Other transactions of a session keep their setting."""
    ledger, found = Ledger(postgres_url), list[str]()

    def look(_connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("SELECT"):
            found.append(cursor.connection.execute("SHOW jit").fetchone()[0])

    event.listen(ledger._engine, "before_cursor_execute", look)
    with ledger.one_connection():
        ledger.outlines(["one", "other"])
        ledger.overviews(["one", "other"])
        about_many = len(found)
        ledger.groups()
    assert about_many
    assert found == ["off"] * about_many + ["on"] * (len(found) - about_many)
