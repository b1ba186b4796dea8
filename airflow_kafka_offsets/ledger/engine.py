"""Engines for the ledger's database, and the translation of their errors."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from ssl import SSLContext
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, InterfaceError, OperationalError
from sqlalchemy.pool import NullPool

from airflow_kafka_offsets.core.errors import (
    BadInputError,
    ConcurrentChangeError,
    KafkaOffsetsError,
    LedgerError,
    LedgerUnavailableError,
    name_some,
)

CONNECT_TIMEOUT = 10
"""Seconds until a database that does not answer is an error."""

LOCK_TIMEOUT = 30
"""Seconds to wait for a lock of another transaction. It takes milliseconds, unless the other process hangs."""

ANSWER_TIMEOUT = 60
"""Seconds until a silent connection is an error. Longer than the time-outs of locks."""

# Errors of a transaction that lost to another one: serialization failure and deadlock (PostgreSQL), deadlock and
# "record has changed since last read" (MySQL, MariaDB).
_LOST_SQLSTATES = {"40001", "40P01"}
_LOST_CODES = {1213, 1020}

# libpq: TCP notices a peer that disappeared after these seconds, by default after two hours.
_PG_ARGS = {
    "connect_timeout": CONNECT_TIMEOUT,
    "keepalives_idle": 15,
    "keepalives_interval": 15,
    "keepalives_count": 3,
    "tcp_user_timeout": ANSWER_TIMEOUT * 1000,
}
_MYSQL_ARGS = {
    "connect_timeout": CONNECT_TIMEOUT,
    "read_timeout": ANSWER_TIMEOUT,
    "write_timeout": ANSWER_TIMEOUT,
    "init_command": f"SET innodb_lock_wait_timeout = {LOCK_TIMEOUT}",
}


# What drivers raise for options that they can't read. Their own errors are other classes.
_OF_OPTIONS = (ArithmeticError, AttributeError, RuntimeError, TypeError, ValueError)

_MYSQL_ENGINE = text(
    "SELECT t.engine, e.transactions FROM information_schema.tables t JOIN information_schema.engines e ON e.engine = t.engine "
    "WHERE t.table_schema = COALESCE(:schema, DATABASE()) AND t.table_name = :name"
)


def engine_without_transactions(connection: Connection, table: str, schema: str | None) -> str | None:
    """Return the table's engine in MySQL or MariaDB, if it has no transactions."""
    if connection.dialect.name not in ("mysql", "mariadb"):
        return None
    found = connection.execute(_MYSQL_ENGINE, {"schema": schema, "name": table}).first()
    # By position: MySQL 8 names these columns ENGINE and TRANSACTIONS, in upper case.
    return None if found is None or found[1] == "YES" else str(found[0])


def open_engine(url: str, *, what: str = "ledger", connect_args: Mapping[str, Any] | None = None) -> Engine:
    """Return an engine that keeps no connection: a fork inherits none, and tasks need few.

    Args:
        url: SQLAlchemy's URL.
        what: what the database holds, for messages.
        connect_args: arguments of the driver. They override those of this module; the URL's override both.

    Raises:
        BadInputError: the URL is not that of a supported database.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as exc:
        raise BadInputError(f"SQLAlchemy can't read the {what}'s URL") from exc
    _check_file(parsed, what)
    given = dict(connect_args or {})
    match parsed.get_backend_name():
        case "sqlite":
            return _sqlite(_engine(parsed.set(drivername="sqlite"), what, "", {"timeout": LOCK_TIMEOUT, **given}))
        case "postgresql":
            opened = _engine(parsed.set(drivername="postgresql+psycopg"), what, "postgres", {**_PG_ARGS, **given})
            # By default PostgreSQL waits without end. LOCAL, because a connection pooler may give the session to others.
            return _writes_begin_with(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}s'", opened)
        case "mysql" | "mariadb":
            # InnoDB's default also locks gaps: those who plan the first windows of a group would make each other deadlock.
            args = {**_MYSQL_ARGS, **given}
            return _engine(
                parsed.set(drivername="mysql+pymysql"), what, "mysql", args, isolation_level="READ COMMITTED"
            )
        case other:
            hint = ": write postgresql://" if other == "postgres" else ""
            raise BadInputError(f"The {what} can be in SQLite, PostgreSQL or MySQL/MariaDB, not in {other}{hint}")


@lru_cache(maxsize=8)
def shared_engine(url: str) -> Engine:
    """Return an engine for a ledger, the same one each time: for a process that asks again and again.

    It keeps no connection, but the server's version and the text of earlier statements. To find these out takes longer than the
    questions of most pages.

    Raises:
        BadInputError: as `open_engine`.
    """
    return open_engine(url)


def _check_file(url: URL, what: str) -> None:
    if url.get_backend_name() != "sqlite" or not url.database:
        return
    # The path can't be separated from the options, so a read-only command could not avoid making the file.
    if what == "ledger" and url.database.startswith("file:"):
        raise BadInputError(
            "The ledger's URL begins with file: - write a path, such as sqlite:////var/lib/kafka_offsets.db"
        )
    if os.path.isdir(url.database):
        raise BadInputError(f"The {what}'s URL {_shown(url)} names a folder: name a file in it")


def _engine(url: URL, what: str, extra: str, connect_args: dict[str, Any], **options: Any) -> Engine:
    # The options in the URL take precedence.
    mine = {name: value for name, value in connect_args.items() if name not in url.query}
    try:
        engine = create_engine(url, poolclass=NullPool, connect_args=mine, **options)
    except ModuleNotFoundError as exc:
        raise BadInputError(
            f"The {what} in {url.get_backend_name()} requires the Python package {exc.name}:\n"
            f"    pip install 'airflow-kafka-offsets[{extra}]'"
        ) from exc
    except Exception as exc:  # whatever SQLAlchemy or the driver make of an option that they can't read
        raise unusable(url, exc, what) from exc

    @event.listens_for(engine, "do_connect")
    def connect(dialect, _record, arguments, options):  # type: ignore[no-untyped-def]
        driver = _mysql_connect if dialect.name in ("mysql", "mariadb") else dialect.connect
        try:
            return driver(*arguments, **options)
        except dialect.loaded_dbapi.ProgrammingError as exc:  # libpq's word for an option that it does not have
            raise unusable(url, exc, what) from exc
        except _OF_OPTIONS as exc:
            raise unusable(url, exc, what) from exc

    return engine


def unusable(url: URL, exc: Exception, what: str = "ledger") -> BadInputError:
    """Return the error for a URL that a driver can't use, usually because of an option."""
    if url.query:  # the driver's message may repeat the value of an option
        why = f"{type(exc).__name__}. Its options are {name_some(sorted(url.query), ', ')}."
    else:
        why = f"{type(exc).__name__}: {first_line(exc)}."
    return BadInputError(f"The {what}'s URL {_shown(url)} can't be used: {why}")


def _writes_begin_with(statement: str, engine: Engine) -> Engine:
    @event.listens_for(engine, "begin")
    def begin(connection):  # type: ignore[no-untyped-def]
        if not connection.get_execution_options().get("only_reads"):
            connection.exec_driver_sql(statement)

    return engine


def _mysql_connect(*arguments: Any, **options: Any) -> Any:
    from pymysql.err import OperationalError as Refused  # type: ignore[import-untyped]

    try:
        return _mysql_connection()(*arguments, **options)
    except OSError as exc:  # of certificates that the user names
        raise Refused(f"{type(exc).__name__}: {exc}") from exc


@cache
def _mysql_connection() -> type:
    from pymysql.connections import Connection  # type: ignore[import-untyped]

    class OurConnection(Connection):  # type: ignore[misc]
        shared: SSLContext | None = None

        def _create_ssl_ctx(self, options):  # type: ignore[no-untyped-def]
            if options:
                return super()._create_ssl_ctx(options)
            # Otherwise each connection reads the certificates of all authorities of the system: 20 ms of CPU without use,
            # because the server's certificate is not verified if the user names no authority.
            if OurConnection.shared is None:
                OurConnection.shared = super()._create_ssl_ctx(options)
            return OurConnection.shared

    return OurConnection


def _sqlite(engine: Engine) -> Engine:
    @event.listens_for(engine, "connect")
    def configure(connection, _record):  # type: ignore[no-untyped-def]
        # The driver would begin transactions by itself, but only after the first read, which is too late.
        connection.isolation_level = None
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    # A deferred transaction that reads first fails at once if another writer came in between. This one waits.
    return _writes_begin_with("BEGIN IMMEDIATE", engine)


def use_write_ahead_log(engine: Engine) -> None:
    """Let readers and writers of a SQLite file work at the same time. The file keeps this setting."""
    give_up = time.monotonic() + LOCK_TIMEOUT
    with engine.connect().execution_options(only_reads=True) as connection:  # in a transaction, SQLite refuses it
        while True:
            try:
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")
                return
            except OperationalError as exc:
                # If several processes open a new file, one changes the setting. SQLite refuses the others at once, without a wait.
                is_busy = getattr(exc.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
                if not is_busy or time.monotonic() > give_up:
                    raise
                time.sleep(0.01)


def is_there(url: URL) -> bool:
    """Whether a database can be read without making it: connecting to a SQLite file that does not exist makes the file."""
    file = _file_of(url)
    # Not Path.exists(), which raises an error if the name is too long.
    return file is None or os.path.exists(file)


def missing_folder(url: URL) -> Path | None:
    """Return the folder of a SQLite file if this user can't see it, or None if it can be used."""
    file = _file_of(url)
    return None if file is None or os.path.isdir(file.parent) else file.parent


def _file_of(url: URL) -> Path | None:
    """Return the file of a SQLite database, or None if it has none, or if its URL has more than a path, as an offset store's may."""
    is_path = url.database and url.database != ":memory:" and not url.database.startswith("file:")
    is_file = url.get_backend_name() == "sqlite" and is_path
    return Path(str(url.database)) if is_file else None


def where(engine: Engine) -> str:
    """Name the database for a message, without the password and without the URL's options, which may hold another one."""
    return _shown(engine.url)


def _shown(url: URL) -> str:
    return url.set(query={}).render_as_string(hide_password=True)


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Open one transaction that writes.

    Raises:
        ConcurrentChangeError: another transaction was first; nothing was written.
        LedgerUnavailableError: the database did not answer.
    """
    with translated(engine), engine.begin() as connection:
        yield connection


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Open a connection that only reads. On SQLite it does not take the lock of writers.

    Raises:
        LedgerUnavailableError: the database did not answer.
    """
    with translated(engine), engine.connect().execution_options(only_reads=True) as connection:
        yield connection


@contextmanager
def looking(engine: Engine) -> Iterator[Connection]:
    """Open a connection to find out what a database holds. It does not change a SQLite file, and makes no file next to it.

    Raises:
        BadInputError: the driver can't use an option of the URL.
        LedgerUnavailableError: the database did not answer.
    """
    file = _file_of(engine.url)
    look = engine if file is None else create_engine("sqlite://", poolclass=NullPool, creator=lambda: _look_at(file))
    try:
        with translated(engine), look.connect().execution_options(only_reads=True) as connection:
            yield connection
    except _OF_OPTIONS as exc:
        if isinstance(exc, KafkaOffsetsError) or not engine.url.query:
            raise
        raise unusable(engine.url, exc) from exc


def _look_at(file: Path) -> sqlite3.Connection:
    # Even when it only reads, SQLite makes missing files of a write-ahead log, and rolls back the journal of a crash. With
    # "immutable" it does neither. That may show old data, so it is good only for finding out what the file holds.
    beside = {journal: os.path.exists(f"{file}-{journal}") for journal in ("wal", "shm", "journal")}
    has_index = beside["wal"] and beside["shm"]
    if not beside["journal"] and (has_index or not _has_write_ahead_log(file)):
        return _read_only(file, "")
    if not beside["wal"] or beside["journal"]:
        return _read_only(file, "&immutable=1")
    # A log without its index: a copied pair, or a ledger that is being opened or closed right now. To read a log, SQLite makes
    # an index, and it deletes a log when the last reader closes. So it gets a copy of both files.
    try:
        return _copied(file)
    except FileNotFoundError:  # just now, by who had it open last: then all of the log is in the file
        return _read_only(file, "&immutable=1")


class _Copy(sqlite3.Connection):
    """A connection to a copy of a database. Closing it removes the copy."""

    folder: TemporaryDirectory[str]

    def close(self) -> None:
        """Close the connection and remove the copy."""
        super().close()
        self.folder.cleanup()


def _copied(file: Path) -> sqlite3.Connection:
    folder = TemporaryDirectory(prefix="kafka-offsets-look-", ignore_cleanup_errors=True)
    copy = Path(folder.name, "ledger")
    for journal in ("-wal", ""):  # in this order: if the log is written back meanwhile, its content is in the file
        shutil.copyfile(f"{file}{journal}", f"{copy}{journal}")
    connection = sqlite3.connect(copy, timeout=LOCK_TIMEOUT, factory=_Copy)
    connection.folder = folder
    return connection


def _read_only(file: Path, options: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro{options}", uri=True, timeout=LOCK_TIMEOUT)


def _has_write_ahead_log(file: Path) -> bool:
    # https://www.sqlite.org/fileformat2.html#file_format_version_numbers
    try:
        with file.open("rb") as opened:
            return opened.read(20)[18:] == b"\2\2"
    except OSError:
        return False  # SQLite itself reports what is wrong


@contextmanager
def translated(engine: Engine) -> Iterator[None]:
    """Turn the database's errors into those of the ledger.

    Raises:
        ConcurrentChangeError: another transaction was first; nothing was written.
        LedgerUnavailableError: the database did not answer.
        LedgerError: it refused a statement; nothing was written.
    """
    try:
        yield
    except IntegrityError as exc:
        raise ConcurrentChangeError("Another process was first; nothing was written") from exc
    except DBAPIError as exc:
        if is_lost(exc):
            raise ConcurrentChangeError("Another process was first; nothing was written") from exc
        reason = f"{type(exc.orig).__name__}: {first_line(exc)}"
        if isinstance(exc, OperationalError | InterfaceError):
            raise LedgerUnavailableError(
                f"The ledger {where(engine)} did not answer ({reason}). Check the database, then let the task retry"
            ) from exc
        raise LedgerError(f"The ledger {where(engine)} refused a statement ({reason}); nothing was written") from exc


def is_lost(exc: DBAPIError) -> bool:
    """Whether another transaction was first, so that nothing was written."""
    args = getattr(exc.orig, "args", ())
    return getattr(exc.orig, "sqlstate", None) in _LOST_SQLSTATES or bool(args and args[0] in _LOST_CODES)


def first_line(exc: Exception) -> str:
    """Return the first line of the driver's message."""
    said = str(exc.orig if isinstance(exc, DBAPIError) else exc).strip()
    return said.splitlines()[0] if said else "no reason given"
