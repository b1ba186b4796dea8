"""What every ledger promises, on each database."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from threading import Event
from typing import Any

import pytest
from sqlalchemy import select, update

from airflow_kafka_offsets.core.errors import (
    MAX_NAMED,
    ConcurrentChangeError,
    ConfirmationError,
    IllegalStepError,
    LedgerError,
    NoEvidenceError,
    UnknownGroupError,
    UnknownWindowError,
    WindowBusyError,
)
from airflow_kafka_offsets.core.history import NEXT_WINDOW, Frontier, Rerun
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.overview import MAX_RECENT
from airflow_kafka_offsets.core.plan.ownership import GroupState, Owner, Position
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.run import Try
from airflow_kafka_offsets.core.schemas import Frozen, Subject, ToFreeze
from airflow_kafka_offsets.core.window import OPEN, Claim, Lane, Outcome, Scope, State, WindowRecord
from airflow_kafka_offsets.core.window_id import name_window
from airflow_kafka_offsets.documents import window_document
from airflow_kafka_offsets.ledger import rows, runs
from airflow_kafka_offsets.ledger.engine import open_engine
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.ledger.tables import groups, metadata, windows
from tests.lab.waiting import LONGEST, wait_until
from tests.ledger.examples import NOW, act, add, add_all, check_laws, claim, commit, draft, group, succeed
from tests.ledger.rows_read import noting


def added_with(ledger: Ledger, name: str, *frozen: Frozen) -> list[int | None]:
    """Add a window with each of these schemas to a new group, and return the numbers of the schemas."""
    drafts = [draft(n, n + 1) for n in range(len(frozen))]
    added = ledger.add_windows(group(name), 0, drafts, claim(), NOW, (), ToFreeze(frozen))
    return [held.window.schemas for held in added]


def until_it_waits_for_a_lock(url: str, waiting: Future[None]) -> None:
    """Wait until a server says that someone waits for a lock of another transaction. Who ends before that has not waited."""
    engine = open_engine(url)
    if engine.dialect.name == "postgresql":
        mine = "datname = current_database() AND wait_event_type = 'Lock'"
        question = f"SELECT 'waiting', count(*) FROM pg_stat_activity WHERE {mine}"
    else:
        question = "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'"

    def is_seen() -> bool:
        with engine.connect() as connection:
            (_, number) = connection.exec_driver_sql(question).one()
        return int(number) > 0 or waiting.done()

    wait_until(is_seen, what="a transaction waits for a lock")
    assert not waiting.done(), waiting.exception()


def in_short(records: Iterable[WindowRecord]) -> list[Any]:
    return [window_document(record) for record in records]


class LedgerContract:
    """Each subclass says where the ledger is, with a fixture `url`."""

    def test_nothing_is_known_of_a_group_that_never_planned(self, ledger: Ledger, name: str) -> None:
        assert ledger.load(name, claim(name)) == GroupState()
        assert ledger.windows(name) == []
        assert ledger.acts(name) == []

    def test_a_window_is_read_back_as_it_was_written(self, ledger: Ledger, name: str) -> None:
        lost = {TopicPartition("orders", 1): OffsetRange(3, 5)}
        written = replace(draft(5, 9, lost=lost), planned_until=NOW.astimezone(timezone(timedelta(hours=-7))))
        [held] = ledger.add_windows(group(name), 0, [written], claim(map_index=3, scope=Scope.RUN), NOW)
        row = ledger.window(held.window.id)
        assert row == held
        assert row.holder.scope is Scope.RUN
        assert (row.window.ranges, row.window.lost) == (written.ranges, written.lost)
        assert row.window.planned_until == NOW
        assert row.window.planned_until.tzinfo is UTC
        assert (row.planned_at, row.committed_at, row.attempts, row.records) == (NOW, None, 0, None)
        assert (held.window.id, held.window.lane, held.window.state) == (f"{name}-000001", Lane.LIVE, State.PLANNED)

    def test_schemas_are_read_back_as_they_were_kept_and_equal_ones_have_one_number(
        self, ledger: Ledger, name: str
    ) -> None:
        texts = {7: '"long"', 2**31: f'{{"type": "enum", "name": "{name}", "symbols": ["ä"]}}'}
        frozen = {"b": Subject("AVRO", 7, texts), "a": None, "c": Subject("JSON", 7, {7: texts[7]})}
        number, same, other = added_with(
            ledger, name, frozen, dict(reversed(frozen.items())), {**frozen, "a": frozen["c"]}
        )
        assert number is not None
        assert same == number
        assert other != number
        assert ledger.schemas(number) == frozen
        with pytest.raises(LedgerError, match=r"has schemas 999999999, but .*not there"):
            ledger.schemas(999_999_999)

    def test_many_schemas_are_kept_at_once(self, ledger: Ledger, name: str) -> None:
        frozen = {f"s{n}": Subject("AVRO", n, {n: f'"{name} {n} {"x" * 5000}"'}) for n in range(700)}
        [number] = added_with(ledger, name, frozen)
        assert number is not None
        assert ledger.schemas(number) == frozen

    def test_a_window_keeps_the_schemas_that_were_frozen_with_it(self, ledger: Ledger, name: str) -> None:
        one, two = {f"{name}-1": None}, {f"{name}-2": None}

        def frozen(held: WindowRecord) -> Frozen:
            number = ledger.window(held.window.id).window.schemas
            return {} if number is None else ledger.schemas(number)

        first, bare = ledger.add_windows(
            group(name), 0, [draft(0, 5), draft(5, 9)], claim(), NOW, (), ToFreeze([one, {}])
        )
        assert (frozen(first), frozen(bare), bare.window.schemas) == (one, {}, None)
        ledger.freeze([(first.window, two)])
        assert frozen(first) == two
        with pytest.raises(ConcurrentChangeError):
            ledger.freeze([(bare.window, one), (first.window, one)])
        assert (frozen(first), frozen(bare)) == (two, {})
        ledger.freeze([(bare.window, one)])
        with pytest.raises(ConcurrentChangeError):
            ledger.freeze([(bare.window, two)])
        assert frozen(bare) == one

    def test_schemas_are_frozen_together_with_a_plan_or_not_at_all(self, ledger: Ledger, name: str) -> None:
        one = {f"{name}-1": None}
        first, second = add_all(ledger, name, [draft(0, 5), draft(5, 9)])
        there = [(second.window, one)]

        def frozen() -> int | None:
            return ledger.window(second.window.id).window.schemas

        with pytest.raises(ConcurrentChangeError):
            ledger.hold([replace(first, holds=7)], claim("r2"), NOW, there)
        with pytest.raises(ConcurrentChangeError):
            ledger.add_windows(group(name), 0, [draft(9, 10)], claim("r2"), NOW, (), ToFreeze((), there))
        assert frozen() is None
        ledger.hold([first], claim("r2"), NOW, there)
        assert frozen() is not None
        with pytest.raises(ConcurrentChangeError):  # someone froze others by now
            ledger.add_windows(group(name), 1, [draft(9, 10)], claim("r2"), NOW, (), ToFreeze((), there))
        assert len(ledger.windows(name)) == 2

    def test_leader_epochs_are_noted_with_the_window_and_are_those_of_the_position(
        self, ledger: Ledger, name: str
    ) -> None:
        epochs = {TopicPartition("orders", 1): 7}
        elsewhere = {TopicPartition("clicks", 0): 3}
        by = claim()
        [held] = ledger.add_windows(group(name), 0, [replace(draft(0, 9), leader_epochs=epochs | elsewhere)], by, NOW)
        assert held.window.leader_epochs == ledger.window(held.window.id).window.leader_epochs == epochs
        state = ledger.load(name)
        assert state.position
        assert state.position.leader_epochs == epochs
        commit(ledger, held)
        moved = Position({TopicPartition("orders", 0): 5}, {"orders": "id"}, {TopicPartition("orders", 0): 8})
        ledger.reset(name, state.version, moved, [], act("reset"))
        assert ledger.load(name).position == moved

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

    def test_the_groups_of_a_task_are_those_that_it_plans(self, ledger: Ledger, name: str) -> None:
        task = Owner("dag", name)
        assert ledger.groups_of(task) == []
        add(ledger, name, 0, 10, claim(task=name))
        add(ledger, f"{name}.b", 0, 10, claim("run-2", task=name))
        add(ledger, f"{name}.c", 0, 10, claim(task=f"{name}.other"))
        assert [found.name for found in ledger.groups_of(task)] == [name, f"{name}.b"]

    def test_a_group_is_founded_at_a_position(self, ledger: Ledger, name: str) -> None:
        where = Position(
            {TopicPartition("orders", 0): 5, TopicPartition("orders", 1): 2**62}, {"orders": "id-of-orders"}
        )
        ledger.found(group(name, kafka_conn_id="other"), where, act("import", source="ledger"))
        state = ledger.load(name, claim())
        assert (state.position, state.open, state.claimed) == (where, (), ())
        assert ledger.group(name).kafka_conn_id == "other"
        assert ledger.acts(name) == [act("import", source="ledger")]
        assert ledger.windows(name) == []

    def test_a_group_that_was_founded_goes_on_like_any_other(self, ledger: Ledger, name: str) -> None:
        offsets = {TopicPartition("orders", partition): 5 for partition in range(2)}
        ledger.found(group(name), Position(offsets, {"orders": "id-of-orders"}), act("import"))
        held = add(ledger, name, 5, 10)
        assert (held.window.seq, ledger.load(name).position) == (
            1,
            Position(held.window.ranges.ends, {"orders": "id-of-orders"}),
        )
        ledger.abandon(held.window.id, act())
        assert ledger.load(name).position == Position(offsets, {"orders": "id-of-orders"})
        commit(ledger, add(ledger, name, 5, 20))
        ledger.reset(name, ledger.load(name).version, Position({}, {}), [], act("reset"))
        check_laws(ledger, name)

    def test_a_group_that_is_there_is_not_founded(self, ledger: Ledger, name: str) -> None:
        add(ledger, name, 0, 10)
        for known in (name, f"{name}-founded"):
            if known != name:
                ledger.found(group(known), Position({}, {}), act("import"))
            before = (ledger.load(known), ledger.acts(known), ledger.group(known))
            with pytest.raises(ConcurrentChangeError):
                ledger.found(group(known, max_offsets=7), Position({}, {}), act("import"))
            assert (ledger.load(known), ledger.acts(known), ledger.group(known)) == before

    def test_a_group_belongs_to_the_first_that_cuts_a_live_window(self, ledger: Ledger, name: str) -> None:
        ledger.found(group(name), Position({}, {}), act("import"))
        add(ledger, name, 0, 5, claim(task="fill"), lane=Lane.BACKFILL)
        assert ledger.load(name).owner is None
        add(ledger, name, 5, 10, claim(map_index=3))
        assert ledger.load(name).owner == Owner("dag", "load")
        add(ledger, name, 10, 15, claim("run-2"))
        assert ledger.load(name, claim("run-9")).owner == Owner("dag", "load")
        new = f"{name}-new"
        add(ledger, new, 0, 10, claim(task="first"))
        assert ledger.load(new).owner == Owner("dag", "first")

    def test_who_replays_a_group_of_others_leaves_its_definition_alone(self, ledger: Ledger, name: str) -> None:
        add(ledger, name, 5, 10)
        for who, cap in ((claim(task="fill"), None), (claim("run-2"), 7)):
            fill = [draft(0, 5, partitions=1, lane=Lane.BACKFILL)]
            [held] = ledger.add_windows(group(name, max_offsets=7), ledger.load(name).version, fill, who, NOW)
            assert (ledger.group(name).max_offsets, ledger.load(name).owner) == (cap, Owner("dag", "load"))
            ledger.abandon(held.window.id, act())

    def test_a_group_is_taken_over(self, ledger: Ledger, name: str) -> None:
        held = add(ledger, name, 0, 10)
        before = ledger.load(name)
        with pytest.raises(ConcurrentChangeError):
            ledger.take_over(name, before.version + 1, Owner("other", "load"), act("take-over"))
        assert (ledger.load(name), ledger.acts(name)) == (before, [])
        ledger.take_over(name, before.version, Owner("d" * 250, "注文.t"), act("take-over", to="x"))
        assert ledger.load(name) == replace(before, version=before.version + 1, owner=Owner("d" * 250, "注文.t"))
        assert ledger.acts(name) == [act("take-over", to="x")]
        assert ledger.window(held.window.id) == held
        with pytest.raises(UnknownGroupError):
            ledger.take_over(f"{name}-2", 0, Owner("other", "load"), act("take-over"))

    def test_an_act_that_changes_nothing_is_recorded(self, ledger: Ledger, name: str) -> None:
        held = add(ledger, name, 0, 10)
        before = (ledger.load(name), ledger.window(held.window.id))
        ledger.record(name, act("copy", moves={"orders-0": [None, 5]}))
        ledger.record(name, act("export"))
        assert ledger.acts(name) == [act("copy", moves={"orders-0": [None, 5]}), act("export")]
        assert (ledger.load(name), ledger.window(held.window.id)) == before
        with pytest.raises(UnknownGroupError):
            ledger.record(f"{name}-2", act("copy"))

    def test_of_many_acts_the_newest_can_be_asked_for(self, ledger: Ledger, name: str) -> None:
        groups = (name, f"{name}.other")
        for number in range(4):
            for one in groups:
                if number == 0:
                    add(ledger, one, 0, 10)
                ledger.record(one, act("export", number=number))
        newest = [act("export", number=2), act("export", number=3)]
        assert ledger.acts(name, newest=2) == newest
        assert len(ledger.acts(name, newest=9)) == 4
        assert [list(one.acts) for one in ledger.overviews(groups, newest_acts=2).values()] == [newest, newest]

    def test_the_acts_that_moved_the_watermark_can_be_asked_for(self, ledger: Ledger, name: str) -> None:
        add(ledger, name, 0, 10)
        for kind in ("import", "copy", "reset", "export", "copy"):
            ledger.record(name, act(kind))
        assert [one.kind for one in ledger.moves(name)] == ["import", "reset"]

    def test_a_refusal_is_noted_until_it_is_over_or_a_person_acts(self, ledger: Ledger, name: str) -> None:
        add(ledger, name, 0, 10)
        for is_over in (lambda: ledger.note_refusal(name, None), lambda: ledger.record(name, act("copy"))):
            ledger.note_refusal(name, "redis://注文: group has members")
            assert ledger.load(name).refused == "redis://注文: group has members"
            assert ledger.overviews([name])[name].state.refused == ledger.load_all([name])[name].refused
            is_over()
            assert ledger.load(name).refused is None
        ledger.note_refusal(name, "redis://r: drift")
        for kind in ("export", "inherit", "prune", "take-over"):
            ledger.record(name, act(kind))
        assert ledger.load(name).refused == "redis://r: drift", "none of these moves the watermark or the store"

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
        assert ledger.window(held.window.id).holder.run_id == "manual__zoë_注文_🦜"

    def test_the_longest_names_fit(self, ledger: Ledger, name: str) -> None:
        longest = name.ljust(200, "x")
        who = claim("r" * 250, "t" * 250)
        held = add(ledger, longest, 0, 10, replace(who, dag_id="d" * 250), topic="t" * 249)
        assert ledger.load(longest, held.holder).claimed == (held,)

    def test_10000_partitions_and_the_largest_offsets_are_kept(self, ledger: Ledger, name: str) -> None:
        held = add(ledger, name, 2**62, 2**62 + 5, partitions=10_000)
        commit(ledger, held)
        assert ledger.window(held.window.id).window.ranges == held.window.ranges
        position = ledger.load(name).position
        assert position is not None
        assert position.offsets == held.window.ranges.ends

    def test_a_window_is_held_by_one_and_claimed_by_all_who_had_it(self, ledger: Ledger, name: str) -> None:
        first = add(ledger, name, 0, 10)
        second = ledger.hold([first], claim("run-2"), NOW)[0]
        assert second.holder == claim("run-2")
        assert ledger.load(name, claim()).claimed == (second,)
        assert ledger.load(name, claim("run-2")).claimed == (second,)
        third = ledger.hold([second], claim("run-2"), NOW)[0]
        assert (third.window, third.holder) == (second.window, second.holder)
        for stale in (first, second):  # the same holder again is another hold
            with pytest.raises(ConcurrentChangeError):
                ledger.hold([stale], claim("run-3"), NOW)[0]
        assert ledger.load(name, claim("run-3")).claimed == ()

    def test_a_window_that_changed_its_state_is_not_taken(self, ledger: Ledger, name: str) -> None:
        held = add(ledger, name, 0, 10)
        ledger.abandon(held.window.id, act())
        with pytest.raises(ConcurrentChangeError):
            ledger.hold([held], claim(), NOW)[0]

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
        ledger.hold([held], claim(scope=Scope.TASK), NOW)[0]
        (now,) = ledger.load(name).open
        assert now.holder.scope is Scope.TASK

    def test_commit_twice_is_commit_once(self, ledger: Ledger, name: str) -> None:
        held = add(ledger, name, 0, 10)
        assert commit(ledger, held) is True
        row = ledger.window(held.window.id)
        assert (row.window.state, row.committed_at) == (State.COMMITTED, NOW)
        assert commit(ledger, held) is False
        assert ledger.window(held.window.id).committed_at == NOW

    def test_a_window_before_others_is_not_abandoned_without_a_word(self, ledger: Ledger, name: str) -> None:
        first, second = add(ledger, name, 0, 10), add(ledger, name, 10, 20, claim("run-2"))
        with pytest.raises(ConfirmationError, match=r"orders-0 \[0, 10\), orders-1 \[0, 10\).*--leave-gap"):
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
        there = Position(dict.fromkeys(held.window.ranges, 50), {"orders": "id-of-orders"})
        ledger.reset(name, ledger.load(name).version, there, [], act("reset", moves={"orders-0": [10, 50]}))
        assert ledger.load(name).position == there
        (recorded,) = ledger.acts(name)
        moved = {"moves": {"orders-0": [10, 50]}, NEXT_WINDOW: 2}
        assert (recorded.kind, recorded.at, recorded.details) == ("reset", NOW, moved)
        following = add(ledger, name, 50, 60, claim("run-2"))
        assert ledger.load(name).position == Position(following.window.ranges.ends, {"orders": "id-of-orders"})
        ledger.abandon(following.window.id, act())
        assert ledger.load(name).position == there

    def test_a_reset_supersedes_any_number_of_windows(
        self, ledger: Ledger, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(rows, "MAX_PARAMETERS", 2)
        for i in range(5):
            commit(ledger, add(ledger, name, i, i + 1, claim(f"run-{i}")))
        ledger.reset(name, ledger.load(name).version, Position({}, {}), [1, 2, 3, 4, 5], act("reset"))
        assert {row.window.state for row in ledger.windows(name)} == {State.SUPERSEDED}

    def test_a_reset_that_would_supersede_another_state_writes_nothing(self, ledger: Ledger, name: str) -> None:
        held = add(ledger, name, 0, 10)
        before = ledger.load(name)
        with pytest.raises(ConcurrentChangeError):
            ledger.reset(name, before.version, Position({}, {}), [held.window.seq], act("reset"))
        assert ledger.load(name) == before
        assert ledger.acts(name) == []

    def test_what_a_claim_has_in_other_groups_is_known_when_it_has_nothing_in_this_one(
        self, ledger: Ledger, name: str
    ) -> None:
        old, new = claim(f"{name}-1"), claim(f"{name}-2")
        one, two = add(ledger, f"{name}-old", 0, 10, old), add(ledger, f"{name}-old", 10, 20, old)
        had = (one.window.id, two.window.id)
        assert ledger.load(name, old).elsewhere == had, "also when the group is not there yet"
        add(ledger, name, 0, 10, new)
        assert ledger.load(name, old).elsewhere == had
        assert ledger.load(name, claim(f"{name}-3")).elsewhere == ()
        assert ledger.load(name).elsewhere == ()
        assert ledger.load(name, new).elsewhere == ()
        ledger.abandon(two.window.id, act())
        ledger.abandon(one.window.id, act())
        assert ledger.load(name, old).elsewhere == ()

    def test_what_a_claim_has_in_other_groups_is_known_however_much_it_has_here(
        self, ledger: Ledger, name: str
    ) -> None:
        by, again = claim(f"{name}-1"), Claim("dag", f"{name}-1", "load_2")
        for seq in range(MAX_NAMED):
            commit(ledger, add(ledger, name, 10 * seq, 10 * seq + 10, by))
        other = add(ledger, f"{name}-z", 0, 10, by)
        took = act("take-over", **{"from": str(Owner.of(by)), "to": str(Owner.of(again))})
        ledger.take_over(name, ledger.load(name).version, Owner.of(again), took)
        assert other.window.id in ledger.load(name, again).elsewhere

    def test_what_a_claim_had_under_the_names_of_former_owners_is_known(self, ledger: Ledger, name: str) -> None:
        run = f"{name}-1"
        old, new, third = Claim("dag", run, "load"), Claim("dag", run, "load_2"), Claim("reports", run, "load_3")
        window = add(ledger, name, 0, 10, old)
        for before, owner in ((old, new), (new, third)):
            took = act("take-over", **{"from": str(Owner.of(before)), "to": str(Owner.of(owner))})
            ledger.take_over(name, ledger.load(name).version, Owner.of(owner), took)
        assert ledger.load(name, third).elsewhere == (), "it may be adopted as long as it is open"
        commit(ledger, window)
        assert ledger.load(name, third).elsewhere == (window.id,)
        assert ledger.load(name, new).elsewhere == (), "no longer the owner"
        assert ledger.load(name, replace(third, run_id=f"{name}-2")).elsewhere == ()

    def test_a_group_has_the_newest_definition_and_keeps_all_else(self, ledger: Ledger, name: str) -> None:
        add(ledger, name, 0, 10)
        before = ledger.load(name)
        for defined in (group(name), group(name, expect_gaps=True)):
            ledger.define(defined, claim())
            assert ledger.group(name) == defined
        for other in (replace(claim(), dag_id="replays"), replace(claim(), task_id="replay")):
            ledger.define(group(name), other)
            assert ledger.group(name) == defined, "another task's definition of the group is not the group's"
        assert ledger.load(name) == before
        with pytest.raises(UnknownGroupError, match=f"no group {name}-other"):
            ledger.define(group(f"{name}-other"), claim())

    def test_attempts_are_the_history(self, ledger: Ledger, name: str) -> None:
        held = add(ledger, name, 0, 10)
        killed = ledger.start_attempt(held.id, held.holder, Try(1), NOW)
        ledger.end_attempt(killed, Outcome.KILLED, None, NOW + timedelta(minutes=1))
        ledger.hold([ledger.window(held.id)], claim("run-2"), NOW)
        good = ledger.start_attempt(held.id, claim("run-2"), Try(2), NOW)
        ledger.end_attempt(good, Outcome.SUCCEEDED, 2**40, NOW)
        ledger.end_attempt(good, Outcome.FAILED, None, NOW)
        ledger.start_attempt(held.id, claim("run-2"), Try(3), NOW)
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

    def test_an_attempt_has_the_version_of_its_bundle_and_a_window_that_of_the_newest_one(
        self, ledger: Ledger, name: str
    ) -> None:
        longest = "v" * 250
        held = add(ledger, name, 0, 10)
        for number, version in enumerate(("3f2a", None, longest), start=1):
            began = ledger.start_attempt(held.id, held.holder, Try(number, bundle_version=version), NOW)
            ledger.end_attempt(began, Outcome.SUCCEEDED, number, NOW)
            [row] = ledger.summaries(name)
            assert (row.bundle_version, row.records) == (version, number)
        ledger.start_attempt(held.id, held.holder, Try(4), NOW)
        assert [a.bundle_version for a in ledger.attempts(held.id)] == ["3f2a", None, longest, None]
        row = ledger.window(held.id)
        assert (row.bundle_version, row.records, row.attempts) == (None, 3, 4), "it runs, and has reported nothing"

    def test_what_begins_ends_takes_and_commits_a_window_reads_no_ranges(self, ledger: Ledger, name: str) -> None:
        held = add(ledger, name, 0, 10, claim("dead"))
        with noting(ledger._engine) as asked:
            [held] = ledger.hold([held], claim(), NOW)
            assert commit(ledger, held)
        assert len(asked) >= 10
        assert not [statement for statement, _ in asked if "ranges" in statement]

    def _begin(self, ledger: Ledger, held: WindowRecord, by: Claim | None = None, try_number: int = 1) -> int:
        return ledger.start_attempt(held.id, by or held.holder, Try(try_number), NOW)

    def _outcomes(self, ledger: Ledger, held: WindowRecord) -> list[Outcome]:
        return [attempt.outcome for attempt in ledger.attempts(held.window.id)]

    def test_an_attempt_of_which_nobody_told_is_lost_when_its_task_tries_again(self, ledger: Ledger, name: str) -> None:
        held, other = add_all(ledger, name, [draft(0, 10), draft(10, 20)])
        of_dead_worker, at_other = self._begin(ledger, held), self._begin(ledger, other)
        later = NOW + timedelta(minutes=1)
        ledger.start_attempt(held.id, held.holder, Try(2), later)
        lost, running = ledger.attempts(held.window.id)
        assert (lost.id, lost.outcome, lost.ended_at) == (of_dead_worker, Outcome.LOST, later)
        assert (running.outcome, running.ended_at) == (Outcome.RUNNING, None)
        assert self._outcomes(ledger, other) == [Outcome.RUNNING]
        ledger.end_attempt(of_dead_worker, Outcome.SUCCEEDED, 10, later)  # it lived after all, and is too late
        ledger.end_attempt(at_other, Outcome.SUCCEEDED, 10, later)
        assert self._outcomes(ledger, held) == [Outcome.LOST, Outcome.RUNNING]
        with pytest.raises(NoEvidenceError, match="a later attempt has started"):
            ledger.commit(held.window.id, held.holder, of_dead_worker, later)
        assert ledger.window(held.window.id).window.state is State.PLANNED

    def test_a_try_that_is_resumed_goes_on_with_its_attempt_and_no_other_try_does(
        self, ledger: Ledger, name: str
    ) -> None:
        held, other = add_all(ledger, name, [draft(0, 10), draft(10, 20)])
        begun = self._begin(ledger, held)
        resumed = Try(1, is_resumed=True)
        later = NOW + timedelta(hours=1)
        assert ledger.start_attempt(held.id, held.holder, resumed, later) == begun
        [attempt] = ledger.attempts(held.id)
        assert (attempt.outcome, attempt.started_at) == (Outcome.RUNNING, NOW)
        following = ledger.start_attempt(other.id, held.holder, resumed, later)
        ledger.end_attempt(following, Outcome.SUCCEEDED, 10, later)
        assert ledger.start_attempt(other.id, held.holder, resumed, later) != following, "it has ended"
        retry = ledger.start_attempt(held.id, held.holder, Try(2, is_resumed=True), later)
        assert retry != begun, "it is that of another try"
        assert self._outcomes(ledger, held) == [Outcome.LOST, Outcome.RUNNING]
        with pytest.raises(IllegalStepError, match="try 2 of this task has begun since"):
            ledger.start_attempt(held.id, held.holder, resumed, later)

    def test_attempts_are_lost_when_another_takes_their_window(self, ledger: Ledger, name: str) -> None:
        first, second = add_all(ledger, name, [draft(0, 10), draft(10, 20)])
        for held in (first, second):
            self._begin(ledger, held)
        failed = self._begin(ledger, first)
        ledger.end_attempt(failed, Outcome.FAILED, None, NOW)
        ledger.hold([ledger.window(first.id)], claim("run-2"), NOW)
        assert self._outcomes(ledger, first) == [Outcome.LOST, Outcome.FAILED]
        assert self._outcomes(ledger, second) == [Outcome.RUNNING]
        add_all(ledger, name, [draft(20, 30)], claim("run-3"), take=[ledger.window(second.id)])
        assert self._outcomes(ledger, second) == [Outcome.LOST]

    def test_who_comes_too_late_begins_no_attempt(self, ledger: Ledger, name: str) -> None:
        held, other = add_all(ledger, name, [draft(0, 10), draft(10, 20)])
        self._begin(ledger, held, try_number=2)
        for late in (held, other):  # the worker of the first try was slow, not dead
            with pytest.raises(IllegalStepError, match=r"try 2 of this task has begun since"):
                self._begin(ledger, late, try_number=1)
        with pytest.raises(WindowBusyError):
            self._begin(ledger, held, by=claim("run-2"))
        assert self._outcomes(ledger, held) == [Outcome.RUNNING]
        assert self._outcomes(ledger, other) == []

    def test_a_success_is_no_evidence_once_another_attempt_has_begun(self, ledger: Ledger, name: str) -> None:
        held = add(ledger, name, 0, 10)
        success = succeed(ledger, held)
        [taken] = ledger.hold([ledger.window(held.id)], claim("run-2"), NOW)
        overwritten = self._begin(ledger, taken, by=claim("run-2"))
        ledger.end_attempt(overwritten, Outcome.FAILED, None, NOW)
        ledger.hold([ledger.window(held.id)], claim(), NOW)
        with pytest.raises(NoEvidenceError, match="a later attempt has started"):
            ledger.commit(held.id, claim(), success, NOW)
        assert ledger.succeeded(name, claim(), Try(2)) == {}
        assert ledger.window(held.id).state is State.PLANNED

    def test_a_commit_that_looked_before_an_attempt_began_does_not_succeed_after_it(
        self, ledger: Ledger, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        held = add(ledger, name, 0, 10)
        success = succeed(ledger, held)
        stale = ledger.window(held.id)
        self._begin(ledger, held)
        monkeypatch.setattr(runs, "find_record", lambda *_: (stale, self._id_of(ledger, name), Outcome.SUCCEEDED))
        with pytest.raises(ConcurrentChangeError):
            ledger.commit(held.id, claim(), success, NOW)

    def _id_of(self, ledger: Ledger, name: str) -> int:
        with ledger._reading() as connection:
            return int(connection.execute(select(groups.c.id).where(groups.c.name == name)).scalar_one())

    @pytest.mark.parametrize("ended", [Outcome.FAILED, Outcome.KILLED, None])
    def test_a_committed_window_whose_rerun_did_not_succeed_needs_another_run(
        self, ledger: Ledger, name: str, ended: Outcome | None
    ) -> None:
        held = add(ledger, name, 0, 10)
        commit(ledger, held)
        assert ledger.load_all([name])[name].reruns == ()
        assert ledger.window(held.id).rerun is None
        rerun = self._begin(ledger, held, try_number=2)
        if ended:
            ledger.end_attempt(rerun, ended, None, NOW)
        outcome = ended or Outcome.RUNNING
        assert ledger.window(held.id).rerun is outcome
        assert [row.rerun for row in ledger.summaries(name)] == [outcome]
        assert ledger.load_all([name])[name].reruns == (Rerun(held.id, outcome, NOW),)
        assert ledger.overviews([name])[name].state.reruns == (Rerun(held.id, outcome, NOW),)
        again = self._begin(ledger, held, try_number=3)
        ledger.end_attempt(again, Outcome.SUCCEEDED, 10, NOW)
        assert ledger.window(held.id).rerun is Outcome.SUCCEEDED, "it is not committed again yet"
        assert ledger.commit(held.id, held.holder, again, NOW) is False
        assert ledger.window(held.id).rerun is None
        assert ledger.load_all([name])[name].reruns == ()

    def test_a_person_vouches_for_a_window_that_needs_another_run(self, ledger: Ledger, name: str) -> None:
        held = add(ledger, name, 0, 10)
        commit(ledger, held)
        with pytest.raises(IllegalStepError):
            ledger.commit_by_hand(held.id, act("commit"))
        running = self._begin(ledger, held, try_number=2)
        ledger.commit_by_hand(held.id, act("commit"))
        assert self._outcomes(ledger, held)[-1] is Outcome.LOST, "whatever it does after that is no evidence"
        with pytest.raises(NoEvidenceError):
            ledger.commit(held.id, held.holder, running, NOW)
        assert ledger.load_all([name])[name].reruns == ()
        assert [a.kind for a in ledger.acts(name)] == ["commit"]
        assert ledger.window(held.id).state is State.COMMITTED

    def test_windows_are_listed_newest_first_and_in_pages(self, ledger: Ledger, name: str) -> None:
        for i in range(5):
            held = add(ledger, name, i, i + 1, claim(f"run-{i}"))
            if i < 4:
                commit(ledger, held)

        def seqs(**wanted) -> list[int]:  # type: ignore[no-untyped-def]
            return [row.window.seq for row in ledger.windows(name, **wanted)]

        assert seqs() == [5, 4, 3, 2, 1]
        assert seqs(limit=2) == [5, 4]
        assert seqs(limit=2, before=4) == [3, 2]
        assert seqs(states=[State.COMMITTED]) == [4, 3, 2, 1]
        assert seqs(states=[State.PLANNED, State.ABANDONED]) == [5]
        assert seqs(lane=Lane.BACKFILL) == []
        assert len(seqs(lane=Lane.LIVE)) == 5

    def test_several_windows_are_added_at_once_with_numbers_in_their_order(self, ledger: Ledger, name: str) -> None:
        first = add_all(ledger, name, [draft(0, 10), draft(10, 20)])
        assert [(h.window.seq, h.holder, h.holds) for h in first] == [(1, claim(), 1), (2, claim(), 1)]
        more = add_all(ledger, name, [draft(20, 30), draft(30, 40), draft(40, 50)], claim("run-2"))
        assert [h.window.seq for h in more] == [3, 4, 5]
        state = ledger.load(name, claim("run-2"))
        assert (state.version, state.open, state.claimed) == (2, (*first, *more), tuple(more))
        assert state.position == Position(more[-1].window.ranges.ends, {"orders": "id-of-orders"})
        check_laws(ledger, name)

    def test_windows_are_added_and_others_taken_in_one_transaction(self, ledger: Ledger, name: str) -> None:
        left = add_all(ledger, name, [draft(0, 10), draft(10, 20)], claim("dead"))
        [new] = add_all(ledger, name, [draft(20, 30)], claim("run-2"), take=left)
        state = ledger.load(name, claim("run-2"))
        assert [(h.window.seq, h.holder, h.holds) for h in state.open] == [
            (1, claim("run-2"), 2),
            (2, claim("run-2"), 2),
            (3, claim("run-2"), 1),
        ]
        assert state.claimed == state.open
        assert new.window.seq == 3
        assert [h.window.seq for h in ledger.load(name, claim("dead")).claimed] == [1, 2]

    def test_who_can_not_take_one_adds_none(self, ledger: Ledger, name: str) -> None:
        left = add_all(ledger, name, [draft(0, 10), draft(10, 20)], claim("dead"))
        ledger.hold(left[1:], claim("faster"), NOW)
        before = (ledger.load(name), ledger.windows(name), ledger.groups())
        with pytest.raises(ConcurrentChangeError):
            add_all(ledger, name, [draft(20, 30)], claim("late"), take=left)
        with pytest.raises(ConcurrentChangeError):
            ledger.add_windows(group(name), 0, [draft(20, 30)], claim("late"), NOW, take=left[:1])
        assert (ledger.load(name), ledger.windows(name), ledger.groups()) == before
        assert ledger.load(name, claim("late")).claimed == ()

    def test_all_windows_are_held_or_none(self, ledger: Ledger, name: str) -> None:
        left = add_all(ledger, name, [draft(i, i + 1) for i in range(3)], claim("dead"))
        commit(ledger, left[2])
        with pytest.raises(ConcurrentChangeError):
            ledger.hold(left, claim("late"), NOW)  # the last one is in another state than they think
        assert {h.holder for h in ledger.load(name).open} == {claim("dead")}
        assert ledger.load(name, claim("late")).claimed == ()
        taken = ledger.hold(left[:2], claim("run-2"), NOW)
        assert [(h.window.seq, h.holds) for h in taken] == [(1, 2), (2, 2)]
        assert ledger.load(name, claim("run-2")).claimed == tuple(taken)

    def test_300_windows_are_added_and_held_at_once(self, ledger: Ledger, name: str) -> None:
        added = add_all(ledger, name, [draft(i, i + 1) for i in range(300)])
        held = ledger.hold(added, claim("run-2"), NOW)
        assert ledger.load(name, claim("run-2")).claimed == tuple(held)
        seqs = [row.window.seq for row in ledger.windows(name, seqs=range(1, 301), limit=1000)]
        assert seqs == list(range(300, 0, -1))

    def test_backfill_windows_move_nothing_and_are_not_among_the_open_live_ones(
        self, ledger: Ledger, name: str
    ) -> None:
        live = add(ledger, name, 100, 110)
        before = ledger.load(name)
        fill = [draft(0, 10, lane=Lane.BACKFILL), draft(10, 20, lane=Lane.BACKFILL)]
        filled = add_all(ledger, name, fill, claim("replay"))
        assert [(h.window.seq, h.window.lane) for h in filled] == [(2, Lane.BACKFILL), (3, Lane.BACKFILL)]
        state = ledger.load(name, claim("replay"))
        assert (state.position, state.open) == (before.position, (live,))
        assert state.claimed == tuple(filled)
        assert state.version == before.version + 1
        commit(ledger, filled[1])
        commit(ledger, live)
        assert ledger.load(name).position == before.position
        following = add(ledger, name, 110, 120, claim("run-2"))
        assert following.window.seq == 4
        assert [r.window.seq for r in ledger.windows(name, lane=Lane.BACKFILL)] == [3, 2]
        check_laws(ledger, name)

    def test_backfill_windows_do_not_hide_where_a_group_starts(self, ledger: Ledger, name: str) -> None:
        first = add(ledger, name, 100, 110)
        add_all(ledger, name, [draft(0, 10, lane=Lane.BACKFILL)], claim("replay"))
        ledger.abandon(first.window.id, act())
        assert ledger.load(name).position == Position(first.window.ranges.starts, {"orders": "id-of-orders"})

    def test_a_backfill_window_can_be_abandoned_whatever_came_later(self, ledger: Ledger, name: str) -> None:
        add(ledger, name, 100, 110)
        one, other = add_all(ledger, name, [draft(i, i + 10, lane=Lane.BACKFILL) for i in (0, 10)], claim("replay"))
        commit(ledger, other)
        add(ledger, name, 110, 120, claim("run-2"))
        version = ledger.load(name).version
        assert ledger.abandon(one.window.id, act()).window.state is State.ABANDONED
        assert ledger.load(name).version == version + 1
        with pytest.raises(IllegalStepError, match="is committed and can't become abandoned"):
            ledger.abandon(other.window.id, act())
        check_laws(ledger, name)

    def test_a_later_backfill_window_keeps_no_live_one_from_being_abandoned(self, ledger: Ledger, name: str) -> None:
        live = add(ledger, name, 100, 110)
        add_all(ledger, name, [draft(0, 10, lane=Lane.BACKFILL)], claim("replay"))
        ledger.abandon(live.window.id, act())
        check_laws(ledger, name)

    def test_what_a_task_did_since_its_last_clear_is_known(self, ledger: Ledger, name: str) -> None:
        one, other = add_all(ledger, name, [draft(0, 10), draft(10, 20)])

        def attempt(held: WindowRecord, by: Claim, this_try: Try, outcome: Outcome) -> int:
            number = ledger.start_attempt(held.id, by, this_try, NOW)
            ledger.end_attempt(number, outcome, 7, NOW)
            return number

        first, cleared = Try(1, 2, 2, NOW), Try(4, 3 + 2, 2, NOW)
        attempt(one, claim(), first, Outcome.FAILED)
        attempt(one, claim(), first, Outcome.SUCCEEDED)
        newest = attempt(one, claim(), first, Outcome.SUCCEEDED)
        since = attempt(other, claim(), cleared, Outcome.SUCCEEDED)
        found = ledger.succeeded(name, claim(), first)
        assert {seq: (a.id, a.window_id, a.records) for seq, a in found.items()} == {1: (newest, one.window.id, 7)}
        assert {seq: a.id for seq, a in ledger.succeeded(name, claim(), cleared).items()} == {2: since}
        ledger.hold([ledger.window(other.id)], claim("run-2"), NOW)
        attempt(other, claim("run-2"), first, Outcome.SUCCEEDED)
        assert set(ledger.succeeded(name, claim("run-2"), first)) == {2}
        assert ledger.succeeded(name, claim(), cleared) == {}, "another attempt has begun since"
        fewer_retries, another_run = Try(2, 2, 0, NOW), Try(2, 2, 2, NOW + timedelta(days=1))
        for this_try in (fewer_retries, another_run):
            assert ledger.succeeded(name, claim(), this_try) == {}
        assert ledger.succeeded(name, claim("no one"), first) == {}
        assert ledger.succeeded(f"{name}-other", claim(), first) == {}
        mapped = claim(map_index=0)
        assert ledger.succeeded(name, mapped, first) == {}

    def test_a_commit_in_two_steps(self, ledger: Ledger, name: str) -> None:
        held = add(ledger, name, 0, 10)
        assert commit(ledger, held, leave_committing=True) is True
        row = ledger.window(held.window.id)
        assert (row.window.state, row.committed_at) == (State.COMMITTING, None)
        assert commit(ledger, held, leave_committing=True) is True  # once more: it is not done yet
        later, version = NOW + timedelta(hours=1), ledger.load(name).version
        ledger.finish(name, version, [1], later)
        row = ledger.window(held.window.id)
        assert (row.window.state, row.committed_at) == (State.COMMITTED, later)
        assert ledger.load(name).version == version + 1
        assert commit(ledger, held, leave_committing=True) is False

    def test_a_backfill_window_moves_no_watermark_and_is_committed_in_one_step(self, ledger: Ledger, name: str) -> None:
        add(ledger, name, 0, 10)
        [held] = add_all(ledger, name, [draft(3, 5, lane=Lane.BACKFILL)])
        commit(ledger, held, leave_committing=True)
        assert ledger.window(held.window.id).window.state is State.COMMITTED

    def test_commits_are_finished_all_or_none_and_under_the_version(self, ledger: Ledger, name: str) -> None:
        one, two, given_up = add(ledger, name, 0, 10), add(ledger, name, 10, 20), add(ledger, name, 20, 30)
        commit(ledger, one, leave_committing=True)
        ledger.abandon(given_up.window.id, act())
        version = ledger.load(name).version
        for seqs, of_version in (([1, 2], version), ([1, 3], version), ([1, 99], version), ([1], version - 1)):
            with pytest.raises(ConcurrentChangeError):
                ledger.finish(name, of_version, seqs, NOW)
        states = [row.window.state for row in ledger.windows(name)]
        assert states == [State.ABANDONED, State.PLANNED, State.COMMITTING]
        commit(ledger, two, leave_committing=True)
        ledger.finish(name, version, [1, 2], NOW)
        assert ledger.load(name).open == ()

    def test_a_commit_that_stopped_half_way_can_be_committed(self, ledger: Ledger, name: str, url: str) -> None:
        held = add(ledger, name, 0, 10)
        self._stop_half_way(url, name)
        with pytest.raises(IllegalStepError, match="is committing"):
            ledger.abandon(held.window.id, act())
        assert commit(ledger, held) is True
        assert commit(ledger, held) is False

    def _stop_half_way(self, url: str, name: str) -> None:
        mine = select(groups.c.id).where(groups.c.name == name).scalar_subquery()
        with open_engine(url).begin() as connection:
            connection.execute(update(windows).where(windows.c.group_id == mine).values(state=State.COMMITTING))

    def test_live_windows_are_committed_in_any_order(self, ledger: Ledger, name: str) -> None:
        first, second, third = add_all(ledger, name, [draft(i, i + 1) for i in range(3)])
        commit(ledger, third)
        commit(ledger, first)
        assert ledger.load(name).open == (second,)
        assert ledger.load(name).position == Position(third.window.ranges.ends, {"orders": "id-of-orders"})
        with pytest.raises(ConfirmationError, match="--leave-gap"):
            ledger.abandon(second.window.id, act())
        ledger.abandon(second.window.id, act(), leave_gap=True)
        assert ledger.load(name).open == ()
        assert ledger.load(name).position == Position(third.window.ranges.ends, {"orders": "id-of-orders"})
        [recorded] = ledger.acts(name)
        assert recorded.details == {"window": second.window.id, "skipped": {"orders-0": [1, 2], "orders-1": [1, 2]}}

    def test_a_gap_stays_one_when_the_windows_behind_it_are_abandoned(self, ledger: Ledger, name: str) -> None:
        first, second, third = add_all(ledger, name, [draft(10 * i, 10 * i + 10) for i in range(3)])
        ledger.abandon(second.window.id, act(), leave_gap=True)
        ledger.abandon(third.window.id, act())
        assert ledger.load(name).position == Position(third.window.ranges.starts, {"orders": "id-of-orders"})
        with pytest.raises(ConfirmationError, match=r"orders-0 \[0, 10\)"):
            ledger.abandon(first.window.id, act())
        ledger.abandon(first.window.id, act(), leave_gap=True)
        assert ledger.load(name).position == Position(third.window.ranges.starts, {"orders": "id-of-orders"})

    def test_what_an_abandoned_window_owned_was_seen(self, ledger: Ledger, name: str) -> None:
        commit(ledger, add(ledger, name, 0, 10, partitions=1))
        ends = {TopicPartition("orders", 0): OffsetRange(10, 20), TopicPartition("orders", 1): OffsetRange(3, 7)}
        second = replace(draft(0, 1), ranges=OffsetRanges(ends))
        [held] = add_all(ledger, name, [second])
        ledger.abandon(held.window.id, act())
        there = {TopicPartition("orders", 0): 10, TopicPartition("orders", 1): 3}
        assert ledger.load(name).position == Position(there, {"orders": "id-of-orders"})

    def test_windows_are_found_by_number_and_by_cut_time(self, ledger: Ledger, name: str) -> None:
        micro = timedelta(microseconds=1)
        times = [NOW - micro, NOW, NOW + micro, NOW + timedelta(hours=1)]
        add_all(ledger, name, [draft(i, i + 1, planned_until=time) for i, time in enumerate(times)])

        def seqs(**wanted) -> list[int]:  # type: ignore[no-untyped-def]
            return [row.window.seq for row in ledger.windows(name, **wanted)]

        assert seqs(seqs=[2, 4, 99]) == [4, 2]
        assert seqs(seqs=[3], before=3) == []
        assert seqs(cut_in=(NOW - micro, NOW + micro)) == [3, 2]
        assert seqs(cut_in=(NOW, NOW)) == []
        assert seqs(cut_in=(NOW - timedelta(days=1), NOW)) == [2, 1]
        berlin = timezone(timedelta(hours=1))
        assert seqs(cut_in=(NOW.astimezone(berlin), (NOW + timedelta(hours=1)).astimezone(berlin))) == [4, 3]
        assert seqs(cut_in=(NOW, NOW + timedelta(hours=1)), seqs=[1, 3], lane=Lane.LIVE) == [3]
        tiles = [(times[0] - micro, NOW), (NOW, NOW + micro), (NOW + micro, times[-1])]
        assert [seqs(cut_in=tile) for tile in tiles] == [[2, 1], [3], [4]]

    def test_whether_a_window_was_capped_is_kept(self, ledger: Ledger, name: str) -> None:
        added = add_all(ledger, name, [draft(0, 10, is_capped=True), draft(10, 20), draft(20, 30, is_capped=True)])
        assert [held.window.is_capped for held in added] == [True, False, True]
        assert ledger.load(name, claim()).open == ledger.load(name, claim()).claimed == tuple(added)
        assert [row.window.is_capped for row in ledger.windows(name)] == [True, False, True]
        assert ledger.window(added[0].window.id).window.is_capped is True  # not a 1, which is no JSON true

    def test_the_lag_at_which_a_window_was_cut_is_kept_and_an_outline_leaves_out_what_is_not_known(
        self, ledger: Ledger, name: str
    ) -> None:
        large = 2**40  # more than 32 bits
        add_all(ledger, name, [draft(0, 10), draft(10, 20, unread=large), draft(20, 20, unread=0)])
        add(ledger, name, 0, 5, claim("fill"), partitions=1, lane=Lane.BACKFILL)
        assert [row.window.unread for row in ledger.windows(name)] == [None, 0, large, None]
        assert ledger.outlines([name])[name].unread == (large, 0)

    def test_many_groups_are_loaded_as_each_alone(self, ledger: Ledger, name: str) -> None:
        names = [f"{name}.{number}" for number in range(4)]
        where = Position({TopicPartition("orders", 0): 5}, {"orders": "id-of-orders"})
        ledger.found(group(names[0]), where, act("import"))
        commit(ledger, add(ledger, names[1], 0, 10))
        add_all(ledger, names[2], [draft(0, 10), draft(10, 20)])
        found = ledger.load_all([*names, f"{name}.none"])
        alone = {one: ledger.load(one) for one in names[:3]}
        assert [len(alone[one].open) for one in names[:3]] == [0, 0, 2]
        assert found == {one: replace(state, open=state.open[:1]) for one, state in alone.items()}
        assert found[names[0]].position == where

    def test_many_groups_are_looked_at_as_each_alone(self, ledger: Ledger, name: str) -> None:
        names = [f"{name}.{number}" for number in range(4)]
        where = Position({TopicPartition("orders", 0): 5}, {"orders": "id-of-orders"})
        ledger.found(group(names[0]), where, act("import"))
        for start in (0, 10):
            commit(ledger, add(ledger, names[1], start, start + 10))
        ledger.record(names[1], act("export"))
        add_all(ledger, names[2], [draft(0, 10), draft(10, 20)])
        add(ledger, names[2], 0, 5, lane=Lane.BACKFILL)
        found = ledger.overviews([*names, f"{name}.none"])
        assert found.keys() == set(names[:3])
        for one, seen in found.items():
            loaded = ledger.load(one)
            assert seen.state == replace(loaded, open=loaded.open[:1])
            assert in_short(seen.open) == in_short(ledger.windows(one, states=tuple(OPEN)))
            assert seen.acts == tuple(ledger.acts(one))
            newest = ledger.windows(one, states=[State.COMMITTED], lane=Lane.LIVE, limit=1)
            assert in_short([seen.last_committed] if seen.last_committed else []) == in_short(newest)
        assert [len(found[one].open) for one in names[:3]] == [0, 0, 3]

    def test_of_many_open_windows_the_newest_are_looked_at(self, ledger: Ledger, name: str) -> None:
        add_all(ledger, name, [draft(start, start + 1) for start in range(60)])
        shown = ledger.overviews([name])[name].open
        assert [window.seq for window in shown] == list(range(60, 10, -1))
        [oldest] = ledger.load_all([name])[name].open
        assert oldest.window.seq == 1, "the watermark is where it starts, although it is not shown"
        assert ledger.overviews([name])[name].state.open == (oldest,)

    @pytest.mark.parametrize("partitions", [3, 2_000])
    def test_a_window_in_short_counts_the_partitions_that_have_something(
        self, ledger: Ledger, name: str, partitions: int
    ) -> None:
        """Also of a window whose ranges are packed."""
        whole = draft(0, 300, partitions=partitions, unread=10**6)
        some = OffsetRanges(
            (tp, OffsetRange(r.start, r.start + (tp.partition % 3) * 128)) for tp, r in whole.ranges.items()
        )
        [held] = add_all(ledger, name, [replace(whole, ranges=some)])
        [window] = ledger.overviews([name])[name].open
        assert in_short([window]) == in_short([ledger.window(held.window.id)])
        assert window.partitions == sum(1 for p in range(partitions) if p % 3)
        assert in_short(ledger.summaries(name)) == in_short([window])
        with pytest.raises(LookupError, match="without its ranges"):
            _ = window.window

    def test_windows_in_short_are_those_that_are_asked_for_in_full(self, ledger: Ledger, name: str) -> None:
        commit(ledger, add(ledger, name, 0, 10))
        add_all(ledger, name, [draft(10, 20), draft(20, 30, lost={TopicPartition("orders", 1): OffsetRange(15, 20)})])
        for wanted in ({}, {"states": [State.PLANNED]}, {"seqs": [1, 3], "limit": 2}, {"limit": 1}, {"seqs": [7]}):
            assert in_short(ledger.summaries(name, **wanted)) == in_short(ledger.windows(name, **wanted))

    def test_in_its_turn_a_process_changes_a_group_alone(self, ledger: Ledger, name: str) -> None:
        commit(ledger, add(ledger, name, 0, 10))
        began, done = Event(), Event()

        def other() -> WindowRecord:
            began.set()
            with ledger.turn(name):
                done.set()
                return add(ledger, name, 20, 30, claim("run-3"))

        with ThreadPoolExecutor(1) as pool:
            with ledger.turn(name):
                state = ledger.load(name)
                waiting = pool.submit(other)
                assert began.wait(LONGEST)
                [mine] = ledger.add_windows(group(name), state.version, [draft(10, 20)], claim("run-2"), NOW)
                assert ledger.load(name).open == (mine,)
                assert not done.wait(0.2)
            theirs = waiting.result(LONGEST)
        assert ledger.load(name).open == (mine, theirs)
        check_laws(ledger, name)

    def test_a_turn_that_fails_has_changed_nothing(self, ledger: Ledger, name: str) -> None:
        held = add(ledger, name, 0, 10)
        before = ledger.load(name)

        def fail() -> None:
            with ledger.turn(name):
                add(ledger, name, 10, 20, claim("run-2"))
                ledger.abandon(held.window.id, act(), leave_gap=True)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert ledger.load(name) == before
        assert ledger.acts(name) == []

    def test_after_a_reset_a_group_stands_where_it_was_reset_to(self, ledger: Ledger, name: str) -> None:
        for start in (0, 10, 20):
            commit(ledger, add(ledger, name, start, start + 10))
        back = Position({TopicPartition("orders", p): 10 for p in range(2)}, {"orders": "id-of-orders"})
        ledger.reset(name, ledger.load(name).version, back, [2, 3], act("reset"))
        assert ledger.load_all([name])[name].position == back
        commit(ledger, add(ledger, name, 10, 15))
        assert ledger.load(name).position == replace(back, offsets=dict.fromkeys(back.offsets, 15))

    def test_the_newest_commits_are_those_of_the_live_lane(self, ledger: Ledger, name: str) -> None:
        assert ledger.recent_commits({name: 11}) == {}
        for start in range(0, 13 * 10, 10):
            held = add(ledger, name, start, start + 10, is_capped=start == 120)
            commit(ledger, held)
        backfill = add_all(ledger, name, [replace(draft(0, 5), lane=Lane.BACKFILL)])
        commit(ledger, backfill[0])
        add(ledger, name, 130, 140)
        found = ledger.recent_commits({name: 11, f"{name}-absent": 11})
        assert found.keys() == {name}
        assert [one.seq for one in found[name]] == list(range(13, 2, -1))
        assert [one.is_capped for one in found[name]] == [True] + [False] * 10
        row = ledger.window(name_window(name, 13))
        assert (found[name][0].planned_at, found[name][0].committed_at) == (row.planned_at, row.committed_at)
        other = f"{name}-other"
        commit(ledger, add(ledger, other, 0, 10))
        commit(ledger, add(ledger, other, 10, 20))
        each = ledger.recent_commits({name: 3, other: 1})
        assert {of: [one.seq for one in commits] for of, commits in each.items()} == {name: [13, 12, 11], other: [2]}

    def test_an_outline_names_what_is_open_what_was_committed_last_and_whose_it_is(
        self, ledger: Ledger, name: str
    ) -> None:
        assert ledger.outlines([name]) == {}
        spans, unread = [3, 5, 4], [9, 60, 4]
        ends = [3, 8, 12]
        for end, span, lag in zip(ends, spans, unread, strict=True):
            commit(ledger, add(ledger, name, end - span, end, unread=lag))
        first = add(ledger, name, 12, 13, replace(claim("other"), dag_id="other-dag"))
        add_all(ledger, name, [replace(draft(13, 15), lane=Lane.BACKFILL)], claim("third"))
        found = ledger.outlines([name, f"{name}-absent"])[name]
        assert found.group == name
        assert found.given == 5
        assert found.open == {Lane.LIVE: 1, Lane.BACKFILL: 1}
        assert found.first_open is not None
        assert found.first_open.id == first.window.id
        assert found.first_open.holder == first.holder
        assert {lane: one.seq for lane, one in found.oldest.items()} == {Lane.LIVE: 4, Lane.BACKFILL: 5}
        assert found.last_committed is not None
        assert (found.last_committed.seq, found.last_committed.state) == (3, State.COMMITTED)
        assert found.unread == tuple(unread)
        assert found.dag_ids == {"dag", "other-dag"}

    def test_an_outline_has_the_newest_windows_only(self, ledger: Ledger, name: str) -> None:
        for start in range(MAX_RECENT + 3):
            commit(ledger, add(ledger, name, start, start + 1, unread=start))
        found = ledger.outlines([name])[name]
        assert found.unread == tuple(range(3, MAX_RECENT + 3))
        assert (found.first_open, found.open) == (None, {})

    def test_the_windows_of_a_run_are_those_that_it_ever_had(self, ledger: Ledger, name: str) -> None:
        mine, mapped = claim(name), claim(name, map_index=4)
        first, second = add(ledger, name, 0, 3, mine), add(ledger, name, 3, 5, mapped)
        ledger.hold([first], claim("another"), NOW)
        found = ledger.windows_of_run("dag", name)
        assert [(one.id, one.holder) for one in found] == [(first.window.id, mine), (second.window.id, mapped)]
        assert [one.seq for one in ledger.windows_of_run("dag", name, "load", -1)] == [1]
        assert [one.seq for one in ledger.windows_of_run("dag", name, "load", 4)] == [2]
        assert ledger.windows_of_run("dag", name, "other") == []
        assert ledger.windows_of_run("other", name) == []

    def test_an_outline_knows_what_is_open_in_each_step_and_lane(self, ledger: Ledger, name: str) -> None:
        step = add(ledger, name, 0, 3)
        commit(ledger, step, leave_committing=True)
        add(ledger, name, 3, 5)
        fill = add_all(ledger, name, [replace(draft(5, 6), lane=Lane.BACKFILL)], claim("fill"))[0]
        found = ledger.outlines([name])[name]
        assert found.open == {Lane.LIVE: 2, Lane.BACKFILL: 1}
        assert found.first_open is not None
        assert (found.first_open.id, found.first_open.state) == (step.window.id, State.COMMITTING)
        assert {lane: one.seq for lane, one in found.oldest.items()} == {Lane.LIVE: 1, Lane.BACKFILL: 3}
        assert found.last_committed is None
        ledger.finish(name, ledger.load(name).version, [1], NOW)
        commit(ledger, ledger.window(name_window(name, 2)))
        found = ledger.outlines([name])[name]
        assert found.first_open is not None
        assert found.first_open.id == fill.window.id, "no live window is open"

    def test_an_outline_of_a_group_that_was_pruned_still_counts_all(self, ledger: Ledger, name: str) -> None:
        held = [add(ledger, name, start, start + 1, claim(name), unread=9 - start) for start in range(3)]
        for one in held:
            commit(ledger, one)
        before = ledger.outlines([name])[name]
        assert before.unread == (9, 8, 7)
        ledger.prune(ledger.old_windows(name, since=1, limit=2), act("prune", kept_from=3))
        assert ledger.outlines([name])[name] == replace(before, unread=(7,), first=3)
        assert [one.seq for one in ledger.windows_of_run("dag", name)] == [3]
        assert ledger.attempts_at(name, [1, 2, 3]).keys() == {3}

    def test_the_windows_of_a_run_are_in_the_order_of_group_and_number(self, ledger: Ledger, name: str) -> None:
        names = [f"{name}{end}" for end in ("-b", "-a", "-c")]
        for one in names:
            add_all(ledger, one, [draft(0, 1), draft(1, 2)], claim(name))
        found = [(one.group, one.seq) for one in ledger.windows_of_run("dag", name)]
        assert found == [(one, seq) for one in sorted(names) for seq in (1, 2)]

    def test_attempts_are_in_the_order_in_which_they_began(self, ledger: Ledger, name: str) -> None:
        held = add(ledger, name, 0, 3)
        began = [ledger.start_attempt(held.id, held.holder, Try(number), NOW) for number in (1, 2, 3)]
        ledger.end_attempt(began[2], Outcome.SUCCEEDED, 6, NOW)
        found = ledger.attempts_at(name, [1])[1]
        assert [one.id for one in found] == began
        assert [one.outcome for one in found] == [Outcome.LOST, Outcome.LOST, Outcome.SUCCEEDED]
        assert ledger.attempts_at(name, []) == {}

    def test_attempts_at_several_windows_are_those_of_each(self, ledger: Ledger, name: str) -> None:
        for start in range(3):
            commit(ledger, add(ledger, name, start, start + 1))
        found = ledger.attempts_at(name, [1, 3, 7])
        assert found.keys() == {1, 3}
        assert found == {seq: list(ledger.attempts(name_window(name, seq))) for seq in (1, 3)}

    def test_a_commit_tells_how_long_its_job_took_and_not_how_long_it_waited_for_it(
        self, ledger: Ledger, name: str
    ) -> None:
        minute = timedelta(minutes=1)
        held = add(ledger, name, 0, 10)
        for number, (began, took, outcome) in enumerate([(1, 5, Outcome.FAILED), (600, 7, Outcome.SUCCEEDED)], start=1):
            attempt = ledger.start_attempt(held.id, held.holder, Try(number), NOW + began * minute)
            ledger.end_attempt(attempt, outcome, 10, NOW + (began + took) * minute)
        ledger.commit(held.window.id, held.holder, attempt, NOW + 700 * minute)
        foreign = add(ledger, name, 10, 20, replace(claim("foreign"), scope=Scope.RUN))
        ledger.commit(foreign.window.id, foreign.holder, None, NOW + 30 * minute)
        assert [commit.seconds for commit in ledger.recent_commits({name: 11})[name]] == [1800, 420]

    def test_the_frontier_is_the_latest_cut_time_that_is_proven(self, ledger: Ledger, name: str) -> None:
        hour = timedelta(hours=1)

        def frontier() -> tuple[str | None, datetime | None, tuple[str, ...]]:
            found = ledger.frontiers([name]).get(name, Frontier())
            return found.window_id, found.planned_until, found.open

        assert frontier() == (None, None, ())
        first = add(ledger, name, 0, 10, planned_until=NOW)
        assert frontier() == (None, None, (first.window.id,))
        commit(ledger, first)
        assert frontier() == (first.window.id, NOW, ())
        capped = add(ledger, name, 10, 20, planned_until=NOW + hour, is_capped=True)
        commit(ledger, capped)
        assert frontier() == (first.window.id, NOW, ())  # what the cap left out is not planned yet
        waiting, ahead = add_all(
            ledger, name, [draft(20, 30, planned_until=NOW + 2 * hour), draft(30, 40, planned_until=NOW + 3 * hour)]
        )
        commit(ledger, ahead)
        assert frontier() == (first.window.id, NOW, (waiting.window.id,))
        commit(ledger, waiting)
        assert frontier() == (ahead.window.id, NOW + 3 * hour, ())
        add(ledger, name, 0, 5, lane=Lane.BACKFILL, planned_until=NOW + 9 * hour)
        assert frontier() == (ahead.window.id, NOW + 3 * hour, ())
        late = add(ledger, name, 40, 50, planned_until=NOW + hour)
        commit(ledger, late)
        assert frontier() == (ahead.window.id, NOW + 3 * hour, ())

    def test_where_windows_stand_is_read_without_their_ranges(self, ledger: Ledger, name: str) -> None:
        held, other = add(ledger, name, 0, 10), add(ledger, f"{name}.b", 5, 9, claim("run-2"))
        commit(ledger, held)
        asked = [held.window.id, other.window.id, f"{name}-000009", f"{name}.none-000001"]
        found = ledger.records(asked)
        assert {one: (s.state, s.span, s.holder) for one, s in found.items()} == {
            held.window.id: (State.COMMITTED, 20, claim()),
            other.window.id: (State.PLANNED, 8, claim("run-2")),
        }

    def test_on_one_connection_each_question_sees_its_own_moment(self, ledger: Ledger, name: str) -> None:
        with ledger.one_connection():
            assert ledger.load(name) == GroupState()
            held = add(ledger, name, 0, 10)
            assert ledger.load(name).open == (held,)
            with pytest.raises(UnknownWindowError):
                ledger.window(f"{name}-000002")
            commit(ledger, held)
            assert ledger.load(name).open == ()
        assert ledger.load(name).open == ()

    def test_in_a_turn_one_connection_is_that_of_the_turn(self, ledger: Ledger, name: str) -> None:
        commit(ledger, add(ledger, name, 0, 10))
        with ledger.turn(name):
            add(ledger, name, 10, 20)
            with ledger.one_connection():
                assert [row.window.seq for row in ledger.windows(name)] == [2, 1]
                add(ledger, name, 20, 30)
            assert [row.window.seq for row in ledger.windows(name)] == [3, 2, 1]

    def test_windows_from_a_number_on_are_found_on_each_page(self, ledger: Ledger, name: str) -> None:
        add_all(ledger, name, [draft(start, start + 10) for start in range(0, 50, 10)])
        asked = {"states": tuple(OPEN), "lane": Lane.LIVE, "since": 2, "limit": 2}
        assert [row.window.seq for row in ledger.windows(name, **asked)] == [5, 4]
        assert [row.window.seq for row in ledger.windows(name, **asked, before=4)] == [3, 2]
        assert ledger.windows(name, **asked, before=2) == []

    @pytest.mark.parametrize("partitions", [2, 3_000])
    def test_of_the_newest_committed_live_window_some_ranges_are_read(
        self, ledger: Ledger, name: str, partitions: int
    ) -> None:
        def seq_of(**which: int) -> int | None:
            found = ledger.excerpt(name, [], **which)
            return found and found.seq

        assert seq_of() is None
        for start in (0, 10, 20):
            commit(ledger, add(ledger, name, start, start + 10, partitions=partitions))
        commit(ledger, *add_all(ledger, name, [draft(3, 5, lane=Lane.BACKFILL)]))
        add(ledger, name, 30, 40, partitions=partitions)
        known, unknown = TopicPartition("orders", 1), [TopicPartition("orders", 5_000), TopicPartition("clicks", 1)]
        found = ledger.excerpt(name, [known, *unknown])
        assert found is not None
        assert (found.seq, found.partitions) == (3, partitions)
        assert found.window.ranges == OffsetRanges({known: OffsetRange(20, 30)})
        assert found.window.topic_ids == {"orders": "id-of-orders"}
        assert [seq_of(before=number) for number in (1, 2, 3, 4, 9)] == [None, 1, 2, 3, 3]
        assert [seq_of(since=number) for number in (1, 3, 4)] == [3, 3, None]
        assert (seq_of(before=3, since=2), seq_of(before=3, since=3)) == (2, None)

    @pytest.mark.parametrize("partitions", [2, 3_000])
    def test_a_window_of_many_partitions_is_packed_and_read_back(
        self, ledger: Ledger, name: str, partitions: int
    ) -> None:
        odd = {TopicPartition("orders", p): OffsetRange(7 * p, 9 * p) for p in range(0, 2 * partitions, 2)}
        epochs = dict.fromkeys(list(odd)[1:], 3)
        written = replace(draft(0, 0), ranges=OffsetRanges(odd), leader_epochs=epochs)
        [held] = ledger.add_windows(group(name), 0, [written], claim(), NOW)
        found = ledger.window(held.window.id).window
        assert (found.ranges, found.leader_epochs, found.topic_ids) == (OffsetRanges(odd), epochs, written.topic_ids)
        commit(ledger, held)
        state = ledger.load(name)
        assert state.position == Position(OffsetRanges(odd).ends, written.topic_ids, epochs)
        with ledger._engine.connect() as connection:
            query = select(windows.c.ranges, windows.c.packed).join(groups).where(groups.c.name == name)
            text, packed = connection.execute(query).one()
        assert (packed is None) == (partitions == 2)
        assert len(text) + len(packed or b"") < 10 * partitions + 300

    def test_groups_are_listed_as_they_last_planned(self, ledger: Ledger, name: str) -> None:
        commit(ledger, add(ledger, name, 0, 10))
        ledger.add_windows(group(name, max_offsets=7), 1, [draft(10, 20)], claim("run-2"), NOW)
        assert [g for g in ledger.groups() if g.name == name] == [group(name, max_offsets=7)]

    def test_what_is_not_there_is_named(self, ledger: Ledger, name: str) -> None:
        with pytest.raises(UnknownGroupError, match=f"no group {name}"):
            ledger.group(name)
        for missing in (f"{name}-000001", f"{name}-000002"):
            for ask in (
                lambda missing=missing: ledger.window(missing),
                lambda missing=missing: ledger.commit(missing, claim(), None, NOW),
                lambda missing=missing: ledger.abandon(missing, act()),
                lambda missing=missing: ledger.commit_by_hand(missing, act("commit")),
            ):
                with pytest.raises(UnknownWindowError, match=name):
                    ask()
            if missing.endswith("1"):
                add(ledger, name, 0, 10)
                ledger.abandon(f"{name}-000001", act())
        assert ledger.attempts(f"{name}-000002") == []


class TestSqlite(LedgerContract):
    """In a file."""

    @pytest.fixture
    def url(self, sqlite_url: str) -> str:
        """Return where the ledger is."""
        return sqlite_url


class _Server(LedgerContract):
    """What a server refuses has a type, too. And transactions run at one moment, of which one waits for another's locks."""

    def test_a_value_that_the_database_refuses_is_an_error_of_the_ledger(self, ledger: Ledger, name: str) -> None:
        held = add(ledger, name, 0, 10)
        with pytest.raises(LedgerError, match="refused a statement") as raised:
            ledger.abandon(held.window.id, act(kind="x" * 21))
        assert "test-pw" not in str(raised.value)
        assert ledger.window(held.window.id).window.state is State.PLANNED


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
    add(Ledger(sqlite_url), name, 0, 10)
    assert Ledger(sqlite_url).load(name).version == 1


def test_a_time_without_a_zone_is_refused(sqlite_url: str, name: str) -> None:
    late = replace(draft(0, 1), planned_until=datetime(2026, 1, 1))
    with pytest.raises(Exception, match="has no time zone"):
        Ledger(sqlite_url).add_windows(group(name), 0, [late], claim(), NOW)
