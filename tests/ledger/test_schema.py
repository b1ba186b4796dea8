"""The version of the tables, and URLs that can't be used."""

from __future__ import annotations

import re
import uuid
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, event, inspect, text
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from airflow_kafka_offsets.core.errors import BadInputError, LedgerSchemaError, LedgerUnavailableError, NotYetError
from airflow_kafka_offsets.ledger import schema
from airflow_kafka_offsets.ledger.engine import open_engine, reading, writing
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.ledger.tables import identity, metadata

if TYPE_CHECKING:
    from tests.lab.databases import MariaDB, Postgres


def test_the_revision_says_which_tables_the_migration_makes() -> None:
    """So a ledger of another checkout, with other tables, has another revision, and is refused."""
    statements = [
        str(statement.compile(dialect=dialect()))
        for dialect in (sqlite.dialect, postgresql.dialect, mysql.dialect)
        for table in metadata.sorted_tables
        for statement in (
            CreateTable(table),
            *map(CreateIndex, sorted(table.indexes, key=lambda index: str(index.name))),
        )
    ]
    digest = sha256("".join(statements).encode()).hexdigest()[:8]
    assert f"0001_{digest}" == schema.REVISION


def test_a_ledger_has_an_id_of_its_own_that_an_upgrade_keeps(tmp_path: Path) -> None:
    ids: dict[str, str] = {}
    for name in ("one", "two", "one"):
        engine = open_engine(f"sqlite:///{tmp_path / name}.db")
        schema.upgrade(engine)
        with engine.connect() as connection:
            [(found,)] = connection.execute(identity.select()).all()
        assert re.fullmatch("[0-9a-f]{32}", found)
        assert ids.setdefault(name, found) == found
    assert len({*ids.values()}) == 2


def test_no_name_is_longer_than_what_postgresql_keeps() -> None:
    names = [str(index.name) for table in metadata.sorted_tables for index in table.indexes]
    names += [str(constraint.name) for table in metadata.sorted_tables for constraint in table.constraints]
    assert max(map(len, names)) < 64, "a longer one is shortened, so a repeated upgrade does not find it"


class DiedError(Exception):
    """The process is gone; to the database, that is a rollback."""


def dies(url: str, statements: int) -> bool:
    """Upgrade a database with a process that dies after so many statements that write; False: it had fewer to run."""
    engine, left = open_engine(url), iter(range(statements - 1))

    @event.listens_for(engine, "after_cursor_execute")
    def die(_connection, _cursor, statement, *_):  # type: ignore[no-untyped-def]
        is_write = statement.split()[0] in ("CREATE", "ALTER", "INSERT", "UPDATE", "DELETE", "DROP")
        if is_write and next(left, None) is None:
            raise DiedError

    try:
        schema.upgrade(engine)
    except DiedError:
        return True
    return False


def shape(url: str) -> dict[str, Any]:
    """Return what the tables of a database are made of."""
    kinds = ("columns", "pk_constraint", "foreign_keys", "indexes", "unique_constraints")
    with reading(open_engine(url)) as connection:
        found = inspect(connection)
        return {t: [str(getattr(found, f"get_{kind}")(t)) for kind in kinds] for t in found.get_table_names()}


def clear(url: str) -> None:
    """Drop all tables of a ledger."""
    with writing(open_engine(url)) as connection:
        metadata.drop_all(connection)
        connection.execute(text(f"DROP TABLE {schema.VERSION_TABLE}"))


class SchemaContract:
    """Each subclass gives an empty database of its own with a fixture `empty`."""

    keeps_what_was_made: ClassVar[bool] = False
    """Whether an upgrade that dies leaves what its statements have made; otherwise all of it is rolled back."""

    def test_an_empty_database_names_the_command(self, empty: str) -> None:
        with pytest.raises(LedgerSchemaError, match=r"(?s)no (tables|ledger).* kafka-offsets db upgrade"):
            Ledger(empty)
        assert shape(empty) == {}

    @pytest.mark.parametrize("create", [False, True])
    @pytest.mark.parametrize("revision", ["0000", "0009", "9999"])
    def test_a_ledger_of_another_version_is_left_alone(self, empty: str, create: bool, revision: str) -> None:
        self._at(empty, revision)
        with pytest.raises(LedgerSchemaError, match=rf"Another version .* made the ledger .*revision {revision}"):
            Ledger(empty, create=create)
        with pytest.raises(LedgerSchemaError, match="so nothing was changed: install the version that made it"):
            schema.upgrade(open_engine(empty))
        assert schema.current_revision(open_engine(empty)) == revision

    @pytest.mark.parametrize(
        "change",
        ["ADD COLUMN last_clear INTEGER", "RENAME COLUMN try_number TO tries"],
        ids=["a column more", "a column of another name"],
    )
    def test_tables_with_other_columns_and_no_revision_are_left_alone(self, empty: str, change: str) -> None:
        schema.upgrade(open_engine(empty))
        self._execute(
            open_engine(empty), f"ALTER TABLE kafka_offsets_attempts {change}", f"DROP TABLE {schema.VERSION_TABLE}"
        )
        before = shape(empty)
        for create in (False, True):
            with pytest.raises(LedgerSchemaError, match=r"Another version .* made the ledger .*revision unknown"):
                Ledger(empty, create=create)
        with pytest.raises(LedgerSchemaError, match="Another version"):
            schema.upgrade(open_engine(empty), beside_others=True)
        assert shape(empty) == before

    def test_the_migrations_make_the_tables_that_the_code_speaks_of(self, empty: str) -> None:
        schema.upgrade(open_engine(empty))
        with open_engine(empty).connect() as connection:
            opts = {"version_table": schema.VERSION_TABLE, "compare_type": True}
            assert compare_metadata(MigrationContext.configure(connection, opts=opts), metadata) == []
            columns = {t: {c["name"] for c in inspect(connection).get_columns(t)} for t in metadata.tables}
            assert columns == {t: set(table.columns.keys()) for t, table in metadata.tables.items()}

    def test_a_database_of_something_else_is_named_by_what_is_there_and_left_alone(self, empty: str) -> None:
        self._execute(open_engine(empty), "CREATE TABLE customers (id INTEGER)", "CREATE TABLE invoices (id INTEGER)")
        with pytest.raises(LedgerSchemaError, match=r"holds 2 tables of something else \(customers, invoices\)"):
            Ledger(empty)
        assert sorted(shape(empty)) == ["customers", "invoices"]

    def test_a_ledger_beside_the_tables_of_something_else_is_a_ledger(self, empty: str) -> None:
        self._execute(open_engine(empty), "CREATE TABLE customers (id INTEGER)")
        assert schema.upgrade(open_engine(empty), beside_others=True) == schema.REVISION
        assert Ledger(empty).groups() == []
        assert "customers" in shape(empty)

    def test_a_ledger_whose_making_was_not_finished_is_ours_also_beside_something_else(self, empty: str) -> None:
        self._at(empty, schema.REVISION)
        unfinish = f"DELETE FROM {schema.VERSION_TABLE}"
        self._execute(open_engine(empty), "CREATE TABLE customers (id INTEGER)", unfinish)
        with pytest.raises(
            LedgerSchemaError, match=r"has not all of its tables yet.*\n    kafka-offsets db upgrade --ledger \S+$"
        ):
            Ledger(empty)
        assert schema.upgrade(open_engine(empty)) == schema.REVISION

    def test_an_upgrade_can_be_repeated(self, empty: str) -> None:
        for _ in range(2):
            assert schema.upgrade(open_engine(empty)) == schema.REVISION
        assert Ledger(empty).groups() == []

    @pytest.mark.slow
    def test_an_upgrade_that_died_after_any_of_its_statements_can_be_repeated(self, empty: str) -> None:
        schema.upgrade(open_engine(empty))
        whole, statements = shape(empty), 1
        clear(empty)
        while dies(empty, statements):
            left = shape(empty)
            assert bool(left) is self.keeps_what_was_made, f"after {statements} statements"
            with pytest.raises(LedgerSchemaError, match="kafka-offsets db upgrade"):
                Ledger(empty)
            if left:  # otherwise the next upgrade repeats it: it begins with what this one has left
                assert schema.upgrade(open_engine(empty)) == schema.REVISION
                assert shape(empty) == whole, f"after {statements} statements"
                clear(empty)
            statements += 1
        assert shape(empty) == whole, "the last upgrade did not die"
        assert statements > len(whole), "each table is a statement, and it died after each"

    def _at(self, url: str, revision: str) -> None:
        schema.upgrade(open_engine(url))
        self._execute(open_engine(url), f"UPDATE {schema.VERSION_TABLE} SET version_num = '{revision}'")

    def _execute(self, engine: Engine, *statements: str) -> None:
        with engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))
        engine.dispose()


class TestSqlite(SchemaContract):
    """In a file."""

    @pytest.fixture
    def empty(self, tmp_path: Path) -> str:
        """Return where the database is."""
        return f"sqlite:///{tmp_path / 'ledger.db'}"

    def test_a_ledger_that_is_ours_alone_is_made_on_first_use_and_the_log_says_so(
        self, empty: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert Ledger(empty, create=True).groups() == []
        assert "A new ledger was made: sqlite:" in caplog.text
        assert "that is right for a first run" in caplog.text
        assert "If there was one before" in caplog.text
        assert "restore it, or its records are read and written again: docs/howto/keep-the-ledger.md" in caplog.text
        caplog.clear()
        Ledger(empty, create=True)
        assert caplog.text == "", "it is there"

    def test_a_file_of_something_else_gets_no_ledger_on_first_use(self, empty: str) -> None:
        self._execute(open_engine(empty), "CREATE TABLE customers (id INTEGER)")
        with pytest.raises(
            LedgerSchemaError, match=f"\n    kafka-offsets db upgrade --ledger {empty} --beside-others$"
        ):
            Ledger(empty, create=True)
        assert sorted(shape(empty)) == ["customers"]

    def test_a_question_makes_no_file(self, empty: str, tmp_path: Path) -> None:
        with pytest.raises(
            LedgerSchemaError, match=r"There is no ledger in .* yet\. If the path is right, make it"
        ) as raised:
            Ledger(empty)
        assert f"kafka-offsets db upgrade --ledger {empty}" in str(raised.value)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("create", [False, True])
    def test_a_folder_that_is_not_there_is_named(self, tmp_path: Path, create: bool) -> None:
        file = tmp_path / "nowhere" / "ledger.db"
        with pytest.raises(NotYetError) as raised:
            Ledger(f"sqlite:///{file}", create=create)
        assert str(raised.value) == (
            f"There is no folder {file.parent} for the ledger sqlite:///{file}: check the path, or make the folder"
        )

    def test_a_file_that_is_something_else_is_an_error_of_the_ledger(self, tmp_path: Path) -> None:
        (tmp_path / "ledger.db").write_text("not a database, but long enough to be looked at " * 50)
        with pytest.raises(Exception, match="file is not a database") as raised:
            Ledger(f"sqlite:///{tmp_path / 'ledger.db'}", create=True)
        assert type(raised.value).__module__ == "airflow_kafka_offsets.core.errors"


class TestPostgres(SchemaContract):
    """On a PostgreSQL server."""

    @pytest.fixture
    def empty(self, postgres: Postgres) -> str:
        """Return where the database is."""
        return postgres.create_database(f"schema_{uuid.uuid4().hex[:8]}")


class TestMariaDB(SchemaContract):
    """On a MariaDB server, which commits each statement that changes tables."""

    keeps_what_was_made = True

    @pytest.fixture
    def empty(self, mariadb: MariaDB) -> str:
        """Return where the database is."""
        return mariadb.create_database(f"schema_{uuid.uuid4().hex[:8]}")


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("nonsense", "SQLAlchemy can't read"),
        ("oracle://u:canary@db/x", "not in oracle"),
        ("mssql+pyodbc://u:canary@db/x", "not in"),
        ("postgres://u:canary@db/x", "write postgresql://"),
    ],
)
def test_a_url_that_can_not_be_a_ledger_is_refused_without_its_password(url: str, what: str) -> None:
    with pytest.raises(BadInputError, match=what) as raised:
        open_engine(url)
    assert "canary" not in str(raised.value)


@pytest.mark.parametrize(
    "url", ["postgresql://u:canary@127.0.0.1:1/x?sslpassword=canary", "mysql://u:canary@127.0.0.1:1/x"]
)
def test_a_server_that_is_not_there_is_named_without_its_password(url: str) -> None:
    with pytest.raises(LedgerUnavailableError, match=r"u:\*\*\*@127.0.0.1:1/x did not answer") as raised:
        Ledger(url)
    assert "canary" not in str(raised.value)
