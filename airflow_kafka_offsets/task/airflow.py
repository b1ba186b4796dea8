"""The door to Airflow: the only module that reads the context of a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from airflow_kafka_offsets.airflow_versions import bundle_version_of, has_partitions, partition_of
from airflow_kafka_offsets.core.fields import plain
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.run import Run, Try
from airflow_kafka_offsets.core.window import Claim, Scope

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from airflow.sdk import DAG, BaseOperator, Context

    from airflow_kafka_offsets.core.window import Window

VARIABLE = "kafka_window"
"""What a ``map_index_template`` can use: the window in one short line."""

MAX_LABEL = 250
"""How long Airflow's label of a task instance may be."""

_IN_EVENT = ("window_id", "seq", "lane", "planned_until", "is_rerun", "span", "records", "ranges")


class Task:
    """One try of a task in Airflow.

    Attributes:
        run: all that we read from Airflow.
        context: for the provider's methods. In this package, only this class reads it.
        state: what Airflow keeps for the task between its tries, or None on an Airflow that keeps nothing.
        watched: the driver for whose end this try has waited without a worker slot, or None if it has not.
    """

    def __init__(
        self, operator: BaseOperator, context: Context, scope: Scope = Scope.TASK, watched: str | None = None
    ) -> None:
        self.run = _run(operator, context, scope, is_resumed=watched is not None)
        self.context = context
        self.watched = watched
        self.state: Any = context.get("task_state_store")
        self._operator: Any = operator

    def show(self, windows: Sequence[Window], records: int | None = None) -> None:
        """Let Airflow's UI show which windows the task has.

        Args:
            windows: all of them.
            records: how many records they had together, or None before that is known.
        """
        if not windows:
            return
        self._operator.kafka_window_ids = tuple(window.id for window in windows)
        variables = cast("dict[str, Any]", self.context)
        variables[VARIABLE] = label_of(self._operator.kafka_window_ids, sum(window.span for window in windows), records)
        # Airflow renders this label after the task, also of one that is not mapped, and shows it in its lists of task instances.
        if variables.get("map_index_template") is None:
            variables["map_index_template"] = f"{{{{ {VARIABLE} }}}}"

    def emit(
        self,
        windows: Sequence[Window],
        results: Sequence[Mapping[str, Any]],
        reached: Callable[..., Sequence[datetime] | None],
        *,
        emit_empty: bool,
    ) -> None:
        """Show committed windows in Airflow's UI, and in the event of each asset outlet.

        Windows without an offset make no event, unless `emit_empty`. An alias has no event of its own: a task that uses one adds its assets
        itself. For each partition that is complete now, there is an event with its key.

        Args:
            windows: all windows of the task.
            results: of these windows, as `window_result` makes them.
            reached: return the ends of complete intervals, see `Work.reached`. It asks the ledger, so only a task with outlets calls it.
            emit_empty: emit also when all of them are empty.
        """
        from airflow.sdk import Asset
        from airflow.sdk.definitions.asset import AssetRef

        records = [result["records"] for result in results]
        self.show(windows, None if None in records else sum(records))
        if not self._operator.outlets:
            return
        ends = reached(emit_empty=emit_empty)
        keys = self._partition_keys(ends or ())
        # Airflow gives an event without a key that of its run.
        is_plain = (ends is None or self.run.partition is None) and (
            emit_empty or any(window["span"] for window in results)
        )
        if not keys and not is_plain:
            # Airflow reads the outlets after the task has succeeded; it has no other way to succeed without an event.
            self._operator.outlets = []
        extra = event_extra(results)
        for outlet in self._operator.outlets:
            if isinstance(outlet, Asset | AssetRef):
                event: Any = self.context["outlet_events"][outlet]
                event.extra.update(extra)
                if keys:
                    # An event with a key triggers only consumers of partitions, so others get one without.
                    event.partition_keys.update([*keys, None] if is_plain else keys)

    def _partition_keys(self, ends: Sequence[datetime]) -> list[str]:
        """Return the keys of the partitions that end at these moments, if a task can give its events a key."""
        if not ends or not has_partitions():
            return []
        from airflow_kafka_offsets.task.partitions import keys_of

        return keys_of(self.context["dag"].timetable, ends)

    def push(self, key: str, value: Any) -> None:
        """Push an XCom."""
        self.context["ti"].xcom_push(key, value)

    def with_parent_run(self, conf: Mapping[str, Any]) -> dict[str, Any]:
        """Return Spark's properties with those that name the run to OpenLineage's listener in Spark, if Airflow is configured to add them.

        The Spark provider does this for spark-submit only.
        """
        from airflow_kafka_offsets.airflow_versions import conf as settings

        if not settings.getboolean("openlineage", "spark_inject_parent_job_info", fallback=False):
            return dict(conf)
        # It imports several hundred modules.
        from airflow.providers.common.compat.openlineage.utils import spark

        return dict(spark.inject_parent_job_information_into_spark_properties(dict(conf), self.context))


def label_of(window_ids: Sequence[str], span: int, records: int | None) -> str:
    """Return windows in one short line.

    >>> label_of(["lake.orders-000012"], 3000, None)
    'lake.orders-000012 · 3,000 offsets'
    >>> label_of(["lake.orders-000012", "lake.orders-000013"], 3000, 2999)
    'lake.orders-000012 and 1 more · 2,999 records'
    """
    more = f" and {len(window_ids) - 1} more" if len(window_ids) > 1 else ""
    number, noun = (span, "offset") if records is None else (records, "record")
    rest = f"{more} · {number:,} {noun}{'' if number == 1 else 's'}"
    return window_ids[0][: MAX_LABEL - len(rest)] + rest


def event_extra(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what an asset event holds: the group, and each window with its ranges and whether it was run again."""
    return {"group": results[0]["group"], "windows": [{key: result[key] for key in _IN_EVENT} for result in results]}


def time_over_at(operator: BaseOperator, context: Context) -> datetime | None:
    """Return when the `execution_timeout` of this try is over, counted from its first start, or None if it has none."""
    limit, started = operator.execution_timeout, context["ti"].start_date
    return (
        None if limit is None or started is None else cast("datetime", plain(started)) + cast("timedelta", plain(limit))
    )


def _run(operator: BaseOperator, context: Context, scope: Scope, *, is_resumed: bool) -> Run:
    # The protocols of Airflow have neither the values of a type of run, nor the bundle.
    ti: Any = context["ti"]
    dag_run, dag = context["dag_run"], context["dag"]
    kind: Any = dag_run.run_type
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    partition, date = partition_of(dag_run)
    interval = None if start is None or end is None else (plain(start), plain(end))
    if interval is None and date is not None:
        from airflow_kafka_offsets.task.partitions import interval_of

        interval = interval_of(dag.timetable, date)
    return Run(
        # The same for the first try, a retry, a clear and a reprocessed run.
        Claim(ti.dag_id, ti.run_id, ti.task_id, -1 if ti.map_index is None else ti.map_index, scope),
        Try(
            number=ti.try_number,
            max_tries=ti.max_tries,
            retries=operator.retries or 0,
            run_started=plain(dag_run.start_date),
            bundle_version=bundle_version_of(ti),
            is_resumed=is_resumed,
        ),
        kind=str(getattr(kind, "value", kind)),
        interval=interval,
        partition=partition,
        conf=dag_run.conf or {},
        params=dict(context["params"]),
        declared=frozenset(dag.params),
        groups=frozenset(group.name for _, group in tasks_of_groups(dag)),
        # The policy is not called: it is the user's code, and Airflow calls it once.
        has_retry_policy=getattr(operator, "retry_policy", None) is not None,
        keeps_state=context.get("task_state_store") is not None,
    )


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
    sources = [task.partial_kwargs, task.partial_kwargs.get("op_kwargs"), *_expanded(task)]
    return any(isinstance(kwargs, Mapping) and kwargs.get("window") is not None for kwargs in sources)


def _expanded(task: Any) -> list[Any]:
    """Return what a mapped task is expanded with. The output of another task has no value yet."""
    expanded: list[Any] = []
    for name in ("expand_input", "op_kwargs_expand_input"):  # the second one is that of a decorated function
        value = getattr(getattr(task, name, None), "value", None)
        expanded += value if isinstance(value, list | tuple) else [value]
    return expanded
