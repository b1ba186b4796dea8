"""The jars of Spark's Kafka connector in a folder of this machine. Spark's own Ivy fetches them once.

A folder ``<artifact>-<version>`` is complete or absent: Ivy works in a staging folder next to it, and a rename puts its jars in place.
A lock lets one process fetch at a time, and the kernel releases it when the process ends. A killed process leaves a staging folder, which
the next process removes.
"""

from __future__ import annotations

import fcntl
import logging
import shlex
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from airflow_kafka_offsets.adapters.machine.cache import NAME_ANOTHER, foreign, make_folder, secured, sync
from airflow_kafka_offsets.adapters.machine.spark_home import LocalSpark
from airflow_kafka_offsets.adapters.machine.submit import run_submit, tail_of, without_passwords
from airflow_kafka_offsets.core.errors import ConnectorUnavailableError

_SECONDS = 600.0
"""How long Ivy may take."""

# Files that an administrator gives to every job. Fetching does not need them, and they may be on another machine.
_WITHOUT = ("spark.jars", "spark.files", "spark.archives", "spark.submit.pyFiles")

logger = logging.getLogger(__name__)


def kept_jars(folder: Path) -> list[Path]:
    """Return the jars of a folder, sorted by name; empty if it is absent.

    Raises:
        ConnectorUnavailableError: users other than this one and root can write to them.
    """
    jars = sorted(folder.glob("*.jar"))
    for path in (folder.parent, folder, *jars) if jars else ():
        if not secured(path):
            raise ConnectorUnavailableError(foreign(path))
    return jars


def fetch_jars(
    folder: Path, spark: LocalSpark, coordinates: str, arguments: Sequence[str] = (), *, seconds: float = _SECONDS
) -> list[Path]:
    """Return the jars of a folder, sorted by name. Fetch them first if they are not there.

    Args:
        folder: its name is ``<artifact>-<version>``.
        spark: the Spark whose Ivy fetches.
        coordinates: ``group:artifact:version``.
        arguments: of spark-submit: the repositories of its Ivy.
        seconds: how long Ivy may take.

    Raises:
        ConnectorUnavailableError: they can't be fetched. The message ends with Spark's last lines; the folder is unchanged.
    """
    try:
        if not make_folder(folder.parent):
            raise ConnectorUnavailableError(foreign(folder.parent))
        with folder.with_name(f".{folder.name}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if jars := kept_jars(folder):
                return jars
            logger.info("Fetching %s into %s", coordinates, folder)
            problem, output = _fetch(folder, spark, coordinates, arguments, seconds)
    except OSError as exc:
        where = exc.filename or folder.parent
        problem, output = f"{where}: {exc.strerror} (if it is in the cache folder, {NAME_ANOTHER})", ""
    if not problem:
        return kept_jars(folder)
    avro = ["--avro"] if ":spark-avro_" in coordinates else []
    more = ["--submit-args", shlex.join(arguments)] if arguments else []
    command = shlex.join(["kafka-offsets", "jars", "--spark-home", str(spark.home), *avro, *more])
    raise ConnectorUnavailableError(
        f"{coordinates} could not be fetched into {folder}: {problem}. "
        "Fetch it with this command, or copy the folder from another machine:\n"
        f"  {without_passwords(command)}\n{tail_of(output)}".rstrip()
    )


def _fetch(
    folder: Path, spark: LocalSpark, coordinates: str, arguments: Sequence[str], seconds: float
) -> tuple[str | None, str]:
    """Fetch jars into a folder. Return what is wrong, or None, and Spark's output."""
    for left in folder.parent.glob(f".{folder.name}-*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as staging:
        nothing, ivy = Path(staging, "nothing.py"), Path(staging, "ivy")
        nothing.touch()  # packages are resolved before the application runs
        # As properties, because a Python in Spark's defaults takes precedence over environment variables.
        python = dict.fromkeys(("spark.pyspark.python", "spark.pyspark.driver.python"), sys.executable)
        conf = {"spark.jars.ivy": str(ivy), **python, **dict.fromkeys(_WITHOUT, "")}
        given = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        where = ["--master", "local[1]", "--deploy-mode", "client", *arguments, "--packages", coordinates]
        submit = [*where, *given, str(nothing)]
        problem, output = run_submit(spark.home, submit, Path(staging), spark.environment, seconds)
        if problem:
            return problem, output
        jars = list((ivy / "jars").glob("*.jar"))
        if not any(jar.name.endswith(f"{folder.name}.jar") for jar in jars):
            return f"Ivy fetched no {folder.name}.jar", output
        for jar in jars:
            if not zipfile.is_zipfile(jar):
                return f"{jar.name} is damaged", output
            jar.chmod(0o644)  # with any umask: a file that others can write is not used
            sync(jar)
        (ivy / "jars").chmod(0o755)
        sync(ivy / "jars")
        (ivy / "jars").rename(folder)
        sync(folder.parent)  # after a crash the rename itself may be missing
        return None, output
