"""How old windows leave the ledger, and what it keeps of them. Each function is a part of the caller's transaction."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Row,
    and_,
    bindparam,
    delete,
    exists,
    insert,
    select,
    union,
    update,
)

from airflow_kafka_offsets.core.errors import ConcurrentChangeError
from airflow_kafka_offsets.core.history import KEPT_FROM, Act
from airflow_kafka_offsets.core.plan.pruning import NOTHING_PRUNED, Pruned, without
from airflow_kafka_offsets.core.window import Claim, Lane, State, WindowRecord
from airflow_kafka_offsets.core.window_id import name_window
from airflow_kafka_offsets.ledger.documents import intact
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

_AT_ONCE = 500
"""How many values one statement has."""

_PRUNED = select(pruned).join(groups).where(groups.c.name == bindparam("of_group"))


def load(connection: Connection, group: str) -> Pruned:
    """Return what the ledger keeps of a group's pruned windows."""
    row = connection.execute(_PRUNED, {"of_group": group}).first()
    if row is None:
        return NOTHING_PRUNED
    with intact(f"what was pruned of group {group}"):
        prunes = select(acts.c.at, acts.c.details).where(acts.c.group_id == row.group_id, acts.c.kind == "prune")
        acted = connection.execute(prunes.order_by(acts.c.id))
        times = tuple((json.loads(act.details)[KEPT_FROM], act.at) for act in acted)
        return replace(_known(row), prunes=times)


def _known(row: Row[Any]) -> Pruned:
    floors = {
        topic_id: {int(partition): offset for partition, offset in of_topic.items()}
        for topic_id, of_topic in json.loads(row.floors).items()
    }
    proof = None if row.proof_seq is None else (row.proof_seq, row.proof_until)
    return Pruned(row.before_seq, row.planned_until, proof, floors)


def _note_pruned(connection: Connection, group: str, group_id: int, old: Sequence[WindowRecord]) -> None:
    mine = pruned.c.group_id == group_id
    row = connection.execute(select(pruned).where(mine).with_for_update()).first()
    with intact(f"what was pruned of group {group}"):
        known = without([one.window for one in old], _known(row) if row else NOTHING_PRUNED)
    floors = json.dumps(known.floors, separators=(",", ":"))
    proof_seq, proof_until = known.proof or (None, None)
    proof = {"proof_seq": proof_seq, "proof_until": proof_until}
    values = {"before_seq": known.before, "planned_until": known.planned_until, **proof, "floors": floors}
    if row is None:
        connection.execute(insert(pruned).values(group_id=group_id, **values))
    else:
        connection.execute(update(pruned).where(mine).values(values))


def before(connection: Connection, group_ids: Sequence[int]) -> dict[int, int]:
    """Return, by the id of the group, the number before which all windows are gone; a group that has all is not in the answer."""
    query = select(pruned.c.group_id, pruned.c.before_seq).where(pruned.c.group_id.in_(group_ids))
    return {row.group_id: row.before_seq for row in connection.execute(query)}


def had_one(connection: Connection, names: Sequence[Claim]) -> bool:
    """Whether a claim had a window that is gone, of any group and under any of these names."""
    return any(connection.execute(_PRUNED_CLAIM, {"number": _number(name)}).first() for name in names)


_PRUNED_CLAIM = select(pruned_claims.c.id).where(pruned_claims.c.id == bindparam("number"))


def take_out(connection: Connection, group: str, group_id: int, old: Sequence[WindowRecord]) -> None:
    """Delete windows that follow one another, with all that belongs to them only. What has to stay known is written.

    Raises:
        ConcurrentChangeError: they are no longer as they were when someone decided that they may leave, or a reset has made one of them
            the last commit.
    """
    first, last = old[0].seq, old[-1].seq

    def are_old(group_column: Column[Any], seq: Column[Any]) -> ColumnElement[bool]:
        return and_(group_column == group_id, seq.between(first, last))

    _check_same(connection, are_old(windows.c.group_id, windows.c.seq), old)
    _check_last_commit_stays(connection, group, group_id, last)
    at_windows = are_old(attempts.c.group_id, attempts.c.seq)
    of_claims = are_old(claim_windows.c.group_id, claim_windows.c.seq)
    query = union(select(claim_windows.c.claim_id).where(of_claims), select(attempts.c.claim_id).where(at_windows))
    claim_ids = sorted(connection.execute(query).scalars())
    _note_pruned(connection, group, group_id, old)
    # An abandoned window owns nothing, so its run asks like a new one.
    had = select(claim_windows.c.claim_id).join(windows).where(of_claims, windows.c.state != State.ABANDONED)
    _note_claims(connection, sorted(connection.execute(had.distinct()).scalars()))
    connection.execute(delete(reruns).where(are_old(reruns.c.group_id, reruns.c.seq)))
    connection.execute(delete(attempts).where(at_windows))
    connection.execute(delete(claim_windows).where(of_claims))
    connection.execute(delete(windows).where(are_old(windows.c.group_id, windows.c.seq)))
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
    for some in _parts(claim_ids):
        rows = connection.execute(select(claims).where(claims.c.id.in_(some)))
        numbers = {_number(Claim(row.dag_id, row.run_id, row.task_id, row.map_index)) for row in rows}
        known = connection.execute(select(pruned_claims.c.id).where(pruned_claims.c.id.in_(numbers))).scalars()
        if new := sorted(numbers.difference(known)):
            connection.execute(insert(pruned_claims), [{"id": number} for number in new])


def _number(claim: Claim) -> int:
    """Return a number for a claim. Two get the same one with a chance of 1 to 2**63."""
    names = json.dumps([claim.dag_id, claim.run_id, claim.task_id, claim.map_index])
    return int.from_bytes(hashlib.blake2b(names.encode(), digest_size=8).digest()) >> 1


def _delete_free(connection: Connection, claim_ids: Sequence[int]) -> None:
    """Delete the claims that nothing refers to any more."""
    refers = [
        exists().where(claim_windows.c.claim_id == claims.c.id),
        exists().where(attempts.c.claim_id == claims.c.id),
        exists().where(windows.c.holder == claims.c.id),
    ]
    for some in _parts(claim_ids):
        query = select(claims.c.id).where(claims.c.id.in_(some), *(~one for one in refers))
        free = connection.execute(query).scalars().all()
        connection.execute(delete(claims).where(claims.c.id.in_(free)))


def _delete_staged(connection: Connection, window_ids: Sequence[str]) -> None:
    """Delete the notes on what jobs staged. One whose staging table is still there stays for whoever drops that."""
    for some in _parts(window_ids):
        query = select(staged.c.id).where(staged.c.window_id.in_(some), staged.c.staging.is_(None))
        over = connection.execute(query).scalars().all()
        connection.execute(delete(staged).where(staged.c.id.in_(over)))


def _parts(values: Sequence[Any]) -> list[Sequence[Any]]:
    return [values[start : start + _AT_ONCE] for start in range(0, len(values), _AT_ONCE)]


def note(connection: Connection, number: int, act: Act) -> None:
    """Change the details of an act that is under way."""
    connection.execute(update(acts).where(acts.c.id == number).values(details=json.dumps(dict(act.details))))
