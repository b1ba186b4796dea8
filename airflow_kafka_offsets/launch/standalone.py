"""Python in the cluster mode of Spark's own cluster, which Spark itself refuses: a driver that is spark-submit in client mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.launch.spark_conf import CONF_JOB

if TYPE_CHECKING:
    from airflow.sdk import Connection

# What the outer process, the driver's JVM, must be started with; the inner spark-submit comes too late for them.
_OF_THE_JVM = (
    "spark.driver.memory",
    "spark.driver.cores",
    "spark.driver.extra",
    "spark.driver.defaultJavaOptions",
    CONF_JOB,
)


def is_cluster_mode(connection: Connection, deploy_mode: str | None) -> bool:
    """Tell as the provider's hook does, for those who only look: a hook writes the connection's keytab to a file.

    Args:
        connection: Spark's.
        deploy_mode: the operator's; None: the connection has it.
    """
    host, kind = connection.host or "", connection.conn_type
    is_whole = kind == "spark" and host and ("://" in host or not connection.port)
    master = host if is_whole else f"{kind}://{host}"
    return "spark://" in master and (deploy_mode or connection.extra_dejson.get("deploy-mode")) == "cluster"


def is_python(application: str) -> bool:
    """Tell as Spark does."""
    return application.endswith(".py")


def is_on_every_node(path: str) -> bool:
    """Whether a path means the same wherever it is read: ``local:``, or a URL of what all nodes can reach."""
    return urlsplit(path).scheme not in ("", "file")


def check_reachable(application: str, *, ship: bool | str) -> None:
    """Refuse what a driver on another machine would not find.

    Raises:
        BadInputError: with the way that works.
    """
    from airflow_kafka_offsets.core.launch.spark_paths import is_relative

    if not is_python(application):
        if is_relative(application):
            raise BadInputError(
                f"The nodes of a standalone cluster read the application themselves in cluster mode, and {application} means nothing there. "
                "Put it where every node has it and say application='local:/path/on/the/nodes.jar', or where every node can fetch it "
                "(hdfs:, s3a:, https:); or use client mode"
            )
        return
    if not is_on_every_node(application):
        raise BadInputError(
            f"Spark takes no Python application from here in the cluster mode of a standalone cluster. Put {application} where "
            "every node has it and say application='local:/path/on/the/nodes.py', or where every node can fetch it (hdfs:, s3a:, "
            "https:); or use client mode"
        )
    if ship is True:
        raise BadInputError(
            "The job side of this package can't be sent along in the cluster mode of a standalone cluster. Put its zip beside the "
            "application (python -m airflow_kafka_offsets.spark.shipping DIRECTORY writes it) and say "
            "ship='local:/path/on/the/nodes/airflow_kafka_offsets_spark.zip', or any URL; or ship=False where the nodes have it"
        )


def in_client_mode(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of spark-submit in client mode; those of the application stay as they are."""
    at = list(arguments).index("--deploy-mode")
    return [*arguments[: at + 1], "client", *arguments[at + 2 :]]


def of_the_jvm(conf: Mapping[str, object]) -> dict[str, str]:
    """Return the properties that the driver's JVM has to be started with."""
    return {name: str(value) for name, value in conf.items() if name.startswith(_OF_THE_JVM)}
