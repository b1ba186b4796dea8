"""Looks, before windows are cut, whether retention may remove their records before they have run. Reads no record."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_kafka_offsets.core.errors import KafkaAnswerError, KafkaRefusedError
from airflow_kafka_offsets.core.group import KafkaGroup, OnAtRisk
from airflow_kafka_offsets.core.lag.measure import to_ms
from airflow_kafka_offsets.core.lag.pace import Pace, commits_wanted, pace_of
from airflow_kafka_offsets.core.lag.retention import Retention, hidden_note
from airflow_kafka_offsets.core.lag.risk import Danger, dangers, endangered, probes, together, warning_of
from airflow_kafka_offsets.core.lag.search import Search
from airflow_kafka_offsets.core.offsets import TopicPartition, topics_of
from airflow_kafka_offsets.core.plan.ownership import GroupState
from airflow_kafka_offsets.core.plan.planning import Plan
from airflow_kafka_offsets.core.ranges import OffsetRanges
from airflow_kafka_offsets.core.window import Draft
from airflow_kafka_offsets.ports import LogOffsets
from airflow_kafka_offsets.service.times import find

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Guard:
    """Asks one ledger and one Kafka. What it learned of a group's pace it keeps, so that a turn asks the same questions of Kafka."""

    ledger: Ledger
    kafka: LogOffsets
    clock: Callable[[], datetime]
    _paces: dict[str, Pace] = field(default_factory=dict)

    def look(self, group: KafkaGroup, plan: Plan) -> dict[TopicPartition, Danger]:
        """Return what is in danger of all that there is to read, what expires first at first.

        Raises:
            KafkaAnswerError: Kafka did not answer, or does not let this user read how long the topics keep their records, and the group
                plans nothing at risk (``on_at_risk="fail"``).
        """
        if not plan.ranges.span:
            return {}
        try:
            self._check_known(group, plan.ranges)
            return self._look(group, plan.ranges)
        except KafkaAnswerError as exc:
            if group.on_at_risk is OnAtRisk.FAIL:
                raise
            logger.warning("Group %s: whether retention is near is not known: %s", group.name, exc)
            return {}

    def warning(self, group: KafkaGroup, windows: Mapping[str, Draft]) -> str | None:
        """Return a warning about windows that run as they are, by their names; None: all have time, or that is not known.

        They are never refused: they own their offsets, and only their job can save these. In a turn (`Memory`), what is not known is asked for
        after it.
        """
        ranges = together(windows.values())
        try:
            at_risk = self._look(group, ranges) if ranges else {}
            return warning_of(list(windows), at_risk) if at_risk else None
        except KafkaAnswerError as exc:
            logger.info("Group %s: whether retention is near is not known: %s", group.name, exc)
            return None

    def _check_known(self, group: KafkaGroup, ranges: OffsetRanges) -> None:
        topics = topics_of(ranges.without_empty())
        known = self._retentions(group, topics)
        hidden = [topic for topic in topics if topic not in known]
        if not hidden:
            return
        note = hidden_note(hidden)
        if group.on_at_risk is OnAtRisk.FAIL:
            raise KafkaRefusedError(f"Whether retention is near is not known: {note}. Nothing was planned")
        logger.warning("Group %s: whether retention is near is not known: %s", group.name, note)

    def _look(self, group: KafkaGroup, ranges: OffsetRanges) -> dict[TopicPartition, Danger]:
        retentions, pace, now_ms = self._retentions(group, topics_of(ranges)), self._pace(group), to_ms(self.clock())
        asked = probes(ranges, retentions, pace, now_ms)
        hits = self.kafka.first_records(list(asked.values())) if asked else {}
        at_risk = endangered(ranges, asked, hits)
        searches = []
        for tp, offsets in at_risk.items():
            seconds = retentions[tp.topic].time
            assert seconds is not None
            search = Search(tp, offsets.start, ranges[tp].end, now_ms, now_ms - int(seconds.total_seconds() * 1000))
            search.learn(asked[tp].time_ms, hits[asked[tp]])
            searches.append(search)
        find(self.kafka, searches, {})
        # A search that found no record has nothing to lose.
        ages = {s.partition: (now_ms - s.low) / 1000 for s in searches if not s.is_empty}
        return dangers(at_risk, ages, retentions, pace)

    def _retentions(self, group: KafkaGroup, topics: Sequence[str]) -> Mapping[str, Retention]:
        known = self.kafka.retentions(topics)
        if group.retention is None:
            return known
        return {topic: Retention(group.retention, is_assumed=True) for topic in topics} | dict(known)

    def _pace(self, group: KafkaGroup) -> Pace:
        if group.name not in self._paces:
            commits = self.ledger.recent_commits({group.name: commits_wanted(group)}).get(group.name, ())
            self._paces[group.name] = pace_of(group, GroupState(), commits)
        return self._paces[group.name]
