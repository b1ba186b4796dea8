"""The tables' version: checked before the first use, upgraded by Alembic."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine, column, inspect, select, table

from airflow_kafka_offsets.adapters.ledger.engine import (
    is_there,
    looking,
    missing_folder,
    translated,
    use_write_ahead_log,
    where,
    writing,
)
from airflow_kafka_offsets.adapters.ledger.tables import metadata
from airflow_kafka_offsets.core.errors import (
    LedgerSchemaError,
    NoLedgerError,
    NotYetError,
    counted,
    name_some,
)

REVISION = "0004"
"""The revision that this code needs; a test holds it equal to Alembic's head."""

VERSION_TABLE = "kafka_offsets_alembic_version"


@dataclass(frozen=True, slots=True)
class Found:
    """What a database holds.

    Attributes:
        revision: of our tables; None: there are none, or their making was not finished.
        ours: the names of our tables.
        others: those of all other ones, which somebody else has made.
    """

    revision: str | None = None
    ours: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def look(engine: Engine) -> Found:
    """Return what a database holds; nothing is written, and no file is made.

    Raises:
        LedgerUnavailableError: the database did not answer.
        NotYetError: the folder of its file is not there.
    """
    if folder := missing_folder(engine.url):
        slashes = "" if folder.is_absolute() else " (an absolute one begins with four slashes)"
        raise NotYetError(
            f"There is no folder {folder.absolute()} for the ledger {where(engine)}: check the path{slashes}, or make the folder first"
        )
    if not is_there(engine.url):
        return Found()
    with looking(engine) as connection:
        return _found(connection)


def _found(connection: Connection) -> Found:
    known = {VERSION_TABLE, *metadata.tables}
    tables = sorted(inspect(connection).get_table_names())
    return Found(
        _revision(connection),
        tuple(table for table in tables if table in known),
        tuple(table for table in tables if table not in known),
    )


def current_revision(engine: Engine) -> str | None:
    """Return the revision of a ledger's tables, however many others there are; None: it has none.

    Raises:
        LedgerUnavailableError: the database did not answer.
    """
    if not is_there(engine.url):
        return None
    with looking(engine) as connection:
        return _revision(connection)


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(select(column("version_num")).select_from(table(VERSION_TABLE))).scalar()


def check_revision(engine: Engine) -> None:
    """Refuse a database whose tables are of another version, or not ours.

    Raises:
        NoLedgerError: there is no ledger yet: no file, no table, or on a server only others' tables.
        LedgerSchemaError: with the command that helps.
    """
    found = look(engine)
    if found.revision == REVISION:
        return
    _refuse_newer(engine, found.revision)
    if found.others and not found.ours:
        raise _foreign(engine, found)
    if not is_there(engine.url):
        raise NoLedgerError(
            f"There is no ledger in {where(engine)} yet. Check the path first. If it is right: the default ledger is made when a "
            f"group first plans, any other one only by: kafka-offsets db upgrade --ledger {shlex.quote(where(engine))}. To see a "
            "first window before that: kafka-offsets plan --dag FILE_OR_DAG_ID",
            where(engine),
        )
    message = (
        f"The ledger {where(engine)} is at revision {found.revision or 'none (no tables)'}, this package needs "
        f"{REVISION}. Run once, with the same ledger: kafka-offsets db upgrade"
    )
    raise LedgerSchemaError(message) if found.ours else NoLedgerError(message, where(engine))


def _foreign(engine: Engine, found: Found) -> LedgerSchemaError:
    flag = " --beside-others" if _is_file(engine) else ""
    message = (
        f"There is no ledger in {where(engine)}: it holds {counted(len(found.others), 'table')} of something else "
        f"({name_some(found.others, ', ')}). Nothing was written. If that is another database than you mean, name the right "
        f"one. To make a ledger beside these tables, run once, with the same ledger: kafka-offsets db upgrade{flag}"
    )
    # A server's databases are shared as they are, so a ledger may come there; a file is one application's.
    return LedgerSchemaError(message) if _is_file(engine) else NoLedgerError(message, where(engine))


def _is_file(engine: Engine) -> bool:
    return engine.dialect.name == "sqlite"


def _refuse_newer(engine: Engine, revision: str | None) -> None:
    if revision is not None and revision > REVISION:
        raise LedgerSchemaError(
            f"The ledger {where(engine)} is at revision {revision}, newer than this package knows ({REVISION}): install "
            "the version of airflow-provider-kafka-offsets that the other machines have (kafka-offsets db upgrade "
            "can't go back)"
        )


def _refuse_to_upgrade(engine: Engine, found: Found, *, beside_others: bool) -> None:
    _refuse_newer(engine, found.revision)
    if not beside_others and _is_file(engine) and found.others and not found.ours:
        raise _foreign(engine, found)


def upgrade(engine: Engine, *, beside_others: bool = False) -> str:
    """Create or upgrade the tables in one transaction, and return their revision. Does nothing when they are current.

    Args:
        engine: of the database.
        beside_others: also in a SQLite file that only holds what is not ours. A server's databases are shared as they are.

    Raises:
        LedgerSchemaError: the tables are of a newer version, or the file is another application's.
        LedgerError: the database did not answer, or refused.
    """
    from alembic import command
    from alembic.config import Config

    found = look(engine)
    _refuse_to_upgrade(engine, found, beside_others=beside_others)
    if _is_file(engine) and not found.others:
        with translated(engine):
            use_write_ahead_log(engine)
    with writing(engine) as connection:
        # Inside of the transaction: on SQLite a second process waits here, and then finds the work done. The look from outside
        # does not see what only stands in a write-ahead log, either.
        found = _found(connection)
        _refuse_to_upgrade(engine, found, beside_others=beside_others)
        if found.revision != REVISION:
            config = Config()
            config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    return REVISION
