"""One task: plan the window, launch Spark on it, check, commit."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.airflow_versions import NO_TASK_STATE, AirflowTaskTimeout
from airflow_kafka_offsets.core.errors import BadInputError, ClusterError, ClusterUnavailableError
from airflow_kafka_offsets.core.fields import (
    ANY_TEXT,
    MAPPING,
    TEXT,
    Kind,
    check_attributes,
    check_fields,
    or_none,
    type_of,
)
from airflow_kafka_offsets.core.launch.jobs import SPARK_SUBMIT, YARN_WAITS
from airflow_kafka_offsets.launch import standalone, twins
from airflow_kafka_offsets.launch.submit_hook import Steps, SubmitHook, SubmitOperator
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
    from airflow.sdk import DAG, Context

    from airflow_kafka_offsets.core.group import KafkaGroup
    from airflow_kafka_offsets.core.launch.jobs import JobName
    from airflow_kafka_offsets.core.launch.login import ReaderOptions
    from airflow_kafka_offsets.core.spark_log import SparkSaid
    from airflow_kafka_offsets.core.window import Claim
    from airflow_kafka_offsets.launch.job_files import Report
    from airflow_kafka_offsets.ports import Cluster
    from airflow_kafka_offsets.service.plan import Planned
    from airflow_kafka_offsets.service.windows import WindowService
    from airflow_kafka_offsets.task.airflow import Task
    from airflow_kafka_offsets.task.dag_files import Ahead
    from airflow_kafka_offsets.task.definition import OnOpenWindow


_ARGUMENTS = Kind(
    "a list of arguments",
    lambda value: isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping),
    type_of,
)
_LAUNCH = {
    "application": TEXT,
    "application_args": or_none(_ARGUMENTS),
    "conf": or_none(MAPPING),
    **dict.fromkeys(("files", "py_files", "jars", "archives", "properties_file", "keytab"), or_none(ANY_TEXT)),
}
"""The provider's fields that are read before a launch, as they are once their templates are rendered."""

_SHIP = Kind("True, False or a path", lambda value: isinstance(value, bool) or TEXT.takes(value))

# What `_prepare` changes for each window.
_OF_ONE_WINDOW = ("conf", "files", "application_args", "py_files", "packages", "jars", "name")

logger = logging.getLogger(__name__)


class KafkaSparkSubmitOperator(Planner, Lineage, OneStopPerTry, SubmitOperator):
    """Plan the run's window of a Kafka group, run a Spark job on it, and commit it only after the job succeeded.

    A retry and a clear get the window that the first try had. A run whose params or conf name a replay (see
    `replay_params`), and the run of an Airflow backfill, run earlier windows again, one after the other; a retry continues
    where the try before it stopped. The job reads its window with
    ``airflow_kafka_offsets.spark.current_window(spark)``, which is shipped with the job. A job that does not use this package
    can get ``{starting_offsets}``, ``{ending_offsets}``, ``{assign}``, ``{isolation_level}``, ``{window_id}`` and
    ``{seq}`` in `application_args`. All other parameters are those of `SparkSubmitOperator`.

    :param group: the group.
    :param window: instead of planning: the window to work on, from a `PlanBacklogOperator` of the same run
        (``.expand(window=plan.output)``), or a window id. (templated)
    :param on_open_window: while another run works on the open window: ``wait`` (deferred), ``skip`` or ``fail``.
    :param poll_interval: seconds between two looks while waiting.
    :param emit_empty: let outlets have an asset event for an empty window, too.
    :param connector: ``"auto"``: the Kafka connector for the version of the Spark that is launched, unless this Spark has one, or `packages`
        or `jars` names one. In client mode its jars are fetched once on each machine, and then given as files
        (``kafka-offsets jars`` fetches them ahead of time); in cluster mode it is added to ``--packages``. Maven
        coordinates: they are added to ``--packages`` in any mode. None: the cluster has the connector.
    :param ship: send the job side of this package with the job (``--py-files``); False: the cluster has it; a path or URL: the
        cluster finds its zip there.
    """

    template_fields: Sequence[str] = (*SubmitOperator.template_fields, "window")
    ui_color = "#d5e8f0"
    operator_extra_links = (WindowLink(),)

    def __init__(
        self,
        *,
        group: KafkaGroup,
        window: Any = None,
        on_open_window: OnOpenWindow = "wait",
        poll_interval: float = 10,
        emit_empty: bool = False,
        connector: str | None = "auto",
        ship: bool | str = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.group = group
        self.window = window
        self.on_open_window = on_open_window
        self.poll_interval = poll_interval
        self.emit_empty = emit_empty
        self.connector = connector
        self.ship = ship
        check_attributes(self, {**JOB, "ship": _SHIP})
        self._span = 0
        self._names_job = "name" not in kwargs
        self._stop = Stop()
        self._claim: Claim | None = None
        self._job: JobName | None = None
        self._store: Any = None
        self._has_retry = False
        self._is_in_cluster = False
        self._reconnects = False
        self._loads: dict[str, str] | None = None
        self._spark_said: SparkSaid | None = None

    @failing_at_once
    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Plan, launch, check, commit."""
        from airflow_kafka_offsets.task.airflow import Task

        return self._run(Task(self, context))

    @failing_at_once
    def resume(self, context: Context, event: Any = None) -> dict[str, Any]:
        """Ask again after waiting for another run."""
        from airflow_kafka_offsets.task.airflow import Task

        check_event(event)
        return self._run(Task(self, context))

    def _run(self, task: Task) -> dict[str, Any]:
        from airflow_kafka_offsets import wiring
        from airflow_kafka_offsets.core.ending import RECONNECTS, RUNS_AGAIN
        from airflow_kafka_offsets.task.ending import until_planned
        from airflow_kafka_offsets.task.plan import plan, take
        from airflow_kafka_offsets.task.results import task_result
        from airflow_kafka_offsets.task.work import Work

        run = task.run
        with until_planned(run, self.group.name, self.window):
            options = self._check_input()
            service = wiring.open_service(self.group)
            if self.window is None:
                planned = plan(self, run, service)
            else:
                planned = [take(self, run, service, self.window)]
        windows = [p.window for p in planned]
        task.show(windows)
        self._claim, self._has_retry = run.claim, run.next_try is not None
        if self._is_in_cluster and not run.keeps_state and any(p.needs_job for p in planned):
            logger.info("%s: a retry stops the driver of the try before it, and starts another", NO_TASK_STATE)
        work = Work(
            *(run, service, self.group, planned, self._stop),
            drives_here=not self._is_in_cluster,
            again=RECONNECTS if self._reconnects and run.keeps_state else RUNS_AGAIN,
            spark_error=lambda: self._spark_said.error if self._spark_said else None,
        )
        self.trace(options.servers, self.group.reads, work.read)
        with work:
            for p in planned:
                if p.needs_job:
                    with work.attempt(p) as job:
                        job.report = self._launch(task, job.planned, options, service)
                work.commit(p)
            results = work.results()
            task.tell(windows, results, emit_empty=self.emit_empty)
        return task_result(self.group, results)

    def _check_input(self) -> ReaderOptions:
        """Refuse what can't work, before anything is written."""
        from airflow_kafka_offsets.core.launch.login import reader_options
        from airflow_kafka_offsets.launch.job_files import check_spark_conf, refuse_login, refuse_ours
        from airflow_kafka_offsets.wiring import connections
        from airflow_kafka_offsets.wiring.clusters import open_standalone
        from airflow_kafka_offsets.wiring.machine.checks import check_submit

        # Without a connection, the hook would submit to YARN without a warning.
        connections.find_connection(self.spark_conn_id, "spark")
        if isinstance(self.application, os.PathLike):
            self.application = os.fspath(self.application)
        check_fields(self._given(_LAUNCH), _LAUNCH)
        refuse_ours(self.conf or {})
        options = reader_options(connections.kafka_config(self.group.kafka_conn_id), self.group.spark_options)
        hook = self.new_hook()
        if not hook.master.startswith("local"):
            refuse_login(options, self.group.kafka_conn_id, f"executors (master {hook.master})")
        check_spark_conf(self.conf or {}, deploy_mode=hook.deploy_mode, is_tracked=hook.is_tracked)
        if hook.is_yarn and not hook.is_client_mode:
            self._check_yarn(hook)
        hook.check_tracking()
        if hook.is_standalone_cluster:
            standalone.check_reachable(self.application, ship=self.ship)
            open_standalone(hook.target).check()
        else:
            self._find_files()
        if not (hook.is_standalone_cluster and standalone.is_python(self.application)):
            check_submit(hook.program, hook.environment)
        self._loads = self._with_connector(hook)
        self._is_in_cluster, self._reconnects = not hook.is_client_mode, self._can_reconnect(hook)
        return options

    def _find_files(self) -> None:
        from airflow_kafka_offsets.task.dag_files import FIELDS, folders_of, launch_files

        for name, path in launch_files(self._given(FIELDS), folders_of(self.get_dag())).items():
            setattr(self, name, path)

    def look_ahead(self, dag: DAG) -> Ahead:
        """Refuse what is seen to be missing before a run, without asking a cluster: the connection, and the files next to the DAG.

        Args:
            dag: the task's.

        Returns:
            What only the run, or only its machine, can check.

        Raises:
            BadInputError: as a task would.
        """
        from airflow_kafka_offsets.task.dag_files import FIELDS, Ahead, folders_of, is_rendered, look_ahead
        from airflow_kafka_offsets.wiring import connections

        connection = connections.find_connection(self.spark_conn_id, "spark")
        if not standalone.is_cluster_mode(connection, self.chosen_deploy_mode):
            return look_ahead(self._given(FIELDS), folders_of(dag))
        # All paths are those of the cluster's nodes.
        if not is_rendered(self.application):
            return Ahead(unseen=("application",))
        standalone.check_reachable(self.application, ship=self.ship)
        return Ahead()

    def _given(self, names: Iterable[str]) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names}

    def _check_yarn(self, hook: SubmitHook) -> None:
        if self._cluster(hook) is None:
            raise BadInputError(
                "YARN's cluster mode needs yarn_resourcemanager_webapp_address in the connection's extra (http://rm:8088): a retry "
                "must find the driver of the try before it, or both would run"
            )
        if self.durable and not hook.is_tracked:
            raise BadInputError(
                "YARN's cluster mode needs yarn_track_via_rm_api=True, so that a retry continues with the driver of the try before it; "
                "or durable=False, and then a retry stops it"
            )

    def _launch(self, task: Task, planned: Planned, options: ReaderOptions, service: WindowService) -> Report:
        from airflow_kafka_offsets.core.launch.jobs import job_name
        from airflow_kafka_offsets.core.tries import first_of_series
        from airflow_kafka_offsets.launch.job_files import read_report, task_folder

        run, row = task.run, service.ledger.window(planned.window.id)
        own = [attempt for attempt in service.ledger.attempts(planned.window.id) if attempt.claim == run.claim]
        first = first_of_series(run.this_try, own).id
        # A retry reconnects to the job of this name, and a clear starts another. Airflow's numbers can come twice, the ledger's can't.
        self.name_job(f"{planned.window.id}:{first}")
        self._job = job_name(planned.window, row.planned_at, run.claim, first)
        self._span, self._spark_said = planned.window.span, None
        with self._fields_as_given(), task_folder() as directory:
            report = directory / "report.json" if self.new_hook().is_client_mode else None
            self._prepare(planned, options, directory, report)
            try:
                self._settle(task, is_first=row.attempts <= 1)
                super().execute(task.context)
            except AirflowTaskTimeout:  # Airflow itself calls `on_kill` only after the hook is forgotten
                self.on_kill()
                raise
            return read_report(report, planned.window)

    def _settle(self, task: Task, *, is_first: bool) -> None:
        """Leave no other job of the window running, and let the provider continue with the job of this task.

        Args:
            task: the task.
            is_first: no one has tried the window before, so there is no job of it.
        """
        store = self._store = task.state
        hook = self.new_hook()
        cluster = self._cluster(hook)
        if is_first or cluster is None or self._job is None:
            return
        can_reconnect = store is not None and self._can_reconnect(hook)
        noted: Any = None if store is None else store.get(self.external_id_key)
        try:
            found = twins.settle(cluster, self._job, can_reconnect=can_reconnect, check=self._stop.check, noted=noted)
        except ClusterUnavailableError as exc:
            if not (noted and can_reconnect and self._goes_on(noted, task.context)):
                raise  # otherwise a job would be submitted next to others that can't be looked up
            self.log.warning(
                "Continuing with the job whose id was noted, because the cluster can't be asked for others: %s", exc
            )
            return
        if found is not None:
            self._noted(found)

    def _goes_on(self, job: str, context: Context) -> bool:
        status = self.get_job_status(job, context)
        return self.is_job_active(status) or self.is_job_succeeded(status)

    def _cluster(self, hook: SubmitHook) -> Cluster | None:
        from airflow_kafka_offsets.wiring.clusters import open_cluster

        return open_cluster(hook.target, SPARK_SUBMIT if standalone.is_python(self.application) else hook.java_class)

    @contextmanager
    def _fields_as_given(self) -> Iterator[None]:
        """Let the next window find the fields as the user wrote them."""
        given = {name: getattr(self, name) for name in _OF_ONE_WINDOW}
        try:
            yield
        finally:
            self.__dict__.update(given)
            self._job = None
            self.forget_hook()

    def _prepare(self, planned: Planned, options: ReaderOptions, directory: Path, report: Path | None) -> None:
        """Put window, login and job side where spark-submit finds them; the hook is built from these fields later."""
        from airflow_kafka_offsets.core.launch.jobs import tags
        from airflow_kafka_offsets.launch.job_files import (
            fill,
            handoff_of,
            joined,
            refuse_file,
            window_conf,
            write_login,
        )
        from airflow_kafka_offsets.spark.shipping import write_zip
        from airflow_kafka_offsets.task.results import placeholders
        from airflow_kafka_offsets.wiring.machine.connector import JARS, PACKAGES

        login = write_login(options.jaas, directory) if options.jaas is not None else None
        handoff = handoff_of(planned, options.with_jaas_file(str(login)), self.group, report)
        conf, files = window_conf(handoff, directory)
        hook = self.new_hook()
        if files and hook.is_standalone_cluster:
            refuse_file(planned.window)
        assert self._job is not None
        given = self.conf or {}
        self.conf = {**self._defaults(hook), **given, **tags(hook.master, self._job, given), **conf}
        if hook.is_tracked:
            self.conf.pop(YARN_WAITS, None)  # the provider sets it, and takes no other value
        self.files = joined(self.files, *files)
        self.application_args = fill(self.application_args or [], placeholders(planned.window))
        if self.ship and standalone.is_python(self.application):
            job_side = self.ship if isinstance(self.ship, str) else str(write_zip(directory))
            self.py_files = joined(self.py_files, job_side)
        loads = self._with_connector(hook) if self._loads is None else self._loads
        self.packages, self.jars = loads.get(PACKAGES, self.packages), loads.get(JARS, self.jars)
        if self._names_job:
            self.name = planned.window.id

    def _with_connector(self, hook: SubmitHook) -> dict[str, str]:
        from airflow_kafka_offsets.wiring.machine.connector import EXCLUDES, JARS, PACKAGES, for_submit

        return for_submit(
            self.connector,
            {PACKAGES: self.packages, JARS: self.jars, EXCLUDES: self.exclude_packages},
            is_client=hook.is_client_mode,
            binary=hook.program,
            environment=hook.environment,
            conf=self.conf or {},
            properties_file=self.properties_file,
            repositories=hook.repositories,
            avro=self.group.registry is not None,
        )

    def _defaults(self, hook: SubmitHook) -> dict[str, str]:
        if not hook.is_yarn:
            return {}
        # If the job is not tracked, spark-submit must wait for its end, whatever spark-defaults.conf says. If it is, the provider sets this.
        waits = {} if hook.is_tracked else {YARN_WAITS: "true"}
        return {"spark.yarn.maxAppAttempts": "1", **waits}  # YARN would run a failing driver twice

    def launch_steps(self) -> Steps:
        """Return what is done around the provider's steps."""
        return Steps(self._stop.check, self._submit_python, self._variables, self._hear, self._noted)

    def _submit_python(self, hook: SubmitHook, application: str) -> str:
        from airflow_kafka_offsets.wiring.clusters import open_standalone

        cluster = open_standalone(hook.target)
        driver = hook.submit_to(cluster, application)
        if self._stop.is_set:  # it was stopped before the master's answer named the driver
            cluster.stop(driver)
        self._stop.check()
        return driver

    def _variables(self, hook: SubmitHook, command: Sequence[str]) -> Mapping[str, str]:
        from airflow_kafka_offsets.wiring.machine.start import start_environment, text_of

        given = [*command, text_of(self.properties_file)]
        return start_environment(hook.environment, self._span, program=hook.program, given=given)

    def _hear(self, line: str) -> None:
        from airflow_kafka_offsets.core.spark_log import SparkSaid, heard

        self._spark_said = heard(self._spark_said or SparkSaid(), line)

    def _noted(self, job: str) -> None:
        if self._store is not None:
            self._store.set(self.external_id_key, job)

    def get_job_status(self, external_id: Any, context: Context) -> str:
        """Ask for the state of a noted job. One that the cluster does not know is over, and is no reason to fail every retry."""
        try:
            return super().get_job_status(external_id, context)
        except (RuntimeError, OSError):  # with several masters, the provider reports only the last one's answer
            cluster = None if self.hook_at_work is None else self._cluster(self.hook_at_work)
            if cluster is None or cluster.knows(str(external_id)):
                raise
            self.log.warning("The cluster does not know job %s, or no longer: launching the window again", external_id)
            return "NotFound"

    def is_job_active(self, status: str) -> bool:
        """Whether a job may still run: also a pod whose node does not report."""
        return super().is_job_active(status) or status.upper() == "UNKNOWN"

    def on_kill(self) -> None:
        """Stop the job, unless only this worker dies and the retry can reconnect to the driver.

        Airflow calls this for a person's kill, a clear and a time-out, and also for the SIGTERM of a worker.
        """
        # A try that still looks for jobs of earlier ones has no hook yet, and may have found a driver.
        hook = self.new_hook() if self.hook_at_work is None and self._job is not None else self.hook_at_work
        if self._is_left_to_the_retry(hook):
            self.log.info(
                "The worker is stopped, not the task: the driver continues, and the retry will reconnect to it"
            )
            return
        self._stop.set()
        # The provider's way starts a JVM, or fails where there is no spark-submit; this process has 5 seconds left.
        if hook is not None:
            self._stop_in_cluster(hook)
        if self.hook_at_work is not None:
            super().on_kill()

    def _stop_in_cluster(self, hook: SubmitHook) -> None:
        """Stop the job, also if its id is not known yet."""
        try:
            cluster = None if self._job is None else self._cluster(hook)
            if cluster is not None and self._job is not None:
                hook.end_spark_submit()  # it may be about to submit the job
                if hook.is_standalone_cluster and hook.driver_id:
                    cluster.stop(hook.driver_id)  # one request; to look for it takes several
                twins.stop(cluster, self._job)
        except ClusterError as exc:
            self.log.warning("Could not make sure that no job of the window still runs: %s", exc)

    def _is_left_to_the_retry(self, hook: SubmitHook | None) -> bool:
        from airflow_kafka_offsets.wiring.runs import task_state

        if hook is None or self._claim is None or not self._has_retry or not self._can_reconnect(hook):
            return False
        # While Airflow handles a time-out, the task still counts as running.
        return not isinstance(sys.exc_info()[1], AirflowTaskTimeout) and task_state(self._claim) == "running"

    def _can_reconnect(self, hook: SubmitHook) -> bool:
        return bool(self.durable and hook.is_tracked)
