"""The offset store in ZooKeeper, in both of its layouts, against a real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

import pytest

from airflow_kafka_offsets.adapters.stores.zookeeper import JsonLayout, NodeLayout, ZooKeeperStore
from airflow_kafka_offsets.ports import OffsetStore
from tests.lab.processes import LOOPBACK
from tests.lab.proxy import Proxy
from tests.lab.zookeeper import ZooKeeperServer
from tests.stores.contract import StoreContract


class TestNodes(StoreContract):
    """One node for each partition."""

    layout: ClassVar[type[NodeLayout | JsonLayout]] = NodeLayout
    # Many nodes are asked for at once, and how many pieces their answers come in is chance.
    lost_partitions = 2
    lost_answers = 4

    @pytest.fixture
    def open_store(self, zookeeper: ZooKeeperServer) -> Callable[[], OffsetStore]:
        return lambda: ZooKeeperStore("zookeeper://zookeeper_default", 10, zookeeper.hosts, layout=self.layout)

    @pytest.fixture
    def store(self, open_store: Callable[[], OffsetStore]) -> OffsetStore:
        return open_store()

    @pytest.fixture
    def proxied(self, zookeeper: ZooKeeperServer) -> Iterator[tuple[OffsetStore, Proxy]]:
        with Proxy(zookeeper.port) as proxy:
            hosts = f"{LOOPBACK}:{proxy.port}"
            yield ZooKeeperStore("zookeeper://zookeeper_default", 2, hosts, layout=self.layout), proxy


class TestJson(TestNodes):
    """One node for the group."""

    layout = JsonLayout
