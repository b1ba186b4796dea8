"""What makes a driver's JVM start cheaply: an archive of classes that it need not load and verify again, and which compiler it has.

An archive (Java calls it a class-data archive, AppCDS) fits one Java and one class path. The JVM looks at both, and at the checksums of what it
maps; it can't be trusted with a file that is shorter than it says of itself (it dies by SIGBUS), or that somebody else wrote. So the name of an
archive says how long it is, and those who use one look at its owner first.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from airflow_kafka_offsets.core.launch.start_choice import Compiler

FORMAT = 2
"""Of archives: counted up when what they hold, or how they are made, changes."""

OLDEST_JAVA = 17
"""Archives of an application's classes are older; but no older Java was tried, and Spark 4 takes none."""

QUICK_SPAN = 1_000_000
"""The largest window, in offsets, whose driver does without the second compiler; see docs/launchers/start.md for what was measured."""

SUBMIT_OPTIONS = "SPARK_SUBMIT_OPTS"
"""Environment variable: options of the driver's JVM that spark-submit starts, before those of ``spark.driver.extraJavaOptions``."""

LAUNCHER_OPTIONS = "SPARK_LAUNCHER_OPTS"
"""Environment variable: options of the short JVM that works out how to start that one."""

# With ours beside them a JVM may not start ("DynamicDumpSharedSpaces is unsupported when base CDS archive is not loaded").
_OF_ARCHIVES = ("SharedArchiveFile", "ArchiveClassesAtExit", "SharedClassListFile", "-Xshare", "-XX:AOT")
_QUICK = "-XX:TieredStopAtLevel=1"
_LATE = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
"""Ten times what Java has by itself (https://github.com/openjdk/jdk/blob/jdk-17-ga/src/hotspot/share/compiler/compiler_globals.hpp)."""
_RENAMED_LOG_IN = 24
"""From this Java on, what is said of archives has another name: https://openjdk.org/jeps/483."""


@dataclass(frozen=True, slots=True)
class Java:
    """The Java that Spark's scripts would start.

    Attributes:
        program: `java` itself, symbolic links followed.
        version: 17 for any 17.x; None: not known, or not of the kind (HotSpot) whose options these are.
        release: what it says of itself: an update changes it.
    """

    program: str
    version: int | None
    release: str

    @property
    def has_archives(self) -> bool:
        """Whether it can use an archive: another one may die of the very options."""
        return self.version is not None and self.version >= OLDEST_JAVA


@dataclass(frozen=True, slots=True)
class ArchiveName:
    """The name of an archive's file.

    Attributes:
        place: which Java and which Spark it is for.
        state: what both were when it was made.
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
        java: that makes and uses it.
        class_path: Spark's home as its scripts have it, and the folder of settings before it, if it is there.
        jars: name, bytes and time of modification (s) of each of Spark's jars.
        size: bytes of the archive.
    """
    state = [FORMAT, java.version, java.release, sorted(jars)]
    return ArchiveName(_digest([java.program, *class_path]), _digest(state), size)


def parse_archive_name(text: str) -> ArchiveName | None:
    """Read the name of a file; None: it is no archive's.

    >>> parse_archive_name("0123456789abcdef-fedcba9876543210-1000.jsa").size
    1000
    >>> parse_archive_name(".draft-1.jsa") is None
    True
    """
    place, state, size = [*text.removesuffix(".jsa").split("-"), "", ""][:3]
    is_whole = size.isascii() and size.isdigit()
    name = ArchiveName(place, state, int(size)) if is_whole else None
    return name if name is not None and str(name) == text else None


def _digest(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def options_to_use(archive: str, java: Java) -> list[str]:
    """Return the JVM options that use an archive, and go on without a word where it does not fit."""
    # Without the check of its sums a JVM believes a damaged archive, and dies of it. It costs less than a tenth of a second.
    return [f"-XX:SharedArchiveFile={archive}", "-XX:+VerifySharedSpaces", *_quietly(java)]


def options_to_make(draft: str, java: Java) -> list[str]:
    """Return the JVM options that write an archive when the JVM ends."""
    return [f"-XX:ArchiveClassesAtExit={draft}", _QUICK, *_quietly(java)]


def options_to_check(archive: str, java: Java) -> list[str]:
    """Return the JVM options with which a JVM does not start unless the archive fits it and is whole."""
    return [*options_to_use(archive, java), "-Xshare:on"]


def speak_of_archives(texts: Iterable[str]) -> bool:
    """Whether somebody chose about archives themselves: then nothing is added to it.

    Args:
        texts: where they may have said so: options, settings, whole files.

    >>> speak_of_archives(["-Dx=1", "spark.driver.extraJavaOptions=-XX:ArchiveClassesAtExit=/tmp/mine.jsa"])
    True
    """
    return any(option in text for text in texts for option in _OF_ARCHIVES)


def _quietly(java: Java) -> list[str]:
    # A name that a JVM does not know in this option ends it.
    names = ["cds", "aot"] if (java.version or 0) >= _RENAMED_LOG_IN else ["cds"]
    return [f"-Xlog:{name}*=off" for name in names]


def compiler_options(compiler: Compiler, span: int) -> list[str]:
    """Return the JVM options that choose the driver's compiler.

    The first of Java's two compilers is quick; the second makes code that is worth its cost when the same code runs for long.

    Args:
        compiler: ``quick``: the first one only; ``late``: the second one only for code that ran ten times as often as Java asks for by itself;
            ``full``: as Java does by itself; ``auto``: quick for a window of at most `QUICK_SPAN` offsets, else late.
        span: of the window.

    >>> compiler_options("auto", 10_000)
    ['-XX:TieredStopAtLevel=1']
    >>> compiler_options("auto", 100_000_000) == compiler_options("late", 0)
    True
    """
    if compiler == "auto":
        compiler = "late" if span > QUICK_SPAN else "quick"
    return {"quick": [_QUICK], "late": list(_LATE), "full": []}[compiler]


def with_options(ours: Sequence[str], given: str | None) -> str:
    """Return our options and those that were there, in the form that Spark reads; where both say something, theirs wins.

    >>> with_options(["-XX:SharedArchiveFile=/my cache/a.jsa"], "-Dx=1")
    "'-XX:SharedArchiveFile=/my cache/a.jsa' -Dx=1"
    """
    return " ".join([*map(shlex.quote, ours), *([given] if given else [])])


def quick_launcher(given: str | None) -> str:
    """Return the options of Spark's launcher, a JVM of half a second; what was there wins."""
    return " ".join([_QUICK, *([given] if given else [])])
