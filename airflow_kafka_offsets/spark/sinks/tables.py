"""What the sinks share: the column that names the window, refused options, and frames that Spark keeps."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_kafka_offsets.spark.errors import WriteOptionError
from airflow_kafka_offsets.spark.source import is_classic

logger = logging.getLogger(__name__)

WINDOW_ID = "window_id"
"""Column (for files: directory) that names the window of a row."""

_RELEASE_SECONDS = 5.0
"""Seconds to wait until a Connect server has forgotten a frame; nothing depends on it."""


def with_window_id(frame: DataFrame, window_id: str) -> DataFrame:
    """Return the frame with the window's column at its end.

    Raises:
        WriteOptionError: it already has such a column.
    """
    refuse_window_id(frame)
    return frame.withColumn(WINDOW_ID, F.lit(window_id))


def refuse_window_id(frame: DataFrame) -> None:
    """Refuse a frame that already has the window's column.

    Raises:
        WriteOptionError: it has one.
    """
    if WINDOW_ID in map(str.lower, frame.columns):
        raise WriteOptionError(f"Drop the frame's column {WINDOW_ID}")


def refuse_options(options: Mapping[str, Any], fixed: Sequence[str], why: str) -> None:
    """Refuse writer options that the sink itself sets.

    Raises:
        WriteOptionError: there are some.
    """
    taken = [name for name in options if name.lower() in map(str.lower, fixed)]
    if taken:
        raise WriteOptionError(f"Leave out {', '.join(taken)}: {why}")


def as_list(columns: Any) -> list[Any]:
    """Return columns as a list, even if it is only one."""
    return list(columns) if isinstance(columns, (list, tuple)) else [columns]


class Kept:
    """A persisted frame. A Spark Connect server keeps it beyond its session, so the end of a job releases it.

    Args:
        frame: the frame, which the caller persists.
        is_remote: whether it is one of Spark Connect.
    """

    def __init__(self, frame: DataFrame, *, is_remote: bool) -> None:
        self.frame = frame
        self._is_over = threading.Event()
        # Not in `release`: at the end of the process, Python starts no thread.
        self._thread = (
            threading.Thread(target=self._wait, name="kafka-offsets-kept", daemon=True) if is_remote else None
        )
        if self._thread is not None:
            self._thread.start()

    def release(self, timeout: float = _RELEASE_SECONDS) -> None:
        """Let Spark forget the frame; a Spark that does not answer is no error.

        Args:
            timeout: seconds to wait for a Connect server. PySpark asks one that is gone for 10 minutes.
        """
        if self._thread is None:
            self._forget()
            return
        self._is_over.set()
        self._thread.join(timeout)

    def _wait(self) -> None:
        self._is_over.wait()
        self._forget()

    def _forget(self) -> None:
        try:
            self.frame.unpersist()
        except Exception as exc:  # Spark was stopped, or is gone
            logger.info("Spark may keep a frame: %s", type(exc).__name__)


@contextlib.contextmanager
def kept(frame: DataFrame) -> Iterator[DataFrame]:
    """Let Spark keep a frame during the block, so that it is counted and then written. A frame that Spark keeps already stays kept."""
    level = frame.storageLevel
    if level.useMemory or level.useDisk:
        yield frame
        return
    frame.persist()
    own = Kept(frame, is_remote=not is_classic(frame.sparkSession))
    try:
        yield frame
    finally:
        own.release()
