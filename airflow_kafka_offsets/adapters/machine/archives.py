"""Finds, checks and makes the archives in the cache folder.

A separate run makes an archive, never a user's job: a JVM writes its archive when it ends, and if that fails, spark-submit fails, too. The run
writes a draft. Then a JVM is started that runs only if the draft is good. Then the draft is renamed.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from airflow_kafka_offsets.adapters.machine.cache import NAME_ANOTHER, make_folder, secured, sync, took_lock
from airflow_kafka_offsets.adapters.machine.programs import Spark
from airflow_kafka_offsets.adapters.machine.submit import run_submit, tail_of
from airflow_kafka_offsets.core.errors import StartArchiveError
from airflow_kafka_offsets.core.launch.start import (
    LAUNCHER_OPTIONS,
    QUICK,
    SUBMIT_OPTIONS,
    UNSEEN,
    ArchiveName,
    archive_name,
    options_to_check,
    options_to_make,
    options_to_use,
    parse_archive_name,
    with_options,
)

FOLDER = "archives"
"""The archives' folder below the cache folder."""

TIME_LIMIT = 900.0
"""Seconds that making an archive may take. It takes 20 on an idle machine and ten minutes on a busy one."""

_KEPT = 7 * 86_400

_JOB = Path(__file__).with_name("training.py")
_LOWEST_PRIORITY = 19
# Variables that would change the run, or that it does not need. Hadoop's folders are at the end of the class path, so the archive fits with them.
_LEFT_OUT = (SUBMIT_OPTIONS, "HADOOP_CONF_DIR", "YARN_CONF_DIR")
_CONF = {
    "spark.master": "local[2]",
    "spark.submit.deployMode": "client",
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.port": "0",
    "spark.hadoop.fs.defaultFS": "file:///",
}

logger = logging.getLogger(__name__)


def start_options(spark: Spark, cache_folder: Path) -> list[str]:
    """Return the options with which a driver's JVM starts from its archive; none if there is no archive that can be trusted.

    Args:
        spark: the Spark that is started.
        cache_folder: the folder that holds the folder of archives.
    """
    archive = find_archive(spark, cache_folder)
    return [] if archive is None else options_to_use(str(archive), spark.java)


def find_archive(spark: Spark, cache_folder: Path) -> Path | None:
    """Return the archive of a Spark; None: there is none that can be trusted."""
    if not spark.java.has_archives or spark.has_settings:
        return None
    try:
        wanted = name_now(spark)
        if not secured(cache_folder / FOLDER):
            return None
        for path in sorted((cache_folder / FOLDER).iterdir()):
            name = parse_archive_name(path.name)
            if name is not None and replace(name, size=0) == wanted and _is_good(path, name):
                return path
    except OSError as exc:
        logger.debug("No start archive is used: %s", exc)
    return None


def _is_good(path: Path, name: ArchiveName) -> bool:
    # A JVM dies by SIGBUS if the file is shorter than its header says.
    return secured(path) and path.lstat().st_size == name.size and os.access(path, os.R_OK)


def make_archive(
    spark: Spark,
    cache_folder: Path,
    environment: Mapping[str, str],
    *,
    time_limit: float = TIME_LIMIT,
    before_exec: Callable[[], None] | None = None,
) -> Path | None:
    """Make the archive of a Spark and return it; None: another process is making it now.

    Args:
        spark: the Spark that it is for.
        cache_folder: the folder that holds the folder of archives.
        environment: of the run, the same as that of jobs.
        time_limit: seconds that the run may take.
        before_exec: called in the run's process before it starts.

    Raises:
        StartArchiveError: an archive is not possible, or the run failed. An earlier archive is still there.
    """
    _check_possible(spark)
    folder = cache_folder / FOLDER
    try:
        with _lock(folder, name_now(spark).place) as lock:
            return None if lock is None else _make(spark, folder, environment, time_limit, before_exec, lock)
    except OSError as exc:
        raise StartArchiveError(
            f"The start archive can't be written in {folder}: {exc}. Correct that, or {NAME_ANOTHER}"
        ) from exc


def _check_possible(spark: Spark) -> None:
    java = spark.java
    if not java.has_archives:
        raise StartArchiveError(
            f"No start archive for {java.program}: it must be Java 17 or later (HotSpot) with its file `release`, and this one "
            f"{'is Java ' + str(java.version) if java.version else 'has no known version'}. Set JAVA_HOME to another Java"
        )
    if spark.has_settings:
        raise StartArchiveError(
            f"No start archive for the Spark in {spark.home}: its settings folder {spark.settings} is on the class path, where Java accepts "
            "only an empty folder. Set SPARK_CONF_DIR to an empty folder, and Spark's settings on the operator or by properties_file"
        )


def _make(
    spark: Spark,
    folder: Path,
    environment: Mapping[str, str],
    time_limit: float,
    before_exec: Callable[[], None] | None,
    lock: int,
) -> Path:
    name = name_now(spark)
    _remove_of_killed(name, folder)
    with tempfile.TemporaryDirectory(prefix=f".work-{name.place}-", dir=folder) as work:
        draft = folder / f".draft-{name.place}-{os.getpid()}.jsa"
        try:
            run = _Run(spark, environment, Path(work), time_limit, before_exec, lock)
            conf = [part for key, value in _CONF.items() for part in ("--conf", f"{key}={value}")]
            run(options_to_make(str(draft), spark.java), *conf, str(_JOB), work)
            if not draft.exists():
                raise StartArchiveError(
                    f"{spark.java.program} ended without an error, but wrote no archive of the classes of {spark.home}. Set JAVA_HOME to "
                    "another Java"
                )
            run(options_to_check(str(draft), spark.java), "--version")
            return _publish(draft, folder, replace(name, size=draft.stat().st_size))
        finally:
            draft.unlink(missing_ok=True)


def _publish(draft: Path, folder: Path, name: ArchiveName) -> Path:
    """Rename a draft so that others find it, and remove the archives that it replaces. A JVM that uses one of them keeps it."""
    draft.chmod(0o644)
    sync(draft)
    draft.rename(folder / str(name))
    sync(folder)  # after a crash the rename itself may be missing
    _remove_old(name, folder)
    return folder / str(name)


def _remove_of_killed(name: ArchiveName, folder: Path) -> None:
    """Remove the drafts of killed processes. No other process makes one now, because this one holds the lock."""
    for path in folder.glob(f".draft-{name.place}-*"):
        path.unlink(missing_ok=True)
    for path in folder.glob(f".work-{name.place}-*"):
        shutil.rmtree(path, ignore_errors=True)


def _remove_old(name: ArchiveName, folder: Path) -> None:
    """Remove the archives that this one replaces, after some time: machines that share the folder may be updated one by one."""
    for path in folder.glob(f"{name.place}-*.jsa"):
        if path.name != str(name) and time.time() - path.stat().st_mtime > _KEPT:
            path.unlink(missing_ok=True)


def name_now(spark: Spark) -> ArchiveName:
    """Return the name of this Spark's archive, with size 0."""
    return archive_name(spark.java, spark.class_path, spark.jars, 0)


@contextmanager
def _lock(folder: Path, place: str) -> Iterator[int | None]:
    """Hold the lock of a place; None: another process holds it. There is no need to wait, because its archive serves all."""
    if not make_folder(folder):
        raise StartArchiveError(
            f"{folder} belongs to another user, or others can write to it, so it is not used: remove it, or {NAME_ANOTHER}"
        )
    with (folder / f".lock-{place}").open("a") as file:
        yield file.fileno() if took_lock(file.fileno()) else None


@dataclass(frozen=True, slots=True)
class _Run:
    """Starts Spark for an archive, at the lowest priority, and ends it if it takes too long."""

    spark: Spark
    environment: Mapping[str, str]
    directory: Path
    time_limit: float
    before_exec: Callable[[], None] | None
    lock: int

    def __call__(self, options: Sequence[str], *arguments: str) -> None:
        """Run spark-submit with these JVM options.

        Raises:
            StartArchiveError: it failed, or took too long.
        """
        environment = {name: value for name, value in self.environment.items() if name not in _LEFT_OUT}
        environment |= dict.fromkeys(("TMPDIR", "SPARK_LOCAL_DIRS"), str(self.directory))
        environment["SPARK_CONF_DIR"] = str(self.spark.settings)
        environment.setdefault("PYSPARK_PYTHON", sys.executable)
        environment[SUBMIT_OPTIONS] = with_options([*options, UNSEEN, f"-Djava.io.tmpdir={self.directory}"], None)
        environment[LAUNCHER_OPTIONS] = with_options([QUICK, UNSEEN], environment.get(LAUNCHER_OPTIONS))
        # The child holds the lock, too: it may still write to the draft after this process is gone.
        code, said = run_submit(
            self.spark.home, arguments, self.directory, environment, self.time_limit, self._in_child, [self.lock]
        )
        if code is None:
            raise StartArchiveError(
                f"Making the start archive took longer than {self.time_limit:g} s and was stopped. "
                "When the machine is less busy, type: kafka-offsets archive"
            )
        if code != 0:
            raise StartArchiveError(
                f"The run that makes a start archive ended with {code}. Correct what it reports below, then type: kafka-offsets archive\n"
                f"{tail_of(said)}"
            )

    def _in_child(self) -> None:
        os.nice(_LOWEST_PRIORITY)
        if self.before_exec is not None:
            self.before_exec()
