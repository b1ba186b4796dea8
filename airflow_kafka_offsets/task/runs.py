"""What Airflow says about runs: who asks, for what, and whether another run is over."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.group import KafkaGroup, Until
from airflow_kafka_offsets.core.plan.request import (
    GROUP,
    REPLAY_KEYS,
    SCOPED,
    Live,
    Request,
    TimeSpan,
    check_keys,
    is_of_group,
    names_replay,
    parse_replay,
    scoped,
)
from airflow_kafka_offsets.core.tries import Try
from airflow_kafka_offsets.core.window import Claim, Scope

if TYPE_CHECKING:
    from airflow.sdk import DAG, Context

logger = logging.getLogger(__name__)


def claim_of(context: Context, scope: Scope) -> Claim:
    """Return the task's claim: the same for the first try, a retry, a clear and a reprocessed run."""
    ti = context["ti"]
    map_index = ti.map_index if ti.map_index is not None else -1
    return Claim(ti.dag_id, ti.run_id, ti.task_id, map_index, scope)


def try_of(context: Context) -> Try:
    """Return which try of the task this is."""
    ti = context["ti"]
    run_started: datetime | None = context["dag_run"].start_date
    return Try(ti.try_number, ti.max_tries, context["task"].retries or 0, run_started)


def request_of(context: Context, group: KafkaGroup, at_most: int = 1) -> Request | None:
    """Return what this run asks for (docs/design.md, rule 8).

    A scheduled or asset-triggered run plans live. A backfill run replays its data interval. Any other run, usually a manual
    one, replays what its params or conf name, and plans live if they name nothing.

    Args:
        context: of the task.
        group: the group.
        at_most: how many new windows the task can have.

    Returns:
        What it asks for; None: nothing of this group, because it replays another group of the DAG.

    Raises:
        BadInputError: the params choose no valid replay.
    """
    kind = run_type(context)
    conf = context["dag_run"].conf or {}
    if kind == "backfill":
        check_keys(conf, context["dag"].params, (GROUP, SCOPED))
        is_meant = is_of_group(group.name, _groups(context["dag"]), given_params(context), must_name=False)
        return _interval(context) if is_meant else None
    if kind in ("scheduled", "asset_triggered"):
        end = _plain(context.get("data_interval_end")) if kind == "scheduled" else None
        return Live(until=end, ends_at=end if group.until is Until.INTERVAL_END else None, at_most=at_most)
    check_keys(conf, context["dag"].params)
    given = given_params(context)
    if not names_replay(given):
        if scoped(conf) is not None:
            raise BadInputError(
                f'The conf has "{SCOPED}", and it names no replay: add "windows", "from" and "to", or offsets'
            )
        return Live(at_most=at_most)
    # The group first: a replay of another group may make no sense in this one.
    if not is_of_group(group.name, _groups(context["dag"]), given, must_name=True):
        return None
    return parse_replay(group.name, given) or Live(at_most=at_most)


def _groups(dag: DAG) -> set[str]:
    return {group.name for _, group in tasks_of_groups(dag)}


def tasks_of_groups(dag: DAG) -> list[tuple[Any, KafkaGroup]]:
    """Return the tasks of a DAG that plan or work on windows, with the group of each; its sensors may look at other groups."""
    groups = [(task, _group_of(task)) for task in dag.tasks]
    return [(task, group) for task, group in groups if isinstance(group, KafkaGroup)]


def _group_of(task: Any) -> Any:
    from airflow.sdk.bases.sensor import BaseSensorOperator

    if getattr(task, "is_mapped", False):
        is_sensor = issubclass(task.operator_class, BaseSensorOperator)
        return None if is_sensor else task.partial_kwargs.get("group")
    return None if isinstance(task, BaseSensorOperator) else getattr(task, "group", None)


def is_given_window(task: Any) -> bool:
    """Whether a task of a group is given its window (``window=plan.output``), so that it plans none."""
    if not getattr(task, "is_mapped", False):
        return getattr(task, "window", None) is not None
    given = [task.partial_kwargs, task.partial_kwargs.get("op_kwargs"), *_expanded(task)]
    return any(isinstance(kwargs, Mapping) and kwargs.get("window") is not None for kwargs in given)


def _expanded(task: Any) -> list[Any]:
    """Return what a mapped task is expanded with; what another task will hand to ``expand_kwargs`` is not known yet."""
    expanded: list[Any] = []
    for name in ("expand_input", "op_kwargs_expand_input"):  # the second one is that of a decorated function
        value = getattr(getattr(task, name, None), "value", None)
        expanded += value if isinstance(value, list | tuple) else [value]
    return expanded


def given_params(context: Context) -> Mapping[str, Any]:
    """Return what a run was given: its conf, on top of the DAG's params.

    Params that only share a name with `replay_params` are left out. A DAG that declares only some of these names, such as
    ``from`` and ``to`` of a report, does not have them from `replay_params`. What the conf has under `SCOPED` counts alone, whatever
    the DAG declares.

    Raises:
        BadInputError: the conf has something else under `SCOPED`, or names a second replay beside it.
    """
    # A setting of Airflow can keep the conf out of the params ([core] dag_run_conf_overrides_params).
    conf: Mapping[str, Any] = context["dag_run"].conf or {}
    declared = set(context["dag"].params) & set(REPLAY_KEYS)
    is_form = len(declared) == len(REPLAY_KEYS)
    own = set() if is_form else declared | ({GROUP} & set(context["dag"].params))
    if (inner := scoped(conf)) is not None:
        if names_replay({key: value for key, value in conf.items() if key not in own}):
            raise BadInputError(f'The conf names a replay twice: under "{SCOPED}", and beside it. Name it once')
        return inner
    if own:
        logger.info(
            "The DAG's own params %s choose no replay; replay_params() gives it those that do", ", ".join(sorted(own))
        )
    return {key: value for key, value in {**context["params"], **conf}.items() if key not in own}


def _interval(context: Context) -> TimeSpan:
    start, end = _plain(context.get("data_interval_start")), _plain(context.get("data_interval_end"))
    if start is None or end is None:
        raise BadInputError(
            "This backfill run has no data interval, so no window belongs to it: use a timetable with intervals"
        )
    return TimeSpan(start, end, is_interval=True)


def _plain(time: datetime | None) -> datetime | None:
    # Airflow's times are pendulum's, whose differences can't be divided by a timedelta.
    return time and datetime.fromtimestamp(time.timestamp(), UTC)


def run_type(context: Context) -> str:
    """Return Airflow's name of the kind of run: scheduled, manual, backfill, asset_triggered, ..."""
    kind: Any = context["dag_run"].run_type
    return str(getattr(kind, "value", kind))
