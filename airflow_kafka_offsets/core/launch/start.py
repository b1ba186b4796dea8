"""The JVM options by which a driver starts faster: from an archive of loaded and verified classes, and with a suitable compiler."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

QUICK_SPAN = 1_000_000
"""The largest window, in offsets, whose driver does not use the second compiler; docs/launchers/start.md has the measurements."""

SUBMIT_OPTIONS = "SPARK_SUBMIT_OPTS"
"""Environment variable: options of the driver's JVM. They come before those of ``spark.driver.extraJavaOptions``."""

LAUNCHER_OPTIONS = "SPARK_LAUNCHER_OPTS"
"""Environment variable: options of the short-lived JVM that composes the driver's command line."""

QUICK = "-XX:TieredStopAtLevel=1"
"""The JVM option by which only Java's first compiler runs."""

_LATE = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
"""Ten times Java's defaults (https://github.com/openjdk/jdk/blob/jdk-17-ga/src/hotspot/share/compiler/compiler_globals.hpp)."""

# If this package's options are added to these, a JVM may not start ("DynamicDumpSharedSpaces is unsupported when base CDS archive is not loaded").
_OF_ARCHIVES = ("SharedArchiveFile", "ArchiveClassesAtExit", "SharedClassListFile", "-Xshare", "-XX:AOT")


def compiler_options(span: int) -> list[str]:
    """Return the JVM options that choose the driver's compiler for a window of this many offsets.

    Java's first compiler compiles quickly. The second compiles slowly to faster code, which pays off when the same code runs for long. A small
    window goes without the second. A larger one gets it for code that ran ten times as often as Java requires by default.

    >>> compiler_options(10_000)
    ['-XX:TieredStopAtLevel=1']
    """
    return [QUICK] if span <= QUICK_SPAN else list(_LATE)


def archive_options(archive: str, java: int) -> list[str]:
    """Return the options with which a JVM of this version of Java uses an archive, and ignores one that does not fit."""
    # Without the checksums a JVM loads a damaged archive and dies. They cost less than a tenth of a second.
    return [f"-XX:SharedArchiveFile={archive}", "-XX:+VerifySharedSpaces", *quiet_options(java)]


def quiet_options(java: int) -> list[str]:
    """Return the options with which a JVM of this version of Java logs nothing about archives. It does not start with an unknown name here.

    >>> quiet_options(24)  # https://openjdk.org/jeps/483 renames the log
    ['-Xlog:cds*=off', '-Xlog:aot*=off']
    """
    return [f"-Xlog:{name}*=off" for name in (["cds", "aot"] if java >= 24 else ["cds"])]


def speak_of_archives(texts: Iterable[str]) -> bool:
    """Whether a user set options about archives, in options, settings or whole files. Then this package adds none.

    >>> speak_of_archives(["-Dx=1", "spark.driver.extraJavaOptions=-XX:ArchiveClassesAtExit=/tmp/mine.jsa"])
    True
    """
    return any(option in text for text in texts for option in _OF_ARCHIVES)


def with_options(ours: Sequence[str], given: str | None) -> str:
    """Return this package's options and the given ones, as Spark reads them. The given ones take precedence.

    >>> with_options(["-XX:SharedArchiveFile=/my cache/a.jsa"], "-Dx=1")
    "'-XX:SharedArchiveFile=/my cache/a.jsa' -Dx=1"
    """
    return " ".join([*map(shlex.quote, ours), *([given] if given else [])])
