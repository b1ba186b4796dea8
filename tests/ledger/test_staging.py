"""Output in the ledger's database: its rows are there exactly when the window is committed, on each database."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, inspect, text

from airflow_kafka_offsets.core.errors import ConcurrentChangeError, OutputError
from airflow_kafka_offsets.core.run import Try
from airflow_kafka_offsets.core.window import Outcome, State, WindowRecord
from airflow_kafka_offsets.ledger import engine
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.spark.sinks.jdbc_sql import stage_name
from tests.lab.waiting import LONGEST
from tests.ledger.examples import NOW, act, add, claim


@cache
def kept_engine(url: str) -> Engine:
    """Return an engine that keeps its connections: with each new one, PyMySQL would read the certificates of all authorities."""
    return create_engine(url)


class Warehouse:
    """Tables beside a ledger's, and jobs that stage for them as the job side does."""

    def __init__(self, url: str, engine: Engine | None = None) -> None:
        self.engine = engine or kept_engine(url)
        self.table = f"orders_{uuid.uuid4().hex[:8]}"
        self.run(f"CREATE TABLE {self.table} (n INTEGER UNIQUE, window_id VARCHAR(255))")
        self._tries = 0
        self._made: list[str] = []

    def run(self, *statements: str, **values: Any) -> None:
        with self.engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement), values)

    def numbers(self, window: str | None = None) -> list[int]:
        where = "WHERE window_id = :window" if window else ""
        with self.engine.connect() as connection:
            rows = connection.execute(
                text(f"SELECT n FROM {self.table} {where} ORDER BY n"), {"window": window} if window else {}
            )
            return [row.n for row in rows]

    def stage(self, held: WindowRecord, numbers: range, *, is_noted: bool = True, table: str | None = None) -> str:
        """Do what a try of the window's job does: fill a table of its own, and note it."""
        self._tries += 1
        table = table or self.table
        name = stage_name(held.window.id, table, NOW + timedelta(seconds=self._tries), f"{self._tries:06x}")
        self._made.append(name)
        self.run(f"CREATE TABLE {name} AS SELECT n FROM {self.table} WHERE 1 = 0")
        if numbers:
            self.run(f"INSERT INTO {name} (n) VALUES " + ", ".join(f"({n})" for n in numbers))
        if is_noted:
            self.run(
                "INSERT INTO kafka_offsets_staged (window_id, target, staging, column_names, row_count) "
                "VALUES (:window, :target, :staging, :columns, :rows)",
                window=held.window.id,
                target=table,
                staging=name,
                columns=json.dumps(["n"]),
                rows=len(numbers),
            )
        return name

    def stages(self) -> list[str]:
        return sorted({*inspect(self.engine).get_table_names()}.intersection(self._made))


def succeed(ledger: Ledger, held: WindowRecord) -> int:
    attempt = ledger.start_attempt(held.id, held.holder, Try(), NOW)
    ledger.end_attempt(attempt, Outcome.SUCCEEDED, held.window.span, NOW)
    return attempt


class OutputContract:
    """Each subclass says where the ledger is, with a fixture `url`."""

    @pytest.fixture
    def warehouse(self, url: str) -> Iterator[Warehouse]:
        """Return tables beside the ledger's."""
        warehouse = Warehouse(url)
        yield warehouse
        warehouse.run(*[f"DROP TABLE {name}" for name in warehouse.stages()])

    def commit(
        self, ledger: Ledger, warehouse: Warehouse, held: WindowRecord, attempt: int | None, **more: Any
    ) -> bool:
        return ledger.commit(held.window.id, held.holder, attempt, NOW, output=(warehouse.table,), **more)

    def state(self, ledger: Ledger, held: WindowRecord) -> State:
        return ledger.window(held.window.id).window.state

    @pytest.mark.parametrize("again", [range(3), range(20), range(0)], ids=["fewer", "more", "nothing"])
    def test_a_commit_publishes_and_that_of_a_rerun_replaces(
        self, ledger: Ledger, warehouse: Warehouse, name: str, again: range
    ) -> None:
        held = add(ledger, name, 0, 10)
        warehouse.stage(held, range(10))
        assert warehouse.numbers() == []
        assert self.commit(ledger, warehouse, held, succeed(ledger, held)) is True
        assert warehouse.numbers(held.window.id) == [*range(10)]
        warehouse.stage(held, again)
        assert warehouse.numbers() == [*range(10)], "a rerun that is not committed shows nothing"
        assert self.commit(ledger, warehouse, held, succeed(ledger, held)) is False
        assert warehouse.numbers(held.window.id) == [*again]
        assert warehouse.stages() == []

    def test_rows_that_are_there_before_the_first_commit_of_their_window_are_another_windows_and_stay(
        self, ledger: Ledger, warehouse: Warehouse, name: str
    ) -> None:
        """As when the ledger was lost and made again, and the tables beside it were not."""
        held = add(ledger, name, 80, 100)
        warehouse.run(f"INSERT INTO {warehouse.table} (n, window_id) VALUES (1, '{held.window.id}')")
        warehouse.stage(held, range(80, 100))
        attempt = succeed(ledger, held)
        look = rf"\n    SELECT \* FROM {warehouse.table} WHERE window_id = '{held.window.id}'$"
        with pytest.raises(OutputError, match=f"has 1 row of .* this ledger never .* only copy.*{look}") as raised:
            self.commit(ledger, warehouse, held, attempt)
        assert "DELETE" not in str(raised.value)
        assert (self.state(ledger, held), warehouse.numbers()) == (State.PLANNED, [1])
        warehouse.run(f"DELETE FROM {warehouse.table} WHERE window_id = '{held.window.id}'")
        assert self.commit(ledger, warehouse, held, attempt) is True
        assert warehouse.numbers() == [*range(80, 100)]

    @pytest.mark.parametrize("leave_committing", [False, True])
    def test_a_commit_by_hand_publishes_what_was_staged_last_or_nothing_at_all(
        self, ledger: Ledger, warehouse: Warehouse, name: str, leave_committing: bool
    ) -> None:
        held = add(ledger, name, 0, 10)
        by_hand = {"leave_committing": leave_committing, "output": (warehouse.table,)}
        with pytest.raises(OutputError, match="staged nothing"):
            ledger.commit_by_hand(held.window.id, act("commit"), **by_hand)
        assert (self.state(ledger, held), ledger.acts(name)) == (State.PLANNED, [])
        warehouse.stage(held, range(4))
        warehouse.stage(held, range(10))
        ledger.commit_by_hand(held.window.id, act("commit"), **by_hand)
        assert warehouse.numbers(held.window.id) == [*range(10)]
        assert self.state(ledger, held) is (State.COMMITTING if leave_committing else State.COMMITTED)

    def test_windows_stand_side_by_side(self, ledger: Ledger, warehouse: Warehouse, name: str) -> None:
        warehouse.run(f"INSERT INTO {warehouse.table} (n) VALUES (77)")
        for start in (0, 10):
            held = add(ledger, name, start, start + 10)
            warehouse.stage(held, range(start, start + 3))
            self.commit(ledger, warehouse, held, succeed(ledger, held))
        assert warehouse.numbers() == [0, 1, 2, 10, 11, 12, 77]

    def test_a_commit_that_is_tried_again_changes_nothing(
        self, ledger: Ledger, warehouse: Warehouse, name: str
    ) -> None:
        held = add(ledger, name, 0, 10)
        warehouse.stage(held, range(10))
        attempt = succeed(ledger, held)
        answers = [self.commit(ledger, warehouse, held, attempt) for _ in range(3)]
        assert answers == [True, False, False]
        assert warehouse.numbers() == [*range(10)]

    def test_what_is_committed_in_two_steps_is_published_in_the_first(
        self, ledger: Ledger, warehouse: Warehouse, name: str
    ) -> None:
        held = add(ledger, name, 0, 10)
        warehouse.stage(held, range(10))
        attempt = succeed(ledger, held)
        for _ in range(2):
            assert self.commit(ledger, warehouse, held, attempt, leave_committing=True) is True
            assert (self.state(ledger, held), warehouse.numbers()) == (State.COMMITTING, [*range(10)])
        ledger.finish(name, ledger.load(name).version, [held.window.seq], NOW)
        assert (self.state(ledger, held), warehouse.numbers()) == (State.COMMITTED, [*range(10)])

    def test_nothing_is_committed_for_which_nothing_was_staged(
        self, ledger: Ledger, warehouse: Warehouse, name: str
    ) -> None:
        held = add(ledger, name, 0, 10)
        warehouse.stage(held, range(10), is_noted=False)
        with pytest.raises(OutputError, match=f"staged nothing for {warehouse.table}"):
            self.commit(ledger, warehouse, held, succeed(ledger, held))
        assert self.state(ledger, held) is State.PLANNED
        warehouse.stage(held, range(4))
        assert self.commit(ledger, warehouse, held, succeed(ledger, held)) is True
        with pytest.raises(OutputError, match="staged nothing"):
            self.commit(ledger, warehouse, held, succeed(ledger, held))
        assert warehouse.numbers() == [*range(4)]

    def test_an_empty_window_has_no_output(self, ledger: Ledger, warehouse: Warehouse, name: str) -> None:
        held = add(ledger, name, 5, 5)
        assert self.commit(ledger, warehouse, held, None) is True

    def test_what_the_table_refuses_is_not_committed_and_the_commit_can_be_tried_again(
        self, ledger: Ledger, warehouse: Warehouse, name: str
    ) -> None:
        warehouse.run(f"INSERT INTO {warehouse.table} (n) VALUES (5)")
        held = add(ledger, name, 0, 10)
        staging = warehouse.stage(held, range(10))
        attempt = succeed(ledger, held)
        with pytest.raises(OutputError, match=f"refused its rows for {warehouse.table} .*(?i:unique|duplicate)"):
            self.commit(ledger, warehouse, held, attempt)
        assert (self.state(ledger, held), warehouse.numbers()) == (State.PLANNED, [5])
        assert warehouse.stages() == [staging]
        warehouse.run(f"DELETE FROM {warehouse.table}")
        assert self.commit(ledger, warehouse, held, attempt) is True
        assert warehouse.numbers() == [*range(10)]

    def test_staged_rows_that_are_not_there_any_more_are_not_committed(
        self, ledger: Ledger, warehouse: Warehouse, name: str
    ) -> None:
        held = add(ledger, name, 0, 10)
        staging = warehouse.stage(held, range(10))
        attempt = succeed(ledger, held)
        warehouse.run(f"DELETE FROM {staging} WHERE n = 3")
        with pytest.raises(OutputError, match=r"has 9 of the 10 rows that the job staged for "):
            self.commit(ledger, warehouse, held, attempt)
        warehouse.run(f"DROP TABLE {staging}")
        with pytest.raises(OutputError, match="refused its rows"):
            self.commit(ledger, warehouse, held, attempt)
        assert (self.state(ledger, held), warehouse.numbers()) == (State.PLANNED, [])

    def test_older_tries_are_over_with_the_commit_and_a_younger_one_is_left_alone(
        self, ledger: Ledger, warehouse: Warehouse, name: str
    ) -> None:
        held = add(ledger, name, 0, 10)
        warehouse.stage(held, range(1))
        warehouse.stage(held, range(2), is_noted=False)
        warehouse.stage(held, range(3))
        young = warehouse.stage(held, range(4), is_noted=False)
        self.commit(ledger, warehouse, held, succeed(ledger, held))
        assert warehouse.numbers() == [0, 1, 2]
        assert warehouse.stages() == [young]
        warehouse.run(f"DROP TABLE {young}")

    def test_exactly_one_of_competing_commits_publishes(self, ledger: Ledger, warehouse: Warehouse, name: str) -> None:
        with ThreadPoolExecutor(6) as pool:
            for start in range(0, 30, 10):
                held = add(ledger, name, start, start + 10)
                warehouse.stage(held, range(start, start + 10))
                attempt = succeed(ledger, held)
                together = threading.Barrier(6)

                def compete(held: WindowRecord = held, attempt: int = attempt, together: Any = together) -> Any:
                    together.wait(LONGEST)
                    try:
                        return self.commit(ledger, warehouse, held, attempt)
                    except ConcurrentChangeError:
                        return "lost"

                answers = [job.result() for job in [pool.submit(compete) for _ in range(6)]]
                assert answers.count(True) == 1, answers
                assert warehouse.numbers(held.window.id) == [*range(start, start + 10)]
                warehouse.stage(held, range(start, start + 5))
                attempt = succeed(ledger, held)
                answers = [job.result() for job in [pool.submit(compete, attempt=attempt) for _ in range(6)]]
                assert set(answers) <= {False, "lost"}, answers
                assert False in answers
                assert warehouse.numbers(held.window.id) == [*range(start, start + 5)]
        assert warehouse.stages() == []

    def test_two_tables_are_published_together_or_not_at_all(
        self, ledger: Ledger, warehouse: Warehouse, name: str
    ) -> None:
        lines = f"{warehouse.table}_lines"
        warehouse.run(f"CREATE TABLE {lines} (n INTEGER, window_id VARCHAR(255))")
        held = add(ledger, name, 0, 10)
        warehouse.stage(held, range(10))
        attempt = succeed(ledger, held)
        both = (warehouse.table, lines)
        with pytest.raises(OutputError, match=f"staged nothing for {lines}"):
            ledger.commit(held.window.id, held.holder, attempt, NOW, output=both)
        assert warehouse.numbers() == []
        warehouse.stage(held, range(5), table=lines)
        assert ledger.commit(held.window.id, held.holder, attempt, NOW, output=both) is True
        assert warehouse.numbers() == [*range(10)]
        assert warehouse.stages() == []

    def test_what_others_wrote_into_the_register_drops_no_table_of_theirs(
        self, ledger: Ledger, warehouse: Warehouse, name: str
    ) -> None:
        held = add(ledger, name, 0, 10, claim())
        warehouse.run(
            "INSERT INTO kafka_offsets_staged (window_id, target, staging, column_names, row_count) "
            "VALUES (:window, :target, 'kafka_offsets_acts', '[]', 0)",
            window=held.window.id,
            target=warehouse.table,
        )
        with pytest.raises(OutputError, match="not the name of a staging table"):
            self.commit(ledger, warehouse, held, succeed(ledger, held))
        warehouse.stage(held, range(3))
        assert self.commit(ledger, warehouse, held, succeed(ledger, held)) is True
        assert ledger.acts(name) == []


class ServerOutputContract(OutputContract):
    """What holds on a server, where a transaction locks rows and not the whole database."""

    def test_the_next_windows_job_notes_what_it_staged_while_this_one_is_published(
        self, url: str, warehouse: Warehouse, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(engine, "LOCK_TIMEOUT", 300)
        monkeypatch.setitem(engine._MYSQL_ARGS, "init_command", "SET innodb_lock_wait_timeout = 300")
        monkeypatch.setitem(engine._MYSQL_ARGS, "read_timeout", 400)
        ledger = Ledger(url)
        held, following = add(ledger, name, 0, 10), add(ledger, name, 10, 20)
        warehouse.stage(held, range(10))
        attempt = succeed(ledger, held)
        with ThreadPoolExecutor(2) as pool, warehouse.engine.connect() as slow:
            slow.execute(text(f"INSERT INTO {warehouse.table} (n) VALUES (5)"))  # a publication that takes its time
            commit = pool.submit(self.commit, ledger, warehouse, held, attempt)
            with pytest.raises(TimeoutError):
                commit.result(timeout=3)
            noted = pool.submit(warehouse.stage, following, range(10, 20))
            try:
                noted.result(timeout=200)
            finally:
                slow.rollback()
            assert commit.result(LONGEST) is True
        assert self.commit(ledger, warehouse, following, succeed(ledger, following)) is True
        assert warehouse.numbers() == [*range(20)]


class TestSqlite(OutputContract):
    """In a file."""

    @pytest.fixture
    def url(self, sqlite_url: str) -> str:
        """Return where the ledger is."""
        return sqlite_url


class TestPostgres(ServerOutputContract):
    """On a PostgreSQL server."""

    @pytest.fixture
    def url(self, postgres_url: str) -> str:
        """Return where the ledger is."""
        return postgres_url

    def test_a_staging_table_that_can_not_be_dropped_keeps_no_other_one(
        self, ledger: Ledger, warehouse: Warehouse, name: str
    ) -> None:
        kept = ""
        for start in (0, 10):
            held = add(ledger, name, start, start + 10)
            staging = warehouse.stage(held, range(start, start + 10))
            if not kept:
                kept = staging
                warehouse.run(f"CREATE VIEW seen_{kept[-30:]} AS SELECT n FROM {kept}")
            self.commit(ledger, warehouse, held, succeed(ledger, held))
        assert warehouse.numbers() == [*range(20)]
        assert warehouse.stages() == [kept]
        warehouse.run(f"DROP VIEW seen_{kept[-30:]}")


class TestMariaDB(ServerOutputContract):
    """On a MariaDB server."""

    @pytest.fixture
    def url(self, mariadb_url: str) -> str:
        """Return where the ledger is."""
        return mariadb_url

    def test_a_table_that_takes_nothing_back_is_refused(self, ledger: Ledger, warehouse: Warehouse, name: str) -> None:
        warehouse.run(f"ALTER TABLE {warehouse.table} ENGINE = MyISAM")
        held = add(ledger, name, 0, 10)
        warehouse.stage(held, range(10))
        with pytest.raises(OutputError, match=f"\n    ALTER TABLE {warehouse.table} ENGINE = InnoDB$"):
            self.commit(ledger, warehouse, held, succeed(ledger, held))
        assert (self.state(ledger, held), warehouse.numbers()) == (State.PLANNED, [])
