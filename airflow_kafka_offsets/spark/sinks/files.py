"""A directory of files for each window, in any format that Spark writes. It is replaced as a whole."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.spark.errors import KafkaWindowError, PublishError
from airflow_kafka_offsets.spark.label import Label, read_note
from airflow_kafka_offsets.spark.source import is_classic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

# Each round is lost to another job of the same window that publishes at this very moment.
_ROUNDS = 100

LABEL_FILE = ".kafka-window.json"
"""File in a window's directory that names the window: hidden, so that no reader takes it for records."""

_LOST_RACE = re.compile(r"[\w.]*\.(FileAlreadyExists|FileNotFound)Exception\b")


class Files:
    """Hadoop's file systems, through Spark's JVM: whatever scheme a path has, and with the session's settings.

    FileContext and not FileSystem, because its rename never moves a directory into an existing one.
    """

    def __init__(self, spark: SparkSession) -> None:
        if not is_classic(spark):
            raise KafkaWindowError(
                "Writing files renames directories, which is not possible over Spark Connect: use write_delta() or write_iceberg(), or "
                "run the job with spark-submit"
            )
        session: Any = spark
        self._jvm = session._jvm
        self._hadoop = self._jvm.org.apache.hadoop.fs
        conf = session._jsparkSession.sessionState().newHadoopConf()
        self._context = self._hadoop.FileContext.getFileContext(conf)
        no_options = session.sparkContext._gateway.new_array
        self._no_options = no_options(getattr(self._hadoop, "Options$Rename"), 0)
        self._no_create_options = no_options(getattr(self._hadoop, "Options$CreateOpts"), 0)

    def rename(self, source: str, target: str) -> bool:
        """Move a directory; False: someone else was faster, so the source was gone or the target was there."""
        try:
            self._rename(source, target)
        except Exception as exc:
            # By the error and not by a look at both: they change again before one could look.
            if _is_lost_race(exc):
                return False
            raise
        return True

    def write(self, path: str, text: str) -> None:
        """Write a small new file."""
        flags = self._jvm.java.util.EnumSet.of(self._hadoop.CreateFlag.CREATE)
        with contextlib.closing(self._context.create(self._path(path), flags, self._no_create_options)) as stream:
            stream.write(bytearray(text, "utf-8"))

    def read(self, path: str) -> str | None:
        """Return what is in a small file; None: it is not there."""
        try:
            stream = self._context.open(self._path(path))
        except Exception as exc:
            if _is_lost_race(exc):
                return None
            raise
        with contextlib.closing(stream):
            return bytes(stream.readAllBytes()).decode("utf-8", "replace")

    def discard(self, path: str) -> None:
        """Remove a directory with all that is in it, if it is there; failing at it hides neither a success nor an error."""
        try:
            self._context.delete(self._path(path), True)
        except Exception:
            logger.warning("%s could not be removed; readers do not see it", path, exc_info=True)

    def _rename(self, source: str, target: str) -> None:
        uri = self._path(source).toUri()
        if uri.getScheme() == "file":
            # rename(2) refuses a target that has files; Hadoop would look first, and then copy the source into it.
            os.rename(uri.getPath(), self._path(target).toUri().getPath())
        else:
            self._context.rename(self._path(source), self._path(target), self._no_options)

    def _path(self, path: str) -> Any:
        return self._context.makeQualified(self._hadoop.Path(path))


def _is_lost_race(exc: Exception) -> bool:
    if isinstance(exc, OSError):
        return exc.errno in (errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY)
    return _LOST_RACE.match(str(getattr(exc, "java_exception", ""))) is not None


@contextlib.contextmanager
def staging(files: Files, path: str, window_id: str) -> Iterator[str]:
    """Give a directory that no reader of `path` sees and no other job has; it is gone afterwards."""
    # Not "_": readers do not skip such a name when it has a "=" in it.
    directory = f"{path}/.staging-{window_id}-{uuid.uuid4().hex}"
    try:
        yield directory
    finally:
        files.discard(directory)


def stage(
    frame: DataFrame, directory: str, file_format: str, partition_by: Sequence[str], options: Mapping[str, Any]
) -> str:
    """Write a frame below a staging directory and return where."""
    staged = f"{directory}/new"
    writer = frame.write.format(file_format).mode("error").options(**options)
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    writer.save(staged)
    return staged


def refuse_other(files: Files, label: Label, target: str, place: str) -> None:
    """Refuse to replace a directory that says that another window wrote it. One that says nothing may be a part that a copy left.

    Args:
        files: the file system.
        label: of the window that writes.
        target: the window's directory.
        place: where it lies at the moment.

    Raises:
        OtherWindowError: another window of this id wrote it.
    """
    found = read_note(files.read(f"{place}/{LABEL_FILE}"))
    if found is not None:
        label.refuse_other(target, found, f"delete {target}")


def publish(
    files: Files, staged: str, target: str, aside: str, check: Callable[[str], object] = lambda place: None
) -> None:
    """Put what is staged in the place of what is there, by two renames; on an error the old one is put back.

    Args:
        files: the file system.
        staged: the new directory.
        target: where it belongs.
        aside: prefix of hidden names for what was there. If it can't be put back, it stays there.
        check: raises when what was moved to that place must not be replaced.

    Raises:
        PublishError: other jobs of the same window were faster each time; or an error came between, and what was there could
            not be put back.
    """
    moved: list[str] = []
    try:
        for number in range(_ROUNDS):
            if files.rename(staged, target):
                return
            # At most one job gets the directory that is in the way, and as a whole.
            if files.rename(target, f"{aside}-{number}"):
                moved.append(f"{aside}-{number}")
                check(moved[-1])
        raise PublishError(
            f"{target} could not be replaced in {_ROUNDS} attempts, because other jobs of the same window were faster each time: stop "
            "them"
        )
    except BaseException as exc:
        _put_back(files, moved, target, exc)
        raise
    finally:
        for path in moved:
            files.discard(path)


def _put_back(files: Files, moved: list[str], target: str, exc: BaseException) -> None:
    """Put the old output back; where that fails it stays where it is, whatever stands in its place: it may be a part of ours.

    Raises:
        PublishError: it could not be put back; with where it lies.
    """
    if not moved:
        return
    old = moved.pop()  # first of all: if it can't go back, it must not be discarded
    why = "something is there already: another job's output, or a part of this one's where a rename copies"
    try:
        if files.rename(old, target):
            return
    except Exception as failed:
        why = f"{type(failed).__name__}: {failed}"
    kept = (
        f"{target} could not be replaced ({type(exc).__name__}: {exc}), and its old output could not be restored ({why}): it is complete "
        f"in {old}. Run the window again, which replaces {target}, and delete {old}; or restore it: delete {target}, and rename {old} to it"
    )
    if not isinstance(exc, Exception):  # the end of the process, which no other error may take the place of
        logger.error("%s", kept)
        return
    raise PublishError(kept) from exc
