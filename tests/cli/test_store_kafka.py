"""The Kafka that the arguments name is also that of a store ``kafka://``, and no Airflow connection is needed then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.store_address import StoreAddress
from airflow_kafka_offsets.core.window import Claim
from airflow_kafka_offsets.wiring.stores import opening as wiring_of_stores
from tests.cli.conftest import ORDERS_0, ORDERS_1, Cli, Lake
from tests.stores.memory import MemoryStore

SERVERS = ("--bootstrap-servers", "127.0.0.1:1")


@dataclass
class Opened:
    """Which stores were opened, with which settings."""

    store: MemoryStore = field(default_factory=lambda: MemoryStore("kafka://"))
    settings: list[Mapping[str, Any] | None] = field(default_factory=list)

    def open_store(
        self, address: StoreAddress, group: KafkaGroup, kafka_config: Mapping[str, Any] | None = None
    ) -> MemoryStore:
        """Remember, and return the one store."""
        self.settings.append(kafka_config)
        return self.store


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """A store at the watermark."""
    opened = Opened()
    opened.store.groups["lake.orders"] = {ORDERS_0: 1000, ORDERS_1: 300}
    monkeypatch.setattr(wiring_of_stores, "open_store", opened.open_store)
    return opened


@pytest.fixture
def own(quiet: Lake) -> Lake:
    """A ledger in which lake.orders has an offset store of its own, and no one works on it."""
    definition = KafkaGroup("lake.orders", topics=["orders"], offset_store="kafka://", kafka_conn_id="nowhere")
    window = quiet.service.plan(definition, Claim("orders", "r", "load"), is_over=lambda claim: True)[0].window
    quiet.service.abandon(window.id, "ann", "only its definition counts")
    return quiet


@pytest.mark.parametrize(
    "command",
    [
        ("copy", "lake.orders", "--from", "ledger", "--to", "kafka://", "--why", "w"),
        ("copy", "lake.orders", "--from", "kafka://?commit=plain", "--to", "kafka://", "--why", "w"),
        ("verify", "lake.orders", "--store", "kafka://"),
        ("verify", "lake.orders"),
        ("reset", "lake.orders", "--to", '{"orders":{"1":400}}', "--why", "w", "--yes"),
    ],
)
def test_the_settings_reach_every_kafka_store(cli: Cli, own: Lake, opened: Opened, command: Sequence[str]) -> None:
    assert cli(*command, *SERVERS).code == 0
    stores = sum(word.startswith("kafka://") for word in command) or 1  # else it is the group's own
    assert opened.settings == [{"bootstrap.servers": "127.0.0.1:1"}] * stores


def test_without_them_it_is_the_groups_connection(cli: Cli, own: Lake, opened: Opened) -> None:
    assert cli("verify", "lake.orders").code == 0
    assert opened.settings == [None]


def test_an_import_moves_the_groups_own_store_there(cli: Cli, own: Lake, opened: Opened) -> None:
    opened.store.groups["old"] = {ORDERS_1: 400}
    done = cli("import", "lake.orders", "--from", "kafka://", "--as", "old", "--why", "w", "--yes", *SERVERS)
    assert done.code == 0
    assert opened.settings == [{"bootstrap.servers": "127.0.0.1:1"}] * 2
    assert opened.store.groups["lake.orders"] == {ORDERS_0: 1000, ORDERS_1: 400}


def test_what_asks_no_store_needs_no_connection(cli: Cli, own: Lake) -> None:
    """Nothing here is replaced: there is no connection of the name."""
    assert cli("plan", "lake.orders").code == 0
    assert cli("reset", "lake.orders", "--to", "latest", "--why", "w").code == 4
    done = cli("reset", "lake.orders", "--to", "latest", "--why", "w", "--yes")
    assert done.code == 2
    assert "no connection 'nowhere'" in done.err
    assert own.watermark() == {0: 1000, 1: 300}
