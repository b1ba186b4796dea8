"""Offsets in a table of a SQL database: one row for each group, topic and partition, as in common recipes."""

from __future__ import annotations

import math
import os
import re
import socket
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, fields
from decimal import Decimal
from functools import partial
from typing import Any

from sqlalchemy import (
    TIMESTAMP,
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Index,
    Integer,
    MetaData,
    Select,
    String,
    Table,
    Update,
    bindparam,
    case,
    func,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, InternalError, NoSuchTableError, OperationalError
from sqlalchemy.schema import CreateIndex, CreateTable

from airflow_kafka_offsets.adapters.stores.swapping import swap
from airflow_kafka_offsets.core.errors import (
    OUTCOME_OPEN,
    BadInputError,
    StoreContentError,
    StoreError,
    StoreOutcomeUnknownError,
    StoreRefusedError,
    StoreUnavailableError,
    name_some,
)
from airflow_kafka_offsets.core.offsets import MAX_OFFSET, Offsets, TopicPartition, is_whole, topics_of
from airflow_kafka_offsets.core.store.guarantees import Compares, Guarantees
from airflow_kafka_offsets.ledger.engine import (
    engine_without_transactions,
    first_line,
    is_lost,
    is_there,
    open_engine,
    where,
)

_Row = tuple[Any, ...]
"""Topic, group, partition and offset, as the driver returns them."""

# MySQL's driver sends one statement for each row. An UPDATE with CASE changes this many rows at once. A larger one is slower,
# because the server compares each row with every case.
_ROWS_OF_A_CASE = 250
# With more topics, all rows are read and filtered here, because databases limit the parameters of a statement.
_TOPICS_OF_A_QUERY = 1000

_MISSING_TABLE: set[str | int] = {"42P01", 1146}
# Errors that may pass: PostgreSQL's states (no connection left, shutting down, a lock or a statement that took too long),
# then MySQL's and MariaDB's numbers.
_PASSING_STATE = re.compile(r"08...|53[23]00|55P03|57014|57P0[1235]|40003")
_PASSING_NUMBERS = {1040, 1053, 1203, 1205, 1317, 1969, 3024, 4031}
# Before a session exists, errors have no state, and PostgreSQL reports all refusals as "FATAL".
_PASSING_FATAL = re.compile("starting up|shutting down|recovery mode|too many|remaining connection slots|terminating")
# Numbers by which MySQL's and MariaDB's client reports a lost connection.
_LOST_CONNECTION = range(2000, 3000)
# TLS first, then SQLite.
_REFUSAL = re.compile(
    "certificate verify failed|does not support SSL|root certificate file|no password supplied"
    "|readonly|unable to open|is full|no such column|not a database|malformed"
)


@dataclass(frozen=True, slots=True)
class Layout:
    """The names of table and columns.

    Attributes:
        table, schema: the table; an empty schema is the database's default.
        topic, group, partition, offset: the columns. Topic, group and partition together have a unique key.
        timestamp: the column that gets the database's time of each commit; empty: no such column.

    Raises:
        BadInputError: a name is missing, or two columns have the same name.
    """

    table: str = "kafka_offsets"
    schema: str = ""
    topic: str = "topic"
    group: str = "group_id"
    partition: str = "partition"
    offset: str = "offset"
    timestamp: str = "timestamp"

    def __post_init__(self) -> None:
        columns = [self.topic, self.group, self.partition, self.offset, self.timestamp]
        if not all([self.table, *columns[:4]]) or len(set(columns)) < len(columns):
            raise BadInputError(
                "An offset table needs a name and different columns: "
                + ", ".join(f"{field.name} {getattr(self, field.name)!r}" for field in fields(self))
            )


class SqlStore:
    """Offsets in PostgreSQL, MySQL/MariaDB or SQLite; `ports.OffsetStore`.

    The transaction that changes the rows first locks and compares them. So other tools' changes are noticed, too.

    Args:
        name: its address, for messages.
        url: SQLAlchemy's URL of the database.
        timeout: seconds to wait for a connection, an answer or a lock.
        layout: names of table and columns.
        create: whether the first advance makes the table if it is not there.

    Raises:
        BadInputError: the URL names another database, or the driver is not installed.
    """

    guarantees = Guarantees(is_atomic=True, compares=Compares.ANY_WRITER)

    def __init__(self, name: str, url: str, timeout: float, layout: Layout = Layout(), *, create: bool = False) -> None:
        self.name = name
        self._timeout = timeout
        self._create = create
        self._layout = layout
        self._table = _table(layout)
        args = _connect_args(make_url(url).get_backend_name(), timeout)
        self._engine = open_engine(url, what="offset store", connect_args=args)
        self._is_checked = False

    def read(self, group: str, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Return the next offset of each topic-partition that the table holds for a group."""
        return self._offsets(self._rows(group, topics), group, topics)

    def window_ids(self, group: str, topics: Sequence[str]) -> Collection[str]:
        """Return none: there is no place for them."""
        return ()

    def check_writable(self, group: str) -> None:
        """Do nothing: only a write shows whether it is refused."""

    def advance(self, group: str, before: Offsets, after: Offsets, window_id: str = "") -> None:
        """Move the offsets of a group, all rows or none. The table does not hold the window's id."""
        swap(self.name, group, before, after, partial(self._read, group, after), partial(self._write, group, after))

    # Reading

    def _rows(self, group: str, topics: Sequence[str]) -> Sequence[_Row]:
        try:
            if not is_there(self._engine.url):
                raise self._no_file()
            with self._connected(only_reads=True) as connection:
                return [tuple(row) for row in connection.execute(self._select(group, topics))]
        except _MissingTableError:
            if self._create:
                return []
            raise

    def _read(self, group: str, after: Offsets) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        topics = topics_of(after)
        offsets = self._writable(self._rows(group, topics), group, topics)
        return offsets, offsets

    def _select(self, group: str, topics: Sequence[str]) -> Select[Any]:
        c, layout = self._table.c, self._layout
        query = select(c[layout.topic], c[layout.group], c[layout.partition], c[layout.offset])
        query = query.where(c[layout.group] == group)
        return query.where(c[layout.topic].in_(topics)) if len(topics) <= _TOPICS_OF_A_QUERY else query

    def _offsets(self, rows: Sequence[_Row], group: str, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Return the offsets of the rows with exactly this group's and these topics' names."""
        wanted = set(topics)
        offsets: dict[TopicPartition, int] = {}
        for topic, owner, partition, offset in rows:
            if owner == group and topic in wanted:
                tp = TopicPartition(topic, self._whole(partition, "partition", topic))
                if tp in offsets:
                    raise StoreContentError(
                        f"{self._named} has several rows for group {group} and {tp}: keep the right one"
                    )
                offsets[tp] = self._whole(offset, "offset", str(tp))
        return offsets

    def _writable(self, rows: Sequence[_Row], group: str, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Return the offsets of rows that this group may write.

        Raises:
            StoreContentError: to the database, another name equals this group's or topic's. An update would change that row, too.
        """
        wanted, folded = set(topics), {topic.casefold(): topic for topic in topics}
        for topic, owner, *_ in rows:
            if owner == group and topic in wanted:
                continue
            stored, name = (owner, group) if owner != group else (topic, folded.get(topic.strip().casefold(), topic))
            if stored != name:
                raise StoreContentError(
                    f"{self._named}: its collation takes {stored!r} and {name!r} for the same name. "
                    "Use a binary collation (MySQL: utf8mb4_bin)"
                )
        return self._offsets(rows, group, topics)

    def _whole(self, value: Any, what: str, of: str) -> int:
        """Return a number from the table, from any type of column."""
        value = _number(value)
        if not is_whole(value) or not 0 <= value <= MAX_OFFSET:
            raise StoreContentError(f"{self._named} holds {value!r} as the {what} of {of}: correct it")
        return value

    # Writing

    def _write(self, group: str, after: Offsets, stored: Offsets) -> bool:
        self._prepare()
        try:
            self._write_once(group, after, stored)
        except _LostError:
            return False
        except IntegrityError as exc:
            # Another writer inserted the row first; or the table refuses such rows, and always will.
            if self._read(group, after)[0] != stored:
                return False
            raise StoreRefusedError(f"{self._named} refused a row ({first_line(exc)})") from exc
        return True

    def _write_once(self, group: str, after: Offsets, stored: Offsets) -> None:
        topics = topics_of(after)
        with self._transaction() as connection:
            locked = [tuple(row) for row in connection.execute(self._select(group, topics).with_for_update())]
            if self._writable(locked, group, topics) != stored:
                raise _LostError
            old, new = sorted(after.keys() & stored.keys()), sorted(after.keys() - stored.keys())
            if old:
                move = self._by_cases if connection.dialect.name == "mysql" else self._one_by_one
                move(connection, group, {tp: after[tp] for tp in old})
            if new:
                connection.execute(insert(self._table).values(self._now()), [self._row(group, tp, after) for tp in new])
            self._check_written(connection, group, {**stored, **after})

    def _check_written(self, connection: Connection, group: str, wanted: Offsets) -> None:
        """Refuse, before the commit, if the database stored something else."""
        rows = connection.execute(self._select(group, topics_of(wanted)))
        stored = {
            (topic, _number(partition)): _number(offset) for topic, owner, partition, offset in rows if owner == group
        }
        wrong = [
            f"{tp}: {stored.get((tp.topic, tp.partition), 'no row')} instead of {offset}"
            for tp, offset in sorted(wanted.items())
            if stored.get((tp.topic, tp.partition)) != offset
        ]
        if wrong:
            raise StoreRefusedError(
                f"{self._named} stored other values: {name_some(wrong)}. Look for a trigger, rule or column type below BIGINT"
            )

    def _one_by_one(self, connection: Connection, group: str, after: Offsets) -> None:
        statement = self._update(bindparam("_group"), bindparam("_topic"))
        statement = statement.where(self._table.c[self._layout.partition] == bindparam("_partition"))
        rows = [
            {"_group": group, "_topic": tp.topic, "_partition": tp.partition, "_offset": offset}
            for tp, offset in after.items()
        ]
        connection.execute(statement.values({self._layout.offset: bindparam("_offset")}), rows)

    def _by_cases(self, connection: Connection, group: str, after: Offsets) -> None:
        number = self._table.c[self._layout.partition]
        for topic in topics_of(after):
            offsets = [(tp.partition, offset) for tp, offset in after.items() if tp.topic == topic]
            for start in range(0, len(offsets), _ROWS_OF_A_CASE):
                cases = dict(offsets[start : start + _ROWS_OF_A_CASE])
                statement = self._update(group, topic).where(number.in_(list(cases)))
                connection.execute(statement.values({self._layout.offset: case(cases, value=number)}))

    def _update(self, group: Any, topic: Any) -> Update:
        c, layout = self._table.c, self._layout
        return update(self._table).where(c[layout.group] == group, c[layout.topic] == topic).values(self._now())

    def _now(self) -> dict[str, ColumnElement[Any]]:
        # The database's own time fits the column, with a zone or without.
        return {self._layout.timestamp: func.now()} if self._layout.timestamp else {}

    def _row(self, group: str, tp: TopicPartition, after: Offsets) -> dict[str, Any]:
        layout = self._layout
        return {layout.topic: tp.topic, layout.group: group, layout.partition: tp.partition, layout.offset: after[tp]}

    # The table

    def _prepare(self) -> None:
        """Check the table before the first write. Make it if it is missing and `create` is set."""
        if self._is_checked:
            return
        if not self._has_table():
            self._make()
        with self._connected(only_reads=True) as connection:
            self._check_key(connection)
            self._check_engine(connection)
        self._is_checked = True

    def _make(self) -> None:
        if not self._create:
            raise self._missing()
        try:
            with self._transaction() as connection:
                self._table.create(connection)
        except (StoreError, IntegrityError):
            # If two processes make it at the same time, one fails because it exists.
            if not self._has_table():
                raise

    def _has_table(self) -> bool:
        with self._connected(only_reads=True) as connection:
            return inspect(connection).has_table(self._layout.table, schema=self._table.schema)

    def _check_key(self, connection: Connection) -> None:
        inspector, layout = inspect(connection), self._layout
        table, schema = layout.table, self._table.schema
        key = {layout.topic, layout.group, layout.partition}
        keys: list[Sequence[str | None]] = [inspector.get_pk_constraint(table, schema)["constrained_columns"]]
        keys += [
            index["column_names"]
            for index in inspector.get_indexes(table, schema)
            if index["unique"] and not index.get("dialect_options", {}).get("postgresql_where")
        ]
        keys += [constraint["column_names"] for constraint in inspector.get_unique_constraints(table, schema)]
        if not any(columns and key.issuperset(columns) for columns in keys):
            raise StoreRefusedError(
                f"{self._named} has no unique key over topic, group and partition:\n    {self._key_ddl}"
            )

    def _check_engine(self, connection: Connection) -> None:
        if engine := engine_without_transactions(connection, self._layout.table, self._table.schema):
            quoted = connection.dialect.identifier_preparer.format_table(self._table)
            raise StoreRefusedError(
                f"{self._named}: {engine} has no transactions:\n    ALTER TABLE {quoted} ENGINE = InnoDB"
            )

    @property
    def _named(self) -> str:
        return f"{self.name}: table {self._layout.table}"

    @property
    def _ddl(self) -> str:
        return " ".join(str(CreateTable(self._table).compile(dialect=self._engine.dialect)).split())

    @property
    def _key_ddl(self) -> str:
        c, layout = self._table.c, self._layout
        key = Index(f"{layout.table}_key", c[layout.topic], c[layout.group], c[layout.partition], unique=True)
        return str(CreateIndex(key).compile(dialect=self._engine.dialect))

    def _missing(self) -> _MissingTableError:
        return _MissingTableError(
            f"{self.name}: {where(self._engine)} has no table {self._table.fullname}. Set create=true, or make it:\n"
            f"    {self._ddl}"
        )

    def _no_file(self) -> _MissingTableError:
        return _MissingTableError(
            f"{self.name}: no file {self._engine.url.database} here: correct the connection's host, or set create=true"
        )

    # The database

    @contextmanager
    def _connected(self, *, only_reads: bool = False) -> Iterator[Connection]:
        with (
            self._translated(),
            self._engine.connect().execution_options(only_reads=only_reads) as connection,
            _bounded(connection, self._timeout * (1 if only_reads else 2)),
        ):
            yield connection

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self._connected() as connection:
            transaction = connection.begin()
            if connection.dialect.name == "postgresql":
                # The lock's time-out is shorter, so that the server can still report the reason.
                lock, statement = int(self._timeout * 1000), int(self._timeout * 1500)
                connection.exec_driver_sql(
                    f"SET LOCAL lock_timeout = {lock}; SET LOCAL statement_timeout = {statement}"
                )
            yield connection
            try:
                transaction.commit()
            except DBAPIError as exc:
                if is_lost(exc) or isinstance(exc, IntegrityError):
                    raise
                raise StoreOutcomeUnknownError(
                    f"{self.name}: {where(self._engine)} did not answer the COMMIT ({first_line(exc)}){OUTCOME_OPEN}"
                ) from exc

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except NoSuchTableError as exc:
            raise self._missing() from exc
        except IntegrityError:
            raise
        except DBAPIError as exc:
            raise self._error(exc) from exc

    def _error(self, exc: DBAPIError) -> Exception:
        """Return the store's error for a database's error after which nothing was written."""
        reason = f"{type(exc.orig).__name__}: {first_line(exc)}"
        if is_lost(exc):
            return _LostError(f"{self.name}: another transaction went first ({reason})")
        if _code(exc) in _MISSING_TABLE or "no such table" in reason:
            return self._missing()
        if _is_refusal(exc):
            return StoreRefusedError(
                f"{self.name}: {where(self._engine)} refused ({reason}). Check login, rights and table:\n    {self._ddl}"
            )
        return StoreUnavailableError(
            f"{self.name}: {where(self._engine)} did not answer in {self._timeout:g} s ({reason})"
        )


class _LostError(StoreUnavailableError):
    """Another writer was first; nothing was written."""


class _MissingTableError(StoreRefusedError):
    """The table, or the file of its database, does not exist."""


def _number(value: Any) -> Any:
    """Return the whole number in a text or a decimal. Return any other value unchanged."""
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value


def _table(layout: Layout) -> Table:
    columns: list[Column[Any]] = [
        Column(layout.topic, _name(249), primary_key=True),
        Column(layout.group, _name(255), primary_key=True),
        Column(layout.partition, Integer, primary_key=True, autoincrement=False),
        Column(layout.offset, BigInteger, nullable=False),
    ]
    if layout.timestamp:
        columns.append(Column(layout.timestamp, TIMESTAMP(timezone=True)))
    return Table(layout.table, MetaData(), *columns, schema=layout.schema or None)


def _name(length: int) -> String:
    # To the default collation of MySQL and MariaDB, Q equals q. Kafka's names are case-sensitive.
    binary = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return String(length).with_variant(binary, "mysql", "mariadb")


def _connect_args(backend: str, timeout: float) -> dict[str, Any]:
    """Return a driver's time-outs. Those of locks are shorter, so that the server can still report the reason."""
    seconds = math.ceil(timeout)
    if backend == "sqlite":
        return {"timeout": timeout}
    if backend == "postgresql":
        # Poolers that share a session among clients lack the driver's prepared statements.
        return {"connect_timeout": seconds, "tcp_user_timeout": seconds * 1000, "prepare_threshold": None}
    return {
        "connect_timeout": seconds,
        "read_timeout": seconds + 1,
        "write_timeout": seconds + 1,
        "init_command": f"SET innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds}",
    }


@contextmanager
def _bounded(connection: Connection, seconds: float) -> Iterator[None]:
    """Cut a connection to PostgreSQL that takes longer: its driver would wait for an answer without end."""
    if connection.dialect.name != "postgresql":
        yield
        return
    driver: Any = connection.connection.driver_connection
    # A copy, because by then the number itself may belong to another connection.
    with closing(socket.socket(fileno=os.dup(driver.fileno()))) as wire:
        timer = threading.Timer(seconds + 1, _cut, [wire])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _cut(wire: socket.socket) -> None:
    with suppress(OSError):
        wire.shutdown(socket.SHUT_RDWR)


def _code(exc: DBAPIError) -> str | int | None:
    """Return PostgreSQL's SQLSTATE or MySQL's number."""
    args = getattr(exc.orig, "args", ())
    if args and isinstance(args[0], int):
        return args[0]
    return getattr(exc.orig, "sqlstate", None)


def _is_refusal(exc: DBAPIError) -> bool:
    """Whether the database refused, and would refuse again."""
    code = _code(exc)
    if not isinstance(exc, OperationalError | InterfaceError | InternalError):
        return True
    if isinstance(code, int):
        return code not in _PASSING_NUMBERS and code not in _LOST_CONNECTION and code > 0
    if code is not None:
        return _PASSING_STATE.fullmatch(code) is None
    message = str(exc.orig)
    return bool(_REFUSAL.search(message)) or ("FATAL" in message and not _PASSING_FATAL.search(message))
