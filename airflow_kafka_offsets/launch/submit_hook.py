"""Extends the Spark provider's hook. Only this module uses the provider's private names.

The provider has no public way to stop before a submission, to add to a driver's environment, or to read the output of spark-submit. What a
launch needs of it gets a public name here. tests/launch/test_submit_hook.py lists the private names, and fails if an installed provider lacks
one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_kafka_offsets.core.errors import BadInputError, ClusterError
from airflow_kafka_offsets.launch import standalone
from airflow_kafka_offsets.spark.parent import dying_with_parent

if TYPE_CHECKING:
    from airflow_kafka_offsets.adapters.clusters.standalone import StandaloneCluster
    from airflow_kafka_offsets.wiring.clusters import Target


@dataclass(frozen=True, slots=True)
class Steps:
    """What a launch does around the provider's own steps.

    Attributes:
        check: raises an error if the task was stopped.
        submit_python: launches a Python driver on a standalone cluster, and returns its id.
        variables: returns more environment variables for a driver on this machine, from the command that starts it.
        hear: gets each line that spark-submit writes.
        note: gets the id of the job, as soon as spark-submit has written it.
    """

    check: Callable[[], None]
    submit_python: Callable[[SubmitHook, str], str]
    variables: Callable[[SubmitHook, Sequence[str]], Mapping[str, str]]
    hear: Callable[[str], None]
    note: Callable[[str], None]


@contextmanager
def _told_as_bad_input() -> Iterator[None]:
    """Let a launch fail at once for what the provider lacks or does not take: a retry would meet the same."""
    try:
        yield
    except (ValueError, RuntimeError) as exc:
        raise BadInputError(str(exc)) from exc


class SubmitHook(SparkSubmitHook):
    """The provider's hook, with this package's steps around its own."""

    _steps: Steps
    _env_as_given: dict[str, Any] | None

    @classmethod
    def of(cls, hook: SparkSubmitHook, steps: Steps) -> SubmitHook:
        """Make this hook from the provider's hook."""
        mine = cls.__new__(cls)
        vars(mine).update(vars(hook))
        mine._log = hook.log  # the provider's logger, so that its logging configuration applies
        mine._steps, mine._env_as_given = steps, hook._env
        # Otherwise a properties file, spark-defaults.conf or DEPLOY_MODE could set "cluster" without this hook's knowledge.
        mine._connection["deploy_mode"] = mine._connection["deploy_mode"] or "client"
        return mine

    # What is known of the cluster.

    @property
    def master(self) -> str:
        """Spark's master."""
        return str(self._connection["master"])

    @property
    def deploy_mode(self) -> str:
        """``client`` or ``cluster``."""
        return str(self._connection["deploy_mode"])

    @property
    def is_client_mode(self) -> bool:
        """Whether the driver runs on this machine."""
        return self.deploy_mode != "cluster"

    @property
    def is_yarn(self) -> bool:
        """Whether YARN runs it."""
        return bool(self._is_yarn)

    @property
    def is_standalone_cluster(self) -> bool:
        """Whether the driver runs on a worker of a standalone cluster."""
        return bool(self._should_track_driver_status)

    @property
    def is_tracked(self) -> bool:
        """Whether Airflow tracks the job on its cluster after spark-submit has ended."""
        return bool(
            self.is_standalone_cluster
            or self._should_track_driver_via_k8s_api()
            or self._should_track_yarn_application_via_rm_api()
        )

    @property
    def target(self) -> Target:
        """Where the jobs are."""
        from airflow_kafka_offsets.wiring.clusters import Target

        return Target(
            conn_id=self._conn_id,
            master=self.master,
            is_cluster_mode=not self.is_client_mode,
            is_yarn=self.is_yarn,
            is_kubernetes=bool(self._is_kubernetes),
            namespace=self._connection.get("namespace"),
            rest=(self._connection.get("rest_scheme"), self._connection.get("rest_port")),
            yarn_address=self._YARN_RM_WEBAPP_ADDRESS_EXTRA_KEY,
            yarn=self._yarn,
        )

    def _yarn(self) -> tuple[str, Any]:
        # Without the address, the provider may have met a secrets backend that did not answer: a retry may heal that.
        address = self._get_yarn_rm_base_url()
        with _told_as_bad_input():
            return address, self._resolved_yarn_rm_auth

    def check_tracking(self) -> None:
        """Check what the provider needs to track a job on its cluster.

        Raises:
            BadInputError: with what is missing.
            NotYetError: Airflow does not find the connection.
        """
        from airflow_kafka_offsets.wiring.connections import find_connection

        if self._yarn_track_via_rm_api:
            # The provider takes a secrets backend that does not answer for a connection without the address.
            find_connection(self._conn_id, "spark")
        with _told_as_bad_input():
            self._validate_yarn_track_via_rm_api_config()
            if self._track_driver_via_k8s_api:
                self._validate_track_driver_via_k8s_api_config()
        if self._is_kubernetes and not self.is_client_mode and not self.is_tracked:
            raise BadInputError(
                "Kubernetes' cluster mode needs track_driver_via_k8s_api=True: spark-submit ends with success there, also when "
                "the driver has failed, and the last exit code that it logs may be a sidecar's"
            )

    # What is known of the launch.

    @property
    def program(self) -> str:
        """The spark-submit that is started."""
        return str(self._connection["spark_binary"])

    @property
    def java_class(self) -> str | None:
        """The main class of a Java application."""
        return self._java_class

    @property
    def repositories(self) -> str | None:
        """More repositories of packages."""
        return self._repositories

    @property
    def environment(self) -> dict[str, str]:
        """The environment of spark-submit. On Kubernetes, the user's variables are for the driver's pod."""
        added = self._env or (None if self._is_kubernetes else self._env_vars) or {}
        return {**os.environ, **{name: str(value) for name, value in added.items()}}

    @property
    def driver_id(self) -> str | None:
        """The driver on a standalone cluster, once it is known."""
        return self._driver_id

    def end_spark_submit(self) -> None:
        """Kill the process of spark-submit, if there is one."""
        if self._submit_sp is not None:
            self._submit_sp.kill()

    # The provider's steps.

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Submit the job, unless the task was stopped."""
        self._steps.check()
        if self.is_standalone_cluster and standalone.is_python(application):
            return self._steps.submit_python(self, application)
        # If the worker dies, no one can reconnect to a driver on it. And in cluster mode, a spark-submit that outlives its worker
        # would submit a second job, next to the retry's.
        return super().submit(application, preexec_fn=dying_with_parent(), **kwargs)

    def submit_to(self, cluster: StandaloneCluster, application: str) -> str:
        """Start a driver that runs spark-submit in client mode, through a standalone cluster's REST server, and return its id."""
        environment = {name: str(value) for name, value in (self._env_vars or {}).items()}
        self._env_vars = None  # in this mode the provider refuses them, but the REST server accepts them
        arguments = standalone.in_client_mode(self._build_spark_submit_command(application)[1:])
        memory = {"spark.driver.memory": self._driver_memory} if self._driver_memory else {}
        properties = {
            **standalone.of_the_jvm(self._conf),
            **memory,
            "spark.master": self.master,
            "spark.app.name": str(self._name),
        }
        self._driver_id = cluster.submit(arguments, properties, environment)
        self.log.info("The driver's id at Spark's master is %s", self._driver_id)
        return str(self._driver_id)

    def _build_spark_submit_command(self, application: str) -> list[str]:
        command: list[str] = super()._build_spark_submit_command(application)
        self._env_as_given = self._env
        if self.is_client_mode:
            self._env = {**(self._env or {}), **self._steps.variables(self, command)}
        return command

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        self._env = self._env_as_given  # only spark-submit gets these variables, not what the user runs after that
        super()._process_spark_submit_log(self._heard(itr))

    def _heard(self, lines: Iterator[str]) -> Iterator[str]:
        """Pass on the job's id as soon as spark-submit writes it. spark-submit may run for many more seconds."""
        noted = None
        for line in lines:
            yield line
            self._steps.hear(line)
            if noted is None and (noted := self._submitted(line)):
                self._steps.note(noted)
        if noted and self._is_yarn:
            self._yarn_application_id = noted  # not a text in a later line that looks like an id
        if noted and self._is_kubernetes:
            self._kubernetes_driver_pod = noted.partition(":")[2]

    def _submitted(self, line: str) -> str | None:
        """Return the id that the provider records for a job, from the line that reports the submission; None: another line."""
        if self._is_yarn_cluster_mode:
            # It gets an id before it is submitted.
            found = re.search(r"Submitted application (application_\d+_\d+)", line)
            return found[1] if found else None
        if self._is_kubernetes:
            # The provider recognizes this line only if the namespace is `spark`.
            found = re.search(r"submission ID ([^\s:]+:\S+-driver)", line)
            return found[1] if found and self._should_track_driver_via_k8s_api() else None
        return self._driver_id

    def _start_yarn_application_status_tracking(self, application_id: str) -> None:
        self._yarn_application_id = application_id  # for on_kill, also if an earlier try has started the job
        super()._start_yarn_application_status_tracking(application_id)

    def _poll_k8s_driver_via_api(self) -> str | None:
        phase: str | None = super()._poll_k8s_driver_via_api()
        if phase != "Succeeded":  # for the provider, a pod that disappeared is a success
            raise ClusterError(f"The driver's pod {self._kubernetes_driver_pod} is gone, and its success was not seen")
        return phase


class SubmitOperator(SparkSubmitOperator):
    """The provider's operator with `SubmitHook`, and public names for its private parts."""

    _hook: SubmitHook | None

    def launch_steps(self) -> Steps:
        """Return this package's steps around the provider's."""
        raise NotImplementedError

    @property
    def spark_conn_id(self) -> str:
        """The connection of Spark."""
        return str(self._conn_id)

    @property
    def chosen_deploy_mode(self) -> str | None:
        """``client`` or ``cluster``, if the operator sets it; None: the connection does."""
        return self._deploy_mode

    @property
    def archives(self) -> str | None:
        """The archives that Spark unpacks for the executors."""
        return self._archives

    @archives.setter
    def archives(self, archives: str | None) -> None:
        self._archives = archives

    @property
    def hook_at_work(self) -> SubmitHook | None:
        """The hook of the running job; None: there is none."""
        return self._hook

    def forget_hook(self) -> None:
        """Make a new hook for the next job."""
        self._hook = None

    def name_job(self, key: str) -> None:
        """Set the key under which the provider records what a retry needs."""
        self.external_id_key = f"spark_job_id:{key}"
        self._K8S_DRIVER_STATUS_KEY = f"k8s_driver_status:{key}"

    def new_hook(self) -> SubmitHook:
        """Return a hook from the current fields.

        Raises:
            BadInputError: the provider takes no such connection, or lacks a package for it.
        """
        try:
            hook = super()._get_hook()
        except (NameError, RuntimeError) as exc:  # the provider looks for what it did not import
            raise BadInputError(
                f"Connection {self._conn_id!r} leads to Kubernetes, and this machine has no package for that. Install it on each worker: "
                "pip install apache-airflow-providers-cncf-kubernetes"
            ) from exc
        except ValueError as exc:  # what the provider does not take in a connection
            raise BadInputError(f"Connection {self._conn_id!r}: {exc}") from exc
        return SubmitHook.of(hook, self.launch_steps())

    def _get_hook(self) -> SubmitHook:  # as the provider calls it
        return self.new_hook()
