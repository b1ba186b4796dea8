"""Offsets in SQL tables: PostgreSQL, MariaDB and SQLite keep the contract, also in tables that others made."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Connection, create_engine, make_url, text
from sqlalchemy.pool import NullPool

from airflow_kafka_offsets.adapters.stores.sql import Layout, SqlStore
from airflow_kafka_offsets.core.errors import (
    BadInputError,
    ConcurrentChangeError,
    StoreContentError,
    StoreDriftError,
    StoreOutcomeUnknownError,
    StoreRefusedError,
    StoreUnavailableError,
    may_pass,
)
from airflow_kafka_offsets.ports import OffsetStore
from tests.lab.processes import LOOPBACK
from tests.lab.proxy import Proxy
from tests.lab.waiting import LONGEST
from tests.stores.contract import WRITERS, StoreContract, at

if TYPE_CHECKING:
    from tests.lab.databases import MariaDB, Postgres

NAME = "sql://db"
TIMEOUT = 60
"""Seconds: longer than a database needs while others have the machine."""


def compete(stores: list[OffsetStore], group: str, before: dict, after: Callable[[int], dict]) -> list[bool]:  # type: ignore[type-arg]
    """Let all advance at the same moment, and return who succeeded."""
    start = threading.Barrier(len(stores))

    def advance(number: int) -> bool:
        start.wait(LONGEST)
        try:
            stores[number].advance(group, before, after(number))
        except (StoreDriftError, ConcurrentChangeError):
            return False
        return True

    with ThreadPoolExecutor(len(stores)) as pool:
        return list(pool.map(advance, range(len(stores))))


class SqlContract(StoreContract):
    """Subclasses give `url`."""

    @pytest.fixture
    def url(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    def open_store(self, url: str) -> Callable[[], SqlStore]:
        return lambda: SqlStore(NAME, url, TIMEOUT, create=True)

    @pytest.fixture
    def store(self, open_store: Callable[[], SqlStore]) -> SqlStore:
        return open_store()

    # A table that someone made by hand

    @pytest.fixture
    def database(self, url: str) -> Iterator[Connection]:
        """Return a foreign client's connection; every statement is a transaction."""
        engine = create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
        with engine.connect() as connection:
            yield connection

    @pytest.fixture
    def table(self) -> str:
        """Return the name of a table that no other test has."""
        return f"my_offsets_{uuid.uuid4().hex[:8]}"

    def run(self, database: Connection, statement: str, **values: object) -> Any:
        """Run a statement as a hand-written job does; names in double quotes are quoted for the database."""
        return database.execute(text(self.quoted(statement)), values)

    def quoted(self, statement: str) -> str:
        return statement

    def test_a_hand_written_table_is_read_and_moved_as_its_job_would(
        self, url: str, database: Connection, table: str, group: str
    ) -> None:
        self.run(
            database,
            f'CREATE TABLE {table} (topic_name VARCHAR(200), consumer VARCHAR(100), "partition" INT, untiloffset BIGINT, '
            'PRIMARY KEY (topic_name, consumer, "partition"))',
        )
        for consumer, partition, offset in ((group, 0, 500), (group, 1, 0), ("another", 0, 7)):
            values = {"c": consumer, "p": partition, "o": offset}
            self.run(database, f"INSERT INTO {table} VALUES ('orders', :c, :p, :o)", **values)
        layout = Layout(table, topic="topic_name", group="consumer", offset="untiloffset", timestamp="")
        store = SqlStore(NAME, url, TIMEOUT, layout)
        assert store.read(group, ["orders", "other"]) == at("orders", 500, 0)
        store.advance(group, at("orders", 500, 0), at("orders", 600, 10, 20))
        rows = self.run(database, f'SELECT consumer, "partition", untiloffset FROM {table}').all()
        assert sorted(map(tuple, rows)) == [("another", 0, 7), (group, 0, 600), (group, 1, 10), (group, 2, 20)]

    def test_a_foreign_update_is_drift(self, store: SqlStore, database: Connection, group: str) -> None:
        store.advance(group, {}, at("t", 5, 10))
        self.run(database, 'UPDATE kafka_offsets SET "offset" = 99 WHERE group_id = :g AND "partition" = 1', g=group)
        with pytest.raises(StoreDriftError, match="t-1: found 99, expected"):
            store.advance(group, at("t", 5, 10), at("t", 6, 11))
        assert store.read(group, ["t"]) == at("t", 5, 99)

    def test_a_row_that_is_moved_between_look_and_write_is_noticed(
        self, store: SqlStore, database: Connection, group: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.advance(group, {}, at("t", 5, 10))
        once = store._write_once

        def overtaken(*args: Any) -> None:
            self.run(
                database, 'UPDATE kafka_offsets SET "offset" = 99 WHERE group_id = :g AND "partition" = 1', g=group
            )
            once(*args)

        monkeypatch.setattr(store, "_write_once", overtaken)
        with pytest.raises(StoreDriftError, match="t-1: found 99, expected"):
            store.advance(group, at("t", 5, 10), at("t", 6, 11))
        assert store.read(group, ["t"]) == at("t", 5, 99)

    def test_each_commit_leaves_the_databases_time(self, store: SqlStore, database: Connection, group: str) -> None:
        store.advance(group, {}, at("t", 5, 10))
        self.run(database, "UPDATE kafka_offsets SET timestamp = '2001-01-01 00:00:00' WHERE group_id = :g", g=group)
        store.advance(group, at("t", 5, 10), at("t", 6, 10, 3))
        query = "SELECT count(*) FROM kafka_offsets WHERE group_id = :g AND timestamp > '2002-01-01 00:00:00'"
        assert self.run(database, query, g=group).scalar() == 3

    @pytest.mark.parametrize("value", [None, "-1", "abc", "1.5", ""])
    def test_what_is_no_offset_is_named(
        self, url: str, database: Connection, table: str, group: str, value: str | None
    ) -> None:
        self.run(
            database,
            f'CREATE TABLE {table} (topic VARCHAR(99), group_id VARCHAR(99), "partition" INT, "offset" VARCHAR(20), '
            'PRIMARY KEY (topic, group_id, "partition"))',
        )
        self.run(database, f"INSERT INTO {table} VALUES ('t', :g, 3, :v)", g=group, v=value)
        store = SqlStore(NAME, url, TIMEOUT, Layout(table, timestamp=""))
        for ask in (lambda: store.read(group, ["t"]), lambda: store.advance(group, {}, at("t", 1, 1, 1, 1))):
            with pytest.raises(StoreContentError, match=f"{re.escape(repr(value))} as the offset of t-3"):
                ask()

    @pytest.mark.parametrize("kind", ["VARCHAR(20)", "DECIMAL(20)"])
    def test_numbers_in_other_types_of_columns_are_read_and_written(
        self, url: str, database: Connection, table: str, group: str, kind: str
    ) -> None:
        self.run(
            database,
            f'CREATE TABLE {table} (topic VARCHAR(99), group_id VARCHAR(99), "partition" INT, "offset" {kind}, '
            'PRIMARY KEY (topic, group_id, "partition"))',
        )
        store = SqlStore(NAME, url, TIMEOUT, Layout(table, timestamp=""))
        store.advance(group, {}, at("t", 5))
        store.advance(group, at("t", 5), at("t", 9_000_000_000))
        assert store.read(group, ["t"]) == at("t", 9_000_000_000)

    def test_a_table_without_a_key_is_read_and_not_written_and_two_rows_are_an_error(
        self, url: str, database: Connection, table: str, group: str
    ) -> None:
        self.run(
            database,
            f'CREATE TABLE {table} (topic VARCHAR(99), group_id VARCHAR(99), "partition" INT, "offset" BIGINT)',
        )
        self.run(database, f"INSERT INTO {table} VALUES ('t', :g, 0, 5)", g=group)
        store = SqlStore(NAME, url, TIMEOUT, Layout(table, timestamp=""))
        assert store.read(group, ["t"]) == at("t", 5)
        with pytest.raises(StoreRefusedError, match=rf"no unique key.*\n.*UNIQUE INDEX .* ON {table}"):
            store.advance(group, at("t", 5), at("t", 6))
        self.run(database, f"INSERT INTO {table} VALUES ('t', :g, 0, 6)", g=group)
        with pytest.raises(StoreContentError, match="several rows"):
            store.read(group, ["t"])

    def test_the_key_that_is_asked_for_is_enough(self, url: str, database: Connection, table: str, group: str) -> None:
        self.run(
            database,
            f'CREATE TABLE {table} (topic VARCHAR(99), group_id VARCHAR(99), "partition" INT, "offset" BIGINT)',
        )
        store = SqlStore(NAME, url, TIMEOUT, Layout(table, timestamp=""))
        with pytest.raises(StoreRefusedError) as caught:
            store.advance(group, {}, at("t", 6))
        command = re.search(r"and partition:\n +(.*)", str(caught.value))
        assert command
        database.exec_driver_sql(command[1])
        store.advance(group, {}, at("t", 6))
        assert store.read(group, ["t"]) == at("t", 6)

    def test_a_missing_table_comes_with_the_statement_that_makes_it(
        self, url: str, database: Connection, table: str, group: str
    ) -> None:
        store = SqlStore(NAME, url, TIMEOUT, Layout(table))
        for ask in (lambda: store.read(group, ["t"]), lambda: store.advance(group, {}, at("t", 5))):
            with pytest.raises(StoreRefusedError, match="CREATE TABLE") as caught:
                ask()
        command = re.search(r"make it:\n +(.*)", str(caught.value))
        assert command
        database.exec_driver_sql(command[1])
        store.advance(group, {}, at("t", 5))
        assert store.read(group, ["t"]) == at("t", 5)

    def test_a_column_that_is_not_there_is_named(self, url: str, store: SqlStore, group: str) -> None:
        store.advance(group, {}, at("t", 5))
        other = SqlStore(NAME, url, TIMEOUT, Layout(offset="next_offset"))
        with pytest.raises(StoreRefusedError, match="next_offset"):
            other.read(group, ["t"])

    def test_a_row_that_the_table_refuses_is_no_endless_competition(
        self, url: str, database: Connection, table: str, group: str
    ) -> None:
        self.run(
            database,
            f'CREATE TABLE {table} (topic VARCHAR(99), group_id VARCHAR(99), "partition" INT, "offset" BIGINT, '
            'CHECK ("offset" < 100), PRIMARY KEY (topic, group_id, "partition"))',
        )
        store = SqlStore(NAME, url, TIMEOUT, Layout(table, timestamp=""))
        with pytest.raises(StoreRefusedError, match=r"(?i)check"):
            store.advance(group, {}, at("t", 5, 100))
        assert store.read(group, ["t"]) == {}

    def test_the_first_advance_of_many_writers_has_one_winner(
        self, open_store: Callable[[], OffsetStore], store: SqlStore, group: str
    ) -> None:
        won = compete([open_store() for _ in range(WRITERS)], group, {}, lambda number: at("t", *[number] * 20))
        assert won.count(True) == 1
        assert store.read(group, ["t"]) == at("t", *[won.index(True)] * 20)

    def test_many_who_make_the_table_at_once_all_find_it(self, url: str, table: str, group: str) -> None:
        stores: list[OffsetStore] = [SqlStore(NAME, url, TIMEOUT, Layout(table), create=True) for _ in range(6)]
        won = compete(stores, group, {}, lambda number: at(f"t{number}", number))
        assert won == [True] * 6
        assert SqlStore(NAME, url, TIMEOUT, Layout(table)).read(group, ["t5"]) == at("t5", 5)


class Served(SqlContract):
    """A database with a server."""

    @pytest.fixture
    def proxied(self, url: str) -> Iterator[tuple[SqlStore, Proxy]]:
        parsed = make_url(url)
        assert parsed.port
        with Proxy(parsed.port) as proxy:
            through = parsed.set(host=LOOPBACK, port=proxy.port).render_as_string(hide_password=False)
            yield SqlStore(NAME, through, 2, create=True), proxy

    def test_a_lock_that_nobody_gives_back_ends_in_time(self, url: str, store: SqlStore, group: str) -> None:
        store.advance(group, {}, at("t", 5))
        with create_engine(url, poolclass=NullPool).connect() as hog:
            self.run(hog, 'UPDATE kafka_offsets SET "offset" = 5 WHERE group_id = :g', g=group)
            with pytest.raises(StoreUnavailableError, match=r"(?i)lock"):
                SqlStore(NAME, url, 3).advance(group, at("t", 5), at("t", 6))
        store.advance(group, at("t", 5), at("t", 6))

    def test_a_wrong_password_is_refused_and_not_shown(self, url: str, group: str) -> None:
        wrong = make_url(url).set(password="hunter2").render_as_string(hide_password=False)
        with pytest.raises(StoreRefusedError) as caught:
            SqlStore(NAME, wrong, TIMEOUT).read(group, ["t"])
        assert "hunter2" not in str(caught.value)

    def test_an_unknown_database_is_refused(self, url: str, group: str) -> None:
        wrong = make_url(url).set(database="nowhere").render_as_string(hide_password=False)
        with pytest.raises(StoreRefusedError, match="nowhere"):
            SqlStore(NAME, wrong, TIMEOUT).read(group, ["t"])

    def test_a_user_who_may_only_read_is_refused_when_he_writes(self, store: SqlStore, reader: str, group: str) -> None:
        store.advance(group, {}, at("t", 5))
        own = SqlStore(NAME, reader, TIMEOUT)
        assert own.read(group, ["t"]) == at("t", 5)
        own.advance(group, {}, at("t", 5))
        with pytest.raises(StoreRefusedError, match=r"(?i)denied"):
            own.advance(group, at("t", 5), at("t", 6))

    def test_a_commit_whose_answer_is_lost_is_of_unknown_outcome(
        self, proxied: tuple[SqlStore, Proxy], store: SqlStore, group: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.advance(group, {}, at("t", 5))
        through, proxy = proxied
        check = through._check_written

        def check_then_lose(*args: Any) -> None:
            check(*args)
            proxy.swallow_answers()

        monkeypatch.setattr(through, "_check_written", check_then_lose)
        with pytest.raises(StoreOutcomeUnknownError):
            through.advance(group, at("t", 5), at("t", 6))
        proxy.heal()
        assert store.read(group, ["t"]) == at("t", 6)
        through.advance(group, at("t", 5), at("t", 6))


class TestPostgres(Served):
    @pytest.fixture
    def url(self, postgres: Postgres) -> str:
        return postgres.url

    @pytest.fixture
    def reader(self, url: str, store: SqlStore, database: Connection, group: str) -> Iterator[str]:
        store.advance(f"{group}-first", {}, at("t", 1))
        database.exec_driver_sql("CREATE ROLE reader LOGIN PASSWORD 'reader-pw'")
        database.exec_driver_sql("GRANT SELECT ON kafka_offsets TO reader")
        yield make_url(url).set(username="reader", password="reader-pw").render_as_string(hide_password=False)
        database.exec_driver_sql("DROP OWNED BY reader")
        database.exec_driver_sql("DROP ROLE reader")

    def test_a_read_only_server_is_refused(self, url: str, store: SqlStore, group: str) -> None:
        store.advance(group, {}, at("t", 5))
        standby = make_url(url).update_query_dict({"options": "-c default_transaction_read_only=on"})
        own = SqlStore(NAME, standby.render_as_string(hide_password=False), TIMEOUT)
        with pytest.raises(StoreRefusedError, match="read-only"):
            own.advance(group, at("t", 5), at("t", 6))
        assert own.read(group, ["t"]) == at("t", 5)

    def test_stricter_isolation_ends_the_same(self, url: str, group: str) -> None:
        parsed = make_url(url).update_query_dict({"options": "-c default_transaction_isolation=serializable"})
        strict = parsed.render_as_string(hide_password=False)
        stores: list[OffsetStore] = [SqlStore(NAME, strict, TIMEOUT, create=True) for _ in range(8)]
        before = at("t", *[0] * 20)
        stores[0].advance(group, {}, before)
        won = compete(stores, group, before, lambda number: dict.fromkeys(before, 100 + number))
        assert won.count(True) == 1

    @pytest.mark.parametrize(
        ("statement", "after", "error"),
        [
            ("UPDATE", (6,), r"t-0: 5 instead of 6\. .*rule"),
            ("INSERT", (6, 3), r"t-1: no row instead of 3\. .*rule"),
        ],
    )
    def test_what_a_rule_swallows_is_no_success_and_is_taken_back(
        self, url: str, database: Connection, table: str, group: str, statement: str, after: tuple[int, ...], error: str
    ) -> None:
        store = self._store_in_a_table(url, database, table)
        store.advance(group, {}, at("t", 5))
        self.run(database, f"CREATE RULE deaf AS ON {statement} TO {table} DO INSTEAD NOTHING")
        with pytest.raises(StoreRefusedError, match=error):
            store.advance(group, at("t", 5), at("t", *after))
        assert store.read(group, ["t"]) == at("t", 5)

    def _store_in_a_table(self, url: str, database: Connection, table: str) -> SqlStore:
        self.run(
            database,
            f'CREATE TABLE {table} (topic text, group_id text, "partition" int, "offset" bigint, '
            'PRIMARY KEY (topic, group_id, "partition"))',
        )
        return SqlStore(NAME, url, TIMEOUT, Layout(table, timestamp=""))

    @pytest.mark.parametrize("wrong", ["NULL", "-1", 'NEW."offset" - 1'])
    def test_what_a_trigger_falsifies_is_taken_back(
        self, url: str, database: Connection, table: str, group: str, wrong: str
    ) -> None:
        store = self._store_in_a_table(url, database, table)
        store.advance(group, {}, at("t", 5, 7))
        database.exec_driver_sql(
            f"CREATE FUNCTION {table}_f() RETURNS trigger LANGUAGE plpgsql AS "
            f'$$ BEGIN IF NEW."partition" = 1 THEN NEW."offset" := {wrong}; END IF; RETURN NEW; END $$'
        )
        self.run(database, f"CREATE TRIGGER liar BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION {table}_f()")
        with pytest.raises(StoreRefusedError, match=r"values: t-1: (None|-1|8) instead of 9\. .*trigger"):
            store.advance(group, at("t", 5, 7), at("t", 6, 9))
        assert store.read(group, ["t"]) == at("t", 5, 7)

    def test_a_plain_read_that_loses_to_somebody_else_says_so(self, url: str, database: Connection, table: str) -> None:
        """A hot standby cancels reads with this code too."""
        self.run(
            database,
            f"CREATE FUNCTION {table}_f() RETURNS text LANGUAGE plpgsql AS $$ BEGIN "
            "RAISE 'could not serialize access' USING ERRCODE = '40001'; END $$",
        )
        self.run(
            database,
            f'CREATE VIEW {table} AS SELECT {table}_f() AS topic, \'g\' AS group_id, 0 AS "partition", 5 AS "offset"',
        )
        store = SqlStore(NAME, url, TIMEOUT, Layout(table))
        for ask in (lambda: store.read("g", ["t"]), lambda: store.advance("g", {}, at("t", 5))):
            with pytest.raises(
                StoreUnavailableError, match=r"another transaction went first .*could not serialize.*"
            ) as caught:
                ask()
            assert may_pass(caught.value)

    def test_another_schema(self, url: str, database: Connection, group: str) -> None:
        schema = f"s_{uuid.uuid4().hex[:8]}"
        self.run(database, f"CREATE SCHEMA {schema}")
        SqlStore(NAME, url, TIMEOUT, Layout(schema=schema), create=True).advance(group, {}, at("t", 5))
        rows = self.run(database, f'SELECT topic, "partition", "offset" FROM {schema}.kafka_offsets').all()
        assert rows == [("t", 0, 5)]

    @pytest.mark.postgres
    def test_the_server_dies_and_comes_back_with_what_was_answered(self, group: str) -> None:
        from tests.lab.databases import Postgres

        with Postgres() as server:
            store = SqlStore(NAME, server.url, 2, create=True)
            store.advance(group, {}, at("t", 5))
            server.kill()
            with pytest.raises(StoreUnavailableError):
                store.advance(group, at("t", 5), at("t", 6))
            server.start()
            store.advance(group, at("t", 5), at("t", 6))
            server.suspend()
            try:
                with pytest.raises(StoreUnavailableError):
                    store.advance(group, at("t", 6), at("t", 7))
            finally:
                server.resume()
            assert SqlStore(NAME, server.url, TIMEOUT).read(group, ["t"]) == at("t", 6)


class TestMariaDB(Served):
    def quoted(self, statement: str) -> str:
        return statement.replace('"', "`")

    @pytest.fixture
    def url(self, mariadb: MariaDB) -> str:
        return mariadb.url

    @pytest.fixture
    def reader(self, mariadb: MariaDB, url: str) -> str:
        mariadb.execute(
            f"CREATE USER IF NOT EXISTS reader@'{LOOPBACK}' IDENTIFIED BY 'reader-pw'",
            f"GRANT SELECT ON offsets.* TO reader@'{LOOPBACK}'",
        )
        return make_url(url).set(username="reader", password="reader-pw").render_as_string(hide_password=False)

    def test_a_read_only_server_is_refused(self, mariadb: MariaDB, store: SqlStore, group: str) -> None:
        store.advance(group, {}, at("t", 5))
        mariadb.execute("SET GLOBAL read_only = 1")
        try:
            with pytest.raises(StoreRefusedError, match="read-only"):
                store.advance(group, at("t", 5), at("t", 6))
        finally:
            mariadb.execute("SET GLOBAL read_only = 0")
        assert store.read(group, ["t"]) == at("t", 5)

    def test_names_that_the_collation_takes_for_the_same_are_an_error(
        self, url: str, database: Connection, table: str, group: str
    ) -> None:
        self.run(
            database,
            f"CREATE TABLE {table} (topic VARCHAR(200), group_id VARCHAR(100), `partition` INT, `offset` BIGINT, "
            "PRIMARY KEY (topic, group_id, `partition`)) COLLATE utf8mb4_general_ci",
        )
        self.run(database, f"INSERT INTO {table} VALUES ('orders', :g, 0, 5)", g=group)
        store = SqlStore(NAME, url, TIMEOUT, Layout(table, timestamp=""))
        assert store.read(group, ["Orders"]) == {}
        assert store.read(group.upper(), ["orders"]) == {}
        with pytest.raises(StoreContentError, match="takes 'orders' and 'Orders' for the same name"):
            store.advance(group, {}, at("Orders", 7))
        with pytest.raises(StoreContentError, match=f"{group}' and '{group.upper()}' for the same name"):
            store.advance(group.upper(), {}, at("orders", 7))
        store.advance(group, at("orders", 5), at("orders", 6))
        assert store.read(group, ["orders"]) == at("orders", 6)

    def test_a_table_without_transactions_is_not_written(
        self, url: str, database: Connection, table: str, group: str
    ) -> None:
        self.run(
            database,
            f"CREATE TABLE {table} (topic VARCHAR(100), group_id VARCHAR(100), `partition` INT, `offset` BIGINT, "
            "PRIMARY KEY (topic, group_id, `partition`)) ENGINE=MyISAM",
        )
        with pytest.raises(StoreRefusedError, match=r"MyISAM has no transactions:\n.*ENGINE = InnoDB"):
            SqlStore(NAME, url, TIMEOUT, Layout(table, timestamp="")).advance(group, {}, at("t", 5))

    def test_an_offset_that_a_narrow_column_clips_is_not_kept(
        self, url: str, database: Connection, table: str, group: str
    ) -> None:
        self.run(
            database,
            f"CREATE TABLE {table} (topic VARCHAR(99), group_id VARCHAR(99), `partition` INT, `offset` INT, "
            "PRIMARY KEY (topic, group_id, `partition`))",
        )
        # Any mode that is not strict: the server clips, and only warns.
        lax = make_url(url).update_query_dict({"sql_mode": "NO_ENGINE_SUBSTITUTION"})
        store = SqlStore(NAME, lax.render_as_string(hide_password=False), TIMEOUT, Layout(table, timestamp=""))
        store.advance(group, {}, at("t", 5, 7))
        clipped = r"t-0: 2147483647 instead of 9000000000\. .*column.*BIGINT"
        with pytest.raises(StoreRefusedError, match=clipped):
            store.advance(group, at("t", 5, 7), at("t", 9_000_000_000, 8))
        with pytest.raises(StoreRefusedError, match=clipped):
            store.advance(f"{group}-new", {}, at("t", 9_000_000_000))
        assert store.read(group, ["t"]) == at("t", 5, 7)
        assert store.read(f"{group}-new", ["t"]) == {}


class TestSQLite(SqlContract):
    """All but the faults of a network."""

    test_a_server_that_refuses_connections = None
    test_a_server_that_hangs = None
    test_a_server_that_went_away_and_came_back = None
    test_an_answer_that_is_lost_leaves_all_or_nothing = None
    test_a_connection_that_is_cut_leaves_all_or_nothing = None

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/offsets.db"

    def test_a_file_that_nobody_may_write_is_refused(self, url: str, store: SqlStore, group: str) -> None:
        store.advance(group, {}, at("t", 5))
        own = SqlStore(NAME, f"sqlite:///file:{make_url(url).database}?mode=ro&uri=true", 10)
        assert own.read(group, ["t"]) == at("t", 5)
        with pytest.raises(StoreRefusedError, match="readonly"):
            own.advance(group, at("t", 5), at("t", 6))

    def test_an_insert_that_a_trigger_swallows_takes_the_moved_rows_back(
        self, store: SqlStore, database: Connection, group: str
    ) -> None:
        store.advance(group, {}, at("t", 5))
        self.run(database, "CREATE TRIGGER deaf BEFORE INSERT ON kafka_offsets BEGIN SELECT RAISE(IGNORE); END")
        with pytest.raises(StoreRefusedError, match=r"t-1: no row instead of 3\. .*trigger"):
            store.advance(group, at("t", 5), at("t", 6, 3))
        assert store.read(group, ["t"]) == at("t", 5)

    def test_a_file_that_is_not_there_is_not_made_by_a_question(self, url: str, group: str) -> None:
        file = Path(str(make_url(url).database))
        store = SqlStore(NAME, url, TIMEOUT)
        for ask in (lambda: store.read(group, ["t"]), lambda: store.advance(group, {}, at("t", 5))):
            with pytest.raises(StoreRefusedError, match=f"no file {re.escape(str(file))} .*create=true"):
                ask()
            assert not file.exists()
        maker = SqlStore(NAME, url, TIMEOUT, create=True)
        assert maker.read(group, ["t"]) == {}
        assert not file.exists()
        maker.advance(group, {}, at("t", 5))
        assert store.read(group, ["t"]) == at("t", 5)

    def test_the_file_keeps_its_journal(self, store: SqlStore, database: Connection, group: str) -> None:
        store.advance(group, {}, at("t", 5))
        assert database.exec_driver_sql("PRAGMA journal_mode").scalar() == "delete"


@pytest.mark.parametrize("wrong", [{"offset": ""}, {"offset": "topic"}, {"table": ""}, {"timestamp": "offset"}])
def test_columns_without_a_name_of_their_own_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(BadInputError):
        Layout(**wrong)


def test_another_kind_of_database_is_refused() -> None:
    with pytest.raises(BadInputError, match="offset store"):
        SqlStore(NAME, "oracle://host/x", TIMEOUT)
