"""A table of a database keeps the contract of every sink."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from airflow_kafka_offsets.spark.sinks.jdbc_sql import DIGESTS
from tests.spark.jdbc import Database
from tests.spark.sinks.contract import Rerun, SinkContract

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.lab.databases import MariaDB, Postgres


class Jdbc:
    """A table that exists."""

    code = "window.write_jdbc(df, target.jdbc, target.table, target.properties)"
    is_checked_first = True

    def target_in(self, url: str) -> Database:
        """Return a database with a new table."""
        database = Database(url)
        database.table = f"sink_{uuid.uuid4().hex[:8]}"  # type: ignore[attr-defined]
        database.create(database.table)  # type: ignore[attr-defined]
        return database

    def rows(self, spark: SparkSession, target: Any) -> list[tuple[str, int]]:
        """Ask the database."""
        found: list[tuple[str, int]] = target.found(target.table)
        return found

    def keep(self, spark: SparkSession, target: Any, kept: Path) -> None:
        """Let the database copy the rows, and the digests of windows under the name of the copy."""
        target.run(
            f"CREATE TABLE {target.table}_kept AS SELECT * FROM {target.table}",
            _digests(of=target.table, to=f"{target.table}_kept"),
        )
        kept.write_text(f"{target.table}_kept")

    def bring(self, spark: SparkSession, target: Any, kept: Path) -> None:
        """Let the database copy rows and digests."""
        first = kept.read_text()
        target.run(f"INSERT INTO {target.table} SELECT * FROM {first}", _digests(of=first, to=target.table))


def _digests(*, of: str, to: str) -> str:
    found = f"SELECT window_id, '{to}', digest FROM {DIGESTS} WHERE target = '{of}'"
    return f"INSERT INTO {DIGESTS} (window_id, target, digest) {found}"


class TestPostgres(Jdbc, SinkContract):
    """The whole contract."""

    @pytest.fixture
    def target(self, postgres: Postgres) -> Database:
        """Return a database with a new table."""
        return self.target_in(postgres.url)


class TestMariaDB(Jdbc, Rerun):
    """The table of reruns, for MySQL's quotes, types and locks."""

    @pytest.fixture
    def target(self, mariadb: MariaDB) -> Database:
        """Return a database with a new table."""
        return self.target_in(mariadb.url)
