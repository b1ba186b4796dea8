"""The ledger on SQLAlchemy: SQLite, PostgreSQL, MySQL and MariaDB."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, CursorResult, Engine, Row, Select, and_, func, insert, select, update

from airflow_kafka_offsets.adapters.ledger import schema, staging
from airflow_kafka_offsets.adapters.ledger.documents import (
    dump_position,
    dump_ranges,
    intact,
    load_position,
    load_ranges,
)
from airflow_kafka_offsets.adapters.ledger.engine import open_engine, reading, where, writing
from airflow_kafka_offsets.adapters.ledger.tables import acts, attempts, claim_windows, claims, groups, windows
from airflow_kafka_offsets.core.errors import (
    MAX_NAMED,
    ConcurrentChangeError,
    UnknownGroupError,
    UnknownWindowError,
    counted,
    no_group,
)
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import Act, Attempt, WindowRow
from airflow_kafka_offsets.core.log import IsolationLevel
from airflow_kafka_offsets.core.plan.ownership import (
    Abandonment,
    GroupState,
    Owner,
    Position,
    abandonment,
    check_gap,
    is_owner,
)
from airflow_kafka_offsets.core.ranges import OffsetRanges
from airflow_kafka_offsets.core.tries import Try
from airflow_kafka_offsets.core.window import (
    OPEN,
    OWNING,
    Claim,
    Draft,
    Held,
    Lane,
    Outcome,
    Scope,
    Standing,
    State,
    Window,
    check_commit,
    check_steps,
)
from airflow_kafka_offsets.core.window_id import name_window, parse_window_id

logger = logging.getLogger(__name__)

MAX_PARAMETERS = 1000
"""How many values one statement may have: databases have a limit."""

_OWNER = (groups.c.owner_dag_id, groups.c.owner_task_id)
_HOLDER = (claims.c.dag_id, claims.c.run_id, claims.c.task_id, claims.c.map_index, claims.c.scope)


class SqlLedger:
    """`ports.Ledger` in a SQL database. Opens a connection for each call and keeps none."""

    def __init__(self, url: str, *, create: bool = False) -> None:
        """Open a ledger.

        Args:
            url: SQLAlchemy's URL of the database.
            create: make or upgrade the tables if they are not current (for a SQLite file that only this package uses).

        Raises:
            LedgerSchemaError: the tables are not current.
            LedgerUnavailableError: the database did not answer.
        """
        self._url = url
        self._engine: Engine = open_engine(url)
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

    def load(self, group: str, claim: Claim | None = None) -> GroupState:
        """Return the state of a group, for planning."""
        with reading(self._engine) as connection:
            row = connection.execute(select(groups).where(groups.c.name == group)).first()
            claimed = _claimed(connection, row.id, claim) if claim and row else ()
            elsewhere = _elsewhere(connection, group, claim) if claim and not claimed else ()
            if row is None:
                return GroupState(elsewhere=elsewhere)
            return GroupState(
                version=row.version,
                position=_position(connection, row),
                open=_open(connection, row.id),
                claimed=claimed,
                elsewhere=elsewhere,
                owner=_owner(row),
            )

    def add_windows(
        self,
        group: KafkaGroup,
        version: int,
        drafts: Sequence[Draft],
        claim: Claim,
        now: datetime,
        take: Sequence[Held] = (),
    ) -> list[Held]:
        """Add new windows held by the claim, and give it others as `hold` does, all or none. Return the new ones."""
        definition = json.dumps(group.to_json())
        with writing(self._engine) as connection:
            if version == 0:
                origin = dump_position(Position(drafts[0].ranges.starts, drafts[0].topic_ids))
                _add_group(connection, group.name, definition, origin, now, version=0)
            # What is read here is valid only if the group is still at this version below.
            row = _group(connection, group.name, groups.c.id, groups.c.next_seq, *_OWNER)
            defined = _defined(_owner(row), definition, drafts, claim)
            _advance(connection, group.name, version, next_seq=row.next_seq + len(drafts), **defined)
            holder = _claim_id(connection, claim)
            added = [draft.named(group.name, seq) for seq, draft in enumerate(drafts, start=row.next_seq)]
            more = {"group_id": row.id, "holder": holder, "holds": 1, "planned_at": now}
            for window in added:  # one at a time: together they could be too large for one statement
                connection.execute(insert(windows).values(**_window_values(window), **more))
            _note_claims(connection, holder, row.id, [window.seq for window in added])
            if take:
                _hold(connection, row.id, take, holder, claim, now)
        return [Held(window, claim, holds=1) for window in added]

    def define(self, group: KafkaGroup, claim: Claim) -> None:
        """Store the definition of an existing group, unless the group belongs to another task."""
        definition = json.dumps(group.to_json())
        with reading(self._engine) as connection:
            row = _group(connection, group.name, groups.c.definition, *_OWNER)
        is_new = row.definition != definition  # an unchanged definition takes no lock
        if is_new and is_owner(_owner(row), claim):
            with writing(self._engine) as connection:
                connection.execute(update(groups).where(groups.c.name == group.name).values(definition=definition))

    def hold(self, held_windows: Sequence[Held], claim: Claim, now: datetime) -> list[Held]:
        """Give windows to a claim, all or none, if each still has the holder and the state that were read."""
        with writing(self._engine) as connection:
            (group_id,) = _group(connection, held_windows[0].window.group, groups.c.id)
            _hold(connection, group_id, held_windows, _claim_id(connection, claim), claim, now)
        return [replace(held, holder=claim, holds=held.holds + 1) for held in held_windows]

    def start_attempt(self, window: Window, claim: Claim, this_try: Try, now: datetime) -> int:
        """Record that a try begins, and return its number. Running attempts of earlier tries at the window become lost."""
        with writing(self._engine) as connection:
            claim_id = _claim_id(connection, claim)
            group_id, running = _group_and_earlier(connection, window, claim_id, this_try.number)
            _lose(connection, running, now)
            result = connection.execute(
                insert(attempts).values(
                    group_id=group_id,
                    seq=window.seq,
                    claim_id=claim_id,
                    try_number=this_try.number,
                    last_clear=this_try.last_clear,
                    series=this_try.series,
                    outcome=Outcome.RUNNING,
                    started_at=now,
                )
            )
            return _new_id(result)

    def succeeded(self, group: str, claim: Claim, this_try: Try) -> Mapping[int, Attempt]:
        """Return the task's successful attempts that this try continues, by the window's sequence number."""
        mine = attempts.c.claim_id == _claim_query(claim).scalar_subquery()
        query = _attempts(group).where(
            mine, attempts.c.series == this_try.series, attempts.c.outcome == Outcome.SUCCEEDED
        )
        with reading(self._engine) as connection:
            found = [(row.seq, _attempt(row)) for row in connection.execute(query)]
        return {seq: attempt for seq, attempt in found if this_try.continues(attempt)}

    def end_attempt(self, attempt: int, outcome: Outcome, records: int | None, now: datetime) -> None:
        """Record how a try ended. A recorded end is never changed."""
        with writing(self._engine) as connection:
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
        with writing(self._engine) as connection:
            _advance(connection, group, version)
            (group_id,) = _group(connection, group, groups.c.id)
            _step(connection, group_id, seqs, State.COMMITTING, state=State.COMMITTED, committed_at=now)

    def abandon(self, window_id: str, act: Act, *, leave_gap: bool = False) -> Abandonment:
        """Abandon an open window: it no longer owns its offsets."""
        with writing(self._engine) as connection:
            # Together with the version: any change from here on makes the compare-and-set below fail.
            row = _find_window(connection, _held_windows().add_columns(groups.c.version), window_id)
            held = _held(row)
            group = _group(connection, held.window.group, groups)
            done = abandonment(held.window, _position(connection, group), _newest(connection, group.id))
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
        with writing(self._engine) as connection:
            _advance(connection, group, version, origin_seq=groups.c.next_seq, origin=dump_position(position))
            (group_id,) = _group(connection, group, groups.c.id)
            _step(connection, group_id, superseded, State.COMMITTED, state=State.SUPERSEDED)
            _record(connection, group_id, act)

    def take_over(self, group: str, version: int, owner: Owner, act: Act) -> None:
        """Give a group to another task."""
        with writing(self._engine) as connection:
            (group_id,) = _group(connection, group, groups.c.id)
            _advance(connection, group, version, **_owner_values(owner))
            _record(connection, group_id, act)

    def found(self, group: KafkaGroup, position: Position, act: Act) -> None:
        """Add a group that has never planned, and where its first window starts."""
        with writing(self._engine) as connection:
            definition, origin = json.dumps(group.to_json()), dump_position(position)
            group_id = _add_group(connection, group.name, definition, origin, act.at, version=1)
            _record(connection, group_id, act)

    def record(self, group: str, act: Act) -> None:
        """Record a person's act that changes nothing in the ledger."""
        with writing(self._engine) as connection:
            (group_id,) = _group(connection, group, groups.c.id)
            _record(connection, group_id, act)

    def groups(self) -> Sequence[KafkaGroup]:
        """Return every group as it was defined when it last planned."""
        return self._groups()

    def groups_of(self, owner: Owner) -> Sequence[KafkaGroup]:
        """Return the groups that belong to a task, as they were defined when they last planned."""
        return self._groups(groups.c.owner_dag_id == owner.dag_id, groups.c.owner_task_id == owner.task_id)

    def _groups(self, *which: ColumnElement[bool]) -> list[KafkaGroup]:
        query = select(groups.c.name, groups.c.definition).where(*which).order_by(groups.c.name)
        with reading(self._engine) as connection:
            return [_definition(row.name, row.definition) for row in connection.execute(query)]

    def group(self, name: str) -> KafkaGroup:
        """Return one group as it was defined when it last planned."""
        with reading(self._engine) as connection:
            definition = connection.execute(select(groups.c.definition).where(groups.c.name == name)).scalar()
            if definition is None:
                known = connection.execute(select(groups.c.name).order_by(groups.c.name)).scalars().all()
                raise no_group(name, known)
            return _definition(name, definition)

    def window(self, window_id: str) -> WindowRow:
        """Return one window."""
        with reading(self._engine) as connection:
            return _window_row(_find_window(connection, _history(), window_id))

    def windows(
        self,
        group: str,
        *,
        states: Sequence[State] = (),
        lane: Lane | None = None,
        seqs: Sequence[int] = (),
        cut_in: tuple[datetime, datetime] | None = None,
        before: int | None = None,
        is_capped: bool | None = None,
        limit: int = 50,
    ) -> Sequence[WindowRow]:
        """Return windows of a group, newest first. `before` (a sequence number) asks for the next page."""
        query = _history().where(groups.c.name == group).order_by(windows.c.seq.desc()).limit(limit)
        if states:
            query = query.where(windows.c.state.in_(states))
        if lane is not None:
            query = query.where(windows.c.lane == lane)
        if seqs:
            query = query.where(windows.c.seq.in_(seqs))
        if cut_in is not None:
            query = query.where(windows.c.until > cut_in[0], windows.c.until <= cut_in[1])
        if before is not None:
            query = query.where(windows.c.seq < before)
        if is_capped is not None:
            query = query.where(windows.c.is_capped.is_(is_capped))
        with reading(self._engine) as connection:
            return [_window_row(row) for row in connection.execute(query)]

    def attempts(self, window_id: str) -> Sequence[Attempt]:
        """Return the attempts at a window, oldest first."""
        group, seq = parse_window_id(window_id)
        with reading(self._engine) as connection:
            return [_attempt(row) for row in connection.execute(_attempts(group).where(attempts.c.seq == seq))]

    def acts(self, group: str) -> Sequence[Act]:
        """Return what people did to a group, oldest first."""
        query = select(acts).join(groups).where(groups.c.name == group).order_by(acts.c.id)
        with reading(self._engine) as connection:
            return [_act(group, row) for row in connection.execute(query)]


def _definition(group: str, text: str) -> KafkaGroup:
    with intact(f"the definition of group {group}"):
        return KafkaGroup.from_json(json.loads(text))


def _act(group: str, row: Row[Any]) -> Act:
    with intact(f"act {row.id} of group {group}"):
        return Act(row.kind, row.who, row.why, row.at, dict(json.loads(row.details)))


def _owner(group: Row[Any]) -> Owner | None:
    return Owner(group.owner_dag_id, group.owner_task_id) if group.owner_dag_id is not None else None


def _owner_values(owner: Owner) -> dict[str, str]:
    return {"owner_dag_id": owner.dag_id, "owner_task_id": owner.task_id}


def _defined(owner: Owner | None, definition: str, drafts: Sequence[Draft], claim: Claim) -> dict[str, str]:
    """Return what new windows change in their group's row: nothing if the group belongs to another task."""
    if not is_owner(owner, claim):
        return {}
    is_live = any(draft.lane is Lane.LIVE for draft in drafts)
    return {"definition": definition, **(_owner_values(Owner.of(claim)) if is_live else {})}


def _position(connection: Connection, group: Row[Any]) -> Position:
    """Find where the next live window starts: at the end of the last one that owns its offsets, or at the origin."""
    owning = (
        select(windows.c.ranges)
        .where(windows.c.group_id == group.id, windows.c.lane == Lane.LIVE, windows.c.seq >= group.origin_seq)
        .where(windows.c.state.in_(OWNING))
    )
    last = connection.execute(owning.order_by(windows.c.seq.desc()).limit(1)).scalar()
    with intact(f"the watermark of group {group.name}"):
        return load_position(group.origin if last is None else last)


def _open(connection: Connection, group_id: int) -> tuple[Held, ...]:
    is_open = and_(windows.c.group_id == group_id, windows.c.lane == Lane.LIVE, windows.c.state.in_(OPEN))
    return tuple(map(_held, connection.execute(_held_windows().where(is_open).order_by(windows.c.seq))))


def _claimed(connection: Connection, group_id: int, claim: Claim) -> tuple[Held, ...]:
    query = (
        _held_windows()
        .join(claim_windows, and_(claim_windows.c.group_id == windows.c.group_id, claim_windows.c.seq == windows.c.seq))
        .where(claim_windows.c.group_id == group_id, claim_windows.c.claim_id == _claim_query(claim).scalar_subquery())
        .order_by(windows.c.seq)
    )
    return tuple(map(_held, connection.execute(query)))


def _elsewhere(connection: Connection, group: str, claim: Claim) -> tuple[str, ...]:
    query = (
        select(groups.c.name, windows.c.seq)
        .join_from(groups, windows)
        .join(claim_windows)
        .where(claim_windows.c.claim_id == _claim_query(claim).scalar_subquery(), groups.c.name != group)
        .where(windows.c.state.in_(OWNING))
        .order_by(groups.c.name, windows.c.seq)
    )
    return tuple(name_window(name, seq) for name, seq in connection.execute(query.limit(MAX_NAMED)))


@cache
def _held_windows() -> Select[Any]:
    return select(windows, groups.c.name.label("group_name"), *_HOLDER).join(groups).join(claims)


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


def _attempts(group: str) -> Select[Any]:
    return (
        select(attempts, groups.c.name.label("group_name"), *_HOLDER)
        .join(claims)
        .join(groups, groups.c.id == attempts.c.group_id)
        .where(groups.c.name == group)
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


def _held(row: Row[Any]) -> Held:
    with intact(f"window {row.seq} of group {row.group_name}"):
        ranges, topic_ids, leader_epochs = load_ranges(row.ranges)
        window = Window(
            group=row.group_name,
            seq=row.seq,
            lane=Lane(row.lane),
            state=State(row.state),
            ranges=ranges,
            topic_ids=topic_ids,
            until=row.until,
            isolation_level=IsolationLevel(row.isolation_level),
            lost=load_ranges(row.lost)[0] if row.lost is not None else OffsetRanges({}),
            is_capped=row.is_capped,
            leader_epochs=leader_epochs,
        )
        if window.span != row.span:
            raise ValueError(f"it has {counted(row.span, 'offset')}, and its ranges have {window.span}")
        return Held(window, _claim(row), row.holds, row.committed_at)


def _window_values(window: Window) -> dict[str, Any]:
    return {
        "seq": window.seq,
        "lane": window.lane,
        "state": window.state,
        "until": window.until,
        "isolation_level": window.isolation_level,
        "span": window.span,
        "ranges": dump_ranges(window.ranges, window.topic_ids, window.leader_epochs),
        "lost": dump_ranges(window.lost, {}) if window.lost else None,
        "is_capped": window.is_capped,
    }


def _claim(row: Row[Any]) -> Claim:
    return Claim(row.dag_id, row.run_id, row.task_id, row.map_index, Scope(row.scope))


def _claim_query(claim: Claim) -> Select[Any]:
    return select(claims.c.id).filter_by(
        dag_id=claim.dag_id, run_id=claim.run_id, task_id=claim.task_id, map_index=claim.map_index
    )


def _claim_id(connection: Connection, claim: Claim) -> int:
    found = connection.execute(_claim_query(claim).add_columns(claims.c.scope)).first()
    if found is not None:
        if found.scope != claim.scope:  # the task has another operator now
            connection.execute(update(claims).where(claims.c.id == found.id).values(scope=claim.scope))
        return int(found.id)
    return _new_id(connection.execute(insert(claims).values(asdict(claim))))


def _hold(
    connection: Connection, group_id: int, held_windows: Sequence[Held], claim_id: int, claim: Claim, now: datetime
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
    at_window = and_(attempts.c.group_id == groups.c.id, attempts.c.seq == window.seq)
    earlier = and_(attempts.c.claim_id == claim_id, attempts.c.try_number <= try_number)
    query = select(groups.c.id, attempts.c.id.label("attempt")).outerjoin(
        attempts, and_(at_window, earlier, attempts.c.outcome == Outcome.RUNNING)
    )
    rows = connection.execute(query.where(groups.c.name == window.group)).all()
    if not rows:
        raise _unknown_group(window.group)
    return rows[0].id, [row.attempt for row in rows if row.attempt is not None]


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


def _chunks(values: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(values), MAX_PARAMETERS):
        yield values[start : start + MAX_PARAMETERS]


def _newest(connection: Connection, group_id: int) -> int | None:
    live = (windows.c.group_id == group_id, windows.c.lane == Lane.LIVE, windows.c.state.in_(OWNING))
    return connection.execute(select(func.max(windows.c.seq)).where(*live)).scalar()


def _new_id(result: CursorResult[Any]) -> int:
    assert result.inserted_primary_key is not None  # the primary keys of these tables are auto-incremented
    return int(result.inserted_primary_key[0])


def _add_group(connection: Connection, name: str, definition: str, origin: str, now: datetime, *, version: int) -> int:
    values = {"name": name, "definition": definition, "origin": origin, "created_at": now}
    return _new_id(connection.execute(insert(groups).values(version=version, next_seq=1, origin_seq=1, **values)))


def _group(connection: Connection, name: str, *columns: Any) -> Row[Any]:
    row = connection.execute(select(*columns).where(groups.c.name == name)).first()
    if row is None:
        raise _unknown_group(name)
    return row


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
    group, seq = parse_window_id(window_id)
    row = connection.execute(query.where(groups.c.name == group, windows.c.seq == seq)).first()
    if row is None:
        raise UnknownWindowError(f"The ledger has no window {window_id}; kafka-offsets windows {group} lists them")
    return row


def _standing(
    connection: Connection, window_id: str, attempt: int | None = None
) -> tuple[Standing, int, Outcome | None]:
    """Find a window without its ranges, its group's id, and how an attempt at it ended: all that a commit checks, in one query."""
    evidence = and_(
        attempts.c.id == attempt, attempts.c.group_id == windows.c.group_id, attempts.c.seq == windows.c.seq
    )
    own = [windows.c[column] for column in ("group_id", "seq", "lane", "state", "span", "holds")]
    query = select(*own, *_HOLDER, attempts.c.outcome).join(groups).join(claims).outerjoin(attempts, evidence)
    row = _find_window(connection, query, window_id)
    group, seq = parse_window_id(window_id)
    with intact(f"window {seq} of group {group}"):
        window = Standing(group, seq, Lane(row.lane), State(row.state), row.span, _claim(row), row.holds)
        return window, row.group_id, None if row.outcome is None else Outcome(row.outcome)


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


def _record(connection: Connection, group_id: int, act: Act) -> None:
    connection.execute(
        insert(acts).values(
            group_id=group_id,
            kind=act.kind,
            who=act.who,
            why=act.why,
            at=act.at,
            details=json.dumps(dict(act.details)),
        )
    )
