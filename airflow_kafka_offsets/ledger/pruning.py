"""How old windows leave the ledger, and what it keeps of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    select,
    union,
    update,
)

from airflow_kafka_offsets.core.errors import ConcurrentChangeError
from airflow_kafka_offsets.core.history import GAP, Act
from airflow_kafka_offsets.core.plan.pruning import Pruned, without
from airflow_kafka_offsets.core.window import Claim, Lane, State, WindowRecord
from airflow_kafka_offsets.core.window_id import name_window
from airflow_kafka_offsets.ledger.acts import record_act
from airflow_kafka_offsets.ledger.connections import Connections
from airflow_kafka_offsets.ledger.documents import intact
from airflow_kafka_offsets.ledger.many_groups import gaps_of
from airflow_kafka_offsets.ledger.rows import chunks, find_group, id_of, outcome_of_rerun, record_of, select_windows
from airflow_kafka_offsets.ledger.runs import number_of
from airflow_kafka_offsets.ledger.tables import (
    acts,
    attempts,
    claim_windows,
    claims,
    groups,
    pruned,
    pruned_claims,
    reruns,
    staged,
    windows,
)


class PruneLedger(Connections):
    """The ledger, as a prune needs it, and whoever asks what has left."""

    def pruned(self, group: str) -> Pruned:
        """Return what the ledger keeps of a group's pruned windows."""
        with self._reading() as connection:
            return _load(connection, group)

    def old_windows(self, group: str, *, since: int, limit: int) -> Sequence[WindowRecord]:
        """Return windows of a group with this number or a larger one, the oldest first; at most `limit`."""
        mine = and_(windows.c.group_id == id_of(group), windows.c.seq >= since)
        with self._reading() as connection:
            rows = connection.execute(_old_windows().where(mine).order_by(windows.c.seq).limit(limit))
            return [record_of(row) for row in rows]

    def prune(self, old: Sequence[WindowRecord], act: Act, number: int | None = None) -> int:
        """Delete old windows that follow one another, the first ones of their group, with all that belongs to them only.

        Args:
            old: these windows.
            act: what is recorded.
            number: of the act, whose details change if a part of it is recorded already; None if it is new.

        Returns:
            The number of the act.

        Raises:
            ConcurrentChangeError: they are no longer as they were when someone decided that they may leave, or a reset has made one of
                them the last commit; nothing was written.
        """
        group = old[0].group
        with self.turn(group), self._writing() as connection:
            (group_id,) = find_group(connection, group, groups.c.id)
            before = _load(connection, group)
            _keep_gaps(connection, group_id, [one.id for one in old])
            _take_out(connection, group_id, old)
            _keep(connection, group_id, without([one.window for one in old], before))
            if number is None:
                return record_act(connection, group_id, act)
            connection.execute(update(acts).where(acts.c.id == number).values(details=json.dumps(dict(act.details))))
            return number


def _load(connection: Connection, group: str) -> Pruned:
    row = connection.execute(_kept(), {"of_group": group}).first()
    if row is None:
        return Pruned(group)
    with intact(f"what was pruned of group {group}"):
        floors = {
            topic_id: {int(partition): offset for partition, offset in of_topic.items()}
            for topic_id, of_topic in json.loads(row.floors or "{}").items()
        }
        proof = None if row.proof_seq is None else (row.proof_seq, row.proof_until)
        return Pruned(group, row.first_seq, row.planned_until, proof, floors)


@cache
def _kept() -> Select[Any]:
    kept = (groups.c.first_seq, groups.c.proof_seq, groups.c.proof_until, pruned.c.planned_until, pruned.c.floors)
    return select(*kept).select_from(groups).outerjoin(pruned).where(groups.c.name == bindparam("of_group"))


@cache
def _old_windows() -> Select[Any]:
    mine = and_(attempts.c.group_id == windows.c.group_id, attempts.c.seq == windows.c.seq)
    count = select(func.count()).select_from(attempts).where(mine).scalar_subquery()
    last = select(func.max(attempts.c.started_at)).where(mine).scalar_subquery()
    return select_windows().add_columns(
        count.label("attempts"), last.label("last_attempt"), outcome_of_rerun().label("rerun")
    )


def _keep(connection: Connection, group_id: int, kept: Pruned) -> None:
    proof_seq, proof_until = kept.proof or (None, None)
    of_group = {"first_seq": kept.first, "proof_seq": proof_seq, "proof_until": proof_until}
    connection.execute(update(groups).where(groups.c.id == group_id).values(of_group))
    more = {"planned_until": kept.planned_until, "floors": json.dumps(kept.floors, separators=(",", ":"))}
    if connection.execute(update(pruned).where(pruned.c.group_id == group_id).values(more)).rowcount == 0:
        connection.execute(insert(pruned).values(group_id=group_id, **more))


def _keep_gaps(connection: Connection, group_id: int, leaving: Sequence[str]) -> None:
    """Write into the acts which gaps the leaving windows left. All older windows have ended, so where a gap begins is final."""
    gaps = {gap.window_id: gap for found in gaps_of(connection, [group_id]).values() for gap in found}
    if kept := gaps.keys() & {*leaving}:
        is_one = and_(acts.c.group_id == group_id, acts.c.kind == "abandon")
        for row in connection.execute(select(acts.c.id, acts.c.details).where(is_one)).all():
            details = json.loads(row.details)
            if details["window"] in kept:
                details[GAP] = gaps[details["window"]].to_json()
                connection.execute(update(acts).where(acts.c.id == row.id).values(details=json.dumps(details)))


def _take_out(connection: Connection, group_id: int, old: Sequence[WindowRecord]) -> None:
    first, last = old[0].seq, old[-1].seq

    def are_old(group_column: Column[Any], seq: Column[Any]) -> ColumnElement[bool]:
        return and_(group_column == group_id, seq.between(first, last))

    of_windows = are_old(windows.c.group_id, windows.c.seq)
    _check_same(connection, of_windows, old)
    _check_last_commit_stays(connection, old[0].group, group_id, last)
    at_windows = are_old(attempts.c.group_id, attempts.c.seq)
    of_claims = are_old(claim_windows.c.group_id, claim_windows.c.seq)
    query = union(select(claim_windows.c.claim_id).where(of_claims), select(attempts.c.claim_id).where(at_windows))
    claim_ids = sorted(connection.execute(query).scalars())
    # An abandoned window owns nothing, so its run asks like a new one.
    had = (
        select(claim_windows.c.claim_id).join(windows).where(of_claims, of_windows, windows.c.state != State.ABANDONED)
    )
    _note_claims(connection, sorted(connection.execute(had.distinct()).scalars()))
    connection.execute(delete(reruns).where(are_old(reruns.c.group_id, reruns.c.seq)))
    connection.execute(delete(attempts).where(at_windows))
    connection.execute(delete(claim_windows).where(of_claims))
    connection.execute(delete(windows).where(of_windows))
    _delete_free(connection, claim_ids)
    _delete_staged(connection, [one.id for one in old])


def _check_same(connection: Connection, which: ColumnElement[bool], old: Sequence[WindowRecord]) -> None:
    # With a lock on the rows: whoever begins an attempt at one of them waits, and then finds that it is gone.
    query = select(windows.c.seq, windows.c.state, windows.c.holds).where(which).order_by(windows.c.seq)
    there = [tuple(row) for row in connection.execute(query.with_for_update())]
    if there != [(one.seq, one.state.value, one.holds) for one in old]:
        raise ConcurrentChangeError("Another process changed or pruned the same windows just now; nothing was written")


def _check_last_commit_stays(connection: Connection, group: str, group_id: int, last: int) -> None:
    # What was decided rests on a later commit, and a reset may have superseded that one since. It leaves these windows as they were.
    live = and_(windows.c.group_id == group_id, windows.c.lane == Lane.LIVE, windows.c.state == State.COMMITTED)
    newest = connection.execute(select(windows.c.seq).where(live).order_by(windows.c.seq.desc()).limit(1)).scalar()
    if newest is not None and newest <= last:
        window_id = name_window(group, newest)
        raise ConcurrentChangeError(f"Window {window_id} is the last one that is committed now; nothing was written")


def _note_claims(connection: Connection, claim_ids: Sequence[int]) -> None:
    for some in chunks(claim_ids):
        rows = connection.execute(select(claims).where(claims.c.id.in_(some)))
        numbers = {number_of(Claim(row.dag_id, row.run_id, row.task_id, row.map_index)) for row in rows}
        known = connection.execute(select(pruned_claims.c.id).where(pruned_claims.c.id.in_(numbers))).scalars()
        if new := sorted(numbers.difference(known)):
            connection.execute(insert(pruned_claims), [{"id": number} for number in new])


def _delete_free(connection: Connection, claim_ids: Sequence[int]) -> None:
    """Delete the claims that nothing refers to any more."""
    refers = [
        exists().where(claim_windows.c.claim_id == claims.c.id),
        exists().where(attempts.c.claim_id == claims.c.id),
        exists().where(windows.c.holder == claims.c.id),
    ]
    for some in chunks(claim_ids):
        query = select(claims.c.id).where(claims.c.id.in_(some), *(~one for one in refers))
        free = connection.execute(query).scalars().all()
        connection.execute(delete(claims).where(claims.c.id.in_(free)))


def _delete_staged(connection: Connection, window_ids: Sequence[str]) -> None:
    """Delete the notes on what jobs staged. One whose staging table is still there stays for whoever drops that."""
    for some in chunks(window_ids):
        query = select(staged.c.id).where(staged.c.window_id.in_(some), staged.c.staging.is_(None))
        over = connection.execute(query).scalars().all()
        connection.execute(delete(staged).where(staged.c.id.in_(over)))
