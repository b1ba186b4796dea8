"""The offset store in HBase, against a standalone HBase and its Thrift 1 gateways."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import happybase
import pytest

from airflow_kafka_offsets.adapters.stores.hbase import HBaseStore
from airflow_kafka_offsets.core.errors import (
    StoreContentError,
    StoreDriftError,
    StoreOutcomeUnknownError,
    StoreRefusedError,
    StoreUnavailableError,
)
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.ports import OffsetStore
from tests.lab.processes import LOOPBACK
from tests.lab.proxy import Proxy
from tests.stores.contract import StoreContract, at

if TYPE_CHECKING:
    from tests.lab.hbase import HBaseServer

TABLE = "kafka_offsets"
NAME = "hbase://hbase_default"
THIRTY_DAYS = 30 * 24 * 3600
NOW = 1_763_700_000_000
"""A time in epoch milliseconds, for stores whose clock stands still."""


def connect(server: HBaseServer) -> happybase.Connection:
    return happybase.Connection(LOOPBACK, server.port, timeout=20_000)


def open_hbase(server: HBaseServer, **settings: Any) -> HBaseStore:
    return HBaseStore(NAME, **{"host": LOOPBACK, "port": server.port, "timeout": 20, **settings})


def standing(milliseconds: int) -> Callable[[], float]:
    """Return a clock that stands still."""
    return lambda: milliseconds / 1000


@pytest.fixture(scope="module")
def table(hbase: HBaseServer) -> happybase.Table:
    """Return the table, with both families, for the hands of other tools."""
    connection = connect(hbase)
    connection.create_table(TABLE, {"offsets": {"max_versions": 1, "time_to_live": THIRTY_DAYS}, "state": {}})
    return connection.table(TABLE)


def write_by_recipe(table: happybase.Table, topic: str, group: str, time: int, offsets: Mapping[int, int]) -> None:
    """Write what the recipe's saveOffsets writes."""
    table.put(f"{topic}:{group}:{time}".encode(), {b"offsets:%d" % p: b"%d" % o for p, o in offsets.items()})


def read_by_recipe(table: happybase.Table, topic: str, group: str, now: int) -> dict[TopicPartition, int]:
    """Read as the recipe's getLastCommittedOffsets does: the first row from now backwards; partitions by its cells."""
    prefix = f"{topic}:{group}:"
    rows = table.scan(row_start=f"{prefix}{now}".encode(), row_stop=f"{prefix}0".encode(), reverse=True, limit=1)
    for _, cells in rows:
        return {TopicPartition(topic, p): int(cells[b"offsets:%d" % p]) for p in range(len(cells))}
    return {}


def rows_of(table: happybase.Table, topic: str, group: str) -> list[bytes]:
    return [key for key, _ in table.scan(row_prefix=f"{topic}:{group}:".encode())]


@pytest.mark.usefixtures("table")
class TestHBase(StoreContract):
    """The contract."""

    @pytest.fixture
    def store(self, hbase: HBaseServer) -> OffsetStore:
        return open_hbase(hbase)

    @pytest.fixture
    def open_store(self, hbase: HBaseServer) -> Callable[[], OffsetStore]:
        return lambda: open_hbase(hbase)

    @pytest.fixture
    def proxied(self, hbase: HBaseServer) -> Iterator[tuple[OffsetStore, Proxy]]:
        with Proxy(hbase.port) as proxy:
            yield open_hbase(hbase, port=proxy.port, timeout=2), proxy
