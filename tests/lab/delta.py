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
    from deltalake import DeltaTable

    rows: list[dict[str, Any]] = DeltaTable(table).to_pyarrow_table().to_pylist()
    return rows
