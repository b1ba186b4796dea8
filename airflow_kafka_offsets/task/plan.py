"""What every operator that plans does: request windows, and wait, skip or fail while another run works on them.

If a task fails before it has its windows, its log ends with what failed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential

from airflow_kafka_offsets.airflow_versions import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTerminated,
    TaskDeferred,
)
from airflow_kafka_offsets.core import ending
from airflow_kafka_offsets.core.errors import (
    BadInputError,
    JobUnseenError,
    KafkaOffsetsError,
    NotYetError,
    WindowBusyError,
    may_pass,
    mends_itself,
    short,
)
from airflow_kafka_offsets.core.plan.request import Live, TimeSpan, names_replay, new_run, request_of
from airflow_kafka_offsets.core.window import Claim, Scope
from airflow_kafka_offsets.spark.errors import KafkaWindowError
from airflow_kafka_offsets.task.metrics import TaskMetrics
from airflow_kafka_offsets.wiring.runs import is_over

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.run import Run
    from airflow_kafka_offsets.service.plan import Planned
    from airflow_kafka_offsets.service.windows import WindowService
    from airflow_kafka_offsets.task.definition import PlanningFields

logger = logging.getLogger(__name__)

# After these, Airflow starts no other try.
_AIRFLOW_STOPS = (AirflowFailException, AirflowSensorTimeout, AirflowSkipException, AirflowTaskTerminated)
_FINAL = (*_AIRFLOW_STOPS, BadInputError, JobUnseenError)

SILENT = "The log can't show what became of the task's windows"
"""Logged in place of the end: an error in the log must not change how the task ends."""


PATIENCE = 60.0
"""Seconds for which a task whose job succeeded waits for ledger or Kafka, so that a fail-over costs no second run."""


_T = TypeVar("_T")


def patiently(step: Callable[[], _T]) -> _T:
    """Take a step after the job's success, trying again for a while when ledger, Kafka or offset store do not answer.

    This is only for steps that may be done twice.

    Raises:
        LedgerUnavailableError, KafkaUnavailableError, StoreUnavailableError, StoreOutcomeUnknownError: no answer in time; the retry of the
            task finds the same window.
    """
    retrying = Retrying(
        retry=retry_if_exception(may_pass),
        stop=stop_after_delay(PATIENCE),
        wait=wait_exponential(max=10),
        reraise=True,
    )
    return retrying(step)


def plan(
    operator: PlanningFields, run: Run, service: WindowService, at_most: int | None = None, new: int = 1
) -> list[Planned]:
    """Get the windows of a run; while another run works on them, wait, skip or fail, by `on_open_window`.

    Args:
        operator: its method `resume` plans again after waiting.
        run: the run.
        service: the use cases.
        at_most: how many windows the task can work on, or None for any number.
        new: how many live windows a new run may get at once, adopted and new ones together.

    Raises:
        TaskDeferred: to wait without holding a worker.
        AirflowSkipException: to skip; also when a backfill's interval has no window, or the run replays another group.
        WindowBusyError: to fail.
    """
    group = operator.group
    if run.kind == "backfill" and names_replay(run.conf):
        logger.warning("A backfill run replays its data interval: its conf is ignored")
    request = request_of(run, group, new)
    if isinstance(request, Live) and request.ends_at is not None:
        _wait_until(operator, request.ends_at + group.grace)
    with _while_busy(operator, run.claim):
        planned = service.plan(group, run.claim, is_over, request, this_try=run.this_try, at_most=at_most)
    if planned:
        TaskMetrics(group.name, run.claim).planned(planned)
        return planned
    if isinstance(request, TimeSpan):
        raise AirflowSkipException(
            f"Nothing to replay after {request.start.isoformat()} and up to {request.end.isoformat()}"
        )
    raise AirflowSkipException(f"This run replays another group, and nothing of {group.name}")


def take(operator: PlanningFields, run: Run, service: WindowService, window: Any) -> Planned:
    """Get one window that a plan task of this run handed off; while another run works on it, do as `plan` does."""
    window_id, _ = named_window(window)
    with _while_busy(operator, run.claim):
        return service.take(operator.group, window_id, run.claim, is_over, run.this_try)


def named_window(window: Any) -> tuple[str, str | None]:
    """Return the id of a window and the connection of its ledger, from what a plan task returned or from an id.

    Raises:
        BadInputError: it is neither.
    """
    is_dict = isinstance(window, Mapping)
    window_id = window.get("window_id") if is_dict else window
    if not isinstance(window_id, str):
        raise BadInputError(f"window must be plan.output or a window id; got {short(window)}")
    return window_id, window.get("ledger_conn_id") if is_dict else None


@contextmanager
def _while_busy(operator: PlanningFields, claim: Claim) -> Iterator[None]:
    """Wait, skip or fail if another run works on the windows that are requested in here."""
    try:
        yield
    except WindowBusyError as busy:
        if operator.on_open_window == "skip":
            raise AirflowSkipException(str(busy)) from busy
        is_own_run = isinstance(busy.holder, Claim) and busy.holder.is_same_run(claim)
        # The wait for the end of its own run would never end. Mapped tasks end before their run does.
        if operator.on_open_window == "fail" or busy.crossed or (is_own_run and not _is_sibling(busy.holder, claim)):
            raise
        logger.info("Waiting: %s", busy)
        _defer(operator, busy)


def _is_sibling(holder: Any, claim: Claim) -> bool:
    # After a clear of the plan task, another index may have had the window.
    return holder.scope is Scope.TASK and holder.task_id == claim.task_id and holder.map_index != claim.map_index


def _defer(operator: PlanningFields, busy: WindowBusyError) -> None:
    from airflow_kafka_offsets.core.conditions import WindowFree, condition_to_json
    from airflow_kafka_offsets.triggers.conditions import ConditionTrigger

    free = WindowFree((busy.window_id, *busy.others), busy.is_rerun, operator.group.ledger_conn_id)
    trigger = ConditionTrigger(condition=condition_to_json(free), poll_interval=operator.poll_interval)
    raise TaskDeferred(trigger=trigger, method_name="resume", timeout=operator.execution_timeout)


def _wait_until(operator: PlanningFields, moment: datetime) -> None:
    from airflow.providers.standard.triggers.temporal import DateTimeTrigger

    from airflow_kafka_offsets.triggers.polling import shortest_deferral

    left = (moment - datetime.now(UTC)).total_seconds()
    if left > shortest_deferral():
        logger.info("Waiting until %s, for records under way", moment.isoformat())
        trigger = DateTimeTrigger(moment=moment)
        raise TaskDeferred(trigger=trigger, method_name="resume", timeout=operator.execution_timeout)
    if left > 0:  # not worth a deferral, and a trigger that fires soon can fail its task
        time.sleep(left)


@contextmanager
def log_failure_before_window(run: Run, group: str | None, window: Any = None) -> Iterator[None]:
    """If a task fails in here, before it has its windows, let its log end with what failed, and show one traceback.

    Args:
        run: the task's run.
        group: the group that the task plans, or None if it plans none.
        window: what the task was given instead of planning.
    """
    try:
        yield
    except (TaskDeferred, AirflowSkipException):  # no failure
        raise
    except BaseException as exc:
        try:
            is_sentence = isinstance(exc, KafkaOffsetsError | KafkaWindowError | AirflowException) and str(exc)
            window_id = window.get("window_id") if isinstance(window, Mapping) else window
            name = f"window {window_id}" if isinstance(window_id, str) else "its window"
            headline = f"This try got no window of group {group}" if window is None else f"This try did not get {name}"
            error = str(exc) if is_sentence else f"{type(exc).__name__}, see below"
            other = new_run(run, group) if group is not None and window is None else None
            block = ending.end_without_window(
                headline,
                error,
                follows(run, exc),
                may_pass=mends_itself(exc),
                new_run=other,
                bundle_version=run.this_try.bundle_version,
            )
            logger.error("%s", block)
        except Exception:
            logger.warning(SILENT, exc_info=True)
        if not isinstance(exc, KafkaOffsetsError):
            raise
        # Our message contains the client's: its traceback would add nothing.
        if exc.__cause__ is not None:
            logger.debug("The cause of what failed", exc_info=exc.__cause__)
        raise exc from None


def follows(run: Run, exc: BaseException, *, was_stopped: bool = False) -> str | None:
    """Return which try Airflow starts by itself after a failure, or None if it starts none."""
    is_final = isinstance(exc, _FINAL) and not isinstance(exc, NotYetError)
    return ending.starts(None if is_final else run.next_try, has_policy=run.has_retry_policy, was_stopped=was_stopped)
