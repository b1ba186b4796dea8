"""Sparks of other versions than the installed PySpark: each in a home of its own below the cache, with what fits it, as a cluster has it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.cache import CACHE, one_at_a_time, workshop
from tests.lab.jars import (
    DELTA,
    DELTA_3,
    DELTA_3_SCALA_13,
    DELTA_41,
    DELTA_42,
    ICEBERG,
    ICEBERG_3,
    ICEBERG_3_SCALA_13,
    ICEBERG_41,
    SPARK_3_SCALA_13,
    JarError,
    fetch,
)
from tests.lab.java import pyspark_home
from tests.lab.start import fetched_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.lab.jars import JarSet

_OF_CLIENTS = "zstandard==0.25.0"
"""What clients of Spark Connect need since Spark 4.1."""


@dataclass(frozen=True)
class OtherSpark:
    """A Spark, and what was built for it.

    Args:
        version: PySpark's, which brings the Spark.
        scala: What it was built for.
        delta: The jars of Delta; None if there are none for this Spark.
        iceberg: The jar of Iceberg; None if there is none for this Spark.
        build: All its own jars, if they are not those of PySpark.
        driver: The name of the Python that runs its drivers; by default, the one that runs this.
    """

    version: str
    scala: str
    delta: JarSet | None
    iceberg: JarSet | None
    build: JarSet | None = None
    driver: str | None = None

    @property
    def name(self) -> str:
        """How it is called."""
        return "-".join([self.version, "scala", self.scala, *([self.driver] if self.driver else [])])

    @property
    def has_connect(self) -> bool:
        """Whether this package supports its Spark Connect."""
        return not self.version.startswith("3.")

    @property
    def program_of_drivers(self) -> str:
        """The path of the Python that runs its drivers."""
        if self.driver is None:
            return sys.executable
        found = shutil.which(self.driver)
        # A shim of pyenv may be on the PATH without a Python behind it.
        if found is None or subprocess.run([found, "--version"], capture_output=True, check=False).returncode != 0:
            raise JarError(
                f"the drivers of Spark {self.name} run on {self.driver}, and no {self.driver} on the PATH starts: install it and put its folder "
                "on the PATH, or leave this Spark out with --only"
            )
        return found

    @property
    def python(self) -> Path:
        """The folder with PySpark, for the path of a Python; installed when someone asks for the first time."""
        if self.version == version("pyspark"):
            return pyspark_home().parent
        return _kept(f"pyspark-{self.version}", lambda folder: _install(f"pyspark=={self.version}", folder))

    @property
    def python_of_clients(self) -> list[Path]:
        """The folders with PySpark, and with what its client of Spark Connect needs and that of the installed PySpark does not."""
        # The name has the version of Python: this package is compiled.
        name = f"{_OF_CLIENTS.replace('==', '-')}-{sys.implementation.cache_tag}"
        return [self.python, _kept(name, lambda folder: _install(_OF_CLIENTS, folder))]

    @property
    def home(self) -> Path:
        """The folder that its scripts call SPARK_HOME."""
        pyspark, build = self.python / "pyspark", self.build
        if build is None:
            return pyspark
        return _kept(f"spark-{self.name}", lambda folder: _put_together(folder, pyspark, fetch(build)))

    @property
    def tables(self) -> dict[str, str]:
        """The coordinates of Delta and Iceberg that were built for it."""
        sets = {"delta": self.delta, "iceberg": self.iceberg}
        return {name: jar_set.roots[0] for name, jar_set in sets.items() if jar_set is not None}

    def launch_jars(self) -> list[Path]:
        """Return the jars of its Kafka connector and its Avro that it lacks, as `kafka-offsets jars` fetches them."""
        return fetched_for(self.home)

    def table_jars(self) -> list[Path]:
        """Return the jars of Delta and Iceberg that were built for it."""
        return [jar for tables in (self.delta, self.iceberg) if tables for jar in fetch(tables)]

    def facts(self) -> dict[str, str]:
        """Return the versions and coordinates of what belongs together."""
        names = [jar.name for jar in self.launch_jars()]
        [kafka] = [found[1] for name in names if (found := re.search(r"kafka-clients-(.*)\.jar", name))]
        return {"spark": self.version, "scala": self.scala, "kafka": kafka, **self.tables}


SPARK_3 = OtherSpark("3.5.7", "2.12", DELTA_3, ICEBERG_3)
SPARKS = (
    SPARK_3,
    OtherSpark("3.5.7", "2.12", DELTA_3, ICEBERG_3, driver="python3.8"),
    OtherSpark("3.5.4", "2.13", DELTA_3_SCALA_13, ICEBERG_3_SCALA_13, build=SPARK_3_SCALA_13),
    OtherSpark(version("pyspark"), "2.13", DELTA, ICEBERG),
    OtherSpark("4.1.1", "2.13", DELTA_41, ICEBERG_41),
    OtherSpark("4.2.0", "2.13", DELTA_42, None),
)


def _kept(name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder of the cache; `make` makes it, somewhere else, if it is not there."""
    folder = CACHE / name
    if not folder.exists():
        with one_at_a_time(name):
            # Meanwhile, whoever was first has got it.
            if not folder.exists():
                with workshop(name) as work:
                    make(work / name)
                    (work / name).rename(folder)
    return folder


def _install(package: str, folder: Path) -> None:
    # Without dependencies: Spark brings Py4J itself. And without a cache: it would keep the same gigabyte in three forms.
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-cache-dir", "--no-compile"]
    command += ["--target", str(folder), package]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise JarError(f"could not install {package}:\n{done.stdout}")


def _put_together(folder: Path, pyspark: Path, jars: list[Path]) -> None:
    """Make a home of scripts and Python files of PySpark, and other jars."""
    (folder / "jars").mkdir(parents=True)
    for part in ("bin", "python"):
        (folder / part).symlink_to(pyspark / part)
    for jar in jars:
        (folder / "jars" / jar.name).symlink_to(jar)
