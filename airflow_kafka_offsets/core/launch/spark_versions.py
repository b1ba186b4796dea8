"""Which versions go together: pyspark and pyspark-client, which put their files into one folder, Spark and its Python files, Spark and Java."""

from __future__ import annotations

import re

from airflow_kafka_offsets.core.errors import BadInputError

_OLDEST_CLIENT = (4, 0)
_OLDEST_JAVA = {4: 17, 3: 8}
"""By Spark's major version: https://spark.apache.org/docs/4.0.0/index.html and https://spark.apache.org/docs/3.5.6/index.html ("runs on Java")."""


def check_versions_agree(pyspark: str | None, client: str | None) -> None:
    """Refuse a pyspark and a pyspark-client of two feature releases; maintenance releases (the third number) may differ.

    Args:
        pyspark: its version; None: it is not installed.
        client: the version of pyspark-client; None: likewise.

    Raises:
        BadInputError: with the command that mends it.

    >>> check_versions_agree("4.0.5", "4.0.4")
    >>> check_versions_agree(None, "4.2.0")
    """
    if pyspark is None or client is None or _feature_release(pyspark) == _feature_release(client):
        return
    # Of the lower one there are both: a new pyspark may have no pyspark-client yet, and Spark 3 has none.
    lower = min(_feature_release(pyspark), _feature_release(client))
    major, minor = lower if lower >= _OLDEST_CLIENT else _feature_release(client)
    raise BadInputError(
        f"pyspark {pyspark} and pyspark-client {client} are installed, and overwrite each other's files: both must be of one version. Nothing "
        f"was planned. On each worker: pip uninstall -y pyspark pyspark-client && pip install 'pyspark=={major}.{minor}.*' "
        f"'pyspark-client=={major}.{minor}.*'. If your cluster has another version of Spark, put that version there, in both places"
    )


def check_java(spark: str, java: int, program: str) -> None:
    """Refuse a Java that is too old for a Spark; of a Spark that is not listed nothing is known.

    Args:
        spark: its version.
        java: the version of Java, such as 17.
        program: where that is.

    Raises:
        BadInputError: with what to install, or to set.

    >>> check_java("4.0.0", 17, "/usr/bin/java")
    >>> check_java("2.4.8", 7, "/usr/bin/java")
    """
    release = _known_release(spark)
    oldest = 0 if release is None else _OLDEST_JAVA.get(release[0], 0)
    if java < oldest:
        raise BadInputError(
            f"Spark {spark} needs Java {oldest} or later, and the worker's is Java {java} ({program}). Nothing was planned. Install Java 17 on each "
            "worker (Debian: apt-get install openjdk-17-jre-headless), and set JAVA_HOME to its folder where the worker is started"
        )


def check_session_spark(home: str, spark: str, pyspark: str) -> None:
    """Refuse a session of a pyspark that starts a Spark of another feature release, which SPARK_HOME names.

    Args:
        home: the value of SPARK_HOME.
        spark: the version of the Spark in there.
        pyspark: the version of the Python files that the task imports.

    Raises:
        BadInputError: with the two ways out.

    >>> check_session_spark("/opt/spark", "4.0.1", "4.0.0")
    >>> check_session_spark("/opt/spark", "ours", "4.0.0")
    """
    release, ours = _known_release(spark), _known_release(pyspark)
    if release is None or ours is None or release == ours:
        return
    major, minor = release
    raise BadInputError(
        f"SPARK_HOME is {home}, a Spark {spark}, and pyspark is {pyspark}: both must be of one version. Nothing was planned. Unset SPARK_HOME, so that "
        f"pyspark starts the Spark that it brings; or on each worker: pip install 'pyspark=={major}.{minor}.*'"
    )


def _known_release(version: str) -> tuple[int, int] | None:
    found = re.match(r"(\d+)\.(\d+)", version)  # vendors number as they like
    return (int(found[1]), int(found[2])) if found else None


def _feature_release(version: str) -> tuple[int, int]:
    major, minor, *_ = version.split(".")
    return int(major), int(minor)
