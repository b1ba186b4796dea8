"""How Sparks are started: their JVMs, the jars and the start archive that the operators use."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from airflow_kafka_offsets.adapters.machine.archives import find_archive
from airflow_kafka_offsets.adapters.machine.connector_jars import kept_jars
from airflow_kafka_offsets.adapters.machine.spark_home import LocalSpark, spark_at
from airflow_kafka_offsets.core.launch.start import LAUNCHER_OPTIONS
from airflow_kafka_offsets.spark.connector import avro_of, folder_name
from tests.lab.cache import PROVIDER_CACHE, one_at_a_time
from tests.lab.jars import fetch_for_launches, jars_for_launches
from tests.lab.java import SPARK, java, pyspark_home

PROGRAM = Path(sys.executable).parent / "kafka-offsets"
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
    """Return the cache folder of the operators, with the connector's jars and a start archive of PySpark."""
    folder = jars_for_launches()
    start_archive_of(pyspark_home())
    return folder


def start_archive_of(home: Path) -> Path:
    """Return the start archive of a Spark in the cache folder of the operators; it is made if there is none."""
    spark = _spark(home)
    with one_at_a_time("start archive"):
        archive = find_archive(spark, PROVIDER_CACHE)
        if archive is None:
            # Spark's scripts look for `python3` on PATH, and there want the one that has PySpark.
            environment = ours(PATH=f"{PROGRAM.parent}:{os.environ['PATH']}")
            command = [PROGRAM, "archive", "--to", PROVIDER_CACHE, "--spark-home", home]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(done.stderr)
            archive = find_archive(spark, PROVIDER_CACHE)
    assert archive is not None
    return archive


def spark_on_clusters() -> dict[str, str]:
    """Return the Spark settings with the JVM options of a cluster's drivers and executors."""
    return {f"spark.{who}.extraJavaOptions": " ".join(SPARK) for who in ("driver", "executor")}


def java_command(*jars: Path, home: Path | None = None) -> list[str]:
    """Return how a JVM is started with the jars of a Spark.

    Args:
        jars: Those that the Spark lacks.
        home: The Spark's home; by default, the installed PySpark.
    """
    return [java(), *SPARK, "-cp", ":".join([f"{home or pyspark_home()}/jars/*", *map(str, jars)])]


def connector_files() -> str:
    """Return the jars that the operators give to spark-submit, as a list with commas."""
    build = _spark(pyspark_home()).build
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


def _spark(home: Path) -> LocalSpark:
    spark = spark_at(home, ours())
    assert spark is not None
    return spark


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
