"""Find Java, and the PySpark whose jars it runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path

LIGHT = (
    *("-XX:+UseSerialGC", "-XX:-UsePerfData", "-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"),
    "-XX:ArchiveRelocationMode=0",
)
"""Options of a JVM of the lab, which lives for minutes beside others. One thread collects its garbage. It writes no file for tools that watch
it, for which it would wake up twenty times a second. It does not check the code of jars, which is a tenth of a Spark's start. And it has
an archive of classes at the address that the archive was made for. By default Java takes another one, against attackers, and changes each address
in it."""
CHECKED = "-XX:+BytecodeVerificationRemote"
"""What has to follow them where a JVM writes an archive: what is in one was checked."""


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
