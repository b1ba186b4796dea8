"""One task: plan the window, run a PySpark function on it in this very process, check, commit."""

from __future__ import annotations

import inspect
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_pyspark import PySparkOperator

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.fields import MAPPING, Kind, check_attributes, check_fields, or_none
from airflow_kafka_offsets.task.definition import (
    JOB,
    Lineage,
    OneStopPerTry,
    PlanningFields,
    Stop,
    check_event,
    failing_at_once,
)
from airflow_kafka_offsets.task.links import WindowLink

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pyspark.sql import SparkSession

    from airflow_kafka_offsets.core.evidence import Report
    from airflow_kafka_offsets.core.group import KafkaGroup
    from airflow_kafka_offsets.launch.session import SessionLaunch
    from airflow_kafka_offsets.service.plan import Planned
    from airflow_kafka_offsets.service.windows import WindowService
    from airflow_kafka_offsets.spark import KafkaWindow
    from airflow_kafka_offsets.task.airflow import Task
    from airflow_kafka_offsets.task.definition import OnOpenWindow
    from airflow_kafka_offsets.task.work import Work

XCOM_WINDOW = "window"
"""XCom that holds what `KafkaSparkSubmitOperator` returns; the return value is the function's own."""

_INTERRUPT_SECONDS = 3.0
"""How long `on_kill` waits for Spark: the task process is killed 5 seconds after `on_kill` starts."""

_INJECTED = ("spark", "window")
"""The arguments that the user's function gets from the operator."""

_FUNCTION = {
    "python_callable": Kind("a function", callable),
    "op_kwargs": or_none(MAPPING),
}

logger = logging.getLogger(__name__)


class KafkaSparkOperator(PlanningFields, Lineage, OneStopPerTry, PySparkOperator):
    """Plan the run's window of a Kafka group, call a PySpark function with it, and commit it only after it returned.

    The function gets `spark` and `window` (see `airflow_kafka_offsets.spark.KafkaWindow`) by name, in addition to what it gets
    in any `PythonOperator`. When it returns, it must have read the window completely; what the function did not check
    is checked then. A retry, a clear, a replay and a backfill get the same window as with `KafkaSparkSubmitOperator`. On Spark
    Connect each attempt has its own session. It first ends the sessions of earlier attempts, with all that the server still
    does for them.

    XCom: ``return_value`` is what the function returned; for a replay of several windows, a list with the value of each, in
    order (with ``multiple_outputs`` each key has such a list). It is None for an empty window, and for one whose function an
    earlier try has run. ``window`` is what `KafkaSparkSubmitOperator` returns.

    All other parameters are those of `PySparkOperator`.

    :param python_callable: the function.
    :param group: the group.
    :param conn_id: connection of type ``spark_connect`` for Spark Connect, ``spark`` for a master; without it, ``local[*]``.
    :param window: instead of planning: the window to work on, from a `PlanBacklogOperator` of the same run
        (``.expand(window=plan.output)``), or a window id; also as argument `window` in `op_kwargs`. (templated)
    :param on_open_window: while another run works on the open window: ``wait`` (deferred), ``skip`` or ``fail``.
    :param poll_interval: seconds between two looks while waiting.
    :param emit_empty: let outlets have an asset event for an empty window, too.
    :param connector: ``"auto"``: the Kafka connector for the version of the task's own Spark, unless this Spark has one, or
        ``spark.jars.packages`` or ``spark.jars`` names one. Its jars are fetched once on each machine, and then given as files
        (``kafka-offsets jars`` fetches them ahead of time). Maven coordinates: they are added to ``spark.jars.packages``.
        None: Spark has the connector, as a Connect server must.
    """

    template_fields: Sequence[str] = (*PySparkOperator.template_fields, "window")
    ui_color = "#d5e8f0"
    operator_extra_links = (WindowLink(),)
    python_callable: Callable[..., Any]

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        group: KafkaGroup,
        window: Any = None,
        on_open_window: OnOpenWindow = "wait",
        poll_interval: float = 10,
        emit_empty: bool = False,
        connector: str | None = "auto",
        op_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        check_fields({"python_callable": python_callable, "op_kwargs": op_kwargs}, _FUNCTION)
        hide_injected(python_callable)
        arguments = dict(op_kwargs or {})
        named = arguments.pop("window", None)
        super().__init__(python_callable=python_callable, op_kwargs=arguments, **kwargs)
        self.group = group
        self.window = window if named is None else named
        self.on_open_window = on_open_window
        self.poll_interval = poll_interval
        self.emit_empty = emit_empty
        self.connector = connector
        check_attributes(self, JOB)
        self._stop = Stop()
        self._at_work: _AtWork | None = None

    @failing_at_once
    def execute(self, context: Context) -> Any:
        """Plan, call the function, check, commit."""
        from airflow_kafka_offsets.task.airflow import Task

        return self._run(Task(self, context))

    @failing_at_once
    def resume(self, context: Context, event: Any = None) -> Any:
        """Plan again after waiting for another run."""
        check_event(event)
        return self.execute(context)  # of the decorated operator, too

    def _run(self, task: Task) -> Any:
        from airflow_kafka_offsets import wiring
        from airflow_kafka_offsets.task.plan import log_failure_before_window, plan, take
        from airflow_kafka_offsets.task.work import Work, task_result

        run = task.run
        with log_failure_before_window(run, self.group.name, self.window):
            launch = self._check_and_prepare(task)
            service = wiring.open_service(self.group)
            if self.window is None:
                planned = plan(self, run, service)
            else:
                planned = [take(self, run, service, self.window)]
        windows = [p.window for p in planned]
        task.show(windows)
        work = Work(run, service, self.group, planned, self._stop, drives_here=not launch.remote)
        self.trace(launch.reader.servers, self.group.reads, work.read)
        self._at_work = _AtWork(self, task, launch, service, planned, work)
        with work:  # around the session, too: Spark logs a lot when it starts and when it stops
            value = super().execute(task.context)
            results = work.results()
            task.push(XCOM_WINDOW, task_result(self.group, results))
            task.emit(windows, results, work.reached, emit_empty=self.emit_empty)
        return value

    def _check_and_prepare(self, task: Task) -> SessionLaunch:
        """Refuse what can't work, before anything is written, and return how Spark's sessions are opened."""
        from airflow_kafka_offsets.launch.connect import remote_url, token_in_url
        from airflow_kafka_offsets.launch.job_files import reader_of, refuse_login
        from airflow_kafka_offsets.launch.session import SessionLaunch, session_settings
        from airflow_kafka_offsets.wiring import connections
        from airflow_kafka_offsets.wiring.machine.checks import check_pyspark, check_session
        from airflow_kafka_offsets.wiring.machine.connector import for_session

        connection = connections.find_connection(self.conn_id, "spark") if self.conn_id else None
        remote = remote_url(connection, self.config_kwargs)
        connections.mask(token_in_url(connection))
        reader = reader_of(self.group)
        if remote:
            refuse_login(reader, self.group.kafka_conn_id, "a Spark Connect server")
        else:
            check_session(os.environ)
        check_pyspark()
        settings = session_settings(connection, self.config_kwargs, f"{self.dag_id}-{self.task_id}")
        if not remote:  # a server has its connector, and its listener since its start
            loaded = for_session(self.connector, settings, avro=self.group.registry is not None)
            settings = task.with_parent_run({**settings, **loaded})
        return SessionLaunch(settings, remote, reader)

    def execute_callable(self) -> Any:
        """Work on the windows; return what the function returned for them. `PythonOperator.execute` calls this."""
        assert self._at_work is not None
        return self._return_value(self._at_work.values())

    def call_function(self, spark: SparkSession, window: KafkaWindow) -> Any:
        """Call the user's function for a window."""
        return call(self.python_callable, self.op_args, self.op_kwargs, {"spark": spark, "window": window})

    def checked_value(self, value: Any) -> Any:
        """Return the value of the function. One that Airflow would refuse after the commit is refused before it."""
        is_split = self.multiple_outputs and self.do_xcom_push and value is not None
        if is_split and not isinstance(value, Mapping):
            raise BadInputError(f"With multiple_outputs the function must return a dict, got {type(value).__name__}")
        return value

    def _return_value(self, values: Sequence[Any]) -> Any:
        if len(values) == 1:
            return values[0]
        if not self.multiple_outputs:
            return list(values)
        dicts = [value or {} for value in values]
        return {key: [value.get(key) for value in dicts] for value in dicts for key in value}

    def on_kill(self) -> None:
        """Stop what Spark does for this task, and commit nothing from now on.

        It does not matter whether the task or its worker is stopped: nothing could reconnect to a function in a dead process.
        """
        self._stop.set()
        spark = None if self._at_work is None else self._at_work.spark
        if spark is None:
            return
        # Not in this thread: the signal may have interrupted it in the middle of an answer of Spark's JVM.
        thread = threading.Thread(target=_interrupt, args=(spark,), daemon=True)
        thread.start()
        thread.join(_INTERRUPT_SECONDS)


@dataclass(slots=True)
class _AtWork:
    """A try of a task at work on its windows, in this process.

    Attributes:
        operator: whose function is called.
        task: the try.
        launch: how sessions are opened.
        service: the use cases.
        planned: the windows.
        work: records attempts and commits.
        spark: the open session, or None.
        returned: what the function returned, by window id.
    """

    operator: KafkaSparkOperator
    task: Task
    launch: SessionLaunch
    service: WindowService
    planned: Sequence[Planned]
    work: Work
    spark: SparkSession | None = None
    returned: dict[str, Any] = field(default_factory=dict)

    def values(self) -> list[Any]:
        """Work on all windows, and return the function's values. On a Connect server each attempt has its own session."""
        needing = [p for p in self.planned if p.needs_job]
        if self.launch.remote or not needing:
            self._all(self._in_own_session)
        else:
            with self._session(self.launch.settings, self._start_environment(needing)) as spark:
                self._all(partial(self.job, spark))
        return [self.returned.get(p.window.id) for p in self.planned]

    def _all(self, run: Callable[[Planned], Report]) -> None:
        for p in self.planned:
            if p.needs_job:
                with self.work.attempt(p) as job:
                    job.report = run(job.planned)
            self.work.commit(p)

    def _start_environment(self, needing: Sequence[Planned]) -> dict[str, str]:
        from airflow_kafka_offsets.wiring.machine.start import start_environment

        settings = [os.environ.get("PYSPARK_SUBMIT_ARGS", ""), *map(str, self.launch.settings.values())]
        return start_environment(os.environ, sum(p.window.span for p in needing), program=None, given=settings)

    def _in_own_session(self, planned: Planned) -> Report:
        from airflow_kafka_offsets.launch.connect import end_sessions, own_and_earlier, session_url

        run, url = self.task.run, self.launch.remote
        assert url is not None
        attempts = self.service.ledger.attempts(planned.window.id)
        attempt, earlier = own_and_earlier(attempts, run.claim, run.this_try.number)
        end_sessions(url, earlier, self.task.state)
        self.operator._stop.check()
        with self._session({**self.launch.settings, "spark.remote": session_url(url, attempt) or url}, {}) as spark:
            return self.job(spark, planned)

    @contextmanager
    def _session(self, settings: Mapping[str, Any], environment: Mapping[str, str]) -> Iterator[SparkSession]:
        from airflow_kafka_offsets.launch.session import open_session

        with open_session(settings, environment) as self.spark:
            try:
                yield self.spark
            finally:
                self.spark = None

    def job(self, spark: SparkSession, planned: Planned) -> Report:
        """Call the function for a window, and return what it read."""
        from airflow_kafka_offsets.launch.job_files import handoff_of, read_report, task_folder
        from airflow_kafka_offsets.spark import KafkaWindow

        operator, window_id = self.operator, planned.window.id
        operator._stop.check()  # again: the session may have taken long to open, and `on_kill` could not stop it yet
        spark.clearTags()  # of the window before
        spark.addTag(window_id)
        with task_folder() as directory:
            report = directory / "report.json"
            options = self._with_login(spark, directory)
            window = KafkaWindow(spark, handoff_of(planned, options, operator.group, report))
            # Here, because task processes of Airflow end without the exit guard.
            try:
                value = _returned(partial(operator.call_function, spark, window))
                self.returned[window_id] = operator.checked_value(value)
                window.finish()
            finally:
                window.release()
            return read_report(report, planned.window)

    def _with_login(self, spark: SparkSession, directory: Path) -> dict[str, str]:
        from airflow_kafka_offsets.launch.job_files import refuse_login, with_login

        reader = self.launch.reader
        # A Connect server was refused before, and a session of it has no context.
        if reader.secrets and not (master := spark.sparkContext.master).startswith("local"):
            refuse_login(reader, self.operator.group.kafka_conn_id, f"executors (master {master})")
        return with_login(reader, directory)


def _returned(function: Callable[[], Any]) -> Any:
    """Call the user's function. Refuse an exception with which Airflow would end or suspend the task while its window is open.

    Raises:
        BadInputError: with what to do instead.
    """
    from airflow_kafka_offsets.airflow_versions import (
        AirflowRescheduleException,
        DagRunTriggerException,
        DownstreamTasksSkipped,
        TaskAwaitingInput,
        TaskDeferred,
    )

    try:
        return function()
    except (
        *(AirflowRescheduleException, DagRunTriggerException, DownstreamTasksSkipped, TaskAwaitingInput, TaskDeferred),
    ) as exc:
        raise BadInputError(
            f"The function raised {type(exc).__name__}: nothing is committed. Do this in a task after it; to leave the window to a later "
            "run, raise AirflowSkipException"
        ) from exc


def _interrupt(spark: SparkSession) -> None:
    from airflow_kafka_offsets.spark.source import is_classic

    try:
        if is_classic(spark):
            spark.sparkContext.cancelAllJobs()
        else:
            spark.interruptAll()
            spark.stop()  # the function continues until the process is killed, but its requests are refused
    except Exception:
        logger.warning("Could not stop Spark's work", exc_info=True)


def hide_injected(function: Callable[..., Any]) -> None:
    """Make these two arguments optional and keyword-only, so that Airflow binds only the others. Repeating it changes nothing.

    Raises:
        BadInputError: the function does not take the window.
    """
    signature = inspect.signature(function)
    _check_signature(function, signature)
    shown = [p for p in signature.parameters.values() if p.name not in _INJECTED]
    hidden = [
        p.replace(kind=Parameter.KEYWORD_ONLY, default=None)
        for p in signature.parameters.values()
        if p.name in _INJECTED
    ]
    wildcard = [shown.pop()] if shown and shown[-1].kind is Parameter.VAR_KEYWORD else []
    function.__signature__ = signature.replace(parameters=[*shown, *hidden, *wildcard])  # type: ignore[attr-defined]


def call(
    function: Callable[..., Any], args: Collection[Any], kwargs: Mapping[str, Any], injected: Mapping[str, Any]
) -> Any:
    """Call a function whose signature was hidden, with all its arguments."""
    signature = inspect.signature(function)
    wildcard = next((name for name, p in signature.parameters.items() if p.kind is Parameter.VAR_KEYWORD), None)
    wanted = {name: value for name, value in injected.items() if wildcard or name in signature.parameters}
    arguments = dict(signature.bind(*args, **{**kwargs, **wanted}).arguments)
    extra = arguments.pop(wildcard, {}) if wildcard else {}
    return function(**arguments, **extra)


def _check_signature(function: Callable[..., Any], signature: Signature) -> None:
    name = getattr(function, "__name__", repr(function))
    shown = f"{name}({', '.join(signature.parameters)})"
    kinds = {p.kind for p in signature.parameters.values()}
    if kinds & {Parameter.VAR_POSITIONAL, Parameter.POSITIONAL_ONLY}:
        raise BadInputError(f"{shown} must not have / or *args: spark and window are passed by name")
    if "window" not in signature.parameters and Parameter.VAR_KEYWORD not in kinds:
        raise BadInputError(f"{shown} has no argument `window`: write {name}(spark, window)")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise BadInputError(f"{shown} must be a function without async and yield")
