"""Which windows a run gets: its own, those that dead runs left, or new ones (docs/design.md, rules 1 to 3, 5 and 10).

A group belongs to one task of one DAG, in all of its runs: the task that cut its first live window. If two tasks shared a group by mistake,
both would be green, but each output would have only a part of the records. So only the owner gets live windows. Other tasks may replay, so
that a separate DAG can replay for the same output. If a DAG or task was renamed, a person gives the group to the new one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from airflow_kafka_offsets.core.errors import (
    MAX_NAMED,
    BadInputError,
    ConfirmationError,
    ForeignGroupError,
    IllegalStepError,
    PrunedWindowError,
    UnreadTopicError,
    WindowBusyError,
    name_some,
    short,
)
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition, topics_of
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges, named_ranges
from airflow_kafka_offsets.core.spark_json import dump_offsets
from airflow_kafka_offsets.core.window import Claim, Lane, Scope, State, Window, WindowRecord

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
    """What the ledger knows when a run asks for its windows.

    Attributes:
        version: changes with every new window, abandon and reset; 0: the group is not there yet.
        position: where the next live window starts; None: there never was one.
        open: live windows that wait for their commit, oldest first.
        claimed: the windows that the asking claim ever had, oldest first.
        elsewhere: if the asking claim has no window in this group: the ids of a few windows that it has in other groups.
        owner: the task that the group belongs to; None: it will belong to the first task that plans live.
        is_pruned: whether a window that the asking claim had was pruned.
        began_at: when the group began; None: it is not there yet, or was reset since.
    """

    version: int = 0
    position: Position | None = None
    open: tuple[WindowRecord, ...] = ()
    claimed: tuple[WindowRecord, ...] = ()
    elsewhere: tuple[str, ...] = ()
    owner: Owner | None = None
    is_pruned: bool = False
    began_at: datetime | None = None


class How(StrEnum):
    """How a run got a window."""

    AGAIN = "again"
    ADOPTED = "adopted"
    REPLAY = "replay"
    GIVEN = "given"
    NEW = "new"


def own_windows(state: GroupState) -> tuple[WindowRecord, ...]:
    """Return the windows that the asking run has; none: it asks for the first time.

    An abandoned window no longer owns anything, so its run asks like a new one.

    Raises:
        IllegalStepError: a reset superseded one of them. A rerun would write what other windows own now.
        PrunedWindowError: one of them was pruned.
    """
    if state.is_pruned:
        raise PrunedWindowError(
            "A window of this run was pruned from the ledger, because Kafka no longer held its offsets: nothing can read it again, and its "
            "output stays as it is. Trigger a new run instead of clearing this one."
        )
    superseded = [held.id for held in state.claimed if held.state is State.SUPERSEDED]
    if superseded:
        raise IllegalStepError(
            f"Window {name_some(superseded, ', ')} of this run was superseded by a reset: its offsets have other owners "
            "now. Trigger a new run instead of clearing this one."
        )
    return tuple(held for held in state.claimed if held.state.owns)


def check_same_group(group: str, claim: Claim, state: GroupState) -> None:
    """Refuse a run that had windows in another group: here it would get other windows, and would not run its own again.

    Raises:
        BadInputError: with these windows, and what to do.
    """
    if state.elsewhere:
        raise BadInputError(
            f"{claim} had {name_some(state.elsewhere, ', ')}, but its task now reads group {group}, and this run has no window there. "
            f"A run that is cleared or tried again gets no new window: for what is new in {group}, trigger a new run. To run an old "
            'window again, or to rename a group, see "Rename a group" in the docs (docs/howto/rename-a-group.md)'
        )


def made_again(claim: Claim, own: Sequence[WindowRecord]) -> str:
    """Return the warning about a run that has windows before its first try: it was deleted and made again."""
    ids = name_some([held.id for held in own], ", ")
    return (
        f"{claim} is at its first try and had {ids} before: a run of this id was deleted and made again. To the ledger it is "
        "the same run: it runs the same offsets again, as after a clear, and reads nothing new. For what is new, trigger a run "
        "under another id"
    )


def is_owner(owner: Owner | None, claim: Claim) -> bool:
    """Whether a claim may have live windows: the group belongs to its task, or to no one yet."""
    return owner is None or owner == Owner.of(claim)


def other_name(group: KafkaGroup, owner: Owner, owned: Sequence[KafkaGroup]) -> str | None:
    """Return the warning before the first window of a group whose task has planned the same topics under another name.

    Args:
        group: a group without a window.
        owner: the task that plans it.
        owned: the groups that belong to that task, as they were defined when they last planned.

    Returns:
        A sentence; None: there is no such group.
    """
    reads = group.reads
    others = (other for other in owned if other.name != group.name)
    same = [other.name for other in others if any(topic in reads for topic in other.topics)]
    if not same:
        return None
    return (
        f"{owner} has planned the same topics as group {name_some(same, ', ')}, and {group.name} is another group: it owns none of those "
        "windows, and begins at its own starting_offsets. If the name is a mistake, correct it before a job runs. If it is a rename, "
        'see "Rename a group" in the docs (docs/howto/rename-a-group.md)'
    )


def check_owner(group: str, owner: Owner | None, claim: Claim) -> None:
    """Refuse live windows to a DAG or task that the group does not belong to.

    Raises:
        ForeignGroupError: with the ways to share the group on purpose, and to take it over.
    """
    if is_owner(owner, claim):
        return
    raise ForeignGroupError(
        f"{Owner.of(claim)} asks for live windows of group {group}, which belongs to {owner}. For another output, use another "
        'group; to run its windows again, name a replay: see "Rename a DAG, or share a group" in the docs '
        "(docs/howto/rename-or-share-a-group.md). If the DAG or task was renamed: "
        f"{take_over_command(group, Owner.of(claim))}"
    )


def take_over_command(group: str, owner: Owner) -> str:
    """Return the command that gives a group to a DAG and task."""
    return f"kafka-offsets take-over {group} --dag {owner.dag_id} --task {owner.task_id} --why '...' --yes"


def reset_command(group: str, to: Offsets) -> str:
    """Return the command that moves a group's watermark; for many partitions only its form, because no one can paste so many."""
    offsets = dump_offsets(to) if len(to) <= MAX_NAMED else '{"<topic>":{"<partition>":<offset>}}'
    return f"kafka-offsets reset {group} --to '{offsets}' --why '...'"


def check_adopts(group: str, topics: Container[str], held_windows: Iterable[WindowRecord]) -> None:
    """Refuse to adopt a window with records of a topic that the group's definition does not read.

    Args:
        group: its name.
        topics: those that the definition reads.
        held_windows: the windows to adopt.

    Raises:
        UnreadTopicError: with the ways out.
    """
    for held in held_windows:
        if unread := _unread(held.window, topics):
            names, window_id = name_some(unread, ", "), held.id
            raise UnreadTopicError(
                f"Window {window_id} has records of {names}, which group {group} no longer reads, and its run is over. "
                f"To read them: clear {held.holder}, which has the window as it is, or put {names} back into the group's topics "
                f"until the window is committed. To leave them out, and then remove what was written under this id: "
                f"kafka-offsets abandon {window_id} --why '...' --yes"
            )


def check_replays(
    group: str, topics: Container[str], state: GroupState, claim: Claim, held_windows: Iterable[WindowRecord]
) -> None:
    """Refuse a replay by a DAG or task that does not own the group, if a window has records of a topic that it does not read.

    The owner may have such a window: the topic has left the group since.

    Raises:
        UnreadTopicError: with the ways out.
    """
    if is_owner(state.owner, claim):
        return
    for held in held_windows:
        if unread := _unread(held.window, topics):
            raise UnreadTopicError(
                f"Window {held.id} has records of {name_some(unread, ', ')}, which group {group} does not read as "
                f"{Owner.of(claim)} defines it. The group belongs to {state.owner}. A DAG that replays for the same output reads "
                "the same topics: add them. For another output, use another group"
            )


def check_given(
    group: str, topics: Container[str], state: GroupState, claim: Claim, held_windows: Iterable[WindowRecord]
) -> None:
    """Refuse windows by name to a claim that could neither adopt nor replay them.

    A run hands its windows to its tasks, and a task keeps what it had. A task of the owner's DAG may also adopt open
    windows of other runs, as its planner may. A task of another DAG may only replay them.

    Args:
        group: its name.
        topics: those that the definition reads.
        state: the group, as the claim sees it.
        claim: who asks.
        held_windows: the windows; their holders are over.

    Raises:
        ForeignGroupError, UnreadTopicError: with the ways out.
    """
    known = {held.seq for held in state.claimed}
    of_others = [held for held in held_windows if held.seq not in known and not held.holder.is_same_run(claim)]
    is_open = [held for held in of_others if held.lane is Lane.LIVE and held.state.is_open]
    is_of_owners_dag = state.owner is None or state.owner.dag_id == claim.dag_id
    if is_open and not is_of_owners_dag:
        check_owner(group, state.owner, claim)
    check_adopts(group, topics, is_open)
    if not is_of_owners_dag:
        check_replays(group, topics, state, claim, of_others)


def _unread(window: Window, topics: Container[str]) -> list[str]:
    return [topic for topic in topics_of(window.ranges.without_empty()) if topic not in topics]


def choose(
    state: GroupState, over: Collection[Claim], *, at_most: int, max_open: int
) -> tuple[tuple[WindowRecord, ...], int]:
    """Choose the windows of a new run that plans live: open ones of dead runs, oldest first, and how many it cuts after all others.

    Args:
        state: the group.
        over: the holders of its open windows that are over.
        at_most: how many windows the run can work on.
        max_open: how many live windows may be open at once.

    Raises:
        WindowBusyError: others work on all open windows, and no more windows may be open.
    """
    adopt = tuple(held for held in state.open if held.holder in over)[:at_most]
    cut = min(at_most - len(adopt), max(0, max_open - len(state.open)))
    if not adopt and not cut:
        raise _busy(state)
    return adopt, cut


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
    return WindowBusyError(oldest.window.id, oldest.holder, others=[held.id for held in more])


@dataclass(frozen=True, slots=True)
class Abandonment:
    """What it means to abandon a window.

    Attributes:
        window: the window, abandoned.
        position: where the next live window starts from now on; None: where it would have started anyway.
        skipped: the recorded gap: offsets that no one owns then, below those of later windows.
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
        newest: the number of the newest live window of the group that owns its offsets; None: there is none.

    Raises:
        IllegalStepError: its state does not allow this step.
    """
    abandoned = window.to(State.ABANDONED)
    nothing = OffsetRanges({})
    if window.lane is Lane.BACKFILL or position is None:  # its offsets had no owner before it either
        return Abandonment(abandoned, None, nothing)
    start = {**window.ranges.starts, **window.lost.starts}
    # A later window may have left a gap of its own.
    is_last = newest is None or newest <= window.seq
    if is_last and all(position.offsets.get(tp) == r.end for tp, r in window.ranges.items()):
        ids = {**position.topic_ids, **window.topic_ids}
        back = Position({**position.offsets, **start}, ids, position.leader_epochs)
        return Abandonment(abandoned, back, nothing)
    owned = OffsetRanges((tp, OffsetRange(start[tp], r.end)) for tp, r in window.ranges.items())
    return Abandonment(abandoned, None, owned.without_empty())


def check_gap(abandonment: Abandonment, leave_gap: bool) -> None:
    """Require a confirmation before offsets are left without an owner.

    Raises:
        ConfirmationError: with the ranges, and how they can be read later.
    """
    if abandonment.skipped and not leave_gap:
        gaps = name_some([f"{tp} {r}" for tp, r in abandonment.skipped.items()], ", ")
        raise ConfirmationError(
            f"Later windows start where window {abandonment.window.id} ends, so its offsets can't be planned again. They become a "
            f"recorded gap, which no one owns: {gaps}. A replay of these offsets can fill it as long as Kafka holds them. If you "
            "do mean it: add --leave-gap"
        )


def to_abandon(state: GroupState) -> WindowRecord | None:
    """Return the open window that a person abandons first, until none is open: the newest, so that no gap is left.

    None: all open windows are committing, and only a run can finish that.
    """
    return next((held for held in reversed(state.open) if held.state is State.PLANNED), None)


def watermark(state: GroupState) -> Position | None:
    """Return the next offset that is not committed: where the oldest open window starts, or where the next one will.

    Offsets that were lost before the open window started count as done: no one can ever commit them.
    """
    if state.open:
        oldest = state.open[0].window
        return Position(oldest.ranges.starts, oldest.topic_ids)
    return state.position


def is_free(window: WindowRecord, *, is_rerun: bool, holder_is_over: bool) -> bool:
    """Whether a run that was refused a window no longer has to wait for it.

    Args:
        window: where it stands now.
        is_rerun: whether it was committed when it was refused. Then the run waits to rerun it, and not for the window after it.
        holder_is_over: whether its holder is over.
    """
    if window.state in (State.ABANDONED, State.SUPERSEDED):
        return True  # its job may still run, but the next window has another id
    if window.state is State.COMMITTED and not is_rerun:
        return True
    return holder_is_over


def is_handed_over(held: WindowRecord, claim: Claim, *, is_known: bool) -> bool:
    """Whether a claim may work on a window without asking whether its holder is over.

    Args:
        held: the window.
        claim: who asks.
        is_known: whether the claim had the window before, or got its name from the plan task of its run. Then the tasks of the
            run hand it to each other: the plan task works on no window itself.
    """
    is_planner = claim.scope is Scope.RUN or held.holder.scope is Scope.RUN
    return held.holder == claim or (is_known and is_planner and held.holder.is_same_run(claim))


def of_others(state: GroupState, held_windows: Iterable[WindowRecord], claim: Claim, how: How) -> list[WindowRecord]:
    """Return the windows on which a claim may work only if their holders are over."""
    known = {held.seq for held in state.claimed}
    return [h for h in held_windows if not is_handed_over(h, claim, is_known=how is How.GIVEN or h.seq in known)]


def to_hold(held_windows: Sequence[WindowRecord], claim: Claim) -> list[WindowRecord]:
    """Return the windows that a claim holds from now on, of those that it gets, in the order of their numbers.

    A plan task leaves the other tasks of its run the windows that they have.
    """
    mine = [
        h for h in held_windows if claim.scope is Scope.TASK or h.holder == claim or not h.holder.is_same_run(claim)
    ]
    return sorted(mine, key=lambda held: held.seq)
