"""A directory of Parquet files per window, replaced as a whole."""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.spark.errors import KafkaWindowError, PublishError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

# Each round is lost to another job of the same window that publishes at this very moment.
_ROUNDS = 100


class Files:
    """Hadoop's file systems, through Spark's JVM: whatever scheme a path has, and with the session's settings.

    FileContext and not FileSystem, because its rename never moves a directory into an existing one.
    """

    def __init__(self, spark: SparkSession) -> None:
        if not hasattr(spark, "_jvm"):
            raise KafkaWindowError(
                "write_parquet() needs a classic Spark session: over Spark Connect there is no way to rename directories"
            )
        session: Any = spark
        self._hadoop = session._jvm.org.apache.hadoop.fs
        conf = session._jsparkSession.sessionState().newHadoopConf()
        self._context = self._hadoop.FileContext.getFileContext(conf)
        self._no_options = session.sparkContext._gateway.new_array(getattr(self._hadoop, "Options$Rename"), 0)

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""
        return bool(self._context.util().exists(self._path(path)))

    def rename(self, source: str, target: str) -> bool:
        """Move a directory; False: somebody else was faster, so the source is gone or the target is there."""
        try:
            self._rename(source, target)
        except Exception:
            if self.exists(target) or not self.exists(source):
                return False
            raise
        return True

    def delete(self, path: str) -> None:
        """Remove a directory with all that is in it, if it is there."""
        self._context.delete(self._path(path), True)

    def _rename(self, source: str, target: str) -> None:
        uri = self._path(source).toUri()
        if uri.getScheme() == "file":
            # rename(2) refuses a target that has files; Hadoop would look first, and then copy the source into it.
            os.rename(uri.getPath(), self._path(target).toUri().getPath())
        else:
            self._context.rename(self._path(source), self._path(target), self._no_options)

    def _path(self, path: str) -> Any:
        return self._context.makeQualified(self._hadoop.Path(path))


@contextlib.contextmanager
def staging(files: Files, path: str, window_id: str) -> Iterator[str]:
    """Give a directory that no reader of `path` sees and no other job has; it is gone afterwards."""
    # Not "_": readers do not skip such a name when it has a "=" in it.
    directory = f"{path}/.staging-{window_id}-{uuid.uuid4().hex}"
    try:
        yield directory
    finally:
        try:
            files.delete(directory)
        except Exception:  # must hide neither a success nor another error
            _log.warning("%s could not be removed; readers do not see it", directory, exc_info=True)


def stage(frame: DataFrame, directory: str, partition_by: Sequence[str]) -> str:
    """Write a frame below a staging directory and return where."""
    staged = f"{directory}/new"
    writer = frame.write.mode("error")
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    writer.parquet(staged)
    return staged


def publish(files: Files, staged: str, target: str, directory: str) -> None:
    """Put what is staged in the place of what is there, by two renames; on an error the old one is back.

    Raises:
        PublishError: other jobs of the same window were faster each time.
    """
    old = f"{directory}/old"
    for number in range(_ROUNDS):
        if files.rename(staged, target):
            return
        # At most one job gets the directory that is in the way, and takes it along as a whole.
        if not files.rename(target, f"{old}-{number}"):
            continue
        try:
            if files.rename(staged, target):
                return
        except BaseException:
            files.rename(f"{old}-{number}", target)
            raise
    raise PublishError(f"{target} was replaced {_ROUNDS} times by other jobs while this one wanted to; stop them")
