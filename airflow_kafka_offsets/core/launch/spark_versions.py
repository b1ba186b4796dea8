"""Which versions fit together: pyspark and pyspark-client (they share a folder), Spark and its Python files, Spark and Java."""

from __future__ import annotations

import re

from airflow_kafka_offsets.core.errors import BadInputError

_OLDEST_CLIENT = (4, 0)
_OLDEST_JAVA = {4: 17, 3: 8}
"""The oldest Java by Spark's major version: "runs on Java" in https://spark.apache.org/docs/4.0.0/index.html and https://spark.apache.org/docs/3.5.6/index.html."""

_NAMED_JAVAS = {(3, 5): "8, 11 and 17", (4, 0): "17 and 21", (4, 1): "17 and 21"}
"""The Javas of the same sentence, for each Spark whose Hadoop asks Java for what it no longer has (HADOOP-19212). The documentation of Spark 4.2 names Java 25, too."""
_JAVA_WITHOUT_SUBJECT = 23
"""From this one on: "getSubject is not supported", https://github.com/apache/hadoop/pull/7434."""
_INSTALL = "Install Java 17 on each worker, and set JAVA_HOME"


def check_versions_agree(pyspark: str | None, client: str | None) -> None:
    """Refuse a pyspark and a pyspark-client of different feature releases. Maintenance releases (the third number) may differ.

    Args:
        pyspark: the version of pyspark, or None if it is not installed.
        client: the version of pyspark-client, or None if it is not installed.

    Raises:
        BadInputError: they differ. The message names the command that corrects it.

    >>> check_versions_agree("4.0.5", "4.0.4")
    >>> check_versions_agree(None, "4.2.0")
    """
    of_pyspark, of_client = _release(pyspark), _release(client)
    if of_pyspark is None or of_client is None or of_pyspark == of_client:
        return
    # Both packages exist in the lower version: a new pyspark may have no pyspark-client yet. Spark 3 has none at all.
    lower = min(of_pyspark, of_client)
    major, minor = lower if lower >= _OLDEST_CLIENT else of_client
    raise BadInputError(
        f"pyspark {pyspark} and pyspark-client {client} overwrite each other's files. On each worker, install both with the version of your "
        f"cluster's Spark (if it is not {major}.{minor}, put it in both places):\n    pip uninstall -y pyspark pyspark-client && pip install "
        f"'pyspark=={major}.{minor}.*' 'pyspark-client=={major}.{minor}.*'"
    )


def check_java(spark: str, java: int, program: str) -> None:
    """Refuse a Java that is too old for a Spark. A Spark version that is not listed is not checked.

    Args:
        spark: the version of Spark.
        java: the version of Java, such as 17.
        program: the path of Java.

    Raises:
        BadInputError: Java is too old. The message says what to install or set.

    >>> check_java("4.0.0", 17, "/usr/bin/java")
    >>> check_java("2.4.8", 7, "/usr/bin/java")
    """
    release = _release(spark)
    oldest = 0 if release is None else _OLDEST_JAVA.get(release[0], 0)
    if java < oldest:
        raise BadInputError(
            f"Spark {spark} requires Java {oldest} or later, and the worker has Java {java} ({program}). {_INSTALL}"
        )


def java_warning(spark: str, java: int, program: str) -> str | None:
    """Return the warning about a Java that is too new for a Spark, or None if it may fit. A vendor may have changed its Spark, so this is no refusal.

    Args:
        spark: the version of Spark.
        java: the version of Java, such as 25.
        program: the path of Java.

    >>> java_warning("4.0.0", 21, "/usr/bin/java")
    >>> java_warning("4.2.0", 25, "/usr/bin/java")
    >>> java_warning("4.0.0", 25, "/jdk/bin/java")[:64]
    'The worker has Java 25 (/jdk/bin/java), and Spark 4.0.0 is for J'
    """
    named = _NAMED_JAVAS.get(_release(spark) or (0, 0))
    if named is None or java < _JAVA_WITHOUT_SUBJECT:
        return None
    return (
        f"The worker has Java {java} ({program}), and Spark {spark} is for Java {named}. If the job fails with "
        f'"getSubject is not supported": {_INSTALL}'
    )


def check_session_spark(home: str, spark: str, pyspark: str) -> None:
    """Refuse a pyspark session if SPARK_HOME names a Spark of another feature release.

    Args:
        home: the value of SPARK_HOME.
        spark: the version of the Spark in that folder.
        pyspark: the version of the Python files that the task imports.

    Raises:
        BadInputError: they differ. The message names both ways to correct it.

    >>> check_session_spark("/opt/spark", "4.0.1", "4.0.0")
    >>> check_session_spark("/opt/spark", "ours", "4.0.0")
    """
    release, ours = _release(spark), _release(pyspark)
    if release is None or ours is None or release == ours:
        return
    major, minor = release
    raise BadInputError(
        f"SPARK_HOME ({home}) has Spark {spark}, and pyspark has version {pyspark}. Unset SPARK_HOME, or on each worker:\n"
        f"    pip install 'pyspark=={major}.{minor}.*'"
    )


def _release(version: str | None) -> tuple[int, int] | None:
    match = re.match(r"(\d+)\.(\d+)", version or "")  # a vendor's version may have any form
    return (int(match[1]), int(match[2])) if match else None
