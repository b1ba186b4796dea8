"""Which windows a run gets: its own, those that dead runs left behind, or new ones (docs/design.md, rules 1 to 3, 5 and 10).

A group belongs to one task of one DAG, in all of its runs: the first that cut a live window. Two tasks that shared one by mistake
would divide its records between their outputs, each green. So only the owner gets live windows. Others may replay, which is how a
DAG of its own replays for the same output. A DAG or task that was renamed takes the group over by a person's act.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from airflow_kafka_offsets.core.errors import (
    MAX_NAMED,
    BadInputError,
    ConfirmationError,
    ForeignGroupError,
    IllegalStepError,
    UnreadTopicError,
    WindowBusyError,
    name_some,
    short,
)
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition, topics_of
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges, named_ranges
from airflow_kafka_offsets.core.spark_json import dump_offsets
from airflow_kafka_offsets.core.window import Claim, Held, Lane, Scope, Standing, State, Window

# What Airflow takes for the id of a DAG or task.
_AIRFLOW_ID = re.compile(r"[\w.-]{1,250}")


@dataclass(frozen=True, slots=True)
class Position:
    """Where the next live window of a group starts, in which incarnation of each topic.

    Attributes:
        offsets: the next offset of each topic-partition.
        topic_ids: the id of each topic.
        leader_epochs: the epoch of the leader that told the offset, see `core.leader_epochs`; where it is not there, none
            was noted.
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
        """Return what a claim is of."""
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
        elsewhere: the ids of windows that the asking claim has in other groups, and of none in this one; a few of them.
        owner: the task that the group belongs to; None: the first that plans live.
    """

    version: int = 0
    position: Position | None = None
    open: tuple[Held, ...] = ()
    claimed: tuple[Held, ...] = ()
    elsewhere: tuple[str, ...] = ()
    owner: Owner | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """What a run that plans live gets.

    Attributes:
        adopt: open windows of dead runs, oldest first, as they are.
        cut: how many new windows it may cut behind all others, 0 or more.
    """

    adopt: tuple[Held, ...]
    cut: int


class How(StrEnum):
    """How a run came by a window."""

    AGAIN = "again"
    ADOPTED = "adopted"
    REPLAY = "replay"
    GIVEN = "given"
    NEW = "new"


def own_windows(state: GroupState) -> tuple[Held, ...]:
    """Return the windows that the asking run has; none: it asks for the first time.

    An abandoned window owns nothing any more: its run asks like a new one.

    Raises:
        IllegalStepError: one was superseded by a reset: run again, it would write what others own now.
    """
    superseded = [held.window.id for held in state.claimed if held.window.state is State.SUPERSEDED]
    if superseded:
        raise IllegalStepError(
            f"Window {name_some(superseded, ', ')} of this run was superseded by a reset: its offsets have other owners "
            "now. Trigger a new run instead of clearing this one."
        )
    return tuple(held for held in state.claimed if held.window.state.owns)


def check_same_group(group: str, claim: Claim, state: GroupState) -> None:
    """Refuse a run that had windows in another group: in this one it would get others, and not run its own again.

    Raises:
        BadInputError: with these windows, and what to do.
    """
    if state.elsewhere:
        raise BadInputError(
            f"{claim} had {name_some(state.elsewhere, ', ')}, and its task reads group {group} now: it has no window there, and a "
            f"run that is cleared or tried again gets no new one. Trigger a new run for what is new in {group}. To run the old window "
            'again, replay it by a task whose group has the old name. To rename a group: "Rename a group" in the docs (docs/howto/rename-a-group.md)'
        )


def made_again(claim: Claim, own: Sequence[Held]) -> str:
    """Return what a person should know of a run that has windows before its first try: it was deleted and made again."""
    ids = name_some([held.window.id for held in own], ", ")
    return (
        f"{claim} is at its first try and had {ids} before: a run of this id was deleted and made again. It is the same run to the "
        "ledger: it runs the same offsets again, as after a clear, and reads nothing new. For what is new, trigger a run "
        "under another id"
    )


def is_owner(owner: Owner | None, claim: Claim) -> bool:
    """Whether a claim may have live windows: the group is its task's, or no one's yet."""
    return owner is None or owner == Owner.of(claim)


def other_name(group: KafkaGroup, owner: Owner, owned: Sequence[KafkaGroup]) -> str | None:
    """Return what a person should know before the first window of a group whose task has planned the same topics under another name.

    Args:
        group: which no window was cut of.
        owner: the task that plans it.
        owned: the groups that belong to that task, as they were defined when they last planned.

    Returns:
        A sentence; None: there is no such group.
    """
    same = [other.name for other in owned if other.name != group.name and set(other.topics) & set(group.topics)]
    if not same:
        return None
    return (
        f"{owner} has planned the same topics as group {name_some(same, ', ')}, and {group.name} is another group: it owns none of those "
        "windows, and begins at its own starting_offsets. If the name is a slip, correct it before a job runs. If it is a rename, "
        'see "Rename a group" in the docs (docs/howto/rename-a-group.md)'
    )


def check_owner(group: str, owner: Owner | None, claim: Claim) -> None:
    """Refuse live windows to another DAG or task than the group's.

    Raises:
        ForeignGroupError: with the ways to share the group on purpose, and to take it over.
    """
    if is_owner(owner, claim):
        return
    raise ForeignGroupError(
        f"{Owner.of(claim)} asks for live windows of group {group}, which belongs to {owner}: the two would divide the records "
        "between their outputs. For another output, use another group: give it a name of its own. To run windows of this "
        "group again for the same output, name a replay in the run's conf (windows, from and to, or starting_offsets and "
        "ending_offsets) or start a backfill. If the DAG or task was renamed, take the group over: "
        f"{take_over_command(group, Owner.of(claim))}"
    )


def take_over_command(group: str, owner: Owner) -> str:
    """Return the command that gives a group to a DAG and task."""
    return f"kafka-offsets take-over {group} --dag {owner.dag_id} --task {owner.task_id} --why '...' --yes"


def reset_command(group: str, to: Offsets) -> str:
    """Return the command that moves a group's watermark; of many partitions only its form, as no one can paste these."""
    offsets = dump_offsets(to) if len(to) <= MAX_NAMED else '{"<topic>":{"<partition>":<offset>}}'
    return f"kafka-offsets reset {group} --to '{offsets}' --why '...'"


def check_adopts(group: str, topics: Collection[str], held_windows: Iterable[Held]) -> None:
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
            names, window_id = name_some(unread, ", "), held.window.id
            raise UnreadTopicError(
                f"Window {window_id} has records of {names}, which group {group} does not read any more, and its run is over. "
                f"To have them read: clear {held.holder}, which has the window as it is, or put {names} back into the group's topics "
                f"until the window is committed. To leave them out: kafka-offsets abandon {window_id} --why '...' --yes, "
                "and remove what was written under this id"
            )


def check_replays(
    group: str, topics: Collection[str], state: GroupState, claim: Claim, held_windows: Iterable[Held]
) -> None:
    """Refuse a replay by another DAG or task than the group's of a window with records that its definition does not read.

    Of its owner such a window is not strange: the topic has left the group since.

    Raises:
        UnreadTopicError: with the ways out.
    """
    if is_owner(state.owner, claim):
        return
    for held in held_windows:
        if unread := _unread(held.window, topics):
            raise UnreadTopicError(
                f"Window {held.window.id} has records of {name_some(unread, ', ')}, which group {group} does not read as "
                f"{Owner.of(claim)} defines it. The group belongs to {state.owner}. A DAG that replays for the same output reads "
                "the same topics: add them. For another output, use another group"
            )


def check_given(
    group: str, topics: Collection[str], state: GroupState, claim: Claim, held_windows: Iterable[Held]
) -> None:
    """Refuse windows that are asked for by name to who could neither adopt nor replay them.

    A run hands its windows to its tasks, and a task has what it had. Of other runs, the tasks of the owner's DAG may take over
    what is open, as its planner may; those of other DAGs may only replay.

    Args:
        group: its name.
        topics: those that the definition reads.
        state: the group, as the claim sees it.
        claim: who asks.
        held_windows: the windows, whose holders are over.

    Raises:
        ForeignGroupError, UnreadTopicError: with the ways out.
    """
    known = {held.window.seq for held in state.claimed}
    of_others = [held for held in held_windows if held.window.seq not in known and not held.holder.is_same_run(claim)]
    is_open = [held for held in of_others if held.window.lane is Lane.LIVE and held.window.state.is_open]
    is_of_owners_dag = state.owner is None or state.owner.dag_id == claim.dag_id
    if is_open and not is_of_owners_dag:
        check_owner(group, state.owner, claim)
    check_adopts(group, topics, is_open)
    if not is_of_owners_dag:
        check_replays(group, topics, state, claim, of_others)


def _unread(window: Window, topics: Collection[str]) -> list[str]:
    return [topic for topic in topics_of(window.ranges.without_empty()) if topic not in topics]


def choose(state: GroupState, over: Collection[Claim], *, at_most: int, max_open: int) -> Choice:
    """Choose the windows of a new run that plans live.

    Args:
        state: the group.
        over: those holders of its open windows that are over.
        at_most: how many windows the run can work on.
        max_open: how many live windows may be open at once.

    Raises:
        WindowBusyError: others work on all that is open, and no more may be.
    """
    adopt = tuple(held for held in state.open if held.holder in over)[:at_most]
    cut = min(at_most - len(adopt), max(0, max_open - len(state.open)))
    if not adopt and not cut:
        raise _busy(state)
    return Choice(adopt, cut)


def check_something(state: GroupState, adopted: Sequence[Held], spans: Collection[int]) -> None:
    """Refuse a run for which nothing is left but an empty window behind those that others work on.

    An empty window is committed at once. Behind an open one it would keep the offsets of that one from being planned again.

    Args:
        state: the group.
        adopted: what the run takes over.
        spans: those of the windows that it would cut, without the empty ones.

    Raises:
        WindowBusyError: others work on all that there is to read.
    """
    if state.open and not adopted and not spans:
        raise _busy(state)


def _busy(state: GroupState) -> WindowBusyError:
    oldest, *more = state.open
    return WindowBusyError(oldest.window.id, oldest.holder, others=[held.window.id for held in more])


@dataclass(frozen=True, slots=True)
class Abandonment:
    """What it means to give a window up.

    Attributes:
        window: the window, abandoned.
        position: where the next live window starts from now on; None: where it would have started anyway.
        skipped: offsets that no one owns then, below what later windows own: the recorded gap.
    """

    window: Window
    position: Position | None
    skipped: OffsetRanges

    @property
    def facts(self) -> dict[str, object]:
        """What the ledger's record of the act says of it."""
        return {"window": self.window.id, **({"skipped": named_ranges(self.skipped)} if self.skipped else {})}

    @property
    def is_passed(self) -> bool:
        """Whether the watermark passes what the window owned: later windows start where it ends."""
        return self.position is None and self.window.lane is Lane.LIVE


def abandonment(window: Window, position: Position | None, newest: int | None) -> Abandonment:
    """Work out what it means to give a window up.

    What it owned was seen. The newest live window gives its offsets back: the next one starts where this one did, also in
    partitions that no window owned before it. Behind an older one nothing can be planned again, as later windows start
    where it ends: its offsets become a gap, which a replay can fill.

    Args:
        window: the window.
        position: where the next live window of its group would start.
        newest: the number of the newest live window of the group that owns its offsets; None: there is none.

    Raises:
        IllegalStepError: its life does not have this step.
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
    """Want a yes before offsets are left without an owner.

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


def to_abandon(state: GroupState) -> Held | None:
    """Return the open window that a person gives up first to have none open: the newest, so that no gap is left.

    None: all that is open is committing, and only a run can finish that.
    """
    return next((held for held in reversed(state.open) if held.window.state is State.PLANNED), None)


def watermark(state: GroupState) -> Position | None:
    """Return the next offset that is not committed: where the oldest open window starts, or where the next one will.

    Offsets that were lost before the open window started count as done: no one can commit them any more.
    """
    if state.open:
        oldest = state.open[0].window
        return Position(oldest.ranges.starts, oldest.topic_ids)
    return state.position


def is_free(window: Standing, *, is_rerun: bool, holder_is_over: bool) -> bool:
    """Whether someone who was refused a window need not wait for it any longer.

    Args:
        window: where it stands now.
        is_rerun: whether it was committed when it was refused: then its rerun waits, and not the window behind it.
        holder_is_over: whether its holder is over.
    """
    if window.state in (State.ABANDONED, State.SUPERSEDED):
        return True  # its job may still run, but the next window has another id
    if window.state is State.COMMITTED and not is_rerun:
        return True
    return holder_is_over


def is_handed_over(held: Held, claim: Claim, *, is_known: bool) -> bool:
    """Whether a claim may work on a window without asking who is over.

    Args:
        held: the window.
        claim: who asks.
        is_known: the claim had the window, or was given its name by the plan task of its run. Then plan task and workers
            of one run hand it to each other: the plan task works on nothing, and says what the others work on.
    """
    is_planner = claim.scope is Scope.RUN or held.holder.scope is Scope.RUN
    return held.holder == claim or (is_known and is_planner and held.holder.is_same_run(claim))


def of_others(state: GroupState, held_windows: Iterable[Held], claim: Claim, how: How) -> list[Held]:
    """Return the windows on which a claim may work only if their holders are over."""
    known = {held.window.seq for held in state.claimed}
    return [h for h in held_windows if not is_handed_over(h, claim, is_known=how is How.GIVEN or h.window.seq in known)]


def to_hold(held_windows: Sequence[Held], claim: Claim) -> list[Held]:
    """Return which of the windows that a claim gets it holds from now on, in the order of their numbers.

    A plan task leaves to the other tasks of its run what they have.
    """
    mine = [
        h for h in held_windows if claim.scope is Scope.TASK or h.holder == claim or not h.holder.is_same_run(claim)
    ]
    return sorted(mine, key=lambda held: held.window.seq)
