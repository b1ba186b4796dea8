"""Asks Kafka and Airflow what planning needs, in a few rounds. Reads no record."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_kafka_offsets.core import leader_epochs
from airflow_kafka_offsets.core.errors import KafkaAnswerError, KafkaRefusedError, name_some
from airflow_kafka_offsets.core.fields import EPOCH
from airflow_kafka_offsets.core.group import KafkaGroup, OnAtRisk
from airflow_kafka_offsets.core.lag.measure import to_ms
from airflow_kafka_offsets.core.lag.pace import commits_wanted, pace_of
from airflow_kafka_offsets.core.lag.retention import Retention, hidden_note
from airflow_kafka_offsets.core.lag.risk import (
    Danger,
    dangers,
    endangered,
    local_probes,
    probes,
    remote_note,
    together,
    warning_of,
)
from airflow_kafka_offsets.core.lag.search import Probe, Search
from airflow_kafka_offsets.core.lag.words import OPEN_FOR
from airflow_kafka_offsets.core.log import Bounds, IsolationLevel, LogSnapshot
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition, topics_of
from airflow_kafka_offsets.core.plan.decide import Asking, Choice, Facts, Given, InLedger, holders_to_ask, to_run
from airflow_kafka_offsets.core.plan.ownership import GroupState, Position, crossed_with
from airflow_kafka_offsets.core.plan.planning import SECOND_LOOK_LEVEL, suspects
from airflow_kafka_offsets.core.plan.readable import ends_behind
from airflow_kafka_offsets.core.plan.replay import between_times
from airflow_kafka_offsets.core.plan.request import Live, Refused, Request, TimeSpan
from airflow_kafka_offsets.core.ranges import OffsetRanges
from airflow_kafka_offsets.core.starting import AtCommitted, first_offsets, lookup_time
from airflow_kafka_offsets.core.window import Claim, Draft, Window, WindowRecord
from airflow_kafka_offsets.ports import LogOffsets
from airflow_kafka_offsets.service.publish import Publisher
from airflow_kafka_offsets.service.times import search_times
from airflow_kafka_offsets.service.topics import learned_ids, topics_now

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger

logger = logging.getLogger(__name__)

SECOND_LOOKS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each further look at a log that seems to end too early. Their sum is what a slow new leader may need."""


@dataclass(frozen=True, slots=True)
class Look:
    """Asks what one plan needs, of Airflow, Kafka and the ledger.

    Attributes:
        ledger: for the speed of the last commits.
        kafka: the group's Kafka.
        publisher: of the group's offset store.
        now: the moment of planning.
        sleep: waits for a leader that lags.
    """

    ledger: Ledger
    kafka: LogOffsets
    publisher: Publisher
    now: datetime
    sleep: Callable[[float], None]

    def at_span(self, group: KafkaGroup, state: GroupState, span: TimeSpan) -> Facts:
        """Look up the offsets of a time span."""
        level = group.isolation_level
        log = self.kafka.snapshot(topics_now(self.kafka, group, state.position), level)
        partitions = list(log.bounds)
        starts = self.kafka.offsets_at(partitions, max(span.start, EPOCH), level)
        ends = self.kafka.offsets_at(partitions, max(span.end, EPOCH), level)
        return Facts(state.version, logs={level: log}, between=between_times(starts, ends, log))

    def at_holders(self, asking: Asking, in_ledger: InLedger, facts: Facts, is_over: Callable[[Claim], bool]) -> Facts:
        """Ask Airflow which holders are over, and look which of the others wait for the asking run."""
        windows = holders_to_ask(asking, in_ledger)
        over = {holder: is_over(holder) for holder in {record.holder for record in windows}}
        crossed = self._crossed(asking.claim, [record for record in windows if not over[record.holder]])
        return replace(
            facts, over={(record.seq, record.holds): over[record.holder] for record in windows}, crossed=crossed
        )

    def _crossed(self, claim: Claim, busy: Sequence[WindowRecord]) -> dict[int, str]:
        found: dict[int, str] = {}
        own = self.ledger.records(self._had(claim)) if busy else {}
        held = [record.id for record in own.values() if record.holder.is_same_run(claim)]
        for record in busy if held else ():
            if mine := crossed_with(held, claim, record.holder, self._had(record.holder)):
                found[record.seq] = mine
        return found

    def _had(self, claim: Claim) -> list[str]:
        """Return the windows that the run of a claim ever had."""
        return [record.id for record in self.ledger.windows_of_run(claim.dag_id, claim.run_id)]

    def at_kafka(
        self, request: Request | Refused | Given | None, in_ledger: InLedger, choice: Choice, facts: Facts
    ) -> Facts:
        """Look at all that a choice needs of Kafka: the group's topics if it cuts windows, and the windows that run again."""
        group, position, again = in_ledger.group, in_ledger.state.position, to_run(choice, in_ledger)
        wanted: dict[IsolationLevel, set[str]] = {}
        for window in again:
            wanted.setdefault(window.isolation_level, set()).update(topics_of(window.ranges.without_empty()))
        topics = topics_now(self.kafka, group, position) if choice.new else None
        wanted.setdefault(group.isolation_level, set()).update(topics or (), topics_of(in_ledger.owned.gaps))
        logs = dict(facts.logs)
        for level, names in sorted(wanted.items()):
            before = logs.get(level, LogSnapshot({}, {}))
            if names - before.topic_ids.keys():
                log = self.kafka.snapshot(sorted(names), level)
                logs[level] = LogSnapshot({**before.topic_ids, **log.topic_ids}, {**before.bounds, **log.bounds})
        facts = replace(facts, topics=topics, logs=logs)
        if choice.new:
            assert isinstance(request, Live)
            facts = self._at_new(group, position, request, facts)
        facts = self._at_windows(again, facts)
        return replace(facts, epoch_ends=self.kafka.epoch_ends(facts.epochs) if facts.epochs else {})

    def _at_new(self, group: KafkaGroup, position: Position | None, request: Live, facts: Facts) -> Facts:
        log = facts.logs[group.isolation_level].only(facts.topics or ()) if facts.logs else LogSnapshot({}, {})
        ends = self._offsets_at(group, log, request.ends_at)
        if position is None:
            return replace(facts, ends=ends, first=self.first_offsets(group, log))
        behind = {tp: position.offsets[tp] for tp in suspects(position, log)}
        recovered = self._again(behind, SECOND_LOOK_LEVEL)
        doubtful = leader_epochs.doubtful(position.leader_epochs, position.topic_ids, log)
        return replace(facts, ends=ends, recovered=recovered, epochs=frozenset(doubtful))

    def first_offsets(self, group: KafkaGroup, log: LogSnapshot) -> Offsets:
        """Return where a group without a watermark starts."""
        start = group.start
        at_time = self._offsets_at(group, log, lookup_time(start, self.now))
        if not isinstance(start, AtCommitted):
            return first_offsets(start, log, at_time=at_time)
        store = self.publisher.address
        committed = (self.publisher if store else self.kafka).committed(group.name, list(log.bounds))
        return first_offsets(start, log, committed=committed, committed_in=store or "The Kafka consumer group")

    def _offsets_at(
        self, group: KafkaGroup, log: LogSnapshot, time: datetime | None
    ) -> Mapping[TopicPartition, int | None]:
        return self.kafka.offsets_at(list(log.bounds), time, group.isolation_level) if time else {}

    def _at_windows(self, windows: Sequence[Window], facts: Facts) -> Facts:
        """Look at the logs of windows until none seems to end too early: a new leader may be slow."""
        logs, epochs = dict(facts.logs), set(facts.epochs)
        for level in sorted({window.isolation_level for window in windows if window.span}):
            of_level = [window for window in windows if window.isolation_level is level]
            behind: dict[TopicPartition, int] = {}
            for window in of_level:
                for tp in ends_behind(window, logs[level]):
                    behind[tp] = max(window.ranges[tp].end, behind.get(tp, 0))
            logs[level] = LogSnapshot(logs[level].topic_ids, {**logs[level].bounds, **self._again(behind, level)})
            epochs.update(leader_epochs.of_windows(of_level, logs[level]))
        numbers = frozenset(window.seq for window in windows)
        ids = learned_ids(self.ledger, windows)
        return replace(facts, logs=logs, epochs=frozenset(epochs), windows=numbers, ids=ids)

    def at_windows(self, windows: Sequence[Window]) -> Facts:
        """Look at windows that may be run again, and at nothing else."""
        logs = {}
        for level in sorted({window.isolation_level for window in windows if window.span}):
            of_level = [window for window in windows if window.isolation_level is level]
            topics = {tp.topic for window in of_level for tp in window.ranges.without_empty()}
            logs[level] = self.kafka.snapshot(sorted(topics), level)
        facts = self._at_windows(windows, Facts(0, logs=logs))
        return replace(facts, epoch_ends=self.kafka.epoch_ends(facts.epochs) if facts.epochs else {})

    def _again(self, wanted: Offsets, level: IsolationLevel) -> dict[TopicPartition, Bounds]:
        """Look again at logs that seem to end before these offsets, until none does."""
        bounds: dict[TopicPartition, Bounds] = {}
        behind = sorted(wanted)
        for pause in SECOND_LOOKS:
            if not behind:
                break
            self.sleep(pause)
            bounds |= self.kafka.bounds(behind, level)
            behind = [tp for tp in behind if bounds[tp].end < wanted[tp]]
        return bounds

    def at_retention(self, group: KafkaGroup, ranges: OffsetRanges) -> dict[TopicPartition, Danger]:
        """Return the records at risk, soonest first.

        Raises:
            KafkaAnswerError: Kafka did not answer, or does not let this user read the retention of topics, and the group plans nothing at
                risk (``on_at_risk="fail"``).
        """
        if not ranges.span:
            return {}
        try:
            retentions = self._retentions(group, topics_of(ranges.without_empty()))
            if hidden := [topic for topic in topics_of(ranges.without_empty()) if topic not in retentions]:
                raise KafkaRefusedError(f"{hidden_note(hidden)}. Nothing was planned")
            return self._at_risk(group, ranges, retentions)
        except KafkaAnswerError as exc:
            if group.on_at_risk is OnAtRisk.FAIL:
                raise
            logger.warning("Group %s: its retention is not known: %s", group.name, exc)
            return {}

    def hanging(self, group: KafkaGroup, log: LogSnapshot) -> Sequence[TopicPartition]:
        """Return the partitions in which a transaction that hangs hides records after the end of a log. It is only for a warning."""
        if group.isolation_level is IsolationLevel.READ_UNCOMMITTED or not log.bounds:
            return ()
        try:
            high = self.kafka.bounds(sorted(log.bounds), IsolationLevel.READ_UNCOMMITTED)
            since = to_ms(self.now - OPEN_FOR)
            probes = {tp: Probe(tp, since) for tp, bounds in log.bounds.items() if high[tp].end > bounds.end}
            hits = self.kafka.first_records(list(probes.values())) if probes else {}
        except KafkaAnswerError as exc:
            logger.info("Group %s: whether a transaction hides records is not known: %s", group.name, exc)
            return ()
        # The first of the last minutes comes after the first that is hidden, so that one is older.
        return [tp for tp, probe in probes.items() if (hit := hits[probe]) is None or hit.offset > log.bounds[tp].end]

    def warn_of_retention(self, group: KafkaGroup, windows: Mapping[str, Draft]) -> None:
        """Warn of windows, by name, that may expire before they have run, or lie in a remote tier. They are never refused: only their job saves
        the records.
        """
        ranges = together(windows.values())
        if not ranges:
            return
        try:
            retentions = self._retentions(group, topics_of(ranges))
            at_risk = self._at_risk(group, ranges, retentions)
            local = local_probes(ranges, retentions, self.now)
            remote = remote_note(windows.values(), local, self.kafka.first_records(list(local.values())))
        except KafkaAnswerError as exc:
            logger.info("Group %s: its retention is not known: %s", group.name, exc)
            return
        if at_risk:
            logger.warning("Group %s: %s", group.name, warning_of(list(windows), at_risk))
        if remote:
            logger.warning("Group %s: %s", group.name, remote)

    def _at_risk(
        self, group: KafkaGroup, ranges: OffsetRanges, retentions: Mapping[str, Retention]
    ) -> dict[TopicPartition, Danger]:
        if all(retention.time is None for retention in retentions.values()):
            return {}
        commits = self.ledger.recent_commits({group.name: commits_wanted(group)}).get(group.name, ())
        pace, now_ms = pace_of(group, GroupState(), commits), to_ms(self.now)
        questions = probes(ranges, retentions, pace, now_ms)
        hits = self.kafka.first_records(list(questions.values())) if questions else {}
        at_risk = endangered(ranges, questions, hits)
        searches = []
        for tp, offsets in at_risk.items():
            kept = retentions[tp.topic].time
            assert kept is not None
            search = Search(tp, offsets.start, ranges[tp].end, now_ms, now_ms - int(kept.total_seconds() * 1000))
            search.learn(questions[tp].time_ms, hits[questions[tp]])
            searches.append(search)
        search_times(self.kafka, searches, {})
        # A search that found no record has nothing to lose.
        ages = {s.partition: (now_ms - s.low) / 1000 for s in searches if not s.is_empty}
        return dangers(at_risk, ages, retentions, pace)

    def _retentions(self, group: KafkaGroup, topics: Sequence[str]) -> Mapping[str, Retention]:
        retentions = self.kafka.retentions(topics)
        if group.retention is None:
            return retentions
        return {topic: Retention(group.retention, is_assumed=True) for topic in topics} | dict(retentions)


def warn_of_silence(windows: Collection[Window], facts: Facts) -> None:
    """Warn of windows that run again although Kafka did not report where the epochs of their leaders end."""
    for level, log in sorted(facts.logs.items()):
        of_level = [window for window in windows if window.isolation_level is level]
        if silent := leader_epochs.unanswered(leader_epochs.of_windows(of_level, log), facts.epoch_ends):
            logger.warning("%s: %s", name_some([window.id for window in of_level], ", "), leader_epochs.warning(silent))
