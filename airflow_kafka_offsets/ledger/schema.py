"""The version of the tables. It is checked before the first use, and Alembic upgrades it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine, column, inspect, make_url, select, table

from airflow_kafka_offsets.core.errors import LedgerSchemaError, NoLedgerError, NotYetError, counted, name_some
from airflow_kafka_offsets.ledger.engine import (
    is_there,
    looking,
    missing_folder,
    translated,
    use_write_ahead_log,
    where,
    writing,
)
from airflow_kafka_offsets.ledger.tables import metadata

REVISION = "0001_8c39556b"
"""The revision that this code requires: the number of the newest migration, and a digest of the tables, which a test computes."""

VERSION_TABLE = "kafka_offsets_alembic_version"


@dataclass(frozen=True, slots=True)
class SchemaState:
    """What a database holds.

    Attributes:
        revision: of the ledger's tables; None if there are none, or if they are not complete.
        ours: the names of the ledger's tables.
        others: the names of all other tables.
        is_foreign: whether another version of this package made the ledger.
    """

    revision: str | None = None
    ours: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    is_foreign: bool = False


def look(engine: Engine) -> SchemaState:
    """Return what a database holds. Nothing is written, and no file is made.

    Raises:
        LedgerUnavailableError: the database did not answer.
        NotYetError: the folder of its file does not exist.
    """
    if folder := missing_folder(engine.url):
        slashes = "" if folder.is_absolute() else " (an absolute one begins with four slashes)"
        raise NotYetError(
            f"There is no folder {folder.absolute()} for the ledger {where(engine)}: check the path{slashes}, or make the folder"
        )
    if not is_there(engine.url):
        return SchemaState()
    with looking(engine) as connection:
        return _found(connection)


def _found(connection: Connection) -> SchemaState:
    inspector = inspect(connection)
    tables = set(inspector.get_table_names())
    ours = tables & {VERSION_TABLE, *metadata.tables}
    revision = _revision(connection)
    # Without a revision, the columns show whether this version began to make the tables and died.
    differing = (
        {column["name"] for column in inspector.get_columns(name)} != set(metadata.tables[name].columns.keys())
        for name in ours & set(metadata.tables)
    )
    is_foreign = any(differing) if revision is None else revision != REVISION
    return SchemaState(revision, tuple(sorted(ours)), tuple(sorted(tables - ours)), is_foreign)


def current_revision(engine: Engine) -> str | None:
    """Return the revision of the ledger's tables in a database, or None if there are none.

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
    """Refuse a database without a ledger of this version.

    Raises:
        NoLedgerError: there is no ledger yet: no file, no table, or on a server only other tables.
        LedgerSchemaError: another version of this package made the tables, or the file belongs to another application.
    """
    found = look(engine)
    if found.revision == REVISION:
        return
    if found.is_foreign:
        raise _made_by_another(engine, found)
    if found.others and not found.ours:
        raise _foreign(engine, found)
    if not is_there(engine.url):
        raise NoLedgerError(
            f"There is no ledger in {where(engine)} yet. If the path is right, make it:{_upgrade_command(engine)}",
            where(engine),
        )
    message = (
        f"The ledger {where(engine)} has {'not all of its' if found.ours else 'no'} tables yet. "
        f"Run once, with the same ledger:{_upgrade_command(engine)}"
    )
    raise LedgerSchemaError(message) if found.ours else NoLedgerError(message, where(engine))


def _made_by_another(engine: Engine, found: SchemaState) -> LedgerSchemaError:
    return LedgerSchemaError(
        f"Another version of airflow-kafka-offsets made the ledger {where(engine)} (revision {found.revision or 'unknown'}, not "
        f"{REVISION}), so nothing was changed: install the version that made it, or name another database"
    )


def _foreign(engine: Engine, found: SchemaState) -> LedgerSchemaError:
    flag = " --beside-others" if _is_file(engine) else ""
    message = (
        f"There is no ledger in {where(engine)}: it holds {counted(len(found.others), 'table')} of something else "
        f"({name_some(found.others, ', ')}). Name the right database, or make a ledger beside "
        f"them:{_upgrade_command(engine)}{flag}"
    )
    # Applications share a server's database, so a ledger may be made there. A file belongs to one application.
    return LedgerSchemaError(message) if _is_file(engine) else NoLedgerError(message, where(engine))


def _upgrade_command(engine: Engine) -> str:
    """Return the command that makes the tables in this database, on a line of its own.

    What a message leaves out of a URL, such as its password, is left to the reader.
    """
    ledger = shlex.quote(where(engine)) if make_url(where(engine)) == engine.url else "..."
    return f"\n    kafka-offsets db upgrade --ledger {ledger}"


def _is_file(engine: Engine) -> bool:
    return engine.dialect.name == "sqlite"


def _refuse_to_upgrade(engine: Engine, found: SchemaState, *, beside_others: bool) -> None:
    if found.is_foreign:
        raise _made_by_another(engine, found)
    if not beside_others and _is_file(engine) and found.others and not found.ours:
        raise _foreign(engine, found)


def upgrade(engine: Engine, *, beside_others: bool = False) -> str:
    """Create the tables in one transaction, and return their revision. Do nothing if they are current.

    Args:
        engine: of the database.
        beside_others: also in a SQLite file that holds other tables only. (On a server this is always allowed.)

    Raises:
        LedgerSchemaError: another version of this package made the tables, or the file belongs to another application.
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
        # Inside the transaction: on SQLite a second process waits here and then finds the work done. The first look does not
        # see what is only in a write-ahead log, either.
        found = _found(connection)
        _refuse_to_upgrade(engine, found, beside_others=beside_others)
        if found.revision != REVISION:
            config = Config()
            config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    return REVISION
