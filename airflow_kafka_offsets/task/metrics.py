"""Sends what happens to windows as Airflow's own metrics: to StatsD, Datadog or OpenTelemetry, as Airflow is configured.

If metrics are off in Airflow, nothing is sent. No error in here changes how a task ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.plan.ownership import How
from airflow_kafka_offsets.core.window import Claim, Lane, Outcome

if TYPE_CHECKING:
    from airflow_kafka_offsets.service.plan import Planned

WINDOWS_PLANNED = "kafka_offsets.windows_planned"
WINDOWS_COMMITTED = "kafka_offsets.windows_committed"
WINDOWS_REPLAYED = "kafka_offsets.windows_replayed"
ATTEMPTS_FAILED = "kafka_offsets.attempts_failed"
RECORDS = "kafka_offsets.records"
OFFSETS_LOST = "kafka_offsets.offsets_lost"

ATTEMPT_DURATION = "kafka_offsets.attempt_duration"
COMMIT_DURATION = "kafka_offsets.commit_duration"

COUNTERS = (WINDOWS_PLANNED, WINDOWS_COMMITTED, WINDOWS_REPLAYED, ATTEMPTS_FAILED, RECORDS, OFFSETS_LOST)
TIMERS = (ATTEMPT_DURATION, COMMIT_DURATION)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TaskMetrics:
    """The metrics of a task and its group.

    Attributes:
        group: the name of the group.
        claim: the task.
    """

    group: str
    claim: Claim

    def planned(self, planned: Sequence[Planned]) -> None:
        """Count the windows that were cut, and the offsets that retention had removed before these windows start."""
        for lane in Lane:
            new = [p.window for p in planned if p.how is How.NEW and p.window.lane is lane]
            self._count(WINDOWS_PLANNED, len(new), lane)
            self._count(OFFSETS_LOST, sum(window.lost.span for window in new), lane)

    def attempt_ended(self, lane: Lane, outcome: Outcome, seconds: float, records: int | None = None) -> None:
        """Record how long a job ran, whether it failed, and how many records it read."""
        self._time(ATTEMPT_DURATION, seconds, lane, outcome=outcome.value)
        if outcome is Outcome.SUCCEEDED:
            self._count(RECORDS, records or 0, lane)
        else:
            self._count(ATTEMPTS_FAILED, 1, lane, outcome=outcome.value)

    def committed(self, lane: Lane, seconds: float, *, is_first: bool, is_rerun: bool) -> None:
        """Count a commit. If the window was committed before this task, it counts as replayed."""
        self._time(COMMIT_DURATION, seconds, lane)
        self._count(WINDOWS_COMMITTED, int(is_first), lane)
        self._count(WINDOWS_REPLAYED, int(is_rerun), lane)

    def _count(self, name: str, count: int, lane: Lane, **tags: str) -> None:
        if count:
            self._send(name, lane, tags, lambda stats, name, tags: stats.incr(name, count, tags=tags))

    def _time(self, name: str, seconds: float, lane: Lane, **tags: str) -> None:
        length = timedelta(seconds=seconds)
        self._send(name, lane, tags, lambda stats, name, tags: stats.timing(name, length, tags=tags))

    def _send(
        self, name: str, lane: Lane, tags: Mapping[str, str], send: Callable[[Any, str, dict[str, str]], None]
    ) -> None:
        with _harmless():
            from airflow_kafka_offsets.airflow_versions import Stats

            whose = {"group": self.group, "dag_id": self.claim.dag_id, "task_id": self.claim.task_id}
            send(Stats, name, {**whose, "lane": lane.value, **tags})
            if _drops_tags():
                send(Stats, name_with_group(name, self.group), {})


@contextmanager
def _harmless() -> Iterator[None]:
    try:
        yield
    except Exception:
        logger.warning("A metric could not be sent", exc_info=True)


@cache
def _drops_tags() -> bool:
    """Whether metrics go to plain StatsD, which has no tags, and Airflow sends the long names there, too."""
    from airflow_kafka_offsets.airflow_versions import conf

    def is_on(option: str, *, if_unknown: bool = False) -> bool:
        return bool(conf.getboolean("metrics", option, fallback=if_unknown))

    is_plain = is_on("statsd_on") and not is_on("statsd_datadog_enabled") and not is_on("statsd_influxdb_enabled")
    # Airflow 3.1 has no such option, and sends only the long names.
    return is_plain and is_on("legacy_names_on", if_unknown=True)


def name_with_group(name: str, group: str) -> str:
    """Return a metric's name for a server that has no tags: the group comes last, as one part of the name.

    >>> name_with_group(WINDOWS_COMMITTED, "lake.orders")
    'kafka_offsets.windows_committed.lake__orders'
    """
    # As Airflow's own names have it: there, a dot begins the next part of a name.
    return f"{name}.{group.replace('.', '__')}"
