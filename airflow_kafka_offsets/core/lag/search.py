"""Finds when the records up to a watermark were written, by Kafka's timestamp index alone. No record is read.

For a watermark `w`, let `T` be the largest timestamp of the records up to and including offset `w`. One number answers both questions:

- The oldest unread record has waited since `T`, or a bit longer if records arrived out of order: then Kafka, too, counts it as
  young as the youngest before it.
- Retention walks the segments from the oldest one and stops at the first whose largest timestamp is young enough. So nothing at or
  above `w` goes before ``T + retention.ms``.

ListOffsets makes the same walk: for a time it returns the first offset whose record has this timestamp or a later one. That
offset is at most `w` if and only if the time is at most `T`. So `T` is found by a search with a handful of questions, for all partitions
at once: `Search` keeps the bounds of `T`, chooses the next question, and learns from answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isqrt
from typing import NamedTuple

from airflow_kafka_offsets.core.offsets import TopicPartition

FUTURE_MS = 60_000
"""How far the clock of a producer may run ahead before its records count as dated in the future."""

MAX_ROUNDS = 10
"""How many lookups a search may take. Each is one batch for all partitions that are not found yet."""

MOST_LOOKUPS = 12
"""How many lookups a look at the groups of one Kafka takes at most, if all have one isolation level: a snapshot, a second look at logs that
seem to have fallen back, and those of a search. What looks for open transactions comes out of the rounds of the search."""

CLOSE_MS = 1000
"""Bounds this close are good enough."""

CLOSE_SHARE = 0.02
"""So are bounds that are this close, as a share of the age, and of the headroom."""


FEW = 2
"""So many offsets below the watermark, a search goes from record to record."""


class Probe(NamedTuple):
    """A question: which is the first record of a partition that has this timestamp, in milliseconds since 1970, or a later one?"""

    partition: TopicPartition
    time_ms: int


class Hit(NamedTuple):
    """The answer: the offset of that record and its timestamp."""

    offset: int
    time_ms: int


Hits = Mapping[Probe, Hit | None]
"""The answers to probes; None if no record has this timestamp or a later one."""


class Place(NamedTuple):
    """A place in a log, whose records stay the same while the log begins where it does.

    Attributes:
        topic_id: of a topic; the name is not enough, as it may be made again.
        partition, watermark: whose.
        beginning: the first offset that is left.
        leader_epoch: which leader has these records, as another one may have lost and replaced some; None if Kafka does not tell.
    """

    topic_id: str
    partition: TopicPartition
    watermark: int
    beginning: int
    leader_epoch: int | None


Known = tuple[int, int | None, int, int]
"""What a search has found: `low`, `low_offset`, `high` and `high_offset`. Records that come later do not change it."""


@dataclass(slots=True)
class Search:
    """The search for `T` of one partition and watermark.

    Attributes:
        partition, watermark, end: whose; the watermark is below the end offset.
        now_ms: the present. A `T` in the future counts as the present.
        expires_ms: the timestamp that retention has reached by now; None if there is no retention by time.
        place: where what it finds stays true, or None if that is unknown.
        low, high: the bounds so far: ``low <= T < high``.
        low_offset: the offset of a record with the timestamp `low`; None if there is no lower bound yet.
        high_offset: the first offset of a record with the timestamp `high` or a later one.
        is_empty: whether the log holds no record at all, only offsets.
        is_ahead: whether a record up to the watermark is dated in the future: `T` does not show when the records arrived.
    """

    partition: TopicPartition
    watermark: int
    end: int
    now_ms: int
    expires_ms: int | None = None
    place: Place | None = None
    low: int = 0
    high: int = field(init=False)
    low_offset: int | None = None
    high_offset: int = field(init=False)
    is_empty: bool = False
    is_ahead: bool = False
    _questions: int = 0
    _raised: bool = False
    _in_a_row: int = 0

    def __post_init__(self) -> None:
        self.high = self.now_ms + 1
        self.high_offset = self.end

    @property
    def is_done(self) -> bool:
        """Whether the bounds are close enough."""
        return self.is_empty or (self.low_offset is not None and self.high - self.low <= self._close)

    @property
    def _close(self) -> int:
        age, leaves_headroom = self.now_ms - self.low, self.expires_ms is not None and self.high > self.expires_ms
        scale = min(age, self.high - (self.expires_ms or 0)) if leaves_headroom else age
        return max(CLOSE_MS, int(CLOSE_SHARE * scale))

    @property
    def known(self) -> Known | None:
        """What another search of this watermark may begin with, while the log begins where it does; None if it may be wrong then."""
        lasts = not (self.is_empty or self.is_ahead or self.high > self.now_ms)
        return (self.low, self.low_offset, self.high, self.high_offset) if lasts else None

    def begin_with(self, known: Known) -> None:
        """Begin where an earlier search has ended."""
        self.low, self.low_offset, self.high, self.high_offset = known
        self._questions = 1

    def question(self, guess_ms: int | None = None) -> int:
        """Return the next timestamp to ask for.

        Args:
            guess_ms: where `T` probably is, for the first question, or None without a guess.
        """
        self._questions += 1
        if self._questions == 1 and guess_ms is not None and 0 < guess_ms < self.high:
            return guess_ms
        if self.low_offset is None:
            return 0  # the first record that is left
        if self.watermark - self.low_offset <= FEW:
            return self.low + 1  # the next younger record is that of the watermark, or there is none up to it
        return min(max(self._interpolated(self.low_offset), self.low + 1), self.high - 1)

    def _interpolated(self, low_offset: int) -> int:
        """Aim where `T` is if records arrived evenly, and a bit past it: the bound that stayed behind should move, too."""
        share = (self.watermark - low_offset) / max(1, self.high_offset - low_offset)
        aim = self.low + int((self.high - self.low) * share)
        past = self._close // 4 << 2 * self._in_a_row  # four times as far with each answer on the same side
        return (
            min(aim + past, max(aim, self._halfway())) if self._raised else max(aim - past, min(aim, self._halfway()))
        )

    def _halfway(self) -> int:
        # By age, so that a record of 1970 does not make the steps years.
        oldest, youngest = self.now_ms - self.low, max(1, self.now_ms - self.high)
        if oldest > 4 * youngest:
            return self.now_ms - isqrt(oldest * youngest)
        return (self.low + self.high) // 2

    def learn(self, asked_ms: int, hit: Hit | None) -> None:
        """Take in an answer about this partition, whoever asked."""
        if hit is None and asked_ms == 0:
            self.is_empty = True
        elif hit is not None and (hit.offset <= self.watermark or asked_ms == 0):
            self.is_ahead = self.is_ahead or hit.time_ms - self.now_ms > FUTURE_MS
            self._raise(min(hit.time_ms, self.now_ms), hit.offset)
        elif self.low < asked_ms < self.high:
            self.high, self.high_offset = asked_ms, self.end if hit is None else hit.offset
            self._note(raised=False)

    def _raise(self, low: int, offset: int) -> None:
        if self.low_offset is None or low > self.low:
            self.low, self.low_offset = low, offset
            self._note(raised=True)
        # All before the watermark are older than this record; or nothing before it is left.
        is_exact = offset >= self.watermark
        self.high = self.low + 1 if is_exact else max(self.high, self.low + 1)

    def _note(self, *, raised: bool) -> None:
        self._in_a_row = self._in_a_row + 1 if raised is self._raised else 0
        self._raised = raised


def probes(searches: Iterable[Search], guesses: Mapping[TopicPartition, int]) -> dict[Probe, None]:
    """Return the next question of each search that is not done, each once, in their order."""
    return {Probe(s.partition, s.question(guesses.get(s.partition))): None for s in searches if not s.is_done}


def learn_all(searches: Sequence[Search], hits: Hits) -> None:
    """Let each search learn from all answers about its partition."""
    of_partition: dict[TopicPartition, list[tuple[int, Hit | None]]] = {}
    for probe, hit in hits.items():
        of_partition.setdefault(probe.partition, []).append((probe.time_ms, hit))
    for search in searches:
        for asked_ms, hit in of_partition.get(search.partition, ()):
            search.learn(asked_ms, hit)
