"""Statements about groups and windows that several questions share, and the values of their rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache, lru_cache, partial
from typing import Any, TypeVar

from sqlalchemy import (
    ARRAY,
    BindParameter,
    Column,
    ColumnElement,
    Connection,
    FromClause,
    Integer,
    Row,
    ScalarSelect,
    Select,
    String,
    and_,
    bindparam,
    cast,
    func,
    select,
    tuple_,
)

from airflow_kafka_offsets.core.errors import UnknownGroupError, UnknownWindowError, counted
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import Act, Attempt, check_details
from airflow_kafka_offsets.core.log import IsolationLevel
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.ownership import GroupState, Owner, Position
from airflow_kafka_offsets.core.plan.pruning import absent
from airflow_kafka_offsets.core.ranges import OffsetRanges
from airflow_kafka_offsets.core.window import OWNING, Claim, Lane, Outcome, Scope, State, Window, WindowRecord
from airflow_kafka_offsets.core.window_id import name_window, parse_window_id
from airflow_kafka_offsets.ledger.documents import intact, load_position, load_ranges
from airflow_kafka_offsets.ledger.tables import attempts, claims, groups, reruns, windows

MAX_PARAMETERS = 1000
"""How many values one statement may have: databases have a limit."""

_T = TypeVar("_T")

OWNER = (groups.c.owner_dag_id, groups.c.owner_task_id)

HOLDER = (claims.c.dag_id, claims.c.run_id, claims.c.task_id, claims.c.map_index, claims.c.scope)


@lru_cache(maxsize=10_000)  # a page asks again and again, and definitions rarely change
def definition_of(group: str, text: str) -> KafkaGroup:
    with intact(f"the definition of group {group}"):
        return KafkaGroup.from_json(json.loads(text))


def act_of(group: str, row: Row[Any]) -> Act:
    with intact(f"act {row.id} of group {group}"):
        act = Act(row.kind, row.who, row.why, row.at, dict(json.loads(row.details)))
        check_details(act.details)
        return act


def owner_of(group: Row[Any]) -> Owner | None:
    return _owner_named(group.owner_dag_id, group.owner_task_id) if group.owner_dag_id is not None else None


@lru_cache(maxsize=10_000)  # as above: of a thousand groups, to check the names takes longer than to find them again
def _owner_named(dag_id: str, task_id: str) -> Owner:
    return Owner(dag_id, task_id)


FindOpen = Callable[[Connection, Sequence[int]], dict[int, list[WindowRecord]]]
"""Finds open live windows of groups, by the ids of these, the oldest first."""


def states_of(connection: Connection, found: Sequence[Row[Any]], find_open: FindOpen) -> dict[str, GroupState]:
    positions = positions_of(connection, found)
    is_open = find_open(connection, [row.id for row in found if row.planned or row.committing])
    return {
        row.name: GroupState(
            version=row.version,
            position=positions[row.id],
            open=tuple(is_open.get(row.id, ())),
            owner=owner_of(row),
            began_at=row.created_at if row.origin_seq == 1 else None,
            refused=row.refused,
        )
        for row in found
    }


def ask_many(
    connection: Connection,
    build: Callable[[], Select[Any]],
    values: Collection[tuple[Any, ...]],
    *columns: Column[Any],
    **more: Any,
) -> list[Row[Any]]:
    """Ask a query about many groups or windows, with few statements.

    Args:
        connection: to the database.
        build: builds the query, a function of a module: what it builds is kept.
        values: the names, ids or numbers to ask for: of each row the values of `columns`.
        columns: the columns that have one of these rows.
        more: other parameters of the query.
    """
    dialect = connection.dialect.name
    query = _about_many(build, dialect, columns)
    return [row for some in chunks(list(values)) for row in connection.execute(query, _as_asked(dialect, some) | more)]


@cache
def _about_many(build: Callable[[], Select[Any]], dialect: str, columns: tuple[Column[Any], ...]) -> Select[Any]:
    """Add the condition that columns have one of the rows in the parameters (`_as_asked`)."""
    names = [f"many_{number}" for number in range(len(columns))]
    several = columns[0] if len(columns) == 1 else tuple_(*columns)
    match dialect:
        case "sqlite":
            # With a list of several pairs, SQLite reads the whole table: its index serves what is selected from somewhere. As JSON, they are one value.
            asked = func.json_each(bindparam("many")).table_valued("value")
            each = [func.json_extract(asked.c.value, f"$[{number}]") for number in range(len(columns))]
            return build().where(several.in_(select(*each)))
        case "postgresql":
            # A list of a thousand pairs takes three times as long: PostgreSQL plans each as a question of its own.
            arrays = [ARRAY(String if isinstance(column.type, String) else Integer) for column in columns]
            unnested = [
                func.unnest(cast(bindparam(name, type_=array), array))
                for name, array in zip(names, arrays, strict=True)
            ]
            return build().where(several.in_(select(*unnested)))
        case _:
            # In the order of the joins: MariaDB would begin with the small table of groups, and read all windows of each.
            query = build().prefix_with("STRAIGHT_JOIN")
            return query.where(several.in_(bindparam("many", expanding=True)))


def _as_asked(dialect: str, rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    match dialect:
        case "sqlite":
            return {"many": json.dumps(rows)}
        case "postgresql":
            return {f"many_{number}": list(values) for number, values in enumerate(zip(*rows, strict=True))}
        case _:
            return {"many": rows if len(rows[0]) > 1 else [value for (value,) in rows]}


def singles(values: Iterable[Any]) -> list[tuple[Any]]:
    """Return values for one column of `ask_many`."""
    return [(value,) for value in values]


def windows_at(
    connection: Connection, build: Callable[[], Select[Any]], pairs: Collection[tuple[int, int]]
) -> list[Row[Any]]:
    """Ask a query for windows by group id and number."""
    return ask_many(connection, build, pairs, windows.c.group_id, windows.c.seq)


@cache
def select_standing_group() -> Select[Any]:
    return select_standing_groups().where(groups.c.name == bindparam("of_group"))


@cache
def select_standing_groups() -> Select[Any]:
    """Select groups, each with its newest live window in every state that owns: one step into an index for each state."""
    return select(groups, *(newest_live(state).label(state.value) for state in sorted(OWNING)))


def newest_live(state: State) -> ScalarSelect[int]:
    """Select the number of a group's newest live window in a state. Not as a maximum: for that, MariaDB reads all of them."""
    numbers = select(windows.c.seq).where(is_of_group(windows, Lane.LIVE, state)).order_by(windows.c.seq.desc())
    return numbers.limit(1).correlate(groups).scalar_subquery()


def is_of_group(table: FromClause, lane: Lane, state: State) -> ColumnElement[bool]:
    return and_(table.c.group_id == groups.c.id, table.c.lane == lane, table.c.state == state)


def positions_of(connection: Connection, found: Sequence[Row[Any]]) -> dict[int, Position]:
    """Find where the next live window of groups starts: at the end of the last one that owns its offsets, or at the origin."""
    newest = {row.id: seq for row in found if (seq := newest_owner(row)) is not None and seq >= row.origin_seq}
    ends = {row.group_id: row for row in windows_at(connection, _ends, newest.items())}
    positions: dict[int, Position] = {}
    for row in found:
        with intact(f"the watermark of group {row.name}"):
            end = ends.get(row.id)
            positions[row.id] = load_position(end.ranges, end.packed) if end else load_position(row.origin)
    return positions


def _ends() -> Select[Any]:
    return select(windows.c.group_id, windows.c.ranges, windows.c.packed)


def newest_owner(group: Row[Any]) -> int | None:
    return max((seq for state in OWNING if (seq := group._mapping[state.value]) is not None), default=None)


@cache
def select_windows() -> Select[Any]:
    return _with_holder(*windows.c)


@cache
def select_records() -> Select[Any]:
    """Select windows without their ranges."""
    return _with_holder(*without_ranges())


def without_ranges() -> list[Column[Any]]:
    return [column for column in windows.c if column.name not in ("ranges", "packed", "lost")]


def _with_holder(*columns: Column[Any]) -> Select[Any]:
    return select(*columns, groups.c.name.label("group_name"), *HOLDER).select_from(windows).join(groups).join(claims)


@cache
def select_history() -> Select[Any]:
    return with_history(select_windows())


@cache
def select_summaries() -> Select[Any]:
    """Select windows without their ranges, with their history."""
    return with_history(select_records())


def with_history(query: Select[Any]) -> Select[Any]:
    mine = and_(attempts.c.group_id == windows.c.group_id, attempts.c.seq == windows.c.seq)
    count = select(func.count()).select_from(attempts).where(mine).scalar_subquery()
    newest = select(attempts.c.bundle_version).where(mine).order_by(attempts.c.id.desc()).limit(1)
    records = newest.with_only_columns(attempts.c.records).where(attempts.c.outcome == Outcome.SUCCEEDED)
    more = {"attempts": count, "records": records.scalar_subquery(), "bundle_version": newest.scalar_subquery()}
    return query.add_columns(*(value.label(name) for name, value in more.items()), outcome_of_rerun().label("rerun"))


def outcome_of_rerun() -> ScalarSelect[str]:
    """Select how the newest attempt at a committed window ended that is not committed again; one of another launcher runs until then."""
    here = and_(reruns.c.group_id == windows.c.group_id, reruns.c.seq == windows.c.seq)
    query = select(func.coalesce(attempts.c.outcome, Outcome.RUNNING))
    query = query.select_from(reruns.outerjoin(attempts, attempts.c.id == reruns.c.attempt_id))
    return query.where(here, windows.c.state == State.COMMITTED).correlate(windows).scalar_subquery()


@cache
def select_attempts() -> Select[Any]:
    """Select attempts, oldest first."""
    return (
        select(attempts, groups.c.name.label("group_name"), *HOLDER)
        .join(claims)
        .join(groups, groups.c.id == attempts.c.group_id)
        .order_by(attempts.c.id)
    )


def attempt_of(row: Row[Any]) -> Attempt:
    with intact(f"attempt {row.id} at window {row.seq} of group {row.group_name}"):
        return Attempt(
            id=row.id,
            window_id=name_window(row.group_name, row.seq),
            claim=claim_of(row),
            try_number=row.try_number,
            series=row.series,
            bundle_version=row.bundle_version,
            outcome=Outcome(row.outcome),
            records=row.records,
            started_at=row.started_at,
            ended_at=row.ended_at,
        )


_OF_HISTORY = ("attempts", "records", "bundle_version", "last_attempt")


def record_of(row: Row[Any], partitions: Collection[TopicPartition] | None = None) -> WindowRecord:
    """Read a window's row. Its ranges, if they are in it, are decoded on first use.

    Args:
        row: of `select_windows`, `select_records`, or one of these with more columns.
        partitions: decode the ranges of these only, or None for all.
    """
    decode = cache(partial(_window_of, row, partitions)) if "ranges" in row._fields else None
    more = {name: row._mapping[name] for name in _OF_HISTORY if name in row._fields}
    rerun = row.rerun if "rerun" in row._fields else None
    with intact(f"window {row.seq} of group {row.group_name}"):
        return WindowRecord(
            group=row.group_name,
            seq=row.seq,
            lane=Lane(row.lane),
            state=State(row.state),
            span=row.span,
            planned_until=row.planned_until,
            isolation_level=IsolationLevel(row.isolation_level),
            is_capped=row.is_capped,
            unread=row.unread,
            schemas=row.schemas,
            partitions=row.partitions,
            holder=claim_of(row),
            holds=row.holds,
            committed_at=row.committed_at,
            planned_at=row.planned_at,
            decode=decode,
            rerun=None if rerun is None else Outcome(rerun),
            **more,
        )


def _window_of(row: Row[Any], partitions: Collection[TopicPartition] | None) -> Window:
    with intact(f"window {row.seq} of group {row.group_name}"):
        ranges, topic_ids, leader_epochs = load_ranges(row.ranges, row.packed, partitions)
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
        if partitions is None and window.span != row.span:
            raise ValueError(f"it has {counted(row.span, 'offset')}, and its ranges have {window.span}")
        return window


def claim_of(row: Row[Any]) -> Claim:
    return Claim(row.dag_id, row.run_id, row.task_id, row.map_index, Scope(row.scope))


def chunks(values: Sequence[_T], size: int | None = None) -> Iterator[Sequence[_T]]:
    size = size or MAX_PARAMETERS
    for start in range(0, len(values), size):
        yield values[start : start + size]


def id_of(group: str | BindParameter[str]) -> ScalarSelect[int]:
    return select(groups.c.id).where(groups.c.name == group).scalar_subquery()


ID_OF_GROUP = id_of(bindparam("of_group"))
"""For a statement that is built once: it gets the name as a parameter."""


def find_group(connection: Connection, name: str, *columns: Column[Any]) -> Row[Any]:
    row = connection.execute(select_group(columns), {"of_group": name}).first()
    if row is None:
        raise UnknownGroupError(f"The ledger has no group {name}. To list its groups:\n    kafka-offsets status")
    return row


@cache
def select_group(columns: Sequence[Column[Any]]) -> Select[Any]:
    return select(*columns).where(groups.c.name == bindparam("of_group"))


def find_window(connection: Connection, query: Select[Any], window_id: str) -> Row[Any]:
    return find_at(connection, query.where(*IS_WINDOW), window_id)


IS_WINDOW = (groups.c.name == bindparam("of_group"), windows.c.seq == bindparam("of_seq"))


def find_at(connection: Connection, query: Select[Any], window_id: str, **asked: Any) -> Row[Any]:
    group, seq = parse_window_id(window_id)
    row = connection.execute(query, {"of_group": group, "of_seq": seq, **asked}).first()
    if row is None:
        raise missing(connection, group, [seq])
    return row


def missing(connection: Connection, group: str, seqs: Sequence[int]) -> UnknownWindowError:
    """Return the error about windows that the ledger does not have."""
    first = connection.execute(select_group((groups.c.first_seq,)), {"of_group": group}).scalar()
    return absent(group, seqs, first or 1)
