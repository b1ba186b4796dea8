"""The version of the tables, and URLs that can't be used."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import (
    Column,
    Connection,
    DateTime,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    inspect,
    text,
)

from airflow_kafka_offsets.core.errors import BadInputError, LedgerSchemaError, LedgerUnavailableError, NotYetError
from airflow_kafka_offsets.core.plan.ownership import Owner, Position
from airflow_kafka_offsets.core.tries import Try
from airflow_kafka_offsets.core.window import Lane, Outcome, Scope
from airflow_kafka_offsets.ledger import schema, steps
from airflow_kafka_offsets.ledger.engine import open_engine, reading, writing
from airflow_kafka_offsets.ledger.sql_ledger import SqlLedger
from airflow_kafka_offsets.ledger.tables import metadata
from tests.lab.history import follow_ids
from tests.ledger.examples import NOW, act, add, check_laws, claim, commit, group, succeed

if TYPE_CHECKING:
    from tests.lab.databases import MariaDB, Postgres


def test_the_revision_that_the_code_needs_is_the_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(schema.__file__).parent / "migrations"))
    assert ScriptDirectory.from_config(config).get_heads() == [schema.REVISION]


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


def test_a_step_of_a_migration_that_was_done_is_not_done_again() -> None:
    with create_engine("sqlite://").begin() as connection, Operations.context(MigrationContext.configure(connection)):
        for _ in range(2):
            steps.create_table("things", Column("id", Integer, primary_key=True))
            steps.add_column("things", Column("name", String(10)))
            steps.create_index("ix_things_name", "things", ["name"])
        found = inspect(connection)
        assert [column["name"] for column in found.get_columns("things")] == ["id", "name"]
        assert [index["name"] for index in found.get_indexes("things")] == ["ix_things_name"]


def upgrade_to(engine: Engine, revision: str) -> None:
    """Make the tables of an earlier version."""
    config = Config()
    config.set_main_option("script_location", str(Path(schema.__file__).parent / "migrations"))
    with writing(engine) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def fill(engine: Engine, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Insert rows, and return them as the database gives them back."""
    with engine.begin() as connection:
        for name in ("groups", "claims", "windows", "claim_windows", "attempts", "acts"):
            table = reflected(connection, f"kafka_offsets_{name}")
            rows = [
                {column: _typed(table.c[column], value) for column, value in row.items()} for row in tables[table.name]
            ]
            connection.execute(table.insert(), rows)
        follow_ids(connection)
    return rows_of(engine, {name: rows for name, rows in tables.items() if rows})


def _typed(column: Column[Any], value: Any) -> Any:
    """Return what SQLite has as text or a number as the value of another database's type."""
    if value is not None and isinstance(column.type, DateTime):
        return datetime.fromisoformat(value)
    return bool(value) if column.name == "is_capped" else value


def rows_of(engine: Engine, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of tables, in the columns that these rows have."""
    found = {}
    with engine.connect() as connection:
        for name, rows in tables.items():
            table = reflected(connection, name)
            query = table.select().order_by(*table.primary_key)
            found[name] = [{column: row._mapping[column] for column in rows[0]} for row in connection.execute(query)]
    return found


def reflected(connection: Connection, name: str) -> Table:
    """Return a table as it is."""
    return Table(name, MetaData(), autoload_with=connection)


class SchemaContract:
    """Each subclass gives an empty database of its own with a fixture `empty`."""

    keeps_what_was_made: ClassVar[bool] = False
    """Whether an upgrade that dies leaves what its statements have made; otherwise all of it is rolled back."""

    def test_an_empty_database_names_the_command(self, empty: str) -> None:
        with pytest.raises(LedgerSchemaError, match=r"(none \(no tables\)|no ledger).* kafka-offsets db upgrade"):
            SqlLedger(empty)
        assert shape(empty) == {}

    def test_a_database_that_is_behind_names_the_command(self, empty: str) -> None:
        self._at(empty, "0000")
        with pytest.raises(
            LedgerSchemaError, match=r"at revision 0000, and this package requires .* kafka-offsets db upgrade"
        ):
            SqlLedger(empty)

    @pytest.mark.parametrize("create", [False, True])
    def test_a_newer_database_is_left_alone(self, empty: str, create: bool) -> None:
        self._at(empty, "9999")
        with pytest.raises(LedgerSchemaError, match=r"newer than this package's .*db upgrade can't go back"):
            SqlLedger(empty, create=create)
        with pytest.raises(LedgerSchemaError, match="newer than this package's"):
            schema.upgrade(open_engine(empty))

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
            SqlLedger(empty)
        assert sorted(shape(empty)) == ["customers", "invoices"]

    def test_a_ledger_beside_the_tables_of_something_else_is_a_ledger(self, empty: str) -> None:
        self._execute(open_engine(empty), "CREATE TABLE customers (id INTEGER)")
        assert schema.upgrade(open_engine(empty), beside_others=True) == schema.REVISION
        assert SqlLedger(empty).groups() == []
        assert "customers" in shape(empty)

    def test_a_ledger_whose_making_was_not_finished_is_ours_also_beside_something_else(self, empty: str) -> None:
        self._at(empty, schema.REVISION)
        unfinish = f"DELETE FROM {schema.VERSION_TABLE}"
        self._execute(open_engine(empty), "CREATE TABLE customers (id INTEGER)", unfinish)
        with pytest.raises(LedgerSchemaError, match=r"at revision none .* kafka-offsets db upgrade$"):
            SqlLedger(empty)
        assert schema.upgrade(open_engine(empty)) == schema.REVISION

    def test_an_upgrade_can_be_repeated(self, empty: str) -> None:
        for _ in range(2):
            assert schema.upgrade(open_engine(empty)) == schema.REVISION
        assert SqlLedger(empty).groups() == []

    def test_a_ledger_of_an_earlier_version_keeps_every_row(self, empty: str) -> None:
        """Of the revision before, written by the code of that time: every state of a window, both lanes, 1,200 partitions, acts."""
        engine = open_engine(empty)
        upgrade_to(engine, "0004")
        written = fill(engine, json.loads(Path(__file__).with_name("ledger_0004.json").read_text()))
        assert schema.upgrade(engine) == schema.REVISION
        assert rows_of(engine, written) == written
        ledger = SqlLedger(empty)
        states = {row.held.window.seq: row.held.window.state.value for row in ledger.windows("lake")}
        named = "committed abandoned committed superseded superseded committed committed planned committed"
        assert [states[seq] for seq in sorted(states)] == named.split()
        state = ledger.load("lake")
        assert [held.window.id for held in state.open] == ["lake-000008"]
        assert state.owner == Owner("dag", "other")
        assert [act.kind for act in ledger.acts("lake")] == ["abandon", "reset", "take-over"]
        wide = ledger.window("wide-000001").held.window
        assert (len(wide.ranges), wide.span) == (1_200, sum(p % 7 + 1 for p in range(1_200)))
        assert [row.held.window.lane for row in ledger.windows("late")] == [Lane.BACKFILL, Lane.LIVE, Lane.LIVE]
        for name in ("lake", "wide", "late"):
            check_laws(ledger, name)
        # And work goes on.
        commit(ledger, ledger.window("lake-000008").held)
        assert ledger.load("lake").open == ()

    def test_attempts_of_an_older_ledger_are_kept_and_no_try_continues_them(self, empty: str) -> None:
        schema.upgrade(open_engine(empty))
        held = add(SqlLedger(empty), "lake", 0, 10)
        succeed(SqlLedger(empty), held)
        drop = "ALTER TABLE kafka_offsets_attempts DROP COLUMN series"
        self._execute(open_engine(empty), drop, f"UPDATE {schema.VERSION_TABLE} SET version_num = '0002'")
        schema.upgrade(open_engine(empty))
        [attempt] = SqlLedger(empty).attempts(held.window.id)
        assert (attempt.outcome, attempt.series) == (Outcome.SUCCEEDED, None)
        assert SqlLedger(empty).succeeded("lake", held.holder, Try()) == {}

    @pytest.mark.slow
    def test_an_upgrade_that_died_after_any_of_its_statements_can_be_repeated(self, empty: str) -> None:
        schema.upgrade(open_engine(empty))
        whole, statements = shape(empty), 1
        clear(empty)
        while dies(empty, statements):
            left = shape(empty)
            assert bool(left) is self.keeps_what_was_made, f"after {statements} statements"
            with pytest.raises(LedgerSchemaError, match="kafka-offsets db upgrade"):
                SqlLedger(empty)
            if left:  # otherwise the next upgrade repeats it: it begins with what this one has left
                assert schema.upgrade(open_engine(empty)) == schema.REVISION
                assert shape(empty) == whole, f"after {statements} statements"
                clear(empty)
            statements += 1
        assert shape(empty) == whole, "the last upgrade did not die"
        assert statements > len(whole), "each table is a statement, and it died after each"

    @pytest.mark.parametrize("is_half_way", [False, True])
    def test_the_owner_of_a_group_that_is_there_is_whose_run_cut_its_newest_live_window(
        self, empty: str, is_half_way: bool
    ) -> None:
        plan = claim("run-2", "plan", scope=Scope.RUN)
        mapped, elsewhere = claim("run-2", "load", map_index=0), replace(claim("run-3"), dag_id="replays")
        schema.upgrade(open_engine(empty))
        ledger = SqlLedger(empty)
        add(ledger, "lake", 0, 10, replace(claim(), dag_id="old"))
        cut = add(ledger, "lake", 10, 20, plan)
        ledger.hold(ledger.hold([cut], mapped, NOW), elsewhere, NOW)
        add(ledger, "lake", 0, 5, elsewhere, lane=Lane.BACKFILL, partitions=1)
        ledger.found(group("founded"), Position({}, {}), act("import"))
        self._back_to_0002(empty, "owner_task_id", *([] if is_half_way else ["owner_dag_id"]))
        assert schema.upgrade(open_engine(empty)) == schema.REVISION
        assert SqlLedger(empty).load("lake").owner == Owner("dag", "plan")
        assert SqlLedger(empty).load("founded").owner is None

    def _back_to_0002(self, url: str, *columns: str) -> None:
        """Make a ledger one of an earlier version, or what an upgrade left of it that died half-way."""
        self._execute(
            open_engine(url),
            f"UPDATE {schema.VERSION_TABLE} SET version_num = '0002'",
            "UPDATE kafka_offsets_groups SET owner_dag_id = NULL, owner_task_id = NULL",
            *(f"ALTER TABLE kafka_offsets_groups DROP COLUMN {column}" for column in columns),
        )

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
        assert SqlLedger(empty, create=True).groups() == []
        assert "A new ledger was made: sqlite:" in caplog.text
        assert "that is right for a first run" in caplog.text
        assert "If there was a ledger before" in caplog.text
        assert 'restore it, see "Keep the ledger" in the docs (docs/howto/keep-the-ledger.md)' in caplog.text
        caplog.clear()
        SqlLedger(empty, create=True)
        assert caplog.text == "", "it is there"

    def test_a_file_of_something_else_gets_no_ledger_on_first_use(self, empty: str) -> None:
        self._execute(open_engine(empty), "CREATE TABLE customers (id INTEGER)")
        with pytest.raises(LedgerSchemaError, match="db upgrade --beside-others"):
            SqlLedger(empty, create=True)
        assert sorted(shape(empty)) == ["customers"]

    def test_a_question_makes_no_file(self, empty: str, tmp_path: Path) -> None:
        with pytest.raises(
            LedgerSchemaError, match=r"There is no ledger in .* yet\. If the path is right, make it"
        ) as raised:
            SqlLedger(empty)
        assert f"kafka-offsets db upgrade --ledger {empty}" in str(raised.value)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("create", [False, True])
    def test_a_folder_that_is_not_there_is_named(self, tmp_path: Path, create: bool) -> None:
        file = tmp_path / "nowhere" / "ledger.db"
        with pytest.raises(NotYetError) as raised:
            SqlLedger(f"sqlite:///{file}", create=create)
        assert str(raised.value) == (
            f"There is no folder {file.parent} for the ledger sqlite:///{file}: check the path, or make the folder"
        )

    def test_a_file_that_is_something_else_is_an_error_of_the_ledger(self, tmp_path: Path) -> None:
        (tmp_path / "ledger.db").write_text("not a database, but long enough to be looked at " * 50)
        with pytest.raises(Exception, match="file is not a database") as raised:
            SqlLedger(f"sqlite:///{tmp_path / 'ledger.db'}", create=True)
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
        SqlLedger(url)
    assert "canary" not in str(raised.value)
