"""Moving a watermark by hand (docs/design.md, rule 9): what is skipped, and which windows lose their offsets."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_kafka_offsets.core import leader_epochs
from airflow_kafka_offsets.core.errors import (
    BadInputError,
    ConfirmationError,
    IllegalStepError,
    abandon_command,
    counted,
    name_some,
)
from airflow_kafka_offsets.core.history import LEFT
from airflow_kafka_offsets.core.leader_epochs import EpochEnds, PartitionEpoch
from airflow_kafka_offsets.core.log import LogSnapshot, may_be_same, noted_ids
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition, topics_of
from airflow_kafka_offsets.core.plan.ownership import (
    ANOTHER_GROUP,
    NOWHERE,
    GroupState,
    Owner,
    Position,
    reset_command,
    reset_to,
    to_abandon,
)
from airflow_kafka_offsets.core.plan.replay import left_to_find
from airflow_kafka_offsets.core.plan.request import WINDOWS, trigger_command
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges, named_ranges
from airflow_kafka_offsets.core.starting import check_inside
from airflow_kafka_offsets.core.window import COMMITTING_HINT, Lane, State, Window
from airflow_kafka_offsets.core.window_id import name_windows


@dataclass(frozen=True, slots=True)
class Reset:
    """What a reset would do.

    Attributes:
        position: where the next live window will start.
        moves: old and new watermark of each partition that moves; the old one is None if it had none in this topic.
        skipped: offsets that no window will own: the recorded gap.
        superseded: windows that lose their offsets, oldest first; their output has to be removed.
        irreplaceable: offsets of these windows that Kafka no longer holds: their output is the only copy.
        replaced: offsets below the new watermark that Kafka gave to other records after they were read. No window reads these.
        unread: by window, its offsets in topics that the group no longer reads or that were recreated: a gap, too.
        recreated: by window, the part of `unread` whose topic was recreated: no one can read it again.
        read_by_others: what another reader has read before an import made the group, and new windows read again.
        left: the ids of the topics that the group leaves for others of the same name.
        unchecked: the noted leader epochs whose ends Kafka did not report. They stay noted, so the next plan asks again.
        owner: the task that the group belongs to, or None.
    """

    position: Position
    moves: Mapping[TopicPartition, tuple[int | None, int]]
    skipped: OffsetRanges
    superseded: tuple[Window, ...]
    irreplaceable: tuple[str, ...] = ()
    replaced: OffsetRanges = field(default_factory=lambda: OffsetRanges({}))
    unread: Mapping[str, OffsetRanges] = field(default_factory=dict)
    recreated: Mapping[str, OffsetRanges] = field(default_factory=dict)
    read_by_others: OffsetRanges = field(default_factory=lambda: OffsetRanges({}))
    left: Mapping[str, str] = field(default_factory=dict)
    unchecked: tuple[PartitionEpoch, ...] = ()
    owner: Owner | None = None

    @property
    def changes_something(self) -> bool:
        """Whether a watermark moves, a topic's id changes, or Kafka replaced records below a watermark that stays."""
        return bool(self.moves or self.replaced or self.left)


def check_no_open_window(state: GroupState) -> None:
    """Refuse a reset while a window waits for its commit.

    Raises:
        IllegalStepError: with the command that abandons the window.
    """
    if not state.open:
        return
    newest = to_abandon(state)
    if newest is None:
        raise IllegalStepError(f"Window {state.open[0].id} is committing{COMMITTING_HINT}")
    older = [record.id for record in reversed(state.open) if record != newest and record.state is State.PLANNED]
    then = f", then the same with {name_some(older, ', ')}" if older else ""
    raise IllegalStepError(
        f"Run {newest.holder} has {_still_open(newest.id, newest.state)}{then}:{abandon_command(newest.id)}"
    )


def _still_open(window_id: str, state: State) -> str:
    return f"window {window_id}, which is {state}. Let it be committed, or stop its run's job and abandon it first"


def check_never_left(
    group: str, position: Position, topic_ids: Mapping[str, str], acts: Iterable[Mapping[str, Any]]
) -> None:
    """Refuse topics that are back under an id that the group has read and left for others of the same name.

    Windows of that time own offsets there. The group can't go back among them, as its windows follow one another.

    Args:
        group: its name.
        position: where the next live window would start.
        topic_ids: the ids that Kafka has now.
        acts: the details of the group's `MOVES`.

    Raises:
        IllegalStepError: with the topics.
    """
    recreated = _recreated_in(position, topic_ids)
    back = {t for details in acts for t, id_ in details.get(LEFT, {}).items() if t in recreated and topic_ids[t] == id_}
    if back:
        raise IllegalStepError(
            f"Group {group} has left topic {name_some(sorted(back), ', ')} under the id that Kafka has again. {ANOTHER_GROUP}"
        )


def plan_reset(
    group: str,
    before: Position,
    target: Mapping[TopicPartition, int],
    log: LogSnapshot,
    committed: Iterable[Window],
    backfill: Iterable[Window] = (),
    *,
    epoch_ends: EpochEnds | None = None,
    unchecked: Collection[PartitionEpoch] = (),
    reads: Container[str] | None = None,
    founded: Offsets = NOWHERE.offsets,
) -> Reset:
    """Work out a reset.

    Args:
        group: its name, for messages.
        before: where the next live window would have started.
        target: the new watermarks; partitions that are not named keep theirs.
        log: what Kafka holds of the topics of `target`, and of the other topics that the group reads and has a watermark for.
        committed: the committed live windows, newest first.
        backfill: the backfill windows that own their offsets.
        epoch_ends: the ends of the leader epochs that are in doubt.
        unchecked: the leader epochs in doubt whose ends Kafka did not report.
        reads: the topics that the group reads; None if it reads all that its windows have.
        founded: where an import let the group begin, see `history.founded_at`.

    Raises:
        BadInputError: a target is outside of the log, or names only some partitions of a topic that was recreated.
        IllegalStepError: the target cuts through a window, or a backfill window in its way waits for its commit.
    """
    touched = topics_of(target)
    recreated = _recreated_in(before, log.topic_ids).intersection(touched)
    _check_target(target, recreated, log)
    # Watermarks of an older incarnation and of partitions that are gone no longer mean anything.
    watermarks = {
        tp: offset
        for tp, offset in before.offsets.items()
        if tp.topic not in touched or (tp.topic not in recreated and tp in log.bounds)
    }
    unchecked = leader_epochs.still_unchecked(unchecked, target, log)
    position = Position(
        dict(sorted({**watermarks, **target}.items())),
        noted_ids(before.topic_ids, {topic: log.topic_ids[topic] for topic in touched}),
        leader_epochs.after_reset(before, target, log, unchecked),
    )
    moves = {tp: (watermarks.get(tp), new) for tp, new in sorted(target.items()) if watermarks.get(tp) != new}
    # A partition without a watermark would have started at its beginning offset.
    starts = {tp: log.bounds[tp].beginning if old is None else old for tp, (old, _) in moves.items()}
    skipped = OffsetRanges((tp, OffsetRange(starts[tp], new)) for tp, (_, new) in moves.items() if new > starts[tp])
    back = {tp: new for tp, (old, new) in moves.items() if old is not None and new < old}
    reached = _reached(position, back, committed)
    owners = [window for window in (*reached, *(backfill if back else ())) if _owns_above(window, position, back)]
    superseded = tuple(sorted(owners, key=lambda window: window.seq))
    today = _topics_of_today(position, log.topic_ids)
    gone, unread, irreplaceable = {}, {}, []
    for window in superseded:
        if window.state.is_open:
            raise IllegalStepError(f"In the way is {_still_open(window.id, window.state)}:{abandon_command(window.id)}")
        owned, same = window.ranges.without_empty(), _of_today(window, today)
        earlier = {tp: offsets for tp, offsets in owned.items() if tp not in same}
        left = {tp: offsets for tp, offsets in owned.items() if reads is not None and tp.topic not in reads} | earlier
        if earlier:
            gone[window.id] = OffsetRanges(earlier)
        if left:
            unread[window.id] = OffsetRanges(left)
        for tp, offsets in owned.items():
            # No live window will start in unread parts, whatever the position is.
            if tp not in left and position.offsets.get(tp, 0) > offsets.start:
                raise IllegalStepError(
                    f"Window {window.id} owns {tp} offsets {offsets}, and this reset would take only a part of them. "
                    f"{_way_out(group, before, back, reached, superseded, log, reads)}"
                )
            if tp in same and (b := log.bounds.get(tp)) and not b.beginning <= offsets.start <= offsets.end <= b.end:
                irreplaceable.append(f"{window.id} {tp} {offsets}")
    return Reset(
        position,
        moves,
        skipped,
        superseded,
        tuple(irreplaceable),
        leader_epochs.left_behind(before, target, epoch_ends or {}),
        unread,
        gone,
        OffsetRanges(
            (tp, OffsetRange(new, min(watermarks[tp], founded[tp])))
            for tp, new in back.items()
            if new < founded.get(tp, 0)
        ),
        {topic: before.topic_ids[topic] for topic in sorted(recreated)},
        unchecked,
    )


def _check_target(target: Offsets, recreated: Collection[str], log: LogSnapshot) -> None:
    if unknown := sorted(target.keys() - log.bounds.keys()):
        raise BadInputError(f"Kafka has no partition {name_some(unknown, ', ')}")
    check_inside(target, log, "The new watermark")
    if unnamed := [tp for tp in sorted(log.bounds.keys() - target.keys()) if tp.topic in recreated]:
        topics = name_some(topics_of(unnamed), ", ")
        raise BadInputError(
            f"Topic {topics} was recreated, so name all of its partitions. Missing: {name_some(unnamed, ', ')}"
        )


def _recreated_in(position: Position, topic_ids: Mapping[str, str]) -> set[str]:
    """Return the topics of a position that Kafka has under another id now. A topic without an id there counts as the same."""
    return {topic for topic, noted in position.topic_ids.items() if not may_be_same(noted, topic_ids.get(topic, noted))}


def _topics_of_today(position: Position, topic_ids: Mapping[str, str]) -> dict[str, str]:
    """Return the ids of the other topics of a position. A recreated topic keeps its old id there until a person resets it."""
    recreated = _recreated_in(position, topic_ids)
    return {topic: id_ for topic, id_ in position.topic_ids.items() if topic not in recreated}


def _of_today(window: Window, today: Mapping[str, str]) -> OffsetRanges:
    """Return a window's ranges without those of recreated topics, where its offsets mean nothing."""
    same = {topic for topic, id_ in window.topic_ids.items() if may_be_same(id_, today.get(topic))}
    return OffsetRanges((tp, offsets) for tp, offsets in window.ranges.items() if tp.topic in same)


def _reached(position: Position, back: Offsets, committed: Iterable[Window]) -> list[Window]:
    """Return the committed live windows that end behind one of the new watermarks, newest first."""
    reached: list[Window] = []
    left = OffsetRanges((tp, OffsetRange(offset, offset)) for tp, offset in back.items())
    for window in committed if left else ():
        left = left_to_find(left, window, position.topic_ids)
        if any(window.ranges[tp].end > back[tp] for tp in _shared(window, position, back)):
            reached.append(window)
        elif not left:
            break
    return reached


def _owns_above(window: Window, position: Position, back: Offsets) -> bool:
    return any(window.ranges[tp].span and window.ranges[tp].end > back[tp] for tp in _shared(window, position, back))


def _shared(window: Window, position: Position, back: Offsets) -> list[TopicPartition]:
    ids = position.topic_ids
    return [tp for tp in back if tp in window.ranges and may_be_same(window.topic_ids.get(tp.topic), ids[tp.topic])]


def _way_out(
    group: str,
    before: Position,
    back: Offsets,
    reached: Sequence[Window],
    superseded: Sequence[Window],
    log: LogSnapshot,
    reads: Container[str] | None,
) -> str:
    today = _topics_of_today(before, log.topic_ids)
    live = {window.seq for window in superseded if window.lane is Lane.LIVE}
    # The oldest window whose start Kafka still holds. A reset to the start of a live window cuts no other live window.
    command = then = ""
    starts: dict[TopicPartition, int] = {}
    for window in reached:
        # A partition that came later goes back to where a window first took it up, see `window_starts`.
        starts.update(_of_today(window, today).starts)
        if window.seq in live and _is_held(_to_move(starts, before, reads), log):
            command = reset_command(group, f"--to-window {window.id}")
            then = ""
            if any(tp not in starts or starts[tp] > offset for tp, offset in back.items()):
                is_oldest = window.seq == min(live)
                then = ", then repeat the refused command" if is_oldest else " (Kafka no longer holds an older start)"
    # Perhaps no live window starts where a backfill window does. If a live one is in the way, it would be cut there.
    for window in superseded if not live else ():
        to = _to_move(_of_today(window, today).without_empty().starts, before, reads)
        if _is_held(to, log):
            command = reset_to(group, to)
            break
    if command:
        return f"Reset to where a window starts{then}:{command}"
    return f"Kafka no longer holds the start of any window in the way. {ANOTHER_GROUP}"


def _to_move(starts: Offsets, before: Position, reads: Container[str] | None) -> dict[TopicPartition, int]:
    return {
        tp: start
        for tp, start in starts.items()
        if before.offsets.get(tp) != start and (reads is None or tp.topic in reads)
    }


def _is_held(starts: Offsets, log: LogSnapshot) -> bool:
    held = [(log.bounds.get(tp), start) for tp, start in starts.items()]
    return all(bounds is None or bounds.beginning <= start <= bounds.end for bounds, start in held)


def window_starts(
    window: Window,
    position: Position,
    committed: Iterable[Window],
    reads: Container[str] | None = None,
    topic_ids: Mapping[str, str] | None = None,
) -> dict[TopicPartition, int]:
    """Return the target of a reset to where a window starts.

    A partition that came later goes back to where the first window after this one took it up. So does one of a topic that
    was recreated after this window. One that no one has reset since it was recreated is not moved: the window's offsets mean
    nothing there, and the next plan names its own reset.

    Args:
        window: the window; it may be one that no longer owns its offsets.
        position: where the next live window would start.
        committed: the committed live windows, newest first.
        reads: the topics that the group reads; None if it reads all.
        topic_ids: the ids that Kafka has now for the topics of `position`; None if they are the same.

    Raises:
        IllegalStepError: all records of the window are of topics that were recreated since.
    """
    today = _topics_of_today(position, topic_ids or {})
    same = _of_today(window, today)
    earlier = sorted({tp.topic for tp in window.ranges.without_empty() if tp not in same})
    if earlier and not same.span:
        topic = next((topic for topic in earlier if reads is None or topic in reads), None)
        way_out = (
            f"To read today's from its beginning:{reset_command(window.group, f'--topic {topic} --to earliest')}"
            if topic
            else ANOTHER_GROUP
        )
        raise IllegalStepError(f"Window {window.id} read an earlier topic {name_some(earlier, ', ')}. {way_out}")
    starts: dict[TopicPartition, int] = {}
    for later in committed:
        if later.seq <= window.seq:
            break
        starts.update(_of_today(later, today).starts)
    starts.update(same.starts)
    return _to_move(starts, position, reads)


def check_confirmed(group: str, reset: Reset, confirmed: bool) -> None:
    """Require a confirmation before windows lose their offsets.

    Raises:
        ConfirmationError: with the windows, and the replay that is usually meant.
    """
    if confirmed or not reset.superseded:
        return
    lines = [
        f"This takes offsets away from {counted(len(reset.superseded), 'committed window')}: "
        f"{name_some([window.id for window in reset.superseded], ', ')}. Before that, make sure that no run of these is at work; "
        "after it, remove their output, as new windows read the offsets again.",
        *only_copies(reset),
        *nobody_reads(reset),
        f"To do it all the same, add --supersede. {run_instead(group, reset)}",
    ]
    raise ConfirmationError("\n".join(lines))


def run_instead(group: str, reset: Reset) -> str:
    """Return the sentence on the replay that is usually meant by a reset backwards, with its command."""
    windows = {WINDOWS: name_windows(window.seq for window in reset.superseded)}
    command = trigger_command(group, windows, reset.owner.dag_id if reset.owner else None)
    return f"To run these windows again instead:{command}"


def only_copies(reset: Reset) -> list[str]:
    """Return the sentence on output that can't be written again, or nothing if there is none."""
    if not reset.irreplaceable:
        return []
    named = name_some(reset.irreplaceable, ", ")
    return [f"Kafka no longer holds {named}: put this output aside first, as it is the only copy."]


def nobody_reads(reset: Reset) -> list[str]:
    """Return a sentence for each reason why no one reads some of these offsets again, with what can be done."""
    recreated: list[str] = []
    left: list[str] = []
    for window_id, ranges in reset.unread.items():
        gone = reset.recreated.get(window_id, ())
        for tp, offsets in ranges.items():
            (recreated if tp in gone else left).append(f"{window_id} {tp} {offsets}")
    because = (
        (recreated, "their topic was recreated: keep"),
        (left, "the group no longer reads their topic: put the topic back first, or keep"),
    )
    return [
        f"No window reads {name_some(names, ', ')} again, as {why} that part of the output."
        for names, why in because
        if names
    ]


def summary_of_reset(reset: Reset) -> dict[str, object]:
    """Return the facts for the ledger's record of the act."""
    optional = {
        LEFT: dict(reset.left),
        "replaced": named_ranges(reset.replaced),
        "read_by_others": named_ranges(reset.read_by_others),
        "unread": {id_: named_ranges(ranges) for id_, ranges in reset.unread.items()},
    }
    return {
        "moves": {str(tp): [old, new] for tp, (old, new) in reset.moves.items()},
        "skipped": named_ranges(reset.skipped),
        "superseded": [window.id for window in reset.superseded],
        **{name: facts for name, facts in optional.items() if facts},
        **leader_epochs.unchecked_details(reset.unchecked),
    }
