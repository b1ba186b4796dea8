"""The ledger: what runs and acts need of it, and what people look at."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Integer, Row, Select, and_, bindparam, false, select, true, union_all

from airflow_kafka_offsets.core.errors import UnknownWindowError, no_group
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import Attempt
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.overview import MAX_OF_RUN
from airflow_kafka_offsets.core.plan.ownership import Owner, Position
from airflow_kafka_offsets.core.window import Lane, State, WindowRecord
from airflow_kafka_offsets.core.window_id import parse_window_id
from airflow_kafka_offsets.ledger.acts import ActLedger
from airflow_kafka_offsets.ledger.many_groups import ManyGroups, ids_of
from airflow_kafka_offsets.ledger.pruning import PruneLedger
from airflow_kafka_offsets.ledger.rows import (
    HOLDER,
    ID_OF_GROUP,
    ask_many,
    attempt_of,
    definition_of,
    find_window,
    id_of,
    missing,
    positions_of,
    record_of,
    select_attempts,
    select_group,
    select_history,
    select_standing_group,
    select_summaries,
    select_windows,
    windows_at,
    without_ranges,
)
from airflow_kafka_offsets.ledger.runs import RunLedger
from airflow_kafka_offsets.ledger.tables import attempts, claim_windows, claims, groups, windows


class Ledger(RunLedger, ActLedger, PruneLedger, ManyGroups):
    """The record of groups, windows, claims, attempts and acts, in SQLite, PostgreSQL, MySQL or MariaDB.

    Raises:
        LedgerUnavailableError: the database did not answer.
        LedgerSchemaError: its tables are missing, or another version of this package made them.
    """

    def groups(self) -> Sequence[KafkaGroup]:
        """Return every group as it was defined when it last planned, whatever windows that plan gave."""
        return self._groups()

    def groups_of(self, owner: Owner) -> Sequence[KafkaGroup]:
        """Return the groups that belong to a task, as they were defined when they last planned."""
        return self._groups(groups.c.owner_dag_id == owner.dag_id, groups.c.owner_task_id == owner.task_id)

    def _groups(self, *which: ColumnElement[bool]) -> list[KafkaGroup]:
        query = select(groups.c.name, groups.c.definition).where(*which).order_by(groups.c.name)
        with self._reading() as connection:
            return [definition_of(row.name, row.definition) for row in connection.execute(query)]

    def group(self, name: str) -> KafkaGroup:
        """Return one group as it was defined when it last planned.

        Raises:
            UnknownGroupError: there is no such group.
        """
        with self._reading() as connection:
            definition = connection.execute(select_group((groups.c.definition,)), {"of_group": name}).scalar()
            if definition is None:
                known = connection.execute(select(groups.c.name).order_by(groups.c.name)).scalars().all()
                raise no_group(name, known)
            return definition_of(name, definition)

    def window(self, window_id: str) -> WindowRecord:
        """Return one window.

        Raises:
            UnknownWindowError: there is no such window.
        """
        with self._reading() as connection:
            return record_of(find_window(connection, select_history(), window_id))

    def absent(self, group: str, seqs: Sequence[int]) -> UnknownWindowError:
        """Return the error about windows that are not here, which says whether they ever were."""
        with self._reading() as connection:
            return missing(connection, group, seqs)

    def position(self, group: str) -> Position | None:
        """Return where the next live window of a group starts, or None if the ledger does not have the group."""
        with self._reading() as connection:
            found = connection.execute(select_standing_group(), {"of_group": group}).all()
            return next(iter(positions_of(connection, found).values()), None)

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
    ) -> Sequence[WindowRecord]:
        """Return windows of a group, newest first.

        Args:
            group: its name.
            states: only these, or none for all.
            lane: only this one, or None for both.
            seqs: only these, or none for all.
            cut_in: only windows with ``start < planned_until <= end``.
            before: only windows with smaller numbers, for the next page.
            since: only windows with this number or a larger one.
            limit: how many at most.
        """
        rows = self._history_of(group, states, lane, seqs, cut_in, before, since, limit, select_history)
        return [record_of(row) for row in rows]

    def summaries(
        self, group: str, *, states: Sequence[State] = (), seqs: Sequence[int] = (), limit: int = 50
    ) -> Sequence[WindowRecord]:
        """Return windows of a group in short, newest first. Their ranges are not read: with many partitions, this takes most of the time.

        Args:
            group: its name.
            states: only these, or none for all.
            seqs: only these, or none for all.
            limit: how many at most.
        """
        rows = self._history_of(group, states, None, seqs, None, None, None, limit, select_summaries)
        return [record_of(row) for row in rows]

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
        build: Callable[[], Select[Any]],
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
            pairs = connection.execute(page, {"of_group": group, "at_most": limit, **asked})
            rows = windows_at(connection, build, [(row.group_id, row.seq) for row in pairs])
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
    ) -> WindowRecord | None:
        """Return the newest committed live window, with the ranges of some partitions only, or None if there is none.

        Args:
            group: its name.
            partitions: which ranges to read.
            before: only windows with smaller numbers.
            since: only windows with this number or a larger one.
        """
        query = select_windows().where(
            windows.c.group_id == id_of(group),
            windows.c.lane == Lane.LIVE,
            windows.c.state == State.COMMITTED,
            *_numbered(before, since),
        )
        with self._reading() as connection:
            row = connection.execute(query.order_by(windows.c.seq.desc()).limit(1)).first()
            return None if row is None else record_of(row, partitions)

    def attempts(self, window_id: str) -> Sequence[Attempt]:
        """Return the attempts at a window, oldest first."""
        group, seq = parse_window_id(window_id)
        with self._reading() as connection:
            query = select_attempts().where(attempts.c.group_id == id_of(group), attempts.c.seq == seq)
            return [attempt_of(row) for row in connection.execute(query)]

    def attempts_at(self, group: str, seqs: Sequence[int]) -> Mapping[int, Sequence[Attempt]]:
        """Return the attempts at windows of a group by their number, oldest first; a window without one is not in the answer."""
        found: dict[int, list[Attempt]] = {}
        with self._reading() as connection:
            pairs = [(id_, seq) for id_ in ids_of(connection, [group]).values() for seq in seqs]
            for row in ask_many(connection, select_attempts, pairs, attempts.c.group_id, attempts.c.seq):
                found.setdefault(row.seq, []).append(attempt_of(row))
        return found

    def windows_of_run(
        self, dag_id: str, run_id: str, task_id: str | None = None, map_index: int | None = None
    ) -> Sequence[WindowRecord]:
        """Return the windows that a run has, or had, by group and number: at most `core.plan.overview.MAX_OF_RUN`.

        The `holder` of each is the task instance of this run that had it, and not who had it last.

        Args:
            dag_id: the run's DAG.
            run_id: the run.
            task_id: only those of this task, or None for all tasks.
            map_index: only those of this mapped task instance, or None for all.
        """
        columns = (*without_ranges(), groups.c.name.label("group_name"), *HOLDER)
        query: Select[Any] = select(*columns).select_from(windows).join(groups)
        query = query.where(claims.c.dag_id == dag_id, claims.c.run_id == run_id)
        if task_id is not None:
            query = query.where(claims.c.task_id == task_id)
        if map_index is not None:
            query = query.where(claims.c.map_index == map_index)
        same = and_(claim_windows.c.group_id == windows.c.group_id, claim_windows.c.seq == windows.c.seq)
        query = query.join(claim_windows, same).join(claims, claims.c.id == claim_windows.c.claim_id)
        with self._reading() as connection:
            rows = connection.execute(query.order_by(groups.c.name, windows.c.seq).limit(MAX_OF_RUN))
            return [record_of(row) for row in rows]


@cache
def _page(states: Sequence[State], lane: Lane | None, asked: Collection[str]) -> Select[Any]:
    """Select group id and numbers of windows of the group `of_group`, the newest first, `at_most` so many.

    For each lane and state by an index of its own: a database that looks for several at once may read all of the history.

    Args:
        states: the wanted states, or none for all.
        lane: the wanted lane, or None for both.
        asked: the names of the parameters that limit the windows further.
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
    wanted = (conditions[name] for name in sorted(asked))
    mine = select(windows.c.group_id, windows.c.seq).where(windows.c.group_id == ID_OF_GROUP, *wanted)
    if is_ordered:
        mine = mine.order_by(windows.c.seq.desc()).limit(limit)
    if not states and lane is None and is_ordered:
        return mine
    each = [
        select(mine.where(windows.c.lane == one, windows.c.state == state, *more).subquery())
        for one in (Lane if lane is None else [lane])
        for state in states or sorted(State)
        for more in ([()] if is_ordered else [[windows.c.is_capped == capped] for capped in (false(), true())])
    ]
    found = union_all(*each).subquery()
    return select(found).order_by(found.c.seq.desc()).limit(limit)


def _numbered(before: int | None, since: int | None) -> list[ColumnElement[bool]]:
    """Return what holds for windows with numbers from one on, and before another one."""
    seq = windows.c.seq
    return [*([] if before is None else [seq < before]), *([] if since is None else [seq >= since])]
