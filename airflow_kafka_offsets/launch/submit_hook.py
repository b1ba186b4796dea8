"""The Spark provider, extended. Only this module uses the provider's private names.

The provider has no public way to stop before a submission, to add to a driver's environment, or to read the output of spark-submit. What a
launch needs of it gets a public name here. tests/launch/test_submit_hook.py lists the private names, and fails if an installed provider lacks
one.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.openlineage.utils.spark import (
    inject_parent_job_information_into_spark_properties,
    inject_transport_information_into_spark_properties,
)

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.launch import standalone
from airflow_kafka_offsets.spark.parent import dying_with_parent

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_kafka_offsets.core.launch.jobs import JobName
    from airflow_kafka_offsets.core.spark_log import SparkOutput
    from airflow_kafka_offsets.launch.launch import Launch
    from airflow_kafka_offsets.ports import Cluster
    from airflow_kafka_offsets.wiring.clusters import Target


_ON_YARN = "YARN's cluster mode needs"


@contextmanager
def _as_bad_input(prefix: str = "") -> Iterator[None]:
    """Let a launch fail at once for what the provider refuses: a retry would meet the same."""
    try:
        yield
    except (ValueError, RuntimeError) as exc:
        raise BadInputError(f"{prefix}{exc}") from exc


class SparkHook(SparkSubmitHook):
    """The provider's hook, with public names: where a job goes, and what it needs.

    Args:
        arguments: those of the provider's hook.

    Raises:
        BadInputError: the provider refuses the connection, or lacks a package for it.
    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        conn_id = arguments["conn_id"]
        try:
            super().__init__(**{**arguments, "conf": dict(arguments["conf"] or {})})  # the provider adds to it
        except (NameError, RuntimeError) as exc:  # the provider misses what it did not import
            raise BadInputError(
                f"Connection {conn_id!r} leads to Kubernetes. Install on each worker:\n"
                "    pip install apache-airflow-providers-cncf-kubernetes"
            ) from exc
        except ValueError as exc:
            raise BadInputError(f"Connection {conn_id!r}: {exc}") from exc
        self._log = SparkSubmitHook._get_log(self, SparkSubmitHook)  # so that its logging configuration applies
        # Otherwise a properties file, spark-defaults.conf or DEPLOY_MODE could set "cluster" without this hook's knowledge.
        self._connection["deploy_mode"] = self._connection["deploy_mode"] or "client"

    @property
    def deploy_mode(self) -> str:
        """``client`` or ``cluster``."""
        return str(self._connection["deploy_mode"])

    @property
    def program(self) -> str:
        """The spark-submit that is started."""
        return str(self._connection["spark_binary"])

    @property
    def environment(self) -> dict[str, str]:
        """The environment of spark-submit. On Kubernetes, the user's variables are for the driver's pod."""
        added = self._env or (None if self._is_kubernetes else self._env_vars) or {}
        return {**os.environ, **{name: str(value) for name, value in added.items()}}

    @property
    def target(self) -> Target:
        """Where the jobs are."""
        from airflow_kafka_offsets.wiring.clusters import Target

        return Target(
            conn_id=self._conn_id,
            master=str(self._connection["master"]),
            is_cluster_mode=self.deploy_mode == "cluster",
            is_yarn=bool(self._is_yarn),
            is_kubernetes=bool(self._is_kubernetes),
            is_tracked=bool(
                self._should_track_driver_status
                or self._should_track_driver_via_k8s_api()
                or self._should_track_yarn_application_via_rm_api()
            ),
            namespace=self._connection.get("namespace"),
            rest=(self._connection.get("rest_scheme"), self._connection.get("rest_port")),
            yarn_address=self._YARN_RM_WEBAPP_ADDRESS_EXTRA_KEY,
            yarn=self._yarn,
        )

    def _yarn(self) -> tuple[str, Any]:
        # Without the address, the provider may have met a secrets backend that did not answer: a retry may heal that.
        address = self._get_yarn_rm_base_url()
        with _as_bad_input():
            return address, self._resolved_yarn_rm_auth

    def check_tracking(self, *, durable: bool) -> None:
        """Check what a retry needs to find a job on its cluster, and the provider to follow it to its end.

        Args:
            durable: the operator's argument.

        Raises:
            BadInputError: a setting is missing; the message names it.
            NotYetError: Airflow does not find the connection.
        """
        from airflow_kafka_offsets.wiring.clusters import open_cluster
        from airflow_kafka_offsets.wiring.connections import find_connection

        target = self.target
        if target.is_yarn and target.is_cluster_mode:
            if open_cluster(target) is None:
                raise BadInputError(f"{_ON_YARN} {target.yarn_address} in the connection's extra (http://rm:8088)")
            if durable and not target.is_tracked:
                raise BadInputError(
                    f"{_ON_YARN} yarn_track_via_rm_api=True, and a retry continues with the driver; or durable=False, and it stops it"
                )
        if self._yarn_track_via_rm_api:
            # The provider takes a secrets backend that does not answer for a connection without the address.
            find_connection(self._conn_id, "spark")
        with _as_bad_input():
            self._validate_yarn_track_via_rm_api_config()
            if self._track_driver_via_k8s_api:
                self._validate_track_driver_via_k8s_api_config()
        if target.is_kubernetes and target.is_cluster_mode and not target.is_tracked:
            raise BadInputError("Kubernetes' cluster mode needs track_driver_via_k8s_api=True")


_LEADING_TO_CLUSTER = ("conn_id", "deploy_mode", "keytab", "principal")
_NAMESPACE = "spark.kubernetes.namespace"


def cluster_of(leading: Mapping[str, str | None]) -> Cluster:
    """Open the cluster that `LaunchHook.leading_to_cluster` leads to.

    Raises:
        BadInputError: the connection is gone, or leads to no cluster any more.
    """
    from airflow_kafka_offsets.wiring.clusters import open_cluster
    from airflow_kafka_offsets.wiring.connections import find_connection

    find_connection(str(leading["conn_id"]), "spark")  # without it, the hook would ask YARN
    arguments: dict[str, Any] = {name: leading[name] for name in _LEADING_TO_CLUSTER}
    namespace = leading[_NAMESPACE]
    cluster = open_cluster(SparkHook({**arguments, "conf": {_NAMESPACE: namespace} if namespace else None}).target)
    if cluster is None:
        raise BadInputError(
            f"Connection {leading['conn_id']!r} no longer leads to a cluster that can be asked for its drivers"
        )
    return cluster


class LaunchHook(SparkHook):
    """A launch at work: this package's steps around the provider's.

    Args:
        launch: what is started, for a window.
        check: raises an error if the task was stopped.
        store: Airflow's state store of the task, which its tries share, or None on an Airflow that has none.

    Attributes:
        is_over: whether the launch has ended, so that nothing is left to stop.
    """

    def __init__(self, launch: Launch, check: Callable[[], None], store: Any = None) -> None:
        super().__init__(launch.arguments)
        assert launch.job is not None
        self.launch = launch
        self.job: JobName = launch.job
        self.is_over = False
        self._check = check
        self._store = store
        self._output: SparkOutput | None = None
        self._env_as_given: dict[str, Any] | None = None

    @property
    def spark_error(self) -> str | None:
        """The line of spark-submit's output with the error that ended the job, or None if there is no such line."""
        return self._output.error if self._output is not None else None

    @property
    def driver_id(self) -> str | None:
        """The driver on a standalone cluster, once it is known."""
        return self._driver_id

    @property
    def id_key(self) -> str:
        """The key of the job's id in the state store."""
        return f"spark_job_id:{self.launch.key}"

    @property
    def noted(self) -> str | None:
        """The id of the job that this or an earlier try noted."""
        return None if self._store is None else self._store.get(self.id_key)

    def note(self, job: str) -> None:
        """Note the job's id for a retry."""
        if self._store is not None:
            self._store.set(self.id_key, job)

    @property
    def leading_to_cluster(self) -> dict[str, str | None]:
        """What `cluster_of` needs to open the cluster of the job: arguments of the provider's hook, none of which is a secret."""
        arguments = {name: self.launch.arguments[name] for name in _LEADING_TO_CLUSTER}
        return {**arguments, _NAMESPACE: self.launch.target.namespace}

    def open_cluster(self) -> Cluster | None:
        """Return the cluster of the job, or None if the job ends with this worker, or the cluster can't list its jobs."""
        from airflow_kafka_offsets.core.launch.jobs import SPARK_SUBMIT
        from airflow_kafka_offsets.wiring.clusters import open_cluster

        is_python = standalone.is_python(self.launch.application)
        return open_cluster(self.launch.target, SPARK_SUBMIT if is_python else self._java_class)

    def end_spark_submit(self) -> None:
        """Kill the process of spark-submit, if there is one."""
        if self._submit_sp is not None:
            self._submit_sp.kill()

    # The provider's steps.

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Submit the launch's job, unless the task was stopped.

        Args:
            application: not used: the provider passes the operator's field, before its path was found.
            kwargs: for Popen.
        """
        self._check()
        application = self.launch.application
        if self.launch.target.is_standalone_cluster and standalone.is_python(application):
            return self._submit_python(application)
        # If the worker dies, no one can reconnect to a driver on it. And in cluster mode, a spark-submit that outlives its worker
        # would submit a second job, next to the retry's.
        return super().submit(application, preexec_fn=dying_with_parent(), **kwargs)

    def _submit_python(self, application: str) -> str:
        """Start a driver that runs spark-submit in client mode, through a standalone cluster's REST server, and return its id."""
        from airflow_kafka_offsets.wiring.clusters import open_standalone

        environment = {name: str(value) for name, value in (self._env_vars or {}).items()}
        self._env_vars = None  # in this mode the provider refuses them, but the REST server accepts them
        arguments = standalone.in_client_mode(self._build_spark_submit_command(application)[1:])
        memory = {"spark.driver.memory": self._driver_memory} if self._driver_memory else {}
        properties = {
            **standalone.of_the_jvm(self._conf),
            **memory,
            "spark.master": self.launch.target.master,
            "spark.app.name": str(self._name),
        }
        cluster = open_standalone(self.launch.target)
        self._driver_id = driver = cluster.submit(arguments, properties, environment)
        self.log.info("The driver's id at Spark's master is %s", driver)
        try:
            self._check()
        except BaseException:  # stopped before the master's answer named the driver
            cluster.stop(driver)
            raise
        return driver

    def _build_spark_submit_command(self, application: str) -> list[str]:
        command: list[str] = super()._build_spark_submit_command(application)
        self._env_as_given = self._env
        if not self.launch.target.is_cluster_mode:
            self._env = {**(self._env or {}), **self._start_variables(command)}
        return command

    def _start_variables(self, command: list[str]) -> Mapping[str, str]:
        from airflow_kafka_offsets.wiring.machine.start import start_environment, text_of

        launch = self.launch
        given = [*command, text_of(launch.arguments["properties_file"])]
        return start_environment(self.environment, launch.span, program=self.program, given=given)

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        self._env = self._env_as_given  # only spark-submit gets these variables, not what the user runs after that
        super()._process_spark_submit_log(self._heard(itr))

    def _heard(self, lines: Iterator[str]) -> Iterator[str]:
        """Note the job's id as soon as spark-submit writes it. spark-submit may run for many more seconds."""
        from airflow_kafka_offsets.core.spark_log import SparkOutput, after_line

        self._output, job = SparkOutput(), None
        for line in lines:
            yield line
            self._output = after_line(self._output, line)
            if job is None and (job := self._submitted(line)):
                self.note(job)
        if job and self._is_yarn:
            self._yarn_application_id = job  # not a text in a later line that looks like an id
        if job and self._is_kubernetes:
            self._kubernetes_driver_pod = job.partition(":")[2]

    def _submitted(self, line: str) -> str | None:
        """Return the id that the provider records for a job, from the line that reports its submission."""
        if self._is_yarn_cluster_mode:
            # It gets an id before it is submitted.
            match = re.search(r"Submitted application (application_\d+_\d+)", line)
            return match[1] if match else None
        if self._is_kubernetes:
            # The provider recognizes this line only if the namespace is `spark`.
            match = re.search(r"submission ID ([^\s:]+:\S+-driver)", line)
            return match[1] if match and self._should_track_driver_via_k8s_api() else None
        return self._driver_id

    def _start_yarn_application_status_tracking(self, application_id: str) -> None:
        self._yarn_application_id = application_id  # for on_kill, also if an earlier try has started the job
        super()._start_yarn_application_status_tracking(application_id)

    def _poll_k8s_driver_via_api(self) -> str:
        """Watch the driver's pod to its success.

        The provider's own way deletes the pod before the success is noted, takes a pod that disappeared for a success, and fails at the first
        connection that is refused.
        """
        from airflow_kafka_offsets.launch.pods import watch
        from airflow_kafka_offsets.wiring.clusters import open_kubernetes

        cluster, pod = open_kubernetes(self.launch.target), str(self._kubernetes_driver_pod)
        assert cluster is not None
        try:
            watch(cluster, pod, every=self._status_poll_interval, check=self._check, hear=self._hear_driver)
        finally:
            self._run_post_submit_commands()
        return "Succeeded"

    def _hear_driver(self, lines: Iterable[str]) -> None:
        from airflow_kafka_offsets.core.spark_log import SparkOutput, after_line

        self._output = SparkOutput()
        for line in lines:
            self._output = after_line(self._output, line)


class SubmitOperator(SparkSubmitOperator):
    """The provider's operator, which runs launches, with public names for its private parts."""

    _hook: LaunchHook | None
    """The launch at work, or the last one of this try."""

    @property
    def spark_conn_id(self) -> str:
        """The connection of Spark."""
        return str(self._conn_id)

    @property
    def launch_hook(self) -> LaunchHook | None:
        """The launch at work, or the last one of this try."""
        return self._hook

    @launch_hook.setter
    def launch_hook(self, hook: LaunchHook) -> None:
        self._hook = hook

    @property
    def external_id_key(self) -> str:  # type: ignore[override]
        """The key under which the provider keeps what a retry needs."""
        return self._hook.id_key if self._hook is not None else ""

    @property
    def _K8S_DRIVER_STATUS_KEY(self) -> str:  # type: ignore[override]
        return f"{self.external_id_key}:k8s_driver_status"

    def hook_arguments(self) -> dict[str, Any]:
        """Return the arguments of the provider's hook: the operator has each under its name, some with an underscore before it."""
        names = list(inspect.signature(SparkSubmitHook.__init__).parameters)[1:]
        return {name: getattr(self, name if hasattr(self, name) else f"_{name}") for name in names}

    def with_openlineage(self, launch: Launch, context: Context) -> Launch:
        """Return a launch with the properties of OpenLineage that the operator's arguments ask for."""
        conf = dict(launch.arguments["conf"] or {})
        if self._openlineage_inject_parent_job_info:
            conf = inject_parent_job_information_into_spark_properties(conf, context)
        if self._openlineage_inject_transport_info:
            conf = inject_transport_information_into_spark_properties(conf, context)
        return replace(launch, arguments={**launch.arguments, "conf": conf})

    def run_job(self, context: Context, watched: str | None = None) -> None:
        """Submit the job of the last launch, or continue with the noted one, and wait for its end.

        Args:
            context: Airflow's.
            watched: the job that this very try launched before it gave its worker slot back, or None. If it failed, so does the try.
        """
        assert self._hook is not None
        if not self._hook.launch.target.is_tracked:
            self._hook.submit()
        elif watched is not None and watched == self._hook.noted:
            self.poll_until_complete(watched, context)
        else:
            # The provider's: continue with the noted job, or submit and note one; then wait.
            self.execute_resumable(context)

    def get_job_status(self, external_id: Any, context: Context) -> str:
        """Return the state of a noted job. A job that the cluster no longer has is over, and does not fail each retry."""
        try:
            return str(super().get_job_status(external_id, context))
        except (RuntimeError, OSError):  # with several masters, the provider reports only the last one's answer
            cluster = None if self._hook is None else self._hook.open_cluster()
            if cluster is None or cluster.state(str(external_id)) is not None:
                raise
            self.log.warning("The cluster has no job %s: launching the window again", external_id)
            return "NotFound"

    def is_job_active(self, status: str) -> bool:
        """Whether a job may still run: also a pod whose node does not report."""
        return super().is_job_active(status) or status.upper() == "UNKNOWN"
