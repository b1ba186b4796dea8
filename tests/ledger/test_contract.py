"""What every ledger promises, on each database."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect

from airflow_kafka_offsets.adapters.ledger import schema, sql_ledger
from airflow_kafka_offsets.adapters.ledger.engine import open_engine
from airflow_kafka_offsets.adapters.ledger.sql_ledger import SqlLedger
from airflow_kafka_offsets.adapters.ledger.tables import metadata
from airflow_kafka_offsets.core.errors import (
    ConcurrentChangeError,
    IllegalStepError,
    LedgerError,
    UnknownWindowError,
)
from airflow_kafka_offsets.core.offsets import OffsetRange, TopicPartition
from airflow_kafka_offsets.core.ownership import GroupState, Position
from airflow_kafka_offsets.core.window import Lane, Outcome, Scope, State
from airflow_kafka_offsets.ports import Ledger
from tests.ledger.examples import NOW, act, add, check_laws, claim, commit, draft, group


class LedgerContract:
    """Each subclass says where the ledger is, with a fixture `url`."""

    def test_nothing_is_known_of_a_group_that_never_planned(self, ledger: Ledger, name: str) -> None:
        assert ledger.load(name, claim()) == GroupState()
        assert ledger.windows(name) == []
        assert ledger.acts(name) == []

    def test_a_window_is_read_back_as_it_was_written(self, ledger: Ledger, name: str) -> None:
        lost = {TopicPartition("orders", 1): OffsetRange(3, 5)}
        written = replace(draft(5, 9, lost=lost), until=NOW.astimezone(timezone(timedelta(hours=-7))))
        [held] = ledger.add_windows(group(name), 0, [written], claim(map_index=3, scope=Scope.RUN), NOW)
        row = ledger.window(held.window.id)
        assert row.held == held
        assert row.held.holder.scope is Scope.RUN
        assert (row.held.window.ranges, row.held.window.lost) == (written.ranges, written.lost)
        assert row.held.window.until == NOW
        assert row.held.window.until.tzinfo is UTC
        assert (row.planned_at, row.committed_at, row.attempts, row.records) == (NOW, None, 0, None)
        assert (held.window.id, held.window.lane, held.window.state) == (f"{name}-000001", Lane.LIVE, State.PLANNED)

    def test_the_next_window_starts_where_the_last_one_ends(self, ledger: Ledger, name: str) -> None:
        first = add(ledger, name, 0, 10)
        state = ledger.load(name, claim())
        assert (state.version, state.open, state.claimed) == (1, (first,), (first,))
        assert state.position == Position(first.window.ranges.ends, {"orders": "id-of-orders"})
        assert ledger.load(name, claim("other")).claimed == ()
        commit(ledger, first)
        assert ledger.load(name).open == ()
        second = add(ledger, name, 10, 20, claim("run-2"))
        assert second.window.seq == 2
        assert ledger.load(name).position == Position(second.window.ranges.ends, {"orders": "id-of-orders"})
        check_laws(ledger, name)

    @pytest.mark.parametrize("version", [0, 5])
    def test_a_version_that_is_not_the_groups_writes_nothing(self, ledger: Ledger, name: str, version: int) -> None:
        add(ledger, name, 0, 10)
        before = (ledger.load(name), ledger.windows(name), ledger.groups())
        with pytest.raises(ConcurrentChangeError):
            ledger.add_windows(group(name, max_offsets=7), version, [draft(10, 20)], claim("late"), NOW)
        with pytest.raises(ConcurrentChangeError):
            ledger.reset(name, version, Position({}, {}), [], act("reset"))
        assert (ledger.load(name), ledger.windows(name), ledger.groups()) == before

    def test_names_that_differ_only_in_case_are_different(self, ledger: Ledger, name: str) -> None:
        lower = add(ledger, name.lower(), 0, 10, claim("run-a"))
        upper = add(ledger, name.upper(), 0, 99, claim("run-A"))
        assert ledger.load(name.lower(), claim("run-a")).claimed == (lower,)
        assert ledger.load(name.upper(), claim("run-A")).claimed == (upper,)
        assert ledger.load(name.upper(), claim("run-a")).claimed == ()

    def test_any_script_is_kept(self, ledger: Ledger, name: str) -> None:
        held = add(ledger, name, 0, 10, claim("manual__zoë_注文_🦜"))
        ledger.abandon(held.window.id, replace(act(why="naïve 注文 🦜 \\ ' \" %s :x"), who="Zoë 🦜"))
        (recorded,) = ledger.acts(name)
        assert (recorded.who, recorded.why) == ("Zoë 🦜", "naïve 注文 🦜 \\ ' \" %s :x")
        assert ledger.window(held.window.id).held.holder.run_id == "manual__zoë_注文_🦜"

    def test_the_longest_names_fit(self, ledger: Ledger, name: str) -> None:
        longest = name.ljust(200, "x")
        who = claim("r" * 250, "t" * 250)
        held = add(ledger, longest, 0, 10, replace(who, dag_id="d" * 250), topic="t" * 249)
        assert ledger.load(longest, held.holder).claimed == (held,)

    def test_10000_partitions_and_the_largest_offsets_are_kept(self, ledger: Ledger, name: str) -> None:
        held = add(ledger, name, 2**62, 2**62 + 5, partitions=10_000)
        commit(ledger, held)
        assert ledger.window(held.window.id).held.window.ranges == held.window.ranges
        position = ledger.load(name).position
        assert position is not None
        assert position.offsets == held.window.ranges.ends

    def test_a_window_is_held_by_one_and_claimed_by_all_who_had_it(self, ledger: Ledger, name: str) -> None:
        first = add(ledger, name, 0, 10)
        second = ledger.hold([first], claim("run-2"))[0]
        assert second.holder == claim("run-2")
        assert ledger.load(name, claim()).claimed == (second,)
        assert ledger.load(name, claim("run-2")).claimed == (second,)
        third = ledger.hold([second], claim("run-2"))[0]
        assert (third.window, third.holder) == (second.window, second.holder)
        for stale in (first, second):  # the same holder again is another hold
            with pytest.raises(ConcurrentChangeError):
                ledger.hold([stale], claim("run-3"))[0]
        assert ledger.load(name, claim("run-3")).claimed == ()

    def test_a_window_that_changed_its_state_is_not_taken(self, ledger: Ledger, name: str) -> None:
        held = add(ledger, name, 0, 10)
        ledger.abandon(held.window.id, act())
        with pytest.raises(ConcurrentChangeError):
            ledger.hold([held], claim())[0]

    def test_all_windows_of_a_claim_are_known_oldest_first(self, ledger: Ledger, name: str) -> None:
        ledger.abandon(add(ledger, name, 0, 10).window.id, act())
        add(ledger, name, 0, 20)
        assert [(h.window.seq, h.window.state) for h in ledger.load(name, claim()).claimed] == [
            (1, State.ABANDONED),
            (2, State.PLANNED),
        ]

    def test_a_claim_has_a_window_in_each_group(self, ledger: Ledger, name: str) -> None:
        one, other = add(ledger, name, 0, 10), add(ledger, f"{name}-other", 0, 20)
        assert ledger.load(name, claim()).claimed == (one,)
        assert ledger.load(f"{name}-other", claim()).claimed == (other,)

    def test_a_claim_is_the_task_with_the_scope_that_it_has_now(self, ledger: Ledger, name: str) -> None:
        held = add(ledger, name, 0, 10, claim(scope=Scope.RUN))
        ledger.hold([held], claim(scope=Scope.TASK))[0]
        (now,) = ledger.load(name).open
        assert now.holder.scope is Scope.TASK

    def test_commit_twice_is_commit_once(self, ledger: Ledger, name: str) -> None:
        held = add(ledger, name, 0, 10)
        assert commit(ledger, held) is True
        row = ledger.window(held.window.id)
        assert (row.held.window.state, row.committed_at) == (State.COMMITTED, NOW)
        assert commit(ledger, held) is False
        assert ledger.window(held.window.id).committed_at == NOW

    def test_a_window_before_others_can_not_be_abandoned(self, ledger: Ledger, name: str) -> None:
        first, second = add(ledger, name, 0, 10), add(ledger, name, 10, 20, claim("run-2"))
        with pytest.raises(IllegalStepError, match="windows 2 to 2 start where it ends"):
            ledger.abandon(first.window.id, act())
        ledger.abandon(second.window.id, act())
        ledger.abandon(first.window.id, act())
        assert [a.kind for a in ledger.acts(name)] == ["abandon", "abandon"]
        check_laws(ledger, name)

    def test_what_the_first_window_chose_stays_although_it_is_abandoned(self, ledger: Ledger, name: str) -> None:
        first = add(ledger, name, 7, 10)
        ledger.abandon(first.window.id, act())
        assert ledger.load(name).position == Position(first.window.ranges.starts, {"orders": "id-of-orders"})

    def test_a_reset_moves_the_position_until_the_next_window(self, ledger: Ledger, name: str) -> None:
        held = add(ledger, name, 0, 10)
        commit(ledger, held)
        there = Position(dict.fromkeys(held.window.ranges, 50), {"orders": "another"})
        ledger.reset(name, ledger.load(name).version, there, [], act("reset", moves={"orders-0": [10, 50]}))
        assert ledger.load(name).position == there
        (recorded,) = ledger.acts(name)
        assert (recorded.kind, recorded.at, recorded.details) == ("reset", NOW, {"moves": {"orders-0": [10, 50]}})
        following = add(ledger, name, 50, 60, claim("run-2"))
        assert ledger.load(name).position == Position(following.window.ranges.ends, {"orders": "id-of-orders"})
        ledger.abandon(following.window.id, act())
        assert ledger.load(name).position == there

    def test_a_reset_supersedes_any_number_of_windows(
        self, ledger: Ledger, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sql_ledger, "MAX_PARAMETERS", 2)
        for i in range(5):
            commit(ledger, add(ledger, name, i, i + 1, claim(f"run-{i}")))
        ledger.reset(name, ledger.load(name).version, Position({}, {}), [1, 2, 3, 4, 5], act("reset"))
        assert {row.held.window.state for row in ledger.windows(name)} == {State.SUPERSEDED}

    def test_a_reset_that_would_supersede_another_state_writes_nothing(self, ledger: Ledger, name: str) -> None:
        held = add(ledger, name, 0, 10)
        before = ledger.load(name)
        with pytest.raises(ConcurrentChangeError):
            ledger.reset(name, before.version, Position({}, {}), [held.window.seq], act("reset"))
        assert ledger.load(name) == before
        assert ledger.acts(name) == []

    def test_attempts_are_the_history(self, ledger: Ledger, name: str) -> None:
        held = add(ledger, name, 0, 10)
        killed = ledger.start_attempt(held.window, held.holder, 1, 0, NOW)
        ledger.end_attempt(killed, Outcome.KILLED, None, NOW + timedelta(minutes=1))
        good = ledger.start_attempt(held.window, claim("run-2"), 2, 0, NOW)
        ledger.end_attempt(good, Outcome.SUCCEEDED, 2**40, NOW)
        ledger.end_attempt(good, Outcome.FAILED, None, NOW)
        ledger.start_attempt(held.window, claim("run-2"), 3, 0, NOW)
        history = ledger.attempts(held.window.id)
        assert [(a.try_number, a.outcome, a.records) for a in history] == [
            (1, Outcome.KILLED, None),
            (2, Outcome.SUCCEEDED, 2**40),
            (3, Outcome.RUNNING, None),
        ]
        assert [a.claim for a in history] == [claim(), claim("run-2"), claim("run-2")]
        assert (history[0].started_at, history[0].ended_at) == (NOW, NOW + timedelta(minutes=1))
        row = ledger.window(held.window.id)
        assert (row.attempts, row.records) == (3, 2**40)

    def test_windows_are_listed_newest_first_and_in_pages(self, ledger: Ledger, name: str) -> None:
        for i in range(5):
            held = add(ledger, name, i, i + 1, claim(f"run-{i}"))
            if i < 4:
                commit(ledger, held)

        def seqs(**wanted) -> list[int]:  # type: ignore[no-untyped-def]
            return [row.held.window.seq for row in ledger.windows(name, **wanted)]

        assert seqs() == [5, 4, 3, 2, 1]
        assert seqs(limit=2) == [5, 4]
        assert seqs(limit=2, before=4) == [3, 2]
        assert seqs(states=[State.COMMITTED]) == [4, 3, 2, 1]
        assert seqs(states=[State.PLANNED, State.ABANDONED]) == [5]
        assert seqs(lane=Lane.BACKFILL) == []
        assert len(seqs(lane=Lane.LIVE)) == 5

    def test_groups_are_listed_as_they_last_planned(self, ledger: Ledger, name: str) -> None:
        commit(ledger, add(ledger, name, 0, 10))
        ledger.add_windows(group(name, max_offsets=7), 1, [draft(10, 20)], claim("run-2"), NOW)
        assert [g for g in ledger.groups() if g.name == name] == [group(name, max_offsets=7)]

    def test_what_is_not_there_is_named(self, ledger: Ledger, name: str) -> None:
        for missing in (f"{name}-000001", f"{name}-000002"):
            for ask in (
                lambda missing=missing: ledger.window(missing),
                lambda missing=missing: ledger.commit(missing, claim(), None, NOW),
                lambda missing=missing: ledger.abandon(missing, act()),
            ):
                with pytest.raises(UnknownWindowError, match=name):
                    ask()
            if missing.endswith("1"):
                add(ledger, name, 0, 10)
                ledger.abandon(f"{name}-000001", act())
        assert ledger.attempts(f"{name}-000002") == []

    def test_the_migrations_make_the_tables_that_the_code_speaks_of(self, url: str) -> None:
        with open_engine(url).connect() as connection:
            context = MigrationContext.configure(
                connection,
                opts={
                    "version_table": schema.VERSION_TABLE,
                    "compare_type": True,
                    "include_name": lambda n, kind, _: kind != "table" or str(n).startswith("kafka_offsets_"),
                },
            )
            assert compare_metadata(context, metadata) == []
            columns = {t: {c["name"] for c in inspect(connection).get_columns(t)} for t in metadata.tables}
            assert columns == {t: set(table.columns.keys()) for t, table in metadata.tables.items()}


class TestSqlite(LedgerContract):
    """In a file."""

    @pytest.fixture
    def url(self, sqlite_url: str) -> str:
        """Return where the ledger is."""
        return sqlite_url


class _Server(LedgerContract):
    """What a server refuses has a type, too."""

    def test_a_value_that_the_database_refuses_is_an_error_of_the_ledger(self, ledger: Ledger, name: str) -> None:
        held = add(ledger, name, 0, 10)
        with pytest.raises(LedgerError, match="refused a statement") as raised:
            ledger.abandon(held.window.id, replace(act(), who="x" * 201))
        assert "test-pw" not in str(raised.value)
        assert ledger.window(held.window.id).held.window.state is State.PLANNED


class TestPostgres(_Server):
    """On a PostgreSQL server."""

    @pytest.fixture
    def url(self, postgres_url: str) -> str:
        """Return where the ledger is."""
        return postgres_url


class TestMariaDB(_Server):
    """On a MariaDB server."""

    @pytest.fixture
    def url(self, mariadb_url: str) -> str:
        """Return where the ledger is."""
        return mariadb_url

    def test_the_tables_are_transactional_and_names_are_exact(self, url: str) -> None:
        with open_engine(url).connect() as connection:
            for table in metadata.tables:
                (_, ddl) = connection.exec_driver_sql(f"SHOW CREATE TABLE {table}").one()
                assert "ENGINE=InnoDB" in ddl


def test_ledgers_opened_at_different_times_are_the_same(sqlite_url: str, name: str) -> None:
    add(SqlLedger(sqlite_url), name, 0, 10)
    assert SqlLedger(sqlite_url).load(name).version == 1


def test_a_time_without_a_zone_is_refused(sqlite_url: str, name: str) -> None:
    late = replace(draft(0, 1), until=datetime(2026, 1, 1))
    with pytest.raises(Exception, match="has no time zone"):
        SqlLedger(sqlite_url).add_windows(group(name), 0, [late], claim(), NOW)
