"""Where Spark is on this machine, and what lies in its home. Nothing of it is run but its own look for its home."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from airflow_kafka_offsets.core.properties import parse_properties

OF_OTHER_RUNS = (
    "SPARK_REMOTE",
    "SPARK_CONNECT_MODE_ENABLED",
    "DEPLOY_MODE",
    "MASTER",
    "PYSPARK_SUBMIT_ARGS",
    "PYTHONPATH",
)
"""Environment variables that would change a run of Spark which we start for ourselves, locally."""

_SECONDS = 30
"""How long Spark's script may look for its home; it takes a tenth of a second."""


def find_home(binary: str, environment: Mapping[str, str]) -> Path | None:
    """Return the home of the Spark that a binary starts; None: nothing says where it is.

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


def _ask_for_home(script: Path, environment: Mapping[str, str]) -> Path | None:
    """Let a PySpark that pip installed find its home, as its `find-spark-home` does: by the Python that drivers run on."""
    python = environment.get("PYSPARK_DRIVER_PYTHON") or environment.get("PYSPARK_PYTHON") or "python3"
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        said = subprocess.run(
            [*shlex.split(python), str(script)],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=_SECONDS,
        )
        return Path(said.stdout.strip())
    return None


def home_of_pyspark(environment: Mapping[str, str]) -> Path | None:
    """Return the home of the Spark that a session in this process starts; None: there is none (pyspark-client alone)."""
    if given := environment.get("SPARK_HOME"):
        return Path(given)
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    package = Path(found.origin).resolve().parent  # as pyspark itself has it, whose jars are then on the class path
    # Where pip puts a Spark with another Hadoop (PYSPARK_HADOOP_VERSION): https://issues.apache.org/jira/browse/SPARK-32017
    homes = (package / "spark-distribution", package)
    return next((home for home in homes if jar_names(home)), None)


def jar_names(home: Path) -> list[str]:
    """Return the names of Spark's own jars; none: this is no home of Spark."""
    with suppress(OSError):
        return [entry.name for entry in os.scandir(home / "jars") if entry.name.endswith(".jar")]
    return []


def default_properties(home: Path, environment: Mapping[str, str], file: str | None) -> dict[str, str]:
    """Return the properties that spark-submit reads from a file.

    Args:
        home: Spark's.
        environment: that it is started with.
        file: the one that it is told to read; None: its own ``spark-defaults.conf``.
    """
    folder = environment.get("SPARK_CONF_DIR") or home / "conf"
    try:
        text = Path(file or Path(folder, "spark-defaults.conf")).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}  # if it has to be there, spark-submit itself says so
    return {name: value.strip() for name, value in parse_properties(text).items()}
