"""Whether a table holds each record that the windows of a group read, once.

The ledger has the offsets of each window, and how many records its job read, but not at which offsets. Some offsets have no record:
compaction removes records, transactions write markers, and aborted records are not read. So the number of a window's offsets
that the table has decides:

- As many as the job read records: the table has all. The other offsets had no record.
- Fewer: the difference is missing, at some of the offsets that the table does not have.
- The job did not count: each missing offset is a missing record if the group has ``expect_gaps=False``; otherwise it is unknown.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from airflow_kafka_offsets.core.log import may_be_same
from airflow_kafka_offsets.core.offsets import MAX_OFFSET, Offsets, TopicPartition
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.source.islands import Island, Islands, Piece, pieces
from airflow_kafka_offsets.core.window import Window


@dataclass(frozen=True, slots=True)
class Finding:
    """What a table has of a window.

    Attributes:
        window_id: the window.
        span: how many offsets it owns, without those of topics that were recreated since.
        records: how many records its job read at these offsets; None means not known.
        present: how many of these offsets the table has.
        missing: how many records the table lacks; None means not known.
        holes: the offsets that the table does not have, if records are or may be missing.
        doubled: the offsets that the table has more than once.
    """

    window_id: str
    span: int
    records: int | None
    present: int
    missing: int | None
    holes: tuple[Piece, ...] = ()
    doubled: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class Audit:
    """What a table has of the windows of a group.

    Attributes:
        windows: how many windows were compared.
        present: how many of their offsets the table has.
        without_record: how many of their offsets had no record.
        findings: the windows with missing or doubled records, or where this is not known; oldest first.
        at_join: the missing offsets between older data in the table and the start of the group's first window.
        outside: offsets in the table that no window of the group has read, in order.
        other_topics: windows that were compared only in part: the rest belongs to an earlier topic of the same name.
    """

    windows: int
    present: int
    without_record: int
    findings: tuple[Finding, ...]
    at_join: tuple[Piece, ...] = ()
    outside: tuple[Piece, ...] = ()
    other_topics: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[Finding, ...]:
        """The windows with missing records."""
        return tuple(finding for finding in self.findings if finding.missing)

    @property
    def doubled(self) -> tuple[Finding, ...]:
        """The windows with records that the table has more than once."""
        return tuple(finding for finding in self.findings if finding.doubled)

    @property
    def unknown(self) -> tuple[Finding, ...]:
        """The windows where it is not known whether records are missing."""
        return tuple(finding for finding in self.findings if finding.missing is None)

    @property
    def is_right(self) -> bool:
        """Whether nothing is known to be missing or doubled."""
        is_doubled_elsewhere = any(piece.copies > 1 for piece in self.outside)
        return not (self.missing or self.doubled or self.at_join or is_doubled_elsewhere)


@dataclass(slots=True)
class Auditor:
    """Compares windows with a table, one after the other, newest first.

    Args:
        table: what the table has.
        topic_ids: the current id of each topic that the group reads.
        expects_gaps: the group's ``expect_gaps``: whether offsets without a record are normal.
        is_whole: whether all windows of the group are compared. Then offsets that belong to no window are reported, too.
        floors: below these offsets, the ledger has lost the owners, so what the table should have is unknown.
    """

    table: Islands
    topic_ids: Mapping[str, str]
    expects_gaps: bool
    is_whole: bool
    floors: Offsets = field(default_factory=dict)
    _owned: defaultdict[TopicPartition, list[OffsetRange]] = field(
        init=False, default_factory=lambda: defaultdict(list)
    )

    def audit(self, windows: Iterable[tuple[Window, int | None]]) -> Audit:
        """Compare committed windows with the table. Each comes with the number of records that its job read."""
        number = present = without = 0
        findings, partial = [], []
        for window, records in windows:
            ranges = self._of_these_topics(window)
            if ranges.span < window.span:
                partial.append(window.id)
                records = _of_the_rest(window, ranges, records)
                if not ranges:
                    continue
            finding = self._look_at(window.id, ranges, records)
            number, present = number + 1, present + finding.present
            if finding.missing == 0:
                without += finding.span - finding.present
            if finding.missing != 0 or finding.doubled:
                findings.append(finding)
        owned = {tp: merged(ranges) for tp, ranges in self._owned.items()}
        return Audit(
            *(number, present, without, tuple(reversed(findings))),
            at_join=tuple(self._at_join(owned)) if self.is_whole and not self.expects_gaps else (),
            outside=tuple(self._outside(owned)) if self.is_whole else (),
            other_topics=tuple(reversed(partial)),
        )

    def _of_these_topics(self, window: Window) -> OffsetRanges:
        """Return a window's ranges, without topics that were recreated since: their offsets mean something else."""
        then, now = window.topic_ids, self.topic_ids
        owned = window.ranges.without_empty()
        same = {topic for topic, id_ in then.items() if may_be_same(id_, now.get(topic, id_))}
        return OffsetRanges((tp, r) for tp, r in owned.items() if tp.topic in same)

    def _look_at(self, window_id: str, ranges: OffsetRanges, records: int | None) -> Finding:
        holes, doubled, present = [], [], 0
        for tp, owned in ranges.items():
            self._note(tp, owned)
            for piece in pieces(self._near(tp, owned), tp, owned):
                if not piece.copies:
                    holes.append(piece)
                    continue
                present += piece.offsets.span
                if piece.copies > 1:
                    doubled.append(piece)
        missing = self._missing(ranges.span, records, present)
        return Finding(
            *(window_id, ranges.span, records, present, missing),
            holes=() if missing == 0 else tuple(holes),
            doubled=tuple(doubled),
        )

    def _missing(self, span: int, records: int | None, present: int) -> int | None:
        if records is not None:
            return max(0, records - present)
        return span - present if present == span or not self.expects_gaps else None

    def _near(self, tp: TopicPartition, owned: OffsetRange) -> Sequence[Island]:
        islands = self.table.get(tp, ())
        first = bisect_right(islands, owned.start, key=lambda island: island.start) - 1
        last = bisect_left(islands, owned.end, key=lambda island: island.start)
        return islands[max(0, first) : last]

    def _note(self, tp: TopicPartition, owned: OffsetRange) -> None:
        # Windows come newest first and tile the log. So neighbors merge, and few ranges stay in memory.
        ranges = self._owned[tp]
        if ranges and ranges[-1].start == owned.end:
            ranges[-1] = OffsetRange(owned.start, ranges[-1].end)
        else:
            ranges.append(owned)

    def _outside(self, owned: Mapping[TopicPartition, Sequence[OffsetRange]]) -> Iterator[Piece]:
        for tp, islands in self.table.items():
            gaps = list(between(owned.get(tp, ())))
            floor = self.floors.get(tp, 0)
            for island in islands:
                for gap in gaps:
                    start, end = max(island.start, gap.start, floor), min(island.end, gap.end)
                    if start < end:
                        yield Piece(tp, OffsetRange(start, end), island.copies)

    def _at_join(self, owned: Mapping[TopicPartition, Sequence[OffsetRange]]) -> Iterator[Piece]:
        for tp, ranges in owned.items():
            start = ranges[0].start
            if self.floors.get(tp):
                continue  # the window before the first one has left the ledger, and with it what it left out
            before = [island.end for island in self.table.get(tp, ()) if island.start < start]
            if before and before[-1] < start:
                yield Piece(tp, OffsetRange(before[-1], start), 0)


def _of_the_rest(window: Window, ranges: OffsetRanges, records: int | None) -> int | None:
    # The job has one count, for the whole window. If each of its offsets had a record, each of the remaining offsets had one.
    return ranges.span if records == window.span else None


def merged(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the same offsets in as few ranges as possible, in order. The ranges must not overlap.

    >>> [str(r) for r in merged([OffsetRange(5, 9), OffsetRange(0, 5), OffsetRange(12, 13)])]
    ['[0, 9)', '[12, 13)']
    """
    all_: list[OffsetRange] = []
    for offsets in sorted(ranges, key=lambda r: r.start):
        if all_ and all_[-1].end == offsets.start:
            all_[-1] = OffsetRange(all_[-1].start, offsets.end)
        else:
            all_.append(offsets)
    return all_


def between(owned: Sequence[OffsetRange]) -> Iterator[OffsetRange]:
    """Return the offsets before, between and after the given ranges, which are in order.

    >>> [(r.start, r.end) for r in between([OffsetRange(5, 9)])] == [(0, 5), (9, MAX_OFFSET)]
    True
    """
    edges = [(0, 0), *((r.start, r.end) for r in owned), (MAX_OFFSET, MAX_OFFSET)]
    return (OffsetRange(before[1], after[0]) for before, after in pairwise(edges))
