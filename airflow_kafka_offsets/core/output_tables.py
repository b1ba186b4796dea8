"""The tables of the ledger's database that a window's rows are published to."""

from __future__ import annotations

import re
from collections.abc import Sequence

from airflow_kafka_offsets.core.errors import BadInputError, short
from airflow_kafka_offsets.core.fields import is_text

LEDGER_PREFIX = "kafka_offsets_"
"""The names of the ledger's tables and of staging tables begin with this."""

_PART = r"[^.\s\"'`\[\]\\]+"

_TABLE = re.compile(rf"{_PART}(\.{_PART})?")


def checked_tables(tables: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names of tables, each with or without a schema.

    Raises:
        BadInputError: a name is not that of a table, is the ledger's own, or is there twice.
    """
    if not isinstance(tables, Sequence):
        raise BadInputError(f"output_tables must be the name of a table, or a list of names; got {short(tables)}")
    names = (tables,) if isinstance(tables, str) else tuple(tables)
    for name in names:
        if not is_text(name) or not _TABLE.fullmatch(name):
            raise BadInputError(
                f"output_tables must be names of tables, such as orders or sales.orders; got {short(name)}"
            )
        if name.rpartition(".")[2].lower().startswith(LEDGER_PREFIX):
            raise BadInputError(
                f"output_tables must not name {name}: tables whose names begin with {LEDGER_PREFIX} are the ledger's own"
            )
    if len(set(names)) < len(names):
        raise BadInputError(f"output_tables names a table twice: {', '.join(names)}")
    return names
