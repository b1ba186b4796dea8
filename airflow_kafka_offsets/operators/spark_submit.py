"""One task: plan the window, launch Spark on it, check, commit."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowTaskTimeout

from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.reader_options import ReaderOptions, reader_options
from airflow_kafka_offsets.core.window import Scope
from airflow_kafka_offsets.operators.assets import emit_events
from airflow_kafka_offsets.operators.job_files import (
    Report,
    check_spark_conf,
    fill,
    handoff_of,
    joined,
    read_report,
    refuse_login,
    window_conf,
    write_login,
)
from airflow_kafka_offsets.operators.planning import (
    OnOpenWindow,
    check_on_open_window,
    placeholders,
    plan_or_take,
)
from airflow_kafka_offsets.operators.runs import claim_of, task_state
from airflow_kafka_offsets.operators.subprocesses import dying_with_parent
from airflow_kafka_offsets.operators.work import Stop, Work, task_result
from airflow_kafka_offsets.spark.connector import connector_package
from airflow_kafka_offsets.spark.shipping import write_zip

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context

    from airflow_kafka_offsets.core.group import KafkaGroup
    from airflow_kafka_offsets.core.window import Claim, Window
    from airflow_kafka_offsets.service import Planned

# What `_prepare` changes for each window.
_OF_ONE_WINDOW = ("conf", "files", "application_args", "py_files", "packages", "name")


class KafkaSparkSubmitOperator(SparkSubmitOperator):
    """Plan the run's window of a Kafka group, run a Spark job on it, and commit it only after the job succeeded.

    A retry and a clear get the window that the first try had. A run whose params or conf name a replay (see
    `replay_params`), and the run of an Airflow backfill, run past windows again, one after the other; a retry goes on
    where the try before it stopped. The job reads it with
    ``airflow_kafka_offsets.spark.current_window(spark)``, which is shipped along; a job that knows nothing of this package
    can be given ``{starting_offsets}``, ``{ending_offsets}``, ``{assign}``, ``{isolation_level}``, ``{window_id}`` and
    ``{seq}`` in `application_args`. All other parameters are those of `SparkSubmitOperator`.

    :param group: the group.
    :param window: instead of planning: the window to work on, from a `PlanWindowsOperator` of the same run
        (``.expand(window=plan.output)``), or a window id. (templated)
    :param on_open_window: while another run works on the open window: ``wait`` (deferred), ``skip`` or ``fail``.
    :param poll_interval: seconds between two looks while waiting.
    :param emit_empty: let outlets have an asset event for an empty window, too.
    :param connector: coordinates of Spark's Kafka connector for ``--packages``; ``"auto"``: those of the installed
        pyspark, unless `packages` or `jars` name one already; None: the cluster has it.
    :param ship: send the job side of this package along (``--py-files``); False: the cluster has it.
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "window")
    ui_color = "#d5e8f0"

    def __init__(
        self,
        *,
        group: KafkaGroup,
        window: Any = None,
        on_open_window: OnOpenWindow = "wait",
        poll_interval: float = 10,
        emit_empty: bool = False,
        connector: str | None = "auto",
        ship: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_on_open_window(on_open_window)
        self.group = group
        self.window = window
        self.on_open_window = on_open_window
        self.poll_interval = poll_interval
        self.emit_empty = emit_empty
        self.connector = connector
        self.ship = ship
        self._names_job = "name" not in kwargs
        self._stop = Stop()
        self._claim: Claim | None = None

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Plan, launch, check, commit."""
        return self._run(context)

    def resume(self, context: Context, event: Any = None) -> dict[str, Any]:
        """Ask again after waiting for another run."""
        return self._run(context)

    def _run(self, context: Context) -> dict[str, Any]:
        options = self._check_input()
        service = wiring.open_service(self.group)
        claim = self._claim = claim_of(context, Scope.TASK)
        planned = plan_or_take(self, context, service, claim)
        work = Work(context, service, self.group, claim, lambda p: self._launch(context, p, options), self._stop)
        results = work.all(planned)
        emit_events(self, context, results, emit_empty=self.emit_empty)
        return task_result(self.group, results)

    def _check_input(self) -> ReaderOptions:
        """Refuse what can't work, before anything is written."""
        wiring.find_connection(self._conn_id)  # without it the hook would submit to YARN, and say nothing
        check_spark_conf(self.conf or {})
        if isinstance(self.application_args, str):
            raise BadInputError("application_args must be a list of arguments, not one text")
        self._connector_package()
        options = reader_options(wiring.kafka_config(self.group.kafka_conn_id), self.group.spark_options)
        master = self._get_hook()._connection["master"]
        if not master.startswith("local"):
            refuse_login(options, self.group.kafka_conn_id, f"executors (master {master})")
        return options

    def _launch(self, context: Context, planned: Planned, options: ReaderOptions) -> Report:
        key = self.job_key(planned.window, context["ti"].max_tries)
        self.external_id_key = f"spark_job_id:{key}"
        self._K8S_DRIVER_STATUS_KEY = f"k8s_driver_status:{key}"
        with self._fields_as_given(), tempfile.TemporaryDirectory(prefix="kafka-offsets-") as directory:
            report = Path(directory, "report.json")
            self._prepare(planned, options, Path(directory), report if self._is_client_mode() else None)
            super().execute(context)
            return read_report(report, planned.window)

    @contextmanager
    def _fields_as_given(self) -> Iterator[None]:
        """Let the next window find the fields as the user wrote them."""
        given = {name: getattr(self, name) for name in _OF_ONE_WINDOW}
        try:
            yield
        finally:
            self.__dict__.update(given)
            self._hook = None

    @staticmethod
    def job_key(window: Window, max_tries: int) -> str:
        """Name the job to which an automatic retry reconnects; a clear starts another.

        Airflow's `max_tries` moves when this very task is cleared, and neither by a retry nor by the clear of a sibling.
        """
        return f"{window.id}:{max_tries}"

    def _prepare(self, planned: Planned, options: ReaderOptions, directory: Path, report: Path | None) -> None:
        """Put window, login and job side where spark-submit finds them; the hook is built from these fields later."""
        login = write_login(options.jaas, directory) if options.jaas is not None else None
        handoff = handoff_of(planned, options.with_jaas_file(str(login)), self.group.expect_gaps, report)
        conf, files = window_conf(handoff, directory)
        self.conf = {**self._yarn_conf(planned.window), **(self.conf or {}), **conf}
        self.files = joined(self.files, *files)
        self.application_args = fill(self.application_args or [], placeholders(planned.window))
        if self.ship:
            self.py_files = joined(self.py_files, str(write_zip(directory)))
        self.packages = joined(self.packages, self._connector_package())
        if self._names_job:
            self.name = planned.window.id

    def _connector_package(self) -> str | None:
        if "spark-sql-kafka" in f"{self.packages} {self.jars}":
            return None
        return connector_package() if self.connector == "auto" else self.connector

    def _yarn_conf(self, window: Window) -> dict[str, str]:
        """Return what a job on YARN needs by default: YARN would run a failing driver twice, and stores tags in lower case."""
        if "yarn" not in self._get_hook()._connection["master"]:
            return {}
        return {"spark.yarn.maxAppAttempts": "1", "spark.yarn.tags": window.id.lower()}

    def _is_client_mode(self) -> bool:
        return bool(self._get_hook()._connection["deploy_mode"] != "cluster")

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        submit = hook.submit
        # A driver on this worker has nobody who could reconnect to it when the worker is gone.
        popen = {} if hook._connection["deploy_mode"] == "cluster" else {"preexec_fn": dying_with_parent()}

        def submit_if_wanted(application: str = "", **kwargs: Any) -> str | None:
            self._stop.check()
            return submit(application, **popen, **kwargs)

        hook.submit = submit_if_wanted  # type: ignore[method-assign]
        return hook

    def poll_until_complete(self, external_id: Any, context: Context) -> None:
        """Watch a job in the cluster, also one that an earlier try started: on YARN, on_kill must know its id."""
        if self._hook is not None and self._hook._is_yarn_cluster_mode:
            self._hook._yarn_application_id = str(external_id)
        super().poll_until_complete(external_id, context)

    def on_kill(self) -> None:
        """Stop the job, unless only this worker dies and the retry can reconnect to the driver.

        Airflow calls this for a person's kill, a clear, a time-out, and for the SIGTERM of a worker alike.
        """
        if self._is_left_to_the_retry():
            self.log.info("The worker is stopped, not the task: the driver goes on, and the retry will reconnect to it")
            return
        self._stop.set()
        if self._hook is not None:
            super().on_kill()

    def _is_left_to_the_retry(self) -> bool:
        if self._hook is None or self._claim is None or not self._can_reconnect(self._hook):
            return False
        # While Airflow handles a time-out, the task still counts as running.
        return not isinstance(sys.exc_info()[1], AirflowTaskTimeout) and task_state(self._claim) == "running"

    def _can_reconnect(self, hook: SparkSubmitHook) -> bool:
        on_yarn = hook._is_yarn_cluster_mode and hook._yarn_track_via_rm_api
        is_tracked = hook._should_track_driver_status or hook._should_track_driver_via_k8s_api() or on_yarn
        return bool(self.durable and is_tracked)
