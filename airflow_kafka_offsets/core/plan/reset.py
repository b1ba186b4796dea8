"""Moving a watermark by hand (docs/design.md, rule 9): what is skipped, and which windows lose their offsets."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_kafka_offsets.core import leader_epochs
from airflow_kafka_offsets.core.errors import BadInputError, ConfirmationError, IllegalStepError, counted, name_some
from airflow_kafka_offsets.core.history import FOUNDED, KEPT_FROM, LEFT, NEXT_WINDOW, acted_on
from airflow_kafka_offsets.core.leader_epochs import EpochEnds, PartitionEpoch
from airflow_kafka_offsets.core.log import LogSnapshot
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition, is_whole, topics_of
from airflow_kafka_offsets.core.plan.ownership import NOWHERE, GroupState, Position, reset_command, to_abandon
from airflow_kafka_offsets.core.plan.replay import left_to_find
from airflow_kafka_offsets.core.plan.request import name_windows
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges, named_ranges
from airflow_kafka_offsets.core.starting import check_inside
from airflow_kafka_offsets.core.window import COMMITTING_HINT, Lane, State, Window


@dataclass(frozen=True, slots=True)
class Reset:
    """What a reset would do.

    Attributes:
        position: where the next live window will start.
        moves: old and new watermark of each partition that moves; old None: it had none (in this topic).
        skipped: offsets that no one will own: the recorded gap.
        superseded: windows that lose their offsets, oldest first; their output has to be removed.
        irreplaceable: offsets of these windows that Kafka no longer holds: their output is the only copy.
        replaced: offsets below the new watermark that Kafka gave to other records after they were read: no one will read these.
        unread: by window, what these windows own of topics that the group no longer reads, or that were recreated since.
            After the reset, no one owns it: it is a gap, too.
        recreated: by window, the part of `unread` whose topic was recreated: no one can read it again.
        read_by_others: what another reader has read before an import made the group, and new windows read again.
        left: the ids of the topics that the group leaves for others of the same name.
        unchecked: the noted leader epochs whose ends Kafka did not report. They stay noted, so the next plan asks again.
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

    @property
    def changes_something(self) -> bool:
        """Whether a watermark moves, a topic's id changes, or Kafka replaced records below a watermark that stays."""
        return bool(self.moves or self.replaced or self.left)


def check_no_open_window(group: str, state: GroupState) -> None:
    """Refuse a reset while a window waits for its commit.

    Raises:
        IllegalStepError: with the command that abandons the window.
    """
    if not state.open:
        return
    held = to_abandon(state)
    if held is None:
        raise IllegalStepError(f"Window {state.open[0].id} of group {group} is committing{COMMITTING_HINT}")
    others = [h.id for h in reversed(state.open) if h != held and h.state is State.PLANNED]
    raise IllegalStepError(
        f"Window {held.id} of group {group} is {held.state} (run {held.holder}). Let it be committed, "
        f"or abandon it first: kafka-offsets abandon {held.id} --why '...'"
        + (f". Then do the same with {name_some(others, ', ')}" if others else "")
    )


def check_never_left(
    group: str, position: Position, topic_ids: Mapping[str, str], acts: Iterable[Mapping[str, Any]]
) -> None:
    """Refuse topics that the group has read before under the id that Kafka has now, and then left for others of the same name.

    Windows of that time own offsets there. The group can't go back among them, as its windows follow one another.

    Args:
        group: its name.
        position: where the next live window would start.
        topic_ids: the ids that Kafka has now.
        acts: the details of the group's acts.

    Raises:
        IllegalStepError: with the topics.
    """
    moved = recreated_in(position, topic_ids)
    back = {t for details in acts for t, id_ in details.get(LEFT, {}).items() if t in moved and topic_ids[t] == id_}
    if back:
        raise IllegalStepError(
            f"Kafka has topic {name_some(sorted(back), ', ')} under an id again that group {group} has read and left, so windows may own "
            "its offsets. Use a group of another name for today's topic"
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
        founded: where an import let the group begin, see `founded_at`.

    Raises:
        BadInputError: a target is outside of the log, or names only some partitions of a topic that was recreated.
        IllegalStepError: the target cuts through a window, or a backfill window in its way waits for its commit.
    """
    touched = topics_of(target)
    recreated = recreated_in(before, log.topic_ids).intersection(touched)
    _check_target(target, recreated, log)
    # Watermarks of an older incarnation and of partitions that are gone no longer mean anything.
    known = {
        tp: offset
        for tp, offset in before.offsets.items()
        if tp.topic not in touched or (tp.topic not in recreated and tp in log.bounds)
    }
    silent = leader_epochs.still_unchecked(unchecked, target, log)
    position = Position(
        dict(sorted({**known, **target}.items())),
        {**before.topic_ids, **{topic: log.topic_ids[topic] for topic in touched}},
        leader_epochs.after_reset(before, target, log, silent),
    )
    moves = {tp: (known.get(tp), offset) for tp, offset in sorted(target.items()) if known.get(tp) != offset}
    # A partition without a watermark would have started at its beginning offset.
    starts = {tp: log.bounds[tp].beginning if old is None else old for tp, (old, _) in moves.items()}
    skipped = OffsetRanges((tp, OffsetRange(starts[tp], new)) for tp, (_, new) in moves.items() if new > starts[tp])

    back = {tp: new for tp, (old, new) in moves.items() if old is not None and new < old}
    reached = _reached(position, back, committed)
    owners = [window for window in (*reached, *(backfill if back else ())) if _owns_above(window, position, back)]
    superseded = tuple(sorted(owners, key=lambda window: window.seq))
    today = topics_of_today(position, log.topic_ids)
    gone, unread, irreplaceable = {}, {}, []
    for window in superseded:
        if window.state.is_open:
            raise IllegalStepError(
                f"Window {window.id} of group {group} is {window.state}, and a replay will read its offsets. Let it be committed, or "
                f"abandon it first: kafka-offsets abandon {window.id} --why '...'"
            )
        owned, same = window.ranges.without_empty(), _of_today(window, today)
        if of_earlier := OffsetRanges((tp, offsets) for tp, offsets in owned.items() if tp not in same):
            gone[window.id] = of_earlier
        if left := OffsetRanges(
            (tp, offsets)
            for tp, offsets in owned.items()
            if tp not in same or (reads is not None and tp.topic not in reads)
        ):
            unread[window.id] = left
        for tp, offsets in owned.items():
            # No live window will start in what is unread, whatever the position is.
            if tp not in left and position.offsets.get(tp, 0) > offsets.start:
                raise IllegalStepError(
                    f"Window {window.id} owns {tp} offsets {offsets}, and the reset would take away only a part of it, which leaves the "
                    f"rest without a reader. {_way_out(group, before, back, reached, superseded, log, reads)}"
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
            (tp, OffsetRange(new, min(known[tp], founded[tp]))) for tp, new in back.items() if new < founded.get(tp, 0)
        ),
        {topic: before.topic_ids[topic] for topic in sorted(recreated)},
        silent,
    )


def _check_target(target: Offsets, recreated: Collection[str], log: LogSnapshot) -> None:
    if unknown := sorted(target.keys() - log.bounds.keys()):
        raise BadInputError(f"Kafka has no partition {name_some(unknown, ', ')}")
    check_inside(target, log, "The new watermark")
    if unnamed := [tp for tp in sorted(log.bounds.keys() - target.keys()) if tp.topic in recreated]:
        topics = name_some(sorted({tp.topic for tp in unnamed}), ", ")
        raise BadInputError(
            f"Topic {topics} was recreated, so name all of its partitions. Missing: {name_some(unnamed, ', ')}"
        )


def recreated_in(position: Position, topic_ids: Mapping[str, str]) -> set[str]:
    """Return the topics that Kafka has under another id than a position was noted in."""
    return {topic for topic, known in position.topic_ids.items() if topic_ids.get(topic, known) != known}


def topics_of_today(position: Position, topic_ids: Mapping[str, str]) -> dict[str, str]:
    """Return the ids of the topics that a position was noted in, without those of topics that Kafka has under another id now.

    A recreated topic keeps its old id in the position until a person resets it. No one can read the old topic meanwhile, either.

    Args:
        position: where the next live window starts.
        topic_ids: the ids that Kafka has now. A topic that is not in it counts as the same: it was not asked for, or is gone.
    """
    return {topic: known for topic, known in position.topic_ids.items() if topic_ids.get(topic, known) == known}


def _of_today(window: Window, today: Mapping[str, str]) -> OffsetRanges:
    """Return a window's ranges without those of recreated topics, where its offsets mean nothing."""
    same = {topic for topic, known in window.topic_ids.items() if today.get(topic) == known}
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
    return [tp for tp in back if tp in window.ranges and window.topic_ids.get(tp.topic) == ids[tp.topic]]


def _way_out(
    group: str,
    before: Position,
    back: Offsets,
    reached: Sequence[Window],
    superseded: Sequence[Window],
    log: LogSnapshot,
    reads: Container[str] | None,
) -> str:
    today = topics_of_today(before, log.topic_ids)
    live = {window.seq for window in superseded if window.lane is Lane.LIVE}
    # The oldest window whose start Kafka still holds. A reset to the start of a live window cuts no other live window.
    oldest: Window | None = None
    starts: dict[TopicPartition, int] = {}
    its_starts: Offsets = {}
    for window in reached:
        # A partition that came later goes back to where a window first took it up, see `window_starts`.
        starts.update(_of_today(window, today).starts)
        if window.seq in live and _is_held(_to_move(starts, before, reads), log):
            oldest, its_starts = window, dict(starts)
    if oldest is not None:
        then = ""
        if any(tp not in its_starts or its_starts[tp] > offset for tp, offset in back.items()):
            is_last = min(live) < oldest.seq
            then = "; Kafka no longer holds the start of an older window" if is_last else "; then repeat this command"
        return f"Reset to where a window starts{then}:\nkafka-offsets reset {group} --to-window {oldest.id} --why '...'"
    # Perhaps no live window starts where a backfill window does. If a live one is in the way, it would be cut there.
    for window in superseded if not live else ():
        to = _to_move(_of_today(window, today).without_empty().starts, before, reads)
        if _is_held(to, log):
            return f"Reset to where a window starts:\n{reset_command(group, to)}"
    return "Kafka no longer holds the start of any such window: use a group of another name for the topic"


def _to_move(starts: Offsets, before: Position, reads: Container[str] | None) -> dict[TopicPartition, int]:
    moved = {tp: start for tp, start in starts.items() if before.offsets.get(tp) != start}
    return {tp: start for tp, start in moved.items() if reads is None or tp.topic in reads}


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
    today = topics_of_today(position, topic_ids or {})
    same = _of_today(window, today)
    other = sorted({tp.topic for tp in window.ranges.without_empty() if tp not in same})
    if other and not same.span:
        topics = [topic for topic in other if reads is None or topic in reads]
        way_out = "The group no longer reads it: use a group of another name for today's topic"
        if topics:
            command = f"kafka-offsets reset {window.group} --topic {topics[0]} --to earliest --why '...'"
            way_out = f"To read today's topic from its beginning:\n{command}"
        raise IllegalStepError(
            f"Window {window.id} was cut from an earlier topic of the name {name_some(other, ', ')}: its offsets mean nothing "
            f"in today's topic. {way_out}"
        )
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
        f"{name_some([window.id for window in reset.superseded], ', ')}. New windows read them again, so make sure that none of their "
        "runs is at work, and remove the output under these ids."
    ]
    if reset.irreplaceable:
        named = name_some(reset.irreplaceable, ", ")
        lines.append(f"Kafka no longer holds all of {named}: put this output aside first, as it is the only copy.")
    seqs = name_windows(window.seq for window in reset.superseded)
    lines += [
        *nobody_reads(reset),
        "To do it all the same, add --supersede. To run these windows again instead, under their own ids:",
        f"""airflow dags trigger DAG --conf '{{"group": "{group}", "windows": "{seqs}"}}'""",
    ]
    raise ConfirmationError("\n".join(lines))


def nobody_reads(reset: Reset) -> list[str]:
    """Return a sentence for each reason why no one reads some of these offsets again, with what can be done."""
    recreated: list[str] = []
    left: list[str] = []
    for window_id, ranges in reset.unread.items():
        for tp, offsets in ranges.items():
            is_gone = tp in reset.recreated.get(window_id, ())
            (recreated if is_gone else left).append(f"{window_id} {tp} {offsets}")
    lines = []
    if recreated:
        lines.append(
            f"The topic of {name_some(recreated, ', ')} was recreated since: no one can read these records again (recorded as a "
            "gap). Keep that part of the output."
        )
    if left:
        lines.append(
            f"The group no longer reads the topic of {name_some(left, ', ')}: no new window reads these records (recorded as a gap). Keep "
            "that part of the output until a replay writes it again, or first put the topic back into the group's topics."
        )
    return lines


def founded_at(acts: Iterable[Mapping[str, Any]]) -> dict[TopicPartition, int]:
    """Return where an import let a group begin, in topics that it has not left for others of the same name since.

    Args:
        acts: the details of all acts of the group, oldest first.
    """
    founded: dict[TopicPartition, int] = {}
    for details in acts:
        for name, offset in details.get(FOUNDED, {}).items():
            topic, _, partition = name.rpartition("-")
            founded[TopicPartition(topic, int(partition))] = offset
        founded = {tp: offset for tp, offset in founded.items() if tp.topic not in details.get(LEFT, ())}
    return founded


def check_details(details: Mapping[str, Any]) -> None:
    """Read all that programs read in an act's details.

    Raises:
        AttributeError, LookupError, TypeError, ValueError: this package never writes this.
    """
    numbers = [details.get(NEXT_WINDOW, 1), details.get(KEPT_FROM, 1), *founded_at([details]).values()]
    if not all(is_whole(number) and number >= 0 for number in numbers):
        raise ValueError("offsets and the numbers of windows must be whole numbers, 0 or more")
    names = [*acted_on(details), *details.get("left_open", ())]
    if not all(isinstance(name, str) for name in (*names, *details.get(LEFT, {}).values())):
        raise ValueError("windows and the ids of topics must be texts")


def summary_of_reset(reset: Reset) -> dict[str, object]:
    """Return the facts for the ledger's record of the act."""
    return {
        "moves": {str(tp): [old, new] for tp, (old, new) in reset.moves.items()},
        "skipped": named_ranges(reset.skipped),
        "superseded": [window.id for window in reset.superseded],
        **({LEFT: dict(reset.left)} if reset.left else {}),
        **({"replaced": named_ranges(reset.replaced)} if reset.replaced else {}),
        **({"read_by_others": named_ranges(reset.read_by_others)} if reset.read_by_others else {}),
        **leader_epochs.unchecked_details(reset.unchecked),
        **({"unread": {id_: named_ranges(ranges) for id_, ranges in reset.unread.items()}} if reset.unread else {}),
    }
