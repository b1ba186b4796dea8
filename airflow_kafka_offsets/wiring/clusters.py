"""Which cluster a Spark connection leads to, and how it is asked for jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.wiring import connections

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    from airflow_kafka_offsets.adapters.clusters.standalone import StandaloneCluster
    from airflow_kafka_offsets.ports import Cluster


def open_cluster(hook: SparkSubmitHook, main_class: str | None = None) -> Cluster | None:
    """Return the cluster that a hook submits to; nothing is asked of it yet.

    Args:
        hook: the provider's.
        main_class: of the drivers that we launch on a standalone cluster; None: any.

    Returns:
        None: drivers run on the Airflow worker and end with it, or the cluster can't be asked.
    """
    master = hook._connection["master"]
    is_cluster_mode = hook._connection["deploy_mode"] == "cluster"
    if hook._is_yarn:
        return _yarn(hook)
    if hook._is_kubernetes and is_cluster_mode and hook._connection["namespace"]:
        return _kubernetes(hook._connection["namespace"])
    if master.startswith("spark://") and is_cluster_mode:
        return open_standalone(hook, main_class)
    return None


def open_standalone(hook: SparkSubmitHook, main_class: str | None = None) -> StandaloneCluster:
    """Return the standalone cluster that a hook submits to."""
    from airflow_kafka_offsets.adapters.clusters.standalone import Addresses, StandaloneCluster

    connection = hook._connection
    hosts = [master.rpartition(":")[0] or master for master in connection["master"].removeprefix("spark://").split(",")]
    extra: dict[str, Any] = connections.find_connection(hook._conn_id, "spark").extra_dejson
    page = (extra.get("webui-scheme", "http"), extra.get("webui-port", 8080))
    rest = (connection["rest_scheme"], connection["rest_port"])
    addresses = Addresses(*([f"{scheme}://{host}:{port}" for host in hosts] for scheme, port in (rest, page)))
    return StandaloneCluster(addresses, main_class)


def _yarn(hook: SparkSubmitHook) -> Cluster | None:
    from airflow_kafka_offsets.adapters.clusters.yarn import YarnCluster

    extra = connections.find_connection(hook._conn_id, "spark").extra_dejson
    if not extra.get(hook._YARN_RM_WEBAPP_ADDRESS_EXTRA_KEY):
        return None
    return YarnCluster(hook._get_yarn_rm_base_url(), hook._resolved_yarn_rm_auth)


def _kubernetes(namespace: str) -> Cluster:
    from airflow.providers.cncf.kubernetes import kube_client

    from airflow_kafka_offsets.adapters.clusters.kubernetes import KubernetesCluster

    return KubernetesCluster(kube_client.get_kube_client, namespace)
