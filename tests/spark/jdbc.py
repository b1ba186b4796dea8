"""A database as tests of the JDBC sink see it: from Spark by JDBC, and from outside by SQLAlchemy."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, inspect, text
from sqlalchemy.engine import make_url

from airflow_kafka_offsets.spark.sinks.jdbc_sql import Target

if TYPE_CHECKING:
    from sqlalchemy import Engine


class Database:
    """One database.

    Args:
        url: SQLAlchemy's URL.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        parsed = make_url(url)
        self.is_mysql = parsed.get_backend_name() == "mysql"
        kind, more = ("mysql", "?permitMysqlScheme") if self.is_mysql else ("postgresql", "")
        self.jdbc = f"jdbc:{kind}://{parsed.host}:{parsed.port}/{parsed.database}{more}"
        self.properties = {"user": str(parsed.username), "password": str(parsed.password)}

    @cached_property
    def engine(self) -> Engine:
        """One connection is kept: with each new one, PyMySQL would read the certificates of all authorities."""
        return create_engine(self.url, pool_size=1)

    def run(self, *statements: str, **values: Any) -> None:
        """Run statements in one transaction."""
        with self.engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement), values)

    def ask(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        """Return rows."""
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(query), values)]

    def create(self, table: str, columns: str = "n INTEGER") -> Target:
        """Make a target."""
        target = Target(self.jdbc, table)
        self.run(f"CREATE TABLE {table} ({columns})", target.add_window_id(), target.index_window_id())
        return target

    def found(self, table: str) -> list[tuple[str, int]]:
        """Return a target's rows: whose they are, and the number."""
        return sorted(self.ask(f"SELECT window_id, n FROM {table}"), key=lambda row: (row[0] or "", row[1]))

    def numbers(self, table: str) -> list[int]:
        """Return the numbers in a target."""
        return [n for _, n in self.found(table)]

    def stages(self) -> list[str]:
        """Return the staging tables that are there."""
        return sorted(
            name for name in inspect(self.engine).get_table_names() if name.startswith("kafka_offsets_stage_")
        )

    def is_running(self, *parts: str) -> bool:
        """Whether someone else runs a statement with these parts in it at this moment."""
        query = "SELECT query FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid()"
        if self.is_mysql:
            query = "SELECT info FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        return any(all(part in (info or "") for part in parts) for (info,) in self.ask(query))

    def others(self) -> int:
        """Count the sessions of others in this database: on the same server, other tests keep some."""
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        if self.is_mysql:
            query = (
                "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
            )
        return int(self.ask(query)[0][0])
