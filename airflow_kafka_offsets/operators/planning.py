"""What every operator that plans does: ask for the window, and wait, skip or fail while another run works on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential

from airflow_kafka_offsets.core.errors import (
    BadInputError,
    KafkaRefusedError,
    KafkaUnavailableError,
    LedgerUnavailableError,
    WindowBusyError,
)
from airflow_kafka_offsets.core.spark_json import dump_assign, dump_offsets
from airflow_kafka_offsets.core.window import Claim, Window
from airflow_kafka_offsets.operators.job_files import Report
from airflow_kafka_offsets.operators.runs import cut_time, is_over, run_type

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

    from airflow_kafka_offsets.core.group import KafkaGroup
    from airflow_kafka_offsets.service import Planned, WindowService

OnOpenWindow = Literal["wait", "skip", "fail"]

MAX_RANGES_IN_XCOM = 1000
"""A result with more ranges than this leaves them to the ledger."""


PATIENCE = 60.0
"""Seconds for which a job's success is kept at hand while ledger or Kafka do not answer: a fail-over costs no second run."""

NO_REPORT = Report()

_T = TypeVar("_T")


def patiently(step: Callable[[], _T]) -> _T:
    """Take a step after the job's success, trying again for a while when ledger or Kafka do not answer.

    Only for what may be done twice.

    Raises:
        LedgerUnavailableError, KafkaUnavailableError: no answer in time; the retry of the task finds the same window.
    """
    retrying = Retrying(
        retry=retry_if_exception(_may_pass),
        stop=stop_after_delay(PATIENCE),
        wait=wait_exponential(max=10),
        reraise=True,
    )
    return retrying(step)


def _may_pass(error: BaseException) -> bool:
    is_silence = isinstance(error, LedgerUnavailableError | KafkaUnavailableError)
    return is_silence and not isinstance(error, KafkaRefusedError)


def check_on_open_window(value: str) -> None:
    """Refuse another answer than wait, skip or fail.

    Raises:
        BadInputError: with the three.
    """
    if value not in get_args(OnOpenWindow):
        raise BadInputError(f"on_open_window must be one of {', '.join(get_args(OnOpenWindow))}; got {value!r}")


def plan(
    operator: BaseOperator,
    context: Context,
    service: WindowService,
    group: KafkaGroup,
    claim: Claim,
    on_open_window: str,
    poll_interval: float,
) -> Planned:
    """Get the window for this run; while another run works on it, do what `on_open_window` says.

    Raises:
        TaskDeferred: to wait without holding a worker.
        AirflowSkipException: to skip.
        WindowBusyError: to fail.
    """
    from airflow.sdk.exceptions import AirflowSkipException

    is_backfill = run_type(context) == "backfill"
    try:
        return service.plan(group, claim, is_over, until=cut_time(context), may_cut=not is_backfill)
    except WindowBusyError as busy:
        if on_open_window == "skip":
            raise AirflowSkipException(str(busy)) from busy
        if on_open_window == "fail":
            raise
        if isinstance(busy.holder, Claim) and busy.holder.is_same_run(claim):
            raise  # to wait for the end of one's own run would be for ever
        operator.log.info("%s Waiting.", busy)
        _defer(operator, group, busy, poll_interval)
        raise  # not reached: defer raises


def _defer(operator: BaseOperator, group: KafkaGroup, busy: WindowBusyError, poll_interval: float) -> None:
    from airflow_kafka_offsets.triggers.window import WindowFreeTrigger

    trigger = WindowFreeTrigger(
        window_id=busy.window_id,
        ledger_conn_id=group.ledger_conn_id,
        is_rerun=busy.is_rerun,
        poll_interval=poll_interval,
    )
    operator.defer(trigger=trigger, method_name="resume", timeout=operator.execution_timeout)


def window_result(group: KafkaGroup, window: Window, *, is_rerun: bool, report: Report = NO_REPORT) -> dict[str, Any]:
    """Return what downstream tasks get: small, JSON, free of secrets."""
    ranges = window.ranges.without_empty()
    by_topic: dict[str, dict[str, list[int]]] = {}
    for tp, offsets in ranges.items():
        by_topic.setdefault(tp.topic, {})[str(tp.partition)] = [offsets.start, offsets.end]
    return {
        "window_id": window.id,
        "group": window.group,
        "seq": window.seq,
        "lane": window.lane.value,
        "until": window.until.isoformat(),
        "is_rerun": is_rerun,
        "partitions": len(ranges),
        "span": window.span,
        "records": report.records,
        "counts": report.counts if len(ranges) <= MAX_RANGES_IN_XCOM else None,
        "ranges": by_topic if len(ranges) <= MAX_RANGES_IN_XCOM else None,
        "ledger_conn_id": group.ledger_conn_id,
    }


def placeholders(window: Window) -> dict[str, str]:
    """Return what a user's own job may ask for by name: Spark's options of this window."""
    ranges = window.ranges.without_empty()
    return {
        "window_id": window.id,
        "seq": str(window.seq),
        "assign": dump_assign(list(ranges)),
        "starting_offsets": dump_offsets(ranges.starts),
        "ending_offsets": dump_offsets(ranges.ends),
        "isolation_level": window.isolation_level.value,
    }
