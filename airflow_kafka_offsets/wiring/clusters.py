"""The cluster of a Spark connection, and the adapter that looks up its jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.wiring import connections

if TYPE_CHECKING:
    from airflow_kafka_offsets.adapters.clusters.kubernetes import KubernetesCluster
    from airflow_kafka_offsets.adapters.clusters.standalone import StandaloneCluster
    from airflow_kafka_offsets.ports import Cluster


@dataclass(frozen=True, slots=True)
class Target:
    """Where jobs are submitted to.

    Attributes:
        conn_id: its Airflow connection.
        master: Spark's master.
        is_cluster_mode: whether drivers run there, and not on this machine.
        is_yarn, is_kubernetes: the kind of cluster; neither: a standalone cluster, or this machine.
        is_tracked: whether Airflow follows the job there after spark-submit has ended.
        namespace: on Kubernetes.
        rest: scheme and port of the REST server of a standalone cluster.
        yarn_address: the field of the connection's extra with the address of YARN's resource manager.
        yarn: returns that address, and the login for it.
    """

    conn_id: str
    master: str
    is_cluster_mode: bool
    is_yarn: bool
    is_kubernetes: bool
    is_tracked: bool
    namespace: str | None
    rest: tuple[Any, Any]
    yarn_address: str
    yarn: Callable[[], tuple[str, Any]]

    @property
    def is_standalone_cluster(self) -> bool:
        """Whether the driver runs on a worker of a standalone cluster."""
        return self.is_cluster_mode and self.master.startswith("spark://")


def open_cluster(target: Target, main_class: str | None = None) -> Cluster | None:
    """Return the cluster that jobs are submitted to, without a request to it yet.

    Args:
        target: the target of the jobs.
        main_class: the main class of the drivers that this package launches on a standalone cluster; None means any.

    Returns:
        The cluster, or None if drivers run on the Airflow worker and end with it, or the cluster can't list its jobs.
    """
    if target.is_yarn:
        return _yarn(target)
    if kubernetes := open_kubernetes(target):
        return kubernetes
    if target.is_standalone_cluster:
        return open_standalone(target, main_class)
    return None


def open_standalone(target: Target, main_class: str | None = None) -> StandaloneCluster:
    """Return the standalone cluster that jobs are submitted to."""
    from airflow_kafka_offsets.adapters.clusters.standalone import Addresses, StandaloneCluster

    hosts = [master.rpartition(":")[0] or master for master in target.master.removeprefix("spark://").split(",")]
    extra: dict[str, Any] = connections.find_connection(target.conn_id, "spark").extra_dejson
    page = (extra.get("webui-scheme", "http"), extra.get("webui-port", 8080))
    addresses = Addresses(*([f"{scheme}://{host}:{port}" for host in hosts] for scheme, port in (target.rest, page)))
    return StandaloneCluster(addresses, main_class)


def _yarn(target: Target) -> Cluster | None:
    from airflow_kafka_offsets.adapters.clusters.yarn import YarnCluster

    extra = connections.find_connection(target.conn_id, "spark").extra_dejson
    return YarnCluster(*target.yarn()) if extra.get(target.yarn_address) else None


def open_kubernetes(target: Target) -> KubernetesCluster | None:
    """Return the namespace in which drivers are pods, or None if they run elsewhere.

    Raises:
        BadInputError: Airflow's provider for Kubernetes is not installed.
    """
    if not (target.is_kubernetes and target.is_cluster_mode and target.namespace):
        return None
    try:
        from airflow.providers.cncf.kubernetes import kube_client
    except ModuleNotFoundError as exc:
        package = "pip install apache-airflow-providers-cncf-kubernetes"
        raise BadInputError(f"A launch on Kubernetes needs the Python module {exc.name}:\n    {package}") from None

    from airflow_kafka_offsets.adapters.clusters.kubernetes import KubernetesCluster

    return KubernetesCluster(kube_client.get_kube_client, target.namespace)
