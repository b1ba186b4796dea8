"""Moving a watermark by hand (docs/design.md, rule 9): what is skipped, and which windows lose their offsets."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from airflow_kafka_offsets.core import leader_epochs
from airflow_kafka_offsets.core.errors import BadInputError, ConfirmationError, IllegalStepError, counted, name_some
from airflow_kafka_offsets.core.history import FOUNDED, KEPT, KEPT_FROM, LEFT, NEXT_WINDOW, TAKEN, acted_on
from airflow_kafka_offsets.core.leader_epochs import EpochEnds, PartitionEpoch
from airflow_kafka_offsets.core.log import LogSnapshot
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition, is_whole, topics_of
from airflow_kafka_offsets.core.plan import kept
from airflow_kafka_offsets.core.plan.kept import Kept
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
        replaced: offsets below the new watermark that Kafka gave to other records after they were read: no one will read
            these.
        unread: by window, what these windows own of topics that the group no longer reads, or that were recreated since.
            After the reset, no one owns it: it is a gap, too. People keep its output.
        topic_ids: the ids of the topics in which the offsets of windows still mean something, see `topics_of_today`.
        back_at: where to continue in topics of the target that are back: where the group stood, or where the log begins if that is later.
        left: where the group stood in the topics that it leaves for others of the same name. They may be back some day.
        taken: what earlier resets told people to keep, and this one reads again.
        read_by_others: what another reader has read before an import made the group, and new windows read again.
        unchecked: the noted leader epochs whose ends Kafka did not report. They stay noted, so the next plan asks again.
    """

    position: Position
    moves: Mapping[TopicPartition, tuple[int | None, int]]
    skipped: OffsetRanges
    superseded: tuple[Window, ...]
    irreplaceable: tuple[str, ...] = ()
    replaced: OffsetRanges = field(default_factory=lambda: OffsetRanges({}))
    unread: Mapping[str, OffsetRanges] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    back_at: Offsets = field(default_factory=dict)
    left: Position = NOWHERE
    taken: tuple[Kept, ...] = ()
    unchecked: tuple[PartitionEpoch, ...] = ()
    read_by_others: OffsetRanges = field(default_factory=lambda: OffsetRanges({}))

    @property
    def changes_something(self) -> bool:
        """Whether there is anything to do: to move a watermark, to settle what Kafka replaced below one that stays, or to change a topic's id."""
        return bool(self.moves or self.replaced or self.left.topic_ids)


def check_no_open_window(group: str, state: GroupState) -> None:
    """Refuse a reset while a window waits for its commit.

    Raises:
        IllegalStepError: with the command that abandons the window.
    """
    if not state.open:
        return
    held = to_abandon(state)
    if held is None:
        raise IllegalStepError(f"Window {state.open[0].window.id} of group {group} is committing{COMMITTING_HINT}")
    others = [h.window.id for h in reversed(state.open) if h != held and h.window.state is State.PLANNED]
    raise IllegalStepError(
        f"Window {held.window.id} of group {group} is {held.window.state} (run {held.holder}). Let it be committed, "
        f"or abandon it first: kafka-offsets abandon {held.window.id} --why '...'"
        + (f". Then do the same with {name_some(others, ', ')}" if others else "")
    )


def plan_reset(
    group: str,
    before: Position,
    target: Mapping[TopicPartition, int],
    log: LogSnapshot,
    committed: Iterable[Window],
    backfill: Iterable[Window] = (),
    epoch_ends: EpochEnds | None = None,
    reads: Container[str] | None = None,
    noted: Position | None = None,
    kept_so_far: Iterable[Kept] = (),
    unchecked: Collection[PartitionEpoch] = (),
    founded: Offsets = NOWHERE.offsets,
) -> Reset:
    """Work out a reset.

    Args:
        group: its name, for messages.
        before: where the next live window would have started. In topics that are back: where the group stood, see `back_in`.
        target: the new watermarks; partitions that are not named keep theirs.
        log: what Kafka holds of the topics of `target`, and of the other topics that the group reads and has a watermark for.
        committed: the committed live windows, newest first.
        backfill: the backfill windows that own their offsets.
        epoch_ends: the ends of the leader epochs that are in doubt.
        reads: the topics that the group reads; None: all that its windows have.
        noted: the position of the ledger. Topics that are back and not named stay where it has them; None: no topic is back.
        kept_so_far: what earlier resets told people to keep.
        unchecked: the leader epochs in doubt whose ends Kafka did not report.
        founded: where an import let the group begin, see `founded_at`.

    Raises:
        BadInputError: a target outside of the log, or not all partitions of a topic that was recreated.
        IllegalStepError: the target cuts through a window, or a backfill window in its way waits for its commit.
    """
    unknown = sorted(target.keys() - log.bounds.keys())
    if unknown:
        raise BadInputError(f"Kafka has no partition {name_some(unknown, ', ')}")
    check_inside(target, log, "The new watermark")
    recreated = recreated_in(before, log.topic_ids).intersection(topics_of(target))
    unnamed = [tp for tp in sorted(log.bounds.keys() - target.keys()) if tp.topic in recreated]
    if unnamed:
        topics = name_some(sorted({tp.topic for tp in unnamed}), ", ")
        raise BadInputError(
            f"Topic {topics} was recreated, so name all of its partitions. Missing: {name_some(unnamed, ', ')}"
        )
    touched = {tp.topic for tp in target}
    # Watermarks of an older incarnation and of partitions that are gone no longer mean anything.
    known = {
        tp: offset
        for tp, offset in before.offsets.items()
        if tp.topic not in recreated and (tp.topic not in touched or tp in log.bounds)
    }
    still_unchecked = leader_epochs.still_unchecked(unchecked, target, log)
    position = Position(
        dict(sorted({**known, **target}.items())),
        {**before.topic_ids, **{topic: log.topic_ids[topic] for topic in touched}},
        leader_epochs.after_reset(before, target, log, still_unchecked),
    )
    moves = {tp: (known.get(tp), offset) for tp, offset in sorted(target.items()) if known.get(tp) != offset}
    # A partition without a watermark would have started at its beginning offset.
    starts = {tp: log.bounds[tp].beginning if old is None else old for tp, (old, _) in moves.items()}
    skipped = OffsetRanges((tp, OffsetRange(starts[tp], new)) for tp, (_, new) in moves.items() if new > starts[tp])
    back = {tp: new for tp, (old, new) in moves.items() if old is not None and new < old}
    reached = _reached(position, back, committed)
    superseded = _superseded(position, back, chain(reached, backfill))
    today = topics_of_today(position, log.topic_ids)
    unread = {window.id: left for window in superseded if (left := _unread(window, today, reads))}
    here = before if noted is None else noted
    came_back = recreated_in(here, before.topic_ids)
    back_at = _to_go_on(_only(before, came_back), log)
    way_out = " ".join([*how_to_go_on(group, back_at), _way_out(group, before, back, reached, superseded, log, reads)])
    for window in superseded:
        _refuse_open(group, window)
        _refuse_to_cut(window, position, way_out, unread.get(window.id, ()))
    replaced = leader_epochs.left_behind(before, target, epoch_ends or {})
    stays = came_back - touched
    after = _with(_only(position, position.topic_ids.keys() - stays), _only(here, stays))
    taken = kept.above(kept_so_far, after)
    only_copy = (
        *_irreplaceable(superseded, today, log),
        *(str(part) for part in taken if _is_gone(part.tp, part.offsets, log)),
    )
    return Reset(
        after,
        moves,
        skipped,
        superseded,
        only_copy,
        replaced,
        unread,
        today,
        {tp: offset for tp, offset in back_at.items() if tp.topic in touched},
        _only(here, recreated_in(here, log.topic_ids) & touched),
        taken,
        still_unchecked,
        OffsetRanges(
            (tp, OffsetRange(new, min(known[tp], founded[tp]))) for tp, new in back.items() if new < founded.get(tp, 0)
        ),
    )


def recreated_in(position: Position, topic_ids: Mapping[str, str]) -> set[str]:
    """Return the topics that Kafka has under another id than a position was noted in."""
    return {topic for topic, known in position.topic_ids.items() if topic_ids.get(topic, known) != known}


def back_in(position: Position, stood: Position, topic_ids: Mapping[str, str]) -> Position:
    """Return a position that stands, in topics that are back, where the group stood in their earlier time.

    A topic is back if Kafka has it again under the id of that time, as where a connection leads back to the first of two clusters.

    Args:
        position: where the next live window would start.
        stood: where the group, or a window that owns its offsets, ended in that time. Of two, the position is at the later offset.
        topic_ids: the ids that Kafka has now for topics that the position has, or had, under another one.
    """
    back = {topic: known for topic, known in topic_ids.items() if stood.topic_ids.get(topic) == known}
    stale = {topic for topic, known in back.items() if position.topic_ids.get(topic) != known}
    kept = _only(position, position.topic_ids.keys() - stale)
    ends = {tp: end for tp, end in stood.offsets.items() if tp.topic in back and end >= kept.offsets.get(tp, 0)}
    return _with(kept, Position(ends, back, {tp: epoch for tp, epoch in stood.leader_epochs.items() if tp in ends}))


def end_of(window: Window) -> Position:
    """Return where a window ends."""
    return Position(window.ranges.ends, window.topic_ids, window.leader_epochs)


def _to_go_on(stood: Position, log: LogSnapshot) -> dict[TopicPartition, int]:
    """Return where to continue in topics that are back; not in one that has lost records that were read: only a reset back goes on there."""
    there = {tp: (offset, log.bounds[tp]) for tp, offset in stood.offsets.items() if tp in log.bounds}
    cut_back = {tp.topic for tp, (offset, bounds) in there.items() if offset > bounds.end}
    # Where the log begins later than the group stood, the rest is recorded as skipped.
    return {tp: max(offset, b.beginning) for tp, (offset, b) in there.items() if tp.topic not in cut_back}


def left_in(details: Mapping[str, Any], topic_ids: Mapping[str, str]) -> Position:
    """Return where a group stood in topics when an act left them for others of the same name, from the act's details.

    Args:
        details: see `summary_of_reset`.
        topic_ids: the ids that Kafka has now. Of topics that the act did not leave under these, nothing is returned.
    """
    stood = {topic: of for topic, of in details.get(LEFT, {}).items() if topic_ids.get(topic) == of["id"]}
    offsets, epochs = (
        {TopicPartition(topic, int(p)): n for topic, of in stood.items() for p, n in of[column].items()}
        for column in ("offsets", "leader_epochs")
    )
    return Position(offsets, {topic: topic_ids[topic] for topic in stood}, epochs)


def founded_at(acts: Iterable[Mapping[str, Any]]) -> dict[TopicPartition, int]:
    """Return where an import let a group begin, in topics that it has not left for others of the same name since.

    Args:
        acts: the details of all acts of the group, oldest first.
    """
    found: dict[TopicPartition, int] = {}
    for details in acts:
        for name, offset in details.get(FOUNDED, {}).items():
            topic, _, partition = name.rpartition("-")
            found[TopicPartition(topic, int(partition))] = offset
        found = {tp: offset for tp, offset in found.items() if tp.topic not in details.get(LEFT, ())}
    return found


def check_details(details: Mapping[str, Any]) -> None:
    """Read all that programs read in an act's details.

    Raises:
        AttributeError, LookupError, TypeError, ValueError: this package never writes this.
    """
    kept.kept_parts([details])
    stood = left_in(details, {topic: of["id"] for topic, of in details.get(LEFT, {}).items()})
    numbers = [details.get(NEXT_WINDOW, 1), details.get(KEPT_FROM, 1), *founded_at([details]).values()]
    numbers += [*stood.offsets.values(), *stood.leader_epochs.values()]
    if not all(is_whole(number) and number >= 0 for number in numbers):
        raise ValueError("offsets, leader epochs and the numbers of windows must be whole numbers, 0 or more")
    if not all(isinstance(window_id, str) for window_id in [*acted_on(details), *details.get("left_open", ())]):
        raise ValueError("windows must have names")


def _left(position: Position) -> dict[str, object]:
    return {
        topic: {"id": topic_id}
        | {
            column: {str(tp.partition): n for tp, n in numbers.items() if tp.topic == topic}
            for column, numbers in (("offsets", position.offsets), ("leader_epochs", position.leader_epochs))
        }
        for topic, topic_id in position.topic_ids.items()
    }


def _only(position: Position, topics: Container[str]) -> Position:
    return Position(
        {tp: offset for tp, offset in position.offsets.items() if tp.topic in topics},
        {topic: known for topic, known in position.topic_ids.items() if topic in topics},
        {tp: epoch for tp, epoch in position.leader_epochs.items() if tp.topic in topics},
    )


def _with(position: Position, more: Position) -> Position:
    return Position(
        dict(sorted({**position.offsets, **more.offsets}.items())),
        {**position.topic_ids, **more.topic_ids},
        {**position.leader_epochs, **more.leader_epochs},
    )


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


def _unread(window: Window, today: Mapping[str, str], reads: Container[str] | None) -> OffsetRanges:
    same = _of_today(window, today)
    left = {tp for tp in window.ranges if tp not in same or (reads is not None and tp.topic not in reads)}
    return OffsetRanges((tp, owned) for tp, owned in window.ranges.without_empty().items() if tp in left)


def _irreplaceable(superseded: tuple[Window, ...], today: Mapping[str, str], log: LogSnapshot) -> tuple[str, ...]:
    return tuple(
        f"{window.id} {tp} {owned}"
        for window in superseded
        for tp, owned in _of_today(window, today).without_empty().items()
        if _is_gone(tp, owned, log)
    )


def _is_gone(tp: TopicPartition, read: OffsetRange, log: LogSnapshot) -> bool:
    bounds = log.bounds.get(tp)
    return bounds is not None and (read.end > bounds.end or read.start < bounds.beginning)


def _reached(position: Position, back: Mapping[TopicPartition, int], committed: Iterable[Window]) -> tuple[Window, ...]:
    """Return the committed live windows that end behind one of the new watermarks, newest first."""
    reached: list[Window] = []
    left = OffsetRanges((tp, OffsetRange(offset, offset)) for tp, offset in back.items())
    for window in committed if left else ():
        left = left_to_find(left, window, position.topic_ids)
        if _reaches(window, position, back):
            reached.append(window)
        elif not left:
            break
    return tuple(reached)


def _superseded(
    position: Position, back: Mapping[TopicPartition, int], windows: Iterable[Window]
) -> tuple[Window, ...]:
    if not back:
        return ()
    owners = [window for window in windows if _overlaps(window, position, back)]
    return tuple(sorted(owners, key=lambda window: window.seq))


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
    found: Window | None = None
    starts: dict[TopicPartition, int] = {}
    its_starts: Offsets = {}
    for window in reached:
        # A partition that came later goes back to where a window first took it up, see `window_starts`.
        starts.update(_of_today(window, today).starts)
        if window.seq in live and _is_held(_to_move(starts, before, reads), log):
            found, its_starts = window, dict(starts)
    if found is not None:
        is_above = any(tp not in its_starts or its_starts[tp] > offset for tp, offset in back.items())
        then = ""
        if is_above and min(live) < found.seq:
            then = f". This group can't go back further: Kafka no longer holds the start of a window before {found.id}"
        elif is_above:
            then = ". Then repeat this command, which goes back further"
        return f"Reset to where a window starts: kafka-offsets reset {group} --to-window {found.id} --why '...'{then}"
    # Perhaps no live window starts where a backfill window does. If a live one is in the way, it would be cut there.
    for window in superseded if not live else ():
        to = _to_move(_of_today(window, today).without_empty().starts, before, reads)
        if _is_held(to, log):
            return f"Reset to where a window starts: {reset_command(group, to)}"
    return "Kafka no longer holds the start of any such window: use a group of another name for the topic"


def _to_move(starts: Offsets, before: Position, reads: Container[str] | None) -> dict[TopicPartition, int]:
    moved = {tp: start for tp, start in starts.items() if before.offsets.get(tp) != start}
    return {tp: start for tp, start in moved.items() if reads is None or tp.topic in reads}


def _is_held(starts: Offsets, log: LogSnapshot) -> bool:
    held = [(log.bounds.get(tp), start) for tp, start in starts.items()]
    return all(bounds is None or bounds.beginning <= start <= bounds.end for bounds, start in held)


def _refuse_open(group: str, window: Window) -> None:
    if window.state.is_open:
        raise IllegalStepError(
            f"Window {window.id} of group {group} is {window.state}, and a replay will read its offsets. Let it be "
            f"committed, or abandon it first: kafka-offsets abandon {window.id} --why '...'"
        )


def _reaches(window: Window, position: Position, back: Mapping[TopicPartition, int]) -> bool:
    return any(
        tp in window.ranges and window.ranges[tp].end > offset
        for tp, offset in back.items()
        if window.topic_ids.get(tp.topic) == position.topic_ids[tp.topic]
    )


def _overlaps(window: Window, position: Position, back: Mapping[TopicPartition, int]) -> bool:
    owned = window.ranges
    return _reaches(window, position, {tp: offset for tp, offset in back.items() if tp in owned and owned[tp].span})


def _refuse_to_cut(window: Window, position: Position, way_out: str, unread: Collection[TopicPartition]) -> None:
    for tp, owned in window.ranges.without_empty().items():
        if tp in unread:  # no live window will start there, whatever the position is
            continue
        if position.offsets.get(tp, 0) > owned.start:
            raise IllegalStepError(
                f"Window {window.id} owns {tp} offsets {owned}, and the reset would take away only a part of them: no one would "
                f"read the rest again. {way_out}"
            )


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
        reads: the topics that the group reads; None: all.
        topic_ids: the ids that Kafka has now for the topics of `position`; None: the same.

    Raises:
        IllegalStepError: all records of the window are of topics that were recreated since.
    """
    today = topics_of_today(position, topic_ids or {})
    same = _of_today(window, today)
    other = sorted({tp.topic for tp in window.ranges.without_empty() if tp not in same})
    if other and not same.span:
        raise IllegalStepError(
            f"Window {window.id} was cut from an earlier topic of the name {name_some(other, ', ')}: its offsets mean nothing "
            f"in today's topic. {_from_its_beginning(window.group, [t for t in other if reads is None or t in reads])}"
        )
    starts: dict[TopicPartition, int] = {}
    for later in committed:
        if later.seq <= window.seq:
            break
        starts.update(_of_today(later, today).starts)
    starts.update(same.starts)
    return _to_move(starts, position, reads)


def _from_its_beginning(group: str, topics: Sequence[str]) -> str:
    if not topics:
        return "The group no longer reads it: use a group of another name for today's topic"
    return f"To read today's topic from its beginning: kafka-offsets reset {group} --topic {topics[0]} --to earliest --why '...'"


def check_confirmed(group: str, reset: Reset, confirmed: bool) -> None:
    """Require a confirmation before windows lose their offsets, or what was kept of them is read again.

    Raises:
        ConfirmationError: with the windows, and the replay that is usually meant.
    """
    if confirmed or not (reset.superseded or reset.taken):
        return
    ids = [window.id for window in reset.superseded]
    told = []
    if ids:
        told.append(
            f"This takes offsets away from {counted(len(ids), 'committed window')}: {name_some(ids, ', ')}. Remove the output under "
            "these ids, or records count twice, because new windows read them again. Make sure that none of their runs is at work."
        )
    told += kept.to_remove(reset.taken)
    if reset.irreplaceable:
        told.append(
            f"Kafka no longer holds all of {name_some(reset.irreplaceable, ', ')}: what these windows wrote is the only copy, so put it "
            "aside first."
        )
    told += [*nobody_reads(reset), *how_to_go_on(group, reset.back_at), "To do it all the same, add --supersede."]
    if ids:
        seqs = name_windows(window.seq for window in reset.superseded)
        told.append(
            "To run these windows again instead, under their own ids: airflow dags trigger DAG --conf "
            f"""'{{"group": "{group}", "windows": "{seqs}"}}'"""
        )
    raise ConfirmationError(" ".join(told))


_BACK_AGAIN = "If the topic is back some day, no replay reads that part, and a reset to before it says first that it has to be removed."


def nobody_reads(reset: Reset) -> list[str]:
    """Return a sentence for each reason why no one reads some of these offsets again, with what can be done."""
    recreated: list[str] = []
    left: list[str] = []
    for window in reset.superseded:
        same = _of_today(window, reset.topic_ids)
        for tp, owned in reset.unread.get(window.id, {}).items():
            (left if tp in same else recreated).append(f"{window.id} {tp} {owned}")
    told = []
    if recreated:
        told.append(
            f"The topic of {name_some(recreated, ', ')} was recreated since: no one can read these records again (recorded as a "
            f"gap). Keep that part of the output. {_BACK_AGAIN}"
        )
    if left:
        told.append(
            f"The group no longer reads the topic of {name_some(left, ', ')}: no one reads these records again (recorded as a "
            f"gap). Keep that part of the output, or first put the topic back into the group's topics. {_BACK_AGAIN}"
        )
    return told


def how_to_go_on(group: str, back_at: Offsets) -> list[str]:
    """Return a sentence that says how to read on in topics that are back, without a record of their windows a second time; or none.

    Args:
        group: its name.
        back_at: where to continue in these topics.
    """
    if not back_at:
        return []
    return [
        f"Kafka has topic {name_some(topics_of(back_at), ', ')} under an id again that the group has read. To continue where it "
        f"stood there: {reset_command(group, back_at)}."
    ]


def summary_of_reset(reset: Reset) -> dict[str, object]:
    """Return the facts for the ledger's record of the act."""
    return {
        "moves": {str(tp): [old, new] for tp, (old, new) in reset.moves.items()},
        "skipped": named_ranges(reset.skipped),
        "superseded": [window.id for window in reset.superseded],
        **({LEFT: _left(reset.left)} if reset.left.topic_ids else {}),
        **({"replaced": named_ranges(reset.replaced)} if reset.replaced else {}),
        **({"read_by_others": named_ranges(reset.read_by_others)} if reset.read_by_others else {}),
        **leader_epochs.unchecked_details(reset.unchecked),
        **({"unread": {id_: named_ranges(ranges) for id_, ranges in reset.unread.items()}} if reset.unread else {}),
        **({KEPT: kept.document(_newly_kept(reset))} if reset.unread else {}),
        **({TAKEN: kept.document(reset.taken)} if reset.taken else {}),
    }


def _newly_kept(reset: Reset) -> Iterator[Kept]:
    for window in reset.superseded:
        for tp, owned in reset.unread.get(window.id, {}).items():
            yield Kept(window.id, tp, window.topic_ids.get(tp.topic, ""), owned)
