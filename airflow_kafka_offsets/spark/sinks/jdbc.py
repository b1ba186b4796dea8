"""A table of a database: staged by Spark, which commits per task, and published in one transaction."""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_kafka_offsets.spark.errors import OtherWindowError, PublishError, TargetError, WriteOptionError
from airflow_kafka_offsets.spark.label import Label
from airflow_kafka_offsets.spark.observing import observe
from airflow_kafka_offsets.spark.shared import counted, is_secret, stage_prefix
from airflow_kafka_offsets.spark.sinks.jdbc_sql import STAGED, Target, older, stage_name
from airflow_kafka_offsets.spark.sinks.tables import WINDOW_ID, refuse_options
from airflow_kafka_offsets.spark.source import empty_frame, is_classic, java_class

logger = logging.getLogger(__name__)

_READ_COMMITTED = 2
"""java.sql.Connection.TRANSACTION_READ_COMMITTED: after the wait for a lock, a transaction sees the rows written meanwhile."""

_DEADLOCKS = 10
"""How many times to publish, if the database ends the transaction in favor of another one."""

# Spark's sentence about the task comes first, the database's last.
_SQL_MESSAGE = re.compile(r"[\w.]*SQL\w*Exception: (.*)")

_DROP_SECONDS = 10
"""Seconds to wait for a table that someone writes to."""


@dataclass(frozen=True)
class Stage:
    """A filled staging table.

    Attributes:
        name: in the target's schema.
        columns: its columns.
        rows: the number of its rows.
    """

    name: str
    columns: Sequence[str]
    rows: int


class JdbcTable:
    """A table that gets windows, through Spark's own JDBC.

    Args:
        spark: the session.
        url, table: see `Target`.
        properties: Spark's JDBC options, such as user, password and batchsize. They are never logged.
    """

    def __init__(self, spark: SparkSession, url: str, table: str, properties: Mapping[str, Any] | None = None) -> None:
        self.target = Target(url, table)
        self._spark = spark
        self._options = {name: str(value) for name, value in (properties or {}).items()}
        refuse_options(
            self._options, ["url", "dbtable", "query", "truncate"], "the arguments url and table name the target"
        )
        self._options["url"] = url
        if self.target.driver and "driver" not in {name.lower() for name in self._options}:
            self._options["driver"] = self.target.driver
        names = [name for name, value in self._options.items() if is_secret(name, str(value))]
        if self.is_remote and names:
            raise WriteOptionError(
                f"A Spark Connect server would show the password in {', '.join(names)} in its UI. "
                "Store it on the server: docs/sinks/jdbc.md"
            )

    @property
    def is_remote(self) -> bool:
        """Whether this is Spark Connect, without a JVM in this process."""
        return not is_classic(self._spark)

    @contextmanager
    def staging(self, columns: Sequence[str], window_id: str) -> Iterator[str]:
        """Yield the name of a new staging table of this try; it is dropped on an error.

        Raises:
            TargetError: the target does not exist, or lacks one of these columns or that of the window.
        """
        now = datetime.now(timezone.utc)  # noqa: UP017 (datetime.UTC came with Python 3.11)
        stage = stage_name(window_id, self.target.table, now, uuid.uuid4().hex[:6])
        try:
            self._execute(self.target.create_stage(stage, columns))
        except Exception as exc:
            raise TargetError(
                f"{self.target.table} can't take the window ({_reason(exc)}). {self.target.help()}"
            ) from exc
        try:
            yield stage
        except BaseException:
            self._drop(stage, self._execute)
            raise

    def fill(self, stage: str, df: DataFrame, timeout: float) -> Stage:
        """Write a frame to a staging table, and make sure that it has each row once.

        Raises:
            PublishError: it has more rows than Spark wrote, or Spark does not report their number.
        """
        rows, observed = observe(df, F.count(F.lit(1)).alias("rows"))
        self._write(rows, self.target.beside(stage))
        [(staged,)] = self._read(query=self.target.count(stage)).collect()
        written = observed.metrics(timeout).get("rows")
        if staged != written:
            raise PublishError(
                f"{self.target.table}: Spark staged {counted(staged, 'row')} and reported "
                f"{'none in time' if written is None else written}. Run the window again"
            )
        return Stage(stage, df.columns, staged)

    # For a publication by the job

    def need_jvm(self) -> None:
        """Refuse a session without a JVM.

        Raises:
            TargetError: it has none.
        """
        if self.is_remote:
            raise TargetError("write_jdbc() can't run over Spark Connect. For the ledger's database, use stage_jdbc()")

    def create(self, df: DataFrame) -> None:
        """Create the table with the frame's types, or the window's column and an index, if they are missing."""
        with self._connected() as connection:
            # For JDBC, names are patterns in which _ is any character.
            place = self._catalog_and_schema(connection)
            columns = connection.getMetaData().getColumns(*place, self.target.name, WINDOW_ID)
            has_window_id = self.target.name in _values(columns, "TABLE_NAME")
        if not has_window_id:
            # Not from the frame itself: this would be its first action, which is counted.
            self._write(empty_frame(self._spark, df.schema), self.target.quoted)
            self._execute(self.target.add_window_id(), self.target.index_window_id())

    def publish(self, stage: Stage, label: Label) -> None:
        """Replace the window's rows by the staged ones, in one transaction, after which no older try can publish.

        Raises:
            OtherWindowError: another window wrote the old rows; they are unchanged.
            PublishError: the publication failed; the old rows are unchanged.
        """
        try:
            with self._connected() as connection:
                self._check_transactions(connection)
                self._make_lock(connection, label)
                self._in_transaction(connection, stage, label)
                self._clean(connection, stage, label.window_id)
        except (PublishError, TargetError, OtherWindowError):
            raise
        except Exception as exc:
            raise PublishError(
                f"{self.target.table}: window {label.window_id} could not be published ({_reason(exc)}). Run it again"
            ) from exc

    def _in_transaction(self, connection: Any, stage: Stage, label: Label) -> None:
        if connection.getMetaData().supportsTransactionIsolationLevel(_READ_COMMITTED):
            connection.setTransactionIsolation(_READ_COMMITTED)
        connection.setAutoCommit(False)
        for left in reversed(range(_DEADLOCKS)):
            try:
                self._replace(connection, stage, label)
                connection.commit()
                break
            except Exception as exc:
                with suppress(Exception):  # of a connection that broke
                    connection.rollback()
                if not left or not _sql_state(exc).startswith("40"):
                    raise
        connection.setAutoCommit(True)

    def _clean(self, connection: Any, stage: Stage, window_id: str) -> None:
        """Drop the staging tables of this try and of older ones. A failure does not matter: the window is published."""
        stages = [stage.name]
        try:
            pattern = f"{stage_prefix(window_id, self.target.table)}%"
            tables = connection.getMetaData().getTables(*self._catalog_and_schema(connection), pattern, None)
            stages[:0] = older(_values(tables, "TABLE_NAME"), stage.name)
        except Exception as exc:
            logger.warning("Window %s: older staging tables remain (%s)", window_id, _reason(exc))
        for name in stages:
            self._drop(name, lambda statement: _update(connection, statement, timeout=_DROP_SECONDS))

    def _replace(self, connection: Any, stage: Stage, label: Label) -> None:
        window_id, table = label.window_id, self.target.table
        _update(connection, self.target.lock_published(), window_id)
        self._mark(connection, label)
        if _update(connection, self.target.delete(), window_id):
            digest = self._digest(connection, window_id)
            label.refuse_other(table, {"digest": digest} if digest else None)
        _update(connection, self.target.delete_digest(), window_id, self.target.name)
        _update(connection, self.target.insert_digest(), window_id, self.target.name, label.digest)
        inserted = _update(connection, self.target.insert(stage.name, stage.columns), window_id)
        if inserted != stage.rows:
            raise PublishError(
                f"{table}: Spark staged {counted(stage.rows, 'row')}, now {self.target.beside(stage.name)} has {inserted}. "
                "Stop its other writers, and run the window again"
            )

    def _digest(self, connection: Any, name: str) -> str | None:
        # By the name without its schema: `orders` and `public.orders` are one table, and the digests are in its schema.
        return next(iter(_rows(connection, self.target.find_digest(), name, self.target.name)), None)

    def _mark(self, connection: Any, label: Label) -> None:
        """Put the ledger's mark in the place of one that it inherits; other windows of the group may do so at the same moment."""
        name, target = _mark_name(label), self.target
        ledger = self._digest(connection, name)
        if label.must_mark(target.table, ledger):
            _update(connection, target.replace_digest(), label.ledgers[0], name, target.name, ledger)
            label.must_mark(target.table, self._digest(connection, name))

    def _make_lock(self, connection: Any, label: Label) -> None:
        """Insert the row to lock, outside of the transaction: two jobs at once would not see each other's."""
        for statement in (self.target.create_published(), self.target.create_digests()):
            try:
                _update(connection, statement)
            except Exception:
                # For PostgreSQL, IF NOT EXISTS is no lock: the second job may fail, in one of three ways. Now the table exists.
                _update(connection, statement)
        _insert_once(connection, self.target.insert_published(), label.window_id)
        for ledger in label.ledgers[:1]:
            _insert_once(connection, self.target.insert_digest(), _mark_name(label), self.target.name, ledger)

    def _check_transactions(self, connection: Any) -> None:
        if not self.target.is_mysql:
            return
        has_transactions = _rows(connection, self.target.has_transactions(), self.target.schema, self.target.name)
        if has_transactions and has_transactions[0] != "YES":
            raise TargetError(
                f"{self.target.table} requires an engine with transactions:\n"
                f"    ALTER TABLE {self.target.quoted} ENGINE = InnoDB"
            )

    def _catalog_and_schema(self, connection: Any) -> tuple[str | None, str | None]:
        """Return the target's catalog and schema for JDBC; MySQL has only catalogs."""
        schema = self.target.schema
        if self.target.is_mysql:
            return schema or connection.getCatalog(), None
        return connection.getCatalog(), schema or connection.getSchema()

    def _drop(self, stage: str, execute: Callable[[str], object]) -> None:
        """Remove a staging table, if it exists; a failure is only logged."""
        try:
            execute(self.target.drop(stage))
        except Exception as exc:
            logger.warning("Drop %s by hand (%s)", self.target.beside(stage), _reason(exc))

    # For a publication by Airflow

    def check_ledger(self) -> None:
        """Make sure that the target's database has a ledger: Spark would create a missing table.

        Raises:
            TargetError: it is another database.
        """
        try:
            self._read(dbtable=self.target.quote(STAGED)).schema  # noqa: B018
        except Exception as exc:
            raise TargetError(
                f"{self.target.table} is not in the ledger's database, beside {STAGED} ({_reason(exc)}). Use write_jdbc()"
            ) from exc

    def register(self, stage: Stage, window_id: str) -> None:
        """Note the staged rows in the ledger's database, so that the commit of the window publishes them."""
        values = {
            "window_id": F.lit(window_id),
            "target": F.lit(self.target.table),
            "staging": F.lit(stage.name),
            "column_names": F.lit(json.dumps(list(stage.columns))),
            "row_count": F.lit(stage.rows).cast("bigint"),
        }
        # One row of one partition, hence one statement.
        row = self._spark.range(0, 1, 1, 1).select(*[value.alias(name) for name, value in values.items()])
        self._write(row, self.target.quote(STAGED))

    # Spark

    def _read(self, **what: str) -> DataFrame:
        return self._spark.read.format("jdbc").options(**{**self._options, **what}).load()

    def _write(self, df: DataFrame, table: str) -> None:
        df.write.format("jdbc").options(**self._options, dbtable=table).mode("append").save()

    def _execute(self, *statements: str) -> None:
        """Run statements, each on its own."""
        if self.is_remote:
            # Over Spark Connect, a statement can only run before a read, by Spark's reader.
            for statement in statements:
                self._read(query="SELECT 1 AS done", sessionInitStatement=statement).collect()
            return
        with self._connected() as connection:
            for statement in statements:
                _update(connection, statement)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """Open a connection as Spark's writer does, with its drivers, dialects and providers of credentials."""
        utils = java_class(self._spark, "org.apache.spark.api.python.PythonUtils")
        new_options = java_class(self._spark, "org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions")
        options = new_options(utils.toScalaMap({**self._options, "dbtable": self.target.quoted}))
        dialects = java_class(self._spark, "org.apache.spark.sql.jdbc.JdbcDialects")
        factory = dialects.get(self.target.url).createConnectionFactory(options)
        connection = factory.apply(-1)
        try:
            yield connection
        finally:
            with suppress(Exception):  # it is broken, which was reported
                connection.close()


def _mark_name(label: Label) -> str:
    """Return where the group's ledger stands among the digests: no window's id has a colon."""
    return f"ledger:{label.group}"


def _update(connection: Any, statement: str, *values: str | None, timeout: int = 0) -> int:
    with _prepared(connection, statement, values) as prepared:
        prepared.setQueryTimeout(timeout)
        return int(prepared.executeLargeUpdate())


def _insert_once(connection: Any, statement: str, *values: str) -> None:
    try:
        _update(connection, statement, *values)
    except Exception as exc:
        if not _sql_state(exc).startswith("23"):  # the row exists
            raise


def _rows(connection: Any, query: str, *values: str | None) -> list[str]:
    with _prepared(connection, query, values) as prepared:
        return _values(prepared.executeQuery(), 1)


@contextmanager
def _prepared(connection: Any, statement: str, values: Sequence[str | None]) -> Iterator[Any]:
    with closing(connection.prepareStatement(statement)) as prepared:
        for number, value in enumerate(values, start=1):
            prepared.setString(number, value)
        yield prepared


def _values(rows: Any, column: Any) -> list[str]:
    values = []
    while rows.next():
        values.append(str(rows.getString(column)))
    return values


def _sql_state(exc: BaseException) -> str:
    java = getattr(exc, "java_exception", None)
    return str(java.getSQLState() or "") if java is not None and hasattr(java, "getSQLState") else ""


def _reason(exc: BaseException) -> str:
    """Return the database's message, in one line."""
    java = getattr(exc, "java_exception", None)
    text = str(java.getMessage()) if java is not None else str(exc)
    line = text.strip().splitlines()[0] if text.strip() else type(exc).__name__
    message = _SQL_MESSAGE.search(line)
    return message[1] if message else line
