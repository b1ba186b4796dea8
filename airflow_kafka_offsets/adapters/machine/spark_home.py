"""Spark and Java on this machine. Only Spark's script that finds its home is run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from airflow_kafka_offsets.core.launch.properties import parse_properties
from airflow_kafka_offsets.spark.connector import SparkBuild, spark_build

_SECONDS = 30
"""Seconds that Spark's script may take to find its home. It takes a tenth of a second."""

_OF_PYTHON = ("PATH", "PYTHON", "PYSPARK_")
"""What the names of the environment variables begin with that choose a Python, and its packages."""

_homes: dict[tuple[Path, frozenset[tuple[str, str]]], Path] = {}
"""The homes by Spark's script, for the life of this process: a launch needs one three times, and each costs the start of a Python."""


@dataclass(frozen=True, slots=True)
class Java:
    """The Java that Spark's scripts start.

    Attributes:
        program: the path of `java`, symbolic links followed.
        version: 17 for any 17.x; 0 if it is not known, or not HotSpot's.
        release: its own description, which changes with each update.
    """

    program: str
    version: int
    release: str

    @property
    def has_archives(self) -> bool:
        """Whether it can use an archive. Older ones have archives, too, but were not tested. Another Java may exit because of the options."""
        return self.version >= 17

    def __str__(self) -> str:
        return f"{self.program} ({self.version or 'unknown'})"


@dataclass(frozen=True, slots=True)
class LocalSpark:
    """A Spark on this machine.

    Attributes:
        home: its folder, as its scripts name it.
        build: its versions, from the names of its jars.
        environment: that it is started with.
    """

    home: Path
    build: SparkBuild
    environment: Mapping[str, str]

    @property
    def java(self) -> Java | None:
        """The Java that its scripts start, or None if there is none."""
        return find_java(self.environment)

    @property
    def settings(self) -> Path:
        """The folder on the class path before Spark's jars. It may not exist."""
        return Path(self.environment.get("SPARK_CONF_DIR") or self.home / "conf")

    @property
    def has_settings(self) -> bool:
        """Whether the folder of settings holds anything. Then Java makes and uses no archive."""
        try:
            return any(self.settings.iterdir())
        except OSError:
            return self.settings.exists()

    def properties(self, file: str | None = None) -> dict[str, str]:
        """Return the properties that spark-submit reads from its ``--properties-file``; None for Spark's own ``spark-defaults.conf``."""
        try:
            text = Path(file or self.settings / "spark-defaults.conf").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return {}  # if the file is required, spark-submit reports it
        return {name: value.strip() for name, value in parse_properties(text).items()}


def spark_at(home: Path | None, environment: Mapping[str, str]) -> LocalSpark | None:
    """Return the Spark in a folder, or None if no jar there shows its version."""
    build = spark_build(jar_names(home)) if home else None
    return LocalSpark(home, build, environment) if home and build else None


def local_spark(binary: str, environment: Mapping[str, str]) -> LocalSpark | None:
    """Return the Spark that a binary such as ``spark-submit`` starts in an environment, or None if it is not found."""
    return spark_at(find_home(binary, environment), environment)


def session_spark(environment: Mapping[str, str]) -> LocalSpark | None:
    """Return the Spark that a session in this process starts, or None if there is none."""
    return spark_at(home_of_pyspark(environment), environment)


def find_home(binary: str, environment: Mapping[str, str]) -> Path | None:
    """Return the home of the Spark that a binary such as ``spark-submit`` starts in an environment, or None if it is not found."""
    if given := environment.get("SPARK_HOME"):
        return Path(given)
    program = shutil.which(binary, path=environment.get("PATH"))
    if program is None:
        return None
    folder = Path(program).absolute().parent
    if (folder / "find_spark_home.py").exists():
        return _home_by_script(folder / "find_spark_home.py", environment)
    homes = (folder.parent, Path(program).resolve().parent.parent)
    return next((home for home in homes if jar_names(home)), None)


def python_without_spark(binary: str, environment: Mapping[str, str]) -> str | None:
    """Return the Python that pip's PySpark uses to find its home, if that Python has no PySpark: then a launch fails.

    Returns:
        Such as ``python3``, or ``PYSPARK_PYTHON=/opt/python``. None if it has PySpark, is not used, or does not answer.
    """
    program = shutil.which(binary, path=environment.get("PATH"))
    script = Path(program).absolute().parent / "find_spark_home.py" if program else None
    if environment.get("SPARK_HOME") or script is None or not script.exists():
        return None
    name, python = _python_of_drivers(environment)
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        try:
            done = _run_script(python, script, environment)
        except FileNotFoundError:
            return name
        return None if done.returncode == 0 else name
    return None


def _python_of_drivers(environment: Mapping[str, str]) -> tuple[str, str]:
    for variable in ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"):
        if python := environment.get(variable):
            return f"{variable}={python}", python
    return "python3", "python3"


def _run_script(python: str, script: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*shlex.split(python), str(script)],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )


def _home_by_script(script: Path, environment: Mapping[str, str]) -> Path | None:
    """Find the home of pip's PySpark as its `find-spark-home` does: with the Python that drivers run on, once for each environment."""
    key = (script, frozenset(item for item in environment.items() if item[0].startswith(_OF_PYTHON)))
    if key not in _homes:
        with suppress(OSError, ValueError, subprocess.SubprocessError):
            done = _run_script(_python_of_drivers(environment)[1], script, environment)
            if done.returncode == 0:
                _homes[key] = Path(done.stdout.strip())
    return _homes.get(key)


def home_of_pyspark(environment: Mapping[str, str]) -> Path | None:
    """Return the home of the Spark that a session in this process starts, or None with pyspark-client alone."""
    if given := environment.get("SPARK_HOME"):
        return Path(given)
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    # Resolved, as pyspark does it: the class path has its jars by this name.
    package = Path(spec.origin).resolve().parent
    # pip puts a Spark with another Hadoop (PYSPARK_HADOOP_VERSION) here: https://issues.apache.org/jira/browse/SPARK-32017
    homes = (package / "spark-distribution", package)
    return next((home for home in homes if jar_names(home)), None)


def pyspark_version() -> str | None:
    """Return the version of the Python files that this process imports as pyspark, or None if they are in an archive, or absent."""
    spec = find_spec("pyspark")
    with suppress(OSError):
        if spec is not None and spec.origin is not None:
            text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8", errors="replace")
            version = re.search(r"""^__version__\b[^=]*=\s*["']([^"']+)""", text, re.MULTILINE)
            return version[1] if version else None
    return None


def jar_names(home: Path) -> list[str]:
    """Return the names of Spark's own jars; empty if this folder is not a home of Spark."""
    with suppress(OSError):
        return [entry.name for entry in os.scandir(home / "jars") if entry.name.endswith(".jar")]
    return []


def find_java(environment: Mapping[str, str]) -> Java | None:
    """Return the Java that Spark's scripts start: that of JAVA_HOME, else the first on the path. None if there is none."""
    home = environment.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH"))
    if program is None or not os.access(program, os.X_OK):
        return None
    real = Path(os.path.realpath(program))
    try:
        release = (real.parent.parent / "release").read_text(errors="replace")
    except OSError:  # a script that chooses a Java, for example
        release = ""
    facts = dict(re.findall(r'^(\w+)="(.*)"$', release, re.MULTILINE))
    # "17.0.15", "25", "21-ea", and "1.8.0_402" before Java 9.
    version = re.match(r"(?:1\.)?(\d+)", facts.get("JAVA_VERSION", ""))
    is_hotspot = facts.get("JVM_VARIANT", "hotspot").lower() == "hotspot"
    return Java(str(real), int(version[1]) if version and is_hotspot else 0, release)
