"""Kubernetes through its API. A driver is a pod, and its labels identify it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from airflow_kafka_offsets.adapters.clusters.http import TIMEOUT
from airflow_kafka_offsets.core.errors import ClusterUnavailableError
from airflow_kafka_offsets.core.launch.jobs import JOB_LABEL, WINDOW_LABEL, Job, JobName, JobState

_STATES = {"Succeeded": JobState.SUCCEEDED, "Failed": JobState.OVER}


class KubernetesCluster:
    """The driver pods of a namespace. A pod that is being deleted is alive until it is gone.

    Args:
        open_client: returns a ``CoreV1Api``.
        namespace: the drivers' namespace.
    """

    def __init__(self, open_client: Callable[[], Any], namespace: str) -> None:
        self._open_client = open_client
        self._namespace = namespace

    def jobs(self, name: JobName) -> Sequence[Job]:
        """Return the pods with the window's label."""
        pods = self._pods(label_selector=f"{WINDOW_LABEL}={name.window}")
        return [self._job(pod) for pod in sorted(pods, key=lambda pod: str(pod.metadata.creation_timestamp))]

    def state(self, job_id: str) -> JobState | None:
        """Return the pod's state."""
        pods = self._pods(field_selector=f"metadata.name={_pod_name(job_id)}")
        return _state(pods[0]) if pods else None

    def stop(self, job_id: str) -> None:
        """Delete a pod, if it still exists."""
        try:
            self._open_client().delete_namespaced_pod(_pod_name(job_id), self._namespace, _request_timeout=TIMEOUT)
        except Exception as exc:
            if getattr(exc, "status", None) != 404:
                raise self._translated(exc) from exc

    def _job(self, pod: Any) -> Job:
        labels = pod.metadata.labels or {}
        return Job(f"{self._namespace}:{pod.metadata.name}", _state(pod), labels.get(JOB_LABEL, "another"))

    def _pods(self, **selector: str) -> Sequence[Any]:
        try:
            pods = self._open_client().list_namespaced_pod(self._namespace, **selector, _request_timeout=TIMEOUT)
        except Exception as exc:  # the client has no class for all that can go wrong on the way
            raise self._translated(exc) from exc
        return list(pods.items)

    def _translated(self, exc: Exception) -> ClusterUnavailableError:
        return ClusterUnavailableError(
            f"Kubernetes did not answer ({type(exc).__name__}: {exc}). The task needs the rights to list and delete pods "
            f"in {self._namespace}"
        )


def _state(pod: Any) -> JobState:
    return _STATES.get(pod.status.phase, JobState.ALIVE)


def _pod_name(job_id: str) -> str:
    return job_id.partition(":")[2] or job_id
