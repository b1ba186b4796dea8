"""Takes offsets over from one source to another: import, copy and export. Compares ledger, offset store and Kafka.

Each use case that takes offsets over has two halves. The first works out what would happen, and writes nothing. The second
does it, if nothing has changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_kafka_offsets.core import leader_epochs
from airflow_kafka_offsets.core.errors import (
    BadInputError,
    KafkaAnswerError,
    KafkaRefusedError,
    NotYetError,
    StoreRefusedError,
    UnknownGroupError,
)
from airflow_kafka_offsets.core.group import KafkaGroup, check_reads
from airflow_kafka_offsets.core.history import FOUNDED, Act
from airflow_kafka_offsets.core.log import LogSnapshot
from airflow_kafka_offsets.core.offsets import Offsets, topics_of
from airflow_kafka_offsets.core.plan.matching import appeared_note
from airflow_kafka_offsets.core.plan.ownership import GroupState, Position, watermark
from airflow_kafka_offsets.core.plan.planning import SECOND_LOOK_LEVEL, suspects
from airflow_kafka_offsets.core.plan.reset import Reset, check_confirmed, check_no_open_window, summary_of_reset
from airflow_kafka_offsets.core.source import importing, verifying
from airflow_kafka_offsets.core.source.importing import ImportedOffsets, Moves
from airflow_kafka_offsets.core.source.offsets import Meaning, SourceOffsets, next_offsets, only
from airflow_kafka_offsets.core.source.verifying import Difference, OlderLedger
from airflow_kafka_offsets.core.store.guarantees import must_write
from airflow_kafka_offsets.core.window import WindowRecord
from airflow_kafka_offsets.ports import LogOffsets, OffsetSource, OffsetStore
from airflow_kafka_offsets.service.base import utc_now
from airflow_kafka_offsets.service.publish import Publisher
from airflow_kafka_offsets.service.replay import from_oldest_open
from airflow_kafka_offsets.service.reset import snapshot_of_all, work_out
from airflow_kafka_offsets.service.sources import StoreSource
from airflow_kafka_offsets.service.topics import topics_now, topics_to_take

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger

LOOKS = 5
"""How often ledger and store are compared again when the group moves meanwhile."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What a person takes from a source.

    Attributes:
        source: the source.
        name: the name under which it keeps the offsets.
        meaning: whether its numbers are next offsets or last offsets read.
        topics: only these, or none for all that the group reads or the source has.
    """

    source: OffsetSource
    name: str
    meaning: Meaning = Meaning.NEXT
    topics: tuple[str, ...] = ()

    def read(self, topics: Sequence[str]) -> SourceOffsets:
        """Return what the source holds.

        Args:
            topics: what to ask for when the person named none.

        Raises:
            BadInputError: it holds nothing of that.
        """
        offsets = self.source.read(self.topics or topics)
        offsets = replace(offsets, offsets=only(offsets.offsets, self.topics))
        importing.check_something(self.source.name, self.name, offsets)
        return offsets


@dataclass(frozen=True, slots=True)
class Import:
    """What an import would do.

    Attributes:
        group: as the ledger has it, or as the import would create it.
        selection: where the offsets are from.
        imported: these offsets.
        notes: warnings about them.
        left_open: if the source is a group of the ledger: its windows that wait for their commit, and those that were committed behind
            them. They are read again.
        log: what Kafka holds of their topics.
        position: where the group will continue.
        state: the group at that moment.
        unchecked: the leader epochs, of the source and of the group, whose ends Kafka did not report. They are noted, so the next plan asks.
        reset: how its watermark moves, or None if the group is new to the ledger.
    """

    group: KafkaGroup
    selection: Selection
    imported: ImportedOffsets
    notes: tuple[str, ...]
    left_open: tuple[WindowRecord, ...]
    log: LogSnapshot
    position: Position
    state: GroupState
    unchecked: tuple[leader_epochs.PartitionEpoch, ...]
    reset: Reset | None


@dataclass(frozen=True, slots=True)
class Export:
    """The next offsets of a source.

    Attributes:
        selection: where they are from.
        stored: the numbers as the source has them.
        notes: warnings about them.
        offsets: the next offsets.
    """

    selection: Selection
    stored: Offsets
    notes: tuple[str, ...]
    offsets: Offsets


@dataclass(frozen=True, slots=True)
class Copy:
    """What a copy would do.

    Attributes:
        group: the group.
        given: what the source holds.
        store: the store that gets it.
        held: what the store holds now.
    """

    group: str
    given: Export
    store: str
    held: Offsets

    @property
    def moves(self) -> Moves:
        """The old and new offset of each partition that changes."""
        return importing.moves(self.held, self.given.offsets)


class Moving:
    """The use cases on one ledger."""

    def __init__(self, ledger: Ledger, clock: Callable[[], datetime] = utc_now) -> None:
        self._ledger = ledger
        self._clock = clock

    def group_or_none(self, name: str) -> KafkaGroup | None:
        """Return a group of the ledger, or None if it has none of this name."""
        try:
            return self._ledger.group(name)
        except UnknownGroupError:
            return None

    def plan_import(
        self,
        name: str,
        selection: Selection,
        open_log: Callable[[KafkaGroup], LogOffsets],
        *,
        kafka_conn_id: str | None = None,
        skip_lost: bool = False,
        leave_gap: bool = False,
    ) -> Import:
        """Work out an import without writing anything.

        Args:
            name: the group that continues from there. If the ledger does not have it, the import creates it.
            selection: where the offsets are, and which.
            open_log: opens the group's Kafka.
            kafka_conn_id: the Airflow connection of a group that is created.
            skip_lost: continue at the beginning offset where retention has removed what would come next.
            leave_gap: take the offsets of the group's own store also if the ledger may be older than the store.

        Raises:
            BadInputError: the source has nothing that could be taken over; the message has the numbers. Or the ledger may be older.
            DataLossError: retention has removed what would come next, and `skip_lost` is not set.
            LogTruncatedError: the source is a group of the ledger, and Kafka has replaced records since it read them.
            IllegalStepError: a window of the group waits for its commit, or would be cut.
            StoreError, KafkaAnswerError: as they say.
        """
        # The state first: a group that plans its first window between the two looks is known then, and its state is outdated.
        state = self._ledger.load(name)
        group = self.group_or_none(name)
        if group is not None:
            _check_group(group, state, selection.topics, kafka_conn_id)
        # A pattern may match topics that the group has not planned yet.
        kafka = open_log(group) if group is not None else None
        source_offsets = selection.read(topics_now(kafka, group, state.position) if group and kafka else ())
        topics = sorted({tp.topic for tp in source_offsets.offsets} | set(selection.topics))
        if group is not None:
            check_reads(group, topics)
        else:
            group = KafkaGroup(name, topics=topics, kafka_conn_id=kafka_conn_id or "kafka_default")
        kafka = kafka or open_log(group)
        snapshot = snapshot_of_all(kafka, group, topics, state.position)
        imported = importing.to_import(
            selection.source.name, source_offsets, selection.meaning, snapshot, skip_lost=skip_lost
        )
        reset = work_out(self._ledger, kafka, group, state, imported.target, snapshot) if state.position else None
        if not leave_gap:
            self._check_not_older(group, selection, state, imported)
        silent = _check_replaced(selection.name, source_offsets, snapshot, kafka)
        position = leader_epochs.asked_again(reset.position if reset else imported.position(snapshot), silent)
        unchecked = leader_epochs.one_of_each([*silent, *(reset.unchecked if reset else ())])
        left_open = importing.left_open(source_offsets.later, topics)
        notes = (*source_offsets.notes, *importing.left_open_notes(left_open))
        return Import(group, selection, imported, notes, left_open, snapshot, position, state, unchecked, reset)

    def _check_not_older(
        self, group: KafkaGroup, selection: Selection, state: GroupState, imported: ImportedOffsets
    ) -> None:
        source, before = selection.source, state.position.offsets if state.position else {}
        if not isinstance(source, StoreSource) or selection.name != group.name:
            return
        moved = [offset - before[tp] for tp, offset in imported.target.items() if before.get(tp, offset) != offset]
        older = Publisher(self._ledger, source.store, self._clock).older_ledger(
            group, moved, topics_of(imported.target)
        )
        if older is not None:
            raise BadInputError(
                f"Group {group.name} would skip offsets, and name new windows like others that may have output. {older.advice}"
            )

    def carry_out_import(
        self, plan: Import, who: str, why: str, *, supersede: bool = False, store: OffsetStore | None = None
    ) -> None:
        """Do an import: a person's act.

        Args:
            plan: of `plan_import`.
            who: who does it.
            why: the reason, kept in the ledger.
            supersede: the person confirms that windows lose their offsets.
            store: the group's own offset store, which follows, or None if it has none.

        Raises:
            ConfirmationError: windows would lose their offsets, and `supersede` is not set.
            ConcurrentChangeError: the group has changed since.
            StoreDriftError: the group's store is neither at the group's offsets nor at the new ones; nothing was changed.
        """
        act = Act("import", who, why, self._clock(), _import_details(plan))
        if plan.reset is None:
            self._ledger.found(plan.group, plan.position, act)
            return
        name, reset = plan.group.name, plan.reset
        check_confirmed(name, reset, supersede)
        before = plan.state.position.offsets if plan.state.position else {}
        after = {**before, **plan.position.offsets}
        if store is not None:
            must_write(store.name, name, before, after, store.read(name, topics_of(after)))
        superseded = [window.seq for window in reset.superseded]
        self._ledger.reset(name, plan.state.version, plan.position, superseded, act)
        Publisher(self._ledger, store, self._clock).follow_reset(name, before, after)

    def plan_copy(
        self, group: KafkaGroup, selection: Selection, store: OffsetStore, open_log: Callable[[KafkaGroup], LogOffsets]
    ) -> Copy:
        """Work out a copy into an offset store without writing anything.

        Args:
            group: as the ledger has it.
            selection: where the offsets are from, and which.
            store: the store that gets them.
            open_log: opens the group's Kafka, which is asked only for the topics of a pattern.

        Raises:
            BadInputError: the source has nothing that could be copied.
            StoreError: source or store did not answer.
            KafkaAnswerError: see `plan_export`.
        """
        taken = self._taken(group, selection, open_log)
        # The store first: a commit after that look moves it, and then the copy's comparison refuses offsets that are older by now.
        ours = sorted(selection.topics or taken.topics)
        held = store.read(group.name, ours)
        given = _export(group, selection, taken)
        topics = topics_of(given.offsets)
        if others := [topic for topic in topics if topic not in ours]:  # not the group's: no commit moves them
            held |= store.read(group.name, others)
        return Copy(group.name, given, store.name, {tp: offset for tp, offset in held.items() if tp.topic in topics})

    def carry_out_copy(self, plan: Copy, store: OffsetStore, who: str, why: str) -> Moves:
        """Record a copy, do it, and read it back.

        The order is on purpose: if something dies in the middle, the ledger has what may have been written. The ledger has
        what was asked for; the store has the result.

        Returns:
            By partition, the offset in the store (or None) and the written one, where they differ. Usually there is no such partition.

        Raises:
            StoreDriftError: the store has changed since; nothing was written.
            StoreError: as it says.
        """
        after = plan.given.offsets
        details = {
            **_origin(plan.given.selection),
            "store": plan.store,
            "moves": {str(tp): list(move) for tp, move in plan.moves.items()},
        }
        self._ledger.record(plan.group, Act("copy", who, why, self._clock(), details))
        store.advance(plan.group, {tp: offset for tp, offset in plan.held.items() if tp in after}, after)
        return importing.moves(store.read(plan.group, topics_of(after)), after)

    def plan_export(
        self, group: KafkaGroup, selection: Selection, open_log: Callable[[KafkaGroup], LogOffsets]
    ) -> Export:
        """Return the next offsets of a source. Writes nothing.

        Args:
            group: as the ledger has it.
            selection: where the offsets are from, and which.
            open_log: opens the group's Kafka, which is asked only for the topics of a pattern.

        Raises:
            BadInputError: the source has nothing of these topics.
            StoreError: it did not answer.
            KafkaAnswerError: Kafka did not answer which topics the pattern matches, and the source has to be asked for topics by name.
        """
        return _export(group, selection, self._taken(group, selection, open_log))

    def _taken(self, group: KafkaGroup, selection: Selection, open_log: Callable[[KafkaGroup], LogOffsets]) -> _Taken:
        """Find out which topics are taken over. The stored topics of a pattern are those of the last plan: one may have appeared since."""
        if group.topics_pattern is None or selection.topics:
            return _Taken(tuple(group.topics))
        position = self._ledger.load(group.name).position
        try:
            return _Taken(topics_to_take(open_log(group), group, position), position)
        except (KafkaAnswerError, NotYetError) as exc:
            if isinstance(selection.source, StoreSource):  # it would leave a topic out, and no one would know
                raise
            # A source that is not asked by topic answers without Kafka. So this command works also while Kafka is away.
            note = f"whether topics have appeared since the group last planned is not known: {exc}"
            return _Taken(tuple(group.topics), position, note)

    def record_export(self, group: str, export: Export, to: str, who: str, why: str) -> None:
        """Record that offsets go into a file. As with a copy, this comes first."""
        offsets = {str(tp): offset for tp, offset in export.offsets.items()}
        details = {**_origin(export.selection), "to": to, "offsets": offsets}
        self._ledger.record(group, Act("export", who, why, self._clock(), details))

    def verify(self, group: KafkaGroup, store: OffsetStore | None, kafka: LogOffsets) -> list[Difference]:
        """Compare the ledger, an offset store and Kafka. Writes nothing.

        Raises:
            StoreError, KafkaAnswerError: one of them did not answer, or said no.
        """
        for _ in range(LOOKS):
            state = self._ledger.load(group.name)
            differences = self._compare(group, state, store, kafka)
            now = self._ledger.load(group.name) if differences else state
            if (now.version, now.open) == (state.version, state.open):
                break
            # A commit may have moved the store after this look at the ledger.
        return differences

    def refusal(self, group: str, store: OffsetStore | None) -> str | None:
        """Return why the store would refuse a commit at this moment, or None if nothing is known."""
        try:
            if store is not None:
                store.check_writable(group)
        except StoreRefusedError as exc:
            return str(exc)
        return None

    def older_ledger(
        self, group: KafkaGroup, store: OffsetStore, differences: Sequence[Difference]
    ) -> OlderLedger | None:
        """Return the ledger if it is older than the store, by what `verify` returned; else None."""
        differing = [d for d in differences if d.in_store]
        ahead = [d.store - d.watermark for d in differing if d.store is not None and d.watermark is not None]
        topics = topics_of([d.tp for d in differing])
        return Publisher(self._ledger, store, self._clock).older_ledger(group, ahead, topics) if differing else None

    def _compare(
        self, group: KafkaGroup, state: GroupState, store: OffsetStore | None, kafka: LogOffsets
    ) -> list[Difference]:
        mark = watermark(state)
        topics = sorted({tp.topic for tp in mark.offsets} | set(group.topics)) if mark else list(group.topics)
        stored = store.read(group.name, topics) if store is not None else None
        steps = Publisher(self._ledger, store, self._clock).path(group.name, state)
        log = kafka.snapshot(topics_now(kafka, group, mark), group.isolation_level)
        recovered = kafka.bounds(behind, SECOND_LOOK_LEVEL) if (behind := suspects(mark, log)) else {}
        if stored is None:
            return verifying.compare(state, group.reads, stored, log, steps, recovered)
        gone = _gone(kafka, verifying.in_one_only(mark, stored) - log.topic_ids.keys())
        later = [held.window for held in from_oldest_open(self._ledger, group.name, state)]
        return verifying.compare(state, group.reads, stored, log, steps, recovered, gone, later)


@dataclass(frozen=True, slots=True)
class _Taken:
    """Which topics of a group are taken over from a source.

    Attributes:
        topics: to ask for.
        position: where the group's next live window starts, or None if there was none, or if the topics are a list.
        note: why Kafka could not be asked, or None if it was, or need not be.
    """

    topics: tuple[str, ...]
    position: Position | None = None
    note: str | None = None


def _export(group: KafkaGroup, selection: Selection, taken: _Taken) -> Export:
    source_offsets = selection.read(taken.topics)
    note = taken.note
    if group.topics_pattern is not None and not selection.topics and note is None:
        topics = topics_of(source_offsets.offsets)
        note = appeared_note(group, taken.topics, taken.position, topics, selection.source.name)
    behind = importing.committed_behind_note(
        importing.left_open(source_offsets.later, topics_of(source_offsets.offsets))
    )
    notes = (*source_offsets.notes, *behind, *([] if note is None else [note]))
    return Export(selection, source_offsets.offsets, notes, next_offsets(source_offsets.offsets, selection.meaning))


def _origin(selection: Selection) -> dict[str, str]:
    return {"source": selection.source.name, "name": selection.name, "meaning": selection.meaning.value}


def _import_details(plan: Import) -> dict[str, object]:
    details: dict[str, object] = {**_origin(plan.selection), **importing.facts(plan.imported)}
    if plan.left_open:
        details["left_open"] = [held.id for held in plan.left_open]
    if plan.reset is not None:
        return details | summary_of_reset(replace(plan.reset, unchecked=plan.unchecked))
    details |= leader_epochs.unchecked_details(plan.unchecked)
    details[FOUNDED] = {str(tp): offset for tp, offset in plan.position.offsets.items()}
    details["from_beginning"] = [str(tp) for tp in plan.imported.unnamed]
    return details


def _gone(kafka: LogOffsets, topics: set[str]) -> set[str]:
    """Return which topics Kafka does not have; none if this user may not look at them: a group needs no right on what it has left."""
    try:
        return topics - kafka.topic_ids(sorted(topics)).keys() if topics else set()
    except KafkaRefusedError:
        return set()


def _check_replaced(
    source: str, source_offsets: SourceOffsets, log: LogSnapshot, kafka: LogOffsets
) -> list[leader_epochs.PartitionEpoch]:
    """Refuse offsets of a group below which Kafka has other records now. Return the leader epochs whose ends it did not report."""
    noted = {tp: epoch for tp, epoch in source_offsets.leader_epochs.items() if tp in source_offsets.offsets}
    doubtful = leader_epochs.doubtful(noted, source_offsets.topic_ids, log)
    ends = kafka.epoch_ends(doubtful)
    leader_epochs.check_position(source, Position(source_offsets.offsets, source_offsets.topic_ids, noted), log, ends)
    return leader_epochs.unanswered(doubtful, ends)


def _check_group(group: KafkaGroup, state: GroupState, topics: Sequence[str], kafka_conn_id: str | None) -> None:
    check_no_open_window(state)
    check_reads(group, topics)
    if kafka_conn_id not in (None, group.kafka_conn_id):
        raise BadInputError(
            f"The ledger knows group {group.name} with the connection {group.kafka_conn_id}, which its DAG sets: leave "
            "--kafka-conn-id out"
        )
