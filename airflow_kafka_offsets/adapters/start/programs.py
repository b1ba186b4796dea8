"""Which Java and which Spark would be started, found as Spark's scripts find them, and without a process."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from airflow_kafka_offsets.core.start import Java


@dataclass(frozen=True, slots=True)
class Spark:
    """A Spark on this machine.

    Attributes:
        home: as its scripts have it.
        java: that they would start.
        settings: the folder that stands on the class path before Spark's jars, whether it is there or not.
    """

    home: Path
    java: Java
    settings: Path

    @property
    def has_settings(self) -> bool:
        """Whether the folder of settings is there and holds anything: then Java makes and uses no archive."""
        try:
            return any(self.settings.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return self.settings.exists()
        except OSError:
            return True

    @property
    def jars(self) -> list[tuple[str, int, int]]:
        """Name, bytes and time of modification (ns) of each jar."""
        found = []
        with os.scandir(self.home / "jars") as entries:
            for entry in entries:
                status = entry.stat()
                found.append((entry.name, status.st_size, status.st_mtime_ns))
        return found


def find_spark(environment: Mapping[str, str], program: str = "spark-submit") -> Spark | None:
    """Return the Spark that a program would start; None: that can't be said without starting it.

    Args:
        environment: of the process that is to start it.
        program: name or path.
    """
    home = find_spark_home(environment, program)
    java = find_java(environment)
    if home is None or java is None:
        return None
    return Spark(home, java, Path(environment.get("SPARK_CONF_DIR") or home / "conf"))


def find_spark_home(environment: Mapping[str, str], program: str = "spark-submit") -> Path | None:
    """Return Spark's home as its script `find-spark-home` works it out."""
    given = environment.get("SPARK_HOME")
    if given:
        return _checked_home(Path(given))
    path = shutil.which(program, path=environment.get("PATH"))
    if path is None:
        return None
    scripts = Path(path).parent.absolute()
    if not (scripts / "find_spark_home.py").exists():
        return _checked_home(scripts.parent)
    # Installed by pip: its Python is asked where pyspark is, and that is beside the scripts.
    homes = [_checked_home(home) for home in scripts.parent.glob("lib/python*/site-packages/pyspark")]
    return homes[0] if len(homes) == 1 else None


def _checked_home(home: Path) -> Path | None:
    return home if (home / "jars").is_dir() else None


def find_java(environment: Mapping[str, str]) -> Java | None:
    """Return the Java that Spark's scripts would start: that of JAVA_HOME, else the first on the path; None: there is none."""
    home = environment.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH"))
    if program is None or not os.access(program, os.X_OK):
        return None
    real = Path(os.path.realpath(program))
    release = _release(real.parent.parent)
    return Java(str(real), _version(release), release)


def _release(java_home: Path) -> str:
    """Return what a Java says of itself; nothing if it is none, but a script that picks one."""
    try:
        return (java_home / "release").read_text(errors="replace")
    except OSError:
        return ""


def _version(release: str) -> int | None:
    facts = dict(re.findall(r'^(\w+)="(.*)"$', release, re.MULTILINE))
    if facts.get("JVM_VARIANT", "hotspot").lower() != "hotspot":
        return None
    # "17.0.15", "25", "21-ea", and "1.8.0_402" before Java 9.
    found = re.match(r"(?:1\.)?(\d+)", facts.get("JAVA_VERSION", ""))
    return int(found[1]) if found else None
