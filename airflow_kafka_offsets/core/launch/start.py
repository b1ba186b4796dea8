"""How a driver's JVM starts faster: with an archive of loaded and verified classes, and with a suitable compiler.

An archive (Java: class-data archive, AppCDS) fits one Java and one class path. The JVM checks both, and checksums. It does not check whether
the file is cut off (it dies by SIGBUS), or who wrote it. So the name of an archive holds its size, and its owner is checked before each use.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FORMAT = 2
"""The version of archives: it grows when their contents change, or how they are made."""

OLDEST_JAVA = 17
"""Older Javas have such archives, too, but were not tested. Spark 4 requires 17 anyway."""

QUICK_SPAN = 1_000_000
"""The largest window, in offsets, whose driver does not use the second compiler; docs/launchers/start.md has the measurements."""

SUBMIT_OPTIONS = "SPARK_SUBMIT_OPTS"
"""Environment variable: options of the driver's JVM. They come before those of ``spark.driver.extraJavaOptions``."""

LAUNCHER_OPTIONS = "SPARK_LAUNCHER_OPTS"
"""Environment variable: options of the short-lived JVM that composes the driver's command line."""

# If this package's options are added to these, a JVM may not start ("DynamicDumpSharedSpaces is unsupported when base CDS archive is not loaded").
_OF_ARCHIVES = ("SharedArchiveFile", "ArchiveClassesAtExit", "SharedClassListFile", "-Xshare", "-XX:AOT")
QUICK = "-XX:TieredStopAtLevel=1"
"""The JVM option by which only Java's first compiler runs."""
_LATE = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
"""Ten times Java's defaults (https://github.com/openjdk/jdk/blob/jdk-17-ga/src/hotspot/share/compiler/compiler_globals.hpp)."""
_ARCHIVE = re.compile(r"([0-9a-f]{16})-([0-9a-f]{16})-(0|[1-9][0-9]*)\.jsa")
UNSEEN = "-XX:-UsePerfData"
"""The JVM option without which HotSpot writes a file for tools that watch it, below `/tmp/hsperfdata_<user>`, wherever its temporary folder is."""
_RENAMED_LOG_IN = 24
"""From this Java on, the log of archives has another name: https://openjdk.org/jeps/483."""


@dataclass(frozen=True, slots=True)
class Java:
    """The Java that Spark's scripts start.

    Attributes:
        program: the path of `java`, symbolic links followed.
        version: 17 for any 17.x; None: not known, or not HotSpot, which has these options.
        release: its own description, which changes with each update.
    """

    program: str
    version: int | None
    release: str

    @property
    def has_archives(self) -> bool:
        """Whether it can use an archive. Another Java may exit because of the options."""
        return self.version is not None and self.version >= OLDEST_JAVA


@dataclass(frozen=True, slots=True)
class ArchiveName:
    """The name of an archive's file.

    Attributes:
        place: digest of the paths of Java and Spark that it is for.
        state: digest of their state when it was made.
        size: bytes of the file.
    """

    place: str
    state: str
    size: int

    def __str__(self) -> str:
        return f"{self.place}-{self.state}-{self.size}.jsa"


def archive_name(java: Java, class_path: Sequence[str], jars: Sequence[tuple[str, int, int]], size: int) -> ArchiveName:
    """Return the name of an archive.

    Args:
        java: the Java that makes and uses it.
        class_path: Spark's home as its scripts name it, after the folder of settings, if there is one.
        jars: name, bytes and time of modification (s) of each of Spark's jars.
        size: bytes of the archive.
    """
    state = [FORMAT, java.version, java.release, sorted(jars)]
    return ArchiveName(_digest([java.program, *class_path]), _digest(state), size)


def parse_archive_name(text: str) -> ArchiveName | None:
    """Read the name of a file; None: it is not the name of an archive.

    >>> parse_archive_name("0123456789abcdef-fedcba9876543210-1000.jsa").size
    1000
    >>> parse_archive_name(".draft-1.jsa") is None
    True
    """
    found = _ARCHIVE.fullmatch(text)
    return ArchiveName(found[1], found[2], int(found[3])) if found else None


def _digest(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def options_to_use(archive: str, java: Java) -> list[str]:
    """Return the JVM options that use an archive, and ignore one that does not fit."""
    # Without the checksums a JVM loads a damaged archive and dies. They cost less than a tenth of a second.
    return [f"-XX:SharedArchiveFile={archive}", "-XX:+VerifySharedSpaces", *_quietly(java)]


def options_to_make(draft: str, java: Java) -> list[str]:
    """Return the JVM options that write an archive when the JVM ends."""
    return [f"-XX:ArchiveClassesAtExit={draft}", QUICK, *_quietly(java)]


def options_to_check(archive: str, java: Java) -> list[str]:
    """Return the JVM options with which a JVM starts only if the archive fits it and is not damaged."""
    return [*options_to_use(archive, java), "-Xshare:on"]


def speak_of_archives(texts: Iterable[str]) -> bool:
    """Whether a user set options about archives. Then this package adds none.

    Args:
        texts: where these may be: options, settings, whole files.

    >>> speak_of_archives(["-Dx=1", "spark.driver.extraJavaOptions=-XX:ArchiveClassesAtExit=/tmp/mine.jsa"])
    True
    """
    return any(option in text for text in texts for option in _OF_ARCHIVES)


def _quietly(java: Java) -> list[str]:
    # A JVM does not start with an unknown name in this option.
    names = ["cds", "aot"] if (java.version or 0) >= _RENAMED_LOG_IN else ["cds"]
    return [f"-Xlog:{name}*=off" for name in names]


def compiler_options(span: int) -> list[str]:
    """Return the JVM options that choose the driver's compiler for a window of this many offsets.

    Java's first compiler compiles quickly. The second compiles slowly to faster code, which pays off when the same code runs for long. A small
    window goes without the second. A larger one gets it for code that ran ten times as often as Java requires by default.

    >>> compiler_options(10_000)
    ['-XX:TieredStopAtLevel=1']
    """
    return [QUICK] if span <= QUICK_SPAN else list(_LATE)


def with_options(ours: Sequence[str], given: str | None) -> str:
    """Return this package's options and the given ones, as Spark reads them. The given ones take precedence.

    >>> with_options(["-XX:SharedArchiveFile=/my cache/a.jsa"], "-Dx=1")
    "'-XX:SharedArchiveFile=/my cache/a.jsa' -Dx=1"
    """
    return " ".join([*map(shlex.quote, ours), *([given] if given else [])])
