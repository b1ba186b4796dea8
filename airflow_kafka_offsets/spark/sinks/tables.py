"""What the sinks share: the column that names the window, refused options, and a frame that is read once and kept."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_kafka_offsets.spark.errors import WriteOptionError
from airflow_kafka_offsets.spark.keeping import Kept
from airflow_kafka_offsets.spark.source import is_classic

WINDOW_ID = "window_id"
"""Column (for files: directory) that says which window wrote a row."""


def delete_rows(table: str, window_id: str) -> str:
    """Return the statement with which a person removes a window's rows."""
    return f"DELETE FROM {table} WHERE {WINDOW_ID} = '{window_id}'"


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
        raise WriteOptionError(f"The frame has a column {WINDOW_ID}: drop it, as the write sets it")


def refuse_options(options: Mapping[str, Any], fixed: Sequence[str], instead: str) -> None:
    """Refuse writer options that the sink itself sets.

    Raises:
        WriteOptionError: there are some; with their names.
    """
    taken = [name for name in options if name.lower() in map(str.lower, fixed)]
    if taken:
        raise WriteOptionError(f"{', '.join(taken)}: {instead}")


def as_list(columns: Any) -> list[Any]:
    """Return columns as a list, even if it is only one."""
    return list(columns) if isinstance(columns, (list, tuple)) else [columns]


@contextlib.contextmanager
def kept(frame: DataFrame) -> Iterator[DataFrame]:
    """Let Spark keep what it reads of a frame, so that it is counted and then written; a frame that is already kept stays so."""
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
