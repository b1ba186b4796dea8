"""Reads and writes of a run, from its plan to its commit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    Connection,
    CursorResult,
    FromClause,
    ScalarSelect,
    Select,
    and_,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from airflow_kafka_offsets.core.errors import MAX_NAMED, ConcurrentChangeError, WindowBusyError
from airflow_kafka_offsets.core.exchange import Place
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import Attempt
from airflow_kafka_offsets.core.plan.ownership import GroupState, Owner, Position, earlier_names, is_owner
from airflow_kafka_offsets.core.run import Try, check_attempt
from airflow_kafka_offsets.core.schemas import NOTHING, Frozen, ToFreeze
from airflow_kafka_offsets.core.window import (
    OPEN,
    Claim,
    Draft,
    Lane,
    Outcome,
    Scope,
    State,
    Window,
    WindowRecord,
    check_commit,
)
from airflow_kafka_offsets.core.window_id import name_window
from airflow_kafka_offsets.ledger import freezing, staging
from airflow_kafka_offsets.ledger.connections import Connections
from airflow_kafka_offsets.ledger.documents import dump_position, dump_ranges, intact
from airflow_kafka_offsets.ledger.engine import writing
from airflow_kafka_offsets.ledger.packing import pack
from airflow_kafka_offsets.ledger.rows import (
    ID_OF_GROUP,
    IS_WINDOW,
    OWNER,
    attempt_of,
    chunks,
    definition_of,
    find_at,
    find_group,
    find_window,
    id_of,
    owner_of,
    record_of,
    select_attempts,
    select_records,
    select_standing_group,
    select_windows,
    states_of,
)
from airflow_kafka_offsets.ledger.tables import (
    acts,
    attempts,
    claim_windows,
    claims,
    groups,
    pruned_claims,
    reruns,
    windows,
)


class RunLedger(Connections):
    """The ledger, as runs need it. Every write is one transaction, or a part of that of `turn`."""

    def load(self, group: str, claim: Claim | None = None) -> GroupState:
        """Return what matters to someone who asks for a window."""
        with self._reading() as connection:
            found = connection.execute(select_standing_group(), {"of_group": group}).all()
            state = states_of(connection, found, _open).get(group, GroupState())
            if claim is None:
                return state
            claimed = _claimed(connection, group, claim)
            has_own = any(held.state.owns for held in claimed)
            names = [claim] if has_own else [claim, *_earlier_names(connection, group, state.owner, claim)]
            return replace(
                state,
                claimed=claimed,
                elsewhere=() if has_own else _elsewhere(connection, group, names),
                is_pruned=_had_one_that_left(connection, names),
            )

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
        """Write down new windows held by the claim, give it others as `hold` does, and freeze schemas, all or none; return the new ones.

        A group without an owner belongs to the claim's task from its first live window on. The group's definition is written
        down, too, unless the group belongs to another task.

        Raises:
            ConcurrentChangeError: the group is no longer at this version, or see `hold` and `freeze`.
        """
        definition = json.dumps(group.to_json())
        with self._writing() as connection:
            if version == 0:
                origin = dump_position(Position(drafts[0].ranges.starts, drafts[0].topic_ids))
                add_group(connection, group.name, definition, origin, now, version=0)
            # What is read here is valid only if the group is still at this version below.
            row = find_group(connection, group.name, groups.c.id, groups.c.next_seq, *OWNER)
            defined = _defined(owner_of(row), definition, drafts, claim)
            next_version(connection, group.name, version, next_seq=row.next_seq + len(drafts), **defined)
            holder = _claim_id(connection, claim)
            _freeze(connection, to_freeze.earlier)
            drafts = _with_schemas(connection, drafts, to_freeze.new)
            added = [draft.named(group.name, seq) for seq, draft in enumerate(drafts, start=row.next_seq)]
            more = {"group_id": row.id, "holder": holder, "holds": 1, "planned_at": now}
            for window in added:  # one at a time: together they could be too large for one statement
                connection.execute(insert(windows), {**_window_values(window), **more})
            _note_claims(connection, holder, row.id, [window.seq for window in added])
            if take:
                _hold(connection, row.id, take, holder, claim, now)
        return [WindowRecord.of(window, claim, holds=1, planned_at=now) for window in added]

    def schemas(self, number: int) -> Frozen:
        """Return the schemas that are kept under a number."""
        with self._reading() as connection:
            return freezing.load(connection, number)

    def freeze(self, there: Sequence[tuple[Window, Frozen]]) -> None:
        """Freeze schemas with windows of a group, in place of those that they have, all or none.

        Each text is kept once, and equal schemas have one number.

        Args:
            there: the windows, each with what takes the place of its schemas.

        Raises:
            ConcurrentChangeError: a window has other ones by now.
        """
        if there:
            with self._writing() as connection:
                _freeze(connection, there)

    def define(self, group: KafkaGroup, claim: Claim) -> None:
        """Write down the definition of a group in the ledger, unless the group belongs to another task than the claim's.

        Raises:
            UnknownGroupError: there is no such group.
        """
        with self._reading() as connection:
            row = find_group(connection, group.name, groups.c.definition, *OWNER)
        if group.topics_pattern is not None:  # only a plan of new windows knows its matches
            group = group.having_matched(definition_of(group.name, row.definition).topics)
        definition = json.dumps(group.to_json())
        is_new = row.definition != definition  # an unchanged definition takes no lock
        if is_new and is_owner(owner_of(row), claim):
            with self._writing() as connection:
                connection.execute(update(groups).where(groups.c.name == group.name).values(definition=definition))

    def note_refusal(self, group: str, why: str | None) -> None:
        """Note why the group's offset store refused it, or None if it does not any longer."""
        with self._writing() as connection:
            connection.execute(update(groups).where(groups.c.name == group).values(refused=why))

    def hold(
        self,
        held_windows: Sequence[WindowRecord],
        claim: Claim,
        now: datetime,
        there: Sequence[tuple[Window, Frozen]] = (),
    ) -> list[WindowRecord]:
        """Give windows to a claim, and `freeze` schemas, all or none, if each still has its holder and state in `held_windows`.

        Attempts of others that still run on them become `lost`.

        Raises:
            ConcurrentChangeError: someone else took one first, or it was changed; or see `freeze`.
        """
        with self._writing() as connection:
            (group_id,) = find_group(connection, held_windows[0].group, groups.c.id)
            _hold(connection, group_id, held_windows, _claim_id(connection, claim), claim, now)
            _freeze(connection, there)
        return [replace(held, holder=claim, holds=held.holds + 1) for held in held_windows]

    def hand_off(self, window_id: str, claim: Claim, place: Place) -> None:
        """Write down where a plan task has left a window for another launcher.

        Raises:
            WindowBusyError: the claim no longer holds it.
            ConcurrentChangeError: someone changed it just now.
        """
        with self._writing() as connection:
            row = find_window(connection, select_records(), window_id)
            held = record_of(row)
            if held.holder != claim:
                raise WindowBusyError(held.id, held.holder, is_rerun=held.state is State.COMMITTED)
            change_window(connection, row.group_id, held, place=json.dumps(asdict(place)))

    def place(self, window_id: str) -> Place | None:
        """Return where the plan task of the present holder has left a window, or None if in no exchange."""
        with self._reading() as connection:
            text = find_window(connection, select_records(), window_id).place
        with intact(f"the place of window {window_id}"):
            return None if text is None else Place(**json.loads(text))

    def start_attempt(self, window_id: str, claim: Claim, this_try: Try, now: datetime) -> int:
        """Record that an attempt begins, and return its number. Attempts at the window that still run become `lost`.

        A try that is resumed goes on with the attempt that it had.

        Args:
            window_id: the window.
            claim: who works on it.
            this_try: which try of the task it is.
            now: the time.

        Raises:
            WindowBusyError, IllegalStepError: see `core.run.check_attempt`.
            ConcurrentChangeError: someone else took or committed the window just now.
            UnknownWindowError: there is no such window.
        """
        with self._writing() as connection:
            window, group_id, _ = find_record(connection, window_id)
            claim_id = _claim_id(connection, claim)
            row = connection.execute(_newest_of_claim(), {"of_claim": claim_id, "of_id": group_id}).first()
            newest = attempt_of(row) if row else None
            check_attempt(window, claim, this_try, newest)
            if newest is not None and newest.window_id == window.id and this_try.resumes(newest):
                return newest.id
            take_from_attempts(connection, group_id, window, now)
            number = new_id(
                connection.execute(
                    insert(attempts).values(
                        group_id=group_id,
                        seq=window.seq,
                        claim_id=claim_id,
                        try_number=this_try.number,
                        series=this_try.series,
                        bundle_version=this_try.bundle_version,
                        outcome=Outcome.RUNNING,
                        started_at=now,
                    )
                )
            )
            _note_rerun(connection, group_id, window, now, number)
            return number

    def succeeded(self, group: str, claim: Claim, this_try: Try) -> Mapping[int, Attempt]:
        """Return the successful attempts of a task that this try continues, by the window's sequence number.

        One after which another attempt at its window has begun is not among them: that one may have overwritten its output.
        """
        found = self._in_series(group, claim, this_try, Outcome.SUCCEEDED)
        return {seq: attempt for seq, attempt in found if this_try.continues(attempt)}

    def resumed(self, group: str, claim: Claim, this_try: Try) -> set[int]:
        """Return the sequence numbers of the windows whose newest attempt is that of this very try, which goes on with it."""
        found = self._in_series(group, claim, this_try, Outcome.RUNNING) if this_try.is_resumed else []
        return {seq for seq, attempt in found if this_try.resumes(attempt)}

    def _in_series(self, group: str, claim: Claim, this_try: Try, outcome: Outcome) -> list[tuple[int, Attempt]]:
        """Return the newest attempts at windows, by the window's sequence number, if they are of this series and ended like this."""
        query = select_attempts().where(
            attempts.c.group_id == id_of(group),
            attempts.c.claim_id == id_of_claim(),
            attempts.c.series == this_try.series,
            attempts.c.outcome == outcome,
            attempts.c.id == _newest_at(attempts),
        )
        with self._reading() as connection:
            return [(row.seq, attempt_of(row)) for row in connection.execute(query, _names(claim))]

    def end_attempt(self, attempt: int, outcome: Outcome, records: int | None, now: datetime) -> None:
        """Record how an attempt ended. A lost attempt stays lost: the commit refuses it."""
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
        leave_committing: bool = False,
        output: Sequence[str] = (),
    ) -> bool:
        """Commit a window that is planned or committing. If it was committed before, only its output may change, and False is returned.

        Args:
            window_id: the window.
            claim: who commits.
            attempt: the attempt that is the evidence, or None without one.
            now: the time.
            leave_committing: leave a live window committing, until `finish`.
            output: tables of the ledger's database that get, in the same transaction, what the job staged for them.

        Raises:
            WindowError: see `core.window.check_commit`.
            OutputError: what the job staged can't be published; nothing was committed.
            UnknownWindowError: there is no such window.
        """
        with writing(self._engine_for(output)) as connection:
            window, group_id, outcome = find_record(connection, window_id, attempt)
            is_first = check_commit(window, claim, outcome)
            if is_first:
                commit_window(connection, group_id, window, now, leave_committing=leave_committing)
            else:  # another commit of the same rerun, and the next attempt, must wait for this one
                change_window(connection, group_id, window, state=window.state)
            end_rerun(connection, group_id, window)
            if output and window.span:
                is_planned = window.state is State.PLANNED
                staging.publish(connection, window_id, output, attempt, now, is_planned=is_planned)
        if output and window.span:
            staging.clean(self._engine)
        return is_first

    def finish(self, group: str, version: int, seqs: Sequence[int], now: datetime) -> None:
        """Finish commits that were begun: windows that are committing become committed, all or none.

        Raises:
            ConcurrentChangeError: the group is no longer at this version, or one of the windows is not committing.
        """
        with self._writing() as connection:
            next_version(connection, group, version)
            (group_id,) = find_group(connection, group, groups.c.id)
            step_windows(connection, group_id, seqs, State.COMMITTING, state=State.COMMITTED, committed_at=now)


def owner_values(owner: Owner) -> dict[str, str]:
    return {"owner_dag_id": owner.dag_id, "owner_task_id": owner.task_id}


def _defined(owner: Owner | None, definition: str, drafts: Sequence[Draft], claim: Claim) -> dict[str, str]:
    """Return what new windows change in their group's row: nothing if the group belongs to another task."""
    if not is_owner(owner, claim):
        return {}
    is_live = any(draft.lane is Lane.LIVE for draft in drafts)
    return {"definition": definition, **(owner_values(Owner.of(claim)) if is_live else {})}


def _open(connection: Connection, group_ids: Sequence[int]) -> dict[int, list[WindowRecord]]:
    """Find the live windows of groups that wait for their commit, the oldest first."""
    found: dict[int, list[WindowRecord]] = {}
    for group_id in group_ids:
        asked = [{"of_id": group_id, "of_state": state} for state in sorted(OPEN)]
        rows = [row for each in asked for row in connection.execute(_live_of_group(), each)]
        found[group_id] = [record_of(row) for row in sorted(rows, key=lambda row: row.seq)]
    return found


@cache
def _live_of_group() -> Select[Any]:
    is_live = and_(windows.c.lane == Lane.LIVE, windows.c.state == bindparam("of_state"))
    return select_windows().where(windows.c.group_id == bindparam("of_id"), is_live)


def _claimed(connection: Connection, group: str, claim: Claim) -> tuple[WindowRecord, ...]:
    return tuple(map(record_of, connection.execute(_windows_of_claim(), {"of_group": group, **_names(claim)})))


@cache
def _windows_of_claim() -> Select[Any]:
    same = and_(claim_windows.c.group_id == windows.c.group_id, claim_windows.c.seq == windows.c.seq)
    of_claim = claim_windows.c.claim_id == id_of_claim()
    query = select_windows().join(claim_windows, same).where(of_claim, claim_windows.c.group_id == ID_OF_GROUP)
    return query.order_by(claim_windows.c.seq)


def _earlier_names(connection: Connection, group: str, owner: Owner | None, claim: Claim) -> list[Claim]:
    with intact(f"the take-overs of group {group}"):
        found = connection.execute(_take_overs(), {"of_group": group}).scalars()
        return earlier_names(owner, claim, map(json.loads, found))


@cache
def _take_overs() -> Select[Any]:
    return select(acts.c.details).where(acts.c.group_id == ID_OF_GROUP, acts.c.kind == "take-over")


def _elsewhere(connection: Connection, group: str, names: Sequence[Claim]) -> tuple[str, ...]:
    found = [row for name in names for row in connection.execute(_had_elsewhere(), {"of_group": group, **_names(name)})]
    return tuple(name_window(name, seq) for name, seq in found)


@cache
def _had_elsewhere() -> Select[Any]:
    of_claim = claim_windows.c.claim_id == id_of_claim()
    # An open window of this group is there for its new owner to adopt.
    is_other = or_(groups.c.name != bindparam("of_group"), windows.c.state != State.PLANNED)
    return (
        select(groups.c.name, windows.c.seq)
        .join_from(groups, windows)
        .join(claim_windows)
        .where(of_claim, windows.c.state != State.ABANDONED, is_other)
        .order_by(
            groups.c.name == bindparam("of_group"), groups.c.name, windows.c.seq
        )  # for a replay, only others count
        .limit(MAX_NAMED)
    )


def _had_one_that_left(connection: Connection, names: Sequence[Claim]) -> bool:
    """Whether a claim had a window that was pruned, of any group and under any of these names."""
    query = select(pruned_claims.c.id).where(pruned_claims.c.id.in_(map(number_of, names))).limit(1)
    return connection.execute(query).first() is not None


def number_of(claim: Claim) -> int:
    """Return a number for a claim. Two get the same one with a chance of 1 to 2**63."""
    names = json.dumps([claim.dag_id, claim.run_id, claim.task_id, claim.map_index])
    return int.from_bytes(hashlib.blake2b(names.encode(), digest_size=8).digest()) >> 1


def _window_values(window: Window) -> dict[str, Any]:
    ranges, packed = pack(dump_ranges(window.ranges, window.topic_ids, window.leader_epochs))
    return {
        "seq": window.seq,
        "lane": window.lane,
        "state": window.state,
        "planned_until": window.planned_until,
        "isolation_level": window.isolation_level,
        "span": window.span,
        "partitions": window.partitions,
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
        here = and_(windows.c.group_id == id_of(window.group), windows.c.seq == window.seq)
        before = windows.c.schemas.is_(None) if window.schemas is None else windows.c.schemas == window.schemas
        done = connection.execute(update(windows).where(here, before).values(schemas=number))
        if done.rowcount != 1:
            raise ConcurrentChangeError(f"Another process froze schemas with window {window.id} just now")


@cache
def _known_claim() -> Select[Any]:
    names = ("dag_id", "run_id", "task_id", "map_index")
    return select(claims.c.id, claims.c.scope).where(*(claims.c[name] == bindparam(f"of_{name}") for name in names))


@cache
def id_of_claim() -> ScalarSelect[int]:
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
    return new_id(connection.execute(insert(claims).values(asdict(claim))))


def _hold(
    connection: Connection,
    group_id: int,
    held_windows: Sequence[WindowRecord],
    claim_id: int,
    claim: Claim,
    now: datetime,
) -> None:
    for held in held_windows:
        change_window(connection, group_id, held, holder=claim_id, holds=held.holds + 1, place=None)
        if claim.scope is Scope.RUN:  # another launcher may begin the job at any moment, and does not say so
            _note_rerun(connection, group_id, held, now)
    _lose(connection, _running(connection, group_id, [h.seq for h in held_windows if h.holder != claim]), now)
    mine = select(claim_windows.c.seq).filter_by(claim_id=claim_id, group_id=group_id)
    known = set(connection.execute(mine).scalars())
    _note_claims(connection, claim_id, group_id, [h.seq for h in held_windows if h.seq not in known])


def _note_claims(connection: Connection, claim_id: int, group_id: int, new: Sequence[int]) -> None:
    if new:
        rows = [{"claim_id": claim_id, "group_id": group_id, "seq": seq} for seq in new]
        connection.execute(insert(claim_windows), rows)


@cache
def _newest_of_claim() -> Select[Any]:
    mine = and_(attempts.c.claim_id == bindparam("of_claim"), attempts.c.group_id == bindparam("of_id"))
    return select_attempts().where(attempts.c.id == select(func.max(attempts.c.id)).where(mine).scalar_subquery())


def _newest_at(window: FromClause) -> ScalarSelect[int]:
    """Select the number of the newest attempt at a window."""
    later = attempts.alias("later")
    here = and_(later.c.group_id == window.c.group_id, later.c.seq == window.c.seq)
    return select(func.max(later.c.id)).where(here).correlate(window).scalar_subquery()


def take_from_attempts(connection: Connection, group_id: int, window: WindowRecord, now: datetime) -> None:
    """Record running attempts at a window as lost, and let a commit that was decided before lose."""
    change_window(connection, group_id, window, holds=window.holds + 1)
    _lose(connection, _running(connection, group_id, [window.seq]), now)


def _note_rerun(
    connection: Connection, group_id: int, window: WindowRecord, now: datetime, attempt: int | None = None
) -> None:
    """Record that a committed window begins to run again."""
    if window.state is not State.PLANNED and window.span:
        end_rerun(connection, group_id, window)
        values = {"group_id": group_id, "seq": window.seq, "attempt_id": attempt, "begun_at": now}
        connection.execute(insert(reruns).values(values))


def end_rerun(connection: Connection, group_id: int, window: WindowRecord) -> bool:
    """Forget that a committed window began to run again. Return whether it did."""
    if window.state is State.PLANNED:
        return False
    here = (reruns.c.group_id == group_id, reruns.c.seq == window.seq)
    return connection.execute(delete(reruns).where(*here)).rowcount > 0


def _running(connection: Connection, group_id: int, seqs: Sequence[int]) -> list[int]:
    found: list[int] = []
    for some in chunks(seqs):
        at_windows = and_(attempts.c.group_id == group_id, attempts.c.seq.in_(some))
        running = select(attempts.c.id).where(at_windows, attempts.c.outcome == Outcome.RUNNING)
        found += connection.execute(running).scalars()
    return found


def _lose(connection: Connection, running: Sequence[int], now: datetime) -> None:
    """Record running attempts as lost: a later try, or another claim, works on their windows from now on."""
    # By their ids: a search here would lock the gap where others insert their attempts (InnoDB).
    for some in chunks(running):
        are_running = and_(attempts.c.id.in_(some), attempts.c.outcome == Outcome.RUNNING)
        connection.execute(update(attempts).where(are_running).values(outcome=Outcome.LOST, ended_at=now))


def new_id(result: CursorResult[Any]) -> int:
    assert result.inserted_primary_key is not None  # the primary keys of these tables are auto-incremented
    return int(result.inserted_primary_key[0])


def add_group(connection: Connection, name: str, definition: str, origin: str, now: datetime, *, version: int) -> int:
    values = {"name": name, "definition": definition, "origin": origin, "created_at": now}
    return new_id(
        connection.execute(insert(groups).values(version=version, next_seq=1, first_seq=1, origin_seq=1, **values))
    )


def next_version(connection: Connection, group: str, version: int, **values: Any) -> None:
    """Compare-and-set: move the group to its next version, and lock its row until the transaction ends."""
    done = connection.execute(
        update(groups).where(groups.c.name == group, groups.c.version == version).values(version=version + 1, **values)
    )
    if done.rowcount != 1:
        raise ConcurrentChangeError(f"Another process changed group {group} just now; nothing was written")


def find_record(
    connection: Connection, window_id: str, attempt: int | None = None
) -> tuple[WindowRecord, int, Outcome | None]:
    """Find a window without its ranges, its group's id, and how an attempt at it ended: all that a commit checks, in one query.

    An attempt counts as lost once another one has begun: that one may have overwritten its output.
    """
    row = find_at(connection, _record_with_evidence(), window_id, of_attempt=attempt)
    window = record_of(row)
    with intact(f"attempt {attempt}"):
        outcome = None if row.outcome is None else Outcome(row.outcome)
        return window, row.group_id, outcome if row.newest == attempt or outcome is None else Outcome.LOST


@cache
def _record_with_evidence() -> Select[Any]:
    here = (attempts.c.group_id == windows.c.group_id, attempts.c.seq == windows.c.seq)
    evidence = and_(attempts.c.id == bindparam("of_attempt"), *here)
    query = select_records().add_columns(attempts.c.outcome, _newest_at(windows).label("newest"))
    return query.outerjoin(attempts, evidence).where(*IS_WINDOW)


def change_window(connection: Connection, group_id: int, window: WindowRecord, /, **values: Any) -> None:
    """Compare-and-set: change a window whose state and hold are still those that were read."""
    done = connection.execute(
        update(windows)
        .where(windows.c.group_id == group_id, windows.c.seq == window.seq)
        .where(windows.c.state == window.state, windows.c.holds == window.holds)
        .values(values)
    )
    if done.rowcount != 1:
        raise ConcurrentChangeError(f"Another process adopted or changed window {window.id} just now")


def commit_window(
    connection: Connection, group_id: int, window: WindowRecord, now: datetime, *, leave_committing: bool
) -> None:
    """Change a window to committed, or in two steps a live one to committing."""
    done = State.COMMITTING if leave_committing and window.lane is Lane.LIVE else State.COMMITTED
    at = now if done is State.COMMITTED else None
    change_window(connection, group_id, window, state=done, committed_at=at)


def step_windows(connection: Connection, group_id: int, seqs: Sequence[int], before: State, **values: Any) -> None:
    """Compare-and-set: change windows that are all in this state."""
    for some in chunks(seqs):
        done = connection.execute(
            update(windows)
            .where(windows.c.group_id == group_id, windows.c.seq.in_(some), windows.c.state == before)
            .values(values)
        )
        if done.rowcount != len(some):
            raise ConcurrentChangeError(f"Another process changed windows that were {before} just now")
