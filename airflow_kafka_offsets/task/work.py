"""What a task does with its windows, one after the other: run the job, record how it ended, commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.ending import NO_JOB, earlier_try, evidence
from airflow_kafka_offsets.core.errors import KafkaOffsetsError
from airflow_kafka_offsets.core.window import Outcome
from airflow_kafka_offsets.launch.job_files import Report
from airflow_kafka_offsets.task.links import show_windows
from airflow_kafka_offsets.task.plan import patiently
from airflow_kafka_offsets.task.results import small_together, window_result
from airflow_kafka_offsets.task.runs import try_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_kafka_offsets.core.group import KafkaGroup
    from airflow_kafka_offsets.core.window import Claim
    from airflow_kafka_offsets.service.windows import Planned, WindowService
    from airflow_kafka_offsets.task.definition import Stop
    from airflow_kafka_offsets.task.ending import Ending

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Work:
    """One task at work.

    Attributes:
        context: of the task.
        service: the use cases.
        group: the group.
        claim: the task.
        run: run the job on a window, and return what it reported; raises when it fails.
        stop: whether someone stopped the task.
        ending: writes the end of the log; it gets a note of each step.
    """

    context: Context
    service: WindowService
    group: KafkaGroup
    claim: Claim
    run: Callable[[Planned], Report]
    stop: Stop
    ending: Ending

    def all(self, planned: Sequence[Planned]) -> list[dict[str, Any]]:
        """Work on windows, oldest first, and return what downstream tasks get of each."""
        windows = [p.window for p in planned]
        show_windows(self.context, windows)
        results = small_together([window_result(self.group, p, self._one(p)) for p in planned])
        records = [result["records"] for result in results]
        show_windows(self.context, windows, None if None in records else sum(records))
        return results

    def _one(self, planned: Planned) -> Report:
        window = planned.window
        if window.span == 0:
            self.ending.job_done(NO_JOB)
            self._commit(planned)
            return Report(records=0)
        if done := planned.done:
            self.ending.job_done(earlier_try(done.try_number, done.records))
            self._commit(planned, done.id)
            return Report(records=done.records)
        self.stop.check()
        planned = replace(planned, read_before=self.service.read_before(window.id))
        attempt = self.service.start_attempt(window, self.claim, try_of(self.context))
        report = self._attempt(planned, attempt)
        self._commit(planned, attempt)
        return report

    def _attempt(self, planned: Planned, attempt: int) -> Report:
        """Run the job and record how it ended. This is the evidence for the commit."""
        try:
            report = self.run(planned)
            patiently(lambda: self.service.check(planned.window))
            self.stop.check()
        except BaseException as exc:
            self._record_failure(attempt, Outcome.KILLED if self.stop.is_kill(exc) else Outcome.FAILED)
            raise
        patiently(lambda: self.service.end_attempt(attempt, Outcome.SUCCEEDED, report.records))
        known = evidence(
            planned.window.span, records=report.records, written=report.written, took_window=report.took_window
        )
        self.ending.job_done(known)
        return report

    def _commit(self, planned: Planned, attempt: int | None = None) -> None:
        patiently(lambda: self.service.commit(planned.window.id, self.claim, attempt))
        self.ending.committed(planned)

    def _record_failure(self, attempt: int, outcome: Outcome) -> None:
        try:
            self.service.end_attempt(attempt, outcome)
        except KafkaOffsetsError as exc:
            logger.warning("Could not record how the attempt ended: %s", exc)


def task_result(group: KafkaGroup, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what the task returns: the window, or for a replay of several ``{"group": ..., "windows": [...]}``."""
    return results[0] if len(results) == 1 else {"group": group.name, "windows": list(results)}
