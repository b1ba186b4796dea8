"""Which windows a run gets: its own, those that dead runs left, or new ones (docs/design.md, rules 1 to 3, 5 and 10).

A group belongs to one task of one DAG, in all of its runs: the task that cut its first live window. If two tasks shared a group by mistake,
both would be green, but each output would have only a part of the records. So only the owner gets live windows. Other tasks may replay, so
that a separate DAG can replay for the same output. If a DAG or task was renamed, a person gives the group to the new one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from airflow_kafka_offsets.core.errors import (
    MAX_NAMED,
    BadInputError,
    ConfirmationError,
    ForeignGroupError,
    IllegalStepError,
    PrunedWindowError,
    UnreadTopicError,
    WindowBusyError,
    abandon_command,
    name_some,
    short,
)
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import Rerun
from airflow_kafka_offsets.core.log import noted_ids
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition, topics_of
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges, named_ranges
from airflow_kafka_offsets.core.spark_json import dump_offsets
from airflow_kafka_offsets.core.store import advance
from airflow_kafka_offsets.core.window import Claim, Lane, Scope, State, Window, WindowRecord
from airflow_kafka_offsets.core.window_id import group_of

# What Airflow takes for the id of a DAG or task.
_AIRFLOW_ID = re.compile(r"[\w.-]{1,250}")


@dataclass(frozen=True, slots=True)
class Position:
    """Where the next live window of a group starts, in which incarnation of each topic.

    Attributes:
        offsets: the next offset of each topic-partition.
        topic_ids: the id of each topic.
        leader_epochs: the epoch of the leader that reported the offset, see `core.leader_epochs`; a partition is missing if
            none was noted.
    """

    offsets: Offsets
    topic_ids: Mapping[str, str]
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)


NOWHERE = Position({}, {})
"""The position of a group that has none."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The task that a group belongs to, in all runs of its DAG and with all map indexes.

    Raises:
        BadInputError: a name that no DAG or task can have.
    """

    dag_id: str
    task_id: str

    def __post_init__(self) -> None:
        for what, name in (("DAG", self.dag_id), ("task", self.task_id)):
            if not _AIRFLOW_ID.fullmatch(name):
                raise BadInputError(f"{short(name)} is not the id of a {what}")

    @classmethod
    def of(cls, claim: Claim) -> Owner:
        """Return the task of a claim."""
        return cls(claim.dag_id, claim.task_id)

    def __str__(self) -> str:
        return f"{self.dag_id}/{self.task_id}"


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group in the ledger, when a run asks for its windows.

    Attributes:
        version: grows with new windows, abandon, reset, take over, and the end of a commit with a store; 0 for a group that is not in the ledger.
        position: where the next live window starts; None before the first one.
        open: live windows that wait for their commit, oldest first.
        claimed: the windows that the asking claim ever had, oldest first.
        elsewhere: a few windows that the claim had under another name of its group, DAG or task, if it owns none here.
        owner: the task that the group belongs to; None if the first task that plans live gets it.
        reruns: what has begun again of its committed windows and is not committed again, oldest first; `load` for one run leaves it out.
        is_pruned: whether a window that the asking claim had, under any name, was pruned.
        began_at: when the group began; None if it is not in the ledger, or was reset since.
        refused: why its offset store refused the newest plan or commit, or None if it did not.
    """

    version: int = 0
    position: Position | None = None
    open: tuple[WindowRecord, ...] = ()
    claimed: tuple[WindowRecord, ...] = ()
    elsewhere: tuple[str, ...] = ()
    owner: Owner | None = None
    reruns: tuple[Rerun, ...] = ()
    is_pruned: bool = False
    began_at: datetime | None = None
    refused: str | None = field(default=None, compare=False)


class How(StrEnum):
    """How a run got a window."""

    AGAIN = "again"  # a retry, a clear, a reprocessed run
    ADOPTED = "adopted"
    REPLAY = "replay"
    GIVEN = "given"
    NEW = "new"


_NEW_RUN = "Trigger a new run instead of clearing this one"


def own_windows(state: GroupState) -> tuple[WindowRecord, ...]:
    """Return the windows that the asking run has; empty if it asks for the first time.

    An abandoned window no longer owns anything, so its run asks like a new one. One that a reset superseded is left out, as other windows
    own its offsets now.

    Raises:
        IllegalStepError: all windows of the run that it could run again were superseded.
        PrunedWindowError: one of them was pruned.
    """
    if state.is_pruned:
        raise PrunedWindowError(f"A window of this run was pruned from the ledger. {_NEW_RUN}")
    own = tuple(record for record in state.claimed if record.state.owns)
    if not own and (superseded := superseded_of(state)):
        raise IllegalStepError(f"{superseded}. {_NEW_RUN}")
    return own


def superseded_of(state: GroupState) -> str | None:
    """Return which windows of the asking run a reset superseded, as a clause, or None if it superseded none."""
    ids = [record.id for record in state.claimed if record.state is State.SUPERSEDED]
    return f"A reset gave the offsets of {name_some(ids, ', ')} of this run to other windows" if ids else None


def made_again(claim: Claim, own: Sequence[WindowRecord]) -> str:
    """Return the warning about a run that has windows before its first try: it was deleted and made again."""
    ids = name_some([record.id for record in own], ", ")
    return f"{claim} was deleted and made again: it runs {ids} again and reads nothing new. Use another run id"


def is_owner(owner: Owner | None, claim: Claim) -> bool:
    """Whether a claim may have live windows: the group belongs to its task, or to no one yet."""
    return owner is None or owner == Owner.of(claim)


def other_name(group: KafkaGroup, owner: Owner, owned: Sequence[KafkaGroup]) -> str | None:
    """Return the warning before a group's first window if its task has planned the same topics under another name.

    Args:
        group: a group without a window.
        owner: the task that plans it.
        owned: the groups that belong to that task, as they were defined when they last planned.
    """
    reads = group.reads
    names = [
        other.name for other in owned if other.name != group.name and any(topic in reads for topic in other.topics)
    ]
    if not names:
        return None
    return (
        f"{owner} has planned the same topics as group {name_some(names, ', ')}, and {group.name} begins at its own starting_offsets. If "
        "that is not meant, correct the name first: docs/howto/rename-a-group.md"
    )


ANOTHER_GROUP = "Use a group of another name for today's topic"
"""The way out where a group can't go on among the windows that it has."""


KEEP_OUTPUT = "The output of these offsets is the only copy: keep it"


def reset_command(group: str, options: str) -> str:
    """Return the command that moves a group's watermark, on a line of its own."""
    return f"\n    kafka-offsets reset {group} {options} --why '...'"


def reset_to(group: str, to: Offsets) -> str:
    """Return the same for a move to offsets; for many partitions only its form, because no one can paste so many."""
    offsets = dump_offsets(to) if len(to) <= MAX_NAMED else '{"<topic>":{"<partition>":<offset>}}'
    return reset_command(group, f"--to '{offsets}'")


# Refusals.


def earlier_names(owner: Owner | None, claim: Claim, take_overs: Iterable[Mapping[str, Any]]) -> list[Claim]:
    """Return a claim under the names that its DAG or task had before; none unless it is the owner's.

    Args:
        owner: the task that the group belongs to.
        claim: who asks.
        take_overs: the details of the acts that gave the group to another task.
    """
    if owner != Owner.of(claim):
        return []
    names = {details["from"] for details in take_overs} - {None, str(owner)}
    tasks = (name.split("/") for name in sorted(names))
    return [replace(claim, dag_id=dag_id, task_id=task_id) for dag_id, task_id in tasks]


def check_same_name(group: str, claim: Claim, state: GroupState, *, is_live: bool) -> None:
    """Refuse a run that had windows under another name of its group, DAG or task: it would get other ones instead of its own.

    A replay means the same whoever asks, so only another name of the group counts for it.

    Raises:
        BadInputError: with these windows.
    """
    if had := [id_ for id_ in state.elsewhere if is_live or group_of(id_) != group]:
        raise BadInputError(
            f"{claim} had {name_some(had, ', ')} under another name of its group, DAG or task, so it gets no window of group {group}. "
            "Trigger a new run, or see docs/howto/rename-a-group.md#runs-from-before"
        )


def check_owner(group: str, owner: Owner | None, claim: Claim) -> None:
    """Refuse live windows to a DAG or task that the group does not belong to.

    Raises:
        ForeignGroupError: with the command that takes the group over.
    """
    if is_owner(owner, claim):
        return
    task = Owner.of(claim)
    raise ForeignGroupError(
        f"{task} asks for live windows of group {group}, which belongs to {owner}. If the DAG was copied, give this task a group of its own; "
        "if the DAG or task was renamed (docs/howto/rename-or-share-a-group.md), look at the group, then take it over:\n"
        f"    kafka-offsets status {group}\n"
        f"    kafka-offsets take-over {group} --dag {task.dag_id} --task {task.task_id} --why '...'"
    )


def check_topics(group: KafkaGroup, claim: Claim, records: Iterable[WindowRecord]) -> None:
    """Refuse windows with records of a topic that the group's definition does not read: its job would leave them out.

    Raises:
        UnreadTopicError: with the ways out.
    """
    reads = group.reads
    for record in records:
        window = record.window
        unread = name_some([topic for topic in topics_of(window.ranges.without_empty()) if topic not in reads], ", ")
        if unread and _is_open_live(window):
            raise UnreadTopicError(
                f"Window {window.id} has records of {unread}, which group {group.name} no longer reads. To read them, clear "
                f"{record.holder} or put {unread} back; to leave them out:{abandon_command(window.id)}"
            )
        if unread:
            raise UnreadTopicError(
                f"Window {window.id} has records of {unread}, which {Owner.of(claim)} leaves out of group {group.name}. Add the topics, or "
                "use another group"
            )


def check_given(group: KafkaGroup, state: GroupState, claim: Claim, records: Iterable[WindowRecord]) -> None:
    """Refuse windows by name to a claim that could neither adopt nor replay them.

    A run hands its windows to its tasks, and a task keeps what it had. A task of the owner's DAG may also adopt open
    windows of other runs, as its planner may. A task of another DAG may only replay them.

    Raises:
        ForeignGroupError, UnreadTopicError: with the ways out.
    """
    had = {record.seq for record in state.claimed}
    foreign = [r for r in records if r.seq not in had and not r.holder.is_same_run(claim)]
    to_adopt = [record for record in foreign if _is_open_live(record.window)]
    is_of_owners_dag = state.owner is None or state.owner.dag_id == claim.dag_id
    if to_adopt and not is_of_owners_dag:
        check_owner(group.name, state.owner, claim)
    check_topics(group, claim, to_adopt if is_of_owners_dag else foreign)


def _is_open_live(window: Window) -> bool:
    return window.lane is Lane.LIVE and window.state.is_open


def check_something(state: GroupState, adopted: Sequence[WindowRecord], spans: Collection[int]) -> None:
    """Refuse a run that would get only an empty window, after the windows that others work on.

    An empty window is committed at once. After an open window, it would keep that one's offsets from being planned again.

    Args:
        state: the group.
        adopted: what the run adopts.
        spans: the spans of the windows that it would cut, without the empty ones.

    Raises:
        WindowBusyError: others work on all that there is to read.
    """
    if state.open and not adopted and not spans:
        raise _busy(state)


def _busy(state: GroupState) -> WindowBusyError:
    oldest, *more = state.open
    return WindowBusyError(oldest.id, oldest.holder, others=[record.id for record in more])


# Choices.


def adopt_or_cut(
    state: GroupState, over: Collection[Claim], *, at_most: int, max_open: int
) -> tuple[tuple[WindowRecord, ...], int]:
    """Choose the open windows that a run adopts from dead runs, oldest first, and how many it cuts after all others.

    Args:
        state: the group.
        over: the holders of its open windows that are over.
        at_most: how many windows the run can work on.
        max_open: how many live windows may be open at once.

    Raises:
        WindowBusyError: others work on all open windows, and no more windows may be open.
    """
    adopt = tuple(record for record in state.open if record.holder in over)[:at_most]
    cut = min(at_most - len(adopt), max(0, max_open - len(state.open)))
    if not adopt and not cut:
        raise _busy(state)
    return adopt, cut


def is_free_for(record: WindowRecord, claim: Claim, *, is_known: bool) -> bool:
    """Whether a claim may work on a window without asking whether its holder is over.

    Args:
        record: the window.
        claim: who asks.
        is_known: whether the claim had the window before, or got its name from the plan task of its run. Then the tasks of the
            run give it to each other: the plan task works on no window itself.
    """
    is_planner = claim.scope is Scope.RUN or record.holder.scope is Scope.RUN
    return record.holder == claim or (is_known and is_planner and record.holder.is_same_run(claim))


def held_by_others(state: GroupState, records: Iterable[WindowRecord], claim: Claim, how: How) -> list[WindowRecord]:
    """Return the windows on which a claim may work only if their holders are over."""
    had = {record.seq for record in state.claimed}
    return [r for r in records if not is_free_for(r, claim, is_known=how is How.GIVEN or r.seq in had)]


def crossed_with(held: Iterable[str], claim: Claim, holder: Claim, had: Collection[str]) -> str | None:
    """Return a window of the asking run for which another run may wait, while the asking run would wait for one of the other run's.

    Neither would ever end. So one goes first, the one whose name sorts first, and the other does not wait.

    Args:
        held: the windows that the asking run holds.
        claim: who asks.
        holder: who has a window that the claim asks for.
        had: the windows that the holder's run ever had.

    Returns:
        The window's id, or None if there is no such window, or if the asking run goes first.
    """
    if (claim.dag_id, claim.run_id) <= (holder.dag_id, holder.run_id):
        return None
    return min(set(held).intersection(had), default=None)


def to_hold(records: Sequence[WindowRecord], claim: Claim, how: How) -> list[WindowRecord]:
    """Return the windows that a claim holds from now on, in the order of their numbers.

    A plan task leaves the other tasks of its run the windows that they have, unless it was given one by name.
    """
    takes_all = claim.scope is Scope.TASK or how is How.GIVEN
    taken = [r for r in records if takes_all or r.holder == claim or not r.holder.is_same_run(claim)]
    return sorted(taken, key=lambda record: record.seq)


def is_free(window: WindowRecord, *, is_rerun: bool, holder_is_over: bool) -> bool:
    """Whether a run that was refused a window no longer has to wait for it.

    Args:
        window: the window now.
        is_rerun: whether it was committed when it was refused. Then the run waits to rerun it, and not for the window after it.
        holder_is_over: whether its holder is over.
    """
    if window.state in (State.ABANDONED, State.SUPERSEDED):
        return True  # its job may still run, but the next window has another id
    if window.state is State.COMMITTED and not is_rerun:
        return True
    return holder_is_over


def watermark(state: GroupState) -> Position | None:
    """Return the next offset that is not committed: where the oldest open window starts, or where the next one will.

    Offsets that were lost before the open window started count as done: no one can ever commit them.
    """
    if state.open:
        oldest = state.open[0].window.identified(state.position.topic_ids if state.position else {})
        return Position(oldest.ranges.starts, oldest.topic_ids)
    return state.position


# Abandon.


@dataclass(frozen=True, slots=True)
class Abandonment:
    """What it means to abandon a window.

    Attributes:
        window: the window, abandoned.
        position: where the next live window starts from now on; None if that does not change.
        skipped: the recorded gap: offsets below those of later windows, which no window owns then.
    """

    window: Window
    position: Position | None
    skipped: OffsetRanges

    @property
    def facts(self) -> dict[str, object]:
        """What the ledger records with the act."""
        return {"window": self.window.id, **({"skipped": named_ranges(self.skipped)} if self.skipped else {})}

    @property
    def is_passed(self) -> bool:
        """Whether the watermark passes what the window owned: later windows start where it ends."""
        return self.position is None and self.window.lane is Lane.LIVE


def abandonment(window: Window, position: Position | None, newest: int | None) -> Abandonment:
    """Work out what it means to abandon a window.

    The newest live window gives its offsets back: the next one starts where this one did, also in partitions that no window
    owned before it. The offsets of an older window can't be planned again, because later windows start where it ends. They
    become a gap, which a replay can fill.

    Args:
        window: the window.
        position: where the next live window of its group would start.
        newest: the number of the newest live window of the group that owns its offsets; None if no window does.

    Raises:
        IllegalStepError: its state does not allow this step.
    """
    abandoned = window.to(State.ABANDONED)
    nothing = OffsetRanges({})
    if window.lane is Lane.BACKFILL or position is None:  # its offsets had no owner before it either
        return Abandonment(abandoned, None, nothing)
    start = advance.before(window)
    # A later window may have left a gap of its own.
    is_last = newest is None or newest <= window.seq
    if is_last and all(position.offsets.get(tp) == r.end for tp, r in window.ranges.items()):
        ids = noted_ids(position.topic_ids, window.topic_ids)
        back = Position({**position.offsets, **start}, ids, position.leader_epochs)
        return Abandonment(abandoned, back, nothing)
    owned = OffsetRanges((tp, OffsetRange(start[tp], r.end)) for tp, r in window.ranges.items())
    return Abandonment(abandoned, None, owned.without_empty())


def check_gap(abandonment: Abandonment, leave_gap: bool) -> None:
    """Require a confirmation before offsets are left without an owner.

    Raises:
        ConfirmationError: with the ranges.
    """
    if abandonment.skipped and not leave_gap:
        gaps = name_some([f"{tp} {r}" for tp, r in abandonment.skipped.items()], ", ")
        raise ConfirmationError(
            f"Only a replay can read {gaps} after that, as later windows follow. To leave this gap, add --leave-gap"
        )


def to_abandon(state: GroupState) -> WindowRecord | None:
    """Return the open window that a person abandons first: the newest, so that no gap is left.

    None if all open windows are committing: only a run can finish that.
    """
    return next((record for record in reversed(state.open) if record.state is State.PLANNED), None)
