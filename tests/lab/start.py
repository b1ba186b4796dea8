"""A Spark whose drivers start from an archive."""

from __future__ import annotations

import compileall
import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode

from airflow_kafka_offsets.adapters.machine.archives import archive_name, find_archive, start_options
from airflow_kafka_offsets.adapters.machine.connector_jars import kept_jars
from airflow_kafka_offsets.adapters.machine.spark_home import LocalSpark, spark_at
from airflow_kafka_offsets.core.launch.start import (
    LAUNCHER_OPTIONS,
    QUICK,
    SUBMIT_OPTIONS,
    compiler_options,
    with_options,
)
from airflow_kafka_offsets.spark.connector import avro_of, folder_name
from tests.lab.cache import CACHE, PROVIDER_CACHE, one_at_a_time, workshop
from tests.lab.jars import fetch_for_launches, jars_for_launches
from tests.lab.java import LIGHT, java, pyspark_home

PROGRAM = Path(sys.executable).parent / "kafka-offsets"
SHORT_LIFE = " ".join(LIGHT)
"""The options of a JVM that save a driver that lives for seconds a fifth of its CPU."""
MUCH_CODE = "-XX:ReservedCodeCacheSize=240m"
"""The option of a JVM with one compiler that runs a hundred jobs: in the 48 MB that it has otherwise, it throws code away and compiles it again."""

_SERVER = (*LIGHT, MUCH_CODE, QUICK)

NO_JOB = "true"
"""Instead of a Python: a program that ends well and runs no job. Then an archive holds what a driver loads before it has one: it is small, and soon
made."""


@dataclass(frozen=True)
class StartArchive:
    """An archive of what a driver loads before it has a job.

    Attributes:
        home: of its Spark.
        cache: the cache folder that holds it.
        output: of the command that made it.
        temporary: the folder that the command had for what is temporary.
        launcher: the options of the JVM that launched the driver.
    """

    home: Path
    cache: Path
    output: str
    temporary: Path
    launcher: str


def make_small_archive(folder: Path) -> StartArchive:
    """Make a small archive in a folder."""
    home, cache, temporary = home_like(folder / "spark"), folder / "cache", folder / "temporary"
    temporary.mkdir()
    no_job, launcher = folder / "no-job", folder / "launcher"
    no_job.write_text(f"#!/bin/sh\necho ${LAUNCHER_OPTIONS} > {launcher}\nexec {NO_JOB}\n")
    no_job.chmod(0o755)
    done = subprocess.run(
        [PROGRAM, "archive", "--spark-home", home, "--to", cache],
        env=ours(TMPDIR=str(temporary), PYSPARK_PYTHON=str(no_job), **{LAUNCHER_OPTIONS: "-Dmine=1"}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return StartArchive(home, cache, done.stdout, temporary, launcher.read_text())


def folder_for_launches() -> Path:
    """Return the cache folder of the operators, with all that makes launches cheap: the connector's jars and a start archive."""
    folder = jars_for_launches()
    if not _take_archive():
        _make_archive()
    return folder


def start_archive_of(home: Path) -> Path:
    """Return the start archive of a Spark in the cache folder of the operators; it is made if there is none."""
    found = find_archive(_spark(home), PROVIDER_CACHE)
    if found is None:
        _make_archive("--spark-home", str(home))
        found = find_archive(_spark(home), PROVIDER_CACHE)
    assert found is not None
    return found


def home_of_drivers() -> Path:
    """Return a home of the installed Spark whose drivers find PySpark compiled; the installed one itself, where files can't have a second name.

    The zip with PySpark, which `spark-submit` puts first on the path of a driver, has sources only. Each driver compiles them for itself: half a
    second. So does one of another Python than that which was first to ask for this home.
    """
    home = _home_of_same_files()
    if home is None:
        return pyspark_home()
    start_archive_of(home)
    modules = home / "python" / "lib" / "pyspark.zip"
    # Not while a driver makes the archive: it has the zip open.
    with one_at_a_time("start archive"), workshop("pyspark.zip") as work:
        with zipfile.ZipFile(modules) as packed:
            if "pyspark/__init__.pyc" in packed.namelist():
                return home
            packed.extractall(work / "modules")
        compileall.compile_dir(
            work / "modules",
            quiet=2,
            legacy=True,
            # PySpark's own tests, two thirds of it.
            rx=re.compile(f"{re.escape(str(work))}.*/tests/"),
            stripdir=work / "modules",
            prependdir=modules,
            # A zip has local times: in another time zone, a driver would take each module for an old one.
            invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
        )
        Path(shutil.make_archive(str(work / "pyspark"), "zip", work / "modules")).replace(modules)
    return home


def _take_archive() -> bool:
    """Give the installed Spark the archive of one that has the very same files, and so spare each new environment half a minute.

    Java takes an archive for jars of other names, too, if their files are the same ones.

    Returns:
        Whether there is one now. There is none where files can't have a second name.
    """
    mine = _spark()
    if find_archive(mine, PROVIDER_CACHE) is not None:
        return True
    home = _home_of_same_files()
    if home is None:
        return False
    archive = start_archive_of(home)
    name = f"{archive_name(mine)}-{archive.stat().st_size}.jsa"
    with one_at_a_time("start archive"), contextlib.suppress(FileExistsError):
        archive.with_name(name).hardlink_to(archive)
    return find_archive(mine, PROVIDER_CACHE) is not None


def _home_of_same_files() -> Path | None:
    """Return a home that stays when the environment of the installed Spark is removed; its files are second names of that one's files.

    All but the zip with PySpark, which `home_of_drivers` replaces.
    """
    homes = CACHE / "homes"
    files = [
        (jar.name, jar.stat().st_ino, jar.stat().st_mtime_ns) for jar in sorted((pyspark_home() / "jars").glob("*.jar"))
    ]
    home = homes / hashlib.sha256(repr(files).encode()).hexdigest()[:16]
    with one_at_a_time("homes"), workshop("homes") as work:
        if not home.exists():
            for other in homes.iterdir() if homes.exists() else ():
                # No environment has its files any more, nor has a cache of packages.
                if all(jar.stat().st_nlink == 1 for jar in (other / "jars").glob("*.jar")):
                    shutil.rmtree(other)
            try:
                shutil.copytree(pyspark_home(), work / "home", copy_function=os.link)
            except (OSError, shutil.Error):  # on another disk, for example
                return None
            homes.mkdir(exist_ok=True)
            (work / "home").rename(home)
    return home


def _make_archive(*arguments: str) -> None:
    # Spark's scripts look for `python3` on PATH, and there want the one that has PySpark.
    path = f"{PROGRAM.parent}:{os.environ['PATH']}"
    command = [PROGRAM, "archive", "--to", PROVIDER_CACHE, *arguments]
    with one_at_a_time("start archive"):
        done = subprocess.run(command, env=ours(PATH=path), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)


def start_variables(span: int) -> dict[str, str]:
    """Return the environment variables by which the operators start a driver cheaply, for a Spark that is started without them.

    Args:
        span: of the window, in offsets.
    """
    options = [*start_options(_spark(), PROVIDER_CACHE), *compiler_options(span)]
    return {SUBMIT_OPTIONS: with_options(options, None), LAUNCHER_OPTIONS: QUICK}


def quick_jvms(*, first: bool = False) -> dict[str, str]:
    """Return the Spark settings that let a cluster's drivers and executors start cheaply, for the few records of a test.

    Args:
        first: whether Spark's jars have to be put before what the cluster itself begins a class path with: Java takes the archive of the
            drivers only where the class path begins with theirs.
    """
    spark = _spark()
    settings = {"extraJavaOptions": with_options([*_SERVER, *start_options(spark, PROVIDER_CACHE)], None)}
    if first:
        settings["extraClassPath"] = _class_path(spark)
    return {f"spark.{who}.{name}": value for who in ("driver", "executor") for name, value in settings.items()}


def java_command(*jars: Path, home: Path | None = None) -> list[str]:
    """Return how a JVM is started with the jars of a Spark, and others after them, from the archive of its drivers, if there is one.

    Java takes an archive where the class path begins with the one that it was made with, which is that of Spark's scripts; else it
    goes on without.

    Args:
        jars: Those that the Spark lacks.
        home: Of the Spark; None: the installed PySpark.
    """
    spark = _spark(home)
    path = ["hive-jackson/*", str(spark.settings), _class_path(spark), *map(str, jars)]
    return [java(), *start_options(spark, PROVIDER_CACHE), *_SERVER, "-cp", ":".join(path)]


def connector_files() -> str:
    """Return the jars that the operators give to spark-submit, as a list with commas."""
    build = _spark().build
    jars = kept_jars(jars_for_launches() / "jars" / folder_name(build.connector))
    assert jars
    return ",".join(str(jar) for jar in jars if build.lacks(jar.name))


def fetched_for(home: Path) -> list[Path]:
    """Return the jars that the operators give to the spark-submit of a Spark: of its Kafka connector, and of its Avro."""
    build = _spark(home).build
    found: list[Path] = []
    for coordinates, options in ((build.connector, []), (avro_of(build.connector), ["--avro"])):
        folder = PROVIDER_CACHE / "jars" / folder_name(coordinates)
        if not folder.exists():
            fetch_for_launches(home, *options)
        jars = kept_jars(folder)
        assert jars
        found += [jar for jar in jars if build.lacks(jar.name)]
    return found


def _class_path(spark: LocalSpark) -> str:
    """Return the class path of Spark's own jars, in the order of its scripts."""
    return ":".join([*map(str, sorted((spark.home / "jars").glob("slf4j-api-*.jar"))), f"{spark.home}/jars/*"])


def _spark(home: Path | None = None) -> LocalSpark:
    found = spark_at(home or pyspark_home(), ours())
    assert found is not None
    return found


def home_like(home: Path) -> Path:
    """Make a home of Spark that has the jars of PySpark, and to which a test can add."""
    (home / "jars").mkdir(parents=True)
    for part in ("bin", "python"):
        (home / part).symlink_to(pyspark_home() / part)
    for jar in (pyspark_home() / "jars").iterdir():
        (home / "jars" / jar.name).symlink_to(jar)
    return home


def ours(**added: str) -> dict[str, str]:
    """Return an environment in which no one said anything to Spark."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return {**clean, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, **added}
