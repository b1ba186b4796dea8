"""What a task does with its windows, one after the other: run the job, record how it ended, commit."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.ending import NO_JOB, earlier_try, evidence
from airflow_kafka_offsets.core.errors import KafkaOffsetsError
from airflow_kafka_offsets.core.tries import records_read, unseen_before
from airflow_kafka_offsets.core.window import Outcome
from airflow_kafka_offsets.launch.job_files import NO_REPORT, Report
from airflow_kafka_offsets.service.topics import as_last_planned
from airflow_kafka_offsets.task.links import show_windows
from airflow_kafka_offsets.task.metrics import TaskMetrics
from airflow_kafka_offsets.task.plan import patiently
from airflow_kafka_offsets.task.results import small_together, window_result
from airflow_kafka_offsets.task.runs import try_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_kafka_offsets.core.group import KafkaGroup
    from airflow_kafka_offsets.core.window import Claim, Window
    from airflow_kafka_offsets.service.plan import Planned
    from airflow_kafka_offsets.service.windows import WindowService
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
        drives_here: whether the job's driver is on this worker, where the next try does not find it.
    """

    context: Context
    service: WindowService
    group: KafkaGroup
    claim: Claim
    run: Callable[[Planned], Report]
    stop: Stop
    ending: Ending
    drives_here: bool = False

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
            return self._commit(planned, Report(records=0))
        if done := planned.done:
            self.ending.job_done(earlier_try(done.try_number, done.records))
            return self._commit(planned, Report(records=done.records), done.id)
        self.stop.check()
        attempt = self.service.start_attempt(window, self.claim, try_of(self.context))
        return self._commit(planned, self._attempt(planned, attempt), attempt)

    def _warn_of_twin(self, window: Window) -> None:
        """Say that the driver of the try before may still run: on an Airflow that lets a worker end without its task."""
        if not self.drives_here or self.context.get("task_state_store") is not None:
            return
        try:
            unseen = unseen_before(self.service.ledger.attempts(window.id))
        except KafkaOffsetsError as exc:  # only a warning depends on it
            logger.warning("Could not ask the ledger whether the job of an earlier try may still run: %s", exc)
            return
        if unseen is not None:
            logger.warning(
                "Window %s: no end of try %d of %s was reported, and this Airflow does not ask a task to stop when its worker is asked to (it "
                "does from version 3.3 on). If the worker was not stopped with all of its processes, the job of that try still runs beside "
                "this one: stop it there. Only this try can commit",
                *(window.id, unseen.try_number, unseen.claim.run_id),
            )

    def _attempt(self, planned: Planned, attempt: int) -> Report:
        """Run the job and record how it ended. This is the evidence for the commit."""
        began, lane = time.monotonic(), planned.window.lane
        try:
            self._warn_of_twin(planned.window)
            # From the attempt on, no one freezes other schemas with the window.
            report = self.run(ready(self.service, self.group, planned))
            patiently(lambda: self.service.check(planned.window))
            self.stop.check()
        except BaseException as exc:
            outcome = Outcome.KILLED if self.stop.is_kill(exc) else Outcome.FAILED
            self._record_failure(attempt, outcome)
            self._metrics.attempt_ended(lane, outcome, time.monotonic() - began)
            raise
        patiently(lambda: self.service.end_attempt(attempt, Outcome.SUCCEEDED, report.records))
        self._metrics.attempt_ended(lane, Outcome.SUCCEEDED, time.monotonic() - began, report.records)
        known = evidence(
            planned.window.span,
            records=report.records,
            written=report.written,
            took_window=report.took_window,
            bad=report.bad,
        )
        self.ending.job_done(known)
        return report

    def _commit(self, planned: Planned, report: Report, attempt: int | None = None) -> Report:
        commit(self.service, self.claim, planned, self.ending, attempt, report)
        return report

    @property
    def _metrics(self) -> TaskMetrics:
        return TaskMetrics(self.group.name, self.claim)

    def _record_failure(self, attempt: int, outcome: Outcome) -> None:
        try:
            self.service.end_attempt(attempt, outcome)
        except KafkaOffsetsError as exc:
            logger.warning("Could not record how the attempt ended: %s", exc)


def record(service: WindowService, window: Window, claim: Claim, context: Context, report: Report) -> None:
    """Record in the window's history what the job of another launcher reported. When that job began and ended is not known."""
    attempt = patiently(lambda: service.start_attempt(window, claim, try_of(context)))
    patiently(lambda: service.end_attempt(attempt, Outcome.SUCCEEDED, report.records))


def ready(service: WindowService, group: KafkaGroup, planned: Planned) -> Planned:
    """Return a window with all that its job needs to know."""
    window_id = planned.window.id
    known = replace(planned, read_before=records_read(service.ledger.attempts(window_id)))
    if group.registry is None:
        return known
    return replace(
        known,
        frozen=service.frozen(window_id),
        topics=tuple(as_last_planned(service.ledger, group, has_planned=True).topics),
    )


def commit(
    service: WindowService,
    claim: Claim,
    planned: Planned,
    ending: Ending,
    attempt: int | None = None,
    report: Report = NO_REPORT,
) -> None:
    """Commit a window as `WindowService.commit` does, and tell it: at the end of the log, to lineage and in metrics.

    Args:
        service: the use cases.
        claim: the task.
        planned: the window.
        ending: writes the end of the log.
        attempt: the attempt that is the evidence; None: there was nothing to run, or another launcher ran the job.
        report: what the job reported.
    """
    began, window = time.monotonic(), planned.window
    is_first = patiently(lambda: service.commit(window.id, claim, attempt))
    ending.committed(planned, report)
    metrics = TaskMetrics(window.group, claim)
    metrics.committed(window.lane, time.monotonic() - began, is_first=is_first, is_rerun=planned.is_rerun)


def task_result(group: KafkaGroup, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what the task returns: the window, or for a replay of several ``{"group": ..., "windows": [...]}``."""
    return results[0] if len(results) == 1 else {"group": group.name, "windows": list(results)}
