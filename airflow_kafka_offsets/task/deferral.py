"""Gives a task's worker slot back while its Spark driver runs on a cluster."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_kafka_offsets.airflow_versions import AirflowTaskTimeout, TaskDeferred
from airflow_kafka_offsets.core.errors import ClusterUnavailableError
from airflow_kafka_offsets.core.launch.jobs import JobState
from airflow_kafka_offsets.task.airflow import time_over_at

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

    from airflow_kafka_offsets.launch.submit_hook import LaunchHook

logger = logging.getLogger(__name__)


def defer_while_alive(
    operator: BaseOperator, context: Context, hook: LaunchHook, driver: str, poll_interval: float
) -> None:
    """Let the triggerer watch a driver that is at work; do nothing if it has ended, or if the cluster does not answer now.

    Args:
        operator: its method `reconnect` continues after the driver's end.
        context: Airflow's.
        hook: the launch.
        driver: the driver's id on its cluster.
        poll_interval: seconds between two looks of the trigger.

    Raises:
        TaskDeferred: to wait without holding a worker.
        AirflowTaskTimeout: the task's time is over; the driver was asked to stop.
    """
    from airflow_kafka_offsets.triggers.driver import DriverTrigger

    cluster = hook.open_cluster()
    assert cluster is not None, "what is tracked is on a cluster"
    try:
        if cluster.state(driver) is not JobState.ALIVE:
            return
    except ClusterUnavailableError as exc:
        logger.warning("Waiting for driver %s on the worker: %s", driver, exc)
        return
    until = time_over_at(operator, context)
    if until is not None and until <= datetime.now(UTC):
        cluster.stop(driver)
        raise AirflowTaskTimeout(f"Driver {driver} still ran at the execution_timeout of {operator.execution_timeout}")
    logger.info("The task gives its worker slot back until driver %s has ended", driver)
    trigger = DriverTrigger(
        cluster=hook.leading_to_cluster,
        driver=driver,
        poll_interval=poll_interval,
        until=until.isoformat() if until else None,
    )
    raise TaskDeferred(trigger=trigger, method_name="reconnect")
