"""The end of a task's log: Spark's output is folded, and below it is what became of the windows.

Airflow's page folds the lines between ``::group::NAME`` and ``::endgroup::``, and shows a line break within a message as one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

from airflow_kafka_offsets.airflow_versions import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTerminated,
    TaskDeferred,
)
from airflow_kafka_offsets.core.ending import (
    NOT_ASKED,
    Done,
    Left,
    NoWindow,
    failed_afterwards,
    handed_on,
    last_words,
    no_window,
)
from airflow_kafka_offsets.core.errors import (
    BadInputError,
    ClusterError,
    ConnectorUnavailableError,
    JobUnseenError,
    KafkaAnswerError,
    KafkaOffsetsError,
    LedgerUnavailableError,
    LogError,
    NotYetError,
    RegistryError,
    StoreAnswerError,
    WindowBusyError,
    counted,
    name_some,
)
from airflow_kafka_offsets.core.lineage import ReadWindow
from airflow_kafka_offsets.launch.job_files import NO_REPORT, Report
from airflow_kafka_offsets.spark.errors import DataLossError as DataLossOfJobError
from airflow_kafka_offsets.spark.errors import KafkaWindowError
from airflow_kafka_offsets.wiring.connections import without_secrets

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_kafka_offsets.core.window import Claim, Held
    from airflow_kafka_offsets.service.plan import Planned
    from airflow_kafka_offsets.service.windows import WindowService
    from airflow_kafka_offsets.task.definition import Stop

# After these, Airflow starts no other try.
_FINAL = (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTerminated,
    BadInputError,
    JobUnseenError,
)

# After these, nothing was written.
_NOTHING_PLANNED = (
    *(
        BadInputError,
        LogError,
        KafkaAnswerError,
        RegistryError,
        ClusterError,
        ConnectorUnavailableError,
        WindowBusyError,
    ),
)

# Their sentences contain what the client said: its traceback would add nothing.
_SAYS_ALL = (*_NOTHING_PLANNED, LedgerUnavailableError, StoreAnswerError)

# For these, a command shows more than their sentences.
_SHOWN_BY_PLAN = (LogError, KafkaAnswerError)

logger = logging.getLogger(__name__)


@contextmanager
def until_windows(context: Context, group: str | None, given: str | None = None) -> Iterator[None]:
    """If a task fails in here, before it has its windows, let its log end with what failed, and show one traceback.

    Args:
        context: of the task.
        group: the group that it plans; None: it plans none.
        given: the window that it takes instead; None: it plans, or what it was given names no window.
    """
    try:
        yield
    except (TaskDeferred, AirflowSkipException):  # no failure
        raise
    except BaseException as exc:
        try:
            logger.error("%s", no_window(_unplanned(context, group, given, exc)))
        except Exception:
            # An error in the log must not change how the task ends.
            logger.warning("The log can't show what failed", exc_info=True)
        if not isinstance(exc, _SAYS_ALL):
            raise
        if exc.__cause__ is not None:
            logger.debug("The cause of what failed", exc_info=exc.__cause__)
        raise exc from None


def _unplanned(context: Context, group: str | None, given: str | None, exc: BaseException) -> NoWindow:
    is_sentence = isinstance(exc, KafkaOffsetsError | KafkaWindowError | AirflowException) and str(exc)
    ti = context["ti"]
    return NoWindow(
        _not_got(group, given, exc),
        str(exc) if is_sentence else f"{type(exc).__name__}, see below",
        next_try=_next_try(context, exc),
        had_tries=ti.try_number > 1,
        has_policy=_has_policy(context),
        look=f"kafka-offsets plan {group} --dag {ti.dag_id}" if isinstance(exc, _SHOWN_BY_PLAN) and group else None,
    )


def _not_got(group: str | None, given: str | None, exc: BaseException) -> str:
    if given is not None or group is None:
        return f"This try did not get {'its window' if given is None else f'window {given}'}"
    if isinstance(exc, _NOTHING_PLANNED):
        return f"No window of group {group} was planned"
    return f"No window of group {group} is known to be planned"


def _next_try(context: Context, exc: BaseException) -> int | None:
    is_final = isinstance(exc, _FINAL) and not isinstance(exc, NotYetError)
    ti = context["ti"]
    return None if is_final or ti.try_number > ti.max_tries else ti.try_number + 1


def _has_policy(context: Context) -> bool:
    # The policy is not asked here: it is the user's code, and Airflow asks it once.
    return getattr(context.get("task"), "retry_policy", None) is not None


def _read(planned: Planned, report: Report | None) -> ReadWindow:
    known = report or NO_REPORT
    return ReadWindow(planned.window, planned.is_rerun, report is not None, known.records, known.counts)


def tell_handed_on(planned: Sequence[Planned]) -> None:
    """Let the log of a plan task end with what it hands to the tasks after it, if there is anything."""
    if planned:
        logger.info("%s", handed_on([p.window for p in planned]))


class Ending:
    """While entered, a task works on its windows; then its log ends with what became of them.

    Args:
        context: of the task.
        service: the use cases.
        claim: the task.
        planned: its windows, in the order in which it works on them.
        stop: given by a task that runs the jobs itself. Then their log is folded. None: another launcher runs them.
        can_reconnect: a retry of the task can continue with the driver of the try before it.
        spark_said: return the line of Spark's output that says what ended the job; None: the output was not read, or does not say it.
    """

    def __init__(
        self,
        context: Context,
        service: WindowService,
        claim: Claim,
        planned: Sequence[Planned],
        stop: Stop | None = None,
        *,
        can_reconnect: bool = False,
        spark_said: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._context = context
        self._service = service
        self._claim = claim
        self._planned = planned
        self._stop = stop
        self._can_reconnect = can_reconnect
        self._spark_said = spark_said
        self._folded = [p.window.id for p in planned if p.needs_job] if stop is not None else []
        self._done: list[Done] = []
        self._job: str | None = None
        self._reports: dict[str, Report] = {}

    def job_done(self, job: str) -> None:
        """Note that the success of a window's job is recorded, and what is known of it."""
        self._job = job

    def committed(self, planned: Planned, report: Report = NO_REPORT) -> None:
        """Note that a window is done, and its job was the one of `job_done`, with this report."""
        assert self._job is not None, "job_done() comes first"
        self._done.append(Done(planned.window, planned.is_rerun, self._job))
        self._reports[planned.window.id] = report
        self._job = None

    def read(self) -> list[ReadWindow]:
        """Return the windows that the task worked on: those that are done, and the one at which it failed."""
        begun = self._planned[: len(self._done) + 1]
        return [_read(planned, self._reports.get(planned.window.id)) for planned in begun]

    def __enter__(self) -> Ending:
        if self._folded:
            logger.info(
                "::group::Spark, on %s: %s", counted(len(self._folded), "window"), name_some(self._folded, ", ")
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, _: TracebackType | None) -> None:
        if self._folded:
            logger.info("::endgroup::")
        try:
            self._tell(exc)
        except Exception:
            # An error in the log must not change how the task ends.
            logger.warning("The log can't show what became of the windows", exc_info=True)

    def _tell(self, exc: BaseException | None) -> None:
        if exc is None:
            logger.info("%s", last_words(self._done))
            return
        if not (rest := self._planned[len(self._done) :]):
            logger.error("%s", failed_afterwards(self._done))
            return
        not_begun = [Left(p.window, p.window.state) for p in rest[1:]]
        level = logging.INFO if isinstance(exc, AirflowSkipException) else logging.ERROR
        logger.log(level, "%s", last_words(self._done, [self._left(rest[0], exc), *not_begun]))

    def _left(self, planned: Planned, exc: BaseException) -> Left:
        left = Left(
            planned.window,
            None,
            self._job,
            next_try=_next_try(self._context, exc),
            was_stopped=self._stop is not None and self._stop.is_kill(exc),
            was_skipped=isinstance(exc, AirflowSkipException),
            needs_person=isinstance(exc, LogError | DataLossOfJobError),
            is_rerun=planned.is_rerun,
            can_reconnect=self._can_reconnect,
            has_policy=_has_policy(self._context),
            # Before it is cut: half a secret would not be recognized.
            spark_said=without_secrets(self._spark_said()),
            is_elsewhere=self._stop is None,
        )
        if left.was_stopped:  # in a few seconds the process is killed
            return replace(left, why_unknown=NOT_ASKED)
        if isinstance(exc, LedgerUnavailableError):  # it had its time to answer
            return left
        return self._with_state(left)

    def _with_state(self, left: Left) -> Left:
        try:
            held = self._service.ledger.window(left.window.id).held
            return replace(left, state=held.window.state, taken_by=self._taken_by(held))
        except LedgerUnavailableError:
            return left
        except KafkaOffsetsError as exc:
            return replace(left, why_unknown=str(exc))

    def _taken_by(self, held: Held) -> str | None:
        if not held.holder.lets_commit(self._claim):
            return str(held.holder)
        own = [a.try_number for a in self._service.ledger.attempts(held.window.id) if a.claim == self._claim]
        later = [number for number in own if number > self._context["ti"].try_number]
        return f"try {later[-1]} of this task" if later else None
