"""A ledger that is away, or not there yet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from sqlalchemy import make_url, text

from airflow_kafka_offsets.core.errors import LedgerUnavailableError, NoLedgerError
from airflow_kafka_offsets.ledger.engine import open_engine
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.ledger.schema import VERSION_TABLE
from airflow_kafka_offsets.page import app as page
from tests.lab.processes import LOOPBACK
from tests.page.server import PageServer
from tests.page.test_page import PAGES

if TYPE_CHECKING:
    from tests.lab.databases import Postgres


def use_ledger(monkeypatch: pytest.MonkeyPatch, **fields: object) -> None:
    """Let Airflow's configuration name this connection."""
    monkeypatch.setenv("AIRFLOW__KAFKA_OFFSETS__LEDGER_CONN_ID", "page_ledger")
    monkeypatch.setenv("AIRFLOW_CONN_PAGE_LEDGER", json.dumps(fields))


@pytest.mark.slow
@pytest.mark.parametrize("conn_type", ["postgres", "mysql"])
def test_a_silent_database_is_soon_an_error(monkeypatch: pytest.MonkeyPatch, silent: int, conn_type: str) -> None:
    use_ledger(monkeypatch, conn_type=conn_type, host=LOOPBACK, port=silent, schema="offsets", login="a", password="b")
    with pytest.raises(LedgerUnavailableError, match="did not answer within 2 s"):
        anyio.run(page._open)


@pytest.fixture
def locked(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Configure a ledger whose database lets everyone in, and then answers no question about its revision."""
    url = postgres.create_database("page_locked")
    Ledger(url, create=True)
    at = make_url(url)
    use_ledger(
        monkeypatch,
        conn_type="postgres",
        host=at.host,
        port=at.port,
        schema=at.database,
        login=at.username,
        password=at.password,
    )
    with open_engine(url).begin() as holder:
        holder.execute(text(f"LOCK TABLE {VERSION_TABLE} IN ACCESS EXCLUSIVE MODE"))
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("locked")
def test_a_database_that_lets_the_page_in_and_then_hangs_is_soon_an_error() -> None:
    with pytest.raises(LedgerUnavailableError, match="did not answer within 2 s"):
        anyio.run(page._ask, lambda ledger: ledger.groups())


def test_each_page_says_that_the_ledger_does_not_answer(server: PageServer, silent: int) -> None:
    pages = [page for page in PAGES if not page.startswith("static/")]
    with server.with_ledger_at(silent), ThreadPoolExecutor(len(pages)) as pool:
        answers = dict(zip(pages, pool.map(server.get, pages), strict=True))
        document = server.get("groups?format=json").json()
    for where, answer in answers.items():
        assert answer.status_code == 503, where
        assert "<h1>The ledger does not answer</h1>" in answer.text, where
        assert "did not answer within 2 seconds. Reload the page" in answer.text, where
        assert "Try again" in answer.text, where
    assert "did not answer within 2 seconds" in document["error"]
    assert server.get("groups").status_code == 200, "it is back"


def test_looking_makes_no_ledger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    use_ledger(monkeypatch, conn_type="sqlite", host=str(file))
    with pytest.raises(NoLedgerError):
        anyio.run(page._open)
    assert not file.exists()
