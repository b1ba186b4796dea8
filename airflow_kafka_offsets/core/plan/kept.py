"""What people keep of superseded windows (docs/design.md, rule 9).

A reset takes all offsets away from the windows that it supersedes, and most are read again. A part is not, if its topic has left the group
or was recreated. People keep the output of that part. So it counts as read, although no window owns it: no replay reads it, and a reset
to before it names it first. The acts alone tell what is kept: what each has added, and what each has taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_kafka_offsets.core.errors import name_some
from airflow_kafka_offsets.core.history import KEPT, TAKEN
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.ownership import Position, reset_command
from airflow_kafka_offsets.core.ranges import OffsetRange


@dataclass(frozen=True, slots=True)
class Kept:
    """Offsets of one topic-partition that a superseded window has read, and no one is to read again.

    Attributes:
        window_id: the window, whose output of these offsets stays.
        tp: the topic-partition.
        topic_id: the id of its topic.
        offsets: ``start <= offset < end``, not empty.
    """

    window_id: str
    tp: TopicPartition
    topic_id: str
    offsets: OffsetRange

    def __str__(self) -> str:
        return f"{self.window_id} {self.tp} {self.offsets}"

    def within(self, offsets: OffsetRange) -> Iterator[Kept]:
        """Return what of it lies in a range, if anything does."""
        if shared := self.offsets.shared_with(offsets):
            yield replace(self, offsets=shared)


def kept_parts(acts: Iterable[Mapping[str, Any]]) -> list[Kept]:
    """Return what is kept.

    Args:
        acts: the details of all acts of a group, oldest first.
    """
    kept: dict[tuple[str, TopicPartition], Kept] = {}
    for details in acts:
        # A reset takes what lies at its position or above it.
        for taken in _parts(details.get(TAKEN, {})):
            part = kept.pop((taken.window_id, taken.tp), taken)
            for rest in part.within(OffsetRange(0, taken.offsets.start)):
                kept[rest.window_id, rest.tp] = rest
        kept |= {(part.window_id, part.tp): part for part in _parts(details.get(KEPT, {}))}
    return list(kept.values())


def above(kept: Iterable[Kept], position: Position) -> tuple[Kept, ...]:
    """Return what of the kept parts the next live windows read, if they start at a position."""
    ids, offsets = position.topic_ids, position.offsets
    there = [part for part in kept if ids.get(part.tp.topic) == part.topic_id]
    return tuple(
        rest
        for part in there
        for rest in part.within(OffsetRange(min(offsets.get(part.tp, 0), part.offsets.end), part.offsets.end))
    )


def document(parts: Iterable[Kept]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return parts as the record of an act has them: ``{window id: {topic: {"id": topic id, partition: [start, end]}}}``."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for part in parts:
        of_topic = found.setdefault(part.window_id, {}).setdefault(part.tp.topic, {"id": part.topic_id})
        of_topic[str(part.tp.partition)] = [part.offsets.start, part.offsets.end]
    return found


def _parts(named: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[Kept]:
    for window_id, of_window in named.items():
        for topic, of_topic in of_window.items():
            for partition, offsets in of_topic.items():
                if partition != "id":
                    yield Kept(window_id, TopicPartition(topic, int(partition)), of_topic["id"], OffsetRange(*offsets))


def to_remove(taken: Iterable[Kept]) -> list[str]:
    """Return a sentence that names the kept output that has to go now, because its offsets are read again; or none."""
    if not (names := [str(part) for part in taken]):
        return []
    return [
        f"New windows read again what an earlier reset told people to keep: {name_some(names, ', ')}. Remove exactly this part of what "
        "the windows named here wrote, or records count twice."
    ]


def left_out(group: str, kept: Iterable[Kept]) -> str:
    """Return what to know of a replay that leaves out kept offsets, and the command that reads them again after all; empty: there are none."""
    parts = sorted(kept, key=lambda part: (part.tp, part.offsets.start))
    if not parts:
        return ""
    starts = {part.tp: part.offsets.start for part in reversed(parts)}
    return (
        f"A reset told people to keep the output of {name_some(parts, ', ')}, so a replay does not read these offsets. To have new windows "
        f"read them after all, and what comes after them, too: {reset_command(group, starts)}. It says which output has to be removed"
    )
