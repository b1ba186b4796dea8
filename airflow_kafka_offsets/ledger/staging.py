"""Output in the ledger's own database, published in the transaction that commits the window."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Row,
    TableClause,
    column,
    delete,
    insert,
    inspect,
    literal,
    select,
    table,
    text,
    update,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.elements import quoted_name

from airflow_kafka_offsets.core.errors import (
    KafkaOffsetsError,
    LedgerError,
    LedgerUnavailableError,
    OutputError,
    counted,
)
from airflow_kafka_offsets.core.output_tables import Staged, done_with, foreign_rows, to_publish
from airflow_kafka_offsets.ledger.engine import engine_without_transactions, first_line, is_lost, where, writing
from airflow_kafka_offsets.ledger.tables import staged

logger = logging.getLogger(__name__)

WINDOW_ID = "window_id"

PUBLISH_TIMEOUT = 3600
"""Seconds that MySQL may take to publish a window. Its client does not notice the difference between a long statement and a dead server."""


def publish(
    connection: Connection,
    window_id: str,
    tables: Sequence[str],
    attempt: int | None,
    now: datetime,
    *,
    is_planned: bool,
) -> None:
    """Replace a window's rows by what its job staged last. The caller's transaction has locked the window's row.

    Raises:
        OutputError: nothing was staged, or the database refused the rows.
        ConcurrentChangeError, LedgerUnavailableError: the transaction failed.
    """
    # With a lock: where a server's default is repeatable read, a plain read would see the state before the wait for the window's row.
    noted = connection.execute(select(staged).where(staged.c.window_id == window_id).with_for_update())
    for one in to_publish(window_id, tables, [_staged(row) for row in noted], attempt, is_planned=is_planned):
        _check_transactions(connection, window_id, one.target)
        with _refusals_translated(connection, window_id, one.target):
            _replace(connection, window_id, one, is_planned=is_planned)
        older = (staged.c.window_id == window_id, staged.c.target == one.target, staged.c.id <= one.id)
        connection.execute(update(staged).where(*older).values(published_at=now))
        connection.execute(update(staged).where(staged.c.id == one.id).values(attempt_id=attempt))
        logger.info("Window %s: %s published in %s", window_id, counted(one.rows, "row"), one.target)


def clean(engine: Engine) -> None:
    """Drop the staging tables of what is published, also those that killed commits left.

    Each in its own transaction, because MySQL commits with every DROP. If one fails, the next commit tries again.
    """
    is_over = (staged.c.published_at.is_not(None), staged.c.staging.is_not(None))
    try:
        with engine.connect() as connection:
            over = [(row.id, _staged(row)) for row in connection.execute(select(staged).where(*is_over))]
        for number, one in over:
            if _is_dropped(engine, one):
                with writing(engine) as connection:
                    connection.execute(update(staged).where(staged.c.id == number).values(staging=None))
    except (DBAPIError, KafkaOffsetsError) as exc:
        logger.warning("Staging tables in %s can't be dropped yet: %s", where(engine), exc)


def _is_dropped(engine: Engine, one: Staged) -> bool:
    """Drop a staging table. If the database refuses, the other tables are still dropped."""
    target = _table(one.target)
    try:
        names = inspect(engine).get_table_names(schema=target.schema)
        for name in done_with(names, one.staging):
            with writing(engine) as connection:
                quote = connection.dialect.identifier_preparer.format_table
                connection.execute(text(f"DROP TABLE IF EXISTS {quote(_beside(target, name))}"))
    except LedgerUnavailableError:
        raise
    except LedgerError as exc:
        logger.warning("Staging table %s of %s can't be dropped yet: %s", one.staging, one.target, exc)
        return False
    return True


def _replace(connection: Connection, window_id: str, one: Staged, *, is_planned: bool) -> None:
    target = _table(one.target, WINDOW_ID, *one.columns)
    stage = _beside(target, one.staging, *one.columns)
    there = connection.execute(delete(target).where(target.c[WINDOW_ID] == window_id)).rowcount
    if there and is_planned:
        raise OutputError(foreign_rows(window_id, one.target, there))
    rows = select(*[stage.c[name] for name in one.columns], literal(window_id))
    fill = insert(target).from_select([*one.columns, WINDOW_ID], rows).execution_options(preserve_rowcount=True)
    inserted = connection.execute(fill).rowcount
    if inserted != one.rows:
        raise OutputError(
            f"Window {window_id}: {one.staging} has {inserted} of the {counted(one.rows, 'row')} that the job staged for {one.target}. "
            "Nothing is committed: clear the task"
        )


@contextmanager
def _refusals_translated(connection: Connection, window_id: str, target: str) -> Iterator[None]:
    try:
        yield
    except DBAPIError as exc:
        # The ledger reports errors that may pass. Any other refusal is permanent.
        if is_lost(exc) or exc.connection_invalidated:
            raise
        raise OutputError(
            f"Window {window_id}: {where(connection.engine)} refused its rows for {target} "
            f"({type(exc.orig).__name__}: {first_line(exc)}). Nothing is committed: correct that, then let the task retry"
        ) from exc


def _check_transactions(connection: Connection, window_id: str, target: str) -> None:
    named = _table(target)
    if engine := engine_without_transactions(connection, named.name, named.schema):
        raise OutputError(
            f"Window {window_id}: {target} has the engine {engine}, which has no transactions, so nothing is committed. Let the task "
            f"retry after this:\n    ALTER TABLE {target} ENGINE = InnoDB"
        )


def _table(name: str, *columns: str) -> TableClause:
    schema, _, base = name.rpartition(".")
    quoted: list[Column[Any]] = [column(quoted_name(c, True)) for c in columns]  # type: ignore[misc]
    return table(quoted_name(base, True), *quoted, schema=quoted_name(schema, True) if schema else None)


def _beside(target: TableClause, name: str, *columns: str) -> TableClause:
    return _table(f"{target.schema}.{name}" if target.schema else name, *columns)


def _staged(row: Row[Any]) -> Staged:
    return Staged(
        id=row.id,
        target=row.target,
        staging=row.staging or "",
        columns=tuple(json.loads(row.column_names)),
        rows=row.row_count,
        is_published=row.published_at is not None,
        attempt=row.attempt_id,
    )
