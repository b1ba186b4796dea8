"""Where Spark is on this machine, and what is in its home. Only Spark's script that finds its home is run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from airflow_kafka_offsets.core.launch.properties import parse_properties

_SECONDS = 30
"""Seconds that Spark's script may take to find its home. It takes a tenth of a second."""

_OF_PYTHON = ("PATH", "PYTHON", "PYSPARK_")
"""What the names of the environment variables begin with that choose a Python, and what it finds."""

_homes: dict[tuple[Path, frozenset[tuple[str, str]]], Path] = {}
"""What Spark's script found, for the life of this process: a launch asks three times, and each time costs the start of a Python."""


def find_home(binary: str, environment: Mapping[str, str]) -> Path | None:
    """Return the home of the Spark that a binary starts; None: not found.

    Args:
        binary: such as ``spark-submit``.
        environment: that it is started with.
    """
    if given := environment.get("SPARK_HOME"):
        return Path(given)
    program = shutil.which(binary, path=environment.get("PATH"))
    if program is None:
        return None
    folder = Path(program).absolute().parent
    if (folder / "find_spark_home.py").exists():
        return _ask_for_home(folder / "find_spark_home.py", environment)
    homes = (folder.parent, Path(program).resolve().parent.parent)
    return next((home for home in homes if jar_names(home)), None)


def python_without_spark(binary: str, environment: Mapping[str, str]) -> str | None:
    """Return the name of the Python that pip's PySpark uses to find its home, if that Python has no PySpark: then a launch fails.

    Args:
        binary: such as ``spark-submit``.
        environment: that it is started with.

    Returns:
        Such as ``python3``, or ``PYSPARK_PYTHON=/opt/python``. None: it has PySpark, is not used, or does not answer.
    """
    program = shutil.which(binary, path=environment.get("PATH"))
    script = Path(program).absolute().parent / "find_spark_home.py" if program else None
    if environment.get("SPARK_HOME") or script is None or not script.exists():
        return None
    name, python = _python_asked(environment)
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        try:
            said = _ask(python, script, environment)
        except FileNotFoundError:
            return name
        return None if said.returncode == 0 else name
    return None


def _python_asked(environment: Mapping[str, str]) -> tuple[str, str]:
    for variable in ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"):
        if python := environment.get(variable):
            return f"{variable}={python}", python
    return "python3", "python3"


def _ask(python: str, script: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*shlex.split(python), str(script)],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )


def _ask_for_home(script: Path, environment: Mapping[str, str]) -> Path | None:
    """Find the home of pip's PySpark as its `find-spark-home` does: with the Python that drivers run on. It is asked once for each environment."""
    asked = (script, frozenset(item for item in environment.items() if item[0].startswith(_OF_PYTHON)))
    if asked not in _homes:
        with suppress(OSError, ValueError, subprocess.SubprocessError):
            said = _ask(_python_asked(environment)[1], script, environment)
            if said.returncode == 0:
                _homes[asked] = Path(said.stdout.strip())
    return _homes.get(asked)


def home_of_pyspark(environment: Mapping[str, str]) -> Path | None:
    """Return the home of the Spark that a session in this process starts; None: there is none (only pyspark-client)."""
    if given := environment.get("SPARK_HOME"):
        return Path(given)
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    # Resolved, as pyspark does it: the class path has its jars by this name.
    package = Path(found.origin).resolve().parent
    # pip puts a Spark with another Hadoop (PYSPARK_HADOOP_VERSION) here: https://issues.apache.org/jira/browse/SPARK-32017
    homes = (package / "spark-distribution", package)
    return next((home for home in homes if jar_names(home)), None)


def pyspark_version() -> str | None:
    """Return the version of the Python files that this process imports as pyspark; None: they are in an archive, or absent."""
    found = find_spec("pyspark")
    with suppress(OSError):
        if found is not None and found.origin is not None:
            said = Path(found.origin).with_name("version.py").read_text(encoding="utf-8", errors="replace")
            version = re.search(r"""^__version__\b[^=]*=\s*["']([^"']+)""", said, re.MULTILINE)
            return version[1] if version else None
    return None


def jar_names(home: Path) -> list[str]:
    """Return the names of Spark's own jars; empty: this folder is not a home of Spark."""
    with suppress(OSError):
        return [entry.name for entry in os.scandir(home / "jars") if entry.name.endswith(".jar")]
    return []


def default_properties(home: Path, environment: Mapping[str, str], file: str | None) -> dict[str, str]:
    """Return the properties that spark-submit reads from a file.

    Args:
        home: the home of Spark.
        environment: that it is started with.
        file: the ``--properties-file``; None: Spark's own ``spark-defaults.conf``.
    """
    folder = environment.get("SPARK_CONF_DIR") or home / "conf"
    try:
        text = Path(file or Path(folder, "spark-defaults.conf")).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}  # if the file is required, spark-submit reports it
    return {name: value.strip() for name, value in parse_properties(text).items()}
