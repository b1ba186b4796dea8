"""SQLAlchemy compiles a statement once for each engine. Tests open thousands of SQLite files, so those of one process share what is compiled."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, create_engine
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

from airflow_kafka_offsets.adapters.ledger import engine as engines

_COMPILED: LRUCache[Any, Any] = LRUCache(2000)


def share_compiled_statements() -> None:
    """Let the engines that the package opens from now on share what they compile."""
    engines.create_engine = sharing_engine


def sharing_engine(*arguments: Any, **options: Any) -> Engine:
    """Return an engine, as `sqlalchemy.create_engine`; one of SQLite shares its compiled statements."""
    engine = create_engine(*arguments, **options)
    if type(engine.dialect) is not SQLiteDialect_pysqlite:
        return engine
    engine.dialect.__class__ = _AnySqlite
    return engine.execution_options(compiled_cache=_COMPILED)


class _AnySqlite(SQLiteDialect_pysqlite):
    """A dialect like any other of its kind: a compiled statement is found by its dialect, too."""

    supports_statement_cache = True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _AnySqlite)

    def __hash__(self) -> int:
        return hash(_AnySqlite)
