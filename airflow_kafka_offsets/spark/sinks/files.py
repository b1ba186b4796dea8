"""A directory of files for each window, in any format that Spark writes. A rerun replaces it as a whole."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.spark.errors import KafkaWindowError, PublishError
from airflow_kafka_offsets.spark.label import Label, read_note
from airflow_kafka_offsets.spark.source import is_classic, java_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

# In each round, another job of the same window may publish first.
_ROUNDS = 100

LABEL_FILE = ".kafka-window.json"
"""File in a window's directory that names the window. It is hidden, so readers skip it."""

_COPIED_AT_ONCE = 4096

_LOST_RACE = re.compile(r"[\w.]*\.(FileAlreadyExists|FileNotFound)Exception\b")


class Files:
    """Hadoop's file systems, through Spark's JVM: for every scheme of a path, with the session's settings.

    This uses FileContext, not FileSystem, because its rename never moves a directory into an existing one.
    """

    def __init__(self, spark: SparkSession) -> None:
        if not is_classic(spark):
            raise KafkaWindowError(
                "Spark Connect can't rename directories: use write_delta() or write_iceberg(), or run the "
                "job with spark-submit"
            )
        session: Any = spark
        self._java = partial(java_class, spark)
        conf = session._jsparkSession.sessionState().newHadoopConf()
        self._context = self._java("org.apache.hadoop.fs.FileContext").getFileContext(conf)
        self._new_path = self._java("org.apache.hadoop.fs.Path")
        no_options = session.sparkContext._gateway.new_array
        self._no_options = no_options(self._java("org.apache.hadoop.fs.Options$Rename"), 0)
        self._no_create_options = no_options(self._java("org.apache.hadoop.fs.Options$CreateOpts"), 0)

    def rename(self, source: str, target: str) -> bool:
        """Move a directory; False: another job was faster, so the source is gone or the target exists."""
        try:
            self._rename(source, target)
        except Exception as exc:
            # The error decides, because both may change again before a look at them.
            if _is_lost_race(exc):
                return False
            raise
        return True

    def write(self, path: str, text: str) -> None:
        """Write a small new file."""
        flags = self._java("java.util.EnumSet").of(self._java("org.apache.hadoop.fs.CreateFlag").CREATE)
        with contextlib.closing(self._context.create(self._path(path), flags, self._no_create_options)) as stream:
            stream.write(bytearray(text, "utf-8"))

    def read(self, path: str) -> str | None:
        """Return the text of a small file; None if it does not exist."""
        # After an error, PySpark asks the JVM about a dozen classes of errors: that takes longer than to look first.
        if not self._is_there(path):
            return None
        try:
            stream = self._context.open(self._path(path))
        except Exception as exc:
            if _is_lost_race(exc):
                return None
            raise
        with contextlib.closing(stream):
            # Not by readAllBytes: Spark 3 runs on Java 8, too.
            content = self._java("java.io.ByteArrayOutputStream")()
            self._java("org.apache.hadoop.io.IOUtils").copyBytes(stream, content, _COPIED_AT_ONCE, False)
            return bytes(content.toByteArray()).decode("utf-8", "replace")

    def discard(self, path: str) -> None:
        """Remove a directory with its content, if it exists; a failure is only logged."""
        try:
            self._context.delete(self._path(path), True)
        except Exception:
            logger.warning("%s could not be removed; readers do not see it", path, exc_info=True)

    def _is_there(self, path: str) -> bool:
        return bool(self._context.util().exists(self._path(path)))

    def _rename(self, source: str, target: str) -> None:
        uri = self._path(source).toUri()
        if uri.getScheme() == "file":
            # rename(2) refuses a target that has files. Hadoop would look first, and then copy the source into it.
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
    """Yield a directory that no reader of `path` sees and no other job has; it is removed afterwards."""
    # Not "_": readers do not skip such a name if it contains "=".
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
    """Refuse to replace a directory that another window wrote. One without a label may be the rest of an interrupted copy.

    Args:
        files: the file system.
        label: the window that writes.
        target: the window's directory.
        place: where that directory is at the moment.

    Raises:
        OtherWindowError: another window of this id wrote it.
    """
    found = read_note(files.read(f"{place}/{LABEL_FILE}"))
    if found is not None:
        label.refuse_other(target, found, f"delete {target}")


def publish(
    files: Files, staged: str, target: str, aside: str, check: Callable[[str], object] = lambda place: None
) -> None:
    """Replace the old output by the staged one, with two renames; on an error the old output is restored.

    Args:
        files: the file system.
        staged: the new directory.
        target: where it belongs.
        aside: prefix of hidden names for the old output. If it can't be restored, it stays there.
        check: it gets the place of the old output, and raises if that must not be replaced.

    Raises:
        PublishError: other jobs of the same window were faster each time; or there was an error, and the old output could not be
            restored.
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
        raise PublishError(
            f"{target} could not be replaced in {_ROUNDS} attempts: other jobs of the same window were "
            "faster. Stop them"
        )
    except BaseException as exc:
        _put_back(files, moved, target, exc)
        raise
    finally:
        for path in moved:
            files.discard(path)


def _put_back(files: Files, moved: list[str], target: str, exc: BaseException) -> None:
    """Restore the old output; if that fails, it stays where it is. What is in its place may be a part of ours.

    Raises:
        PublishError: it could not be restored; with its place.
    """
    if not moved:
        return
    old = moved.pop()  # before anything else: if it can't be restored, it must not be discarded
    why = "there is other output, of another job or, where a rename copies, of this one"
    try:
        if files.rename(old, target):
            return
    except Exception as failed:
        why = f"{type(failed).__name__}: {failed}"
    kept = (
        f"{target} could not be replaced ({type(exc).__name__}: {exc}), and its old output is complete "
        f"in {old} ({why}). Run the window again and delete {old}, or delete {target} and rename {old} "
        "to it"
    )
    if not isinstance(exc, Exception):  # the process ends, and no other error may replace that
        logger.error("%s", kept)
        return
    raise PublishError(kept) from exc
