"""Looks how far behind groups are: lag in offsets and in time, headroom and a verdict. Writes nothing, and reads no record.

How to call it, for many groups at once::

    ledger = open_ledger()
    found = look(ledger.groups(), ledger, lambda group: open_log(group.kafka_conn_id, group.kafka_timeout))
    found["lake.orders"].verdict, found["lake.orders"].reason

Each Kafka is asked once for all groups that read it: one snapshot for each isolation level, one look for open transactions, one at the
configuration of the topics that have lag, and at most `core.lag.search.MAX_ROUNDS` lookups in the timestamp index, less those for
transactions. If some topics have no answer to these questions, the other groups are asked about once more. The ledger gets a few statements for a hundred groups. A group that seems to have lost records is looked at again if its
watermark has moved meanwhile. A Kafka that does not answer, or only in part, makes `GroupLag.error` of its groups: nothing is raised for it.
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

from airflow_kafka_offsets.core.errors import (
    KafkaAnswerError,
    KafkaOffsetsError,
    KafkaUnavailableError,
    LedgerError,
    name_some,
)
from airflow_kafka_offsets.core.group import KafkaGroup
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
from airflow_kafka_offsets.core.lag.search import MAX_ROUNDS, Hit, Probe, Search
from airflow_kafka_offsets.core.lag.verdict import beside_missing, in_part, judged, unknown
from airflow_kafka_offsets.core.log import IsolationLevel
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.ownership import GroupState, watermark
from airflow_kafka_offsets.core.plan.planning import Verdict
from airflow_kafka_offsets.core.plan.waiting import Seen
from airflow_kafka_offsets.core.window import Window
from airflow_kafka_offsets.ports import LogOffsets
from airflow_kafka_offsets.service import watch
from airflow_kafka_offsets.service.base import utc_now
from airflow_kafka_offsets.service.times import find

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger

logger = logging.getLogger(__name__)

AT_ONCE = 16
"""How many Kafkas those ask at one moment who look at all groups: one that is silent must not make the others wait."""


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
        now: the time; None: that of the clock.
        states: the states of the groups by name, from before this call; None: the ledger is asked for them, too.
        is_one_kafka: whether `open_log` opens the same Kafka for every group, whatever its ``kafka_conn_id`` is.
        horizon: a group with less headroom than this is at risk; None: see `core.lag.verdict.needed_seconds`.
        at_once: how many Kafkas are asked at one moment, each in a thread of its own; 1: one after the other, in this thread.

    Raises:
        LedgerError: the ledger did not answer, or the rows of all these groups are damaged.
    """
    answers = each(
        groups, ledger, open_log, now, states=states, is_one_kafka=is_one_kafka, horizon=horizon, at_once=at_once
    )
    found = {name: lag for answer in answers for name, lag in answer.items()}
    return {group.name: found[group.name] for group in groups}


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
    known, commits, damaged = _read(groups, ledger, states)
    if groups and len(damaged) == len(groups):
        raise damaged[groups[0].name]
    if damaged:
        yield {
            group.name: unknown(group.name, now, damaged[group.name], _pace(group, known, commits))
            for group in groups
            if group.name in damaged
        }
    of_kafka: dict[tuple[str, float], list[KafkaGroup]] = {}
    for group in (group for group in groups if group.name not in damaged):
        where = "" if is_one_kafka else group.kafka_conn_id
        of_kafka.setdefault((where, group.kafka_timeout), []).append(group)

    def ask(same: Sequence[KafkaGroup]) -> dict[str, GroupLag]:
        return _Look(same, known, commits, now, horizon, ledger).answer(lambda: open_log(same[0]))

    yield from _as_they_come(ask, list(of_kafka.values()), at_once)


def before_kafka(groups: Sequence[KafkaGroup], ledger: Ledger, now: datetime) -> dict[str, GroupLag]:
    """Return what the ledger alone says of groups, until Kafka has answered.

    Raises:
        LedgerError: the ledger did not answer.
    """
    known, commits, damaged = _read(groups, ledger, None)
    why = KafkaUnavailableError("Kafka has not answered yet")
    return {
        group.name: unknown(group.name, now, damaged.get(group.name, why), _pace(group, known, commits))
        for group in groups
    }


def _pace(group: KafkaGroup, states: Mapping[str, GroupState], commits: Mapping[str, Sequence[Commit]]) -> Pace:
    return pace_of(group, states.get(group.name, GroupState()), commits.get(group.name, ()))


def _read(
    groups: Sequence[KafkaGroup], ledger: Ledger, states: Mapping[str, GroupState] | None
) -> tuple[dict[str, GroupState], dict[str, Sequence[Commit]], dict[str, Exception]]:
    """Return the states and the newest commits of groups, and why they can't be read: the row of a group harms no other.

    Raises:
        LedgerError: the ledger did not answer.
    """
    names = [group.name for group in groups]
    wanted = {group.name: commits_wanted(group) for group in groups}
    with ledger.one_connection():
        known = watch.together(names, ledger.load_all, lambda _: GroupState()) if states is None else states
        commits = watch.together(
            names, lambda some: ledger.recent_commits({name: wanted[name] for name in some}), lambda _: ()
        )
    found = [(name, one) for read in (known, commits) for name, one in read.items()]
    damaged = {name: one for name, one in found if isinstance(one, Exception)}
    return (
        {name: one for name, one in known.items() if not isinstance(one, Exception)},
        {name: one for name, one in commits.items() if not isinstance(one, Exception)},
        damaged,
    )


_Asked = TypeVar("_Asked")
_Said = TypeVar("_Said")


def _as_they_come(ask: Callable[[_Asked], _Said], questions: Sequence[_Asked], at_once: int) -> Iterator[_Said]:
    """Yield the answers to questions, of which so many are asked at one moment; in order only if that is one."""
    if at_once == 1 or len(questions) == 1:
        yield from map(ask, questions)
        return
    left: SimpleQueue[_Asked] = SimpleQueue()
    answers: SimpleQueue[Future[_Said]] = SimpleQueue()
    for question in questions:
        left.put(question)

    def work() -> None:
        while True:
            try:
                question = left.get_nowait()
            except Empty:
                return
            answer: Future[_Said] = Future()
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
        times = self._times(open_log, lags)
        times_of = {name: self._with_assumed(name, partitions, times) for name, partitions in lags.items()}
        timed_of = {
            name: {tp: timed(tp, p, times_of[name]) for tp, p in partitions.items()}
            for name, partitions in lags.items()
        }
        last_of = self._last_windows(timed_of)
        found: dict[str, GroupLag] = {}
        for name, one in seen.items():
            if isinstance(one, KafkaOffsetsError):
                found[name] = unknown(name, self.now, one, self._paces[name])
            elif isinstance(one, Exception):
                raise one
            else:
                partitions = self._since_it_arrived(name, timed_of[name], last_of.get(name, ()))
                judged_one = self._judged(name, partitions, times_of[name])
                why = never_was(self._by_name[name], one)
                found[name] = beside_missing(judged_one, why) if why else judged_one
        return found

    def _lags(self, seen: Mapping[str, Seen | Exception]) -> dict[str, dict[TopicPartition, PartitionLag]]:
        return {name: lag_of(self._by_name[name], one) for name, one in seen.items() if isinstance(one, Seen)}

    def _moved(self, names: Sequence[str]) -> dict[str, GroupState]:
        """Return the states of groups that have moved since the ledger was read: what seems to have expired unread was committed, perhaps."""
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
        """Return what is known of times, with what the group's definition says where this user may not read it."""
        assumed = self._by_name[name].retention
        if assumed is None:
            return times
        hidden = dict.fromkeys(_hidden(partitions, times), Retention(assumed, is_assumed=True))
        return replace(times, retentions={**times.retentions, **hidden})

    def _judged(self, name: str, partitions: Mapping[TopicPartition, PartitionLag], times: Times) -> GroupLag:
        said, hidden = self.notes.get(name, ()), _hidden(partitions, times)
        notes = (*said, *((hidden_note(hidden),) if hidden and not said else ()), *notes_on(partitions, times))
        found = judged(name, self.now, partitions, self._paces[name], horizon=self.horizon, notes=notes)
        return in_part(found, self.failed[name]) if name in self.failed else found

    def _last_windows(
        self, timed_of: Mapping[str, Mapping[TopicPartition, PartitionLag]]
    ) -> Mapping[str, Sequence[Window]]:
        """Read the last windows of groups with a record that is dated before these were planned, and that they did not see. Hardly ever is there one."""
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
                found = watch.together(list(wanted), read, lambda _: ())
        except LedgerError as exc:
            found = dict.fromkeys(wanted, exc)
        # Without it, the time of a record counts: it never waits for longer than that says.
        for name, why in found.items():
            if isinstance(why, Exception):
                self.notes.setdefault(name, []).append(
                    f"whether records with an old time came late is not known: {why}"
                )
        return {name: windows for name, windows in found.items() if not isinstance(windows, Exception)}

    def _caught_up_for(self, name: str) -> float:
        """Return for how many seconds all that had arrived before may have been read."""
        caught_up_at = self._paces[name].caught_up_at
        assert caught_up_at is not None
        return max(0.0, (self.now - caught_up_at).total_seconds())

    def _since_it_arrived(
        self, name: str, partitions: dict[TopicPartition, PartitionLag], last: Sequence[Window]
    ) -> dict[TopicPartition, PartitionLag]:
        """Return the lag of partitions, in which records that are dated long before they arrived wait only since they may have arrived."""
        if not last:
            return partitions
        since, position = self._caught_up_for(name), watermark(self._states[name])
        older, ids = older_than(partitions, since), position.topic_ids if position else {}
        read = [tp for window in last for tp in read_to_the_end(window, older, ids)]
        return {**partitions, **{tp: replace(partitions[tp], lag_seconds=since) for tp in read}}

    def _hidden_to(
        self, open_log: Callable[[], LogOffsets], lags: Mapping[str, Mapping[TopicPartition, PartitionLag]]
    ) -> Mapping[TopicPartition, int]:
        """Return the high watermarks of the partitions in which an open transaction hides records, of those where nothing else is unread."""
        hiding = {name: may_hide(self._by_name[name], partitions) for name, partitions in lags.items()}

        def ask(names: Collection[str]) -> Mapping[TopicPartition, int]:
            seen_to = {tp: unread_to(lags[name][tp]) for name in names for tp in hiding[name]}
            kafka = open_log()
            high = kafka.bounds(sorted(seen_to), IsolationLevel.READ_UNCOMMITTED)
            more = [tp for tp, bounds in high.items() if bounds.end > seen_to[tp]]
            # Others may have written in between: what is still hidden now belongs to a transaction.
            now = kafka.bounds(more, IsolationLevel.READ_COMMITTED) if more else {}
            self.rounds -= 2 if more else 1
            return {tp: high[tp].end for tp in more if now[tp].end < high[tp].end}

        return self._asked(hiding, ask, "whether open transactions hide records is not known") or {}

    def _times(
        self, open_log: Callable[[], LogOffsets], lags: Mapping[str, Mapping[TopicPartition, PartitionLag]]
    ) -> Times:
        """Ask about the time of what is unread."""
        unread = {
            name: [(tp, start) for tp, found in partitions.items() if (start := unread_from(found)) is not None]
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

        def ask(names: Collection[str]) -> None:
            wanted = {of: self._paces[name] for name in names for of in unread[name]}
            kafka = open_log()
            retentions.update(kafka.retentions(sorted({tp.topic for tp, _ in wanted})))
            asked = {
                (tp, start): Search(
                    tp, start, max(ends[tp], start + 1), now_ms, _expires_ms(retentions.get(tp.topic), now_ms)
                )
                for tp, start in wanted
            }
            guesses = {tp: to_ms(p.caught_up_at) for (tp, _), p in wanted.items() if p.caught_up_at is not None}
            limited = [tp for tp, _ in wanted if (r := retentions.get(tp.topic)) is not None and r.size is not None]
            try:
                hits.update(
                    find(kafka, list(asked.values()), guesses, [rate_probe(tp, now_ms) for tp in limited], self.rounds)
                )
            except KafkaAnswerError:
                # The bounds of a search that was not ended may be days apart.
                searches.update({of: search for of, search in asked.items() if search.is_done})
                raise
            searches.update(asked)

        self._asked(
            {name: [tp for tp, _ in some] for name, some in unread.items()},
            ask,
            "lag in time and headroom are not known",
        )
        return Times(now_ms, searches, hits, retentions)

    def _asked(
        self, wanted: Mapping[str, Sequence[TopicPartition]], ask: Callable[[Collection[str]], _Said], not_known: str
    ) -> _Said | None:
        """Ask Kafka about all groups at once; without an answer about some topics, once more about the groups that do not need these.

        None: it told nothing. If it fails again, no group is asked about: each attempt may take as long as a lookup may.

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
                logger.warning("Of %s, %s: %s", name_some(failed, ", "), not_known, exc)
                self.failed |= failed
                for name in failed:
                    self.notes.setdefault(name, []).append(f"{not_known}: {exc}")
                names = [name for name in names if name not in failed]
        return None


def _seems_expired(partitions: Mapping[TopicPartition, PartitionLag]) -> bool:
    return any(found.verdict is Verdict.DATA_LOSS for found in partitions.values())


def _expires_ms(retention: Retention | None, now_ms: int) -> int | None:
    if retention is None or retention.time is None:
        return None
    return now_ms - retention.time // timedelta(milliseconds=1)


def _hidden(partitions: Mapping[TopicPartition, PartitionLag], times: Times) -> list[str]:
    """Return the topics with something unread whose configuration this user may not read."""
    return sorted({tp.topic for tp, p in partitions.items() if unread_from(p) is not None} - times.retentions.keys())
