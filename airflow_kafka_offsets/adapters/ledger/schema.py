"""The tables' version: checked before the first use, upgraded by Alembic."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, Engine, column, inspect, select, table

from airflow_kafka_offsets.adapters.ledger.engine import where, writing
from airflow_kafka_offsets.core.errors import LedgerSchemaError

REVISION = "0004"
"""The revision that this code needs; a test holds it equal to Alembic's head."""

VERSION_TABLE = "kafka_offsets_alembic_version"


def current_revision(connection: Connection) -> str | None:
    """Return the revision of the database; None: it has none of our tables."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(select(column("version_num")).select_from(table(VERSION_TABLE))).scalar()


def check_revision(connection: Connection) -> None:
    """Refuse a database whose tables are of another version.

    Raises:
        LedgerSchemaError: with the command that helps.
    """
    revision = current_revision(connection)
    if revision == REVISION:
        return
    _refuse_newer(connection.engine, revision)
    raise LedgerSchemaError(
        f"The ledger {where(connection.engine)} is at revision {revision or 'none (no tables)'}, this package needs "
        f"{REVISION}. Run once, with the same ledger: kafka-offsets db upgrade"
    )


def _refuse_newer(engine: Engine, revision: str | None) -> None:
    if revision is not None and revision > REVISION:
        raise LedgerSchemaError(
            f"The ledger {where(engine)} is at revision {revision}, newer than this package knows ({REVISION}): install "
            "the version of airflow-provider-kafka-offsets that the other machines have (kafka-offsets db upgrade "
            "can't go back)"
        )


def upgrade(engine: Engine) -> str:
    """Create or upgrade the tables in one transaction, and return their revision. Does nothing when they are current.

    Raises:
        LedgerSchemaError: the tables are of a newer version.
        LedgerError: the database did not answer, or refused.
    """
    from alembic import command
    from alembic.config import Config

    with writing(engine) as connection:
        # Inside of the transaction: on SQLite a second process waits here, and then finds the work done.
        revision = current_revision(connection)
        _refuse_newer(engine, revision)
        if revision != REVISION:
            config = Config()
            config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    return REVISION
