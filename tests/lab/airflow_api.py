"""The part of Airflow's REST API that tests and the demo use, and the waiting that goes with it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import requests

from tests.lab.airflow_signs import BACKFILL, FAILED, LAST_END, RUN, RUNS, TASK, Signs
from tests.lab.patience import ANSWER, Patience, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

_RUN_ENDS = ("success", "failed")
_TASK_ENDS = ("success", "failed", "skipped", "upstream_failed", "removed")
_LOG_LINES = 60
# How long the server may answer what is only asked with "too busy".
_ANSWER_SECONDS = 60
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
        url: Of the API server.
        user: Who logs in.
        password: Theirs.
        database_url: SQLAlchemy URL of Airflow's database. Who waits looks there whether it is time to ask again, which costs a
            tenth of a request; None: they ask every few seconds.
    """

    def __init__(self, url: str, user: str, password: str, database_url: str | None = None) -> None:
        self.url = url
        self._signs = Signs(database_url) if database_url else None
        self._user = user
        self._password = password
        self._session = requests.Session()
        # Many threads ask, and pytest changes the environment meanwhile: to look there for a proxy would fail now and then.
        self._session.trust_env = False

    def request(self, method: str, path: str, body: Json | None = None, **query: Any) -> Any:
        """Send a request to a path below /api/v2 and return the decoded answer; None when it is empty.

        What only asks is asked again when the server is too busy to answer.
        """
        if "Authorization" not in self._session.headers:
            self._log_in()
        patience = Patience(_ANSWER_SECONDS)
        while True:
            try:
                return self._once(method, path, body, query)
            except (requests.Timeout, requests.HTTPError) as error:
                is_busy = error.response is None or error.response.status_code >= 500
                if method != "GET" or not is_busy or patience.is_over():
                    raise
            patience.pause()

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

    def wait_for_dag(self, dag_id: str, *, timeout: float = 90) -> Json:
        """Return the Dag as soon as it is parsed; raise `DagImportError` when a file does not import."""
        patience = self._patience(timeout)
        while True:
            found = self._find(f"/dags/{dag_id}")
            if found is not None:
                return found
            errors = self.request("GET", "/importErrors")["import_errors"]
            if errors:
                raise DagImportError("\n".join(f"{error['filename']}\n{error['stack_trace']}" for error in errors))
            if patience.is_over():
                raise UnexpectedStateError(
                    f"Dag {dag_id} is not there after {timeout:g} s, and nothing failed to import"
                )
            patience.pause()

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

    def wait_for_run(self, dag_id: str, run_id: str, state: str = "success", *, timeout: float = 180) -> Json:
        """Return the run as soon as it has this state; raise `UnexpectedStateError` when it ends in another one."""
        patience = self._patience(timeout, RUN, dag_id=dag_id, run_id=run_id)
        while (run := self.run(dag_id, run_id))["state"] != state:
            if run["state"] in _RUN_ENDS or patience.is_over():
                raise UnexpectedStateError(
                    f"run {run_id} of {dag_id} is {run['state']}, not {state}\n{self.story(dag_id, run_id)}"
                )
            patience.pause()
        return run

    def run_to(self, dag_id: str, conf: Json | None = None, state: str = "success", *, timeout: float = 180) -> str:
        """Make a manual run, wait until it has this state, and return its id."""
        run_id = self.trigger(dag_id, conf)
        self.wait_for_run(dag_id, run_id, state, timeout=timeout)
        return run_id

    def clear_run(self, dag_id: str, run_id: str) -> None:
        """Clear all tasks of a run, so that they run again."""
        self.request("POST", f"{_run_path(dag_id, run_id)}/clear", {"dry_run": False})

    def mark_run(self, dag_id: str, run_id: str, state: str) -> None:
        """Make a run `success` or `failed` (its running tasks are killed), or `queued`."""
        self.request("PATCH", _run_path(dag_id, run_id), {"state": state})

    def wait_for_first_run(self, dag_id: str, *, timeout: float = 120) -> Json:
        """Return the first run of a Dag as soon as there is one."""
        return self.wait_for_some_runs(dag_id, 1, timeout=timeout)[0]

    def wait_for_some_runs(self, dag_id: str, number: int, *, timeout: float = 120) -> list[Json]:
        """Return the runs of a Dag as soon as there are this many."""
        patience = self._patience(timeout, RUNS, dag_id=dag_id)
        while len(runs := self.runs(dag_id)) < number:
            if patience.is_over():
                raise UnexpectedStateError(f"Dag {dag_id} has {len(runs)} runs, not {number}, after {timeout:g} s")
            patience.pause()
        return runs

    def wait_for_runs(self, dag_id: str, number: int, *, timeout: float = 180) -> list[Json]:
        """Return the runs of a Dag as soon as there are this many and all have succeeded."""
        runs = self.wait_for_some_runs(dag_id, number, timeout=timeout)
        return [self.wait_for_run(dag_id, run["dag_run_id"], timeout=timeout) for run in runs]

    def wait_for_quiet(self, dag_id: str, *, timeout: float = 180) -> None:
        """Wait until all runs of a Dag are over."""
        patience = self._patience(timeout, RUNS, dag_id=dag_id)
        while alive := [run["dag_run_id"] for run in self.runs(dag_id) if run["state"] not in _RUN_ENDS]:
            if patience.is_over():
                raise UnexpectedStateError(f"runs {alive} of {dag_id} are not over after {timeout:g} s")
            patience.pause()

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
        patience = self._patience(60)
        while True:
            try:
                return int(self.request("POST", "/backfills", body)["id"])
            except requests.HTTPError as error:
                # SQLite, while the scheduler writes.
                if error.response is None or error.response.status_code != 503 or patience.is_over():
                    raise
                patience.pause()

    def wait_for_no_backfill(self, dag_id: str, *, timeout: float = 180) -> None:
        """Wait until a Dag has no backfill that is not complete: there can be only one at a time."""
        for backfill in self.request("GET", "/backfills", dag_id=dag_id)["backfills"]:
            self.wait_for_backfill(backfill["id"], timeout=timeout)

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

    def wait_for_backfill(self, backfill_id: int, *, timeout: float = 180) -> None:
        """Wait until all runs of a backfill are over and Airflow has noticed, which takes it up to half a minute."""
        patience = self._patience(timeout, BACKFILL, backfill_id=backfill_id)
        while self.request("GET", f"/backfills/{backfill_id}")["completed_at"] is None:
            if patience.is_over():
                raise UnexpectedStateError(f"backfill {backfill_id} is not complete after {timeout:g} s")
            patience.pause()

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
        timeout: float = 180,
    ) -> Json:
        """Return the task as soon as it has this state (in this try, or a later one).

        Raises `UnexpectedStateError` when the task ends in another state, or on timeout.
        """
        names = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id, "map_index": map_index}
        patience = self._patience(timeout, TASK, **names)
        while True:
            task = self.task(**names)
            is_this_try = try_number is None or task["try_number"] >= try_number
            if is_this_try and task["state"] == state:
                return task
            if patience.is_over() or (is_this_try and task["state"] in _TASK_ENDS):
                raise UnexpectedStateError(
                    f"{task_id} of {run_id} is {task['state']} in try {task['try_number']}, not {state}\n"
                    f"{self.story(dag_id, run_id)}"
                )
            patience.pause()

    def wait_for_retry(self, dag_id: str, run_id: str, task_id: str, *, timeout: float = 180) -> None:
        """Wait until the first try of a task has failed, and it waits for the next one, or is in it."""
        names = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id, "map_index": -1}
        patience = self._patience(timeout, TASK, **names)
        while (task := self.task(**names))["state"] != "up_for_retry" and task["try_number"] < 2:
            if patience.is_over() or task["state"] in _TASK_ENDS:
                raise UnexpectedStateError(
                    f"{task_id} of {run_id} is {task['state']}, and is not tried again\n{self.story(dag_id, run_id)}"
                )
            patience.pause()

    def clear(
        self, dag_id: str, run_id: str, task_ids: Sequence[str | tuple[str, int]], *, downstream: bool = False
    ) -> None:
        """Clear tasks (or mapped ones, `(task_id, map_index)`) of a run, whatever their state, so that they run again."""
        options = {"dry_run": False, "only_failed": False, "reset_dag_runs": True, "include_downstream": downstream}
        body = {**options, "dag_run_id": run_id, "task_ids": list(task_ids)}
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
        patience = Patience(_ANSWER_SECONDS)
        # On a busy machine, Airflow was seen not to know a try for a moment that had just become the one before the retry.
        while (answer := self._find(path, **query)) is None and not patience.is_over():
            patience.pause()
        answer = answer or self.request("GET", path, **query)
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
        assert self._signs is not None, "this takes the address of Airflow's database"
        return set(self._signs.read(FAILED, dag_id=dag_id))

    def watch(self, dag_id: str) -> Watch:
        """Return what waits, from now on, for what tasks of this Dag do outside of Airflow."""
        return Watch(self, dag_id)

    def _patience(self, seconds: float, query: Any = None, **values: Any) -> Patience:
        signs = self._signs
        sign = None if query is None or signs is None else partial(signs.read, query, **values)
        return Patience(seconds, self.last_end, sign=sign)

    def last_end(self) -> Any:
        """Return which task ended last, whoever's it is: while tasks end, the one that is waited for has its turn to come."""
        if self._signs is not None:
            return self._signs.read(LAST_END)
        query = {"end_date_gte": "2000-01-01T00:00:00Z", "order_by": "-end_date", "limit": 1}
        ended = self.request("GET", "/dags/~/dagRuns/~/taskInstances", **query)["task_instances"]
        return [(task["id"], task["end_date"]) for task in ended]

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
    """Waits for what the tasks of a Dag do outside of Airflow, as long as tasks end, and no task of the Dag fails for good.

    Args:
        api: Of the Airflow.
        dag_id: The Dag; what has failed before does not count.
    """

    def __init__(self, api: AirflowApi, dag_id: str) -> None:
        self._api = api
        self._dag_id = dag_id
        self._before = api.failures(dag_id)

    def wait_until(self, condition: Callable[[], object], *, timeout: float, what: str, interval: float = 0.5) -> None:
        """Poll until the condition holds; raise `UnexpectedStateError` when a task has failed, `TimeoutError` when it is late."""

        def is_over() -> bool:
            if condition():
                return True
            self._expect_no_failure(what)
            return False

        wait_until(is_over, timeout=timeout, what=what, interval=interval, progress=self._api.last_end)

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
