"""Gives a launch its start archive and its compiler, by two environment variables of spark-submit only.

Spark puts their options before the user's options of the driver's JVM (of operator, connection, properties file or spark-defaults.conf). So the
user's options take precedence, and this package does not have to read or merge them. Executors get none of it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_kafka_offsets.core.errors import BadInputError, StartArchiveError
from airflow_kafka_offsets.core.launch.start import (
    LAUNCHER_OPTIONS,
    QUICK,
    SUBMIT_OPTIONS,
    compiler_options,
    speak_of_archives,
    with_options,
)
from airflow_kafka_offsets.wiring.machine.cache import cache_folder

if TYPE_CHECKING:
    from airflow_kafka_offsets.adapters.machine.programs import Spark

_READ_BY_JAVA = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")

logger = logging.getLogger(__name__)


def start_environment(
    environment: Mapping[str, str], span: int, *, program: str | None, given: Iterable[str]
) -> dict[str, str]:
    """Return the environment variables that a launch in client mode adds. Their present values are kept. No command line shows them.

    Args:
        environment: of spark-submit.
        span: of the window, in offsets.
        program: spark-submit; None: the one that pyspark starts for a session of this process.
        given: the user's settings. If they have options about archives, this package adds none.
    """
    spark = _spark(environment, program)
    if spark is None or not spark.java.has_archives:
        return {}  # a JVM may not start with an unknown option
    of_java = [environment.get(name, "") for name in (SUBMIT_OPTIONS, *_READ_BY_JAVA)]
    archive = [] if speak_of_archives([*given, *of_java]) else _archive_options(spark)
    return {
        SUBMIT_OPTIONS: with_options([*archive, *compiler_options(span)], environment.get(SUBMIT_OPTIONS)),
        LAUNCHER_OPTIONS: with_options([QUICK], environment.get(LAUNCHER_OPTIONS)),
    }


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


def _archive_options(spark: Spark) -> list[str]:
    from airflow_kafka_offsets.adapters.machine.archives import start_options

    try:
        return start_options(spark, cache_folder())
    except (BadInputError, OSError) as exc:  # no reason to fail a launch
        logger.info("No start archive is used: %s", exc)
        return []


def _spark(environment: Mapping[str, str], program: str | None) -> Spark | None:
    from airflow_kafka_offsets.adapters.machine.programs import spark_at
    from airflow_kafka_offsets.adapters.machine.spark_home import find_home, home_of_pyspark

    home = home_of_pyspark(environment) if program is None else find_home(program, environment)
    return spark_at(home, environment)


def make_archive(
    home: Path | None,
    environment: Mapping[str, str],
    *,
    folder: Path | None = None,
    again: bool = False,
    before_exec: Callable[[], None] | None = None,
) -> tuple[Path | None, bool]:
    """Make the start archive of a Spark, unless there is one.

    Args:
        home: of Spark; None: not known.
        environment: of spark-submit.
        folder: the cache folder; None: the configured one.
        again: make it also if there is one.
        before_exec: called in the process that makes it, before it runs.

    Returns:
        The archive (None: another process makes it now), and whether it was made now.

    Raises:
        StartArchiveError: an archive is not possible, or making it failed.
        BadInputError: the cache folder can't be used.
    """
    from airflow_kafka_offsets.adapters.machine import archives
    from airflow_kafka_offsets.adapters.machine.programs import spark_at

    spark = spark_at(home, environment)
    if spark is None:
        raise StartArchiveError(
            f"No start archive can be made: there is no {'Spark' if home is None else f'Spark in {home}, or no Java'} here. Set SPARK_HOME "
            "and JAVA_HOME to the same values as in tasks"
        )
    cache = cache_folder() if folder is None else folder
    there = None if again else archives.find_archive(spark, cache)
    if there is not None:
        return there, False
    made = archives.make_archive(spark, cache, environment, before_exec=before_exec)
    return made, made is not None
