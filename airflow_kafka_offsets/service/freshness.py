"""Looks how far behind groups are: lag in offsets and in time, headroom and a verdict. Writes nothing, and reads no record.

    ledger = open_ledger()
    lags = look(ledger.groups(), ledger, lambda group: open_log(group.kafka_conn_id, group.kafka_timeout))
    lags["lake.orders"].verdict, lags["lake.orders"].reason

The ledger gets a few statements for a hundred groups. Each Kafka is asked once for all groups that read it: one snapshot for each isolation
level, one look for open transactions, one at the configuration of topics with lag, and at most `core.lag.search.MAX_ROUNDS` lookups in the
timestamp index, less those for transactions. A silent Kafka makes `GroupLag.error` of its groups: nothing is raised for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

from airflow_kafka_offsets.core.conditions import Condition, VerdictIn
from airflow_kafka_offsets.core.errors import (
    KafkaAnswerError,
    KafkaOffsetsError,
    KafkaUnavailableError,
    LedgerError,
    name_some,
    rebuilt,
)
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.lag.document import event_document
from airflow_kafka_offsets.core.lag.lag import GroupLag, PartitionLag
from airflow_kafka_offsets.core.lag.measure import (
    Times,
    lag_of,
    may_hide,
    never_was,
    notes_on,
    older_than,
    rate_probe,
    read_to_the_end,
    timed,
    to_ms,
    unread_from,
    unread_to,
    with_hidden,
)
from airflow_kafka_offsets.core.lag.pace import Commit, Pace, commits_wanted, pace_of
from airflow_kafka_offsets.core.lag.retention import Retention, hidden_note
from airflow_kafka_offsets.core.lag.search import MAX_ROUNDS, Hit, Place, Probe, Search
from airflow_kafka_offsets.core.lag.verdict import beside_missing, in_part, judged, unknown
from airflow_kafka_offsets.core.log import UNKNOWN_ID, IsolationLevel, LogSnapshot
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.ownership import GroupState, watermark
from airflow_kafka_offsets.core.plan.planning import Verdict
from airflow_kafka_offsets.core.plan.waiting import Decision, GroupSnapshot
from airflow_kafka_offsets.core.window import Window
from airflow_kafka_offsets.ports import LogOffsets
from airflow_kafka_offsets.service import watch
from airflow_kafka_offsets.service.base import utc_now
from airflow_kafka_offsets.service.plan import IsOver
from airflow_kafka_offsets.service.times import search_times

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger

logger = logging.getLogger(__name__)

AT_ONCE = 16
"""How many Kafkas are asked at one moment by whoever looks at all groups: a silent one must not make the others wait."""

_Question = TypeVar("_Question")
_Answer = TypeVar("_Answer")


def ask(
    conditions: Sequence[Condition],
    open_ledger: Callable[[], Ledger],
    open_log: Callable[[], LogOffsets] | None = None,
    *,
    is_over: IsOver | None = None,
    now: datetime | None = None,
) -> list[Decision | Exception]:
    """Answer conditions of every kind, those on verdicts included; `watch.ask` has the arguments."""
    others = [c for c in conditions if not isinstance(c, VerdictIn)]
    answers = iter(watch.ask(others, open_ledger, open_log, is_over=is_over, now=now) if others else ())
    verdicts: dict[VerdictIn, Decision | Exception] = {}
    for same in _together([c for c in conditions if isinstance(c, VerdictIn)]):
        assert open_log, "conditions on Kafka need it"
        verdicts |= _on_verdicts(same, open_ledger, open_log, now)
    return [verdicts[c] if isinstance(c, VerdictIn) else next(answers) for c in conditions]


def _together(conditions: Sequence[VerdictIn]) -> list[list[VerdictIn]]:
    """Divide conditions into looks, each with one horizon and one definition of each group."""
    looks: list[list[VerdictIn]] = []
    for c in conditions:
        for look in looks:
            has_other = any(
                o.horizon != c.horizon or (o.group.name == c.group.name and o.group != c.group) for o in look
            )
            if not has_other:
                look.append(c)
                break
        else:
            looks.append([c])
    return looks


def _on_verdicts(
    conditions: Sequence[VerdictIn],
    open_ledger: Callable[[], Ledger],
    open_log: Callable[[], LogOffsets],
    now: datetime | None,
) -> dict[VerdictIn, Decision | Exception]:
    groups = list({c.group.name: c.group for c in conditions}.values())
    try:
        lags = look(groups, open_ledger(), lambda _: open_log(), now, is_one_kafka=True, horizon=conditions[0].horizon)
    except Exception as exc:
        return dict.fromkeys(conditions, exc)
    return {c: _on_verdict(c, lags[c.group.name]) for c in conditions}


def _on_verdict(condition: VerdictIn, lag: GroupLag) -> Decision | Exception:
    if lag.error is not None:
        return rebuilt(lag.error_kind or "KafkaOffsetsError", lag.error)
    return Decision(lag.verdict in condition.verdicts, event_document(lag))


def look(
    groups: Sequence[KafkaGroup],
    ledger: Ledger,
    open_log: Callable[[KafkaGroup], LogOffsets],
    now: datetime | None = None,
    *,
    states: Mapping[str, GroupState] | None = None,
    is_one_kafka: bool = False,
    horizon: timedelta | None = None,
    at_once: int = 1,
) -> dict[str, GroupLag]:
    """Return how far behind groups are, by name. An error of one Kafka or one topic does not affect the other groups.

    Args:
        groups: the groups, as the ledger or a DAG defines them.
        ledger: their ledger. It is asked before Kafka.
        open_log: opens the Kafka of a group. It is called once for all groups with the same ``kafka_conn_id`` and ``kafka_timeout``.
        now: the time; by default that of the clock.
        states: the states of the groups by name, if they were loaded before this call.
        is_one_kafka: whether `open_log` opens the same Kafka for every group, whatever its ``kafka_conn_id`` is.
        horizon: a group with less headroom than this is at risk; by default as in `core.lag.verdict.needed_seconds`.
        at_once: how many Kafkas are asked at one moment, each in a thread of its own; with 1, one after the other in this thread.

    Raises:
        LedgerError: the ledger did not answer, or the rows of all these groups are damaged.
    """
    answers = each(
        groups, ledger, open_log, now, states=states, is_one_kafka=is_one_kafka, horizon=horizon, at_once=at_once
    )
    lags = {name: lag for answer in answers for name, lag in answer.items()}
    return {group.name: lags[group.name] for group in groups}


def each(
    groups: Sequence[KafkaGroup],
    ledger: Ledger,
    open_log: Callable[[KafkaGroup], LogOffsets],
    now: datetime | None = None,
    *,
    states: Mapping[str, GroupState] | None = None,
    is_one_kafka: bool = False,
    horizon: timedelta | None = None,
    at_once: int = AT_ONCE,
) -> Iterator[dict[str, GroupLag]]:
    """Yield how far behind groups are, the groups of each Kafka as soon as it has answered. `look` has the arguments.

    Raises:
        LedgerError: the ledger did not answer, or the rows of all these groups are damaged.
    """
    now = now or utc_now()
    # The ledger first: a commit in between must not look like a log that ends before the watermark.
    states, commits, damaged = _read(groups, ledger, states)
    if groups and len(damaged) == len(groups):
        raise damaged[groups[0].name]
    if damaged:
        yield {
            group.name: unknown(group.name, now, damaged[group.name], _pace(group, states, commits))
            for group in groups
            if group.name in damaged
        }
    of_kafka: dict[tuple[str, float], list[KafkaGroup]] = {}
    for group in (group for group in groups if group.name not in damaged):
        where = "" if is_one_kafka else group.kafka_conn_id
        of_kafka.setdefault((where, group.kafka_timeout), []).append(group)

    def ask(same: Sequence[KafkaGroup]) -> dict[str, GroupLag]:
        return _Look(same, states, commits, now, horizon, ledger).answer(lambda: open_log(same[0]))

    yield from _as_they_come(ask, list(of_kafka.values()), at_once)


def before_kafka(groups: Sequence[KafkaGroup], ledger: Ledger, now: datetime) -> dict[str, GroupLag]:
    """Return the lag of groups from the ledger alone, until Kafka has answered.

    Raises:
        LedgerError: the ledger did not answer.
    """
    states, commits, damaged = _read(groups, ledger, None)
    why = KafkaUnavailableError("Kafka has not answered yet")
    return {
        group.name: unknown(group.name, now, damaged.get(group.name, why), _pace(group, states, commits))
        for group in groups
    }


def _pace(group: KafkaGroup, states: Mapping[str, GroupState], commits: Mapping[str, Sequence[Commit]]) -> Pace:
    return pace_of(group, states.get(group.name, GroupState()), commits.get(group.name, ()))


def _read(
    groups: Sequence[KafkaGroup], ledger: Ledger, states: Mapping[str, GroupState] | None
) -> tuple[dict[str, GroupState], dict[str, Sequence[Commit]], dict[str, Exception]]:
    """Return the states and the newest commits of groups, and the errors of damaged rows: they harm no other group.

    Raises:
        LedgerError: the ledger did not answer.
    """
    names = [group.name for group in groups]
    wanted = {group.name: commits_wanted(group) for group in groups}
    with ledger.one_connection():
        loaded = watch.together(names, ledger.load_all, lambda _: GroupState()) if states is None else states
        commits = watch.together(
            names, lambda some: ledger.recent_commits({name: wanted[name] for name in some}), lambda _: ()
        )
    return (
        {name: state for name, state in loaded.items() if not isinstance(state, Exception)},
        {name: newest for name, newest in commits.items() if not isinstance(newest, Exception)},
        {name: value for values in (loaded, commits) for name, value in values.items() if isinstance(value, Exception)},
    )


def _as_they_come(
    ask: Callable[[_Question], _Answer], questions: Sequence[_Question], at_once: int
) -> Iterator[_Answer]:
    """Yield the answers to questions, with so many asked at one moment."""
    if at_once == 1 or len(questions) == 1:
        yield from map(ask, questions)
        return
    left: SimpleQueue[_Question] = SimpleQueue()
    answers: SimpleQueue[Future[_Answer]] = SimpleQueue()
    for question in questions:
        left.put(question)

    def work() -> None:
        while True:
            try:
                question = left.get_nowait()
            except Empty:
                return
            answer: Future[_Answer] = Future()
            try:
                answer.set_result(ask(question))
            except BaseException as exc:
                answer.set_exception(exc)
            answers.put(answer)

    for _ in range(min(at_once, len(questions))):
        # No thread of a pool: Python waits for these when it ends, and Ctrl-C would wait for a silent Kafka.
        Thread(target=work, name="look", daemon=True).start()
    for _ in questions:
        yield answers.get().result()


@dataclass(eq=False)
class _Look:
    """One look at the groups of one Kafka.

    Attributes:
        rounds: how many lookups are left for the search in the timestamp index.
    """

    groups: Sequence[KafkaGroup]
    states: Mapping[str, GroupState]
    commits: Mapping[str, Sequence[Commit]]
    now: datetime
    horizon: timedelta | None
    ledger: Ledger
    notes: dict[str, list[str]] = field(default_factory=dict)
    failed: dict[str, KafkaAnswerError] = field(default_factory=dict)
    rounds: int = MAX_ROUNDS

    def __post_init__(self) -> None:
        self._by_name = {group.name: group for group in self.groups}
        self._states = {name: self.states.get(name, GroupState()) for name in self._by_name}
        self._paces = {group.name: _pace(group, self._states, self.commits) for group in self.groups}

    def answer(self, open_log: Callable[[], LogOffsets]) -> dict[str, GroupLag]:
        open_log = cache(open_log)
        seen = watch.look(self.groups, self._states, open_log)
        lags = self._lags(seen)
        if moved := self._moved([name for name, partitions in lags.items() if _seems_expired(partitions)]):
            again = watch.look([self._by_name[name] for name in moved], moved, open_log)
            seen, lags = {**seen, **again}, {**lags, **self._lags(again)}
        hidden_to = self._hidden_to(open_log, lags)
        lags = {name: with_hidden(self._by_name[name], partitions, hidden_to) for name, partitions in lags.items()}
        places = {
            (p.partition, p.watermark): p
            for name, log in seen.items()
            if isinstance(log, GroupSnapshot)
            for p in _places(lags[name], log.log)
        }
        times = self._times(open_log, lags, places)
        times_of = {name: self._with_assumed(name, partitions, times) for name, partitions in lags.items()}
        timed_of = {
            name: {tp: timed(tp, p, times_of[name]) for tp, p in partitions.items()}
            for name, partitions in lags.items()
        }
        last_of = self._last_windows(timed_of)
        answers: dict[str, GroupLag] = {}
        for name, log in seen.items():
            if isinstance(log, KafkaOffsetsError):
                answers[name] = unknown(name, self.now, log, self._paces[name])
            elif isinstance(log, Exception):
                raise log
            else:
                partitions = self._since_it_arrived(name, timed_of[name], last_of.get(name, ()))
                lag = self._judged(name, partitions, times_of[name])
                why = never_was(self._by_name[name], log)
                answers[name] = beside_missing(lag, why) if why else lag
        return answers

    def _lags(self, seen: Mapping[str, GroupSnapshot | Exception]) -> dict[str, dict[TopicPartition, PartitionLag]]:
        return {name: lag_of(self._by_name[name], log) for name, log in seen.items() if isinstance(log, GroupSnapshot)}

    def _moved(self, names: Sequence[str]) -> dict[str, GroupState]:
        """Return the states of groups that have moved since the ledger was read: perhaps they committed what seems to have expired."""
        if not names:
            return {}
        try:
            states, commits, _ = _read([self._by_name[name] for name in names], self.ledger, None)
        except LedgerError as exc:
            logger.warning("Whether records were committed before they expired is not known: %s", exc)
            return {}
        moved = {name: state for name, state in states.items() if watermark(state) != watermark(self._states[name])}
        self._states |= moved
        self._paces |= {name: _pace(self._by_name[name], states, commits) for name in moved}
        return moved

    def _with_assumed(self, name: str, partitions: Mapping[TopicPartition, PartitionLag], times: Times) -> Times:
        """Add the retention of the group's definition for topics whose configuration this user may not read."""
        assumed = self._by_name[name].retention
        if assumed is None:
            return times
        hidden = dict.fromkeys(_hidden(partitions, times), Retention(assumed, is_assumed=True))
        return replace(times, retentions={**times.retentions, **hidden})

    def _judged(self, name: str, partitions: Mapping[TopicPartition, PartitionLag], times: Times) -> GroupLag:
        notes, hidden = self.notes.get(name, []), _hidden(partitions, times)
        notes = [*notes, *([hidden_note(hidden)] if hidden and not notes else ()), *notes_on(partitions, times)]
        lag = judged(
            *(name, self.now, partitions, self._paces[name]),
            horizon=self.horizon,
            notes=tuple(notes),
            refused=self._states[name].refused,
            reruns=self._states[name].reruns,
        )
        return in_part(lag, self.failed[name]) if name in self.failed else lag

    def _last_windows(
        self, timed_of: Mapping[str, Mapping[TopicPartition, PartitionLag]]
    ) -> Mapping[str, Sequence[Window]]:
        """Read the last windows of groups with an unread record that is dated before they were planned. Such a record is rare."""
        wanted = {
            name: pace.caught_up_by
            for name, partitions in timed_of.items()
            if (pace := self._paces[name]).caught_up_by is not None
            and older_than(partitions, self._caught_up_for(name))
        }
        if not wanted:
            return {}

        def read(names: Sequence[str]) -> Mapping[str, Sequence[Window]]:
            return {name: [row.window for row in self.ledger.windows(name, seqs=[wanted[name]])] for name in names}

        try:
            with self.ledger.one_connection():
                last_of = watch.together(list(wanted), read, lambda _: ())
        except LedgerError as exc:
            last_of = dict.fromkeys(wanted, exc)
        # Without it, the time of a record counts: it never waits for longer than that says.
        for name, why in last_of.items():
            if isinstance(why, Exception):
                self.notes.setdefault(name, []).append(
                    f"whether records with an old time came late is not known: {why}"
                )
        return {name: windows for name, windows in last_of.items() if not isinstance(windows, Exception)}

    def _caught_up_for(self, name: str) -> float:
        """Return for how many seconds all that had arrived before may have been read."""
        caught_up_at = self._paces[name].caught_up_at
        assert caught_up_at is not None
        return max(0.0, (self.now - caught_up_at).total_seconds())

    def _since_it_arrived(
        self, name: str, partitions: dict[TopicPartition, PartitionLag], last: Sequence[Window]
    ) -> dict[TopicPartition, PartitionLag]:
        """Shorten the wait of records that are dated long before they arrived: they wait only since then."""
        if not last:
            return partitions
        since, position = self._caught_up_for(name), watermark(self._states[name])
        older, ids = older_than(partitions, since), position.topic_ids if position else {}
        read = [tp for window in last for tp in read_to_the_end(window, older, ids)]
        return {**partitions, **{tp: replace(partitions[tp], lag_seconds=since) for tp in read}}

    def _hidden_to(
        self, open_log: Callable[[], LogOffsets], lags: Mapping[str, Mapping[TopicPartition, PartitionLag]]
    ) -> Mapping[TopicPartition, int]:
        """Return the high watermarks of partitions where an open transaction hides records and nothing else is unread."""
        hiding = {name: may_hide(self._by_name[name], partitions) for name, partitions in lags.items()}

        def bounds(names: Collection[str]) -> Mapping[TopicPartition, int]:
            seen_to = {tp: unread_to(lags[name][tp]) for name in names for tp in hiding[name]}
            kafka = open_log()
            high = kafka.bounds(sorted(seen_to), IsolationLevel.READ_UNCOMMITTED)
            more = [tp for tp, bounds in high.items() if bounds.end > seen_to[tp]]
            # Others may have written in between: what is still hidden now belongs to a transaction.
            now = kafka.bounds(more, IsolationLevel.READ_COMMITTED) if more else {}
            self.rounds -= 2 if more else 1
            return {tp: high[tp].end for tp in more if now[tp].end < high[tp].end}

        return self._ask_twice(hiding, bounds, "whether open transactions hide records is not known") or {}

    def _times(
        self,
        open_log: Callable[[], LogOffsets],
        lags: Mapping[str, Mapping[TopicPartition, PartitionLag]],
        places: Mapping[tuple[TopicPartition, int], Place],
    ) -> Times:
        """Ask Kafka for the times of the unread records."""
        unread = {
            name: [(tp, start) for tp, p in partitions.items() if (start := unread_from(p)) is not None]
            for name, partitions in lags.items()
        }
        ends: dict[TopicPartition, int] = {}
        for partitions in lags.values():
            for tp, partition in partitions.items():
                ends[tp] = max(unread_to(partition), ends.get(tp, 0))
        now_ms = to_ms(self.now)
        retentions: dict[str, Retention] = {}
        searches: dict[tuple[TopicPartition, int], Search] = {}
        hits: dict[Probe, Hit | None] = {}

        def search(names: Collection[str]) -> None:
            wanted = {of: self._paces[name] for name in names for of in unread[name]}
            kafka = open_log()
            retentions.update(kafka.retentions(sorted({tp.topic for tp, _ in wanted})))
            new = {
                (tp, start): Search(
                    *(tp, start, max(ends[tp], start + 1), now_ms, _expires_ms(retentions.get(tp.topic), now_ms)),
                    place=places.get((tp, start)) if _keeps_all(retentions.get(tp.topic)) else None,
                )
                for tp, start in wanted
            }
            guesses = {tp: to_ms(p.caught_up_at) for (tp, _), p in wanted.items() if p.caught_up_at is not None}
            limited = [tp for tp, _ in wanted if (r := retentions.get(tp.topic)) is not None and r.size is not None]
            try:
                hits.update(
                    search_times(
                        kafka, list(new.values()), guesses, [rate_probe(tp, now_ms) for tp in limited], self.rounds
                    )
                )
            except KafkaAnswerError:
                # The bounds of a search that was not ended may be days apart.
                searches.update({of: search for of, search in new.items() if search.is_done})
                raise
            searches.update(new)

        self._ask_twice(
            {name: [tp for tp, _ in some] for name, some in unread.items()},
            search,
            "lag in time and headroom are not known",
        )
        return Times(now_ms, searches, hits, retentions)

    def _ask_twice(
        self, wanted: Mapping[str, Sequence[TopicPartition]], ask: Callable[[Collection[str]], _Answer], not_known: str
    ) -> _Answer | None:
        """Ask Kafka about all groups at once, and if some topics have no answer, once more about the groups without them.

        None if it gave no answer. There is no third time: each may take as long as a lookup may.

        Args:
            wanted: the partitions that each group needs an answer about.
            ask: asks about groups, by name.
            not_known: what is not known of the others.
        """
        topics = {name: {tp.topic for tp in partitions} for name, partitions in wanted.items() if partitions}
        names = list(topics)
        for is_last in (False, True):
            if not names:
                return None
            try:
                return ask(names)
            except KafkaAnswerError as exc:
                concerned = [] if is_last else [name for name in names if not topics[name].isdisjoint(exc.topics)]
                failed = dict.fromkeys(concerned or names, exc)
                logger.warning("Group %s: %s: %s", name_some(failed, ", "), not_known, exc)
                self.failed |= failed
                for name in failed:
                    self.notes.setdefault(name, []).append(f"{not_known}: {exc}")
                names = [name for name in names if name not in failed]
        return None


def _places(partitions: Mapping[TopicPartition, PartitionLag], log: LogSnapshot) -> Iterator[Place]:
    """Return where the unread records of a group begin, in topics whose ids are known now."""
    for tp, lag in partitions.items():
        start, topic_id = unread_from(lag), log.topic_ids.get(tp.topic, UNKNOWN_ID)
        if start is not None and topic_id != UNKNOWN_ID:
            bounds = log.bounds[tp]
            yield Place(topic_id, tp, start, bounds.beginning, bounds.leader_epoch)


def _keeps_all(retention: Retention | None) -> bool:
    """Whether a log loses no records but its first ones, as far as this user may know."""
    return retention is not None and not retention.is_compacted


def _seems_expired(partitions: Mapping[TopicPartition, PartitionLag]) -> bool:
    return any(partition.verdict is Verdict.DATA_LOSS for partition in partitions.values())


def _expires_ms(retention: Retention | None, now_ms: int) -> int | None:
    if retention is None or retention.time is None:
        return None
    return now_ms - retention.time // timedelta(milliseconds=1)


def _hidden(partitions: Mapping[TopicPartition, PartitionLag], times: Times) -> list[str]:
    """Return the topics with something unread whose configuration this user may not read."""
    return sorted({tp.topic for tp, p in partitions.items() if unread_from(p) is not None} - times.retentions.keys())
