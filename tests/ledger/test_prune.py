"""How old windows leave the ledger, on each database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import func, insert, select

from airflow_kafka_offsets.core.errors import ConcurrentChangeError, PrunedWindowError, UnknownWindowError
from airflow_kafka_offsets.core.history import KEPT_FROM, Act, Gap
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.ownership import Position
from airflow_kafka_offsets.core.plan.pruning import Pruned
from airflow_kafka_offsets.core.run import Try
from airflow_kafka_offsets.core.window import Claim, State, WindowRecord
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.ledger.tables import attempts, claim_windows, claims, pruned_claims, staged
from tests.ledger import races
from tests.ledger.examples import NOW, act, add, add_all, claim, commit, draft
from tests.ledger.pooled import ledger_at
from tests.ledger.races import ROUNDS, Competition


def prune(ledger: Ledger, name: str, windows: int, number: int | None = None) -> int:
    """Take the oldest windows out."""
    return ledger.prune(ledger.old_windows(name, since=1, limit=windows), pruning(windows), number)


def pruning(windows: int) -> Act:
    """Say that windows were pruned."""
    return replace(act("prune"), details={KEPT_FROM: windows + 1})


def filled(ledger: Ledger, name: str, windows: int = 4, topic_id: str = "id-of-orders") -> list[WindowRecord]:
    """Add committed windows, each with a run and an attempt of its own."""
    held = []
    for seq in range(windows):
        by = Claim("dag", f"{name} {seq}", "load")
        drafted = draft(10 * seq, 10 * seq + 10, planned_until=NOW + timedelta(hours=seq))
        held += add_all(ledger, name, [replace(drafted, topic_ids={"orders": topic_id})], by)
        commit(ledger, held[-1])
    return held


class PruneContract:
    """Each subclass says where the ledger is, with a fixture `url`."""

    def test_old_windows_are_found_oldest_first(self, ledger: Ledger, name: str) -> None:
        held = filled(ledger, name, 3)
        found = ledger.old_windows(name, since=1, limit=2)
        assert [old.window.seq for old in found] == [1, 2]
        committed = replace(
            WindowRecord.of(
                held[0].window.to(State.COMMITTING, State.COMMITTED), held[0].holder, holds=held[0].holds + 1
            ),
            committed_at=NOW,
        )
        assert found[0] == committed
        assert (found[0].planned_at, found[0].attempts, found[0].last_attempt) == (NOW, 1, NOW)
        assert found[0].last_used == NOW
        assert found[1].last_used == NOW + timedelta(hours=1), "its planned-until time is later"
        assert [old.window.seq for old in ledger.old_windows(name, since=3, limit=9)] == [3]
        assert ledger.old_windows(name, since=4, limit=9) == []

    def test_a_window_leaves_with_all_that_belongs_to_it_only(self, ledger: Ledger, name: str) -> None:
        first, second, third, _ = filled(ledger, name)
        ledger.hold([ledger.window(third.id)], first.holder, NOW)
        with ledger._engine.begin() as connection:
            row = {"target": "t", "column_names": "[]", "row_count": 1, "published_at": NOW}
            for held, staging in ((first, None), (second, "t_stage"), (third, None)):
                connection.execute(insert(staged).values(window_id=held.window.id, staging=staging, **row))
        prune(ledger, name, 2)
        assert [row.window.seq for row in ledger.windows(name)] == [4, 3]
        with ledger._engine.connect() as connection:
            runs = select(claims.c.run_id).where(claims.c.run_id.startswith(f"{name} ")).order_by(claims.c.run_id)
            assert connection.execute(runs).scalars().all() == [f"{name} 0", f"{name} 2", f"{name} 3"], "0 has window 3"
            mine = select(func.count()).select_from(attempts).join(claims).where(claims.c.run_id.startswith(f"{name} "))
            assert connection.execute(mine).scalar() == 2
            notes = select(staged.c.window_id).where(staged.c.window_id.startswith(name)).order_by(staged.c.window_id)
            assert connection.execute(notes).scalars().all() == [second.window.id, third.window.id]
        position = ledger.load(name).position
        assert position is not None
        assert set(position.offsets.values()) == {40}
        assert add(ledger, name, 40, 50).window.seq == 5, "no id is given again"

    def test_what_is_gone_stays_known(self, ledger: Ledger, name: str) -> None:
        held = filled(ledger, name)
        assert ledger.pruned(name) == Pruned(name)
        assert not ledger.load(name, held[0].holder).is_pruned
        prune(ledger, name, 2)
        known = ledger.pruned(name)
        until = NOW + timedelta(hours=1)
        assert (known.first, known.planned_until, known.proof) == (3, until, (2, until))
        assert known.floors_of({"orders": "id-of-orders"})[TopicPartition("orders", 1)] == 20
        assert known.floors_of({"orders": "another"}) == {}
        assert ledger.load(name, held[0].holder).is_pruned
        assert not ledger.load(name, held[2].holder).is_pruned
        assert ledger.load(f"{name}-other", held[0].holder).is_pruned, "whatever its task calls its group now"
        assert ledger.overviews([name])[name].first == ledger.outlines([name])[name].first == 3
        assert ledger.frontiers([name])[name].planned_until == NOW + timedelta(hours=3)
        with pytest.raises(PrunedWindowError, match="-000002 was pruned from the ledger: Kafka no longer held"):
            ledger.window(held[1].window.id)
        with pytest.raises(UnknownWindowError, match="has no window"):
            ledger.window(f"{name}-000009")

    def test_how_far_a_group_has_come_is_known_from_a_window_that_is_gone(self, ledger: Ledger, name: str) -> None:
        [first] = add_all(ledger, name, [draft(0, 10)], claim(f"{name} 1"))
        commit(ledger, first)
        [capped] = add_all(ledger, name, [draft(10, 20, is_capped=True)], claim(f"{name} 2"))
        commit(ledger, capped)
        before = ledger.frontiers([name])
        assert before[name].window_id == first.window.id
        prune(ledger, name, 1)
        assert ledger.frontiers([name]) == before

    @pytest.mark.parametrize("times", [(0, 1, 2, 3, 4), (1, 0, 2, 3, 4)], ids=["in order", "a late run"])
    @pytest.mark.parametrize("windows", [0, 1, 2, 3, 4])
    def test_a_gap_stays_and_begins_where_older_windows_end_though_they_are_gone(
        self, ledger: Ledger, name: str, times: Sequence[int], windows: int
    ) -> None:
        drafts = [
            draft(10 * i, 10 * i + 10, planned_until=NOW + timedelta(hours=hours)) for i, hours in enumerate(times)
        ]
        held = add_all(ledger, name, drafts)
        left = held.pop(2)
        for one in held:
            commit(ledger, one)
        ledger.abandon(left.window.id, act("abandon", window=left.window.id), leave_gap=True)
        if windows:
            prune(ledger, name, windows)
        [gap] = ledger.frontiers([name])[name].gaps
        assert gap == Gap(left.window.id, NOW + timedelta(hours=1), NOW + timedelta(hours=2))

    def test_a_prune_of_several_parts_is_one_act(self, ledger: Ledger, name: str) -> None:
        filled(ledger, name)
        number = prune(ledger, name, 1)
        again = ledger.old_windows(name, since=1, limit=2)
        assert ledger.prune(again, pruning(3), number) == number
        assert [(one.kind, one.details) for one in ledger.acts(name)] == [("prune", {KEPT_FROM: 4})]
        assert [row.window.seq for row in ledger.windows(name)] == [4]

    def test_a_window_that_someone_took_meanwhile_stays(self, ledger: Ledger, name: str) -> None:
        held = filled(ledger, name)
        found = ledger.old_windows(name, since=1, limit=2)
        taken = ledger.window(held[1].window.id)
        ledger.hold([taken], claim(f"{name} 9"), NOW)
        before = ledger.load(name)
        with pytest.raises(ConcurrentChangeError):
            ledger.prune(found, pruning(2))
        assert ledger.load(name) == before
        assert ledger.pruned(name) == Pruned(name)
        assert len(ledger.windows(name)) == 4
        assert ledger.acts(name) == []

    def test_the_window_that_a_reset_has_made_the_last_commit_stays(self, ledger: Ledger, name: str) -> None:
        filled(ledger, name)
        found = ledger.old_windows(name, since=1, limit=2)
        version = ledger.load(name).version
        ledger.reset(name, version, Position({TopicPartition("orders", 0): 20}, {}), [3, 4], act("reset"))
        with pytest.raises(ConcurrentChangeError, match="-000002 is the last one that is committed now"):
            ledger.prune(found, pruning(2))
        assert ledger.pruned(name) == Pruned(name)
        assert len(ledger.windows(name)) == 4
        assert [one.kind for one in ledger.acts(name)] == ["reset"]
        prune(ledger, name, 1)
        last = ledger.overviews([name])[name].last_committed
        assert last is not None
        assert last.seq == 2

    def test_windows_of_a_group_without_any_commit_leave(self, ledger: Ledger, name: str) -> None:
        filled(ledger, name)
        version = ledger.load(name).version
        ledger.reset(name, version, Position({TopicPartition("orders", 0): 0}, {}), [1, 2, 3, 4], act("reset"))
        prune(ledger, name, 4)
        assert ledger.windows(name) == []

    def test_who_works_on_a_window_that_is_gone_is_told_so(self, ledger: Ledger, name: str) -> None:
        held = filled(ledger, name)
        prune(ledger, name, 1)
        with pytest.raises(PrunedWindowError):
            ledger.start_attempt(held[0].id, held[0].holder, Try(), NOW)
        with pytest.raises(PrunedWindowError):
            ledger.commit(held[0].window.id, held[0].holder, None, NOW)
        with pytest.raises(ConcurrentChangeError):
            ledger.hold([held[0]], held[0].holder, NOW)
        with ledger._engine.connect() as connection:
            left = select(func.count()).select_from(claim_windows).join(claims).where(claims.c.run_id == f"{name} 0")
            assert connection.execute(left).scalar() == 0

    def test_a_claim_takes_one_number(self, ledger: Ledger, name: str) -> None:
        def numbers() -> int:
            with ledger._engine.connect() as connection:
                return connection.execute(select(func.count()).select_from(pruned_claims)).scalar_one()

        before = numbers()
        held = add_all(ledger, name, [draft(start, start + 1) for start in range(3)], claim(f"{name} 1"))
        for one in held:
            commit(ledger, one)
        prune(ledger, name, 1)
        prune(ledger, name, 1)
        assert numbers() == before + 1

    def test_windows_of_many_partitions_leave(self, ledger: Ledger, name: str) -> None:
        """Their ranges are packed."""
        for start in (0, 10):
            commit(ledger, add(ledger, name, start, start + 10, claim(f"{name} {start}"), partitions=1_000))
        prune(ledger, name, 1)
        ids = {"orders": "id-of-orders"}
        assert ledger.pruned(name).floors_of(ids) == {TopicPartition("orders", p): 10 for p in range(1_000)}
        assert [row.window.seq for row in ledger.windows(name)] == [2]

    def test_several_prunes_and_runs_that_take_old_windows(self, competition: Competition, url: str, name: str) -> None:
        ledger, names = ledger_at(url), [f"{name}-{i}" for i in range(ROUNDS)]
        for group in names:
            filled(ledger, group, 12, "id-1")  # as the competing processes know it
        for group, answers in zip(names, competition.race(races.prune_or_take, url, names), strict=True):
            errors = {answer.error for answer in answers}
            # Busy: another run works on the same old window at that moment.
            assert errors <= {None, "ConcurrentChangeError", "PrunedWindowError", "WindowBusyError"}, errors
            kept = ledger.windows(group)
            pruned = sum(answer.value for answer in answers if isinstance(answer.value, int))
            assert pruned + len(kept) == 12, answers
            assert ledger.pruned(group).first == 13 - len(kept)


class TestSqlite(PruneContract):
    """In a file."""

    @pytest.fixture
    def url(self, sqlite_url: str) -> str:
        """Return where the ledger is."""
        return sqlite_url


class TestPostgres(PruneContract):
    """On a PostgreSQL server."""

    @pytest.fixture
    def url(self, postgres_url: str) -> str:
        """Return where the ledger is."""
        return postgres_url


class TestMariaDB(PruneContract):
    """On a MariaDB server."""

    @pytest.fixture
    def url(self, mariadb_url: str) -> str:
        """Return where the ledger is."""
        return mariadb_url
