"""What every operator that plans does: ask for windows, and wait, skip or fail while another run works on them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential

from airflow_kafka_offsets.core.errors import BadInputError, WindowBusyError, may_pass, short
from airflow_kafka_offsets.core.plan.request import Live, Request, TimeSpan, names_replay
from airflow_kafka_offsets.core.window import Claim, Scope
from airflow_kafka_offsets.task.metrics import TaskMetrics
from airflow_kafka_offsets.task.runs import given_params, request_of, try_of
from airflow_kafka_offsets.wiring.runs import is_over

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_kafka_offsets.core.group import KafkaGroup
    from airflow_kafka_offsets.service.plan import Planned
    from airflow_kafka_offsets.service.windows import WindowService
    from airflow_kafka_offsets.task.definition import OnOpenWindow

logger = logging.getLogger(__name__)


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


class Planner(Protocol):
    """What an operator that plans has: see `KafkaSparkSubmitOperator` for the meaning."""

    group: KafkaGroup
    on_open_window: OnOpenWindow
    poll_interval: float
    execution_timeout: timedelta | None

    def defer(self, *, trigger: Any, method_name: str, timeout: timedelta | None = None) -> None:
        """Wait without holding a worker; raises."""


class Worker(Planner, Protocol):
    """What an operator that also works on windows has."""

    window: Any


def plan(
    operator: Planner, context: Context, service: WindowService, claim: Claim, at_most: int | None = 1, new: int = 1
) -> list[Planned]:
    """Get the windows of this run; while another run works on them, do what `on_open_window` says.

    Args:
        operator: who asks; its method `resume` asks again after waiting.
        context: of the task.
        service: the use cases.
        claim: the task.
        at_most: how many windows the task can work on; None: any number.
        new: how many live windows it may cut at once.

    Raises:
        TaskDeferred: to wait without holding a worker.
        AirflowSkipException: to skip; also when a backfill's interval has no window, or the run replays another group.
        WindowBusyError: to fail.
    """
    from airflow_kafka_offsets.airflow_versions import AirflowSkipException

    request = _request(operator.group, context, service, claim, new)
    if isinstance(request, TimeSpan) and request.is_interval and names_replay(given_params(context)):
        logger.warning("A backfill run replays its data interval; what its conf names is ignored")
    if isinstance(request, Live) and request.ends_at is not None:
        _wait_until(operator, request.ends_at + operator.group.grace)
    planned = _unless_busy(
        operator,
        claim,
        lambda: service.plan(operator.group, claim, is_over, request, this_try=try_of(context), at_most=at_most),
    )
    if not planned:
        assert isinstance(request, TimeSpan)
        raise AirflowSkipException(
            f"No window was cut after {request.start.isoformat()} and up to {request.end.isoformat()}, and no record of that "
            "time is without an owner: nothing to replay"
        )
    TaskMetrics(operator.group.name, claim).planned(planned)
    return planned


def _request(group: KafkaGroup, context: Context, service: WindowService, claim: Claim, new: int) -> Request | None:
    """Return what a run asks for; None: only what it had, whatever its conf means to today's DAG."""
    from airflow_kafka_offsets.airflow_versions import AirflowSkipException

    try:
        request = request_of(context, group, new)
    except BadInputError:
        if not service.has_windows(group.name, claim):
            raise
        return None
    if request is None and not service.has_windows(group.name, claim):
        raise AirflowSkipException(f"This run replays another group of the DAG, and nothing of {group.name}")
    return request


def plan_or_take(operator: Worker, context: Context, service: WindowService, claim: Claim) -> list[Planned]:
    """Get the windows that a task works on itself: the one that it was given, or those that it plans."""
    if operator.window is None:
        return plan(operator, context, service, claim, at_most=None)
    return [take(operator, context, service, claim, operator.window)]


def take(operator: Planner, context: Context, service: WindowService, claim: Claim, window: Any) -> Planned:
    """Get one window that a plan task of this run handed over; while another run works on it, do as `plan` does."""
    name = named_window(window)[0]
    return _unless_busy(operator, claim, lambda: service.take(operator.group, name, claim, is_over, try_of(context)))


def id_of_given(window: Any) -> str | None:
    """Return the id of the window that a task was given; None: it was given none, or something that names none."""
    try:
        return named_window(window)[0]
    except BadInputError:
        return None


def named_window(window: Any) -> tuple[str, str | None]:
    """Return the id of a window and the connection of its ledger, from what a plan task returned or from an id.

    Raises:
        BadInputError: it is neither.
    """
    is_dict = isinstance(window, Mapping)
    window_id = window.get("window_id") if is_dict else window
    if not isinstance(window_id, str):
        raise BadInputError(
            f"window must be what a plan task returned (plan.output), or a window id; got {short(window)}"
        )
    return window_id, window.get("ledger_conn_id") if is_dict else None


def _unless_busy(operator: Planner, claim: Claim, ask: Callable[[], _T]) -> _T:
    from airflow_kafka_offsets.airflow_versions import AirflowSkipException

    try:
        return ask()
    except WindowBusyError as busy:
        if operator.on_open_window == "skip":
            raise AirflowSkipException(str(busy)) from busy
        if operator.on_open_window == "fail":
            raise
        if isinstance(busy.holder, Claim) and busy.holder.is_same_run(claim) and not _is_sibling(busy.holder, claim):
            raise  # the wait for the end of its own run would never end
        logger.info("Waiting: %s", busy)
        _defer(operator, busy)
        raise  # not reached: defer raises


def _is_sibling(holder: Claim, claim: Claim) -> bool:
    # Mapped tasks end before their run does. After a clear of the plan task, another index may have had the window.
    is_worker = holder.scope is Scope.TASK
    return is_worker and holder.task_id == claim.task_id and holder.map_index != claim.map_index


def _defer(operator: Planner, busy: WindowBusyError) -> None:
    from airflow_kafka_offsets.core.conditions import WindowFree, condition_to_json
    from airflow_kafka_offsets.triggers.conditions import ConditionTrigger

    free = WindowFree((busy.window_id, *busy.others), busy.is_rerun, operator.group.ledger_conn_id)
    trigger = ConditionTrigger(condition=condition_to_json(free), poll_interval=operator.poll_interval)
    operator.defer(trigger=trigger, method_name="resume", timeout=operator.execution_timeout)


def _wait_until(operator: Planner, moment: datetime) -> None:
    from airflow.providers.standard.triggers.temporal import DateTimeTrigger

    from airflow_kafka_offsets.triggers.polling import shortest_deferral

    left = (moment - datetime.now(UTC)).total_seconds()
    if left > shortest_deferral():
        logger.info("Waiting until %s, for records that are under way", moment.isoformat())
        operator.defer(trigger=DateTimeTrigger(moment=moment), method_name="resume", timeout=operator.execution_timeout)
    elif left > 0:  # not worth a deferral, and a trigger that fires soon can fail its task
        time.sleep(left)
