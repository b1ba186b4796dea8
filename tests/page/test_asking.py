"""Who waits for Kafka holds up no one who only wants to see the ledger."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event
from typing import Any

import anyio
import pytest

from airflow_kafka_offsets.core.errors import KafkaUnavailableError, LedgerUnavailableError
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.page import app as page
from tests.lab.waiting import ANSWER


@pytest.fixture(autouse=True)
def ledger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Make a ledger, and let Airflow's configuration name it."""
    file = tmp_path / "ledger.db"
    Ledger(f"sqlite:///{file}", create=True)
    monkeypatch.setenv("AIRFLOW__KAFKA_OFFSETS__LEDGER_CONN_ID", "page_ledger")
    monkeypatch.setenv("AIRFLOW_CONN_PAGE_LEDGER", json.dumps({"conn_type": "sqlite", "host": str(file)}))


@pytest.fixture
def never() -> Any:
    """Return a question that no one answers before the test is over."""
    over = Event()
    yield lambda _: over.wait(ANSWER)
    over.set()


def test_whoever_waits_for_kafka_takes_no_thread_of_those_who_do_not(
    never: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "PATIENCE", ANSWER)  # a busy machine may take longer to open a ledger for all of them

    async def crowd() -> list[str]:
        async with anyio.create_task_group() as waiting:
            for _ in range(2 * int(page._THREADS_OF_KAFKA.total_tokens)):
                waiting.start_soon(page._ask_kafka, never)
            while page._THREADS_OF_KAFKA.available_tokens:
                await anyio.sleep(0.01)
            names = await page._ask(lambda ledger: [group.name for group in ledger.groups()])
            waiting.cancel_scope.cancel()
        return names

    assert anyio.run(crowd) == []


def test_whoever_waits_for_a_silent_database_takes_no_thread_of_airflow_s_own(
    never: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = Event()
    monkeypatch.setattr(page, "_open_configured", lambda: (began.set(), never(None)))

    async def crowd() -> float:
        async with anyio.create_task_group() as waiting:
            for _ in range(3):
                waiting.start_soon(page._ask, never)
            while not began.is_set():
                await anyio.sleep(0.01)
            taken = anyio.to_thread.current_default_thread_limiter().borrowed_tokens
            waiting.cancel_scope.cancel()
        return taken

    assert anyio.run(crowd) == 0


def test_an_answer_that_does_not_end_is_no_fault_of_the_ledger(never: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "LONGEST", 0.1)
    with pytest.raises(KafkaUnavailableError, match=r"did not answer within 0\.1 seconds. Reload"):
        anyio.run(page._ask_kafka, never)
    with pytest.raises(LedgerUnavailableError):
        anyio.run(page._ask, never)
