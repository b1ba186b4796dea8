"""A Spark whose drivers start from an archive."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.lab.java import pyspark_home

PROGRAM = Path(sys.executable).parent / "kafka-offsets"


@dataclass(frozen=True)
class StartArchive:
    """An archive that two processes made at one moment.

    Attributes:
        home: of its Spark.
        cache: the cache folder that holds it.
        said: what each of the two said.
    """

    home: Path
    cache: Path
    said: list[str]


def make_by_two(folder: Path) -> StartArchive:
    """Let two processes make an archive at one moment, in a folder."""
    home, cache = home_like(folder / "spark"), folder / "cache"
    command = [PROGRAM, "archive", "--spark-home", home, "--to", cache]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    makers = [subprocess.Popen(command, env=ours(), text=True, **pipes) for _ in range(2)]  # type: ignore[call-overload]
    said = [maker.communicate()[0] for maker in makers]
    if any(maker.returncode for maker in makers):
        raise RuntimeError("\n".join(said))
    return StartArchive(home, cache, said)


def home_like(home: Path) -> Path:
    """Make a home of Spark that has the jars of PySpark, and to which a test can add."""
    (home / "jars").mkdir(parents=True)
    for part in ("bin", "python"):
        (home / part).symlink_to(pyspark_home() / part)
    for jar in (pyspark_home() / "jars").iterdir():
        (home / "jars" / jar.name).symlink_to(jar)
    return home


def ours(**added: str) -> dict[str, str]:
    """Return an environment in which nobody said anything to Spark."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return {**clean, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, **added}
