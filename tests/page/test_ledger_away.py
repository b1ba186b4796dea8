"""A ledger that is away, or not there yet."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest

from airflow_kafka_offsets.core.errors import LedgerUnavailableError, NoLedgerError
from airflow_kafka_offsets.page import app as page
from tests.lab.processes import LOOPBACK
from tests.page.server import PageServer
from tests.page.test_page import PAGES


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


def test_each_page_says_that_the_ledger_does_not_answer(server: PageServer, silent: int) -> None:
    asked = [page for page in PAGES if not page.startswith("static/")]
    with server.with_ledger_at(silent), ThreadPoolExecutor(len(asked)) as pool:
        answers = dict(zip(asked, pool.map(server.get, asked), strict=True))
        document = server.get("groups?format=json").json()
    for where, said in answers.items():
        assert said.status_code == 503, where
        assert "<h1>The ledger does not answer</h1>" in said.text, where
        assert "did not answer within 2 seconds. Reload the page" in said.text, where
        assert "Try again" in said.text, where
    assert "did not answer within 2 seconds" in document["error"]
    assert server.get("groups").status_code == 200, "it is back"


def test_looking_makes_no_ledger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    use_ledger(monkeypatch, conn_type="sqlite", host=str(file))
    with pytest.raises(NoLedgerError):
        anyio.run(page._open)
    assert not file.exists()
