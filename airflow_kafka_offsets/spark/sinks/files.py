"""A directory of files for each window, in any format that Spark writes. A rerun replaces it as a whole."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.spark.errors import KafkaWindowError, OtherWindowError, PublishError
from airflow_kafka_offsets.spark.label import Label, read_note
from airflow_kafka_offsets.spark.source import is_classic, java_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

# Another job of the window may publish first in each round.
_ROUNDS = 100

LABEL_FILE = ".kafka-window.json"
"""The hidden file in a window's directory that names the window; readers skip it."""

ANY_JOB = "?" * 32
"""A glob for the part of a staging directory's name that is one job's."""

_COPIED_AT_ONCE = 4096

_LOST_RACE = re.compile(r"[\w.]*\.(FileAlreadyExists|FileNotFound)Exception\b")


class Files:
    """Hadoop's file systems, through Spark's JVM, with the session's settings.

    By FileContext, not by FileSystem: its rename never moves a directory into an existing one.
    """

    def __init__(self, spark: SparkSession) -> None:
        if not is_classic(spark):
            raise KafkaWindowError("Spark Connect can't rename directories. Use write_delta() or write_iceberg()")
        session: Any = spark
        self._java = partial(java_class, spark)
        conf = session._jsparkSession.sessionState().newHadoopConf()
        self._context = self._java("org.apache.hadoop.fs.FileContext").getFileContext(conf)
        self._new_path = self._java("org.apache.hadoop.fs.Path")
        no_options = session.sparkContext._gateway.new_array
        self._no_options = no_options(self._java("org.apache.hadoop.fs.Options$Rename"), 0)
        self._no_create_options = no_options(self._java("org.apache.hadoop.fs.Options$CreateOpts"), 0)

    def rename(self, source: str, target: str) -> bool:
        """Move a directory. Return False if another job was faster: the source is gone, or the target exists."""
        try:
            self._rename(source, target)
        except Exception as exc:
            # Both may change before a look at them, so the error decides.
            if _is_lost_race(exc):
                return False
            raise
        return True

    def write(self, path: str, text: str, *, replaces: bool = True) -> None:
        """Write a small file, in the place of an old one; or else leave a file that is there."""
        flag = self._java("org.apache.hadoop.fs.CreateFlag")
        flags = self._java("java.util.EnumSet").of(flag.CREATE, flag.OVERWRITE if replaces else flag.CREATE)
        try:
            stream = self._context.create(self._path(path), flags, self._no_create_options)
        except Exception as exc:
            if not replaces and _is_lost_race(exc):
                return
            raise
        with contextlib.closing(stream):
            stream.write(bytearray(text, "utf-8"))

    def read(self, path: str) -> str | None:
        """Return the text of a small file, or None if it does not exist."""
        # To look first is faster than an error, for which PySpark asks the JVM about a dozen classes.
        if not self._exists(path):
            return None
        try:
            stream = self._context.open(self._path(path))
        except Exception as exc:
            if _is_lost_race(exc):
                return None
            raise
        with contextlib.closing(stream):
            # Not readAllBytes: Spark 3 runs on Java 8, too.
            content = self._java("java.io.ByteArrayOutputStream")()
            self._java("org.apache.hadoop.io.IOUtils").copyBytes(stream, content, _COPIED_AT_ONCE, False)
            return bytes(content.toByteArray()).decode("utf-8", "replace")

    def _exists(self, path: str) -> bool:
        return bool(self._context.util().exists(self._path(path)))

    def find(self, folder: str, pattern: str) -> list[str]:
        """Return the paths in a folder whose names match a glob of Hadoop."""
        escaped = re.sub(r"([\\*?\[\]{}^])", r"\\\1", folder)
        there = self._context.util().globStatus(self._path(f"{escaped}/{pattern}"))
        return [status.getPath().toString() for status in there or ()]

    def discard(self, path: str) -> None:
        """Remove a directory, if it exists; a failure is only logged."""
        try:
            self._context.delete(self._path(path), True)
        except Exception:
            logger.warning("%s is left over; readers skip it", path, exc_info=True)

    def _rename(self, source: str, target: str) -> None:
        uri = self._path(source).toUri()
        if uri.getScheme() == "file":
            # rename(2) refuses a target with files, into which Hadoop would copy the source.
            os.rename(uri.getPath(), self._path(target).toUri().getPath())
        else:
            self._context.rename(self._path(source), self._path(target), self._no_options)

    def _path(self, path: str) -> Any:
        return self._context.makeQualified(self._new_path(path))


def _is_lost_race(exc: Exception) -> bool:
    if isinstance(exc, OSError):
        return exc.errno in (errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY)
    return _LOST_RACE.match(str(getattr(exc, "java_exception", ""))) is not None


@contextlib.contextmanager
def staging(files: Files, path: str, window_id: str) -> Iterator[str]:
    """Yield a directory of this job that no reader of `path` sees; it is removed afterwards."""
    # Not "_...": readers see such a name if it contains "=".
    directory = f"{path}/.staging-{window_id}-{uuid.uuid4().hex}"
    try:
        yield directory
    finally:
        files.discard(directory)


def stage(
    frame: DataFrame, directory: str, file_format: str, partition_by: Sequence[str], options: Mapping[str, Any]
) -> str:
    """Write a frame to a folder of the staging directory, and return that folder."""
    staged = f"{directory}/new"
    writer = frame.write.format(file_format).mode("error").options(**options)
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    writer.save(staged)
    return staged


def refuse_other(files: Files, label: Label, target: str, place: str) -> None:
    """Refuse to replace another window's directory. One without a label may be the rest of an interrupted copy.

    Args:
        files: the file system.
        label: of the window that writes.
        target: the window's directory.
        place: its path at the moment.

    Raises:
        OtherWindowError: another window of this id wrote it.
    """
    note = read_note(files.read(f"{place}/{LABEL_FILE}"))
    if note is not None:
        label.refuse_other(target, note)


def ledger_of(files: Files, label: Label, root: str) -> str | None:
    """Return the id of the ledger whose output of the group is below a directory, or None if there is none."""
    return (files.read(_mark(label, root)) or "").strip() or None


def mark(files: Files, label: Label, root: str) -> None:
    """Note the ledger below a directory before the first output of its group is there.

    Raises:
        OtherWindowError: another ledger's output of the group is there.
    """
    for may_be_first in (True, False):
        ledger = ledger_of(files, label, root)
        if not label.must_mark(root, ledger):
            return
        # Another ledger may be faster, and the next look finds its mark. One that is still empty is a killed job's.
        files.write(_mark(label, root), label.ledgers[0], replaces=ledger is not None or not may_be_first)


def _mark(label: Label, root: str) -> str:
    return f"{root}/.kafka-ledger-{label.group}"


def publish(
    files: Files, staged: str, target: str, aside: str, check: Callable[[str], object] = lambda place: None
) -> None:
    """Replace the old output by the staged one, with two renames; an error restores the old output.

    Args:
        files: the file system.
        staged: the new directory.
        target: where it belongs.
        aside: prefix of hidden names for the old output, which stays there if it can't be restored.
        check: gets the path of the old output, and raises if nothing may replace it.

    Raises:
        PublishError: other jobs of the window were faster each time, or the old output could not be restored after an error.
    """
    moved: list[str] = []
    try:
        for number in range(_ROUNDS):
            if files.rename(staged, target):
                return
            # At most one job gets the old directory, and it gets the whole directory.
            if files.rename(target, f"{aside}-{number}"):
                moved.append(f"{aside}-{number}")
                check(moved[-1])
        raise PublishError(f"{target} could not be replaced: other jobs were faster {_ROUNDS} times. Stop them")
    except BaseException as exc:
        _put_back(files, moved, target, exc)
        raise
    finally:
        for path in moved:
            files.discard(path)


def discard_old(files: Files, paths: Iterable[str], check: Callable[[str], object]) -> None:
    """Remove old output that killed jobs of a window left, if `check` does not refuse it as another window's.

    Find the paths before the publish that replaces them: after it, another job of the window may have moved the new output away.
    """
    for path in paths:
        try:
            check(path)
        except OtherWindowError:
            logger.warning("%s has output of another window of this id: it is kept", path)
        else:
            files.discard(path)


def _put_back(files: Files, moved: list[str], target: str, exc: BaseException) -> None:
    """Restore the old output, or raise a PublishError with its path. Its place may hold a part of the new output."""
    if not moved:
        return
    old = moved.pop()  # before anything else: if it can't be restored, it must not be discarded
    why = "its place has other output"
    try:
        if files.rename(old, target):
            return
    except Exception as failed:
        why = f"{type(failed).__name__}: {failed}"
    message = (
        f"{target} could not be replaced ({type(exc).__name__}: {exc}), and its old output is complete in {old} ({why}). "
        "Run the window again. See docs/reference/errors.md#publisherror"
    )
    if not isinstance(exc, Exception):  # the process ends, and no other error may replace that
        logger.error("%s", message)
        return
    raise PublishError(message) from exc
