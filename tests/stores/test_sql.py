"""Offsets in SQL tables: PostgreSQL, MariaDB and SQLite keep the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import make_url

from airflow_kafka_offsets.adapters.stores.sql import SqlStore
from tests.lab.processes import LOOPBACK
from tests.lab.proxy import Proxy
from tests.stores.contract import StoreContract

if TYPE_CHECKING:
    from tests.lab.databases import MariaDB, Postgres


class SqlContract(StoreContract):
    """Subclasses give `url`."""

    @pytest.fixture
    def url(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    def open_store(self, url: str) -> Callable[[], SqlStore]:
        return lambda: SqlStore("sql://db", url, 10, create=True)

    @pytest.fixture
    def store(self, open_store: Callable[[], SqlStore]) -> SqlStore:
        return open_store()

    @pytest.fixture
    def proxied(self, url: str) -> Iterator[tuple[SqlStore, Proxy]]:
        parsed = make_url(url)
        assert parsed.port
        with Proxy(parsed.port) as proxy:
            through = parsed.set(host=LOOPBACK, port=proxy.port).render_as_string(hide_password=False)
            yield SqlStore("sql://db", through, 2, create=True), proxy


class TestPostgres(SqlContract):
    @pytest.fixture
    def url(self, postgres: Postgres) -> str:
        return postgres.url


class TestMariaDB(SqlContract):
    @pytest.fixture
    def url(self, mariadb: MariaDB) -> str:
        return mariadb.url


class TestSQLite(SqlContract):
    """All but the faults of a network."""

    test_a_server_that_refuses_connections = None
    test_a_server_that_hangs = None
    test_a_server_that_went_away_and_came_back = None
    test_an_answer_that_is_lost_leaves_all_or_nothing = None
    test_a_connection_that_is_cut_leaves_all_or_nothing = None

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/offsets.db"
