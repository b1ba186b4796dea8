"""Spark's standalone cluster, through the master's REST server, the master's web page, and the workers' logs.

The master shows only a driver's id, state, main class and worker. None of these identifies its window. The first line of the
driver's log does: there the worker writes the command that it launches, with all properties.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_kafka_offsets.adapters.clusters.http import ask, document, was_never_sent
from airflow_kafka_offsets.core.errors import BadInputError, ClusterUnavailableError
from airflow_kafka_offsets.core.launch.jobs import CONF_JOB, SPARK_SUBMIT, Job, JobName, JobState

_STATES = {
    **dict.fromkeys(("SUBMITTED", "RUNNING", "RELAUNCHING", "UNKNOWN"), JobState.ALIVE),
    "FINISHED": JobState.SUCCEEDED,
}
_CLOCKS_DIFFER = timedelta(hours=1)
# The longest command that Linux can launch.
_FIRST_LINE = 2 * 1024 * 1024
_JOB = re.compile(rf"-D{re.escape(CONF_JOB)}=([0-9a-f]+)\.([0-9a-f]+)")

REST_HINT = (
    ". The master needs spark.master.rest.enabled=true, and the connection's extra rest-port and rest-scheme if they "
    "are not 6066 and http"
)
PAGE_HINT = (
    ". If the master's page is not on port 8080 with http, set webui-port and webui-scheme in the connection's extra"
)


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses of a cluster's masters. One of them is the leader.

    Attributes:
        rest: of their REST servers.
        pages: of their web pages.
    """

    rest: Sequence[str]
    pages: Sequence[str]


class StandaloneCluster:
    """The drivers of a Spark master.

    Args:
        addresses: of the masters.
        main_class: the main class of the drivers that this package launches; None means any.
    """

    def __init__(self, addresses: Addresses, main_class: str | None = None) -> None:
        self._addresses = addresses
        self._main_class = main_class
        self._labels: dict[str, tuple[str, str]] = {}

    def check(self) -> None:
        """Check that a REST server answers."""
        self._rest("GET", "status/driver-0")

    def jobs(self, name: JobName) -> Sequence[Job]:
        """Return the drivers of a window, and those that may be of it because their log can't be read."""
        state = self._state()
        since = (name.planned_at - _CLOCKS_DIFFER).timestamp() * 1000
        all_drivers = [*state["activedrivers"], *state["completeddrivers"]]
        drivers = [driver for driver in all_drivers if float(driver["starttime"]) >= since]
        workers = {worker["id"]: worker["webuiaddress"] for worker in state["workers"] if worker["state"] == "ALIVE"}
        jobs = [self._job(driver, workers, name) for driver in sorted(drivers, key=_age)]
        return [job for job in jobs if job is not None]

    def state(self, job_id: str) -> JobState | None:
        """Return the driver's state. A master in recovery raises an error instead."""
        answer = self._rest("GET", f"status/{job_id}")
        if answer.get("success"):
            return _state(answer["driverState"])
        if answer.get("message"):
            raise ClusterUnavailableError(f"Spark's master does not report driver {job_id}: {answer['message']}")
        return None

    def stop(self, job_id: str) -> None:
        """Kill a driver."""
        self._rest("POST", f"kill/{job_id}")

    def submit(self, arguments: Sequence[str], properties: Mapping[str, str], environment: Mapping[str, str]) -> str:
        """Let a worker run spark-submit, because Spark refuses Python applications in cluster mode; return the driver's id.

        Args:
            arguments: of that spark-submit.
            properties: Spark properties of its process.
            environment: of its process.

        Raises:
            BadInputError: the master refuses the job.
        """
        request = {
            "action": "CreateSubmissionRequest",
            "appResource": "",
            "mainClass": SPARK_SUBMIT,
            "appArgs": list(arguments),
            "clientSparkVersion": "any",  # required, but not read
            "environmentVariables": dict(environment),
            "sparkProperties": {"spark.jars": "", **properties},
        }
        answer = self._rest("POST", "create", json=request)
        if not answer.get("success"):
            raise BadInputError(f"Spark's master refuses the job: {answer.get('message') or answer}")
        return str(answer["submissionId"])

    def _job(self, driver: Mapping[str, Any], workers: Mapping[str, str], name: JobName) -> Job | None:
        state = _state(driver["state"])
        label = self._label(driver["id"], workers.get(driver["worker"]))
        if label is None:
            may_be = state is JobState.ALIVE and self._main_class in (None, driver["mainclass"])
            return Job(driver["id"], state, None) if may_be else None
        return Job(driver["id"], state, label[1]) if label[0] == name.window else None

    def _label(self, driver: str, worker: str | None) -> tuple[str, str] | None:
        """Return the window and job that a driver's log names; None if it does not name them, or can't be read."""
        if driver in self._labels:
            return self._labels[driver]
        if worker is None:
            return None
        query = {"driverId": driver, "logType": "stderr", "offset": "0", "byteLength": str(_FIRST_LINE)}
        try:
            text = ask("GET", f"{worker}/log/", params=query).text
        except ClusterUnavailableError:
            return None
        command = next((line for line in text.splitlines() if line.startswith("Launch Command: ")), None)
        if command is None:
            return None
        match = _JOB.search(command)
        self._labels[driver] = (match[1], match[2]) if match else ("", "")
        return self._labels[driver]

    def _state(self) -> dict[str, Any]:
        for page in self._addresses.pages:
            try:
                state = document(ask("GET", f"{page}/json/"), hint=PAGE_HINT)
            except ClusterUnavailableError as exc:
                error = exc
                continue
            if state.get("status") == "ALIVE":
                return state
            error = ClusterUnavailableError(f"{page} is {state.get('status')}, not ALIVE")
        raise error

    def _rest(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """Return the leader's answer. If no master accepts the request, return the last answer."""
        answer: dict[str, Any] | None = None
        for rest in self._addresses.rest:
            try:
                response = ask(method, f"{rest}/v1/submissions/{path}", hint=REST_HINT, **options)
                answer = document(response, hint=REST_HINT)
            except ClusterUnavailableError as exc:
                if path == "create" and not was_never_sent(exc):
                    raise  # this master may have started a driver: another one would start a second
                error = exc
                continue
            if answer.get("success"):
                return answer
        if answer is None:
            raise error
        return answer


def _state(driver_state: str) -> JobState:
    return _STATES.get(driver_state, JobState.OVER)


def _age(driver: Mapping[str, Any]) -> datetime:
    return datetime.fromtimestamp(float(driver["starttime"]) / 1000, UTC)
