"""Who only looks makes no ledger, and upgrades none: a sensor, a trigger."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_kafka_offsets import PlanWindowOperator, WindowCommittedSensor, wiring
from airflow_kafka_offsets.core.conditions import (
    CommittedUntil,
    Condition,
    LagAtMost,
    UnreadAtLeast,
    WindowCommitted,
    WindowFree,
)
from airflow_kafka_offsets.core.errors import LedgerSchemaError, NoLedgerError
from airflow_kafka_offsets.core.plan.waiting import Decision
from airflow_kafka_offsets.service import watch
from airflow_kafka_offsets.triggers import polling
from airflow_kafka_offsets.triggers.polling import answered
from airflow_kafka_offsets.wiring import absent
from airflow_kafka_offsets.wiring.absent import open_ledger_to_look
from tests.cli.conftest import set_revision
from tests.core.examples import group, tp
from tests.service.memory_log import MemoryLog

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An AIRFLOW_HOME without a ledger; the default one counts."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.delenv("AIRFLOW__KAFKA_OFFSETS__LEDGER_CONN_ID", raising=False)
    return tmp_path


def ask(condition: Condition) -> Decision | Exception:
    """Look once, as sensors and triggers do."""
    kafka = MemoryLog()
    kafka.create("orders")
    kafka.produce(tp(0), 5)
    [answer] = watch.ask([condition], open_ledger_to_look, lambda: kafka)
    return answer


def test_before_the_first_plan_a_group_is_a_new_one_and_no_ledger_is_made(home: Path) -> None:
    enough = ask(UnreadAtLeast(group(), 5))
    assert isinstance(enough, Decision)
    assert enough.is_met
    until = ask(CommittedUntil("lake", NOON))
    assert isinstance(until, Decision)
    assert not until.is_met
    assert isinstance(ask(WindowCommitted("lake-000001")), NoLedgerError)
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("starting_offsets", ["earliest", "latest"])
def test_a_group_that_has_never_planned_has_not_caught_up_wherever_it_is_to_start(
    home: Path, starting_offsets: str
) -> None:
    new = group(starting_offsets=starting_offsets)
    behind, within = ask(LagAtMost(new, 4)), ask(LagAtMost(new, 5))
    assert isinstance(behind, Decision)
    assert isinstance(within, Decision)
    assert (behind.is_met, within.is_met) == (False, True)
    assert behind.facts["lag"] == 5, "all that Kafka holds"


def test_a_sensor_makes_no_ledger(home: Path) -> None:
    with pytest.raises(NoLedgerError, match="There is no ledger in"):
        WindowCommittedSensor(task_id="wait", window_id="lake-000001").execute({})  # type: ignore[typeddict-item]
    assert list(home.iterdir()) == []


def test_a_deferred_sensor_is_told_that_there_is_no_ledger(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "MIN_POLL", 0.02)
    with pytest.raises(NoLedgerError, match="There is no ledger in") as raised:
        asyncio.run(asyncio.wait_for(answered(WindowCommitted("lake-000001"), 0.02), 300))
    event = {"error": type(raised.value).__name__, "message": str(raised.value)}
    with pytest.raises(NoLedgerError, match="There is no ledger in"):
        WindowCommittedSensor(task_id="wait", window_id="lake-000001").resume({}, event)  # type: ignore[typeddict-item]
    assert list(home.iterdir()) == []


def test_a_task_that_waits_for_another_run_makes_no_ledger_and_is_told_that_there_is_none(home: Path) -> None:
    answer = ask(WindowFree(("lake-000001",), is_rerun=False))
    assert isinstance(answer, NoLedgerError)
    event = {"error": type(answer).__name__, "message": str(answer)}
    with pytest.raises(NoLedgerError, match="There is no ledger in"):
        PlanWindowOperator(task_id="plan", group=group()).resume({}, event)  # type: ignore[arg-type]
    assert list(home.iterdir()) == []


def other_ledger() -> Path:
    """Make a default ledger of another version, and return its file."""
    wiring.open_ledger()
    set_revision(wiring.default_ledger_url(), "0003")
    return Path(wiring.default_ledger_url().removeprefix("sqlite:///"))


def test_a_default_ledger_of_another_version_is_left_as_it_is(home: Path) -> None:
    file = other_ledger()
    before = file.read_bytes()
    sensor = WindowCommittedSensor(task_id="wait", window_id="lake-000001")
    for look in (open_ledger_to_look, wiring.open_ledger, lambda: sensor.execute({})):  # type: ignore[typeddict-item]
        with pytest.raises(LedgerSchemaError, match=r"Another version .* made the ledger .*revision 0003"):
            look()
    answer = ask(WindowFree(("lake-000001",), is_rerun=False))
    assert isinstance(answer, LedgerSchemaError)
    assert file.read_bytes() == before


def test_an_absent_ledger_is_named_once_in_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    absent._warn.cache_clear()
    for _ in range(3):
        absent.open_ledger_to_look()
    (said,) = [record.getMessage() for record in caplog.records if "There is no ledger in" in record.getMessage()]
    assert str(tmp_path / "kafka_offsets.db") in said
    assert "If it is elsewhere, correct AIRFLOW_HOME or [kafka_offsets] ledger_conn_id" in said
