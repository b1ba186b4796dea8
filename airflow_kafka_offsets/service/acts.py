"""What people do to a group: commit by hand, abandon, take over, reset. Each is recorded with who, when and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from airflow_kafka_offsets.core.errors import (
    BadInputError,
    IllegalStepError,
    OutputError,
    UnknownGroupError,
    abandon_command,
)
from airflow_kafka_offsets.core.group import KafkaGroup, check_reads
from airflow_kafka_offsets.core.history import INHERIT, Act, first_ids
from airflow_kafka_offsets.core.log import LogSnapshot
from airflow_kafka_offsets.core.offsets import TopicPartition, topics_of
from airflow_kafka_offsets.core.plan import ownership
from airflow_kafka_offsets.core.plan.ownership import Abandonment, GroupState, Owner, Position
from airflow_kafka_offsets.core.plan.reset import (
    Reset,
    check_confirmed,
    check_no_open_window,
    summary_of_reset,
    window_starts,
)
from airflow_kafka_offsets.core.spark_json import dump_offsets, load_offsets
from airflow_kafka_offsets.core.starting import first_offsets, lookup_time, parse_reset_target
from airflow_kafka_offsets.core.window import OWNING, Lane, State
from airflow_kafka_offsets.core.window_id import parse_window_id
from airflow_kafka_offsets.service.base import UseCases, until_won
from airflow_kafka_offsets.service.reset import committed_windows, read_before, snapshot_of_all, work_out
from airflow_kafka_offsets.service.topics import topics_now


class Acts(UseCases):
    """Acts of people on the windows of a group."""

    def check_commit_by_hand(self, window_id: str) -> None:
        """Refuse what `commit_by_hand` would refuse because of the window's state, without writing anything.

        Raises:
            IllegalStepError: it is neither planned nor needs another run.
            UnknownWindowError: there is no such window.
        """
        record = self.ledger.window(window_id)
        if record.rerun is None:
            if record.window.state is State.COMMITTED:
                raise IllegalStepError(
                    f"Window {window_id} is committed and needs no other run: there is nothing to commit"
                )
            record.window.to(State.COMMITTING, State.COMMITTED)

    def commit_by_hand(self, window_id: str, who: str, why: str) -> None:
        """Commit a window on a person's word that its job has read all of it, with the rows that the job staged.

        The window is planned, or needs another run. This is for a window that no run can read again: what its job wrote is the only copy.

        Raises:
            IllegalStepError, UnknownWindowError: see `check_commit_by_hand`; nothing was committed.
            OutputError: the group has output tables, and there is nothing to publish; nothing was committed.
            StoreError: the offset store did not follow: the window is committing, and the next plan finishes the commit.
        """
        act = Act("commit", who, why, self._clock(), {"window": window_id})
        group, _ = parse_window_id(window_id)
        self.check_commit_by_hand(window_id)
        leave_committing, output = self._publisher.address is not None, self.ledger.group(group).output_tables
        try:
            until_won(
                lambda: self.ledger.commit_by_hand(window_id, act, leave_committing=leave_committing, output=output)
            )
        except OutputError as exc:
            raise OutputError(
                f"{exc}\nIf no run can read the window again, abandon it:{abandon_command(window_id)}"
            ) from exc
        if leave_committing:
            until_won(lambda: self._publisher.finish(group))

    def preview_abandon(self, window_id: str) -> Abandonment:
        """Work out what it means to abandon a window, without writing anything.

        Raises:
            IllegalStepError: it is not planned.
            UnknownWindowError: there is no such window.
        """
        window = self.ledger.window(window_id).window
        newest = self.ledger.windows(window.group, states=tuple(OWNING), lane=Lane.LIVE, limit=1)
        position = self.ledger.load(window.group).position
        return ownership.abandonment(window, position, newest[0].seq if newest else None)

    def abandon(self, window_id: str, who: str, why: str, *, leave_gap: bool = False) -> Abandonment:
        """Abandon an unfinished window: a person's act. See `preview_abandon`.

        Raises:
            ConfirmationError: its offsets would be left without an owner, and `leave_gap` is not set.
            StoreBehindError: it is abandoned, and the offset store did not follow the watermark over the gap.
        """
        act = Act("abandon", who, why, self._clock(), {"window": window_id})
        group, _ = parse_window_id(window_id)

        def in_turn() -> Abandonment:
            with self.ledger.turn(group):
                return self.ledger.abandon(window_id, act, leave_gap=leave_gap)

        done = until_won(in_turn)
        if done.is_passed:
            self._publisher.follow_gap(done.window)
        return done

    def take_over(self, group: str, owner: Owner, who: str, why: str) -> Owner | None:
        """Give a group to another DAG or task, usually a renamed one: a person's act.

        Returns:
            The owner before, or None if it had none.

        Raises:
            UnknownGroupError: there is no such group.
        """
        act = Act("take-over", who, why, self._clock())

        def in_turn() -> Owner | None:
            with self.ledger.turn(group):
                state = self.ledger.load(group)
                details = {"from": str(state.owner) if state.owner else None, "to": str(owner)}
                self.ledger.take_over(group, state.version, owner, replace(act, details=details))
                return state.owner

        return until_won(in_turn)

    def inherit(self, group: str, ledger: str, who: str, why: str) -> None:
        """Let a group write beside its output of a ledger that was lost: a person's act.

        Raises:
            UnknownGroupError: there is no such group.
        """
        self.ledger.record(group, Act(INHERIT, who, why, self._clock(), {"ledger": ledger}))

    def preview_reset(
        self, group: KafkaGroup, to: str, *, topics: Sequence[str] = (), to_window: str | None = None
    ) -> Reset:
        """Work out a reset without writing anything.

        Args:
            group: the group's definition.
            to: ``"earliest"``, ``"latest"``, a time with its zone, or Spark's JSON of offsets; partitions that the JSON
                doesn't name keep their watermark.
            topics: only these topics move, or none for all of the group's.
            to_window: instead of `to`: the start of this window.

        Raises:
            UnknownGroupError: the group has no watermark yet.
            UnknownWindowError: there is no such window.
            BadInputError, IllegalStepError: it can't be done; the message has what can.
        """
        return self._reset(group, to, topics, to_window)[1]

    def reset(
        self,
        group: KafkaGroup,
        to: str,
        who: str,
        why: str,
        *,
        topics: Sequence[str] = (),
        to_window: str | None = None,
        supersede: bool = False,
    ) -> Reset:
        """Move the watermark: a person's act. See `preview_reset`.

        Raises:
            ConfirmationError: windows would lose their offsets, and `supersede` is not set.
        """
        act = Act("reset", who, why, self._clock())
        state, reset = self._reset(group, to, topics, to_window)
        check_confirmed(group.name, reset, supersede)
        assert state.position is not None
        self._publisher.prepare(group, state, state.position.offsets)
        act = replace(act, details=summary_of_reset(reset))
        self.ledger.reset(group.name, state.version, reset.position, [w.seq for w in reset.superseded], act)
        self._publisher.follow_reset(group.name, state.position.offsets, reset.position.offsets)
        return reset

    def _reset(
        self, group: KafkaGroup, to: str, topics: Sequence[str], to_window: str | None
    ) -> tuple[GroupState, Reset]:
        state = self.ledger.load(group.name)
        if state.position is None:
            raise UnknownGroupError(
                f"Group {group.name} has no watermark yet; its starting_offsets say where it starts"
            )
        check_no_open_window(state)
        check_reads(group, topics)
        target = self._written_target(group, state.position, to, to_window, topics)
        moving: Sequence[str] = topics
        if target is not None:
            moving = topics_of(target)
        elif not topics:
            moving = topics_now(self._kafka, group, state.position)
        snapshot = snapshot_of_all(self._kafka, group, moving, state.position)
        if target is None:
            target = self._looked_up_target(group, to, snapshot)
        return state, work_out(self.ledger, self._kafka, group, state, target, snapshot)

    def _written_target(
        self, group: KafkaGroup, position: Position, to: str, to_window: str | None, topics: Sequence[str]
    ) -> Mapping[TopicPartition, int] | None:
        """Return the target if it is given as offsets or a window, or None if it has to be looked up in Kafka."""
        if to_window is not None:
            window = self.ledger.window(to_window).window
            if window.group != group.name:
                raise BadInputError(f"Window {to_window} is not one of group {group.name}")
            if window.lane is Lane.BACKFILL:
                raise BadInputError(
                    f"Window {to_window} is a backfill window: name its offsets, --to '{dump_offsets(window.ranges.starts)}'"
                )
            topic_ids = self._kafka.topic_ids(read_before(group, position))
            ids = first_ids(position.topic_ids, (act.details for act in self.ledger.moves(group.name)))
            committed = committed_windows(self.ledger, group.name, ids)
            starts = window_starts(window.identified(ids), position, committed, group.reads, topic_ids)
            moving = topics or group.reads
            return {tp: start for tp, start in starts.items() if tp.topic in moving}
        if not to.lstrip().startswith("{"):
            return None
        target = load_offsets(to)
        check_reads(group, (tp.topic for tp in target))
        return target

    def _looked_up_target(self, group: KafkaGroup, to: str, snapshot: LogSnapshot) -> Mapping[TopicPartition, int]:
        start = parse_reset_target(to)
        time = lookup_time(start, self._clock())
        at_time = self._kafka.offsets_at(list(snapshot.bounds), time, group.isolation_level) if time else {}
        return first_offsets(start, snapshot, at_time=at_time)
