"""What sinks of every table format share: the column that names the window, and a frame that is read once and kept."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_kafka_offsets.spark.errors import WriteOptionError

WINDOW_ID = "window_id"
"""Column (of files: directory) that says which window a row is of."""


def delete_rows(table: str, window_id: str) -> str:
    """Return the statement by which a person removes a window's rows."""
    return f"DELETE FROM {table} WHERE {WINDOW_ID} = '{window_id}'"


def with_window_id(frame: DataFrame, window_id: str) -> DataFrame:
    """Return the frame with the window's column at its end.

    Raises:
        WriteOptionError: it has such a column.
    """
    refuse_window_id(frame)
    return frame.withColumn(WINDOW_ID, F.lit(window_id))


def refuse_window_id(frame: DataFrame) -> None:
    """Refuse a frame with a column of the name that is ours.

    Raises:
        WriteOptionError: it has one.
    """
    if WINDOW_ID in map(str.lower, frame.columns):
        raise WriteOptionError(
            f"The frame has a column {WINDOW_ID}: drop it, the write puts the window's id there itself"
        )


def refuse_options(options: Mapping[str, Any], fixed: Sequence[str], instead: str) -> None:
    """Refuse writer options that are not the caller's to set.

    Raises:
        WriteOptionError: with their names.
    """
    taken = [name for name in options if name.lower() in map(str.lower, fixed)]
    if taken:
        raise WriteOptionError(f"{', '.join(taken)}: {instead}")


def as_list(columns: Any) -> list[Any]:
    """Return columns as a list, also when it is only one."""
    return list(columns) if isinstance(columns, (list, tuple)) else [columns]


@contextlib.contextmanager
def kept(frame: DataFrame) -> Iterator[DataFrame]:
    """Let Spark keep what it reads of a frame, so that it can be counted first and written then; a frame that is kept already stays so."""
    level = frame.storageLevel
    if level.useMemory or level.useDisk:
        yield frame
        return
    frame.persist()
    try:
        yield frame
    finally:
        frame.unpersist()
