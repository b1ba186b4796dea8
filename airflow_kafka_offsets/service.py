"""The use cases: plan, commit, abandon, reset, lag. Each loads, calls a core function, and saves.

No Kafka call is made while a transaction of the ledger is open. Who loses a race is told by `ConcurrentChangeError`
and looks again, a few times.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from airflow_kafka_offsets.core import ownership
from airflow_kafka_offsets.core import reset as resets
from airflow_kafka_offsets.core.errors import (
    BadInputError,
    ConcurrentChangeError,
    MissingPartitionError,
    UnknownWindowError,
    WindowBusyError,
    name_some,
)
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.log import LogSnapshot
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.ownership import Adopt, Again, Cut, Position
from airflow_kafka_offsets.core.planning import (
    Plan,
    check_readable,
    check_same_topics,
    ends_behind,
    plan_window,
    suspects,
)
from airflow_kafka_offsets.core.reset import Reset
from airflow_kafka_offsets.core.spark_json import load_offsets
from airflow_kafka_offsets.core.starting import (
    AtCommitted,
    first_offsets,
    lookup_time,
    parse_starting_offsets,
)
from airflow_kafka_offsets.core.window import Claim, Held, Lane, Outcome, State, Window
from airflow_kafka_offsets.ports import Act, Draft, Ledger, LogOffsets

log = logging.getLogger(__name__)

MAX_WHO = 200

RACES = 20
"""How often somebody who lost a race looks again."""

_T = TypeVar("_T")
IsOver = Callable[[Claim], bool]
"""Whether a claim's task or run is over, so that its window may be taken. Airflow knows."""


def utc_now() -> datetime:
    """Return the time; the service takes it as a parameter, so that tests can pass their own."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Planned:
    """The window that a run works on.

    Attributes:
        window: the window.
        is_rerun: it was committed before: the job runs again, and its commit changes nothing but the history.
        how: ``"again"``, ``"adopted"`` or ``"new"``.
    """

    window: Window
    is_rerun: bool
    how: str


@dataclass(frozen=True, slots=True)
class Lag:
    """How far one topic-partition is behind, in offsets.

    Attributes:
        watermark: the next offset that is not committed; None: the group has none yet.
        beginning, end: the partition's log.
        lag: end offset minus watermark; None: no watermark.
    """

    watermark: int | None
    beginning: int
    end: int

    @property
    def lag(self) -> int | None:
        """End offset minus watermark."""
        return None if self.watermark is None else self.end - self.watermark


class WindowService:
    """The use cases on one ledger and one Kafka."""

    def __init__(self, ledger: Ledger, kafka: LogOffsets, clock: Callable[[], datetime] = utc_now) -> None:
        self._ledger = ledger
        self._kafka = kafka
        self._clock = clock

    def plan(
        self,
        group: KafkaGroup,
        claim: Claim,
        is_over: IsOver,
        until: datetime | None = None,
        *,
        may_cut: bool = True,
    ) -> Planned:
        """Give a run its window: the one that it had, one that a dead run left behind, or a new one.

        Args:
            group: the group's definition.
            claim: who asks.
            is_over: whether the claim that holds a window is over.
            until: the cut time of a new window; None: now.
            may_cut: False for a run that may only run again the window it has: an Airflow backfill.

        Raises:
            BadInputError: the run has no window, and may neither cut nor adopt one.
            WindowBusyError: another run works on the window; nothing was written.
            LogError: Kafka does not hold what the plan needs; nothing was written.
            KafkaUnavailableError, LedgerError: as they say.
        """
        return _racing(lambda: self._plan(group, claim, is_over, until, may_cut))

    def _plan(self, group: KafkaGroup, claim: Claim, is_over: IsOver, until: datetime | None, may_cut: bool) -> Planned:
        state = self._ledger.load(group.name, claim)
        choice = ownership.choose(state)
        if not may_cut and not isinstance(choice, Again):
            raise BadInputError(
                f"{claim} belongs to an Airflow backfill, which replays the past; replay is not there yet, and a live "
                "window must not hide behind a past date. Clear the runs whose windows you want again, or trigger a run"
            )
        match choice:
            case Again(held):
                planned = self._take(held, claim, is_over, "again")
            case Adopt(held):
                planned = self._take(held, claim, is_over, "adopted")
            case Cut(position):
                plan = self.preview(group, position)
                for warning in plan.warnings:
                    log.warning("Group %s: %s", group.name, warning)
                now = self._clock()
                held = self._ledger.add_window(group, state.version, _draft(group, plan, until or now), claim, now)
                planned = Planned(held.window, False, "new")
        log.info(
            "Group %s window %s (%s): %d partitions, span %d",
            group.name,
            planned.window.id,
            planned.how,
            len(planned.window.ranges.without_empty()),
            planned.window.span,
        )
        return planned

    def _take(self, held: Held, claim: Claim, is_over: IsOver, how: str) -> Planned:
        # Busy first: it spares Kafka the questions of all who wait. What is asked of Airflow here is stale when the window
        # was given to anybody since, and then `hold` refuses.
        if not ownership.may_take(held, claim, held.holder == claim or is_over(held.holder)):
            raise WindowBusyError(held.window.id, held.holder, is_rerun=held.window.state is State.COMMITTED)
        self._check_readable(held.window)
        taken = self._ledger.hold(held, claim)
        return Planned(taken.window, taken.window.state is State.COMMITTED, how)

    def _check_readable(self, window: Window) -> None:
        topics = sorted({tp.topic for tp in window.ranges.without_empty()})
        if not topics:
            return
        seen = self._kafka.snapshot(topics, window.isolation_level)
        if behind := ends_behind(window, seen):  # a leader that lags for a moment: look again before believing it
            again = self._kafka.bounds(behind, window.isolation_level)
            seen = LogSnapshot(seen.topic_ids, {**seen.bounds, **again})
        check_readable(window, seen)

    def check(self, window: Window) -> None:
        """Make sure after the job that it read the topics which the window was cut from.

        Raises:
            TopicRecreatedError, MissingPartitionError: they are not there any more.
            KafkaUnavailableError: Kafka did not answer.
        """
        topics = sorted({tp.topic for tp in window.ranges.without_empty()})
        if topics:
            check_same_topics(window, self._kafka.topic_ids(topics))

    def preview(self, group: KafkaGroup, position: Position | None) -> Plan:
        """Plan the next live window from a position without writing anything.

        Raises:
            LogError, KafkaUnavailableError: as in `plan`.
        """
        snapshot = self._kafka.snapshot(group.topics, group.isolation_level)
        if position is None:
            return plan_window(group, None, snapshot, first=self._first_offsets(group, snapshot))
        doubtful = suspects(group, position, snapshot)
        second_look = self._kafka.bounds(doubtful, group.isolation_level) if doubtful else {}
        return plan_window(group, position, snapshot, recovered=second_look)

    def _first_offsets(self, group: KafkaGroup, snapshot: LogSnapshot) -> Mapping[TopicPartition, int]:
        start, partitions = group.start, list(snapshot.bounds)
        time = lookup_time(start, self._clock())
        at_time = self._kafka.offsets_at(partitions, time, group.isolation_level) if time else None
        is_committed = isinstance(start, AtCommitted)
        committed = self._kafka.committed(group.name, partitions) if is_committed else None
        return first_offsets(start, snapshot, at_time=at_time, committed=committed)

    def start_attempt(self, window: Window, claim: Claim, try_number: int) -> int:
        """Record that a try to process the window begins, and return its number."""
        return _racing(lambda: self._ledger.start_attempt(window, claim, try_number, self._clock()))

    def end_attempt(self, attempt: int, outcome: Outcome, records: int | None = None) -> None:
        """Record how a try ended: what a commit rests on."""
        _racing(lambda: self._ledger.end_attempt(attempt, outcome, records, self._clock()))

    def window(self, window_id: str) -> Window:
        """Return a window as the ledger has it.

        Raises:
            UnknownWindowError: there is none of this id.
        """
        return self._ledger.window(window_id).held.window

    def commit(self, window_id: str, claim: Claim, attempt: int | None = None) -> bool:
        """Commit a window after its job succeeded; exactly one of any number of commits wins.

        Args:
            window_id: the window.
            claim: who commits: a task of the run that holds the window.
            attempt: the attempt whose recorded success is the evidence; None: there was nothing to run, or a foreign
                launcher ran it and the green task is all the evidence there is.

        Returns:
            True: the watermark moved; False: the window was committed before, and this was a rerun.

        Raises:
            NoEvidenceError, WindowBusyError, IllegalStepError: nothing was committed.
        """
        is_first = _racing(lambda: self._ledger.commit(window_id, claim, attempt, self._clock()))
        log.info("Window %s: %s", window_id, "committed" if is_first else "was committed before, run again")
        return is_first

    def abandon(self, window_id: str, who: str, why: str) -> Window:
        """Give an unfinished window up: a person's act. Its offsets are planned anew under another id.

        Raises:
            IllegalStepError: it is not the newest open window.
        """
        _check_signature(who, why)
        act = Act("abandon", who, why, self._clock(), {"window": window_id})
        return _racing(lambda: self._ledger.abandon(window_id, act))

    def preview_reset(
        self, group: KafkaGroup, to: str, *, topics: Sequence[str] = (), to_window: str | None = None
    ) -> Reset:
        """Work out a reset without writing anything.

        Args:
            group: the group's definition.
            to: ``"earliest"``, ``"latest"``, a time with its zone, or Spark's JSON of offsets; partitions that the JSON
                doesn't name keep their watermark.
            topics: only these topics move; none: all of the group's.
            to_window: instead of `to`: the start of this window.

        Raises:
            UnknownWindowError: the group has no watermark that could be moved, or there is no such window.
            BadInputError, IllegalStepError: it can't be done; the message says what can.
        """
        return self._reset(group, to, topics, to_window)[1]

    def reset(
        self,
        group: KafkaGroup,
        to: str,
        who: str,
        why: str,
        *,
        topics: Sequence[str] = (),
        to_window: str | None = None,
        supersede: bool = False,
    ) -> Reset:
        """Move the watermark: a person's act. See `preview_reset`.

        Raises:
            ConfirmationError: windows would lose their offsets, and `supersede` does not say that this is meant.
        """
        _check_signature(who, why)
        version, reset = self._reset(group, to, topics, to_window)
        resets.check_confirmed(group.name, reset, supersede)
        act = Act("reset", who, why, self._clock(), resets.summary(reset))
        self._ledger.reset(group.name, version, reset.position, [w.seq for w in reset.superseded], act)
        return reset

    def _reset(self, group: KafkaGroup, to: str, topics: Sequence[str], to_window: str | None) -> tuple[int, Reset]:
        state = self._ledger.load(group.name)
        if state.position is None:
            raise UnknownWindowError(
                f"Group {group.name} has no watermark yet; its starting_offsets say where it starts"
            )
        resets.check_no_open_window(group.name, state)
        names = _topics_to_move(group, topics)
        target = self._written_target(group, state.position, to, to_window, topics)
        moving = names if target is None else sorted({tp.topic for tp in target})
        snapshot = self._snapshot_of_all(moving, group)
        if target is None:
            target = self._looked_up_target(group, to, snapshot)
        committed = self._committed_windows(group.name)
        return state.version, resets.plan_reset(group.name, state.position, target, snapshot, committed)

    def _snapshot_of_all(self, topics: Sequence[str], group: KafkaGroup) -> LogSnapshot:
        if not topics:
            return LogSnapshot({}, {})
        snapshot = self._kafka.snapshot(topics, group.isolation_level)
        if absent := [topic for topic in topics if topic not in snapshot.topic_ids]:
            raise MissingPartitionError(f"Kafka has no topic {name_some(absent, ', ')}: choose others with --topic")
        return snapshot

    def _written_target(
        self, group: KafkaGroup, position: Position, to: str, to_window: str | None, topics: Sequence[str]
    ) -> Mapping[TopicPartition, int] | None:
        """Return the target that is written down already; None: it has to be looked up in Kafka."""
        if to_window is not None:
            window = self.window(to_window)
            if window.group != group.name:
                raise BadInputError(f"Window {to_window} is not one of group {group.name}")
            starts = resets.window_starts(window, position, self._committed_windows(group.name))
            return {tp: start for tp, start in starts.items() if not topics or tp.topic in topics}
        if not to.lstrip().startswith("{"):
            return None
        target = load_offsets(to)
        _topics_to_move(group, [tp.topic for tp in target])
        return target

    def _looked_up_target(self, group: KafkaGroup, to: str, snapshot: LogSnapshot) -> Mapping[TopicPartition, int]:
        start = parse_starting_offsets(to)
        if isinstance(start, AtCommitted):
            raise BadInputError(
                "A reset goes to 'earliest', 'latest', a time with its zone, or offsets as Spark's JSON"
            )
        time = lookup_time(start, self._clock())
        at_time = self._kafka.offsets_at(list(snapshot.bounds), time, group.isolation_level) if time else None
        return first_offsets(start, snapshot, at_time=at_time)

    def _committed_windows(self, group: str) -> Iterator[Window]:
        before: int | None = None
        while rows := self._ledger.windows(group, states=[State.COMMITTED], lane=Lane.LIVE, before=before, limit=200):
            yield from (row.held.window for row in rows)
            before = rows[-1].held.window.seq

    def lag(self, group: KafkaGroup) -> Mapping[TopicPartition, Lag]:
        """Compare the watermark with what Kafka holds. Nothing is written."""
        snapshot = self._kafka.snapshot(group.topics, group.isolation_level)
        watermark = self.watermark(group.name)
        known = watermark.offsets if watermark else {}
        return {tp: Lag(known.get(tp), b.beginning, b.end) for tp, b in snapshot.bounds.items()}

    def watermark(self, group: str) -> Position | None:
        """Return the next offset that is not committed, per topic-partition; None: nothing was ever planned."""
        return ownership.watermark(self._ledger.load(group))


def _draft(group: KafkaGroup, plan: Plan, until: datetime) -> Draft:
    return Draft(plan.ranges, plan.topic_ids, until, group.isolation_level, plan.lost)


def _topics_to_move(group: KafkaGroup, topics: Sequence[str]) -> Sequence[str]:
    strange = sorted(set(topics) - set(group.topics))
    if strange:
        raise BadInputError(
            f"Group {group.name} doesn't read {name_some(strange, ', ')}; it reads {name_some(group.topics, ', ')}"
        )
    return topics or group.topics


def _check_signature(who: str, why: str) -> None:
    if not why.strip():
        raise BadInputError("Say why: the reason is kept in the ledger for whoever finds this later")
    if not who.strip() or len(who) > MAX_WHO:
        raise BadInputError(f"Say who does this, in at most {MAX_WHO} characters; got {who[:MAX_WHO]!r}")


def _racing(step: Callable[[], _T]) -> _T:
    for _ in range(RACES - 1):
        try:
            return step()
        except ConcurrentChangeError as exc:
            log.info("%s; looking again", exc)
    return step()
