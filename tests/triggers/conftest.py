"""A world behind Airflow's connections, and pollers that do not take their time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.service import freshness, watch
from airflow_kafka_offsets.triggers import polling
from airflow_kafka_offsets.wiring import absent
from tests.lab.memory import IN_MEMORY
from tests.lab.processes import wait_until
from tests.service.memory_log import MemoryLog
from tests.service.world import World


class Places:
    """What Airflow's connections lead to."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.logs: dict[str, MemoryLog] = {"kafka_default": world.kafka}
        self.opened: list[str] = []
        self.is_ledger_gone: Exception | None = None
        self.refused = 0
        self.passed = timedelta(0)

    def later(self, time: timedelta) -> None:
        """Let time pass, for those who look."""
        self.passed += time

    def now(self) -> datetime:
        """Return the time that a look goes by."""
        return datetime.now(UTC) + self.passed

    def open_log(self, group: KafkaGroup) -> MemoryLog:
        """Open a Kafka in memory."""
        self.opened.append(group.kafka_conn_id)
        if group.kafka_conn_id not in self.logs:
            raise BadInputError(f"Airflow has no connection {group.kafka_conn_id!r}")
        return self.logs[group.kafka_conn_id]

    def open_ledger(self, conn_id: str | None = None) -> object:
        """Open the real ledger."""
        if self.is_ledger_gone:
            self.refused += 1
            raise self.is_ledger_gone
        return self.world.ledger


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    """Return a world; at the end no one may be left waiting."""
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        places = Places(World(Path(folder)))
        monkeypatch.setattr(wiring, "open_log", places.open_log)
        monkeypatch.setattr(absent, "open_ledger_to_look", places.open_ledger)
        monkeypatch.setattr(watch, "utc_now", places.now)
        monkeypatch.setattr(freshness, "utc_now", places.now)
        monkeypatch.setattr(polling, "MIN_POLL", 0.02)
        monkeypatch.setattr(polling, "shortest_deferral", lambda: 0.02)
        yield places
        wait_until(lambda: not threads(), what="the pollers stop when no one waits")
        assert polling._pollers == {}


def threads() -> list[str]:
    """Name the pollers' threads."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("kafka-offsets")]
