"""Output and offsets in one transaction: which of what jobs staged is published with a window's commit.

A job fills a staging table beside its target and notes it in the ledger's database. The commit publishes what was noted last.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_kafka_offsets.core.errors import OutputError, counted

_STAGE = re.compile(r"(?P<prefix>kafka_offsets_stage_[0-9a-f]{10}_)[0-9]{12}_[0-9a-f]{6}")


@dataclass(frozen=True, slots=True)
class Staged:
    """What a job staged for one table.

    Attributes:
        id: its number; the largest was staged last.
        target: the table that gets it, as the job writes it.
        staging: name of the staging table, in the target's schema.
        columns: what both tables have in common.
        rows: how many there are.
        is_published: whether a commit has published it, or something that was staged later.
        attempt: the attempt whose commit published it; None: none did, or a foreign launcher's.
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
        tables: what the group's output is.
        staged: what jobs noted for this window.
        attempt: the attempt that is committed; None: a foreign launcher's.
        is_planned: whether nobody has committed the window yet.

    Returns:
        Nothing for a table whose rows this very attempt has published already: then the commit is one that is tried again.
        (Of a foreign launcher nobody knows: there it is so when nothing was staged since the last commit.)

    Raises:
        OutputError: nothing was staged for a table, or what was staged is not one of our staging tables.
    """
    chosen = [_last(window_id, table, staged, attempt, is_planned) for table in tables]
    return [one for one in chosen if one is not None]


def _last(window_id: str, table: str, staged: Sequence[Staged], attempt: int | None, is_planned: bool) -> Staged | None:
    mine = sorted((s for s in staged if s.target == table), key=lambda s: s.id)
    done = [s.attempt for s in mine if s.is_published]
    if not is_planned and (attempt in done if attempt is not None else done and mine[-1].is_published):
        return None
    if not mine or mine[-1].is_published:
        others = sorted({s.target for s in staged if not s.is_published} - {table})
        instead = f"; it was staged for {', '.join(others)}" if others else ""
        raise OutputError(
            f"Window {window_id}: its job staged nothing for {table}{instead}. Nothing is committed. The job calls "
            f"window.stage_jdbc(df, url, {table!r}) with the url of the ledger's database, also when there is no row. Correct "
            "it and clear the task: a retry does not run the job again. (A group whose jobs write elsewhere has no output_tables)"
        )
    check_staging(window_id, mine[-1])
    return mine[-1]


def check_staging(window_id: str, staged: Staged) -> None:
    """Refuse a name that is not that of a staging table of this window and target: what is published is dropped after.

    Raises:
        OutputError: it is another table.
    """
    found = _STAGE.fullmatch(staged.staging)
    if not found or found["prefix"] != stage_prefix(window_id, staged.target):
        raise OutputError(
            f"Window {window_id}: {staged.staging!r} is not the name of a staging table of this window and {staged.target}. "
            "Nothing is committed. Who writes to kafka_offsets_staged besides stage_jdbc()?"
        )


def foreign_rows(window_id: str, table: str, rows: int) -> str:
    """Say why rows that are there before the first commit of their window are not replaced: only a commit publishes them."""
    return (
        f"Window {window_id}: {table} has {counted(rows, 'row')} of a window of this id, and this ledger has never committed it: "
        "another window wrote them. Nothing is committed, and the rows are there still. Was the ledger lost and made again, "
        "or restored from an older copy, or does another environment write there? Then bring the right ledger back, or "
        'continue under another name of the group or in another table: "Keep the ledger" in the docs (docs/howto/keep-the-ledger.md). '
        f"If these rows may go: DELETE FROM {table} WHERE window_id = '{window_id}'; then let the task retry: its job is not run again"
    )


def stage_prefix(window_id: str, table: str) -> str:
    """Return how the names of a window's staging tables begin; the job side's rule, see `spark.sinks.jdbc_sql`."""
    return f"kafka_offsets_stage_{hashlib.sha256(f'{table} {window_id}'.encode()).hexdigest()[:10]}_"


def done_with(names: Sequence[str], staging: str) -> list[str]:
    """Return the staging tables that are over when this one is published: itself, and those of older tries. No other table."""
    mine = _STAGE.fullmatch(staging)
    found = [_STAGE.fullmatch(name) for name in names] if mine else []
    return sorted(m[0] for m in found if m and mine and m["prefix"] == mine["prefix"] and m[0] <= staging)
