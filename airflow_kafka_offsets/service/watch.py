"""Asks ledger and Kafka once for many conditions: one snapshot of all topics, one lookup for each moment. Writes nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, TypeVar

from airflow_kafka_offsets.core.conditions import (
    CommittedUntil,
    LagAtMost,
    LedgerCondition,
    LogCondition,
    Looked,
    TimePassed,
    WindowCommitted,
    WindowFree,
)
from airflow_kafka_offsets.core.errors import (
    DamagedRowError,
    KafkaLacksError,
    KafkaRefusedError,
    KafkaUnavailableError,
    LedgerError,
    counted,
)
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import Frontier
from airflow_kafka_offsets.core.log import Bounds, IsolationLevel, LogSnapshot
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan import ownership
from airflow_kafka_offsets.core.plan.matching import topics_to_ask_for
from airflow_kafka_offsets.core.plan.ownership import GroupState
from airflow_kafka_offsets.core.plan.planning import SECOND_LOOK_LEVEL, suspects
from airflow_kafka_offsets.core.plan.waiting import (
    Decision,
    GroupSnapshot,
    OffsetsAt,
    decide_log,
    decide_until,
    decide_window,
    lookup_times,
    position_for,
)
from airflow_kafka_offsets.core.window import WindowRecord
from airflow_kafka_offsets.core.window_id import parse_window_id
from airflow_kafka_offsets.ports import LogOffsets
from airflow_kafka_offsets.service.base import utc_now
from airflow_kafka_offsets.service.plan import IsOver

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger

logger = logging.getLogger(__name__)

_T = TypeVar("_T")


def ask(
    conditions: Sequence[Looked],
    open_ledger: Callable[[], Ledger],
    open_log: Callable[[], LogOffsets] | None = None,
    *,
    is_over: IsOver | None = None,
    now: datetime | None = None,
) -> list[Decision | Exception]:
    """Answer each condition, or return why there is no answer. An error of one condition does not affect the others.

    Args:
        conditions: on one Kafka and one ledger.
        open_ledger: opens the ledger, if a condition needs it.
        open_log: opens Kafka, if a condition needs it, or None if none does.
        is_over: whether the claim that holds a window is over, or None if no condition asks that.
        now: the time, or None for that of the clock.
    """
    # Many may wait for one holder: Airflow is asked once.
    look = _Look(open_ledger, open_log, cache(is_over) if is_over else None, now or utc_now())
    # The ledger first: a commit in between must not look like a log that ends before the watermark.
    look.load_groups(conditions)
    look.look_at_kafka([c for c in conditions if isinstance(c, LogCondition)])
    return [_attempt(partial(look.answer, c)) for c in conditions]


def together(
    keys: Sequence[str], read: Callable[[Sequence[str]], Mapping[str, _T]], absent: Callable[[str], _T]
) -> dict[str, _T | Exception]:
    """Read all keys at once, or in ever smaller parts if a row is damaged: it harms no other.

    Args:
        keys: names of groups, or ids of windows.
        read: reads some of them.
        absent: what to return for a key without an answer.

    Raises:
        LedgerError: the ledger does not answer, refuses, or is of another version.
    """
    answers = _attempt(partial(read, keys)) if keys else {}
    if isinstance(answers, LedgerError) and not isinstance(answers, DamagedRowError):
        raise answers
    if isinstance(answers, Exception):
        if len(keys) == 1:
            return {keys[0]: answers}
        half = len(keys) // 2
        return together(keys[:half], read, absent) | together(keys[half:], read, absent)
    existing = answers
    return {key: existing[key] if key in existing else _attempt(partial(absent, key)) for key in keys}


def look(
    groups: Sequence[KafkaGroup], states: Mapping[str, GroupState], open_log: Callable[[], LogOffsets]
) -> dict[str, GroupSnapshot | Exception]:
    """Return what one Kafka holds of each group, or why that is not known. An error of one group does not affect the others.

    Args:
        groups: groups that read this Kafka.
        states: their states by name, from before Kafka is asked: a commit in between must not look like a log that ends too early.
        open_log: opens Kafka.
    """
    look = _Look(_no_ledger, open_log, None, utc_now(), dict(states))
    conditions = {group.name: LagAtMost(group, 0) for group in groups}
    look.look_at_kafka(list(conditions.values()))
    return {name: _attempt(partial(look.seen, condition)) for name, condition in conditions.items()}


def _no_ledger() -> Ledger:
    raise AssertionError("the states are known")


@dataclass(eq=False)
class _Look:
    """What one poll saw. Instead of a value, there may be an error."""

    open_ledger: Callable[[], Ledger]
    open_log: Callable[[], LogOffsets] | None
    is_over: IsOver | None
    now: datetime
    states: dict[str, GroupState | Exception] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._opened: LogOffsets | None = None
        self._frontiers: dict[str, Frontier | Exception] = {}
        self._windows: dict[str, WindowRecord | Exception] = {}
        self._listed: Collection[str] | Exception = ()
        self._logs: dict[IsolationLevel, dict[str, LogSnapshot | Exception]] = {}
        self._at: dict[tuple[IsolationLevel, datetime], dict[TopicPartition, int | Exception | None]] = {}
        self._second: dict[IsolationLevel, dict[TopicPartition, Bounds | Exception]] = {}

    @cached_property
    def _ledger(self) -> Ledger:
        return self.open_ledger()

    @property
    def _kafka(self) -> LogOffsets:
        # No `cached_property`: up to Python 3.11 it has one lock for all looks, and one Kafka that is slow to open would hold up the others.
        if self._opened is None:
            assert self.open_log, "conditions on Kafka need it"
            self._opened = self.open_log()
        return self._opened

    def load_groups(self, conditions: Sequence[Looked]) -> None:
        """Read from the ledger what the conditions need: each group and each window once."""
        names = dict.fromkeys(name for c in conditions if (name := _group_name(c)))
        until = dict.fromkeys(c.group_name for c in conditions if isinstance(c, CommittedUntil))
        ids = [c.window_id for c in conditions if isinstance(c, WindowCommitted)]
        ids += [window_id for c in conditions if isinstance(c, WindowFree) for window_id in c.window_ids]
        if not any((names, until, ids)):
            return
        failed = _attempt(lambda: self._ask_ledger(list(names), list(until), list(dict.fromkeys(ids))))
        if isinstance(failed, Exception):  # a ledger that is away takes seconds to say so: it is asked once
            self.states = dict.fromkeys(names, failed)
            self._frontiers = dict.fromkeys(until, failed)
            self._windows = dict.fromkeys(ids, failed)

    def _ask_ledger(self, names: Sequence[str], until: Sequence[str], ids: Sequence[str]) -> None:
        ledger = self._ledger
        with ledger.one_connection():
            self.states = together(names, ledger.load_all, lambda _: GroupState())
            self._frontiers = together(until, ledger.frontiers, lambda _: Frontier())
            self._windows = together(ids, ledger.records, partial(_unknown, ledger)) if ids else {}

    def look_at_kafka(self, conditions: Sequence[LogCondition]) -> None:
        """Ask Kafka what the conditions need."""
        if any(c.group.topics_pattern is not None for c in conditions):
            self._listed = _attempt(self._kafka.topics)
        for level in {c.group.isolation_level for c in conditions}:
            same = [c for c in conditions if c.group.isolation_level is level]
            self._logs[level] = self._snapshots(sorted({topic for c in same for topic in self._known_topics(c)}), level)
            self._look_twice(same, level)
            self._look_up_times(same, level)

    def _known_topics(self, condition: LogCondition) -> Sequence[str]:
        topics = _attempt(partial(self._topics, condition))
        return () if isinstance(topics, Exception) else topics

    def _topics(self, condition: LogCondition) -> Sequence[str]:
        if condition.group.topics_pattern is None:  # also if the ledger gives no answer
            return condition.group.topics
        return topics_to_ask_for(condition.group, _value(self._listed), self._state(condition).position)

    def _snapshots(self, topics: Sequence[str], level: IsolationLevel) -> dict[str, LogSnapshot | Exception]:
        whole = _attempt(lambda: self._kafka.snapshot(topics, level))
        if isinstance(whole, LogSnapshot):
            return _by_topic(whole, topics)
        if len(topics) == 1 or not self._is_about_some(whole, topics):
            return dict.fromkeys(topics, whole)
        logger.warning("Looking at %s one by one: %s", counted(len(topics), "topic"), whole)
        return {topic: _attempt(partial(self._kafka.snapshot, [topic], level)) for topic in topics}

    def _is_about_some(self, error: Exception, topics: Sequence[str]) -> bool:
        """Whether the error may be about some topics only: one is refused, or has a partition without a leader."""
        if isinstance(error, KafkaRefusedError):
            return bool(error.topics)
        if not isinstance(error, KafkaUnavailableError):
            return False
        return not isinstance(_attempt(lambda: self._kafka.topic_ids(topics)), Exception)

    def _look_twice(self, conditions: Sequence[LogCondition], level: IsolationLevel) -> None:
        """Look again at logs that seem to end before their watermark, as planning does."""
        doubtful = sorted({tp for c in conditions for tp in self._suspects(c)})
        bounds = _attempt(lambda: self._kafka.bounds(doubtful, SECOND_LOOK_LEVEL)) if doubtful else {}
        self._second[level] = {tp: bounds if isinstance(bounds, Exception) else bounds[tp] for tp in doubtful}

    def _suspects(self, condition: LogCondition) -> list[TopicPartition]:
        if isinstance(condition, TimePassed):
            return []
        doubtful = _attempt(lambda: suspects(position_for(condition, self._state(condition)), self._log_of(condition)))
        return [] if isinstance(doubtful, Exception) else doubtful

    def _look_up_times(self, conditions: Sequence[LogCondition], level: IsolationLevel) -> None:
        wanted: dict[datetime, set[TopicPartition]] = {}
        for condition in conditions:
            for time in lookup_times(condition, self.now):
                snapshot = _attempt(partial(self._log_of, condition))
                if not isinstance(snapshot, Exception):
                    wanted.setdefault(time, set()).update(snapshot.bounds)
        for time, partitions in wanted.items():
            self._at[level, time] = self._offsets_at(partitions, time, level)

    def _offsets_at(
        self, partitions: Collection[TopicPartition], time: datetime, level: IsolationLevel
    ) -> dict[TopicPartition, int | Exception | None]:
        answer = _attempt(lambda: self._kafka.offsets_at(sorted(partitions), time, level))
        if not isinstance(answer, Exception):
            return dict(answer)
        failed: dict[TopicPartition, int | Exception | None] = dict.fromkeys(partitions, answer)
        # A topic of an old message format has no times. This is no error of the other topics.
        lacking = answer.topics if isinstance(answer, KafkaLacksError) else ()
        others = [tp for tp in partitions if lacking and tp.topic not in lacking]
        return failed | self._offsets_at(others, time, level) if others else failed

    def answer(self, condition: Looked) -> Decision:
        """Decide one condition.

        Raises:
            Exception: the error that is there instead of a value that it needs.
        """
        match condition:
            case WindowCommitted(window_id):
                return decide_window(_value(self._windows[window_id]))
            case WindowFree(window_ids, is_rerun):
                return Decision(any(self._is_free(window_id, is_rerun) for window_id in window_ids), {})
            case CommittedUntil(name):
                return decide_until(condition, _value(self._frontiers[name]), self.now)
            case _:
                return decide_log(condition, self.seen(condition))

    def _is_free(self, window_id: str, is_rerun: bool) -> bool:
        window = _value(self._windows[window_id])
        assert self.is_over, "conditions on holders need it"
        return ownership.is_free(window, is_rerun=is_rerun, holder_is_over=self.is_over(window.holder))

    def seen(self, condition: LogCondition) -> GroupSnapshot:
        """Return what was seen for a condition.

        Raises:
            Exception: as `answer`.
        """
        level, snapshot = condition.group.isolation_level, self._log_of(condition)
        at = {time: self._at_of(level, time, snapshot) for time in lookup_times(condition, self.now)}
        recovered = {tp: _value(answer) for tp, answer in self._second[level].items() if tp in snapshot.bounds}
        return GroupSnapshot(self.now, self._state(condition), snapshot, at, recovered)

    def _at_of(self, level: IsolationLevel, time: datetime, snapshot: LogSnapshot) -> OffsetsAt:
        answers = self._at[level, time]
        return {tp: _value(answers[tp]) for tp in snapshot.bounds}

    def _state(self, condition: LogCondition) -> GroupState:
        name = _group_name(condition)
        return _value(self.states[name]) if name else GroupState()

    def _log_of(self, condition: LogCondition) -> LogSnapshot:
        parts = [_value(self._logs[condition.group.isolation_level][topic]) for topic in self._topics(condition)]
        ids = {topic: topic_id for part in parts for topic, topic_id in part.topic_ids.items()}
        return LogSnapshot(ids, {tp: bounds for part in parts for tp, bounds in part.bounds.items()})


def _group_name(condition: Looked) -> str | None:
    return None if isinstance(condition, LedgerCondition | TimePassed) else condition.group.name


def _by_topic(snapshot: LogSnapshot, topics: Sequence[str]) -> dict[str, LogSnapshot | Exception]:
    bounds: dict[str, dict[TopicPartition, Bounds]] = {topic: {} for topic in topics}
    for tp, pair in snapshot.bounds.items():
        bounds[tp.topic][tp] = pair
    ids = snapshot.topic_ids
    return {topic: LogSnapshot({topic: ids[topic]} if topic in ids else {}, bounds[topic]) for topic in topics}


def _unknown(ledger: Ledger, window_id: str) -> WindowRecord:
    group, seq = parse_window_id(window_id)
    raise ledger.absent(group, [seq])


def _attempt(step: Callable[[], _T]) -> _T | Exception:
    try:
        return step()
    except Exception as exc:
        return exc


def _value(answer: _T | Exception) -> _T:
    if isinstance(answer, Exception):
        raise answer
    return answer
