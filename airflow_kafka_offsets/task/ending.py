"""The end of a task's log: Spark's output is folded, and below it is what became of the windows.

Airflow's page folds the lines between ``::group::NAME`` and ``::endgroup::``, and shows a line break within a message as one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

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
)
from airflow_kafka_offsets.spark.errors import KafkaWindowError, LostRecordsError
from airflow_kafka_offsets.wiring.connections import without_secrets

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.run import Run
    from airflow_kafka_offsets.core.window import Window, WindowRecord
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
def until_planned(run: Run, group: str | None, window: Any = None) -> Iterator[None]:
    """If a task fails in here, before it has its windows, let its log end with what failed, and show one traceback.

    Args:
        run: the task's run.
        group: the group that the task plans; None if it plans none.
        window: what the task was given instead of planning.
    """
    try:
        yield
    except (TaskDeferred, AirflowSkipException):  # no failure
        raise
    except BaseException as exc:
        try:
            logger.error("%s", no_window(_unplanned(run, group, window, exc)))
        except Exception:
            # An error in the log must not change how the task ends.
            logger.warning("The log can't show what failed", exc_info=True)
        if not isinstance(exc, _SAYS_ALL):
            raise
        if exc.__cause__ is not None:
            logger.debug("The cause of what failed", exc_info=exc.__cause__)
        raise exc from None


def _unplanned(run: Run, group: str | None, window: Any, exc: BaseException) -> NoWindow:
    is_sentence = isinstance(exc, KafkaOffsetsError | KafkaWindowError | AirflowException) and str(exc)
    shows_more = isinstance(exc, _SHOWN_BY_PLAN) and group
    return NoWindow(
        _missing(group, window, exc),
        str(exc) if is_sentence else f"{type(exc).__name__}, see below",
        next_try=_next_try(run, exc),
        had_tries=run.this_try.number > 1,
        has_policy=run.has_retry_policy,
        look=f"kafka-offsets plan {group} --dag {run.claim.dag_id}" if shows_more else None,
    )


def _missing(group: str | None, window: Any, exc: BaseException) -> str:
    window_id = window.get("window_id") if isinstance(window, Mapping) else window
    if window is not None or group is None:
        return f"This try did not get {f'window {window_id}' if isinstance(window_id, str) else 'its window'}"
    if isinstance(exc, _NOTHING_PLANNED):
        return f"No window of group {group} was planned"
    return f"No window of group {group} is known to be planned"


def _next_try(run: Run, exc: BaseException) -> int | None:
    is_final = isinstance(exc, _FINAL) and not isinstance(exc, NotYetError)
    return None if is_final else run.next_try


def tell_handoff(windows: Sequence[Window]) -> None:
    """Let the log of a plan task end with what it hands off to the tasks after it, if there is anything."""
    if windows:
        logger.info("%s", handed_on(windows))


@dataclass(frozen=True, slots=True)
class Ending:
    """Writes the end of a task's log.

    Attributes:
        run: the task's run.
        service: asked where a window stands.
        stop: whether someone stopped the task; None if another launcher runs the jobs.
        can_reconnect: a retry of the task can continue with the driver of this try.
        spark_error: return the line of Spark's output that says what ended the job, if there is one.
    """

    run: Run
    service: WindowService
    stop: Stop | None
    can_reconnect: bool
    spark_error: Callable[[], str | None]

    def tell(self, done: Sequence[Done], left: Sequence[Planned], job: str | None, exc: BaseException | None) -> None:
        """Log what became of the windows.

        Args:
            done: those that are done.
            left: the others: first the one at which the task failed.
            job: what proves the success of that one's job; None if it did not succeed.
            exc: how the task failed; None if it did not.
        """
        try:
            self._tell(done, left, job, exc)
        except Exception:
            # An error in the log must not change how the task ends.
            logger.warning("The log can't show what became of the windows", exc_info=True)

    def _tell(self, done: Sequence[Done], left: Sequence[Planned], job: str | None, exc: BaseException | None) -> None:
        if exc is None:
            logger.info("%s", last_words(done))
            return
        if not left:
            logger.error("%s", failed_afterwards(done))
            return
        not_begun = [Left(p.window, p.window.state) for p in left[1:]]
        level = logging.INFO if isinstance(exc, AirflowSkipException) else logging.ERROR
        logger.log(level, "%s", last_words(done, [self._left(left[0], job, exc), *not_begun]))

    def _left(self, planned: Planned, job: str | None, exc: BaseException) -> Left:
        left = Left(
            planned.window,
            None,
            job,
            next_try=_next_try(self.run, exc),
            was_stopped=self.stop is not None and self.stop.is_kill(exc),
            was_skipped=isinstance(exc, AirflowSkipException),
            needs_person=isinstance(exc, LogError | LostRecordsError),
            is_rerun=planned.is_rerun,
            can_reconnect=self.can_reconnect,
            has_policy=self.run.has_retry_policy,
            # Before it is cut: half a secret would not be recognized.
            spark_said=without_secrets(self.spark_error()),
            is_elsewhere=self.stop is None,
        )
        if left.was_stopped:  # in a few seconds the process is killed
            return replace(left, why_unknown=NOT_ASKED)
        if isinstance(exc, LedgerUnavailableError):  # it had its time to answer
            return left
        try:
            held = self.service.ledger.window(left.window.id)
            return replace(left, state=held.window.state, taken_by=self._taken_by(held))
        except LedgerUnavailableError:
            return left
        except KafkaOffsetsError as error:
            return replace(left, why_unknown=str(error))

    def _taken_by(self, held: WindowRecord) -> str | None:
        claim = self.run.claim
        if not held.holder.lets_commit(claim):
            return str(held.holder)
        own = [a.try_number for a in self.service.ledger.attempts(held.window.id) if a.claim == claim]
        later = [number for number in own if number > self.run.this_try.number]
        return f"try {later[-1]} of this task" if later else None
