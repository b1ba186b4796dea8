"""Gives a launch its start archive and its compiler, by two environment variables of spark-submit only.

Spark puts their options before the user's options of the driver's JVM (of operator, connection, properties file or spark-defaults.conf). So the
user's options take precedence, and this package does not have to read or merge them. Executors get none of it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from airflow_kafka_offsets.adapters.machine.archives import find_archive, make_archive, start_options
from airflow_kafka_offsets.adapters.machine.spark_home import LocalSpark, local_spark, session_spark
from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.launch.start import (
    LAUNCHER_OPTIONS,
    QUICK,
    SUBMIT_OPTIONS,
    compiler_options,
    speak_of_archives,
    with_options,
)
from airflow_kafka_offsets.wiring.machine.cache import cache_folder

__all__ = ["environment_with", "find_archive", "make_archive", "start_environment", "text_of"]

_READ_BY_JAVA = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")

logger = logging.getLogger(__name__)


def start_environment(
    environment: Mapping[str, str], span: int, *, program: str | None, given: Iterable[str]
) -> dict[str, str]:
    """Return the environment variables that a launch in client mode adds. Their present values are kept. No command line shows them.

    Args:
        environment: the environment of spark-submit.
        span: the span of the window.
        program: spark-submit, or None for the one that pyspark starts for a session of this process.
        given: the user's settings. If they have options about archives, this package adds none.
    """
    spark = local_spark(program, environment) if program else session_spark(environment)
    if spark is None or spark.java is None or not spark.java.has_archives:
        return {}  # a JVM may not start with an unknown option
    of_java = [environment.get(name, "") for name in (SUBMIT_OPTIONS, *_READ_BY_JAVA)]
    archive = [] if speak_of_archives([*given, *of_java]) else _archive_options(spark)
    return {
        SUBMIT_OPTIONS: with_options([*archive, *compiler_options(span)], environment.get(SUBMIT_OPTIONS)),
        LAUNCHER_OPTIONS: with_options([QUICK], environment.get(LAUNCHER_OPTIONS)),
    }


def _archive_options(spark: LocalSpark) -> list[str]:
    try:
        return start_options(spark, cache_folder())
    except (BadInputError, OSError) as exc:  # no reason to fail a launch
        logger.info("No start archive is used: %s", exc)
        return []


def text_of(properties_file: str | None) -> str:
    """Return the text of a properties file; a missing one has none here, because spark-submit itself reports it."""
    try:
        return Path(properties_file).read_text(errors="replace") if properties_file else ""
    except OSError:
        return ""


@contextmanager
def environment_with(added: Mapping[str, str]) -> Iterator[None]:
    """Set variables in this process' environment for a while, for code that starts a child and takes no environment."""
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
