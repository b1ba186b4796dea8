"""Sixteen processes compete: exactly one wins, the others are told so in a type, and the laws hold afterwards."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from airflow_kafka_offsets.core.errors import ConcurrentChangeError
from airflow_kafka_offsets.core.window import Lane, State
from airflow_kafka_offsets.ledger import acts
from airflow_kafka_offsets.ledger.ledger import Ledger
from tests.ledger import races
from tests.ledger.examples import act, add, add_all, check_laws, claim, commit, draft, succeed
from tests.ledger.pooled import ledger_at
from tests.ledger.races import PROCESSES, ROUNDS, Answer, Competition

LOST = "ConcurrentChangeError"


def _names(name: str) -> list[str]:
    return [f"{name}-{i}" for i in range(ROUNDS)]


def _winners(answers: list[Answer], *losing: str) -> list[Answer]:
    """Return who won; all others must have got one of the typed answers."""
    errors = Counter(a.error for a in answers if a.error is not None)
    assert errors.keys() <= {LOST, *losing}, errors
    return [a for a in answers if a.error is None]


class StrictRaces:
    """The races that also run where the database is stricter than we ask for."""

    def test_the_next_window_is_planned_by_one(self, competition: Competition, url: str, name: str) -> None:
        ledger = ledger_at(url)
        for group in _names(name):
            commit(ledger, add(ledger, group, 0, 10))
        for group, answers in zip(_names(name), competition.race(races.plan, url, _names(name)), strict=True):
            assert [a.value for a in _winners(answers)] == [f"{group}-000002"]
            check_laws(ledger, group)

    def test_a_window_is_committed_or_abandoned(self, competition: Competition, url: str, name: str) -> None:
        ledger = ledger_at(url)
        for group in _names(name):
            succeed(ledger, add(ledger, group, 0, 10))
        all_answers = competition.race(races.commit_or_abandon, url, _names(name))
        for group, answers in zip(_names(name), all_answers, strict=True):
            values = Counter(a.value for a in _winners(answers, "IllegalStepError"))
            values.pop("was committed", None)
            (winner,) = values.elements()
            state = ledger.window(f"{group}-000001").window.state
            assert (winner, state) in ((True, State.COMMITTED), ("abandoned", State.ABANDONED))
            assert len(ledger.acts(group)) == (state is State.ABANDONED)
            check_laws(ledger, group)

    def test_a_backlog_is_drained_without_an_offset_read_twice(
        self, competition: Competition, url: str, name: str
    ) -> None:
        (answers,) = competition.race(races.drain, url, [name])
        assert all(a.error is None for a in answers), answers
        ledger = ledger_at(url)
        rows = [row for row in ledger.windows(name, limit=1000) if row.window.state is State.COMMITTED]
        assert sum(a.value for a in answers) == len(rows) > 0
        check_laws(ledger, name)

    def test_a_backlog_is_drained_by_several_at_once_without_an_offset_read_twice(
        self, competition: Competition, url: str, name: str
    ) -> None:
        (answers,) = competition.race(races.drain_several, url, [name])
        assert all(a.error is None for a in answers), answers
        ledger = ledger_at(url)
        rows = ledger.windows(name, limit=1000)
        committed = [row for row in rows if row.window.state is State.COMMITTED]
        assert sum(a.value for a in answers) == len(committed) > 0
        assert len(rows) - len(committed) <= 4
        check_laws(ledger, name)

    def test_offsets_that_nobody_owned_get_one_owner_whoever_replays_them(
        self, competition: Competition, url: str, name: str
    ) -> None:
        ledger = ledger_at(url)
        for group in _names(name):
            first = replace(draft(100, 110), topic_ids={"orders": "id-1"})  # as the competing processes know it
            commit(ledger, *add_all(ledger, group, [first]))
        for group, answers in zip(_names(name), competition.race(races.replay, url, _names(name)), strict=True):
            winners = _winners(answers, "WindowBusyError")
            assert winners
            given = Counter(id_ for a in winners for id_ in a.value)
            assert set(given.values()) == {1}
            rows = ledger.windows(group, lane=Lane.BACKFILL, limit=1000)
            assert set(given) == {row.window.id for row in rows}
            check_laws(ledger, group)


class Races(StrictRaces):
    """Each subclass says where the ledger is."""

    def test_the_first_window_is_planned_by_one(self, competition: Competition, url: str, name: str) -> None:
        for group, answers in zip(_names(name), competition.race(races.plan, url, _names(name)), strict=True):
            assert [a.value for a in _winners(answers)] == [f"{group}-000001"]
            check_laws(ledger_at(url), group)

    def test_a_dead_runs_window_is_adopted_by_one(self, competition: Competition, url: str, name: str) -> None:
        ledger = ledger_at(url)
        for group in _names(name):
            add(ledger, group, 0, 10, claim("dead"))
        for group, answers in zip(_names(name), competition.race(races.adopt, url, _names(name)), strict=True):
            assert len(_winners(answers)) == 1
            claims = [ledger.load(group, claim(f"run-{i}")).claimed for i in range(PROCESSES)]
            (adopted,) = [c for c in claims if c]
            assert ledger.load(group).open == adopted

    def test_a_window_is_committed_by_one(self, competition: Competition, url: str, name: str) -> None:
        ledger = ledger_at(url)
        for group in _names(name):
            succeed(ledger, add(ledger, group, 0, 10))
        for group, answers in zip(_names(name), competition.race(races.commit, url, _names(name)), strict=True):
            values = Counter(a.value for a in _winners(answers))
            assert values.pop(True) == 1
            assert values.keys() <= {"was committed"}
            check_laws(ledger, group)

    def test_a_group_is_reset_or_goes_on(self, competition: Competition, url: str, name: str) -> None:
        ledger = ledger_at(url)
        for group in _names(name):
            commit(ledger, add(ledger, group, 0, 10))
        for group, answers in zip(_names(name), competition.race(races.plan_or_reset, url, _names(name)), strict=True):
            (winner,) = _winners(answers)
            assert len(ledger.acts(group)) == (winner.value == "reset")
            assert len(ledger.windows(group)) == 1 + (winner.value != "reset")
            check_laws(ledger, group)


@pytest.mark.slow
class TestSqlite(Races):
    """In a file."""

    @pytest.fixture
    def url(self, sqlite_url: str) -> str:
        """Return where the ledger is."""
        return sqlite_url

    def test_a_new_file_is_switched_to_its_write_ahead_log_by_all_at_once(
        self, competition: Competition, tmp_path: Path
    ) -> None:
        """SQLite refuses the second at once, without waiting as it does otherwise."""
        answers = competition.connect([f"sqlite:///{tmp_path / f'new-{i}.db'}" for i in range(60)])
        assert {a.error for by_file in answers for a in by_file} == {None}

    def test_a_new_file_is_made_by_all_at_once(self, competition: Competition, tmp_path: Path, name: str) -> None:
        for i in range(3):
            url = f"sqlite:///{tmp_path / f'new-{i}.db'}"
            answers = competition.open_new(url, name)
            # Who comes late sees the first window, and plans the next.
            assert _winners(answers)
            check_laws(Ledger(url), name)


class TestPostgres(Races):
    """On a PostgreSQL server."""

    @pytest.fixture
    def url(self, postgres_url: str) -> str:
        """Return where the ledger is."""
        return postgres_url

    def test_a_gap_that_another_abandonment_seems_to_leave_is_not_asked_about(
        self, url: str, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ledger, other = ledger_at(url), Ledger(url)
        held = add(ledger, name, 0, 10)
        look = acts.positions_of

        def look_too_late(*args: Any) -> Any:
            monkeypatch.undo()
            other.abandon(held.window.id, act())
            return look(*args)

        monkeypatch.setattr(acts, "positions_of", look_too_late)
        with pytest.raises(ConcurrentChangeError):
            ledger.abandon(held.window.id, act())
        assert len(ledger.acts(name)) == 1


class TestStrictPostgres(StrictRaces):
    """On a PostgreSQL server whose transactions fail when another was faster."""

    @pytest.fixture(params=["repeatable read", "serializable"])
    def url(self, postgres_url: str, request: pytest.FixtureRequest) -> str:
        """Return where the ledger is."""
        level = request.param.replace(" ", r"\ ")
        return f"{postgres_url}?options={quote(f'-c default_transaction_isolation={level}')}"


class TestMariaDB(Races):
    """On a MariaDB server."""

    @pytest.fixture
    def url(self, mariadb_url: str) -> str:
        """Return where the ledger is."""
        return mariadb_url

    def test_a_new_group_is_planned_while_another_run_asks_whether_it_is_there(self, url: str, name: str) -> None:
        with ledger_at(url).turn(name):
            add(Ledger(url), name, 0, 10)


class TestStrictMariaDB(StrictRaces):
    """On a MariaDB server as newer ones are by default."""

    @pytest.fixture
    def url(self, mariadb_url: str) -> str:
        """Return where the ledger is."""
        return f"{mariadb_url}?init_command={quote('SET innodb_snapshot_isolation=ON')}"
