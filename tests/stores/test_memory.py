"""The store in memory keeps the contract of the real ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_kafka_offsets.ports import OffsetStore
from tests.stores.contract import StoreContract
from tests.stores.memory import MemoryStore


class TestMemory(StoreContract):
    """All but the faults: there is no server."""

    names_windows = True

    test_a_server_that_refuses_connections = None
    test_a_server_that_hangs = None
    test_a_server_that_went_away_and_came_back = None
    test_an_answer_that_is_lost_leaves_all_or_nothing = None
    test_a_connection_that_is_cut_leaves_all_or_nothing = None

    @pytest.fixture
    def store(self) -> OffsetStore:
        return MemoryStore()

    @pytest.fixture
    def open_store(self, store: OffsetStore) -> Callable[[], OffsetStore]:
        return lambda: store
