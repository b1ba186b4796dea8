"""What migrations share: steps that do nothing if they were done before, and the types of columns.

A migration uses these steps instead of Alembic's own. MySQL and MariaDB commit every statement that changes tables. If an upgrade
dies half-way, its changes stay, but the revision is still the old one. The next upgrade begins that revision again.

The types stay as they are, whatever `tables` has later: a migration makes what it made when it was new.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Column, DateTime, Inspector, Integer, String, Text, inspect
from sqlalchemy.dialects.mysql import DATETIME, LONGTEXT, VARCHAR
from sqlalchemy.schema import SchemaItem

_MYSQL = ("mysql", "mariadb")


def create_table(name: str, *items: SchemaItem) -> None:
    """Create a table with its columns and constraints, unless it is there."""
    if not _found().has_table(name):
        op.create_table(name, *items)


def create_index(name: str, table: str, columns: Sequence[str]) -> None:
    """Create an index, unless the table has one with this name."""
    if name not in [index["name"] for index in _found().get_indexes(table)]:
        op.create_index(name, table, columns)


def drop_index(name: str, table: str) -> None:
    """Drop an index, if the table has one with this name."""
    if name in [index["name"] for index in _found().get_indexes(table)]:
        op.drop_index(name, table)


def add_column(table: str, column: Column[Any]) -> None:
    """Add a column, unless the table has one with this name."""
    if column.name not in [there["name"] for there in _found().get_columns(table)]:
        op.add_column(table, column)


def _found() -> Inspector:
    # A new one each time, because an inspector caches what it found.
    return inspect(op.get_bind())


def name(length: int) -> String:
    """Return the type of a name. Case matters in it."""
    return String(length).with_variant(VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin"), *_MYSQL)


def document() -> Text:
    """Return the type of a long text."""
    return Text().with_variant(LONGTEXT(charset="utf8mb4"), *_MYSQL)


def moment() -> DateTime:
    """Return the type of a time with microseconds."""
    return DateTime().with_variant(DATETIME(fsp=6), *_MYSQL)


def big() -> BigInteger:
    """Return the type of a large number that may be a primary key."""
    return BigInteger().with_variant(Integer(), "sqlite")
