"""The pods of drivers on Kubernetes: may they be made, when has one ended, and which ones can go."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from airflow_kafka_offsets.core.errors import BadInputError, ClusterError, ClusterUnavailableError, KafkaOffsetsError
from airflow_kafka_offsets.core.launch.jobs import SILENT_LOOKS, JobState, window_digest
from airflow_kafka_offsets.spark.shared import counted

if TYPE_CHECKING:
    from airflow_kafka_offsets.adapters.clusters.kubernetes import KubernetesCluster
    from airflow_kafka_offsets.core.window import Claim, Window
    from airflow_kafka_offsets.ledger.ledger import Ledger
    from airflow_kafka_offsets.wiring.clusters import Target

logger = logging.getLogger(__name__)

LEAST_PAUSE = 20
"""Seconds between two looks at a pod, at least. As the provider's."""

_SHOWN = 20
"""Lines of a failed driver's log that the task's log gets."""

_SUBMITS_AS = "spark.kubernetes.authenticate.submission."


def check_rights(target: Target, conf: Iterable[str], *, has_properties: bool = False) -> None:
    """Refuse a launch on Kubernetes for which this worker's account lacks a right.

    Args:
        target: where the job goes.
        conf: the names of the Spark properties; some give spark-submit an account of its own, which can't be asked.
        has_properties: whether a file of properties is given, which may do that, too.

    Raises:
        BadInputError: a right is missing; the message names it.
        ClusterUnavailableError: Kubernetes did not answer.
    """
    from airflow_kafka_offsets.wiring.clusters import open_kubernetes

    cluster = open_kubernetes(target)
    if cluster is None:
        return
    may_differ = has_properties or any(name.startswith(_SUBMITS_AS) for name in conf)
    missing = cluster.missing_rights(submits=not may_differ)
    if missing:
        raise BadInputError(
            f"Kubernetes does not let this worker's account {', '.join(missing)} in namespace {target.namespace}. "
            "Give the account a role with these rights"
        )


def watch(
    cluster: KubernetesCluster,
    pod: str,
    *,
    every: float,
    check: Callable[[], None],
    hear: Callable[[Iterable[str]], None],
) -> None:
    """Wait until a driver's pod has succeeded. The pod stays.

    Args:
        cluster: its namespace.
        pod: its name.
        every: seconds between two looks, or `LEAST_PAUSE` if that is more.
        check: raises an error if the task was stopped.
        hear: gets the end of the log of a driver that failed.

    Raises:
        ClusterError: it failed, or is gone; the message says how.
        ClusterUnavailableError: Kubernetes did not answer for too long. The driver continues.
    """
    missed, shown = 0, ""
    while True:
        check()
        try:
            driver = cluster.driver(pod)
        except ClusterUnavailableError as exc:
            missed += 1
            if missed > SILENT_LOOKS:
                raise
            logger.warning(
                "The driver's pod %s: %s (%s in a row of %d)", pod, exc, counted(missed, "time"), SILENT_LOOKS
            )
        else:
            missed = 0
            if driver is None:
                raise ClusterError(f"The driver's pod {pod} is gone, and its success was not seen")
            if driver.phase != shown:
                logger.info("The driver's pod %s is %s", pod, shown := driver.phase)
            if driver.state is JobState.SUCCEEDED:
                return
            if driver.state is JobState.OVER:
                _show_end(cluster, pod, driver.container, hear)
                ending = driver.ending or "no reason given"
                where = f"-n {cluster.namespace} {pod} -c {driver.container}"
                raise ClusterError(f"The driver's pod {pod} failed ({ending}). It stays: kubectl logs {where}")
        time.sleep(max(every, LEAST_PAUSE))


def remove_ended(target: Target, ledger: Ledger, window: Window, claim: Claim) -> None:
    """Delete the pods of a window's drivers that have ended, now that the ledger has the success of one.

    Not after the commit: who dies in between on the last try would leave the pods for good. An open window is run or committed by someone, and
    that removes them.

    Args:
        target: where the jobs go; elsewhere than on Kubernetes, nothing is done.
        ledger: the ledger of the window.
        window: the window.
        claim: who asks. The pods of a window belong to its holder: one of them may have a success that only its worker will note.
    """
    from airflow_kafka_offsets.wiring.clusters import open_kubernetes

    cluster = open_kubernetes(target)
    if cluster is None:
        return
    try:
        record = ledger.window(window.id)
        if record.holder.lets_commit(claim):
            cluster.remove_ended(window_digest(window, record.planned_at))
    except KafkaOffsetsError as exc:  # the commit does not wait for it
        logger.warning("Window %s: the pods of its drivers stay: %s", window.id, exc)


def _show_end(cluster: KubernetesCluster, pod: str, container: str, hear: Callable[[Iterable[str]], None]) -> None:
    from airflow_kafka_offsets.wiring.connections import without_secrets

    try:
        lines = cluster.log_tail(pod, container)
    except ClusterUnavailableError as exc:
        logger.warning("The log of the driver's pod %s can't be shown: %s", pod, exc)
        return
    hear(lines)
    masked = [without_secrets(line) or "" for line in lines]  # before the cut, which may leave half of a secret
    logger.error("The driver's log ends with:\n%s", "\n".join(line[:500] for line in masked[-_SHOWN:]))
