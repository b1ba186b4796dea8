"""Which Java Spark's scripts start, and what is on its class path."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from airflow_kafka_offsets.core.launch.start import Java


@dataclass(frozen=True, slots=True)
class Spark:
    """A Spark on this machine.

    Attributes:
        home: its folder, as its scripts name it.
        java: the Java that they start.
        settings: the folder on the class path before Spark's jars. It may not exist.
    """

    home: Path
    java: Java
    settings: Path

    @property
    def has_settings(self) -> bool:
        """Whether the folder of settings exists and is not empty. Then Java makes and uses no archive."""
        try:
            return any(self.settings.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return self.settings.exists()
        except OSError:
            return True

    @property
    def class_path(self) -> list[str]:
        """The folders on the class path before the jars, and the home of the jars. Java compares them by name."""
        return [str(path) for path in (self.settings, self.home) if path == self.home or path.is_dir()]

    @property
    def jars(self) -> list[tuple[str, int, int]]:
        """Name, bytes and time of modification of each jar. In whole seconds, because layers of an image keep no fractions."""
        found = []
        with os.scandir(self.home / "jars") as entries:
            for entry in entries:
                status = entry.stat()
                found.append((entry.name, status.st_size, int(status.st_mtime)))
        return found


def spark_at(home: Path | None, environment: Mapping[str, str]) -> Spark | None:
    """Return the Spark in a folder; None: there is none, or no Java for it.

    Args:
        home: its folder, as its scripts name it; None: not known.
        environment: of the process that starts it.
    """
    java = find_java(environment)
    if home is None or java is None or not (home / "jars").is_dir():
        return None
    return Spark(home, java, Path(environment.get("SPARK_CONF_DIR") or home / "conf"))


def find_java(environment: Mapping[str, str]) -> Java | None:
    """Return the Java that Spark's scripts start: that of JAVA_HOME, else the first on the path; None: there is none."""
    home = environment.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH"))
    if program is None or not os.access(program, os.X_OK):
        return None
    real = Path(os.path.realpath(program))
    release = _release(real.parent.parent)
    return Java(str(real), _version(release), release)


def _release(java_home: Path) -> str:
    """Return a Java's description of itself; empty if it has none, for example a script that chooses a Java."""
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
