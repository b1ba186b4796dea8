"""Whether ledger, offset store and Kafka agree."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass

from airflow_kafka_offsets.core.errors import import_command, publish_again
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.log import Bounds, LogSnapshot
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition
from airflow_kafka_offsets.core.plan.ownership import NOWHERE, GroupState, Position, watermark
from airflow_kafka_offsets.core.plan.planning import Verdict, judge
from airflow_kafka_offsets.core.store.advance import first_starts
from airflow_kafka_offsets.core.window import State, Window


@dataclass(frozen=True, slots=True)
class Difference:
    """A partition on which ledger, store and Kafka don't agree.

    Attributes:
        tp: the partition.
        watermark: the ledger's, or None if it has none.
        store: what the offset store holds, or None if nothing, or there is no store.
        bounds: its log in Kafka, or None if Kafka does not have it, or the group does not read it.
        in_store, in_kafka: what is wrong there, in a few words each.
    """

    tp: TopicPartition
    watermark: int | None
    store: int | None
    bounds: Bounds | None
    in_store: tuple[str, ...] = ()
    in_kafka: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """All problems, of store and Kafka."""
        return self.in_store + self.in_kafka

    @property
    def is_ahead(self) -> bool:
        """Whether the store is ahead of the ledger."""
        return bool(self.in_store) and self.store is not None and self.store > (self.watermark or 0)

    @property
    def can_be_copied(self) -> bool:
        """Whether ledger or store may be right. Offsets of an earlier topic of the name are wrong in both."""
        return bool(self.in_store) and Verdict.RECREATED.value not in self.in_kafka


_WAS_COMMITTED = frozenset({State.COMMITTING, State.COMMITTED, State.SUPERSEDED})

KEEP_LEDGER = "docs/howto/keep-the-ledger.md#it-is-lost-or-older-than-the-output"


@dataclass(frozen=True, slots=True)
class OlderLedger:
    """A ledger that is older than a group's offset store: it was restored from an older copy, or made again.

    Attributes:
        group: the group.
        store: the address of the store.
        window_id: the store's window that this ledger never committed. None if the store names no window: then it is only ahead,
            and someone else may have moved it.
    """

    group: KafkaGroup
    store: str
    window_id: str | None

    @property
    def advice(self) -> str:
        """What to do: a sentence, and commands on lines of their own."""
        name = self.group.name
        why = (
            f"The ledger is older than the store, as it never committed {self.window_id}"
            if self.window_id
            else "If the ledger was restored from an older copy"
        )
        colon = ": " if self.window_id else ", "
        move_on = import_command(name, self.store, self.group.topics, self.group.kafka_conn_id)
        moved = "" if self.window_id else f"\nIf someone else moved the store:{publish_again(name, self.store)}"
        return f"{why}{colon}keep the output, and continue under another name ({KEEP_LEDGER}):{move_on}{moved}"


def older_ledger(
    group: KafkaGroup, store: str, ahead: Collection[int], named: Mapping[str, State | None]
) -> OlderLedger | None:
    """Decide whether the ledger is older than the offset store. Return None if it is not.

    Args:
        group: the group.
        store: the address of the store.
        ahead: by how much the store is ahead of the ledger, in each partition in which they differ; negative if it is behind.
        named: the windows of the group whose commits wrote the store's offsets, with their states in the ledger (None if it does not have
            them). None are named if the store has no place for them.
    """
    if unknown := [window_id for window_id, state in named.items() if state not in _WAS_COMMITTED]:
        return OlderLedger(group, store, max(unknown))
    is_ahead = bool(ahead) and min(ahead) > 0
    return OlderLedger(group, store, None) if is_ahead and not named else None


_FINE = frozenset({Verdict.CONTINUE, Verdict.FIRST, Verdict.NEW_PARTITION, Verdict.LEFT_GROUP})


def compare(
    state: GroupState,
    topics: Container[str],
    stored: Offsets | None,
    log: LogSnapshot,
    steps: Sequence[Offsets] = (),
    recovered: Mapping[TopicPartition, Bounds] | None = None,
    gone: Container[str] = (),
    later: Sequence[Window] = (),
) -> list[Difference]:
    """Compare ledger, offset store and Kafka.

    A partition that Kafka does not have may be in one of ledger and store only: a consumer group can't have it, and another store keeps it.

    Args:
        state: the group in the ledger.
        topics: those that the group reads.
        stored: what the store holds, or None if there is none to compare with.
        log: what Kafka holds of these topics.
        steps: other offsets that are right in the store while commits are under way.
        recovered: the bounds that a second look returned for logs that seem to end before the watermark, see `core.plan.planning`.
        gone: topics that the group does not read, and Kafka does not have.
        later: the live windows from the oldest open one on, oldest first. Planning replaces what a store had of their new partitions.
    """
    mark = watermark(state) or NOWHERE
    right = [published(state, later), *steps]
    differences = []
    for tp in sorted(mark.offsets.keys() | (stored or {}).keys()):
        of_ledger, of_store = mark.offsets.get(tp), (stored or {}).get(tp)
        is_gone = tp not in log.bounds if tp.topic in topics else tp.topic in gone
        if is_gone and of_ledger is None:
            continue
        is_compared = stored is not None and not (is_gone and of_store is None)
        in_store = _in_store(of_ledger, of_store, {step[tp] for step in right if tp in step}) if is_compared else ()
        in_kafka = _in_kafka(tp, mark, log, (recovered or {}).get(tp)) if tp.topic in topics else ()
        if in_store or in_kafka:
            differences.append(Difference(tp, of_ledger, of_store, log.bounds.get(tp), in_store, in_kafka))
    return differences


def in_one_only(mark: Position | None, stored: Offsets) -> set[str]:
    """Return the topics of the partitions that only one of ledger and store has."""
    return {tp.topic for tp in (mark.offsets.keys() if mark else set()) ^ stored.keys()}


def published(state: GroupState, later: Sequence[Window]) -> dict[TopicPartition, int]:
    """Return the offsets that the group's store should hold. What was lost before an open window counts only after its commit.

    Args:
        state: the group.
        later: its live windows from the oldest open one on, read after the state. One that is no longer among them was abandoned since:
            the position of the state is still its end.
    """
    windows = {window.seq: window for window in (*(held.window for held in state.open), *later)}
    starts = first_starts([windows[seq] for seq in sorted(windows)])
    return {**(state.position.offsets if state.position else {}), **starts}


def committing(state: GroupState) -> tuple[str, ...]:
    """Return the windows whose commit has begun: the store may have their end offsets already."""
    return tuple(w.id for w in state.open if w.state is State.COMMITTING)


def committing_note(state: GroupState) -> tuple[str, ...]:
    """Return the note about commits that have begun."""
    return tuple(
        f"the commit of {window_id} is under way, so the store may have its end offsets"
        for window_id in committing(state)[:1]
    )


def _in_store(watermark: int | None, stored: int | None, right: set[int]) -> tuple[str, ...]:
    if stored == watermark or stored in right:
        return ()
    if watermark is None:
        return ("only in the store",)
    if stored is None:
        return ("not in the store",)
    return (f"store {'ahead' if stored > watermark else 'behind'} by {abs(stored - watermark)}",)


def _in_kafka(tp: TopicPartition, mark: Position, log: LogSnapshot, recovered: Bounds | None) -> tuple[str, ...]:
    verdict = judge(tp, mark, log, recovered)
    return () if verdict in _FINE else (verdict.value,)
