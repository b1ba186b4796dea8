"""Steps of a migration that do nothing if they were done before. A migration uses them instead of Alembic's own.

MySQL and MariaDB commit every statement that changes tables. If an upgrade dies half-way, its changes stay, but the revision
is still the old one. The next upgrade begins that revision again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alembic import op
from sqlalchemy import Column, Inspector, inspect
from sqlalchemy.schema import SchemaItem


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
