"""The tables of the ledger's database that a window's rows are published to, in the transaction that commits the window.

A job fills a staging table in the schema of its target and records it in the ledger's database. The commit publishes the last recorded one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_kafka_offsets.core.errors import BadInputError, OutputError, counted, short
from airflow_kafka_offsets.core.fields import is_text
from airflow_kafka_offsets.spark.shared import stage_prefix

LEDGER_PREFIX = "kafka_offsets_"
"""The names of the ledger's tables and of staging tables begin with this."""

_PART = r"[^.\s\"'`\[\]\\]+"

_TABLE = re.compile(rf"{_PART}(\.{_PART})?")
_STAGE = re.compile(r"(?P<prefix>kafka_offsets_stage_[0-9a-f]{10}_)[0-9]{12}_[0-9a-f]{6}")


def checked_tables(tables: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names of tables, each with or without a schema.

    Raises:
        BadInputError: a name is not that of a table, is the ledger's own, or is there twice.
    """
    names: tuple[str, ...] = (
        tuple(tables) if isinstance(tables, Sequence) and not isinstance(tables, str) else (tables,)
    )
    for name in names:
        if not is_text(name) or not _TABLE.fullmatch(name):
            raise BadInputError(f"output_tables must be names such as orders or sales.orders; got {short(name)}")
        if name.rpartition(".")[2].lower().startswith(LEDGER_PREFIX):
            raise BadInputError(f"output_tables must not name {name}: {LEDGER_PREFIX}* are the ledger's own")
    if len(set(names)) < len(names):
        raise BadInputError(f"output_tables names a table twice: {', '.join(names)}")
    return names


@dataclass(frozen=True, slots=True)
class Staged:
    """What a job staged for one table.

    Attributes:
        id: its number; the largest was staged last.
        target: the table that gets the rows, as the job names it.
        staging: name of the staging table, in the target's schema.
        columns: the columns that both tables have.
        rows: how many rows it has.
        is_published: whether a commit has published it, or a later one.
        attempt: the attempt whose commit published it, or None if none did, or another launcher ran the job.
    """

    id: int
    target: str
    staging: str
    columns: tuple[str, ...]
    rows: int
    is_published: bool = False
    attempt: int | None = None


def to_publish(
    window_id: str, tables: Sequence[str], staged: Sequence[Staged], attempt: int | None, *, is_planned: bool
) -> list[Staged]:
    """Choose what a commit publishes: for each table what was staged last.

    Args:
        window_id: the window.
        tables: the group's output tables.
        staged: what jobs staged for this window.
        attempt: the attempt that is committed, or None if another launcher ran the job.
        is_planned: whether the window is not committed yet.

    Returns:
        Nothing for a table whose rows this attempt has published already: the commit is a repeated one. (With another
        launcher: if nothing was staged since the last commit.)

    Raises:
        OutputError: nothing was staged for a table, or the staging table has an unexpected name.
    """
    chosen = [_last(window_id, table, staged, attempt, is_planned) for table in tables]
    return [last for last in chosen if last is not None]


def _last(window_id: str, table: str, staged: Sequence[Staged], attempt: int | None, is_planned: bool) -> Staged | None:
    own = sorted((s for s in staged if s.target == table), key=lambda s: s.id)
    done = [s.attempt for s in own if s.is_published]
    if not is_planned and (attempt in done if attempt is not None else done and own[-1].is_published):
        return None
    if not own or own[-1].is_published:
        others = sorted({s.target for s in staged if not s.is_published} - {table})
        instead = f"; it was staged for {', '.join(others)}" if others else ""
        raise OutputError(
            f"Window {window_id}: its job staged nothing for {table}{instead}. Call window.stage_jdbc(df, url, {table!r}) in the "
            "job, also for no rows, and clear the task"
        )
    _check_staging(window_id, own[-1])
    return own[-1]


def _check_staging(window_id: str, staged: Staged) -> None:
    # It is dropped after it is published.
    if _prefix(staged.staging) != stage_prefix(window_id, staged.target):
        raise OutputError(
            f"Window {window_id}: {staged.staging!r} is not the name of a staging table of this window and {staged.target}. "
            "Correct that row of kafka_offsets_staged"
        )


def foreign_rows(window_id: str, table: str, rows: int) -> str:
    """Return the message about rows with the window's id that were there before the window's first commit."""
    return (
        f"Window {window_id}: {table} has {counted(rows, 'row')} of this id that this ledger never committed, perhaps the only copy. "
        "Look at them, and see docs/reference/errors.md#outputerror:\n"
        f"    SELECT * FROM {table} WHERE window_id = '{window_id}'"
    )


def done_with(names: Sequence[str], staging: str) -> list[str]:
    """Return the staging tables to drop after this one is published: itself and those of older tries."""
    prefix = _prefix(staging)
    return sorted(name for name in names if prefix and _prefix(name) == prefix and name <= staging)


def _prefix(staging: str) -> str | None:
    match = _STAGE.fullmatch(staging)
    return match["prefix"] if match else None
