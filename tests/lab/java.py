"""Find Java, and the PySpark whose jars it runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path

LIGHT = ("-XX:+UseSerialGC", "-XX:-UsePerfData")
"""Options of a JVM that lives for minutes beside others: one thread collects its garbage, and no file tells other tools about it."""
SPARK = (*LIGHT, "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
"""Options of a Spark, which runs up to a hundred small jobs: one compiler is enough, and all that it compiles finds room."""


class JavaError(Exception):
    """There is no Java 17 or later here, or no PySpark."""


@cache
def java() -> str:
    """Return the path of `java`, version 17 or later: the one in JAVA_HOME, else the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    if program is None:
        where = f"in JAVA_HOME={home}" if home else "on PATH"
        raise JavaError(f"no java {where}: install Java 17 (Debian: openjdk-17-jre-headless)")
    said = java_version(program)
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < 17:
        raise JavaError(f"Java 17 or later is needed, {program} is: {said.strip()}")
    return program


@cache
def java_version(program: str) -> str:
    """Return what a Java says of itself."""
    return subprocess.run([program, "-version"], capture_output=True, text=True, check=True).stderr


def pyspark_home() -> Path:
    """Return the folder of the installed PySpark: what its scripts call SPARK_HOME."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise JavaError("PySpark is not installed here: `make setup`")
    return Path(found.origin).parent
