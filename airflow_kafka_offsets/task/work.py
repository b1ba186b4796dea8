"""What a task does with its windows, one after the other: run the job, record how it ended, commit."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.airflow_versions import AirflowSkipException, TaskDeferred
from airflow_kafka_offsets.core import ending
from airflow_kafka_offsets.core.ending import NO_JOB, RUNS_AGAIN, Done, Left
from airflow_kafka_offsets.core.errors import KafkaOffsetsError, LedgerUnavailableError, LogError, counted, name_some
from airflow_kafka_offsets.core.evidence import NO_REPORT, Report
from airflow_kafka_offsets.core.group import Until
from airflow_kafka_offsets.core.lineage import ReadWindow
from airflow_kafka_offsets.core.plan.request import triggers_consumers
from airflow_kafka_offsets.core.run import records_read, unseen_before
from airflow_kafka_offsets.core.window import Lane, Outcome
from airflow_kafka_offsets.launch.job_files import ranges_by_topic
from airflow_kafka_offsets.service.topics import as_last_planned
from airflow_kafka_offsets.spark.errors import LostRecordsError
from airflow_kafka_offsets.task.metrics import TaskMetrics
from airflow_kafka_offsets.task.plan import SILENT, follows, patiently
from airflow_kafka_offsets.wiring.connections import without_secrets

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.group import KafkaGroup
    from airflow_kafka_offsets.core.run import Run
    from airflow_kafka_offsets.core.window import Window, WindowRecord
    from airflow_kafka_offsets.service.plan import Planned
    from airflow_kafka_offsets.service.windows import WindowService
    from airflow_kafka_offsets.task.definition import Stop

logger = logging.getLogger(__name__)

MAX_RANGES_IN_XCOM = 1000
"""If a result has more ranges than this, over all its windows, they stay in the ledger."""

_JSON_OF_SPARK = ("assign", "starting_offsets", "ending_offsets")


@dataclass(slots=True)
class Job:
    """A job at work on a window.

    Attributes:
        planned: the window, as `ready` returns it.
        report: what the job reported; set by whoever runs it.
    """

    planned: Planned
    report: Report = NO_REPORT


@dataclass(frozen=True, slots=True)
class _Success:
    """The success of a job: its proof in words, its report, and its attempt if the ledger has one."""

    words: str
    report: Report
    attempt: int | None = None


class Work:
    """A task at work on its windows. On exit, it ends the task's log with what became of them.

    Args:
        run: the task's run.
        service: the use cases.
        group: the group.
        planned: the windows, in the order in which the task works on them.
        stop: whether someone stopped the task, or None if another launcher runs the jobs. The log of jobs that the task runs is folded.
        drives_here: whether the job's driver is on this worker, where the next try does not find it.
        again: for the end of the log: what the next try does if the job has no recorded success.
        spark_error: return the line of Spark's output with the error that ended the job, if there is one.
    """

    def __init__(
        self,
        run: Run,
        service: WindowService,
        group: KafkaGroup,
        planned: Sequence[Planned],
        stop: Stop | None = None,
        *,
        drives_here: bool = False,
        again: str = RUNS_AGAIN,
        spark_error: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.done: list[Done] = []
        self._run = run
        self._service = service
        self._group = group
        self._planned = planned
        self._stop = stop
        self._drives_here = drives_here
        self._again = again
        self._spark_error = spark_error
        self._success: _Success | None = None
        self._reports: list[Report] = []
        self._metrics = TaskMetrics(group.name, run.claim)
        self._folded = [p.window.id for p in planned if p.needs_job] if stop is not None else []

    def __enter__(self) -> Work:
        if self._folded:
            logger.info(
                "::group::Spark, on %s: %s", counted(len(self._folded), "window"), name_some(self._folded, ", ")
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, _: TracebackType | None) -> None:
        if self._folded:
            logger.info("::endgroup::")
        if isinstance(exc, TaskDeferred):
            return
        try:
            self._end_log(exc)
        except Exception:
            logger.warning(SILENT, exc_info=True)

    @contextmanager
    def attempt(self, planned: Planned) -> Iterator[Job]:
        """Record an attempt at a window, in which the caller runs the job. Its recorded success is the evidence for the commit."""
        assert self._stop is not None
        self._stop.check()
        window = planned.window
        number = self._service.start_attempt(window, self._run.claim, self._run.this_try)
        began = time.monotonic()
        try:
            began -= self._seconds_deferred(window, number)
            self._warn_of_twin(window)
            # From the attempt on, no one freezes other schemas with the window.
            job = Job(ready(self._service, self._group, planned))
            yield job
            patiently(lambda: self._service.check_same_topics(window))
            self._stop.check()
        except TaskDeferred:  # the job goes on, and with it the attempt
            raise
        except BaseException as exc:
            outcome = Outcome.KILLED if self._stop.is_kill(exc) else Outcome.FAILED
            self._record_failure(number, outcome)
            self._metrics.attempt_ended(window.lane, outcome, time.monotonic() - began)
            raise
        report = job.report
        patiently(lambda: self._service.end_attempt(number, Outcome.SUCCEEDED, report.records))
        self._metrics.attempt_ended(window.lane, Outcome.SUCCEEDED, time.monotonic() - began, report.records)
        self.succeeded(evidence_of(window, report), report, number)

    def succeeded(self, words: str, report: Report = NO_REPORT, attempt: int | None = None) -> None:
        """Note that the job of the next window succeeded: the next call of `commit` needs this, and uses it up.

        Args:
            words: what proves it.
            report: what the job reported.
            attempt: the attempt whose recorded success is the evidence; None if another launcher ran the job.
        """
        self._success = _Success(words, report, attempt)

    def commit(self, planned: Planned) -> None:
        """Commit a window whose job succeeded, now or in an earlier try, or that has nothing to read."""
        window, done = planned.window, planned.earlier_success
        if not window.span:
            self.succeeded(NO_JOB, Report(records=0))
        elif done is not None:
            read = "" if done.records is None else f" ({counted(done.records, 'record')} read)"
            words = f"try {done.try_number} of this task had run it{read}"
            self.succeeded(words, Report(records=done.records), done.id)
        success = self._success
        assert success is not None
        began = time.monotonic()
        is_first = patiently(lambda: self._service.commit(window.id, self._run.claim, success.attempt))
        self._success = None
        self.done.append(Done(window, planned.is_rerun, success.words))
        self._reports.append(success.report)
        seconds = time.monotonic() - began
        self._metrics.committed(window.lane, seconds, is_first=is_first, is_rerun=planned.is_rerun)

    def results(self) -> list[dict[str, Any]]:
        """Return what downstream tasks get of each window that is done."""
        done = zip(self._planned, self._reports, strict=False)
        return small_together([window_result(self._group, planned, report) for planned, report in done])

    def reached(self, *, emit_empty: bool) -> list[datetime] | None:
        """Return the ends of the intervals up to which all is committed with the task's windows (docs/design.md, rule 14).

        Args:
            emit_empty: whether an interval without an offset counts.

        Returns:
            None if the group's windows do not end with intervals, and consumers may be triggered whatever was read.
        """
        again = triggers_consumers(self._run)
        ends_by_time = self._group.until is Until.INTERVAL_END
        windows: list[Window | WindowRecord] = []
        for p in self._planned[: len(self.done)]:
            if p.is_rerun or p.window.lane is Lane.BACKFILL:
                windows += [p.window] if again else []
            elif ends_by_time:
                windows += patiently(partial(self._service.passed_with, p.window))
            else:
                windows.append(p.window)
        if not ends_by_time:
            return None if windows else []
        return [w.planned_until for w in windows if not w.is_capped and (w.span or emit_empty)]

    def read(self) -> list[ReadWindow]:
        """Return the windows that the task worked on: those that are done, and the one at which it failed."""
        reports = [*self._reports, NO_REPORT]
        return [
            ReadWindow(p.window, p.is_rerun, number < len(self.done), report.records, report.counts)
            for number, (p, report) in enumerate(zip(self._planned, reports, strict=False))
        ]

    def _end_log(self, exc: BaseException | None) -> None:
        left, job = self._planned[len(self.done) :], None if self._success is None else self._success.words
        blocks = [ending.end_of_done(self.done, self._run.this_try.bundle_version)] if self.done else []
        if len(left) > 1:
            blocks.append(f"Not begun: {len(left) - 1}, from {left[1].window.id} on")
        if exc is not None:
            after = "The task failed after that. A retry repeats no job that succeeded"
            blocks.append(ending.end_of_left(self._left(left[0], job, exc)) if left else after)
        is_failure = exc is not None and not isinstance(exc, AirflowSkipException)
        logger.log(logging.ERROR if is_failure else logging.INFO, "%s", "\n".join(blocks))

    def _left(self, planned: Planned, job: str | None, exc: BaseException) -> Left:
        was_stopped = self._stop is not None and self._stop.is_kill(exc)
        state, holder = None, None
        unknown = "the task was stopped" if was_stopped else "the ledger does not answer"
        # A stopped process is killed in a few seconds, and a ledger that is away had its time to answer.
        if not was_stopped and not isinstance(exc, LedgerUnavailableError):
            try:
                record = self._service.ledger.window(planned.window.id)
                state, holder = record.state, self._holder(record)
            except KafkaOffsetsError as error:
                unknown = str(error)
        return Left(
            planned.window,
            state,
            follows(self._run, exc, was_stopped=was_stopped),
            self._again,
            job,
            holder,
            is_rerun=planned.is_rerun,
            needs_person=isinstance(exc, LogError | LostRecordsError),
            # Before it is cut: half a secret would not be recognized.
            spark_error=without_secrets(self._spark_error()),
            unknown=unknown,
            bundle_version=self._run.this_try.bundle_version,
        )

    def _holder(self, record: WindowRecord) -> str | None:
        claim = self._run.claim
        if not record.holder.lets_commit(claim):
            return str(record.holder)
        own = [a.try_number for a in self._service.ledger.attempts(record.id) if a.claim == claim]
        later = [number for number in own if number > self._run.this_try.number]
        return f"try {later[-1]} of this task" if later else None

    def _seconds_deferred(self, window: Window, attempt: int) -> float:
        """Return how long ago an attempt began that a resumed try goes on with; 0 for any other try."""
        if not self._run.this_try.is_resumed:
            return 0.0
        [started] = [a.started_at for a in self._service.ledger.attempts(window.id) if a.id == attempt]
        return (datetime.now(UTC) - started).total_seconds()

    def _warn_of_twin(self, window: Window) -> None:
        """Warn that the driver of the try before may still run, on an Airflow that lets a worker end without its task."""
        if not self._drives_here or self._run.keeps_state:
            return
        try:
            unseen = unseen_before(self._service.ledger.attempts(window.id))
        except KafkaOffsetsError as exc:  # only a warning depends on it
            logger.warning("Unknown whether the job of an earlier try still runs: %s", exc)
            return
        if unseen is not None:
            logger.warning(
                "Window %s: try %d of %s has no recorded end. If its job still runs on its worker, stop it there: only this try can commit",
                *(window.id, unseen.try_number, unseen.claim.run_id),
            )

    def _record_failure(self, attempt: int, outcome: Outcome) -> None:
        try:
            self._service.end_attempt(attempt, outcome)
        except KafkaOffsetsError as exc:
            logger.warning("Could not record how the attempt ended: %s", exc)


def evidence_of(window: Window, report: Report) -> str:
    """Return in words how much a job read."""
    if report.records is not None:
        gaps = window.span - report.records
        share = (
            f"; {counted(gaps, 'offset')} ({gaps / window.span:.1%} gave none".replace("%", " %)") if gaps > 0 else ""
        )
        left_out = f"; {counted(report.bad, 'record')} could not be decoded" if report.bad else ""
        return f"{counted(report.records, 'record')} read of {counted(window.span, 'offset')}{share}{left_out}"
    if report.written is False:
        return "an earlier run had written it"
    if report.took_window is False:
        return "it never called current_window(); the only evidence is exit code 0"
    return "it succeeded, and reported no count"


def ready(service: WindowService, group: KafkaGroup, planned: Planned) -> Planned:
    """Return a window with its earlier counts and ledgers, and the schemas and topics of a group with a registry."""
    window_id = planned.window.id
    ledgers = service.ledger.ledgers(group.name)
    ready_window = replace(planned, read_before=records_read(service.ledger.attempts(window_id)), ledgers=ledgers)
    if group.registry is None:
        return ready_window
    return replace(
        ready_window,
        frozen=service.frozen(window_id),
        topics=tuple(as_last_planned(service.ledger, group, has_planned=True).topics),
    )


def window_result(group: KafkaGroup, planned: Planned, report: Report = NO_REPORT) -> dict[str, Any]:
    """Return what downstream tasks get: small, JSON, free of secrets."""
    ranges = planned.window.ranges.without_empty()
    is_small = len(ranges) <= MAX_RANGES_IN_XCOM
    window = planned.window
    return {
        "window_id": window.id,
        "group": window.group,
        "seq": window.seq,
        "lane": window.lane.value,
        "planned_until": window.planned_until.isoformat(),
        "is_rerun": planned.is_rerun,
        "partitions": len(ranges),
        "span": window.span,
        "records": report.records,
        "ranges": _by_topic(window) if is_small else None,
        "counts": report.counts if is_small else None,
        "written": report.written,
        "bad": report.bad,
        "warnings": list(planned.warnings),
        "ledger_conn_id": group.ledger_conn_id,
    }


def _by_topic(window: Window) -> dict[str, dict[str, list[int]]]:
    # Lists, because XCom returns tuples as tuples, and JSON has none.
    return {topic: {p: list(r) for p, r in ranges.items()} for topic, ranges in ranges_by_topic(window).items()}


def small_together(results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the results of several windows. What grows with their partitions is left out if it is too much for one XCom.

    Then Spark's JSON of the offsets is missing rather than None, so that a launcher that needs it fails before it starts.
    """
    if sum(result["partitions"] for result in results) <= MAX_RANGES_IN_XCOM:
        return [dict(result) for result in results]
    logger.info("The ranges of %s stay in the ledger: too many for XCom", counted(len(results), "window"))
    kept = [{name: value for name, value in result.items() if name not in _JSON_OF_SPARK} for result in results]
    return [{**result, "ranges": None, "counts": None} for result in kept]


def task_result(group: KafkaGroup, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what the task returns: the window, or for a replay of several ``{"group": ..., "windows": [...]}``."""
    return results[0] if len(results) == 1 else {"group": group.name, "windows": list(results)}
