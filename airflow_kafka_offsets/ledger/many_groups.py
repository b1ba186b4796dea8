"""Questions about many groups at once: a thousand of them take a handful of statements."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Executable,
    FromClause,
    Row,
    ScalarSelect,
    Select,
    Subquery,
    and_,
    bindparam,
    case,
    false,
    func,
    or_,
    select,
    true,
    union_all,
)

from airflow_kafka_offsets.core.history import GAP, Act, Frontier, Gap, Rerun
from airflow_kafka_offsets.core.lag.pace import Commit
from airflow_kafka_offsets.core.plan.overview import MAX_RECENT, Outline, Overview, first_open
from airflow_kafka_offsets.core.plan.ownership import GroupState
from airflow_kafka_offsets.core.window import OPEN, Lane, Outcome, State, WindowRecord
from airflow_kafka_offsets.core.window_id import name_window, parse_window_id
from airflow_kafka_offsets.ledger.connections import Connections
from airflow_kafka_offsets.ledger.documents import intact
from airflow_kafka_offsets.ledger.rows import (
    OWNER,
    act_of,
    ask_many,
    chunks,
    is_of_group,
    newest_live,
    owner_of,
    record_of,
    select_records,
    select_standing_groups,
    select_summaries,
    select_windows,
    singles,
    states_of,
    windows_at,
)
from airflow_kafka_offsets.ledger.tables import acts, attempts, claims, groups, reruns, windows


class ManyGroups(Connections):
    """The ledger, as lists of groups and sensors need it."""

    def load_all(self, names: Sequence[str]) -> Mapping[str, GroupState]:
        """Return the states of groups, as `load` without a claim does; one that never planned is not in the answer.

        A state has only the oldest open window, where the watermark is: all of them may have a million ranges.
        """
        with self._reading_many() as connection:
            rows = ask_many(connection, select_standing_groups, singles(names), groups.c.name)
            return _states(connection, rows)

    def records(self, window_ids: Sequence[str]) -> Mapping[str, WindowRecord]:
        """Return windows without their ranges; one that does not exist is not in the answer."""
        asked = [parse_window_id(window_id) for window_id in window_ids]
        with self._reading() as connection:
            ids = ids_of(connection, {group for group, _ in asked})
            pairs = [(ids[group], seq) for group, seq in asked if group in ids]
            found = map(record_of, windows_at(connection, select_records, pairs))
            return {window.id: window for window in found}

    def overviews(self, names: Sequence[str], *, newest_acts: int | None = None) -> Mapping[str, Overview]:
        """Return overviews of groups; one that the ledger does not have is not in the answer.

        Args:
            names: the groups.
            newest_acts: how many of the newest acts each has, or None for all.
        """
        with self._reading_many() as connection:
            return _overviews(connection, names, newest_acts)

    def outlines(self, names: Sequence[str]) -> Mapping[str, Outline]:
        """Return groups in a line each, without any ranges; one that the ledger does not have is not in the answer."""
        with self._reading_many() as connection:
            return _outlines(connection, names)

    def recent_commits(self, wanted: Mapping[str, int]) -> Mapping[str, Sequence[Commit]]:
        """Return the newest committed live windows of groups, newest first, without their ranges: of each group at most so many.

        A group without one is not in the answer.
        """
        found: dict[str, list[Commit]] = {}
        with self._reading_many() as connection:
            ids = list(ids_of(connection, wanted).items())
            for some in chunks(ids, MAX_BRANCHES):
                for name, rows in _newest_commits(connection, some, wanted).items():
                    with intact(f"the times of the windows of group {name}"):
                        found[name] = [_commit_of(row) for row in rows]
        return found

    def frontiers(self, names: Sequence[str]) -> Mapping[str, Frontier]:
        """Return how far groups have come in time; one that never planned is not in the answer."""
        with self._reading_many() as connection:
            found: dict[str, Frontier] = {}
            rows = ask_many(connection, _frontiers, singles(names), groups.c.name)
            waiting = open_seqs(connection, [row.id for row in rows if row.oldest_open is not None])
            gaps = gaps_of(connection, [row.id for row in rows if row.abandoned is not None or row.first_seq > 1])
            for row in rows:
                with intact(f"the planned-until times of group {row.name}"):
                    found[row.name] = _frontier(row, waiting.get(row.id, ()), gaps.get(row.name, ()))
            return found


MAX_BRANCHES = 100
"""How many selects one statement may join: SQLite has a limit of 500."""

MAX_OPEN = 50
"""How many open windows of a group an overview has."""


def _states(connection: Connection, found: Sequence[Row[Any]]) -> dict[str, GroupState]:
    begun: dict[str, list[Rerun]] = {}
    for row in ask_many(connection, _reruns, singles(row.id for row in found), reruns.c.group_id):
        with intact(f"the newest attempt at window {row.seq} of group {row.name}"):
            rerun = Rerun(name_window(row.name, row.seq), Outcome(row.outcome or Outcome.RUNNING), row.begun_at)
            begun.setdefault(row.name, []).append(rerun)
    states = states_of(connection, found, oldest_open)
    return {name: replace(state, reruns=tuple(begun.get(name, ()))) for name, state in states.items()}


@cache
def _reruns() -> Select[Any]:
    """Select what has begun again of committed windows and is not committed again: a few rows."""
    query = select(groups.c.name, reruns.c.seq, attempts.c.outcome, reruns.c.begun_at)
    joined = reruns.join(groups, groups.c.id == reruns.c.group_id)
    query = query.select_from(joined.outerjoin(attempts, attempts.c.id == reruns.c.attempt_id))
    # Not as a join: SQLite would begin with all windows of the groups.
    at_window = and_(windows.c.group_id == reruns.c.group_id, windows.c.seq == reruns.c.seq)
    state = select(windows.c.state).where(at_window).correlate(reruns).scalar_subquery()
    return query.where(state == State.COMMITTED).order_by(reruns.c.seq)


def _overviews(connection: Connection, names: Sequence[str], newest_acts: int | None) -> dict[str, Overview]:
    found = ask_many(connection, select_standing_groups, singles(names), groups.c.name)
    states, ids = _states(connection, found), [row.id for row in found]
    committed = {row.id: seq for row in found if (seq := row._mapping[State.COMMITTED.value]) is not None}
    last = {row.group_id: record_of(row) for row in windows_at(connection, select_summaries, committed.items())}
    is_open = _newest_open(connection, ids)
    done = _acts_of(connection, {row.id: row.name for row in found}, newest_acts)
    return {
        row.name: Overview(
            states[row.name],
            last.get(row.id),
            tuple(is_open.get(row.id, ())),
            tuple(done.get(row.id, ())),
            row.first_seq,
        )
        for row in found
    }


def _acts_of(connection: Connection, names: Mapping[int, str], newest: int | None) -> dict[int, list[Act]]:
    """Find what people did to groups, oldest first, by the id of the group.

    Args:
        connection: to the database.
        names: the groups, by their ids.
        newest: how many of each group, or None for all. A branch for each group reads only so many entries of the index.
    """
    found: dict[int, list[Act]] = {}
    ids = list(names) if newest is None else _with_acts(connection, list(names))
    if newest is None:
        rows = ask_many(connection, _select_acts, singles(ids), acts.c.group_id)
    else:
        rows = [row for some in chunks(ids, MAX_BRANCHES) for row in connection.execute(_newest_acts(some, newest))]
    for row in sorted(rows, key=lambda row: int(row.id)):
        found.setdefault(row.group_id, []).append(act_of(names[row.group_id], row))
    return found


@cache
def _select_acts() -> Select[Any]:
    return select(acts)


def _with_acts(connection: Connection, ids: Sequence[int]) -> list[int]:
    """Return the groups to which people did anything: for most it is nothing, and a branch for each takes time."""
    return [row.id for row in ask_many(connection, _groups_with_acts, singles(ids), groups.c.id)]


@cache
def _groups_with_acts() -> Select[Any]:
    # Not `exists`: MariaDB makes a join of that, and reads all acts.
    any_act = select(acts.c.id).where(acts.c.group_id == groups.c.id).limit(1).correlate(groups).scalar_subquery()
    return select(groups.c.id).where(any_act.is_not(None))


def _newest_acts(ids: Sequence[int], newest: int) -> Executable:
    each = (
        select(acts).where(acts.c.group_id == group_id).order_by(acts.c.id.desc()).limit(newest).subquery()
        for group_id in ids
    )
    return union_all(*map(select, each))


def _outlines(connection: Connection, names: Sequence[str]) -> dict[str, Outline]:
    rows = ask_many(connection, _lists, singles(names), groups.c.name)
    recent = _recent(connection, rows)
    is_open = {row.id: _open_windows(row) for row in rows}
    shown = [(row.id, seq) for row in rows for seq in (*is_open[row.id][0].values(), row.last) if seq is not None]
    lines = {(row.group_id, row.seq): row for row in windows_at(connection, select_records, shown)}
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
        return select(what).where(is_of_group(windows, lane, state)).correlate(groups).scalar_subquery()

    columns: list[ColumnElement[Any]] = [newest_live(State.COMMITTED).label("last")]
    for lane, state, first, number in _OPEN_COLUMNS:
        columns += [of(lane, state, func.min(windows.c.seq)).label(first), of(lane, state, func.count()).label(number)]
    return select(groups.c.id, groups.c.name, groups.c.first_seq, groups.c.next_seq, *OWNER, *columns)


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
            build = _newest_by_limit
        case "sqlite":
            build = _newest_by_number
        case _:
            return _recent_by_row(connection, rows)
    found = ask_many(connection, build, singles(row.id for row in rows), groups.c.id)
    return {row.id: _gathered(_listed(row.lags), _listed(row.dag_ids)) for row in found}


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
    # PostgreSQL expects each third window in a range of numbers, and would read all windows of all groups.
    here = select(windows).where(windows.c.group_id == groups.c.id).correlate(groups)
    newest = here.order_by(windows.c.seq.desc()).limit(MAX_RECENT).lateral()
    lags = func.json_agg(func.json_build_array(newest.c.seq, _lag_of(newest)))
    dag_ids = func.json_agg(_dag_of(newest).distinct())
    query = select(groups.c.id, lags.label("lags"), dag_ids.label("dag_ids"))
    return query.join(newest, true()).group_by(groups.c.id)


@cache
def _newest_by_number() -> Select[Any]:
    is_new = and_(windows.c.group_id == groups.c.id, windows.c.seq >= groups.c.next_seq - MAX_RECENT)
    lags = func.json_group_array(func.json_array(windows.c.seq, _lag_of(windows)))
    dag_ids = func.json_group_array(_dag_of(windows).distinct())
    query = select(groups.c.id, lags.label("lags"), dag_ids.label("dag_ids"))
    return query.join(windows, is_new).group_by(groups.c.id)


def _recent_by_row(connection: Connection, rows: Sequence[Row[Any]]) -> dict[int, _Recent]:
    lags: dict[int, list[tuple[int, int | None]]] = {}
    dag_ids: dict[int, set[str]] = {}
    columns = (windows.c.group_id, windows.c.seq, _lag_of(windows), _dag_of(windows))
    for some in chunks(rows, MAX_BRANCHES):
        ends = [and_(windows.c.group_id == row.id, windows.c.seq >= row.next_seq - MAX_RECENT) for row in some]
        for group_id, seq, lag, dag_id in connection.execute(select(*columns).where(or_(*ends))):
            lags.setdefault(group_id, []).append((seq, lag))
            dag_ids.setdefault(group_id, set()).add(dag_id)
    return {group_id: _gathered(lags[group_id], dag_ids[group_id]) for group_id in lags}


def _outline(row: Row[Any], is_open: _Open, lines: Mapping[tuple[int, int], Row[Any]], recent: _Recent) -> Outline:
    (firsts, counts), (lags, dag_ids) = is_open, recent
    oldest = {lane: record_of(lines[row.id, seq]) for lane, seq in firsts.items()}
    last = None if row.last is None else record_of(lines[row.id, row.last])
    shown = [found.holder.dag_id for found in (first_open(oldest), last) if found is not None]
    return Outline(
        group=row.name,
        given=row.next_seq - 1,
        first=row.first_seq,
        owner=owner_of(row),
        open=counts,
        oldest=oldest,
        last_committed=last,
        unread=tuple(lags),
        dag_ids=frozenset({row.owner_dag_id, *dag_ids, *shown} - {None}),
    )


def _newest_open(connection: Connection, group_ids: Sequence[int]) -> dict[int, list[WindowRecord]]:
    """Find the newest open windows of groups, in both lanes: at most `MAX_OPEN` of each group."""
    is_open = open_seqs(connection, group_ids, *Lane)
    pairs = [(group_id, seq) for group_id, seqs in is_open.items() for seq in seqs[-MAX_OPEN:]]
    found: dict[int, list[WindowRecord]] = {}
    rows = windows_at(connection, select_summaries, pairs)
    for row in sorted(rows, key=lambda row: -row.seq):
        found.setdefault(row.group_id, []).append(record_of(row))
    return found


def oldest_open(connection: Connection, group_ids: Sequence[int]) -> dict[int, list[WindowRecord]]:
    """Find the oldest of these windows of each group: it alone is read with its ranges."""
    oldest = [(group_id, seqs[0]) for group_id, seqs in open_seqs(connection, group_ids).items()]
    return {row.group_id: [record_of(row)] for row in windows_at(connection, select_windows, oldest)}


def open_seqs(connection: Connection, group_ids: Sequence[int], *lanes: Lane) -> dict[int, list[int]]:
    """Find the numbers of the open windows of groups in some lanes, or in the live one, oldest first."""
    found: dict[int, list[int]] = {}
    for lane, state in product(lanes or [Lane.LIVE], sorted(OPEN)):
        which = {"of_lane": lane, "of_state": state}
        for row in ask_many(connection, _in_lane_and_state, singles(group_ids), windows.c.group_id, **which):
            found.setdefault(row.group_id, []).append(row.seq)
    return {group_id: sorted(seqs) for group_id, seqs in found.items()}


@cache
def _in_lane_and_state() -> Select[Any]:
    query = select(windows.c.group_id, windows.c.seq)
    return query.where(windows.c.lane == bindparam("of_lane"), windows.c.state == bindparam("of_state"))


def ids_of(connection: Connection, names: Collection[str]) -> dict[str, int]:
    """Return the ids of groups by name; one that the ledger does not have is not in the answer."""
    rows = ask_many(connection, _select_ids, singles(sorted(names)), groups.c.name)
    return {row.name: row.id for row in rows}


@cache
def _select_ids() -> Select[Any]:
    return select(groups.c.name, groups.c.id)


@cache
def _frontiers() -> Select[Any]:
    """Select groups, each with the latest planned-until time that is proven, and with its oldest open window: in one statement, of one moment."""
    waiting = windows.alias("waiting")
    first_open = [
        select(func.min(waiting.c.seq))
        .where(is_of_group(waiting, Lane.LIVE, state))
        .correlate(groups)
        .scalar_subquery()
        for state in sorted(OPEN)
    ]
    older = [or_(first.is_(None), windows.c.seq < first) for first in first_open]
    is_proof = and_(is_of_group(windows, Lane.LIVE, State.COMMITTED), windows.c.is_capped == false(), *older)
    abandoned = select(func.max(windows.c.seq)).where(is_of_group(windows, Lane.LIVE, State.ABANDONED))
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
        .add_columns(groups.c.first_seq, groups.c.proof_seq, groups.c.proof_until)
        .add_columns(abandoned.correlate(groups).scalar_subquery().label("abandoned"))
        .select_from(groups)
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


def gaps_of(connection: Connection, ids: Sequence[int]) -> dict[str, list[Gap]]:
    """Find the abandoned windows of groups that left a gap, by the name of the group. A prune has written those that left into their acts."""
    left: list[tuple[int, int]] = []
    found: dict[str, list[Gap]] = {}
    for some in chunks(ids):
        of_groups = and_(acts.c.group_id.in_(some), acts.c.kind == "abandon")
        acted = select(groups.c.id, groups.c.name, acts.c.details).join(acts).where(of_groups)
        for group_id, name, text in connection.execute(acted):
            with intact(f"an act of group {name}"):
                details = json.loads(text)
                seq = parse_window_id(details["window"])[1]
                if GAP in details:
                    found.setdefault(name, []).append(Gap.from_json(name_window(name, seq), details[GAP]))
                elif details.get("skipped"):
                    left.append((group_id, seq))
    for row in windows_at(connection, _abandoned, left):
        # What was pruned is older than any window that is here.
        after = max(filter(None, (row.after, row.proof_until)), default=None)
        found.setdefault(row.name, []).append(Gap(name_window(row.name, row.seq), after, row.planned_until))
    return found


def _abandoned() -> Select[Any]:
    older = windows.alias("older")
    is_proof = and_(older.c.lane == Lane.LIVE, older.c.state == State.COMMITTED, older.c.is_capped == false())
    after = (
        select(older.c.planned_until)
        .where(older.c.group_id == windows.c.group_id, is_proof, older.c.seq < windows.c.seq)
        .order_by(older.c.planned_until.desc())  # not as a maximum: for that, MariaDB reads all of them
        .limit(1)
        .correlate(windows)
        .scalar_subquery()
        .label("after")
    )
    columns = (groups.c.name, groups.c.proof_until, windows.c.seq, windows.c.planned_until)
    return select(*columns, after).select_from(windows).join(groups)


def _frontier(row: Row[Any], waiting: Sequence[int], gaps: Sequence[Gap]) -> Frontier:
    proofs = [(seq, until) for seq, until in ((row.seq, row.planned_until), (row.proof_seq, row.proof_until)) if until]
    seq, until = max(proofs, key=lambda proof: proof[1], default=(None, None))
    window_id = None if seq is None else name_window(row.name, seq)
    return Frontier(window_id, until, tuple(name_window(row.name, seq) for seq in waiting), tuple(gaps))
