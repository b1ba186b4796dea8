"""Kubernetes through its API. A driver is a pod, and its labels identify it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_kafka_offsets.adapters.clusters.http import TIMEOUT
from airflow_kafka_offsets.core.errors import ClusterUnavailableError
from airflow_kafka_offsets.core.launch.jobs import JOB_LABEL, WINDOW_LABEL, Job, JobName, JobState

RIGHTS = (
    *(("pods", verb) for verb in ("get", "list", "delete", "create")),
    *((resource, verb) for resource in ("services", "configmaps") for verb in ("create", "patch")),
)
"""What a launch does in the namespace: this package gets, lists and deletes pods; the rest is for spark-submit."""

_OF_SUBMIT = ("create", "patch")
_STATES = {"Succeeded": JobState.SUCCEEDED, "Failed": JobState.OVER}
_CONTAINER = "spark-kubernetes-driver"
_TAIL = 500
"""Lines of a driver's log that are looked at."""
_PATIENCE = {"_request_timeout": TIMEOUT}


@dataclass(frozen=True, slots=True)
class Driver:
    """A driver's pod.

    Attributes:
        state: its state; a pod whose node does not report is alive.
        phase: in Kubernetes' word.
        ending: how its container ended, or an empty text.
        container: the container that runs Spark; a sidecar may be beside it.
    """

    state: JobState
    phase: str
    ending: str
    container: str


class KubernetesCluster:
    """The driver pods of a namespace. A pod that is being deleted is alive until it is gone.

    Args:
        open_client: returns a ``CoreV1Api``.
        namespace: the drivers' namespace.

    Attributes:
        namespace: the drivers' namespace.
    """

    def __init__(self, open_client: Callable[[], Any], namespace: str) -> None:
        self._open_client = open_client
        self.namespace = namespace

    def jobs(self, name: JobName) -> Sequence[Job]:
        """Return the pods with the window's label."""
        return [self._job(pod) for pod in self._of_window(name.window)]

    def state(self, job_id: str) -> JobState | None:
        """Return the pod's state."""
        driver = self.driver(job_id)
        return None if driver is None else driver.state

    def stop(self, job_id: str) -> None:
        """Delete a pod, if it still exists."""
        self._unless_gone("delete_namespaced_pod", job_id)

    def driver(self, job_id: str) -> Driver | None:
        """Return a driver's pod, or None if there is none."""
        pod = self._unless_gone("read_namespaced_pod", job_id)
        return None if pod is None else _driver(pod)

    def log_tail(self, job_id: str, container: str) -> list[str]:
        """Return the last lines of a driver's log, or none if its pod is gone."""
        # As it comes: version 36 of the client makes the text of bytes, with their quotes.
        query = {"container": container, "tail_lines": _TAIL, "_preload_content": False}
        answer = self._unless_gone("read_namespaced_pod_log", job_id, **query)
        return [] if answer is None else str(answer.data, errors="replace").splitlines()

    def remove_ended(self, window: str) -> None:
        """Delete the pods of a window's drivers that have ended.

        Args:
            window: see `JobName`.
        """
        for pod in self._of_window(window):
            if pod.status.phase in _STATES:
                self.stop(pod.metadata.name)

    def missing_rights(self, *, submits: bool) -> list[str]:
        """Return what the account may not do of `RIGHTS`, such as ``get pods``.

        Args:
            submits: whether spark-submit has the same account.
        """
        wanted = [right for right in RIGHTS if submits or right[1] not in _OF_SUBMIT]
        return [f"{verb} {resource}" for resource, verb in wanted if not self._may(resource, verb)]

    def _may(self, resource: str, verb: str) -> bool:
        attributes = {"namespace": self.namespace, "resource": resource, "verb": verb}
        review = {"spec": {"resourceAttributes": attributes}}
        answer = self._ask(lambda client: _reviews(client).create_self_subject_access_review(review, **_PATIENCE))
        return bool(answer.status.allowed)

    def _job(self, pod: Any) -> Job:
        labels = pod.metadata.labels or {}
        return Job(f"{self.namespace}:{pod.metadata.name}", _state(pod), labels.get(JOB_LABEL, "another"))

    def _of_window(self, window: str) -> Sequence[Any]:
        query = {"label_selector": f"{WINDOW_LABEL}={window}"}
        pods = self._ask(lambda client: client.list_namespaced_pod(self.namespace, **query, **_PATIENCE)).items
        return sorted(pods, key=lambda pod: str(pod.metadata.creation_timestamp))

    def _unless_gone(self, call: str, job_id: str, **query: Any) -> Any:
        pod = (job_id.partition(":")[2] or job_id, self.namespace)
        try:
            return self._ask(lambda client: getattr(client, call)(*pod, **query, **_PATIENCE))
        except ClusterUnavailableError as exc:
            if getattr(exc.__cause__, "status", None) == 404:
                return None
            raise

    def _ask(self, question: Callable[[Any], Any]) -> Any:
        try:
            return question(self._open_client())
        except Exception as exc:  # the client has no class for all that can go wrong on the way
            raise ClusterUnavailableError(f"Kubernetes {_what_went_wrong(exc)}") from exc


def _reviews(client: Any) -> Any:
    from kubernetes.client import AuthorizationV1Api

    return AuthorizationV1Api(client.api_client)


def _what_went_wrong(exc: Exception) -> str:
    body = getattr(exc, "body", None)
    if not body:
        return f"did not answer ({type(exc).__name__}: {exc})"
    try:  # its document has the account and what it may not do
        message = json.loads(body)["message"]
    except (ValueError, KeyError, TypeError):
        message = str(body)[:200]
    return f"answered {getattr(exc, 'status', None)}: {message}"


def _driver(pod: Any) -> Driver:
    names = [container.name for container in pod.spec.containers]
    container = _CONTAINER if _CONTAINER in names else names[0]
    ended = [c.state.terminated for c in pod.status.container_statuses or () if c.name == container and c.state]
    ending = ", ".join(f"exit code {end.exit_code}, {end.reason}" for end in ended if end)
    return Driver(_state(pod), pod.status.phase or "Pending", ending or pod.status.reason or "", container)


def _state(pod: Any) -> JobState:
    return _STATES.get(pod.status.phase, JobState.ALIVE)
