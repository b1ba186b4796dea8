"""The connections and transactions of a ledger."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from sqlalchemy import Connection, Engine, select

from airflow_kafka_offsets.ledger import schema, staging
from airflow_kafka_offsets.ledger.engine import open_engine, reading, shared_engine, translated, where, writing
from airflow_kafka_offsets.ledger.tables import groups

logger = logging.getLogger(__name__)


class Connections:
    """A ledger's database. Opens a connection for each call and keeps none."""

    def __init__(self, url: str, *, create: bool = False, is_asked_often: bool = False) -> None:
        """Open a ledger.

        Args:
            url: SQLAlchemy's URL of the database.
            create: make the tables if there are none (for a SQLite file that only this package uses).
            is_asked_often: whether this process opens it again and again: then what it learns of the database is kept
                (`engine.shared_engine`). What the ledger holds is read each time.

        Raises:
            LedgerSchemaError: the tables are not current.
            LedgerUnavailableError: the database did not answer.
        """
        self._url = url
        self._engine: Engine = shared_engine(url) if is_asked_often else open_engine(url)
        self._shared: ContextVar[Connection | None] = ContextVar("shared", default=None)
        if schema.current_revision(self._engine) == schema.REVISION:
            return
        if not create:
            schema.check_revision(self._engine)
            return
        schema.upgrade(self._engine)
        logger.warning(
            "A new ledger was made: %s, with no groups; that is right for a first run. If there was one before, turn the DAGs off and "
            "restore it, or its records are read and written again: docs/howto/keep-the-ledger.md",
            where(self._engine),
        )

    @contextmanager
    def one_connection(self) -> Iterator[None]:
        """Let all questions of this context (`contextvars`) use one connection meanwhile: that of its turn, if it has one."""
        if self._shared.get() is not None:
            yield
            return
        with reading(self._engine) as connection, self._sharing(connection):
            yield

    @contextmanager
    def turn(self, group: str) -> Iterator[None]:
        """Wait for a group, and let no one else change it meanwhile. All that this context asks and writes then is one transaction.

        Raises:
            ConcurrentChangeError: as the writes of this transaction.
        """
        with writing(self._engine) as connection:
            # SQLite has locked all of the ledger by now, and has no FOR UPDATE.
            connection.execute(select(groups.c.id).where(groups.c.name == group).with_for_update())
            with self._sharing(connection):
                yield

    @contextmanager
    def _sharing(self, connection: Connection) -> Iterator[None]:
        token = self._shared.set(connection)
        try:
            yield
        finally:
            self._shared.reset(token)

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        connection = self._shared.get()
        if connection is None:
            with reading(self._engine) as connection:
                yield connection
            return
        with translated(self._engine):
            try:
                yield connection
            finally:
                if connection.get_execution_options().get("only_reads"):
                    connection.rollback()  # or a later question would see what this one saw

    @contextmanager
    def _reading_many(self) -> Iterator[Connection]:
        """Read of many groups at once."""
        with self._reading() as connection:
            if connection.dialect.name == "postgresql":
                # For so many steps into indexes it expects a long work, and compiles the statement: that takes longer than the work.
                connection.exec_driver_sql("SET LOCAL jit = off")
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        connection = self._shared.get()
        if connection is None or connection.get_execution_options().get("only_reads"):
            with writing(self._engine) as connection:
                yield connection
            return
        with translated(self._engine):
            yield connection

    def _engine_for(self, output: Sequence[str]) -> Engine:
        if not (output and self._engine.dialect.name == "mysql"):
            return self._engine
        return open_engine(self._url, connect_args={"read_timeout": staging.PUBLISH_TIMEOUT})
