"""One task: plan the window, run a PySpark function on it in this very process, check, commit."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_pyspark import PySparkOperator

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.fields import MAPPING, Kind, check_attributes, check_fields, or_none
from airflow_kafka_offsets.launch.injection import call, hide_injected
from airflow_kafka_offsets.task.definition import (
    JOB,
    Lineage,
    OneStopPerTry,
    Planner,
    Stop,
    check_event,
    failing_at_once,
)
from airflow_kafka_offsets.task.links import WindowLink

if TYPE_CHECKING:
    from airflow.sdk import DAG, Connection, Context
    from pyspark.sql import SparkSession

    from airflow_kafka_offsets.core.group import KafkaGroup
    from airflow_kafka_offsets.launch.job_files import Report
    from airflow_kafka_offsets.service.plan import Planned
    from airflow_kafka_offsets.task.airflow import Task
    from airflow_kafka_offsets.task.dag_files import Ahead
    from airflow_kafka_offsets.task.definition import OnOpenWindow

XCOM_WINDOW = "window"
"""XCom that holds what `KafkaSparkSubmitOperator` returns; the return value is the function's own."""

_INTERRUPT_SECONDS = 3.0
"""How long `on_kill` waits for Spark: the task process is killed 5 seconds after `on_kill` starts."""

_PROGRESS_BAR = "spark.ui.showConsoleProgress"
_FUNCTION = {
    "python_callable": Kind("a function", callable),
    "op_kwargs": or_none(MAPPING),
}

logger = logging.getLogger(__name__)


class KafkaSparkOperator(Planner, Lineage, OneStopPerTry, PySparkOperator):
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
    :param conn_id: connection of type ``spark_connect`` for Spark Connect, ``spark`` for a master; None: ``local[*]``.
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
        others = dict(op_kwargs or {})
        named = others.pop("window", None)
        super().__init__(python_callable=python_callable, op_kwargs=others, **kwargs)
        self.group = group
        self.window = window if named is None else named
        self.on_open_window = on_open_window
        self.poll_interval = poll_interval
        self.emit_empty = emit_empty
        self.connector = connector
        check_attributes(self, JOB)
        self._stop = Stop()
        self._spark: SparkSession | None = None
        self._remote: str | None = None
        self._returned: dict[str, Any] = {}

    @failing_at_once
    def execute(self, context: Context) -> Any:
        """Plan, call the function, check, commit."""
        from airflow_kafka_offsets.task.airflow import Task

        return self._run(Task(self, context))

    @failing_at_once
    def resume(self, context: Context, event: Any = None) -> Any:
        """Ask again after waiting for another run."""
        check_event(event)
        return self.execute(context)  # of the decorated operator, too

    def _run(self, task: Task) -> Any:
        from airflow_kafka_offsets import wiring
        from airflow_kafka_offsets.task.ending import until_planned
        from airflow_kafka_offsets.task.plan import plan, take
        from airflow_kafka_offsets.task.results import task_result
        from airflow_kafka_offsets.task.work import Work

        run = task.run
        with until_planned(run, self.group.name, self.window):
            self._check_input()
            if not self._remote:  # a server has its listener since its start
                self.config_kwargs = task.with_parent_run(self.config_kwargs)
            service = wiring.open_service(self.group)
            if self.window is None:
                planned = plan(self, run, service)
            else:
                planned = [take(self, run, service, self.window)]
        windows = [p.window for p in planned]
        task.show(windows)
        work = Work(run, service, self.group, planned, self._stop, drives_here=not self._remote)
        self.trace(self._reader.servers, self.group.reads, work.read)
        self._task, self._service, self._planned, self._work = task, service, planned, work
        with work:  # around the session, too: Spark logs a lot when it starts and when it stops
            value = super().execute(task.context)
            results = work.results()
            task.push(XCOM_WINDOW, task_result(self.group, results))
            task.tell(windows, results, emit_empty=self.emit_empty)
        return value

    def look_ahead(self, dag: DAG) -> Ahead:
        """Refuse a connection that is not there; see `KafkaSparkSubmitOperator.look_ahead`."""
        from airflow_kafka_offsets.task.dag_files import Ahead, is_rendered
        from airflow_kafka_offsets.wiring import connections

        if not is_rendered(self.conn_id):
            return Ahead(unseen=("conn_id",))
        if self.conn_id:
            connections.find_connection(self.conn_id, "spark")
        return Ahead()

    def _check_input(self) -> None:
        """Refuse what can't work, before anything is written."""
        from airflow_kafka_offsets.core.launch.login import reader_options
        from airflow_kafka_offsets.launch.connect import remote_url, token_in_url
        from airflow_kafka_offsets.launch.job_files import refuse_login
        from airflow_kafka_offsets.wiring import connections
        from airflow_kafka_offsets.wiring.machine.checks import check_pyspark, check_session

        connection = connections.find_connection(self.conn_id, "spark") if self.conn_id else None
        self._remote = remote_url(connection, self.config_kwargs)
        connections.mask(token_in_url(connection))
        self._settings = _settings(connection, self.config_kwargs)
        self._reader = reader_options(connections.kafka_config(self.group.kafka_conn_id), self.group.spark_options)
        if self._remote:
            refuse_login(self._reader, self.group.kafka_conn_id, "a Spark Connect server")
        else:
            check_session(os.environ)
        check_pyspark()
        quiet = {} if self._remote else quiet_conf(self._settings)
        self.config_kwargs = {**self.config_kwargs, **self._connector_conf(connection), **quiet}

    def execute_callable(self) -> Any:
        """Open the session as `PySparkOperator` does: on a Connect server one for each attempt, else one for all windows."""
        from airflow_kafka_offsets.wiring.machine import start

        function = self.python_callable
        if self._remote or not any(p.needs_job for p in self._planned):
            return self._all(partial(self._in_own_session, function))
        with ExitStack() as while_opening:
            while_opening.enter_context(start.environment_with(self._start_environment()))
            return self._open(partial(self._in_one_session, function, while_opening))

    def _start_environment(self) -> dict[str, str]:
        from airflow_kafka_offsets.wiring.machine.start import start_environment

        span = sum(p.window.span for p in self._planned if p.needs_job)
        given = [os.environ.get("PYSPARK_SUBMIT_ARGS", ""), *map(str, self._settings.values())]
        return start_environment(os.environ, span, program=None, given=given)

    def _open(self, job: Callable[..., Any], **conf: str) -> Any:
        from airflow_kafka_offsets.launch.spark_errors import explained_spark_error

        given = self.python_callable, self.config_kwargs
        self.python_callable, self.config_kwargs = job, {**self.config_kwargs, **conf}
        try:
            return super().execute_callable()
        except Exception as exc:
            explained = explained_spark_error(exc)
            if explained is None:
                raise
            raise explained from exc
        finally:
            (self.python_callable, self.config_kwargs), self._spark = given, None

    def _in_one_session(
        self, function: Callable[..., Any], while_opening: ExitStack, *args: Any, spark: SparkSession, **kwargs: Any
    ) -> Any:
        while_opening.close()  # what the function itself starts does not get these variables
        return self._all(lambda planned: self._job(function, planned, *args, spark=spark, **kwargs))

    def _in_own_session(self, function: Callable[..., Any], planned: Planned) -> Report:
        from airflow_kafka_offsets.launch.connect import end_sessions, mine_and_earlier, session_url

        run, url = self._task.run, self._remote
        assert url is not None, "the task's own Spark has one session for all windows"
        mine, earlier = mine_and_earlier(
            self._service.ledger.attempts(planned.window.id), run.claim, run.this_try.number
        )
        end_sessions(url, earlier, self._task.state)
        self._stop.check()
        conf = {"spark.remote": session_url(url, mine) or url}
        report: Report = self._open(partial(self._job, function, planned), **conf)
        return report

    def _job(
        self, function: Callable[..., Any], planned: Planned, *args: Any, spark: SparkSession, **kwargs: Any
    ) -> Report:
        from airflow_kafka_offsets.launch.job_files import handoff_of, read_report, task_folder
        from airflow_kafka_offsets.spark import KafkaWindow

        self._spark = spark
        self._stop.check()  # again: the session may have taken long to open, and `on_kill` could not stop it yet
        window_id = planned.window.id
        spark.clearTags()  # of the window before
        spark.addTag(window_id)
        with task_folder() as directory:
            report = directory / "report.json"
            options = self._with_login(spark, directory)
            window = KafkaWindow(spark, handoff_of(planned, options, self.group, report))
            # Here, because task processes of Airflow end without the exit guard.
            try:
                value = _returned(partial(call, function, args, kwargs, {"spark": spark, "window": window}))
                self._returned[window_id] = self._checked_value(value)
                window.finish()
            finally:
                window.release()
            return read_report(report, planned.window)

    def _all(self, call: Callable[[Planned], Report]) -> Any:
        """Work on all windows; return what the function returned for them."""
        self._returned = {}  # a new one: the tries of `airflow dags test` run on shallow copies of one object
        for p in self._planned:
            if p.needs_job:
                with self._work.attempt(p) as job:
                    job.report = call(job.planned)
            self._work.commit(p)
        return self._return_value([self._returned.get(p.window.id) for p in self._planned])

    def _checked_value(self, value: Any) -> Any:
        # Before the commit: Airflow would refuse it only after the commit.
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

    def _with_login(self, spark: SparkSession, directory: Path) -> dict[str, str]:
        from airflow_kafka_offsets.launch.job_files import refuse_login, write_login

        if self._reader.jaas is None:
            return dict(self._reader.options)
        master = spark.sparkContext.master
        if not master.startswith("local"):
            refuse_login(self._reader, self.group.kafka_conn_id, f"executors (master {master})")
        return self._reader.with_jaas_file(str(write_login(self._reader.jaas, directory)))

    def _connector_conf(self, connection: Connection | None) -> dict[str, str]:
        """Return what makes a session load the connector. A Connect server must already have it."""
        from airflow_kafka_offsets.wiring.machine.connector import for_session

        if self._remote:
            return {}
        conf = {**(connection.extra_dejson if connection else {}), **self.config_kwargs}
        return for_session(self.connector, conf, avro=self.group.registry is not None)

    def on_kill(self) -> None:
        """Stop what Spark does for this task, and commit nothing from now on.

        It does not matter whether the task or its worker is stopped: nothing could reconnect to a function in a dead process.
        """
        self._stop.set()
        if self._spark is None:
            return
        # Not in this thread: the signal may have interrupted it in the middle of an answer of Spark's JVM.
        thread = threading.Thread(target=_interrupt, args=(self._spark,), daemon=True)
        thread.start()
        thread.join(_INTERRUPT_SECONDS)


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
            f"The function raised {type(exc).__name__}, with which Airflow ends or suspends a task: nothing is committed. Let the "
            "function return, so that its window is committed, and do this in a task after it, such as @task.short_circuit. To leave the "
            "window to a later run, raise AirflowSkipException"
        ) from exc


def quiet_conf(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the setting that turns the progress bar off. The bar has no end of line, so it would come last in the task's log.

    Args:
        settings: the user's settings.
    """
    return {} if _PROGRESS_BAR in settings else {_PROGRESS_BAR: "false"}


def _settings(connection: Connection | None, conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return Spark's settings as `PySparkOperator` puts them together for a session of its own."""
    host = connection.host if connection is not None else None
    extra = connection.extra_dejson if connection is not None else {}
    return {"spark.master": host or "local[*]", **extra, **conf}


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
