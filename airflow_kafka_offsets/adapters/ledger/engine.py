"""Engines for the ledger's database, and what their errors mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError
from sqlalchemy.pool import NullPool

from airflow_kafka_offsets.core.errors import BadInputError, ConcurrentChangeError, LedgerUnavailableError

CONNECT_TIMEOUT = 10
"""Seconds until a database that does not answer is an error."""

# What a loser is told under stricter isolation levels than ours: serialization failure and deadlock (PostgreSQL),
# deadlock, lock wait time-out and "record has changed since last read" (MySQL, MariaDB).
_LOST_SQLSTATES = {"40001", "40P01"}
_LOST_CODES = {1213, 1205, 1020}


def open_engine(url: str) -> Engine:
    """Return an engine that keeps no connection: nothing is carried over a fork, and tasks need few.

    Raises:
        BadInputError: the URL is not that of a database that can hold the ledger.
    """
    parsed = make_url(url)
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        return _sqlite(create_engine(parsed, poolclass=NullPool, connect_args={"timeout": 30}))
    if backend == "postgresql":
        parsed = parsed.set(drivername="postgresql+psycopg")
    elif backend in ("mysql", "mariadb"):
        parsed = parsed.set(drivername="mysql+pymysql")
    else:
        raise BadInputError(f"The ledger can be in SQLite, PostgreSQL or MySQL/MariaDB, not in {backend}")
    try:
        return create_engine(parsed, poolclass=NullPool, connect_args={"connect_timeout": CONNECT_TIMEOUT})
    except ModuleNotFoundError as exc:
        extra = "postgres" if backend == "postgresql" else "mysql"
        raise BadInputError(
            f"The ledger in {backend} needs the Python package {exc.name}: "
            f"pip install 'airflow-provider-kafka-offsets[{extra}]'"
        ) from exc


def _sqlite(engine: Engine) -> Engine:
    @event.listens_for(engine, "connect")
    def configure(connection, _record):  # type: ignore[no-untyped-def]
        # The driver would begin transactions by itself, after the first read and too late.
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    @event.listens_for(engine, "begin")
    def begin(connection):  # type: ignore[no-untyped-def]
        # A deferred transaction that reads first fails at once when somebody else has written since; this one waits.
        if not connection.get_execution_options().get("only_reads"):
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Open one transaction that writes.

    Raises:
        ConcurrentChangeError: the database let somebody else win; nothing was written.
        LedgerUnavailableError: it did not answer.
    """
    with translated(engine), engine.begin() as connection:
        yield connection


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Open a connection that only reads: on SQLite, without the lock that writers take.

    Raises:
        LedgerUnavailableError: the database did not answer.
    """
    with translated(engine), engine.connect().execution_options(only_reads=True) as connection:
        yield connection


@contextmanager
def translated(engine: Engine) -> Iterator[None]:
    """Turn the database's errors into those of the ledger."""
    try:
        yield
    except IntegrityError as exc:
        raise ConcurrentChangeError(
            "Somebody else wrote the same row to the ledger first; nothing was written"
        ) from exc
    except (OperationalError, InterfaceError) as exc:
        if _lost(exc):
            raise ConcurrentChangeError("Somebody else changed the ledger first; nothing was written") from exc
        where = engine.url.render_as_string(hide_password=True)
        raise LedgerUnavailableError(
            f"The ledger {where} did not answer ({type(exc.orig).__name__}: {_first_line(exc)}). "
            "Whatever was under way is found again by the next try; check the database, then let the task retry"
        ) from exc


def _lost(exc: DBAPIError) -> bool:
    args = getattr(exc.orig, "args", ())
    return getattr(exc.orig, "sqlstate", None) in _LOST_SQLSTATES or bool(args and args[0] in _LOST_CODES)


def _first_line(exc: DBAPIError) -> str:
    return str(exc.orig).strip().splitlines()[0] if str(exc.orig).strip() else "no reason given"
