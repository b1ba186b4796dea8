"""From one line on the group to a store, through Airflow's connections."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from airflow_kafka_offsets import KafkaGroup
from airflow_kafka_offsets.core.errors import BadInputError, StoreUnavailableError
from airflow_kafka_offsets.core.store.guarantees import Compares
from airflow_kafka_offsets.core.store_address import parse_store_address
from airflow_kafka_offsets.ports import OffsetStore
from airflow_kafka_offsets.wiring import late
from airflow_kafka_offsets.wiring.stores.opening import open_store
from tests.stores.contract import at


def opened(address: str) -> OffsetStore:
    """Open the store of a group with this address."""
    group = KafkaGroup("lake.orders", topics=["orders"], kafka_conn_id="kafka_orders", offset_store=address)
    assert group.offset_store
    return open_store(parse_store_address(group.offset_store), group)


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Define Airflow connections."""
    kafka = {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}}
    for name, connection in {
        "warehouse": {"conn_type": "sqlite", "host": str(tmp_path / "offsets.db")},
        "kafka_orders": kafka,
        "other_kafka": kafka,
        "redis_default": {"conn_type": "redis", "host": "127.0.0.1"},
    }.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(connection))


def test_the_path_and_the_options_name_table_and_columns() -> None:
    address = "sql://warehouse/mine?create=true&offset_column=next_offset&timestamp_column="
    store = opened(address)
    store.advance("lake.orders", {}, at("orders", 5))
    assert opened(address).read("lake.orders", ["orders"]) == at("orders", 5)
    assert store.name == str(parse_store_address(address))


def test_kafka_is_the_groups_own_unless_another_is_named() -> None:
    for address in ("kafka://", "kafka://other_kafka?commit=plain"):
        store = opened(address)
        assert store.name == address
        assert store.guarantees.is_atomic == (address == "kafka://")
    assert store.guarantees.compares is Compares.NO_ONE


def test_settings_instead_of_the_connection_are_those_of_the_groups_own_kafka_only() -> None:
    group = KafkaGroup("lake.orders", topics=["orders"], kafka_conn_id="nowhere")
    config = {"bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(BadInputError, match="no connection 'nowhere'"):
        open_store(parse_store_address("kafka://"), group)
    store = open_store(parse_store_address("kafka://?timeout=1"), group, config)
    with pytest.raises(StoreUnavailableError, match=r"127\.0\.0\.1:1"):
        store.read("lake.orders", ["orders"])
    with pytest.raises(BadInputError, match="no connection 'elsewhere'"):
        open_store(parse_store_address("kafka://elsewhere"), group, config)


def test_a_store_that_is_opened_late_needs_its_connection_when_it_is_asked(tmp_path: Path) -> None:
    group = KafkaGroup("lake.orders", topics=["orders"])
    store = late(partial(open_store, parse_store_address("redis://nowhere"), group), name="redis://nowhere")
    assert store.name == "redis://nowhere"
    for ask in (
        lambda: store.read("lake.orders", ["orders"]),
        lambda: store.advance("lake.orders", {}, at("orders", 5)),
        lambda: store.guarantees,
    ):
        with pytest.raises(BadInputError, match="no connection 'nowhere'"):
            ask()
    files = late(partial(open_store, parse_store_address(f"files://{tmp_path}"), group))
    files.advance("lake.orders", {}, at("orders", 5))
    assert files.read("lake.orders", ["orders"]) == at("orders", 5)
    assert files.guarantees.is_atomic


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("kafka://?commit=maybe", "transactional or plain"),
        ("sql://warehouse?create=yes", "must be true or false"),
        ("sql://warehouse?offset_column=topic", "different columns"),
        ("sql://redis_default", "type 'redis', not 'postgres'"),
        ("sql://nowhere", "no connection 'nowhere'"),
        ("sql://", "needs an Airflow connection"),
        ("kafka://redis_default", "not 'kafka'"),
    ],
)
def test_what_can_not_be_opened_says_why(address: str, says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        opened(address)
