"""What Airflow reports about the runs that hold windows: whether they are over."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_kafka_offsets.core.window import Claim, Scope

RUN_IS_ALIVE = ["queued", "running"]

# A task in one of these states no longer works. In any other state it may, also in the missing state of a cleared task.
_TASK_IS_OVER = {"success", "failed", "skipped", "upstream_failed", "removed"}


def is_over(claim: Claim) -> bool:
    """Ask Airflow whether a claim's task or run is over: failed for good, marked as done, or gone.

    Works in tasks and in triggers, through their supervisor.
    """
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    alive = RuntimeTaskInstance.get_dr_count(dag_id=claim.dag_id, run_ids=[claim.run_id], states=RUN_IS_ALIVE)
    if not alive:
        return True
    return task_is_over(claim, _task_states(claim))


def task_is_over(claim: Claim, states: Mapping[str, str | None]) -> bool:
    """Whether a claim's task is over while its run continues.

    Args:
        claim: the holder of the window.
        states: Airflow's answer for the run: state by task, of a mapped task by ``task_id_mapindex``.
    """
    name = state_name(claim)
    if name not in states:
        return True  # the task is no longer part of its run
    if claim.scope is Scope.RUN and states[name] == "success":
        return False  # this task only planned; other tasks of its run work on the window now
    return states[name] in _TASK_IS_OVER


def task_state(claim: Claim) -> str | None:
    """Ask Airflow for the state of the claim's task, or None if it has none, or there is no such task."""
    return _task_states(claim).get(state_name(claim))


def _task_states(claim: Claim) -> Mapping[str, str | None]:
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    by_run = RuntimeTaskInstance.get_task_states(
        dag_id=claim.dag_id,
        task_ids=[claim.task_id],
        run_ids=[claim.run_id],
        map_index=claim.map_index if claim.map_index >= 0 else None,
    )
    states: Mapping[str, str | None] = by_run.get(claim.run_id, {})
    return states


def state_name(claim: Claim) -> str:
    """Return the key of the claim's task in Airflow's answer."""
    return claim.task_id if claim.map_index < 0 else f"{claim.task_id}_{claim.map_index}"
