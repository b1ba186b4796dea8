"""Tries of tasks, each in a process of its own that can die at a named step.

What Airflow would know lies in files of the folder: `task.json` (who the try is, and the operator's arguments), `store.json` (the
task's state store, which outlives a worker), `state` (what Airflow says the task's state is), `deferred.json` (the trigger that a task left).
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow_kafka_offsets import KafkaGroup, KafkaSparkSubmitOperator
from airflow_kafka_offsets.airflow_versions import TaskDeferred
from airflow_kafka_offsets.operators import spark_submit
from airflow_kafka_offsets.service.windows import WindowService
from airflow_kafka_offsets.task import plan as planning
from airflow_kafka_offsets.wiring import runs


def die(*_: Any, **__: Any) -> None:
    """End as by SIGKILL, which nothing can catch."""
    os.kill(os.getpid(), signal.SIGKILL)


class Store:
    """What a task keeps over its tries, as Airflow's own store, in a file."""

    def __init__(self, path: Path, before_set: Callable[..., None]) -> None:
        self._path = path
        self._before_set = before_set

    def get(self, key: str, default: Any = None) -> Any:
        """Return the kept values."""
        return self._all().get(key, default)

    def set(self, key: str, value: Any) -> None:
        """Keep it."""
        self._before_set(key, value)
        # As in a database: whoever dies here leaves the old value or the new one.
        draft = self._path.with_suffix(".draft")
        draft.write_text(json.dumps({**self._all(), key: value}))
        draft.rename(self._path)

    def _all(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._path.read_text()) if self._path.exists() else {}
        return found


def context_of(task: dict[str, Any], store: Store) -> dict[str, Any]:
    """Return what Airflow gives a task."""
    ti = SimpleNamespace(
        dag_id="dag",
        run_id=task["run_id"],
        task_id="load",
        map_index=-1,
        try_number=task["try_number"],
        max_tries=task["max_tries"],
        start_date=datetime.fromisoformat(task["started"]),
        bundle_instance=SimpleNamespace(version=None),
        stats_tags={},
    )
    return {
        "ti": ti,
        "dag_run": SimpleNamespace(run_type="manual", conf={}, start_date=datetime(2026, 1, 1, tzinfo=UTC)),
        "params": {},
        "dag": SimpleNamespace(params={}, tasks=[]),
        "data_interval_end": datetime(2026, 1, 1, tzinfo=UTC),
        "task_state_store": store,
    }


def kill_at(step: str | None) -> Callable[..., None]:
    """Let this process die at a step. Return the function that the store calls before it keeps a value."""
    if step == "before submit":
        spark_submit.KafkaSparkSubmitOperator.submit_job = die  # type: ignore[method-assign]
    if step == "before the evidence":
        WindowService.check_same_topics = die  # type: ignore[method-assign]
    if step == "before the commit":
        WindowService.commit = die  # type: ignore[method-assign]
    return die if step == "before the id is noted" else lambda *_: None


def run(folder: str) -> None:
    """Run the operator once, as Airflow's task runner does."""
    place = Path(folder)
    logging.basicConfig(level=logging.INFO, stream=sys.stdout)
    task = json.loads((place / "task.json").read_text())
    store = Store(place / "store.json", kill_at(task["kill_at"]))
    planning.is_over = lambda claim: claim.run_id != task["run_id"]  # type: ignore[attr-defined]
    runs.task_state = lambda _: (place / "state").read_text()  # type: ignore[attr-defined]
    arguments = task["operator"]
    group = KafkaGroup(**arguments.pop("group"))
    limit = timedelta(seconds=arguments.pop("limit")) if "limit" in arguments else None
    operator = KafkaSparkSubmitOperator(task_id="load", group=group, retries=9, execution_timeout=limit, **arguments)

    def stopped(*_: Any) -> None:
        operator.on_kill()

    signal.signal(signal.SIGTERM, stopped)
    context: Any = context_of(task, store)
    try:
        result = operator.reconnect(context, task["event"]) if task["event"] else operator.execute(context)
    except TaskDeferred as deferred:
        path, kwargs = deferred.trigger.serialize()
        (place / "deferred.json").write_text(json.dumps([path, kwargs, deferred.method_name]))
        return
    (place / "result.json").write_text(json.dumps(result))
