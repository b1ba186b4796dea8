"""What Airflow gives a task, and a task that works on its windows as the operators do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from airflow_kafka_offsets.core.evidence import Report
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.run import Run, Try
from airflow_kafka_offsets.core.window import Claim
from airflow_kafka_offsets.service.plan import Planned
from airflow_kafka_offsets.service.windows import WindowService
from airflow_kafka_offsets.task.definition import Stop
from airflow_kafka_offsets.task.work import Work
from tests.core.examples import claim

FIRST_TRY = Try(1, 1, 1)


def context_of(
    asking: Claim | None = None,
    this_try: Try = FIRST_TRY,
    *,
    kind: str = "scheduled",
    conf: dict[str, Any] | None = None,
    **more: Any,
) -> Any:
    """Return the context of a task: of its claim, its try and its run; `more` is what else is in it."""
    asking = asking or claim()
    ti = SimpleNamespace(
        dag_id=asking.dag_id,
        run_id=asking.run_id,
        task_id=asking.task_id,
        map_index=asking.map_index,
        try_number=this_try.number,
        max_tries=this_try.max_tries,
        bundle_instance=SimpleNamespace(version=this_try.bundle_version),
        stats_tags={},
        xcom_push=lambda *_: None,
    )
    dag_run = SimpleNamespace(run_type=kind, conf=conf, start_date=this_try.run_started)
    dag = SimpleNamespace(params={}, tasks=[])
    return {"ti": ti, "dag_run": dag_run, "dag": dag, "params": {}, "outlet_events": {}, **more}


def work_on(
    service: WindowService,
    group: KafkaGroup,
    run: Run,
    planned: Sequence[Planned],
    job: Callable[[Planned], Report],
    stop: Stop | None = None,
    **more: Any,
) -> list[dict[str, Any]]:
    """Let a task work on windows, one after the other; return their results."""
    with Work(run, service, group, planned, stop or Stop(), **more) as work:
        all_of(work, planned, job)
        return work.results()


def all_of(work: Work, planned: Sequence[Planned], job: Callable[[Planned], Report]) -> None:
    """Run the jobs of windows, and commit these."""
    for p in planned:
        if p.needs_job:
            with work.attempt(p) as attempt:
                attempt.report = job(attempt.planned)
        work.commit(p)
