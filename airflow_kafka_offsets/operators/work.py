"""What a task does with its windows, one after the other: run the job, record how it ended, commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowTaskTimeout

from airflow_kafka_offsets.core.errors import KafkaOffsetsError, counted
from airflow_kafka_offsets.core.window import Outcome
from airflow_kafka_offsets.operators.job_files import Report
from airflow_kafka_offsets.operators.planning import patiently, small_together, window_result
from airflow_kafka_offsets.operators.runs import try_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_kafka_offsets.core.group import KafkaGroup
    from airflow_kafka_offsets.core.window import Claim
    from airflow_kafka_offsets.operators.definition import Stop
    from airflow_kafka_offsets.service import Planned, WindowService

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Work:
    """One task at work.

    Attributes:
        context: of the task.
        service: the use cases.
        group: the group.
        claim: the task.
        run: run the job on a window, and return what it reported; raises when it fails.
        stop: whether somebody stopped the task.
    """

    context: Context
    service: WindowService
    group: KafkaGroup
    claim: Claim
    run: Callable[[Planned], Report]
    stop: Stop

    def all(self, planned: Sequence[Planned]) -> list[dict[str, Any]]:
        """Work on windows, oldest first, and return what downstream tasks get of each."""
        return small_together([window_result(self.group, p, self._one(p)) for p in planned])

    def _one(self, planned: Planned) -> Report:
        window = planned.window
        if window.span == 0:
            log.info("Window %s is empty: nothing to launch", window.id)
            patiently(lambda: self.service.commit(window.id, self.claim))
            return Report(records=0)
        if done := planned.done:
            log.info("Window %s: an earlier try of this task has run its job, so it is not run again", window.id)
            patiently(lambda: self.service.commit(window.id, self.claim, done.id))
            return Report(records=done.records)
        self.stop.check()
        planned = replace(planned, read_before=self.service.read_before(window.id))
        attempt = self.service.start_attempt(window, self.claim, try_of(self.context))
        report = self._attempt(planned, attempt)
        patiently(lambda: self.service.commit(window.id, self.claim, attempt))
        return report

    def _attempt(self, planned: Planned, attempt: int) -> Report:
        """Run the job and record how it ended: the evidence that the commit rests on."""
        try:
            report = self.run(planned)
            log.info("Window %s: %s", planned.window.id, evidence(planned.window.span, report))
            patiently(lambda: self.service.check(planned.window))
            self.stop.check()
        except BaseException as exc:
            is_kill = self.stop.is_set and not isinstance(exc, AirflowTaskTimeout)
            self._record_failure(attempt, Outcome.KILLED if is_kill else Outcome.FAILED)
            raise
        patiently(lambda: self.service.end_attempt(attempt, Outcome.SUCCEEDED, report.records))
        return report

    def _record_failure(self, attempt: int, outcome: Outcome) -> None:
        try:
            self.service.end_attempt(attempt, outcome)
        except KafkaOffsetsError as exc:
            log.warning("Could not record how the attempt ended: %s", exc)


def evidence(span: int, report: Report) -> str:
    """Say what is known of what a job read.

    >>> evidence(200, Report(10, took_window=True))
    '10 records read of 200 offsets; 190 offsets (95.0 %) gave none'

    Args:
        span: how many offsets the window has.
        report: what the job reported.
    """
    if report.records is not None:
        gaps = span - report.records
        share = f"; {counted(gaps, 'offset')} ({gaps / span:.1%} gave none".replace("%", " %)") if gaps > 0 else ""
        return f"{counted(report.records, 'record')} read of {span} offsets{share}"
    if report.written is False:
        return "an earlier run had written it, so this one read nothing"
    if report.took_window:
        return (
            "its job read it by means of its own and reported no count: that the job ended with success is the evidence"
        )
    if report.took_window is None:
        return (
            "no report comes from a job in a cluster: that it ended with success is the evidence. (A job that calls "
            "current_window() checks its read by itself)"
        )
    return "its job never called current_window(): that it ended with exit code 0 is all the evidence that it read the window"


def task_result(group: KafkaGroup, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what the task returns: the window, or of a replay of several ``{"group": ..., "windows": [...]}``."""
    return results[0] if len(results) == 1 else {"group": group.name, "windows": list(results)}
