"""Kubernetes through its API: a driver is a pod, and is found by its labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from airflow_kafka_offsets.adapters.clusters.http import TIMEOUT
from airflow_kafka_offsets.core.errors import ClusterUnavailableError
from airflow_kafka_offsets.core.launching import JOB_LABEL, WINDOW_LABEL, Job, JobName, JobState

_T = TypeVar("_T")
_STATES = {"Succeeded": JobState.SUCCEEDED, "Failed": JobState.OVER}


class KubernetesCluster:
    """The driver pods of a namespace. A pod that is being deleted is alive until it is gone.

    Args:
        open_client: returns the client's ``CoreV1Api``.
        namespace: where drivers run.
    """

    def __init__(self, open_client: Callable[[], Any], namespace: str) -> None:
        self._open_client = open_client
        self._namespace = namespace

    def check(self) -> None:
        """Make sure that it answers, and lets us list pods."""
        self._ask(lambda client: client.list_namespaced_pod(self._namespace, limit=1, _request_timeout=TIMEOUT))

    def jobs(self, name: JobName) -> Sequence[Job]:
        """Return the pods that carry the window's label."""
        selector = f"{WINDOW_LABEL}={name.window}"
        found = self._ask(
            lambda client: client.list_namespaced_pod(
                self._namespace, label_selector=selector, _request_timeout=TIMEOUT
            )
        )
        return [self._job(pod) for pod in sorted(found.items, key=lambda pod: str(pod.metadata.creation_timestamp))]

    def knows(self, job_id: str) -> bool:
        """Whether the pod is there."""
        name = _pod_name(job_id)
        selector = f"metadata.name={name}"
        found = self._ask(
            lambda client: client.list_namespaced_pod(
                self._namespace, field_selector=selector, _request_timeout=TIMEOUT
            )
        )
        return bool(found.items)

    def stop(self, job_id: str) -> None:
        """Delete a pod; one that is gone already is fine."""
        try:
            self._open_client().delete_namespaced_pod(_pod_name(job_id), self._namespace, _request_timeout=TIMEOUT)
        except Exception as exc:
            if getattr(exc, "status", None) != 404:
                raise self._translated(exc) from exc

    def _job(self, pod: Any) -> Job:
        labels = pod.metadata.labels or {}
        state = _STATES.get(pod.status.phase, JobState.ALIVE)
        return Job(f"{self._namespace}:{pod.metadata.name}", state, labels.get(JOB_LABEL, "another"))

    def _ask(self, question: Callable[[Any], _T]) -> _T:
        try:
            return question(self._open_client())
        except Exception as exc:  # the client has no class for all that can go wrong on the way
            raise self._translated(exc) from exc

    def _translated(self, exc: Exception) -> ClusterUnavailableError:
        return ClusterUnavailableError(
            f"Kubernetes did not answer for namespace {self._namespace} ({type(exc).__name__}: {exc}). The task needs the "
            "rights to list and to delete pods there"
        )


def _pod_name(job_id: str) -> str:
    return job_id.partition(":")[2] or job_id
