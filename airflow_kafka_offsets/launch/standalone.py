"""Python in the cluster mode of a standalone cluster. Spark refuses it, so the driver runs spark-submit in client mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.launch.jobs import CONF_JOB

# Properties with which the driver's JVM must be started. The inner spark-submit is too late for them.
_OF_THE_JVM = (
    "spark.driver.memory",
    "spark.driver.cores",
    "spark.driver.extra",
    "spark.driver.defaultJavaOptions",
    CONF_JOB,
)

_NO_RESOURCE = "spark-internal"
"""Spark's value for "the class is in the jars": SparkLauncher.NO_RESOURCE."""


def is_path(text: str) -> bool:
    """Whether a text is a path on the machine that launches: not a URL, not empty.

    >>> [is_path(text) for text in ("jobs/orders.py", "/opt/orders.py", "s3a://jobs/orders.py", "local:/o.py", "spark-internal", "")]
    [True, True, False, False, False, False]
    """
    return text not in ("", _NO_RESOURCE) and not urlsplit(text).scheme


def is_relative(text: str) -> bool:
    """Whether a text is a relative path.

    >>> [is_relative(text) for text in ("jobs/orders.py", "/opt/orders.py", "s3a://jobs/orders.py")]
    [True, False, False]
    """
    return is_path(text) and not PurePosixPath(text).is_absolute()


def is_python(application: str) -> bool:
    """Whether an application is Python, as Spark decides."""
    return application.endswith(".py")


def check_reachable(application: str, *, ship: bool | str) -> None:
    """Refuse files that a driver on another machine does not find.

    Raises:
        BadInputError: there is one.
    """
    of_python = is_python(application)
    # The absolute path of a jar may be one on each node. Python needs `local:`, or a URL that all nodes can reach.
    is_only_here = urlsplit(application).scheme in ("", "file") if of_python else is_relative(application)
    if is_only_here:
        raise BadInputError(
            f"A standalone cluster does not send {application} to its nodes. Copy it to each and set "
            f"application='local:/path/on/the/nodes.{'py' if of_python else 'jar'}', or use client mode"
        )
    if of_python and ship is True:
        raise BadInputError(
            "A standalone cluster does not send the job side to its nodes. Copy this zip to each and set "
            "ship='local:/path/on/the/nodes/airflow_kafka_offsets_spark.zip', or ship=False if they have it:\n"
            "    python -m airflow_kafka_offsets.spark.shipping DIRECTORY"
        )


def in_client_mode(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of spark-submit in client mode. Those of the application do not change."""
    at = list(arguments).index("--deploy-mode")
    return [*arguments[: at + 1], "client", *arguments[at + 2 :]]


def of_the_jvm(conf: Mapping[str, object]) -> dict[str, str]:
    """Return the properties with which the driver's JVM must be started."""
    return {name: str(value) for name, value in conf.items() if name.startswith(_OF_THE_JVM)}
