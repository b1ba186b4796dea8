"""Steps of a migration, each of which does nothing when it was done before.

MySQL and MariaDB commit every statement that changes tables, so an upgrade that dies half-way leaves what it has made, and no
word of it in the revision. The next upgrade begins that revision again. A migration uses these instead of Alembic's own.
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
    """Create an index, unless the table has one of this name."""
    if name not in [index["name"] for index in _found().get_indexes(table)]:
        op.create_index(name, table, columns)


def add_column(table: str, column: Column[Any]) -> None:
    """Add a column, unless the table has one of this name."""
    if column.name not in [there["name"] for there in _found().get_columns(table)]:
        op.add_column(table, column)


def _found() -> Inspector:
    # A new one each time: an inspector remembers what it saw.
    return inspect(op.get_bind())
