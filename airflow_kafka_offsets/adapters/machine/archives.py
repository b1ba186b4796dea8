"""The start archives in the cache folder: `kafka-offsets archive` makes one, and a launch uses the one that fits.

An archive (Java: class-data archive, AppCDS) fits one Java and one class path. The JVM checks both, and checksums. It does not check whether the
file is cut off (it dies by SIGBUS), or who wrote it. So the name of an archive holds its size, and its owner is checked before each use.
No job of a user makes one: a JVM writes its archive when it ends, and if that fails, spark-submit fails, too.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from airflow_kafka_offsets.adapters.machine.cache import NAME_ANOTHER, foreign, make_folder, secured, sync
from airflow_kafka_offsets.adapters.machine.spark_home import LocalSpark
from airflow_kafka_offsets.adapters.machine.submit import run_submit, tail_of
from airflow_kafka_offsets.core.errors import StartArchiveError
from airflow_kafka_offsets.core.launch.start import (
    LAUNCHER_OPTIONS,
    QUICK,
    SUBMIT_OPTIONS,
    archive_options,
    quiet_options,
    with_options,
)

FOLDER = "archives"
"""The archives' folder below the cache folder."""

_SECONDS = 900.0
"""How long making an archive may take. It takes 20 seconds on an idle machine and ten minutes on a busy one."""
_A_DAY = 86_400
_JOB = Path(__file__).with_name("training.py")
_WORK = ".making-"
# Variables that would change the run, or that it does not need. Hadoop's folders are at the end of the class path, so the archive fits with them.
_LEFT_OUT = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_CONF = {
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.port": "0",
}

logger = logging.getLogger(__name__)


def start_options(spark: LocalSpark, cache_folder: Path) -> list[str]:
    """Return the JVM options with which a driver starts from its archive; none if no archive can be trusted."""
    archive = find_archive(spark, cache_folder)
    return [] if archive is None or spark.java is None else archive_options(str(archive), spark.java.version)


def find_archive(spark: LocalSpark, cache_folder: Path) -> Path | None:
    """Return the archive of a Spark, or None if there is none that can be trusted."""
    folder = cache_folder / FOLDER
    try:
        if _refusal(spark) is None and secured(folder):
            for path in sorted(folder.glob(f"{archive_name(spark)}-*.jsa")):
                is_whole = path.stem.rpartition("-")[2] == str(path.lstat().st_size)
                if is_whole and secured(path) and os.access(path, os.R_OK):
                    return path
    except OSError as exc:
        logger.debug("No start archive is used: %s", exc)
    return None


def archive_name(spark: LocalSpark) -> str:
    """Return the prefix of the name of a Spark's archive: a digest of its place, and one of its state."""
    java, jars = spark.java, []
    assert java is not None
    with os.scandir(spark.home / "jars") as entries:
        for entry in entries:
            status = entry.stat()
            # In whole seconds, because layers of an image keep no fractions.
            jars.append((entry.name, status.st_size, int(status.st_mtime)))
    class_path = [str(path) for path in (spark.settings, spark.home) if path == spark.home or path.is_dir()]
    return f"{_digest([java.program, *class_path])}-{_digest([java.release, sorted(jars)])}"


def _digest(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _refusal(spark: LocalSpark) -> str | None:
    """Return why Java makes and uses no archive for a Spark, or None if it does."""
    if spark.java is None or not spark.java.has_archives:
        return f"it needs Java 17 or later (HotSpot), not {spark.java or 'none'}: set JAVA_HOME"
    if spark.has_settings:
        return f"{spark.settings} has settings: set SPARK_CONF_DIR to an empty folder"
    return None


def make_archive(spark: LocalSpark, cache_folder: Path, *, seconds: float = _SECONDS) -> Path:
    """Make the archive of a Spark and return it.

    Args:
        spark: the Spark, with the environment of its jobs.
        cache_folder: the folder that holds the folder of archives.
        seconds: that it may take.

    Raises:
        StartArchiveError: an archive is not possible, or the run failed. An earlier archive is still there.
    """
    if refusal := _refusal(spark):
        raise StartArchiveError(f"No start archive for {spark.home}: {refusal}")
    folder = cache_folder / FOLDER
    try:
        if not make_folder(folder):
            raise StartArchiveError(foreign(folder))
        for left in folder.glob(f"{_WORK}*"):  # of killed makers
            if time.time() - left.stat().st_mtime > _A_DAY:
                shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=_WORK, dir=folder) as work:
            return _make(spark, folder, Path(work), seconds)
    except OSError as exc:
        raise StartArchiveError(f"Can't write to {folder} ({exc}): {NAME_ANOTHER}") from exc


def _make(spark: LocalSpark, folder: Path, work: Path, seconds: float) -> Path:
    java, draft = spark.java, work / "draft.jsa"
    assert java is not None
    quiet = quiet_options(java.version)
    conf = [part for key, value in _CONF.items() for part in ("--conf", f"{key}={value}")]
    job = ["--master", "local[2]", *conf, str(_JOB), str(work)]
    run = partial(_run, spark, work, seconds, time.monotonic())
    run([f"-XX:ArchiveClassesAtExit={draft}", QUICK, *quiet], job)
    # This JVM starts only if the archive fits it and is not damaged.
    run([*archive_options(str(draft), java.version), "-Xshare:on"], ["--version"])
    name = archive_name(spark)
    archive = folder / f"{name}-{draft.stat().st_size}.jsa"
    draft.chmod(0o644)
    sync(draft)
    draft.rename(archive)
    sync(folder)  # after a crash the rename itself may be missing
    for path in folder.glob(f"{name.partition('-')[0]}-*.jsa"):
        if path != archive:  # a JVM that uses it keeps it
            path.unlink(missing_ok=True)
    return archive


def _run(
    spark: LocalSpark, work: Path, seconds: float, began: float, options: Sequence[str], arguments: Sequence[str]
) -> None:
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        **{name: value for name, value in spark.environment.items() if name not in _LEFT_OUT},
        "TMPDIR": str(work),
        "SPARK_LOCAL_DIRS": str(work),
        "SPARK_CONF_DIR": str(spark.settings),
        SUBMIT_OPTIONS: with_options([*options, f"-Djava.io.tmpdir={work}"], None),
        LAUNCHER_OPTIONS: with_options([QUICK], spark.environment.get(LAUNCHER_OPTIONS)),
    }
    problem, output = run_submit(spark.home, arguments, work, environment, seconds, began=began)
    if problem:
        raise StartArchiveError(
            f"No start archive: {problem}. Correct what it reports, then:\n"
            f"  kafka-offsets archive --spark-home {shlex.quote(str(spark.home))}\n{tail_of(output)}"
        )
