"""One task: plan the window, launch Spark on it, check, commit."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.airflow_versions import NO_TASK_STATE, AirflowTaskTimeout
from airflow_kafka_offsets.core.errors import BadInputError, ClusterError, ClusterUnavailableError
from airflow_kafka_offsets.core.fields import (
    ANY_TEXT,
    FLAG,
    MAPPING,
    TEXT,
    Kind,
    check_attributes,
    check_fields,
    or_none,
    type_of,
)
from airflow_kafka_offsets.launch import standalone, twins
from airflow_kafka_offsets.launch.submit_hook import LaunchHook, SparkHook, SubmitOperator
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

    from airflow_kafka_offsets.core.evidence import Report
    from airflow_kafka_offsets.core.group import KafkaGroup
    from airflow_kafka_offsets.core.run import Run
    from airflow_kafka_offsets.core.window import Claim
    from airflow_kafka_offsets.launch.launch import Launch
    from airflow_kafka_offsets.service.plan import Planned
    from airflow_kafka_offsets.service.windows import WindowService
    from airflow_kafka_offsets.task.airflow import Task
    from airflow_kafka_offsets.task.definition import OnOpenWindow
    from airflow_kafka_offsets.wiring.clusters import Target


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

_DEFERRABLE = "deferrable=True is for drivers on a cluster that Airflow can watch"

_SHIP = Kind("True, False or a path", lambda value: isinstance(value, bool) or TEXT.takes(value))

logger = logging.getLogger(__name__)


class KafkaSparkSubmitOperator(PlanningFields, Lineage, OneStopPerTry, SubmitOperator):
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
    :param deferrable: give the worker slot back while the driver runs: a trigger watches it, and the task continues after its end. For cluster
        modes, on Airflow 3.3 and newer.
    :param emit_empty: let outlets have an asset event for an empty window, too.
    :param connector: ``"auto"``: the Kafka connector for the version of the Spark that is launched, unless this Spark has one, or `packages`
        or `jars` names one. In client mode its jars are fetched once on each machine, and then given as files
        (``kafka-offsets jars`` fetches them ahead of time); in cluster mode it is added to ``--packages``. Maven
        coordinates: they are added to ``--packages`` in any mode. None if the cluster has the connector.
    :param ship: send the job side of this package with the job (``--py-files``). False if the cluster has it, or a path or URL
        if the cluster finds its zip there.
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
        deferrable: bool = False,
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
        self.deferrable = deferrable
        self.emit_empty = emit_empty
        self.connector = connector
        self.ship = ship
        check_attributes(self, {**JOB, "ship": _SHIP, "deferrable": FLAG})
        if deferrable:
            self._check_deferrable()
        self._is_named = "name" in kwargs
        self._stop = Stop()

    def _check_deferrable(self) -> None:
        given = self.hook_arguments()
        if not self.durable:
            raise BadInputError(
                "deferrable=True needs durable=True, and an Airflow that keeps the driver's id between tries (3.3 or newer)"
            )
        if given["deploy_mode"] == "client":
            raise BadInputError(
                f"{_DEFERRABLE}. With deploy_mode='client' the driver ends with the task: leave deferrable out"
            )
        if given["yarn_rm_auth"] is not None:
            raise BadInputError(
                "deferrable=True can't keep yarn_rm_auth in Airflow's database. Set keytab and principal, or write user and password "
                "into the connection's yarn_resourcemanager_webapp_address"
            )

    @failing_at_once
    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Plan, launch, check, commit."""
        from airflow_kafka_offsets.task.airflow import Task

        return self._run(Task(self, context))

    @failing_at_once
    def resume(self, context: Context, event: Any = None) -> dict[str, Any]:
        """Plan again after waiting for another run."""
        from airflow_kafka_offsets.task.airflow import Task

        check_event(event)
        return self._run(Task(self, context))

    @failing_at_once
    def reconnect(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Continue with a driver that has ended, or that the trigger has watched for long enough, as a retry that finds its driver does."""
        from airflow_kafka_offsets.task.airflow import Task

        return self._run(Task(self, context, watched=event["driver"]))

    def _run(self, task: Task) -> dict[str, Any]:
        from airflow_kafka_offsets import wiring
        from airflow_kafka_offsets.core.ending import RECONNECTS, RUNS_AGAIN
        from airflow_kafka_offsets.task.plan import log_failure_before_window, plan, take
        from airflow_kafka_offsets.task.work import Work, task_result

        run = task.run
        with log_failure_before_window(run, self.group.name, self.window):
            launch = self._check_and_prepare()
            service = wiring.open_service(self.group)
            if self.window is None:
                planned = plan(self, run, service)
            else:
                planned = [take(self, run, service, self.window)]
        windows = [p.window for p in planned]
        task.show(windows)
        target = launch.target
        if target.is_cluster_mode and not run.keeps_state and any(p.needs_job for p in planned):
            logger.info("%s: a retry stops the driver, and starts another", NO_TASK_STATE)
        work = Work(
            *(run, service, self.group, planned, self._stop),
            drives_here=not target.is_cluster_mode,
            again=RECONNECTS if self._can_reconnect(run, target) else RUNS_AGAIN,
            spark_error=lambda: self.launch_hook.spark_error if self.launch_hook is not None else None,
        )
        self.trace(launch.reader.servers, self.group.reads, work.read)
        with work:
            for p in planned:
                if p.needs_job:
                    with work.attempt(p) as job:
                        job.report = self._launch(task, launch, job.planned, service)
                if target.is_kubernetes and p.window.span:
                    from airflow_kafka_offsets.launch.pods import remove_ended

                    remove_ended(target, service.ledger, p.window, run.claim)
                work.commit(p)
            results = work.results()
            task.emit(windows, results, work.reached, emit_empty=self.emit_empty)
        return task_result(self.group, results)

    def _check_and_prepare(self) -> Launch:
        """Refuse what can't work, before anything is written, and return the launch as it is for any window."""
        from airflow_kafka_offsets.launch.job_files import check_spark_conf, reader_of, refuse_login, refuse_ours
        from airflow_kafka_offsets.launch.launch import Launch
        from airflow_kafka_offsets.task.dag_files import FIELDS, folders_of, launch_files
        from airflow_kafka_offsets.wiring import connections
        from airflow_kafka_offsets.wiring.clusters import open_standalone
        from airflow_kafka_offsets.wiring.machine.checks import check_submit

        # Without a connection, the hook would submit to YARN without a warning.
        connections.find_connection(self.spark_conn_id, "spark")
        is_path = isinstance(self.application, os.PathLike)
        given = {**self.hook_arguments(), "application": os.fspath(self.application) if is_path else self.application}
        check_fields(given, _LAUNCH)
        conf = given["conf"] or {}
        refuse_ours(conf)
        reader = reader_of(self.group)
        application, arguments = given["application"], {k: v for k, v in given.items() if k != "application"}
        hook = SparkHook(arguments)
        target = hook.target
        if not target.master.startswith("local"):
            refuse_login(reader, self.group.kafka_conn_id, f"executors (master {target.master})")
        check_spark_conf(conf, deploy_mode=hook.deploy_mode, is_tracked=target.is_tracked)
        hook.check_tracking(durable=self.durable)
        if self.deferrable and not target.is_tracked:
            raise BadInputError(
                f"{_DEFERRABLE}. Connection {self.spark_conn_id!r} leads to {hook.deploy_mode} mode on {target.master}: set "
                "deploy_mode='cluster', or leave deferrable out"
            )
        if target.is_standalone_cluster:
            standalone.check_reachable(application, ship=self.ship)
            open_standalone(target).check()
        else:
            files = launch_files({name: given[name] for name in FIELDS}, folders_of(self.get_dag()))
            application = files.pop("application")
            arguments |= files
        if not (target.is_standalone_cluster and standalone.is_python(application)):
            check_submit(hook.program, hook.environment)
        if target.is_kubernetes:
            from airflow_kafka_offsets.launch.pods import check_rights

            check_rights(target, conf, has_properties=arguments["properties_file"] is not None)
        arguments |= self._connector(arguments, hook)
        if not self._is_named:
            arguments["name"] = None
        return Launch(self.group, application, arguments, target, reader, self.ship)

    def _connector(self, arguments: Mapping[str, Any], hook: SparkHook) -> dict[str, Any]:
        """Return the packages and jars of a launch, with the connector."""
        from airflow_kafka_offsets.wiring.machine.connector import EXCLUDES, JARS, PACKAGES, for_submit

        packages, jars = arguments["packages"], arguments["jars"]
        loaded = for_submit(
            self.connector,
            {PACKAGES: packages, JARS: jars, EXCLUDES: arguments["exclude_packages"]},
            is_client=not hook.target.is_cluster_mode,
            binary=hook.program,
            environment=hook.environment,
            conf=arguments["conf"] or {},
            properties_file=arguments["properties_file"],
            repositories=arguments["repositories"],
            avro=self.group.registry is not None,
        )
        return {"packages": loaded.get(PACKAGES, packages), "jars": loaded.get(JARS, jars)}

    def _launch(self, task: Task, launch: Launch, planned: Planned, service: WindowService) -> Report:
        from airflow_kafka_offsets.core.launch.jobs import job_name
        from airflow_kafka_offsets.core.run import first_of_series
        from airflow_kafka_offsets.launch.job_files import read_report, task_folder

        run, window = task.run, planned.window
        row = service.ledger.window(window.id)
        own = [attempt for attempt in service.ledger.attempts(window.id) if attempt.claim == run.claim]
        # A retry reconnects to the job of this name, and a clear starts another. Airflow's numbers can come twice, the ledger's can't.
        first = first_of_series(run.this_try, own).id
        job = job_name(window, row.planned_at, run.claim, first)
        launch = self.with_openlineage(launch, task.context)
        retried_by = self._retried_by(run, launch.target)
        # Also while the files are written, `on_kill` finds the driver of the try before this one.
        hook = self.launch_hook = LaunchHook(replace(launch, job=job, retried_by=retried_by), self._stop.check)
        try:
            with task_folder() as directory:
                launch = launch.for_window(planned, job, first, directory, retried_by)
                hook = self.launch_hook = LaunchHook(launch, self._stop.check, task.state)
                is_note_lost = task.watched is not None and task.watched != hook.noted
                if row.attempts > 1 or is_note_lost:
                    self._settle(task, hook)
                self.run_job(task.context, task.watched)
                return read_report(launch.report, window)
        except AirflowTaskTimeout:  # Airflow itself calls `on_kill` only after the launch is over
            self.on_kill()
            raise
        finally:
            hook.is_over = True

    def _can_reconnect(self, run: Run, target: Target) -> bool:
        # Without a store of its state, a retry would stop the driver and start another: see `_settle`. So the driver ends with its worker.
        return self.durable and target.is_tracked and run.keeps_state

    def _retried_by(self, run: Run, target: Target) -> Claim | None:
        """Return the task, if its retry continues with the driver of a dead worker."""
        return run.claim if self._can_reconnect(run, target) and run.next_try is not None else None

    def _settle(self, task: Task, hook: LaunchHook) -> None:
        """Leave no other job of the window running, and let the provider continue with the job of this task."""
        cluster, noted = hook.open_cluster(), hook.noted
        if cluster is None:
            return
        can_reconnect = self._can_reconnect(task.run, hook.launch.target)
        try:
            job = twins.settle(cluster, hook.job, can_reconnect=can_reconnect, check=self._stop.check, noted=noted)
        except ClusterUnavailableError as exc:
            if not (noted and can_reconnect and self._is_usable(noted, task.context)):
                raise  # otherwise a job would be submitted next to others that can't be looked up
            self.log.warning("Continuing with job %s of an earlier try: %s", noted, exc)
            return
        if job is not None:
            hook.note(job)

    def _is_usable(self, job: str, context: Context) -> bool:
        status = self.get_job_status(job, context)
        return self.is_job_active(status) or self.is_job_succeeded(status)

    def poll_until_complete(self, external_id: Any, context: Context) -> None:
        """Wait for the driver's end: here, or in the triggerer if `deferrable`."""
        if self.deferrable:
            from airflow_kafka_offsets.task.deferral import defer_while_alive

            assert self.launch_hook is not None
            self._stop.check()  # a person's kill does not end `execute`
            defer_while_alive(self, context, self.launch_hook, str(external_id), self.poll_interval)
        super().poll_until_complete(external_id, context)

    def on_kill(self) -> None:
        """Stop the job, unless only this worker dies and the retry can reconnect to the driver.

        Airflow calls this for a person's kill, a clear and a time-out, and also for the SIGTERM of a worker.
        """
        hook = self.launch_hook
        if hook is None or hook.is_over:
            self._stop.set()
            return
        if _is_left_to_the_retry(hook):
            self.log.info("Only the worker stops: the driver continues, and the retry reconnects to it")
            return
        self._stop.set()
        # The provider's way starts a JVM, or fails where there is no spark-submit; this process has 5 seconds left.
        try:
            cluster = hook.open_cluster()
            if cluster is not None:
                hook.end_spark_submit()  # it may be about to submit the job
                if hook.launch.target.is_standalone_cluster and hook.driver_id:
                    cluster.stop(hook.driver_id)  # one request; to look for it takes several
                twins.stop(cluster, hook.job)
        except ClusterError as exc:
            self.log.warning("A job of the window may still run: %s", exc)
        super().on_kill()


def _is_left_to_the_retry(hook: LaunchHook) -> bool:
    from airflow_kafka_offsets.wiring.runs import task_state

    claim = hook.launch.retried_by
    # While Airflow handles a time-out, the task still counts as running.
    if claim is None or isinstance(sys.exc_info()[1], AirflowTaskTimeout):
        return False
    return task_state(claim) == "running"
