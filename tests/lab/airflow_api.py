"""The part of Airflow's REST API that tests and the demo use, and the waiting that goes with it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import requests

from tests.lab.waiting import ANSWER, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

_RUN_ENDS = ("success", "failed")
_TASK_ENDS = ("success", "failed", "skipped", "upstream_failed", "removed")
_LOG_LINES = 60
_INTERVAL = 1.0
"""Seconds between two questions of whoever waits."""
_ABOUT_THE_TASK = ("dag_id", "run_id", "task_id", "map_index", "try_number", "ti_id")
_ABOUT_THE_CODE = ("level", "logger", "filename", "lineno")
_NOT_IN_LINES = {"event", "timestamp", "error_detail", *_ABOUT_THE_TASK, *_ABOUT_THE_CODE}

Json = dict[str, Any]


class DagImportError(Exception):
    """A Dag file does not import; the message is its traceback."""


class UnexpectedStateError(Exception):
    """A run or task ended in another state than the awaited one, or not in time; the message says what its tasks did."""


class AirflowApi:
    """A user of one Airflow; logs in with the first request. Every error of the API is a `requests.HTTPError`.

    Args:
        url: The API server's.
        user: Who logs in.
        password: Theirs.
    """

    def __init__(self, url: str, user: str, password: str) -> None:
        self.url = url
        self._user = user
        self._password = password
        self._session = requests.Session()
        # Many threads ask, and pytest changes the environment meanwhile: to look there for a proxy would fail now and then.
        self._session.trust_env = False

    def request(self, method: str, path: str, body: Json | None = None, **query: Any) -> Any:
        """Send a request to a path below /api/v2 and return the decoded answer; None when it is empty.

        A GET is sent again while the server is too busy to answer.
        """
        if "Authorization" not in self._session.headers:
            self._log_in()
        deadline = time.monotonic() + ANSWER
        while True:
            try:
                return self._once(method, path, body, query)
            except (requests.Timeout, requests.HTTPError) as error:
                is_busy = error.response is None or error.response.status_code >= 500
                if method != "GET" or not is_busy or time.monotonic() > deadline:
                    raise
            time.sleep(_INTERVAL)

    def _once(self, method: str, path: str, body: Json | None, query: Json) -> Any:
        url = f"{self.url}/api/v2{path}"
        answer = self._session.request(method, url, json=body, params=query, timeout=ANSWER)
        if not answer.ok:
            raise requests.HTTPError(f"{method} {path}: {answer.status_code} {answer.text[:2000]}", response=answer)
        return answer.json() if answer.content else None

    def _log_in(self) -> None:
        login = {"username": self._user, "password": self._password}
        answer = self._session.post(f"{self.url}/auth/token", json=login, timeout=ANSWER)
        answer.raise_for_status()
        self._session.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"

    def health(self) -> Json:
        """Return the state of the components; needs no login."""
        answer = requests.get(f"{self.url}/api/v2/monitor/health", timeout=5)
        answer.raise_for_status()
        return answer.json()

    # Dags

    def wait_for_dag(self, dag_id: str) -> Json:
        """Return the Dag as soon as it is parsed; raise `DagImportError` when a file does not import."""

        def dag() -> Any:
            if (found := self._find(f"/dags/{dag_id}")) is not None:
                return found
            errors = self.request("GET", "/importErrors")["import_errors"]
            if errors:
                raise DagImportError("\n".join(f"{error['filename']}\n{error['stack_trace']}" for error in errors))
            return None

        return dict(wait_until(dag, what=f"Dag {dag_id} is parsed", interval=_INTERVAL))

    def unpause(self, dag_id: str) -> None:
        """Let the scheduler run this Dag, as soon as it is parsed."""
        self.wait_for_dag(dag_id)
        self.request("PATCH", f"/dags/{dag_id}", {"is_paused": False})

    def pause(self, dag_id: str) -> None:
        """Start no further run of this Dag."""
        self.request("PATCH", f"/dags/{dag_id}", {"is_paused": True})

    def reparse(self, dag_id: str) -> None:
        """Ask for the file of a Dag to be parsed now: a watcher of an asset exists from the first parse after `unpause`."""
        token = self.request("GET", f"/dags/{dag_id}")["file_token"]
        self.request("PUT", f"/parseDagFile/{token}")

    # Runs

    def trigger(self, dag_id: str, conf: Json | None = None, *, logical_date: datetime | None = None) -> str:
        """Make a manual run and return its id; without a logical date, it has no data interval either."""
        date = logical_date.isoformat() if logical_date else None
        run = self.request("POST", f"/dags/{dag_id}/dagRuns", {"logical_date": date, "conf": conf or {}})
        return str(run["dag_run_id"])

    def run(self, dag_id: str, run_id: str) -> Json:
        """Return a run."""
        return self.request("GET", _run_path(dag_id, run_id))

    def runs(self, dag_id: str) -> list[Json]:
        """Return the runs of a Dag, the first that was due first."""
        return list(self.request("GET", f"/dags/{dag_id}/dagRuns", order_by="run_after", limit=100)["dag_runs"])

    def wait_for_run(self, dag_id: str, run_id: str, state: str = "success") -> Json:
        """Return the run as soon as it has this state; raise `UnexpectedStateError` when it ends in another one."""

        def run() -> Json | None:
            run = self.run(dag_id, run_id)
            if run["state"] == state:
                return run
            if run["state"] in _RUN_ENDS:
                raise UnexpectedStateError(f"run {run_id} of {dag_id} is {run['state']}, not {state}")
            return None

        return self._wait(run, f"run {run_id} of {dag_id} is {state}", dag_id, run_id)

    def run_to(self, dag_id: str, conf: Json | None = None, state: str = "success") -> str:
        """Make a manual run, wait until it has this state, and return its id."""
        run_id = self.trigger(dag_id, conf)
        self.wait_for_run(dag_id, run_id, state)
        return run_id

    def clear_run(self, dag_id: str, run_id: str) -> None:
        """Clear all tasks of a run, so that they run again."""
        self.request("POST", f"{_run_path(dag_id, run_id)}/clear", {"dry_run": False})

    def mark_run(self, dag_id: str, run_id: str, state: str) -> None:
        """Make a run `success` or `failed` (its running tasks are killed), or `queued`."""
        self.request("PATCH", _run_path(dag_id, run_id), {"state": state})

    def wait_for_first_run(self, dag_id: str) -> Json:
        """Return the first run of a Dag as soon as there is one."""
        return self.wait_for_some_runs(dag_id, 1)[0]

    def wait_for_some_runs(self, dag_id: str, number: int) -> list[Json]:
        """Return the runs of a Dag as soon as there are this many."""

        def runs() -> list[Json]:
            return runs if len(runs := self.runs(dag_id)) >= number else []

        return wait_until(runs, what=f"Dag {dag_id} has {number} runs", interval=_INTERVAL)

    def wait_for_runs(self, dag_id: str, number: int) -> list[Json]:
        """Return the runs of a Dag as soon as there are this many and all have succeeded."""
        return [self.wait_for_run(dag_id, run["dag_run_id"]) for run in self.wait_for_some_runs(dag_id, number)]

    def wait_for_quiet(self, dag_id: str) -> None:
        """Wait until all runs of a Dag are over."""
        wait_until(
            lambda: all(run["state"] in _RUN_ENDS for run in self.runs(dag_id)),
            what=f"all runs of {dag_id} are over",
            interval=_INTERVAL,
        )

    def backfill(
        self,
        dag_id: str,
        start: datetime,
        end: datetime,
        *,
        reprocess: str = "none",
        backwards: bool = False,
        max_active_runs: int = 4,
    ) -> int:
        """Start an Airflow backfill over the intervals that begin in this time, both ends included; return its id.

        Args:
            dag_id: a Dag with data intervals.
            start: the first.
            end: the last.
            reprocess: what becomes of runs that are there: `none`, `failed` or `completed`.
            backwards: the latest first.
            max_active_runs: how many run at once.
        """
        body = {
            "dag_id": dag_id,
            "from_date": start.isoformat(),
            "to_date": end.isoformat(),
            "reprocess_behavior": reprocess,
            "run_backwards": backwards,
            "max_active_runs": max_active_runs,
        }
        deadline = time.monotonic() + ANSWER
        while True:
            try:
                return int(self.request("POST", "/backfills", body)["id"])
            except requests.HTTPError as error:
                # SQLite, while the scheduler writes.
                is_busy = error.response is not None and error.response.status_code == 503
                if not is_busy or time.monotonic() > deadline:
                    raise
                time.sleep(_INTERVAL)

    def wait_for_no_backfill(self, dag_id: str) -> None:
        """Wait until a Dag has no backfill that is not complete: there can be only one at a time."""
        for backfill in self.request("GET", "/backfills", dag_id=dag_id)["backfills"]:
            self.wait_for_backfill(backfill["id"])

    def create_asset_event(self, name: str, extra: Json | None = None) -> None:
        """Tell Airflow by hand that an asset was updated."""
        self.request("POST", "/assets/events", {"asset_id": self._asset_id(name), "extra": extra or {}})

    def asset_events(self, name: str) -> list[Json]:
        """Return the events of an asset, oldest first."""
        query = {"asset_id": self._asset_id(name), "order_by": "timestamp", "limit": 100}
        return list(self.request("GET", "/assets/events", **query)["asset_events"])

    def _asset_id(self, name: str) -> int:
        found = self.request("GET", "/assets", name_pattern=name, limit=100)["assets"]
        return next(int(asset["id"]) for asset in found if asset["name"] == name)

    def wait_for_backfill(self, backfill_id: int) -> None:
        """Wait until all runs of a backfill are over and Airflow has noticed, which takes it up to half a minute."""
        wait_until(
            lambda: self.request("GET", f"/backfills/{backfill_id}")["completed_at"] is not None,
            what=f"backfill {backfill_id} is complete",
            interval=_INTERVAL,
        )

    # Tasks

    def task(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> Json:
        """Return the latest try of a task."""
        return self.request("GET", _task_path(dag_id, run_id, task_id, map_index))

    def tasks(self, dag_id: str, run_id: str) -> list[Json]:
        """Return the latest try of every task of a run."""
        return list(self.request("GET", f"{_run_path(dag_id, run_id)}/taskInstances")["task_instances"])

    def wait_for_task(
        self,
        dag_id: str,
        run_id: str,
        task_id: str,
        state: str = "success",
        *,
        map_index: int = -1,
        try_number: int | None = None,
    ) -> Json:
        """Return the task as soon as it has this state (in this try, or a later one).

        Raises `UnexpectedStateError` when the task ends in another state, or does not get there.
        """

        def task() -> Json | None:
            task = self.task(dag_id, run_id, task_id, map_index)
            if try_number is not None and task["try_number"] < try_number:
                return None
            if task["state"] == state:
                return task
            if task["state"] in _TASK_ENDS:
                number = task["try_number"]
                raise UnexpectedStateError(f"{task_id} of {run_id} is {task['state']} in try {number}, not {state}")
            return None

        return self._wait(task, f"{task_id} of {run_id} is {state}", dag_id, run_id)

    def wait_for_retry(self, dag_id: str, run_id: str, task_id: str) -> None:
        """Wait until the first try of a task has failed, and it waits for the next one, or is in it."""

        def is_retried() -> bool:
            task = self.task(dag_id, run_id, task_id)
            if task["state"] in _TASK_ENDS and task["try_number"] < 2:
                raise UnexpectedStateError(f"{task_id} of {run_id} is {task['state']}, and is not tried again")
            return bool(task["state"] == "up_for_retry" or task["try_number"] >= 2)

        self._wait(is_retried, f"{task_id} of {run_id} is tried again", dag_id, run_id)

    def _wait(self, condition: Callable[[], Any], what: str, dag_id: str, run_id: str) -> Any:
        """Wait until the condition holds, and return its value; an error ends with what the tasks of the run did."""
        try:
            return wait_until(condition, what=what, interval=_INTERVAL)
        except (TimeoutError, UnexpectedStateError) as error:
            raise UnexpectedStateError(f"{error}\n{self.story(dag_id, run_id)}") from None

    def clear(
        self,
        dag_id: str,
        run_id: str,
        task_ids: Sequence[str | tuple[str, int]],
        *,
        downstream: bool = False,
        on_newest: bool | None = None,
    ) -> None:
        """Clear tasks (or mapped ones, `(task_id, map_index)`) of a run, whatever their state, so that they run again.

        With `on_newest`, as with the dialog's box, the newest version of the DAG's bundle runs.
        """
        options = {"dry_run": False, "only_failed": False, "reset_dag_runs": True, "include_downstream": downstream}
        chosen = {} if on_newest is None else {"run_on_latest_version": on_newest}
        body = {**options, **chosen, "dag_run_id": run_id, "task_ids": list(task_ids)}
        self.request("POST", f"/dags/{dag_id}/clearTaskInstances", body)

    def mark_task(self, dag_id: str, run_id: str, task_id: str, state: str, map_index: int = -1) -> None:
        """Make a task `success`, `failed` or `skipped`; if it runs, it is killed."""
        self.request("PATCH", _task_path(dag_id, run_id, task_id, map_index), {"new_state": state})

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value", *, map_index: int = -1) -> Any:
        """Return a value that a task has pushed; None when there is none."""
        path = f"{_task_path(dag_id, run_id, task_id)}/xcomEntries/{quote(key, safe='')}"
        entry = self._find(path, deserialize=True, map_index=map_index)
        return entry["value"] if entry else None

    def rendered_fields(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> Json:
        """Return the template fields of a task as it rendered them."""
        return dict(self.task(dag_id, run_id, task_id, map_index)["rendered_fields"])

    def links(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> dict[str, str | None]:
        """Return the extra links of a task, by name; they are there when the try has ended."""
        path = f"{_task_path(dag_id, run_id, task_id)}/links"
        return dict(self.request("GET", path, map_index=map_index)["extra_links"])

    def task_states(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> dict[str, Any]:
        """Return what a task keeps in its state store over its tries."""
        path = f"{_task_path(dag_id, run_id, task_id)}/state-store"
        entries = self.request("GET", path, map_index=map_index)["task_state_store"]
        return {entry["key"]: entry["value"] for entry in entries}

    def log(self, dag_id: str, run_id: str, task_id: str, try_number: int | None = None, *, map_index: int = -1) -> str:
        """Return the log of a try, of the latest one by default: a line for each event, its fields after it."""
        number = try_number or self.task(dag_id, run_id, task_id, map_index)["try_number"]
        path = f"{_task_path(dag_id, run_id, task_id)}/logs/{number}"
        query = {"full_content": True, "map_index": map_index}
        # On a busy machine, Airflow was seen not to know a try for a moment that had just become the one before the retry.
        answer = wait_until(lambda: self._find(path, **query), what=f"Airflow knows try {number}", interval=_INTERVAL)
        return "\n".join(_line(entry) for entry in answer["content"])

    def unfolded_log(self, dag_id: str, run_id: str, task_id: str, try_number: int | None = None) -> str:
        """Return what a person sees of the log of a try before they unfold any part of it, as Airflow's page folds it."""
        shown, folds = [], 0
        for line in self.log(dag_id, run_id, task_id, try_number).splitlines():
            if "::group::" in line:
                folds += 1
            elif "::endgroup::" in line:
                folds = max(0, folds - 1)
            elif not folds:
                shown.append(line)
        return "\n".join(shown)

    def failures(self, dag_id: str) -> set[tuple[Any, ...]]:
        """Return the tasks of a Dag that have failed for good, each as (run id, task id, map index, try)."""
        path = f"/dags/{dag_id}/dagRuns/~/taskInstances"
        failed = self.request("GET", path, state="failed", limit=100)["task_instances"]
        return {(task["dag_run_id"], task["task_id"], task["map_index"], task["try_number"]) for task in failed}

    def watch(self, dag_id: str) -> Watch:
        """Return what waits, from now on, for what tasks of this Dag do outside of Airflow."""
        return Watch(self, dag_id)

    def _find(self, path: str, **query: Any) -> Any:
        try:
            return self.request("GET", path, **query)
        except requests.HTTPError as error:
            if error.response is not None and error.response.status_code == 404:
                return None
            raise

    def story(self, dag_id: str, run_id: str) -> str:
        """Return the states of a run's tasks, and the ends of the logs of those that failed, of each try."""
        tasks = self.tasks(dag_id, run_id)
        states = [f"  {_name(task)}: {task['state']}, try {task['try_number']}" for task in tasks]
        ill = [task for task in tasks if task["state"] in ("failed", "up_for_retry")]
        return "\n".join([*states, *(end for task in ill for end in self._log_ends(dag_id, run_id, task))])

    def _log_ends(self, dag_id: str, run_id: str, task: Json) -> Iterator[str]:
        for number in range(1, task["try_number"] + 1):
            log = self.log(dag_id, run_id, task["task_id"], number, map_index=task["map_index"])
            yield "\n".join([f"--- log of {_name(task)}, try {number}", *log.splitlines()[-_LOG_LINES:]])


class Watch:
    """Waits for what the tasks of a Dag do outside of Airflow, as long as no task of the Dag fails for good.

    Args:
        api: Airflow's API.
        dag_id: The Dag; what has failed before does not count.
    """

    def __init__(self, api: AirflowApi, dag_id: str) -> None:
        self._api = api
        self._dag_id = dag_id
        self._before = api.failures(dag_id)

    def wait_until(self, condition: Callable[[], object], *, what: str, interval: float = 0.5) -> None:
        """Poll until the condition holds; raise `UnexpectedStateError` when a task has failed, `TimeoutError` when it is late."""

        def is_over() -> bool:
            if condition():
                return True
            self._expect_no_failure(what)
            return False

        wait_until(is_over, what=what, interval=interval)

    def _expect_no_failure(self, what: str) -> None:
        for run_id, task_id, *_ in self._api.failures(self._dag_id) - self._before:
            story = self._api.story(self._dag_id, run_id)
            raise UnexpectedStateError(f"{task_id} of {run_id} has failed, and so it is in vain: {what}\n{story}")


def _name(task: Json) -> str:
    return task["task_id"] if task["map_index"] < 0 else f"{task['task_id']}[{task['map_index']}]"


def _run_path(dag_id: str, run_id: str) -> str:
    # Run ids have a +, which is a blank when it is not quoted.
    return f"/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}"


def _task_path(dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> str:
    path = f"{_run_path(dag_id, run_id)}/taskInstances/{task_id}"
    return path if map_index < 0 else f"{path}/{map_index}"


def _line(entry: str | Mapping[str, Any]) -> str:
    if isinstance(entry, str):
        return entry
    fields = [f"{name}={value}" for name, value in entry.items() if name not in _NOT_IN_LINES]
    errors = [f"{error['exc_type']}: {error['exc_value']}" for error in entry.get("error_detail") or ()]
    return " ".join([str(entry["event"]), *fields, *errors])
