"""The ledger on SQLAlchemy: SQLite, PostgreSQL, MySQL and MariaDB."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, replace
from datetime import datetime
from functools import cache, lru_cache
from typing import Any, TypeVar

from sqlalchemy import (
    ARRAY,
    BindParameter,
    Column,
    ColumnElement,
    Connection,
    CursorResult,
    Engine,
    Executable,
    FromClause,
    Integer,
    Row,
    ScalarSelect,
    Select,
    String,
    Subquery,
    and_,
    any_,
    bindparam,
    case,
    cast,
    false,
    func,
    insert,
    or_,
    select,
    true,
    tuple_,
    union_all,
    update,
)

from airflow_kafka_offsets.core.errors import (
    MAX_NAMED,
    ConcurrentChangeError,
    UnknownGroupError,
    counted,
    no_group,
)
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import NEXT_WINDOW, Act, Attempt, Frontier, OldWindow, WindowRow
from airflow_kafka_offsets.core.lag.pace import Commit
from airflow_kafka_offsets.core.log import IsolationLevel
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.overview import (
    MAX_OF_RUN,
    MAX_RECENT,
    Outline,
    Overview,
    WindowLine,
    WindowSummary,
    first_open,
)
from airflow_kafka_offsets.core.plan.ownership import (
    Abandonment,
    GroupState,
    Owner,
    Position,
    abandonment,
    check_gap,
    is_owner,
)
from airflow_kafka_offsets.core.plan.pruning import Pruned, absent
from airflow_kafka_offsets.core.plan.reset import check_details
from airflow_kafka_offsets.core.ranges import OffsetRanges
from airflow_kafka_offsets.core.schemas import NOTHING, Frozen, ToFreeze
from airflow_kafka_offsets.core.tries import Try
from airflow_kafka_offsets.core.window import (
    OPEN,
    OWNING,
    Claim,
    Draft,
    Excerpt,
    Lane,
    Outcome,
    Scope,
    Standing,
    State,
    Window,
    WindowRecord,
    check_commit,
    check_steps,
)
from airflow_kafka_offsets.core.window_id import name_window, parse_window_id
from airflow_kafka_offsets.ledger import freezing, pruning, schema, staging
from airflow_kafka_offsets.ledger.documents import (
    count_filled,
    dump_position,
    dump_ranges,
    intact,
    load_position,
    load_ranges,
    load_some_ranges,
)
from airflow_kafka_offsets.ledger.engine import open_engine, reading, shared_engine, translated, where, writing
from airflow_kafka_offsets.ledger.packing import pack
from airflow_kafka_offsets.ledger.tables import acts, attempts, claim_windows, claims, groups, pruned, windows

logger = logging.getLogger(__name__)

MAX_PARAMETERS = 1000
"""How many values one statement may have: databases have a limit."""

MAX_BRANCHES = 100
"""How many selects one statement may join: SQLite has a limit of 500."""

MAX_OPEN = 50
"""How many open windows of a group an overview has."""

_T = TypeVar("_T")

_OWNER = (groups.c.owner_dag_id, groups.c.owner_task_id)
_HOLDER = (claims.c.dag_id, claims.c.run_id, claims.c.task_id, claims.c.map_index, claims.c.scope)


class SqlLedger:
    """`ports.Ledger` in a SQL database. Opens a connection for each call and keeps none."""

    def __init__(self, url: str, *, create: bool = False, is_asked_often: bool = False) -> None:
        """Open a ledger.

        Args:
            url: SQLAlchemy's URL of the database.
            create: make the tables if there are none (for a SQLite file that only this package uses).
            is_asked_often: whether this process opens it again and again: then what it learns of the database is kept
                (`engine.shared_engine`). What the ledger holds is read each time.

        Raises:
            LedgerSchemaError: the tables are not current.
            LedgerUnavailableError: the database did not answer.
        """
        self._url = url
        self._engine: Engine = shared_engine(url) if is_asked_often else open_engine(url)
        self._shared: ContextVar[Connection | None] = ContextVar("shared", default=None)
        revision = schema.current_revision(self._engine)
        if revision == schema.REVISION:
            return
        if not create:
            schema.check_revision(self._engine)
            return
        schema.upgrade(self._engine)
        if revision is None:
            logger.warning(
                "A new ledger was made: %s, in which each group begins at window 000001; that is right for a first run. If there was a "
                "ledger before, its records would be read and written again: turn the DAGs off and restore it, see "
                '"Keep the ledger" in the docs (docs/howto/keep-the-ledger.md)',
                where(self._engine),
            )

    @contextmanager
    def one_connection(self) -> Iterator[None]:
        """Let all questions of this context use one connection meanwhile; each still sees the ledger of its own moment.

        In a turn that is the connection of the turn, which sees what it wrote.
        """
        if self._shared.get() is not None:
            yield
            return
        with reading(self._engine) as connection, self._sharing(connection):
            yield

    @contextmanager
    def turn(self, group: str) -> Iterator[None]:
        """Wait for a group, and let no one else change it meanwhile. All that this context asks and writes then is one transaction."""
        with writing(self._engine) as connection:
            _wait_for_turn(connection, group)
            with self._sharing(connection):
                yield

    @contextmanager
    def _sharing(self, connection: Connection) -> Iterator[None]:
        token = self._shared.set(connection)
        try:
            yield
        finally:
            self._shared.reset(token)

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        connection = self._shared.get()
        if connection is None:
            with reading(self._engine) as connection:
                yield connection
            return
        with translated(self._engine):
            try:
                yield connection
            finally:
                if connection.get_execution_options().get("only_reads"):
                    connection.rollback()  # or a later question would see what this one saw

    @contextmanager
    def _reading_many(self) -> Iterator[Connection]:
        """Read of many groups at once."""
        with self._reading() as connection:
            if connection.dialect.name == "postgresql":
                # For so many steps into indexes it expects a long work, and compiles the statement: that takes longer than the work.
                connection.exec_driver_sql("SET LOCAL jit = off")
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        connection = self._shared.get()
        if connection is None or connection.get_execution_options().get("only_reads"):
            with writing(self._engine) as connection:
                yield connection
            return
        with translated(self._engine):
            yield connection

    def load(self, group: str, claim: Claim | None = None) -> GroupState:
        """Return the state of a group, for planning."""
        with self._reading() as connection:
            found = connection.execute(_standing_group_named(), {"of_group": group}).all()
            state = _states(connection, found, _open).get(group, GroupState())
            if claim is None:
                return state
            claimed = _claimed(connection, group, claim)
            return replace(
                state,
                claimed=claimed,
                elsewhere=() if claimed else _elsewhere(connection, group, claim),
                is_pruned=pruning.had_one(connection, group, claim),
            )

    def load_all(self, names: Sequence[str]) -> Mapping[str, GroupState]:
        """Return the states of groups; one that never planned is not in the answer."""
        with self._reading_many() as connection:
            found: dict[str, GroupState] = {}
            for some in _chunks(names):
                rows = connection.execute(_standing_groups().where(_is_one_of(connection, groups.c.name, some))).all()
                found |= _states(connection, rows, _oldest_open)
            return found

    def add_windows(
        self,
        group: KafkaGroup,
        version: int,
        drafts: Sequence[Draft],
        claim: Claim,
        now: datetime,
        take: Sequence[WindowRecord] = (),
        to_freeze: ToFreeze = NOTHING,
    ) -> list[WindowRecord]:
        """Add new windows held by the claim, give it others as `hold` does, and freeze schemas, all or none. Return the new ones."""
        definition = json.dumps(group.to_json())
        with self._writing() as connection:
            if version == 0:
                origin = dump_position(Position(drafts[0].ranges.starts, drafts[0].topic_ids))
                _add_group(connection, group.name, definition, origin, now, version=0)
            # What is read here is valid only if the group is still at this version below.
            row = _group(connection, group.name, groups.c.id, groups.c.next_seq, *_OWNER)
            defined = _defined(_owner(row), definition, drafts, claim)
            _advance(connection, group.name, version, next_seq=row.next_seq + len(drafts), **defined)
            holder = _claim_id(connection, claim)
            _freeze(connection, to_freeze.there)
            drafts = _with_schemas(connection, drafts, to_freeze.new)
            added = [draft.named(group.name, seq) for seq, draft in enumerate(drafts, start=row.next_seq)]
            more = {"group_id": row.id, "holder": holder, "holds": 1, "planned_at": now}
            for window in added:  # one at a time: together they could be too large for one statement
                connection.execute(insert(windows), {**_window_values(window), **more})
            _note_claims(connection, holder, row.id, [window.seq for window in added])
            if take:
                _hold(connection, row.id, take, holder, claim, now)
        return [WindowRecord(window, claim, holds=1) for window in added]

    def schemas(self, number: int) -> Frozen:
        """Return the schemas that are kept under a number."""
        with self._reading() as connection:
            return freezing.load(connection, number)

    def freeze(self, there: Sequence[tuple[Window, Frozen]]) -> None:
        """Freeze schemas with windows, in place of those that they have, all or none."""
        if there:
            with self._writing() as connection:
                _freeze(connection, there)

    def define(self, group: KafkaGroup, claim: Claim) -> None:
        """Store the definition of an existing group, unless the group belongs to another task."""
        with self._reading() as connection:
            row = _group(connection, group.name, groups.c.definition, *_OWNER)
        if group.topics_pattern is not None:  # what it matched, only a plan of new windows says
            group = group.having_matched(_definition(group.name, row.definition).topics)
        definition = json.dumps(group.to_json())
        is_new = row.definition != definition  # an unchanged definition takes no lock
        if is_new and is_owner(_owner(row), claim):
            with self._writing() as connection:
                connection.execute(update(groups).where(groups.c.name == group.name).values(definition=definition))

    def hold(
        self,
        held_windows: Sequence[WindowRecord],
        claim: Claim,
        now: datetime,
        there: Sequence[tuple[Window, Frozen]] = (),
    ) -> list[WindowRecord]:
        """Give windows to a claim, and freeze schemas, all or none, if each still has the holder and the state that were read."""
        with self._writing() as connection:
            (group_id,) = _group(connection, held_windows[0].window.group, groups.c.id)
            _hold(connection, group_id, held_windows, _claim_id(connection, claim), claim, now)
            _freeze(connection, there)
        return [replace(held, holder=claim, holds=held.holds + 1) for held in held_windows]

    def start_attempt(self, window: Window, claim: Claim, this_try: Try, now: datetime) -> int:
        """Record that a try begins, and return its number. Running attempts of earlier tries at the window become lost."""
        with self._writing() as connection:
            claim_id = _claim_id(connection, claim)
            group_id, running = _group_and_earlier(connection, window, claim_id, this_try.number)
            _lose(connection, running, now)
            result = connection.execute(
                insert(attempts).values(
                    group_id=group_id,
                    seq=window.seq,
                    claim_id=claim_id,
                    try_number=this_try.number,
                    series=this_try.series,
                    outcome=Outcome.RUNNING,
                    started_at=now,
                )
            )
            return _new_id(result)

    def succeeded(self, group: str, claim: Claim, this_try: Try) -> Mapping[int, Attempt]:
        """Return the task's successful attempts that this try continues, by the window's sequence number."""
        query = _attempts(group).where(
            attempts.c.claim_id == _id_of_claim(),
            attempts.c.series == this_try.series,
            attempts.c.outcome == Outcome.SUCCEEDED,
        )
        with self._reading() as connection:
            found = [(row.seq, _attempt(row)) for row in connection.execute(query, _names(claim))]
        return {seq: attempt for seq, attempt in found if this_try.continues(attempt)}

    def end_attempt(self, attempt: int, outcome: Outcome, records: int | None, now: datetime) -> None:
        """Record how a try ended. A recorded end is never changed."""
        with self._writing() as connection:
            connection.execute(
                update(attempts)
                .where(attempts.c.id == attempt, attempts.c.outcome == Outcome.RUNNING)
                .values(outcome=outcome, records=records, ended_at=now)
            )

    def commit(
        self,
        window_id: str,
        claim: Claim,
        attempt: int | None,
        now: datetime,
        *,
        in_two_steps: bool = False,
        output: Sequence[str] = (),
    ) -> bool:
        """Commit a window, if it is still planned; False: it was committed before, and only its output changed.

        The watermark always ends where the window starts, so this is not checked: the window was cut there under the group's
        version, a window abandoned before it leaves a recorded gap, and a reset requires that no window is open.
        """
        with writing(self._publishing(output)) as connection:
            window, group_id, outcome = _standing(connection, window_id, attempt)
            is_first = check_commit(window, claim, outcome)
            if is_first:
                _commit(connection, group_id, window, now, in_two_steps=in_two_steps)
            elif output:  # another commit of the same rerun must wait for this one
                _change(connection, group_id, window, window.holds, state=window.state)
            if output and window.span:
                is_planned = window.state is State.PLANNED
                staging.publish(connection, window_id, output, attempt, now, is_planned=is_planned)
        if output and window.span:
            staging.clean(self._engine)
        return is_first

    def _publishing(self, output: Sequence[str]) -> Engine:
        if not (output and self._engine.dialect.name == "mysql"):
            return self._engine
        engine = open_engine(self._url, connect_args={"read_timeout": staging.PUBLISH_TIMEOUT})
        # InnoDB's default also locks gaps: jobs of the next windows could not record their staging tables, nor commits publish.
        return engine.execution_options(isolation_level="READ COMMITTED")

    def finish(self, group: str, version: int, seqs: Sequence[int], now: datetime) -> None:
        """Finish commits: windows that are `committing` become `committed`, all or none."""
        with self._writing() as connection:
            _advance(connection, group, version)
            (group_id,) = _group(connection, group, groups.c.id)
            _step(connection, group_id, seqs, State.COMMITTING, state=State.COMMITTED, committed_at=now)

    def abandon(self, window_id: str, act: Act, *, leave_gap: bool = False) -> Abandonment:
        """Abandon an open window: it no longer owns its offsets."""
        with self._writing() as connection:
            # Together with the version: any change from here on makes the compare-and-set below fail.
            row = _find_window(connection, _held_windows().add_columns(groups.c.version), window_id)
            held = _held(row)
            group = connection.execute(_standing_group_named(), {"of_group": held.window.group}).one()
            done = abandonment(held.window, _positions(connection, [group])[group.id], _newest(group))
            origin = {"origin_seq": groups.c.next_seq, "origin": dump_position(done.position)} if done.position else {}
            _advance(connection, group.name, row.version, **origin)
            check_gap(done, leave_gap)  # after the compare-and-set: no one is asked to confirm outdated values
            _change(connection, group.id, held.window, held.holds, state=State.ABANDONED)
            _record(connection, group.id, replace(act, details={**act.details, **done.facts}))
        return done

    def commit_by_hand(
        self, window_id: str, act: Act, *, in_two_steps: bool = False, output: Sequence[str] = ()
    ) -> None:
        """Commit a planned window because a person says so, and record this."""
        with writing(self._publishing(output)) as connection:
            window, group_id, _ = _standing(connection, window_id)
            check_steps(window_id, window.state, State.COMMITTING, State.COMMITTED)
            _commit(connection, group_id, window, act.at, in_two_steps=in_two_steps)
            _record(connection, group_id, act)
            if output and window.span:
                staging.publish(connection, window_id, output, None, act.at, is_planned=True)
        if output and window.span:
            staging.clean(self._engine)

    def reset(self, group: str, version: int, position: Position, superseded: Sequence[int], act: Act) -> None:
        """Move the watermark to a position, and mark the superseded windows."""
        with self._writing() as connection:
            _advance(connection, group, version, origin_seq=groups.c.next_seq, origin=dump_position(position))
            row = _group(connection, group, groups.c.id, groups.c.next_seq)
            _step(connection, row.id, superseded, State.COMMITTED, state=State.SUPERSEDED)
            _record(connection, row.id, replace(act, details={**act.details, NEXT_WINDOW: row.next_seq}))

    def take_over(self, group: str, version: int, owner: Owner, act: Act) -> None:
        """Give a group to another task."""
        with self._writing() as connection:
            (group_id,) = _group(connection, group, groups.c.id)
            _advance(connection, group, version, **_owner_values(owner))
            _record(connection, group_id, act)

    def found(self, group: KafkaGroup, position: Position, act: Act) -> None:
        """Add a group that has never planned, and where its first window starts."""
        with self._writing() as connection:
            definition, origin = json.dumps(group.to_json()), dump_position(position)
            group_id = _add_group(connection, group.name, definition, origin, act.at, version=1)
            _record(connection, group_id, act)

    def record(self, group: str, act: Act) -> None:
        """Record a person's act that changes nothing in the ledger."""
        with self._writing() as connection:
            (group_id,) = _group(connection, group, groups.c.id)
            _record(connection, group_id, act)

    def pruned(self, group: str) -> Pruned:
        """Return what is known of the windows that a group no longer has."""
        with self._reading() as connection:
            return pruning.load(connection, group)

    def old_windows(self, group: str, *, since: int, limit: int) -> Sequence[OldWindow]:
        """Return windows of a group with this number or a larger one, the oldest first."""
        mine = and_(windows.c.group_id == _id_of(group), windows.c.seq >= since)
        with self._reading() as connection:
            rows = connection.execute(_old_windows().where(mine).order_by(windows.c.seq).limit(limit))
            return [OldWindow(_held(row), row.planned_at, row.attempts, row.last_attempt) for row in rows]

    def prune(self, old: Sequence[OldWindow], act: Act, number: int | None = None) -> int:
        """Delete old windows that follow one another, the first ones of their group, and record the act, or change its details."""
        group = old[0].held.window.group
        with self._writing() as connection:
            (group_id,) = _group(connection, group, groups.c.id)
            pruning.take_out(connection, group, group_id, old)
            if number is None:
                return _record(connection, group_id, act)
            pruning.note(connection, number, act)
            return number

    def groups(self) -> Sequence[KafkaGroup]:
        """Return every group as it was defined when it last planned."""
        return self._groups()

    def groups_of(self, owner: Owner) -> Sequence[KafkaGroup]:
        """Return the groups that belong to a task, as they were defined when they last planned."""
        return self._groups(groups.c.owner_dag_id == owner.dag_id, groups.c.owner_task_id == owner.task_id)

    def _groups(self, *which: ColumnElement[bool]) -> list[KafkaGroup]:
        query = select(groups.c.name, groups.c.definition).where(*which).order_by(groups.c.name)
        with self._reading() as connection:
            return [_definition(row.name, row.definition) for row in connection.execute(query)]

    def group(self, name: str) -> KafkaGroup:
        """Return one group as it was defined when it last planned."""
        with self._reading() as connection:
            definition = connection.execute(_group_named((groups.c.definition,)), {"of_group": name}).scalar()
            if definition is None:
                known = connection.execute(select(groups.c.name).order_by(groups.c.name)).scalars().all()
                raise no_group(name, known)
            return _definition(name, definition)

    def window(self, window_id: str) -> WindowRow:
        """Return one window."""
        with self._reading() as connection:
            return _window_row(_find_window(connection, _history(), window_id))

    def standings(self, window_ids: Sequence[str]) -> Mapping[str, Standing]:
        """Return where windows stand, without their ranges; one that does not exist is not in the answer."""
        asked = [parse_window_id(window_id) for window_id in window_ids]
        with self._reading() as connection:
            ids = _ids(connection, {group for group, _ in asked})
            pairs = [(ids[group], seq) for group, seq in asked if group in ids]
            found = map(_standing_of, _rows_at(connection, _standings, pairs))
            return {window.id: window for window in found}

    def overviews(self, names: Sequence[str], *, newest_acts: int | None = None) -> Mapping[str, Overview]:
        """Return where groups stand; one that the ledger does not have is not in the answer."""
        with self._reading_many() as connection:
            found: dict[str, Overview] = {}
            for some in _chunks(names):
                found |= _overviews(connection, _is_one_of(connection, groups.c.name, some), newest_acts)
            return found

    def position(self, group: str) -> Position | None:
        """Return where the next live window of a group starts; None: the ledger does not have the group."""
        with self._reading() as connection:
            found = connection.execute(_standing_group_named(), {"of_group": group}).all()
            return next(iter(_positions(connection, found).values()), None)

    def outlines(self, names: Sequence[str]) -> Mapping[str, Outline]:
        """Return groups in a line each, without any ranges; one that the ledger does not have is not in the answer."""
        found: dict[str, Outline] = {}
        with self._reading_many() as connection:
            for some in _chunks(names):
                found |= _outlines(connection, some)
        return found

    def recent_commits(self, wanted: Mapping[str, int]) -> Mapping[str, Sequence[Commit]]:
        """Return so many of the newest committed live windows of groups, newest first, without their ranges."""
        found: dict[str, list[Commit]] = {}
        with self._reading_many() as connection:
            ids = list(_ids(connection, list(wanted)).items())
            for some in _chunks(ids, MAX_BRANCHES):
                for name, rows in _newest_commits(connection, some, wanted).items():
                    with intact(f"the times of the windows of group {name}"):
                        found[name] = [_commit_of(row) for row in rows]
        return found

    def frontiers(self, names: Sequence[str]) -> Mapping[str, Frontier]:
        """Return how far groups have come in time, without any ranges; one that never planned is not in the answer."""
        with self._reading_many() as connection:
            found: dict[str, Frontier] = {}
            for some in _chunks(names):
                rows = connection.execute(_frontiers().where(_is_one_of(connection, groups.c.name, some))).all()
                waiting = _open_seqs(connection, [row.id for row in rows if row.oldest_open is not None])
                for row in rows:
                    with intact(f"the planned-until times of group {row.name}"):
                        found[row.name] = _frontier(row, waiting.get(row.id, ()))
            return found

    def windows(
        self,
        group: str,
        *,
        states: Sequence[State] = (),
        lane: Lane | None = None,
        seqs: Sequence[int] = (),
        cut_in: tuple[datetime, datetime] | None = None,
        before: int | None = None,
        since: int | None = None,
        limit: int = 50,
    ) -> Sequence[WindowRow]:
        """Return windows of a group, newest first. `before` (a sequence number) asks for the next page."""
        rows = self._history_of(group, states, lane, seqs, cut_in, before, since, limit)
        return [_window_row(row) for row in rows]

    def summaries(
        self, group: str, *, states: Sequence[State] = (), seqs: Sequence[int] = (), limit: int = 50
    ) -> Sequence[WindowSummary]:
        """Return windows of a group in short, newest first, without reading their ranges."""
        return [_summary(row) for row in self._history_of(group, states, None, seqs, None, None, None, limit)]

    def _history_of(
        self,
        group: str,
        states: Sequence[State],
        lane: Lane | None,
        seqs: Sequence[int],
        cut_in: tuple[datetime, datetime] | None,
        before: int | None,
        since: int | None,
        limit: int,
    ) -> list[Row[Any]]:
        """Find windows with their history, as `windows` is asked for them."""
        cut_after, cut_until = cut_in or (None, None)
        limits = {"planned_after": cut_after, "planned_until": cut_until, "before": before, "since": since}
        asked: dict[str, Any] = {name: limit for name, limit in limits.items() if limit is not None}
        if seqs:
            asked["of_seqs"] = list(seqs)
        page = _page(tuple(sorted(set(states))), lane, frozenset(asked))
        with self._reading() as connection:
            # In one statement, PostgreSQL would read all windows of the group for a join with 200 of them, and SQLite would take so many
            # branches to find much.
            found = connection.execute(page, {"of_group": group, "at_most": limit, **asked}).scalars().all()
            query = _history_among(connection.dialect.name)
            each = [{"of_group": group, **_as_numbers(some)} for some in _chunks(found)]
            rows = [row for numbers in each for row in connection.execute(query, numbers)]
        # Some may have changed since their numbers were found.
        still = [row for row in rows if not states or row.state in states]
        return sorted(still, key=lambda row: -row.seq)

    def excerpt(
        self,
        group: str,
        partitions: Collection[TopicPartition],
        *,
        before: int | None = None,
        since: int | None = None,
    ) -> Excerpt | None:
        """Return the newest committed live window, with the ranges of some partitions only."""
        query = select(windows.c.seq, windows.c.ranges, windows.c.packed).where(
            windows.c.group_id == _id_of(group),
            windows.c.lane == Lane.LIVE,
            windows.c.state == State.COMMITTED,
            *_numbered(before, since),
        )
        with self._reading() as connection:
            row = connection.execute(query.order_by(windows.c.seq.desc()).limit(1)).first()
        if row is None:
            return None
        with intact(f"window {row.seq} of group {group}"):
            ranges, topic_ids, many = load_some_ranges(row.ranges, row.packed, partitions)
            return Excerpt(seq=row.seq, ranges=ranges, topic_ids=topic_ids, partition_count=many)

    def attempts(self, window_id: str) -> Sequence[Attempt]:
        """Return the attempts at a window, oldest first."""
        group, seq = parse_window_id(window_id)
        with self._reading() as connection:
            return [_attempt(row) for row in connection.execute(_attempts(group).where(attempts.c.seq == seq))]

    def attempts_at(self, group: str, seqs: Sequence[int]) -> Mapping[int, Sequence[Attempt]]:
        """Return the attempts at windows of a group by their number, oldest first."""
        found: dict[int, list[Attempt]] = {}
        with self._reading() as connection:
            query = _attempts(group).where(_among(connection.dialect.name, attempts.c.seq))
            for some in _chunks(seqs):
                for row in connection.execute(query, _as_numbers(some)):
                    found.setdefault(row.seq, []).append(_attempt(row))
        return found

    def windows_of_run(
        self, dag_id: str, run_id: str, task_id: str | None = None, map_index: int | None = None
    ) -> Sequence[WindowLine]:
        """Return the windows that a run has, or had, by group and number."""
        query = _line_query().add_columns(groups.c.name.label("group_name")).join(groups)
        query = query.where(claims.c.dag_id == dag_id, claims.c.run_id == run_id)
        if task_id is not None:
            query = query.where(claims.c.task_id == task_id)
        if map_index is not None:
            query = query.where(claims.c.map_index == map_index)
        same = and_(claim_windows.c.group_id == windows.c.group_id, claim_windows.c.seq == windows.c.seq)
        query = query.join(claim_windows, same).join(claims, claims.c.id == claim_windows.c.claim_id)
        with self._reading() as connection:
            rows = connection.execute(query.order_by(groups.c.name, windows.c.seq).limit(MAX_OF_RUN))
            return [_line(row.group_name, row) for row in rows]

    def acts(self, group: str, *, newest: int | None = None) -> Sequence[Act]:
        """Return what people did to a group, oldest first; with `newest`, only so many of the newest acts."""
        query = _acts().limit(newest)
        with self._reading() as connection:
            return [_act(group, row) for row in connection.execute(query, {"of_group": group})][::-1]


@lru_cache(maxsize=10_000)  # a page asks again and again, and definitions rarely change
def _definition(group: str, text: str) -> KafkaGroup:
    with intact(f"the definition of group {group}"):
        return KafkaGroup.from_json(json.loads(text))


@cache
def _acts() -> Select[Any]:
    """Select the acts of the group `of_group`, the newest first."""
    return select(acts).where(acts.c.group_id == _ID_OF_GROUP).order_by(acts.c.id.desc())


def _act(group: str, row: Row[Any]) -> Act:
    with intact(f"act {row.id} of group {group}"):
        act = Act(row.kind, row.who, row.why, row.at, dict(json.loads(row.details)))
        check_details(act.details)
        return act


def _owner(group: Row[Any]) -> Owner | None:
    return _owner_named(group.owner_dag_id, group.owner_task_id) if group.owner_dag_id is not None else None


@lru_cache(maxsize=10_000)  # as above: of a thousand groups, to check the names takes longer than to find them again
def _owner_named(dag_id: str, task_id: str) -> Owner:
    return Owner(dag_id, task_id)


def _owner_values(owner: Owner) -> dict[str, str]:
    return {"owner_dag_id": owner.dag_id, "owner_task_id": owner.task_id}


def _defined(owner: Owner | None, definition: str, drafts: Sequence[Draft], claim: Claim) -> dict[str, str]:
    """Return what new windows change in their group's row: nothing if the group belongs to another task."""
    if not is_owner(owner, claim):
        return {}
    is_live = any(draft.lane is Lane.LIVE for draft in drafts)
    return {"definition": definition, **(_owner_values(Owner.of(claim)) if is_live else {})}


_FindOpen = Callable[[Connection, Sequence[int]], dict[int, list[WindowRecord]]]
"""Finds open live windows of groups, by the ids of these, the oldest first."""


def _states(connection: Connection, found: Sequence[Row[Any]], find_open: _FindOpen) -> dict[str, GroupState]:
    positions = _positions(connection, found)
    is_open = find_open(connection, [row.id for row in found if row.planned or row.committing])
    return {
        row.name: GroupState(
            version=row.version,
            position=positions[row.id],
            open=tuple(is_open.get(row.id, ())),
            owner=_owner(row),
            began_at=row.created_at if row.origin_seq == 1 else None,
        )
        for row in found
    }


def _overviews(connection: Connection, which: ColumnElement[bool], newest_acts: int | None) -> dict[str, Overview]:
    found = connection.execute(_standing_groups().where(which)).all()
    states, ids = _states(connection, found, _oldest_open), [row.id for row in found]
    committed = {row.id: seq for row in found if (seq := row._mapping[State.COMMITTED.value]) is not None}
    last = {row.group_id: _summary(row) for row in _rows_of(connection, committed.items())}
    is_open = _newest_open(connection, ids)
    before = pruning.before(connection, ids)
    done = _acts_of(connection, {row.id: row.name for row in found}, newest_acts)
    return {
        row.name: Overview(
            states[row.name],
            last.get(row.id),
            tuple(is_open.get(row.id, ())),
            tuple(done.get(row.id, ())),
            before.get(row.id, 1),
        )
        for row in found
    }


def _acts_of(connection: Connection, names: Mapping[int, str], newest: int | None) -> dict[int, list[Act]]:
    """Find what people did to groups, oldest first, by the id of the group.

    Args:
        connection: to the database.
        names: the groups, by their ids.
        newest: so many of each, with a branch for each group, which reads only so many entries of the index; None: all.
    """
    found: dict[int, list[Act]] = {}
    ids = list(names) if newest is None else _with_acts(connection, list(names))
    for query in _acts_queries(ids, newest):
        for row in sorted(connection.execute(query), key=lambda row: int(row.id)):
            found.setdefault(row.group_id, []).append(_act(names[row.group_id], row))
    return found


def _with_acts(connection: Connection, ids: Sequence[int]) -> list[int]:
    """Return the groups to which people did anything: for most it is nothing, and a branch for each takes time."""
    # Not `exists`: MariaDB makes a join of that, and reads all acts.
    any_act = select(acts.c.id).where(acts.c.group_id == groups.c.id).limit(1).correlate(groups).scalar_subquery()
    query = select(groups.c.id).where(any_act.is_not(None))
    queries = (query.where(_is_one_of(connection, groups.c.id, some)) for some in _chunks(ids))
    return [id_ for one in queries for id_ in connection.execute(one).scalars()]


def _acts_queries(ids: Sequence[int], newest: int | None) -> Iterator[Executable]:
    if newest is None:
        for some in _chunks(ids):
            yield select(acts).where(acts.c.group_id.in_(some))
        return
    for some in _chunks(ids, MAX_BRANCHES):
        each = (
            select(acts).where(acts.c.group_id == group_id).order_by(acts.c.id.desc()).limit(newest).subquery()
            for group_id in some
        )
        yield union_all(*map(select, each))


def _outlines(connection: Connection, names: Sequence[str]) -> dict[str, Outline]:
    rows = connection.execute(_lists().where(_is_one_of(connection, groups.c.name, names))).all()
    recent = _recent(connection, rows)
    is_open = {row.id: _open_windows(row) for row in rows}
    shown = [(row.id, seq) for row in rows for seq in (*is_open[row.id][0].values(), row.last) if seq is not None]
    lines = {(row.group_id, row.seq): row for row in _lines(connection, shown)}
    return {row.name: _outline(row, is_open[row.id], lines, recent.get(row.id, ([], set()))) for row in rows}


_OPEN_COLUMNS = tuple(
    (lane, state, f"first_{lane.value}_{state.value}", f"open_{lane.value}_{state.value}")
    for lane in (Lane.LIVE, Lane.BACKFILL)
    for state in sorted(OPEN)
)


# Statements of every page, plan and commit are built once: to build one takes longer than to run it.
@cache
def _lists() -> Select[Any]:
    """Select groups, each with its newest committed live window, and with number and oldest of its open windows: steps into an index."""

    def of(lane: Lane, state: State, what: ColumnElement[Any]) -> ScalarSelect[Any]:
        return select(what).where(_of_group(windows, lane, state)).correlate(groups).scalar_subquery()

    columns: list[ColumnElement[Any]] = [_newest_live(State.COMMITTED).label("last")]
    for lane, state, first, number in _OPEN_COLUMNS:
        columns += [of(lane, state, func.min(windows.c.seq)).label(first), of(lane, state, func.count()).label(number)]
    return select(groups.c.id, groups.c.name, groups.c.next_seq, *_OWNER, *columns)


_Open = tuple[dict[Lane, int], dict[Lane, int]]
"""The number of the oldest open window, and how many are open, in each lane that has some."""


def _open_windows(row: Row[Any]) -> _Open:
    found = row._mapping
    counts: dict[Lane, int] = {}
    firsts: dict[Lane, int] = {}
    for lane, _, first, number in _OPEN_COLUMNS:
        if seq := found[first]:
            counts[lane] = counts.get(lane, 0) + found[number]
            firsts[lane] = min(firsts.get(lane, seq), seq)
    return firsts, counts


_Recent = tuple[list[int], set[str]]
"""The lags at which a group's newest live windows were cut, oldest first, as far as they are known, and the DAGs that held any of its newest windows last."""


def _recent(connection: Connection, rows: Sequence[Row[Any]]) -> dict[int, _Recent]:
    """Look at the newest windows of groups. Numbers have no holes at the end, so this is a step into the index for each group."""
    # Each database has a form of its own: with that of another one it reads whole histories, or takes three times as long.
    match connection.dialect.name:
        case "postgresql":
            query = _newest_by_limit()
        case "sqlite":
            query = _newest_by_number()
        case _:
            return _recent_by_row(connection, rows)
    found = connection.execute(query.where(_is_one_of(connection, groups.c.id, [row.id for row in rows])))
    return {group_id: _gathered(*map(_listed, lists)) for group_id, *lists in found}


def _listed(value: Any) -> list[Any]:
    """Return a list that a database gathered. The driver of PostgreSQL has read its JSON."""
    return list(json.loads(value) if isinstance(value, str) else value)


def _gathered(lags: Iterable[Any], dag_ids: Iterable[str]) -> _Recent:
    """Return what was found of a group: pairs of a window's number and its lag, if it has one, and DAGs."""
    return [lag for _, lag in sorted(lags) if lag is not None], set(dag_ids)


def _lag_of(found: FromClause) -> ColumnElement[Any]:
    return case((found.c.lane == Lane.LIVE, found.c.unread))


def _dag_of(found: FromClause) -> ScalarSelect[Any]:
    # As a join, it would read all claims.
    return select(claims.c.dag_id).where(claims.c.id == found.c.holder).scalar_subquery()


@cache
def _newest_by_limit() -> Select[Any]:
    # Of a range of numbers, PostgreSQL takes each third window to be in it, and reads all windows of all groups.
    here = select(windows).where(windows.c.group_id == groups.c.id).correlate(groups)
    newest = here.order_by(windows.c.seq.desc()).limit(MAX_RECENT).lateral()
    lags = func.json_agg(func.json_build_array(newest.c.seq, _lag_of(newest)))
    query = select(groups.c.id, lags, func.json_agg(_dag_of(newest).distinct()))
    return query.join(newest, true()).group_by(groups.c.id)


@cache
def _newest_by_number() -> Select[Any]:
    is_new = and_(windows.c.group_id == groups.c.id, windows.c.seq >= groups.c.next_seq - MAX_RECENT)
    lags = func.json_group_array(func.json_array(windows.c.seq, _lag_of(windows)))
    query = select(groups.c.id, lags, func.json_group_array(_dag_of(windows).distinct()))
    return query.join(windows, is_new).group_by(groups.c.id)


def _recent_by_row(connection: Connection, rows: Sequence[Row[Any]]) -> dict[int, _Recent]:
    lags: dict[int, list[tuple[int, int | None]]] = {}
    dag_ids: dict[int, set[str]] = {}
    columns = (windows.c.group_id, windows.c.seq, _lag_of(windows), _dag_of(windows))
    for some in _chunks(rows, MAX_BRANCHES):
        ends = [and_(windows.c.group_id == row.id, windows.c.seq >= row.next_seq - MAX_RECENT) for row in some]
        for group_id, seq, lag, dag_id in connection.execute(select(*columns).where(or_(*ends))):
            lags.setdefault(group_id, []).append((seq, lag))
            dag_ids.setdefault(group_id, set()).add(dag_id)
    return {group_id: _gathered(lags[group_id], dag_ids[group_id]) for group_id in lags}


def _lines(connection: Connection, pairs: Sequence[tuple[int, int]]) -> list[Row[Any]]:
    """Find windows by group id and number, without their ranges."""
    return _rows_at(connection, _held_lines, pairs)


def _held_lines() -> Select[Any]:
    return _line_query().join(claims)


@cache
def _line_query() -> Select[Any]:
    columns = ("group_id", "seq", "lane", "state", "span", "planned_until", "planned_at", "committed_at")
    return select(*(windows.c[column] for column in columns), *_HOLDER).select_from(windows)


def _outline(row: Row[Any], is_open: _Open, lines: Mapping[tuple[int, int], Row[Any]], recent: _Recent) -> Outline:
    (firsts, counts), (lags, dag_ids) = is_open, recent
    oldest = {lane: _line(row.name, lines[row.id, seq]) for lane, seq in firsts.items()}
    last = None if row.last is None else _line(row.name, lines[row.id, row.last])
    shown = [found.holder.dag_id for found in (first_open(oldest), last) if found is not None]
    return Outline(
        group=row.name,
        given=row.next_seq - 1,
        owner=_owner(row),
        open=counts,
        oldest=oldest,
        last_committed=last,
        unread=tuple(lags),
        dag_ids=frozenset({row.owner_dag_id, *dag_ids, *shown} - {None}),
    )


def _line(group: str, row: Row[Any]) -> WindowLine:
    with intact(f"window {row.seq} of group {group}"):
        return WindowLine(**_in_a_line(group, row))


def _in_a_line(group: str, row: Row[Any]) -> dict[str, Any]:
    return {
        "group": group,
        "seq": row.seq,
        "lane": Lane(row.lane),
        "state": State(row.state),
        "span": row.span,
        "planned_until": row.planned_until,
        "planned_at": row.planned_at,
        "committed_at": row.committed_at,
        "holder": _claim(row),
    }


def _rows_at(
    connection: Connection, build: Callable[[], Select[Any]], pairs: Sequence[tuple[int, int]]
) -> list[Row[Any]]:
    """Ask a query for windows by group id and number. It is kept for the function that builds it, which is one of this module."""
    asking = _query_at(build, connection.dialect.name)
    return [row for some in _chunks(pairs) for row in connection.execute(asking, _as_asked(connection, some))]


@cache
def _query_at(build: Callable[[], Select[Any]], dialect: str) -> Select[Any]:
    return build().where(_are(dialect))


def _are(dialect: str) -> ColumnElement[bool]:
    """Return the condition that windows have one of the group ids and numbers that are asked for (`_as_asked`)."""
    which = tuple_(windows.c.group_id, windows.c.seq)
    match dialect:
        case "sqlite":
            # With a list of several pairs, SQLite reads the whole table: its index serves what is selected from somewhere. As JSON, they are one value.
            asked = func.json_each(bindparam("pairs")).table_valued("value")
            first, second = (func.json_extract(asked.c.value, path) for path in ("$[0]", "$[1]"))
            return which.in_(select(first, second))
        case "postgresql":
            # A list of a thousand pairs takes three times as long: PostgreSQL plans each as a question of its own.
            numbers = ARRAY(Integer)
            values = (cast(bindparam(name, type_=numbers), numbers) for name in ("of_ids", "of_seqs"))
            return which.in_(select(*map(func.unnest, values)))
        case _:
            return which.in_(bindparam("pairs", expanding=True))


def _as_asked(connection: Connection, pairs: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Return group ids and numbers of windows as the parameters of `_are`."""
    match connection.dialect.name:
        case "sqlite":
            return {"pairs": json.dumps([list(pair) for pair in pairs])}
        case "postgresql":
            return {"of_ids": [group_id for group_id, _ in pairs], "of_seqs": [seq for _, seq in pairs]}
        case _:
            return {"pairs": pairs}


def _is_one_of(connection: Connection, column: ColumnElement[Any], values: Sequence[Any]) -> ColumnElement[bool]:
    """Return the condition that a name or number is one of these: where the database can, they are one value, as a thousand take long to send."""
    match connection.dialect.name:
        case "sqlite":
            asked = func.json_each(json.dumps(list(values))).table_valued("value")
            return column.in_(select(asked.c.value))
        case "postgresql":
            return column == any_(cast(list(values), ARRAY(String if isinstance(column.type, String) else Integer)))
        case _:
            return column.in_(values)


def _rows_of(connection: Connection, pairs: Iterable[tuple[int, int]]) -> list[Row[Any]]:
    """Find windows by group id and number, with their history."""
    return _rows_at(connection, _history, list(pairs))


def _newest_open(connection: Connection, group_ids: Sequence[int]) -> dict[int, list[WindowSummary]]:
    """Find the newest open windows of groups, in both lanes: at most `MAX_OPEN` of each group."""
    each = [
        select(windows.c.group_id, windows.c.seq).where(
            _is_one_of(connection, windows.c.group_id, group_ids), windows.c.lane == lane, windows.c.state == state
        )
        for lane in Lane
        for state in sorted(OPEN)
    ]
    is_open = union_all(*each).subquery()
    place = func.row_number().over(partition_by=is_open.c.group_id, order_by=is_open.c.seq.desc()).label("place")
    ranked = select(is_open, place).subquery()
    pairs = connection.execute(select(ranked.c.group_id, ranked.c.seq).where(ranked.c.place <= MAX_OPEN)).all()
    found: dict[int, list[WindowSummary]] = {}
    rows = _rows_of(connection, ((row.group_id, row.seq) for row in pairs))
    for row in sorted(rows, key=lambda row: -row.seq):
        found.setdefault(row.group_id, []).append(_summary(row))
    return found


@cache
def _standing_group_named() -> Select[Any]:
    return _standing_groups().where(groups.c.name == bindparam("of_group"))


@cache
def _standing_groups() -> Select[Any]:
    """Select groups, each with its newest live window in every state that owns: one step into an index for each state."""
    return select(groups, *(_newest_live(state).label(state.value) for state in sorted(OWNING)))


def _newest_live(state: State) -> ScalarSelect[int]:
    """Select the number of a group's newest live window in a state. Not as a maximum: for that, MariaDB reads all of them."""
    numbers = select(windows.c.seq).where(_of_group(windows, Lane.LIVE, state)).order_by(windows.c.seq.desc())
    return numbers.limit(1).correlate(groups).scalar_subquery()


def _of_group(table: FromClause, lane: Lane, state: State) -> ColumnElement[bool]:
    return and_(table.c.group_id == groups.c.id, table.c.lane == lane, table.c.state == state)


def _positions(connection: Connection, found: Sequence[Row[Any]]) -> dict[int, Position]:
    """Find where the next live window of groups starts: at the end of the last one that owns its offsets, or at the origin."""
    newest = {row.id: seq for row in found if (seq := _newest(row)) is not None and seq >= row.origin_seq}
    ends = {row.group_id: row for row in _rows_at(connection, _ends, list(newest.items()))}
    positions: dict[int, Position] = {}
    for row in found:
        with intact(f"the watermark of group {row.name}"):
            end = ends.get(row.id)
            positions[row.id] = load_position(end.ranges, end.packed) if end else load_position(row.origin)
    return positions


def _ends() -> Select[Any]:
    return select(windows.c.group_id, windows.c.ranges, windows.c.packed)


def _newest(group: Row[Any]) -> int | None:
    return max((seq for state in OWNING if (seq := group._mapping[state.value]) is not None), default=None)


def _open(connection: Connection, group_ids: Sequence[int]) -> dict[int, list[WindowRecord]]:
    """Find the live windows of groups that wait for their commit, the oldest first."""
    found: dict[int, list[WindowRecord]] = {}
    for group_id in group_ids:
        asked = [{"of_id": group_id, "of_state": state} for state in sorted(OPEN)]
        rows = [row for each in asked for row in connection.execute(_live_of_group(), each)]
        found[group_id] = [_held(row) for row in sorted(rows, key=lambda row: row.seq)]
    return found


@cache
def _live_of_group() -> Select[Any]:
    is_live = and_(windows.c.lane == Lane.LIVE, windows.c.state == bindparam("of_state"))
    return _held_windows().where(windows.c.group_id == bindparam("of_id"), is_live)


def _oldest_open(connection: Connection, group_ids: Sequence[int]) -> dict[int, list[WindowRecord]]:
    """Find the oldest of these windows of each group: it alone is read with its ranges."""
    oldest = [(group_id, seqs[0]) for group_id, seqs in _open_seqs(connection, group_ids).items()]
    return {row.group_id: [_held(row)] for row in _rows_at(connection, _held_windows, oldest)}


def _open_seqs(connection: Connection, group_ids: Sequence[int]) -> dict[int, list[int]]:
    """Find the numbers of these windows, without their ranges."""
    found: dict[int, list[int]] = {}
    for some in _chunks(group_ids):
        are_live = and_(_is_one_of(connection, windows.c.group_id, some), windows.c.lane == Lane.LIVE)
        of_groups = select(windows.c.group_id, windows.c.seq).where(are_live)
        for state in sorted(OPEN):
            for row in connection.execute(of_groups.where(windows.c.state == state)):
                found.setdefault(row.group_id, []).append(row.seq)
    return {group_id: sorted(seqs) for group_id, seqs in found.items()}


def _claimed(connection: Connection, group: str, claim: Claim) -> tuple[WindowRecord, ...]:
    return tuple(map(_held, connection.execute(_windows_of_claim(), {"of_group": group, **_names(claim)})))


@cache
def _windows_of_claim() -> Select[Any]:
    same = and_(claim_windows.c.group_id == windows.c.group_id, claim_windows.c.seq == windows.c.seq)
    of_claim = claim_windows.c.claim_id == _id_of_claim()
    query = _held_windows().join(claim_windows, same).where(of_claim, claim_windows.c.group_id == _ID_OF_GROUP)
    return query.order_by(claim_windows.c.seq)


def _elsewhere(connection: Connection, group: str, claim: Claim) -> tuple[str, ...]:
    found = connection.execute(_owned_elsewhere(), {"of_group": group, **_names(claim)})
    return tuple(name_window(name, seq) for name, seq in found)


@cache
def _owned_elsewhere() -> Select[Any]:
    of_claim = claim_windows.c.claim_id == _id_of_claim()
    return (
        select(groups.c.name, windows.c.seq)
        .join_from(groups, windows)
        .join(claim_windows)
        .where(of_claim, groups.c.name != bindparam("of_group"), windows.c.state.in_(OWNING))
        .order_by(groups.c.name, windows.c.seq)
        .limit(MAX_NAMED)
    )


@cache
def _held_windows() -> Select[Any]:
    return select(windows, groups.c.name.label("group_name"), *_HOLDER).join(groups).join(claims)


@cache
def _old_windows() -> Select[Any]:
    mine = and_(attempts.c.group_id == windows.c.group_id, attempts.c.seq == windows.c.seq)
    count = select(func.count()).select_from(attempts).where(mine).scalar_subquery()
    last = select(func.max(attempts.c.started_at)).where(mine).scalar_subquery()
    return _held_windows().add_columns(count.label("attempts"), last.label("last_attempt"))


@cache
def _history() -> Select[Any]:
    mine = and_(attempts.c.group_id == windows.c.group_id, attempts.c.seq == windows.c.seq)
    count = select(func.count()).select_from(attempts).where(mine).scalar_subquery()
    records = (
        select(attempts.c.records)
        .where(mine, attempts.c.outcome == Outcome.SUCCEEDED)
        .order_by(attempts.c.id.desc())
        .limit(1)
        .scalar_subquery()
    )
    return _held_windows().add_columns(count.label("attempts"), records.label("records"))


@cache
def _history_among(dialect: str) -> Select[Any]:
    return _history().where(windows.c.group_id == _ID_OF_GROUP, _among(dialect, windows.c.seq))


def _attempts(group: str) -> Select[Any]:
    return (
        select(attempts, groups.c.name.label("group_name"), *_HOLDER)
        .join(claims)
        .join(groups, groups.c.id == attempts.c.group_id)
        .where(attempts.c.group_id == _id_of(group))
        .order_by(attempts.c.id)
    )


def _attempt(row: Row[Any]) -> Attempt:
    with intact(f"attempt {row.id} at window {row.seq} of group {row.group_name}"):
        return Attempt(
            id=row.id,
            window_id=name_window(row.group_name, row.seq),
            claim=_claim(row),
            try_number=row.try_number,
            series=row.series,
            outcome=Outcome(row.outcome),
            records=row.records,
            started_at=row.started_at,
            ended_at=row.ended_at,
        )


def _window_row(row: Row[Any]) -> WindowRow:
    return WindowRow(_held(row), row.planned_at, row.committed_at, row.attempts, row.records)


def _summary(row: Row[Any]) -> WindowSummary:
    with intact(f"window {row.seq} of group {row.group_name}"):
        return WindowSummary(
            **_in_a_line(row.group_name, row),
            isolation_level=IsolationLevel(row.isolation_level),
            is_capped=row.is_capped,
            unread=row.unread,
            partitions=count_filled(row.ranges, row.packed),
            attempts=row.attempts,
            records=row.records,
        )


def _held(row: Row[Any]) -> WindowRecord:
    with intact(f"window {row.seq} of group {row.group_name}"):
        ranges, topic_ids, leader_epochs = load_ranges(row.ranges, row.packed)
        window = Window(
            group=row.group_name,
            seq=row.seq,
            lane=Lane(row.lane),
            state=State(row.state),
            ranges=ranges,
            topic_ids=topic_ids,
            planned_until=row.planned_until,
            isolation_level=IsolationLevel(row.isolation_level),
            lost=load_ranges(row.lost)[0] if row.lost is not None else OffsetRanges({}),
            is_capped=row.is_capped,
            leader_epochs=leader_epochs,
            schemas=row.schemas,
            unread=row.unread,
        )
        if window.span != row.span:
            raise ValueError(f"it has {counted(row.span, 'offset')}, and its ranges have {window.span}")
        return WindowRecord(window, _claim(row), row.holds, row.committed_at)


def _window_values(window: Window) -> dict[str, Any]:
    ranges, packed = pack(dump_ranges(window.ranges, window.topic_ids, window.leader_epochs))
    return {
        "seq": window.seq,
        "lane": window.lane,
        "state": window.state,
        "planned_until": window.planned_until,
        "isolation_level": window.isolation_level,
        "span": window.span,
        "ranges": ranges,
        "packed": packed,
        "lost": dump_ranges(window.lost, {}) if window.lost else None,
        "is_capped": window.is_capped,
        "schemas": window.schemas,
        "unread": window.unread,
    }


def _with_schemas(connection: Connection, drafts: Sequence[Draft], new: Sequence[Frozen]) -> Sequence[Draft]:
    if not new:
        return drafts
    numbers = freezing.keep_each(connection, new)
    return [replace(draft, schemas=number) for draft, number in zip(drafts, numbers, strict=True)]


def _freeze(connection: Connection, there: Sequence[tuple[Window, Frozen]]) -> None:
    """Compare-and-set: let windows have other schemas than those that were read."""
    numbers = freezing.keep_each(connection, [frozen for _, frozen in there])
    for (window, _), number in zip(there, numbers, strict=True):
        here = and_(windows.c.group_id == _id_of(window.group), windows.c.seq == window.seq)
        before = windows.c.schemas.is_(None) if window.schemas is None else windows.c.schemas == window.schemas
        done = connection.execute(update(windows).where(here, before).values(schemas=number))
        if done.rowcount != 1:
            raise ConcurrentChangeError(f"Another process froze schemas with window {window.id} just now")


def _claim(row: Row[Any]) -> Claim:
    return Claim(row.dag_id, row.run_id, row.task_id, row.map_index, Scope(row.scope))


@cache
def _known_claim() -> Select[Any]:
    names = ("dag_id", "run_id", "task_id", "map_index")
    return select(claims.c.id, claims.c.scope).where(*(claims.c[name] == bindparam(f"of_{name}") for name in names))


@cache
def _id_of_claim() -> ScalarSelect[int]:
    return _known_claim().with_only_columns(claims.c.id).scalar_subquery()


def _names(claim: Claim) -> dict[str, str | int]:
    return {
        "of_dag_id": claim.dag_id,
        "of_run_id": claim.run_id,
        "of_task_id": claim.task_id,
        "of_map_index": claim.map_index,
    }


def _claim_id(connection: Connection, claim: Claim) -> int:
    found = connection.execute(_known_claim(), _names(claim)).first()
    if found is not None:
        if found.scope != claim.scope:  # the task has another operator now
            connection.execute(update(claims).where(claims.c.id == found.id).values(scope=claim.scope))
        return int(found.id)
    return _new_id(connection.execute(insert(claims).values(asdict(claim))))


def _hold(
    connection: Connection,
    group_id: int,
    held_windows: Sequence[WindowRecord],
    claim_id: int,
    claim: Claim,
    now: datetime,
) -> None:
    for held in held_windows:
        _change(connection, group_id, held.window, held.holds, holder=claim_id, holds=held.holds + 1)
    _lose(connection, _running(connection, group_id, [h.window.seq for h in held_windows if h.holder != claim]), now)
    mine = select(claim_windows.c.seq).filter_by(claim_id=claim_id, group_id=group_id)
    known = set(connection.execute(mine).scalars())
    _note_claims(connection, claim_id, group_id, [h.window.seq for h in held_windows if h.window.seq not in known])


def _note_claims(connection: Connection, claim_id: int, group_id: int, new: Sequence[int]) -> None:
    if new:
        rows = [{"claim_id": claim_id, "group_id": group_id, "seq": seq} for seq in new]
        connection.execute(insert(claim_windows), rows)


def _group_and_earlier(connection: Connection, window: Window, claim_id: int, try_number: int) -> tuple[int, list[int]]:
    """Return a group's id and the task's running attempts at its window up to this try, in one query."""
    asked = {"of_group": window.group, "of_seq": window.seq, "of_claim": claim_id, "up_to": try_number}
    rows = connection.execute(_running_up_to(), asked).all()
    if not rows:
        raise _unknown_group(window.group)
    if rows[0].seq is None:
        raise absent(window.group, [window.seq], pruning.load(connection, window.group))
    return rows[0].id, [row.attempt for row in rows if row.attempt is not None]


@cache
def _running_up_to() -> Select[Any]:
    at_window = and_(attempts.c.group_id == groups.c.id, attempts.c.seq == bindparam("of_seq"))
    earlier = and_(attempts.c.claim_id == bindparam("of_claim"), attempts.c.try_number <= bindparam("up_to"))
    return (
        select(groups.c.id, windows.c.seq, attempts.c.id.label("attempt"))
        .outerjoin(windows, and_(windows.c.group_id == groups.c.id, windows.c.seq == bindparam("of_seq")))
        .outerjoin(attempts, and_(at_window, earlier, attempts.c.outcome == Outcome.RUNNING))
        .where(groups.c.name == bindparam("of_group"))
    )


def _running(connection: Connection, group_id: int, seqs: Sequence[int]) -> list[int]:
    found: list[int] = []
    for some in _chunks(seqs):
        at_windows = and_(attempts.c.group_id == group_id, attempts.c.seq.in_(some))
        running = select(attempts.c.id).where(at_windows, attempts.c.outcome == Outcome.RUNNING)
        found += connection.execute(running).scalars()
    return found


def _lose(connection: Connection, running: Sequence[int], now: datetime) -> None:
    """Record running attempts as lost: another claim works on their windows from now on."""
    # By their ids: a search here would lock the gap where others insert their attempts (InnoDB).
    for some in _chunks(running):
        are_running = and_(attempts.c.id.in_(some), attempts.c.outcome == Outcome.RUNNING)
        connection.execute(update(attempts).where(are_running).values(outcome=Outcome.LOST, ended_at=now))


def _chunks(values: Sequence[_T], size: int = MAX_PARAMETERS) -> Iterator[Sequence[_T]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]


def _id_of(group: str | BindParameter[str]) -> ScalarSelect[int]:
    return select(groups.c.id).where(groups.c.name == group).scalar_subquery()


_ID_OF_GROUP = _id_of(bindparam("of_group"))
"""For a statement that is built once: it gets the name as a parameter."""


@cache
def _page(states: Sequence[State], lane: Lane | None, asked: Collection[str]) -> Select[Any]:
    """Select the numbers of windows of the group `of_group`, the newest first, `at_most` so many.

    For each lane and state by an index of its own: a database that looks for several at once may read all of the history.

    Args:
        states: the states that are wanted; none: all.
        lane: the lane that is wanted; None: both.
        asked: the parameters that say what else must hold.
    """
    is_ordered = (
        "planned_until" not in asked
    )  # the index that serves is by number; otherwise it is by planned-until time
    # The sum hides the number from the index by number: a database that takes it reads all of the history for a span of time.
    seq = windows.c.seq if is_ordered else windows.c.seq + 0
    conditions = {
        "of_seqs": seq.in_(bindparam("of_seqs", expanding=True)),
        "planned_after": windows.c.planned_until > bindparam("planned_after"),
        "planned_until": windows.c.planned_until <= bindparam("planned_until"),
        "before": seq < bindparam("before"),
        "since": seq >= bindparam("since"),
    }
    limit = bindparam("at_most", type_=Integer)
    mine = select(windows.c.seq).where(
        windows.c.group_id == _ID_OF_GROUP, *(conditions[name] for name in sorted(asked))
    )
    if is_ordered:
        mine = mine.order_by(windows.c.seq.desc()).limit(limit)
    if not states and lane is None and is_ordered:
        return mine
    each = [
        select(mine.where(windows.c.lane == one, windows.c.state == state, *more).subquery().c.seq)
        for one in (Lane if lane is None else [lane])
        for state in states or sorted(State)
        for more in ([()] if is_ordered else [[windows.c.is_capped == capped] for capped in (false(), true())])
    ]
    found = union_all(*each).subquery()
    return select(found.c.seq).order_by(found.c.seq.desc()).limit(limit)


def _numbered(before: int | None, since: int | None) -> list[ColumnElement[bool]]:
    """Return what holds for windows with numbers from one on, and before another one."""
    seq = windows.c.seq
    return [*([] if before is None else [seq < before]), *([] if since is None else [seq >= since])]


def _among(dialect: str, seq: ColumnElement[int]) -> ColumnElement[bool]:
    """Return the condition that a number is one of those that are asked for (`_as_numbers`)."""
    is_one = seq.in_(bindparam("of_seqs", expanding=True))
    if dialect != "postgresql":
        return is_one
    # Where most groups are small, it would read all of a large one rather than look for each number. The span says that few lie there.
    return and_(is_one, seq.between(bindparam("first_seq"), bindparam("last_seq")))


def _as_numbers(seqs: Sequence[int]) -> dict[str, Any]:
    """Return numbers of windows as the parameters of `_among`."""
    return {"of_seqs": list(seqs), "first_seq": min(seqs), "last_seq": max(seqs)}


def _new_id(result: CursorResult[Any]) -> int:
    assert result.inserted_primary_key is not None  # the primary keys of these tables are auto-incremented
    return int(result.inserted_primary_key[0])


def _add_group(connection: Connection, name: str, definition: str, origin: str, now: datetime, *, version: int) -> int:
    values = {"name": name, "definition": definition, "origin": origin, "created_at": now}
    return _new_id(connection.execute(insert(groups).values(version=version, next_seq=1, origin_seq=1, **values)))


def _group(connection: Connection, name: str, *columns: Column[Any]) -> Row[Any]:
    row = connection.execute(_group_named(columns), {"of_group": name}).first()
    if row is None:
        raise _unknown_group(name)
    return row


@cache
def _group_named(columns: Sequence[Column[Any]]) -> Select[Any]:
    return select(*columns).where(groups.c.name == bindparam("of_group"))


def _wait_for_turn(connection: Connection, group: str) -> None:
    """Lock a group's row until the transaction ends."""
    # SQLite has locked all of the ledger by now, and knows no FOR UPDATE.
    connection.execute(select(groups.c.id).where(groups.c.name == group).with_for_update())


def _unknown_group(name: str) -> UnknownGroupError:
    return UnknownGroupError(f"The ledger has no group {name}; kafka-offsets status lists them")


def _advance(connection: Connection, group: str, version: int, **values: Any) -> None:
    """Compare-and-set: move the group to its next version, and lock its row until the transaction ends."""
    done = connection.execute(
        update(groups).where(groups.c.name == group, groups.c.version == version).values(version=version + 1, **values)
    )
    if done.rowcount != 1:
        raise ConcurrentChangeError(f"Another process changed group {group} just now; nothing was written")


def _find_window(connection: Connection, query: Select[Any], window_id: str) -> Row[Any]:
    return _found(connection, query.where(*_IS_WINDOW), window_id)


_IS_WINDOW = (groups.c.name == bindparam("of_group"), windows.c.seq == bindparam("of_seq"))


def _found(connection: Connection, query: Select[Any], window_id: str, **asked: Any) -> Row[Any]:
    group, seq = parse_window_id(window_id)
    row = connection.execute(query, {"of_group": group, "of_seq": seq, **asked}).first()
    if row is None:
        raise absent(group, [seq], pruning.load(connection, group))
    return row


def _standing(
    connection: Connection, window_id: str, attempt: int | None = None
) -> tuple[Standing, int, Outcome | None]:
    """Find a window without its ranges, its group's id, and how an attempt at it ended: all that a commit checks, in one query."""
    row = _found(connection, _standing_with_evidence(), window_id, of_attempt=attempt)
    window = _standing_of(row)
    with intact(f"attempt {attempt}"):
        return window, row.group_id, None if row.outcome is None else Outcome(row.outcome)


@cache
def _standing_with_evidence() -> Select[Any]:
    here = (attempts.c.group_id == windows.c.group_id, attempts.c.seq == windows.c.seq)
    evidence = and_(attempts.c.id == bindparam("of_attempt"), *here)
    return _standings().add_columns(attempts.c.outcome).outerjoin(attempts, evidence).where(*_IS_WINDOW)


@cache
def _standings() -> Select[Any]:
    own = [windows.c[column] for column in ("group_id", "seq", "lane", "state", "span", "holds")]
    return select(*own, groups.c.name.label("group_name"), *_HOLDER).select_from(windows).join(groups).join(claims)


def _standing_of(row: Row[Any]) -> Standing:
    with intact(f"window {row.seq} of group {row.group_name}"):
        return Standing(row.group_name, row.seq, Lane(row.lane), State(row.state), row.span, _claim(row), row.holds)


def _ids(connection: Connection, names: Collection[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for some in _chunks(sorted(names)):
        query = select(groups.c.name, groups.c.id).where(_is_one_of(connection, groups.c.name, some))
        found |= {row.name: row.id for row in connection.execute(query)}
    return found


@cache
def _frontiers() -> Select[Any]:
    """Select groups, each with the latest planned-until time that is proven, and with its oldest open window: in one statement, of one moment."""
    waiting = windows.alias("waiting")
    first_open = [
        select(func.min(waiting.c.seq)).where(_of_group(waiting, Lane.LIVE, state)).correlate(groups).scalar_subquery()
        for state in sorted(OPEN)
    ]
    older = [or_(first.is_(None), windows.c.seq < first) for first in first_open]
    is_proof = and_(_of_group(windows, Lane.LIVE, State.COMMITTED), windows.c.is_capped == false(), *older)
    # Each column by itself: for a join with the newest one of many groups, PostgreSQL would read all windows.
    newest = [
        select(column)
        .where(is_proof)
        .order_by(windows.c.planned_until.desc())
        .limit(1)
        .correlate(groups)
        .scalar_subquery()
        .label(column.name)
        for column in (windows.c.seq, windows.c.planned_until)
    ]
    return (
        select(groups.c.id, groups.c.name, *newest, func.coalesce(*first_open).label("oldest_open"))
        .add_columns(pruned.c.proof_seq, pruned.c.proof_until)
        .select_from(groups)
        .outerjoin(pruned, pruned.c.group_id == groups.c.id)
    )


def _newest_commits(
    connection: Connection, ids: Sequence[tuple[str, int]], wanted: Mapping[str, int]
) -> dict[str, list[Row[Any]]]:
    """Find the newest committed live windows of groups: a branch for each, which reads only so many entries of the index."""
    columns = [windows.c[column] for column in ("group_id", "seq", "planned_at", "committed_at", "is_capped")]
    each = [
        _with_last_success(
            select(*columns)
            .where(windows.c.group_id == group_id, windows.c.lane == Lane.LIVE, windows.c.state == State.COMMITTED)
            .order_by(windows.c.seq.desc())
            .limit(wanted[name])
            .subquery()
        )
        for name, group_id in ids
    ]
    names = {group_id: name for name, group_id in ids}
    found: dict[str, list[Row[Any]]] = {}
    for row in connection.execute(union_all(*each)) if each else ():
        found.setdefault(names[row.group_id], []).append(row)
    return {name: sorted(rows, key=lambda row: -row.seq) for name, rows in found.items()}


def _with_last_success(found: Subquery) -> Select[Any]:
    """Select windows, each with the times of the last attempt at it that succeeded."""
    at_window = and_(attempts.c.group_id == found.c.group_id, attempts.c.seq == found.c.seq)
    last = [
        select(attempts.c[column])
        .where(at_window, attempts.c.outcome == Outcome.SUCCEEDED)
        .order_by(attempts.c.id.desc())
        .limit(1)
        .scalar_subquery()
        .label(column)
        for column in ("started_at", "ended_at")
    ]
    return select(found, *last)


def _commit_of(row: Row[Any]) -> Commit:
    # Another launcher leaves no attempt.
    began, ended = (row.started_at, row.ended_at) if row.ended_at else (row.planned_at, row.committed_at)
    return Commit(row.seq, row.planned_at, row.committed_at, row.is_capped, (ended - began).total_seconds())


def _frontier(row: Row[Any], waiting: Sequence[int]) -> Frontier:
    proofs = [(seq, until) for seq, until in ((row.seq, row.planned_until), (row.proof_seq, row.proof_until)) if until]
    seq, until = max(proofs, key=lambda proof: proof[1], default=(None, None))
    window_id = None if seq is None else name_window(row.name, seq)
    return Frontier(window_id, until, tuple(name_window(row.name, seq) for seq in waiting))


def _change(connection: Connection, group_id: int, window: Window | Standing, holds: int, /, **values: Any) -> None:
    """Compare-and-set: change a window whose state and hold are still those that were read."""
    done = connection.execute(
        update(windows)
        .where(windows.c.group_id == group_id, windows.c.seq == window.seq)
        .where(windows.c.state == window.state, windows.c.holds == holds)
        .values(values)
    )
    if done.rowcount != 1:
        raise ConcurrentChangeError(f"Another process adopted or changed window {window.id} just now")


def _commit(connection: Connection, group_id: int, window: Standing, now: datetime, *, in_two_steps: bool) -> None:
    """Change a window to committed, or in two steps a live one to committing."""
    done = State.COMMITTING if in_two_steps and window.lane is Lane.LIVE else State.COMMITTED
    at = now if done is State.COMMITTED else None
    _change(connection, group_id, window, window.holds, state=done, committed_at=at)


def _step(connection: Connection, group_id: int, seqs: Sequence[int], before: State, **values: Any) -> None:
    """Compare-and-set: change windows that are all in this state."""
    for some in _chunks(seqs):
        done = connection.execute(
            update(windows)
            .where(windows.c.group_id == group_id, windows.c.seq.in_(some), windows.c.state == before)
            .values(values)
        )
        if done.rowcount != len(some):
            raise ConcurrentChangeError(f"Another process changed windows that were {before} just now")


def _record(connection: Connection, group_id: int, act: Act) -> int:
    result = connection.execute(
        insert(acts).values(
            group_id=group_id,
            kind=act.kind,
            who=act.who,
            why=act.why,
            at=act.at,
            details=json.dumps(dict(act.details)),
        )
    )
    return _new_id(result)
