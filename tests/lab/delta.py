"""What a reader that is not Spark finds in a Delta table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def rows_of_delta(table: Path | str) -> list[dict[str, Any]]:
    """Return the rows of a table, in any order. Spark's first look at a version would take most of a second of a processor.

    Args:
        table: its folder.
    """
    # Not above: each process that collects the tests would load it.
    from deltalake import DeltaTable, QueryBuilder
    from pyarrow import table as table_of

    # Not by the table's `to_pyarrow_table`: after that, Python dies at its end now and then (15 of 80 times with deltalake 1.6.6, pyarrow's threads).
    found = QueryBuilder().register("found", DeltaTable(table)).execute("SELECT * FROM found")
    rows: list[dict[str, Any]] = table_of(found).to_pylist()
    return rows
