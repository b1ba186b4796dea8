"""A ledger that is away, or not there yet."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from airflow_kafka_offsets.core.errors import LedgerUnavailableError, NoLedgerError
from airflow_kafka_offsets.page import app as page
from tests.lab.processes import LOOPBACK


@pytest.fixture
def silent() -> Iterator[int]:
    """Listen, and never answer: what a database behind a firewall, or one that hangs, looks like."""
    with socket.create_server((LOOPBACK, 0)) as listening:
        yield listening.getsockname()[1]


def use_ledger(monkeypatch: pytest.MonkeyPatch, **fields: object) -> None:
    """Let Airflow's configuration name this connection."""
    monkeypatch.setenv("AIRFLOW__KAFKA_OFFSETS__LEDGER_CONN_ID", "page_ledger")
    monkeypatch.setenv("AIRFLOW_CONN_PAGE_LEDGER", json.dumps(fields))


@pytest.mark.parametrize("conn_type", ["postgres", "mysql"])
def test_a_silent_database_is_soon_an_error(monkeypatch: pytest.MonkeyPatch, silent: int, conn_type: str) -> None:
    use_ledger(monkeypatch, conn_type=conn_type, host=LOOPBACK, port=silent, schema="offsets", login="a", password="b")
    with pytest.raises(LedgerUnavailableError, match="did not answer within 2 s"):
        anyio.run(page._open)


def test_looking_makes_no_ledger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    use_ledger(monkeypatch, conn_type="sqlite", host=str(file))
    with pytest.raises(NoLedgerError):
        anyio.run(page._open)
    assert not file.exists()
