"""YARN through the REST API of its resource manager."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.adapters.clusters.http import ask, document, split_login
from airflow_kafka_offsets.core.errors import ClusterUnavailableError
from airflow_kafka_offsets.core.launch.jobs import Job, JobName, JobState, yarn_tag

if TYPE_CHECKING:
    from requests import Response

_OVER = ("FINISHED", "FAILED", "KILLED")


class YarnCluster:
    """The applications of a resource manager.

    https://hadoop.apache.org/docs/stable/hadoop-yarn/hadoop-yarn-site/ResourceManagerRest.html

    Args:
        url: of its web application, which may hold a user and a password.
        auth: how requests log in; None means with the user and password of the URL, if there are any.
    """

    def __init__(self, url: str, auth: Any = None) -> None:
        address, login = split_login(url)
        self._apps = f"{address.rstrip('/')}/ws/v1/cluster/apps"
        self._auth = auth if auth is not None else login

    def jobs(self, name: JobName) -> Sequence[Job]:
        """Return the applications with the window's tag."""
        return [_job(app, name) for app in self._apps_with({"applicationTags": yarn_tag(name.window)})]

    def state(self, job_id: str) -> JobState | None:
        """Return the application's state."""
        answer = ask("GET", f"{self._apps}/{job_id}", auth=self._auth)
        return None if answer.status_code == 404 else _state(_content(answer)["app"])

    def stop(self, job_id: str) -> None:
        """Kill an application."""
        url = f"{self._apps}/{job_id}/state"
        answer = ask("PUT", url, json={"state": "KILLED"}, auth=self._auth)
        if not answer.ok:
            raise ClusterUnavailableError(f"{url} answered {answer.status_code}: {answer.text[:200]!r}")

    def _apps_with(self, query: dict[str, str]) -> list[dict[str, Any]]:
        content = _content(ask("GET", self._apps, params=query, auth=self._auth))
        apps: list[dict[str, Any]] = (content.get("apps") or {}).get("app", [])
        return sorted(apps, key=lambda app: int(app["startedTime"]))


def _content(answer: Response) -> dict[str, Any]:
    content = document(answer)
    if not answer.ok:
        raise ClusterUnavailableError(f"{answer.url} answered {answer.status_code}: {content}")
    return content


def _job(app: dict[str, Any], name: JobName) -> Job:
    is_mine = yarn_tag(name.job) in app.get("applicationTags", "").split(",")
    return Job(app["id"], _state(app), name.job if is_mine else "another")


def _state(app: dict[str, Any]) -> JobState:
    if app["state"] not in _OVER:
        return JobState.ALIVE
    return JobState.SUCCEEDED if app["finalStatus"] == "SUCCEEDED" else JobState.OVER
