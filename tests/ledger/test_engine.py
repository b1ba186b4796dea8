"""Connections to the ledger's database."""

from __future__ import annotations

import os
import sqlite3
import ssl
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest
from sqlalchemy import inspect

from airflow_kafka_offsets.adapters.ledger.engine import looking, open_engine, reading
from airflow_kafka_offsets.core.errors import LedgerUnavailableError


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
