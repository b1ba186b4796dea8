"""What people change by hand, with who, when and why."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from sqlalchemy import Connection, Select, and_, insert, select, update

from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import INHERIT, MENDS, MOVES, NEXT_WINDOW, Act
from airflow_kafka_offsets.core.plan.ownership import Abandonment, Owner, Position, abandonment, check_gap
from airflow_kafka_offsets.core.window import State, check_steps
from airflow_kafka_offsets.ledger import runs, staging
from airflow_kafka_offsets.ledger.connections import Connections
from airflow_kafka_offsets.ledger.documents import dump_position
from airflow_kafka_offsets.ledger.engine import writing
from airflow_kafka_offsets.ledger.rows import (
    ID_OF_GROUP,
    act_of,
    find_group,
    find_window,
    newest_owner,
    positions_of,
    record_of,
    select_standing_group,
    select_windows,
)
from airflow_kafka_offsets.ledger.tables import acts, groups, identity


class ActLedger(Connections):
    """The ledger, as acts need it. Every write is one transaction."""

    def abandon(self, window_id: str, act: Act, *, leave_gap: bool = False) -> Abandonment:
        """Take from an open window the ownership of its offsets, and record with the act what that means.

        Raises:
            IllegalStepError: it is not planned.
            ConfirmationError: see `core.plan.ownership.check_gap`.
            UnknownWindowError: there is no such window.
        """
        with self._writing() as connection:
            # Together with the version: any change from here on makes the compare-and-set below fail.
            row = find_window(connection, select_windows().add_columns(groups.c.version), window_id)
            held = record_of(row)
            group = connection.execute(select_standing_group(), {"of_group": held.group}).one()
            done = abandonment(held.window, positions_of(connection, [group])[group.id], newest_owner(group))
            origin = {"origin_seq": groups.c.next_seq, "origin": dump_position(done.position)} if done.position else {}
            runs.next_version(connection, group.name, row.version, **origin)
            check_gap(done, leave_gap)  # after the compare-and-set: no one is asked to confirm outdated values
            runs.change_window(connection, group.id, held, state=State.ABANDONED)
            record_act(connection, group.id, replace(act, details={**act.details, **done.facts}))
        return done

    def commit_by_hand(
        self, window_id: str, act: Act, *, leave_committing: bool = False, output: Sequence[str] = ()
    ) -> None:
        """Commit a planned window on a person's word, which is recorded; `leave_committing` and `output` as in `commit`.

        A committed window that needs another run needs none after that.

        Raises:
            IllegalStepError: it is neither planned nor needs another run.
            OutputError: its job staged nothing, or the database refuses the rows; nothing was committed.
            UnknownWindowError: there is no such window.
        """
        with writing(self._engine_for(output)) as connection:
            window, group_id, _ = runs.find_record(connection, window_id)
            needs_run = runs.end_rerun(connection, group_id, window)
            if needs_run:  # its attempt, if it still runs, is no evidence any longer
                runs.take_from_attempts(connection, group_id, window, act.at)
            else:
                check_steps(window_id, window.state, State.COMMITTING, State.COMMITTED)
                runs.commit_window(connection, group_id, window, act.at, leave_committing=leave_committing)
            record_act(connection, group_id, act)
            if output and window.span:
                staging.publish(connection, window_id, output, None, act.at, is_planned=not needs_run)
        if output and window.span:
            staging.clean(self._engine)

    def reset(self, group: str, version: int, position: Position, superseded: Sequence[int], act: Act) -> None:
        """Move the watermark to a position, and mark the windows that it supersedes.

        Raises:
            ConcurrentChangeError: the group is no longer at this version.
        """
        with self._writing() as connection:
            runs.next_version(connection, group, version, origin_seq=groups.c.next_seq, origin=dump_position(position))
            row = find_group(connection, group, groups.c.id, groups.c.next_seq)
            runs.step_windows(connection, row.id, superseded, State.COMMITTED, state=State.SUPERSEDED)
            record_act(connection, row.id, replace(act, details={**act.details, NEXT_WINDOW: row.next_seq}))

    def take_over(self, group: str, version: int, owner: Owner, act: Act) -> None:
        """Give a group to another task.

        Raises:
            ConcurrentChangeError: the group is no longer at this version.
            UnknownGroupError: there is no such group.
        """
        with self._writing() as connection:
            (group_id,) = find_group(connection, group, groups.c.id)
            runs.next_version(connection, group, version, **runs.owner_values(owner))
            record_act(connection, group_id, act)

    def found(self, group: KafkaGroup, position: Position, act: Act) -> None:
        """Write down a group that never planned, and where its first window starts.

        Raises:
            ConcurrentChangeError: the ledger has the group already.
        """
        with self._writing() as connection:
            definition, origin = json.dumps(group.to_json()), dump_position(position)
            group_id = runs.add_group(connection, group.name, definition, origin, act.at, version=1)
            record_act(connection, group_id, act)

    def record(self, group: str, act: Act) -> None:
        """Record what a person did that changes nothing in the ledger.

        Raises:
            UnknownGroupError: there is no such group.
        """
        with self._writing() as connection:
            (group_id,) = find_group(connection, group, groups.c.id)
            record_act(connection, group_id, act)

    def ledgers(self, group: str) -> tuple[str, ...]:
        """Return this ledger's id, and those of lost ledgers beside whose output of a group it may write."""
        with self._reading() as connection:
            own = connection.execute(identity.select()).scalar_one()
            rows = connection.execute(_select_kinds(INHERIT), {"of_group": group}).all()
        return (own, *filter(None, (act_of(group, row).details.get("ledger") for row in rows)))

    def acts(self, group: str, *, newest: int | None = None) -> Sequence[Act]:
        """Return what people did to a group, oldest first; with `newest`, only so many of the newest acts."""
        query = select_acts().limit(newest)
        with self._reading() as connection:
            return [act_of(group, row) for row in connection.execute(query, {"of_group": group})][::-1]

    def moves(self, group: str) -> Sequence[Act]:
        """Return the acts that moved the watermark of a group, oldest first. A group has few, and may have thousands of others."""
        with self._reading() as connection:
            # In the order of the database, it would read all acts.
            rows = connection.execute(_select_kinds(*MOVES), {"of_group": group}).all()
            return [act_of(group, row) for row in sorted(rows, key=lambda row: row.id)]


@cache
def _select_kinds(*kinds: str) -> Select[Any]:
    return select(acts).where(acts.c.group_id == ID_OF_GROUP, acts.c.kind.in_(kinds))


@cache
def select_acts() -> Select[Any]:
    """Select the acts of the group `of_group`, the newest first."""
    return select(acts).where(acts.c.group_id == ID_OF_GROUP).order_by(acts.c.id.desc())


def record_act(connection: Connection, group_id: int, act: Act) -> int:
    """Record what a person did, and return its number. After a mend, the next plan shows whether a refusal of the offset store is over."""
    if act.kind in MENDS:
        is_refused = and_(groups.c.id == group_id, groups.c.refused.is_not(None))
        connection.execute(update(groups).where(is_refused).values(refused=None))
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
    return runs.new_id(result)
