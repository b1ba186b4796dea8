"""How much a database reads for what it is asked: a count that is the same each time, as seconds are not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, event, text

from airflow_kafka_offsets.ledger.ledger import Ledger
from tests.lab.waiting import wait_until


def work(ledger: Ledger, step: Callable[[], Any]) -> int:
    """Do something with a ledger, and return what its database did for that.

    SQLite counts the steps of its virtual machine, in tens; PostgreSQL and MariaDB the rows and index entries that they read.
    """
    engine = ledger._engine
    match engine.dialect.name:
        case "sqlite":
            return _steps_of_sqlite(engine, step)
        case "postgresql":
            return _difference(_read_by_postgres, engine, step)
        case _:
            return _difference(_read_by_mariadb, engine, step)


def _steps_of_sqlite(engine: Engine, step: Callable[[], Any]) -> int:
    tens = 0

    def count() -> None:
        nonlocal tens
        tens += 1

    def listen(connection: Any, _record: Any) -> None:
        connection.set_progress_handler(count, 10)

    event.listen(engine, "connect", listen)
    try:
        step()
    finally:
        event.remove(engine, "connect", listen)
    return tens


def _difference(read: Callable[[Connection], int], engine: Engine, step: Callable[[], Any]) -> int:
    # All looks in one session: to log in costs a server as much as most steps. AUTOCOMMIT, as PostgreSQL shows a transaction the same
    # statistics until it ends.
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        before = read(connection)
        step()
        after = read(connection)
        # What the look at the counters itself reads.
        return after - before - (read(connection) - after)


def _read_by_postgres(connection: Connection) -> int:
    others = text(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE backend_type = 'client backend' AND datname = current_database() AND pid <> pg_backend_pid()"
    )
    entries = text(
        "SELECT (SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_user_tables)"
        " + (SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes)"
    )
    # A session adds to the counters when it ends, a moment after its client has gone.
    wait_until(lambda: not connection.execute(others).scalar_one(), what="all other sessions end", interval=0.01)
    return int(connection.execute(entries).scalar_one())


def _read_by_mariadb(connection: Connection) -> int:
    counters = connection.execute(text("SHOW GLOBAL STATUS LIKE 'Handler_read%'"))
    return sum(int(value) for _, value in counters)


@contextmanager
def noting(engine: Engine) -> Iterator[list[tuple[str, Any]]]:
    """Note the statements that an engine runs meanwhile, with their parameters."""
    asked: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        asked.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(engine, "before_cursor_execute", note)


def scans(ledger: Ledger, step: Callable[[], Any]) -> list[str]:
    """Do something with a ledger, and return where its database's plans of the queries read a whole large table or index."""
    engine = ledger._engine
    with noting(engine) as asked:
        step()
    explain = "EXPLAIN QUERY PLAN " if engine.dialect.name == "sqlite" else "EXPLAIN "
    with engine.connect() as connection:
        return [
            f"{line}: {statement}"
            for statement, parameters in asked
            if statement.startswith("SELECT")
            for row in connection.exec_driver_sql(explain + statement, parameters)
            if _is_scan(line := " ".join(map(str, row)))
        ]


def _is_scan(line: str) -> bool:
    """Whether a line of a plan, of any of the databases, reads all of a table that grows with the history."""
    is_all = re.search(r"\bSCAN\b|Seq Scan|\bALL\b|\bindex None\b", line)
    return is_all is not None and any(f"kafka_offsets_{name}" in line for name in ("windows", "attempts", "claims"))
