"""Offsets in files on HDFS: the contract, and what only HDFS does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from airflow_kafka_offsets.adapters.stores.files import FilesStore
from airflow_kafka_offsets.adapters.stores.hdfs import HdfsPlace
from airflow_kafka_offsets.ports import OffsetStore
from tests.lab.hdfs import Hdfs
from tests.lab.proxy import Proxy
from tests.stores.contract import StoreContract

BASE = "/apps/offsets"
NAME = f"hdfs://webhdfs_default{BASE}"


class TestHdfs(StoreContract):
    """All of it."""

    @pytest.fixture
    def store(self, open_store: Callable[[], OffsetStore]) -> OffsetStore:
        return open_store()

    @pytest.fixture
    def open_store(self, hdfs: Hdfs) -> Callable[[], OffsetStore]:
        return lambda: FilesStore(NAME, HdfsPlace(hdfs.client(), BASE))

    @pytest.fixture
    def proxied(self, hdfs: Hdfs) -> Iterator[tuple[OffsetStore, Proxy]]:
        with Proxy(hdfs.port) as proxy:
            client = hdfs.client(url=f"http://127.0.0.1:{proxy.port}", timeout=2)
            yield FilesStore(NAME, HdfsPlace(client, BASE)), proxy
