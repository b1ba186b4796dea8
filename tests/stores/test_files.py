"""Offsets in files on a local disk: the contract, and what only a disk does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_kafka_offsets.adapters.stores.files import FilesStore
from airflow_kafka_offsets.adapters.stores.local import LocalPlace
from airflow_kafka_offsets.ports import OffsetStore
from tests.stores.contract import StoreContract


class TestLocal(StoreContract):
    """All but the faults of a server, as there is none."""

    test_a_server_that_refuses_connections = None
    test_a_server_that_hangs = None
    test_a_server_that_went_away_and_came_back = None
    test_an_answer_that_is_lost_leaves_all_or_nothing = None
    test_a_connection_that_is_cut_leaves_all_or_nothing = None

    @pytest.fixture
    def store(self, open_store: Callable[[], OffsetStore]) -> OffsetStore:
        return open_store()

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[], OffsetStore]:
        return lambda: FilesStore(f"files://{tmp_path}", LocalPlace(str(tmp_path)))
