"""One ledger per kind of database, shared by the tests: each takes groups of its own names."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, text

from airflow_kafka_offsets.ledger import schema
from airflow_kafka_offsets.ledger.engine import open_engine
from airflow_kafka_offsets.ledger.ledger import Ledger
from tests.ledger.new_ledger import in_a_file, on_a_server
from tests.ledger.pooled import ledger_at
from tests.ledger.races import Competition

if TYPE_CHECKING:
    from tests.lab.databases import MariaDB, Postgres


@pytest.fixture(scope="session")
def sqlite_url() -> Iterator[str]:
    """Return the URL of a ledger in a file."""
    with in_a_file() as url:
        yield url


@pytest.fixture(scope="session")
def postgres_url(postgres: Postgres) -> str:
    """Return the URL of a ledger in PostgreSQL."""
    return on_a_server(postgres)


@pytest.fixture(scope="session")
def mariadb_url(mariadb: MariaDB) -> str:
    """Return the URL of a ledger in MariaDB, in a database whose default character set can't hold most names."""
    engine = create_engine(mariadb.url)
    with engine.begin() as connection:
        connection.execute(text("ALTER DATABASE offsets CHARACTER SET latin1"))
    engine.dispose()
    schema.upgrade(open_engine(mariadb.url))
    return mariadb.url


@pytest.fixture
def name() -> str:
    """Return the name of a group that no other test has."""
    return f"group-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def ledger(url: str) -> Ledger:
    """Return the ledger that the test class speaks of."""
    return ledger_at(url)


@pytest.fixture(scope="session")
def competition() -> Iterator[Competition]:
    """Return the competing processes."""
    with Competition() as processes:
        yield processes
