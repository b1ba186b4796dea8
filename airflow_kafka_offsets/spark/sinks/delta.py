"""A Delta table: a window's rows are replaced in one commit, or appended once."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F

from airflow_kafka_offsets.spark.errors import WriteOptionError
from airflow_kafka_offsets.spark.label import Label, read_note
from airflow_kafka_offsets.spark.sinks.tables import WINDOW_ID, refuse_options, with_window_id
from airflow_kafka_offsets.spark.source import empty_frame

REPLACE = "replace"
APPEND = "append"

_FIXED = ("replaceWhere", "partitionOverwriteMode", "overwriteSchema", "txnAppId", "txnVersion", "userMetadata")

_LOOK_BACK = 1000
"""The number of commits to search for an earlier run of the window. Delta itself finds an older one, after the read."""

_JUST_NOW = 10
"""The number of commits to search first for our own: Delta reads a file for each."""


class DeltaTable:
    """A table, by its name or its path.

    Args:
        spark: the session.
        table: a name as in SQL; with a ``/`` in it, it is a path.
        label: the note of each commit in the table's history.

    Raises:
        WriteOptionError: the session's settings let Delta skip writes.
    """

    def __init__(self, spark: SparkSession, table: str, label: Label) -> None:
        self._spark = spark
        self._is_path = "/" in table and "`" not in table
        self._table = table
        self._label = label
        _refuse_session_transactions(spark)
        self.name = f"delta.`{table}`" if self._is_path else table

    def replace(self, frame: DataFrame, partition_by: Sequence[str], options: Mapping[str, Any]) -> None:
        """Replace the window's rows by the frame, in one commit; either may be empty.

        Raises:
            OtherWindowError: another window wrote the old rows.
        """
        window_id = self._label.window_id
        rows = with_window_id(frame, window_id)
        # With these partitions, windows that are written at the same time share no file.
        if not self.create(rows, [WINDOW_ID, *partition_by]):
            self._refuse_other()
        writer = rows.write.format("delta").mode("overwrite").options(**options)
        self._save(self._labelled(writer, REPLACE).option("replaceWhere", f"{WINDOW_ID} = '{window_id}'"))

    def append(self, frame: DataFrame, options: Mapping[str, Any]) -> bool:
        """Append the frame to the existing table, once. Return False if an earlier run of the window has appended it.

        Each window is a transaction application of its own, with one version. With one application for all, Delta would silently
        skip a window that is committed after a later one. The window's id alone is not enough: Delta remembers it forever, and a
        ledger that was created again gives it to another window.
        """
        this_try = uuid.uuid4().hex
        writer = frame.write.format("delta").mode("append").options(**options)
        application = f"{self._label.window_id} {self._label.digest}"
        writer = writer.option("txnAppId", application).option("txnVersion", 0)
        self._save(self._labelled(writer, APPEND, this_try))
        # If it is not among the newest, others were faster, or Delta has skipped it.
        return any(note.get("try") == this_try for most in (_JUST_NOW, _LOOK_BACK) for note in self._notes(most))

    def refuse_replaced(self) -> None:
        """Refuse to append to a table whose windows are replaced: an append could write this one twice.

        Raises:
            WriteOptionError: its windows are replaced.
        """
        if WINDOW_ID in map(str.lower, self._rows().columns):
            raise WriteOptionError(f"{self.name} has a column {WINDOW_ID}. Set mode='{REPLACE}'")

    def has_appended(self) -> bool:
        """Whether the newest commits of the existing table appended the window.

        Raises:
            OtherWindowError: they appended another window of this id, so Delta would skip this one.
        """
        newest = self._notes()
        self._finds_group(newest)
        notes = self._of_window(newest)
        if others := [note for note in notes if "digest" in note and not self._label.is_of(note)]:
            raise self._label.other_window(self.name, others)
        return bool(notes)

    def _finds_group(self, notes: Sequence[Mapping[str, Any]]) -> bool:
        """Whether notes, the newest first, are of the group. Refuse them if the newest is of another ledger."""
        ledgers = [note.get("ledger") for note in notes if note.get("group") == self._label.group]
        if ledgers:
            self._label.must_mark(self.name, ledgers[0])
        return bool(ledgers)

    def _refuse_other(self) -> None:
        if self._label.ledgers and not self._finds_group(self._notes(_JUST_NOW)):
            self._finds_group(self._notes())
        table = self._rows()
        if WINDOW_ID not in map(str.lower, table.columns):
            return  # Delta raises an error of its own
        # The rows first: without any, the history need not be read.
        if table.filter(F.col(WINDOW_ID) == self._label.window_id).isEmpty():
            return
        self._label.refuse_other(self.name, next(iter(self._of_window(self._notes())), None))

    def create(self, frame: DataFrame, partition_by: Sequence[str]) -> bool:
        """Create a table for this frame if none exists, and return whether this call did so."""
        writer = empty_frame(self._spark, frame.schema).write.format("delta").partitionBy(*partition_by)
        if self._exists():
            return False
        try:
            self._save(writer.mode("error"))
        except Exception:
            # If several jobs create it, Delta refuses all but one, even with mode "ignore". The others try again and find it. The
            # error of the last try names those before it.
            try:
                self._save(writer.mode("ignore"))
            except Exception:
                self._save(writer.mode("ignore"))
            return False
        return True

    def _exists(self) -> bool:
        try:
            return bool(self._spark.catalog.tableExists(self.name))
        except Exception:
            return (
                False  # a path without a Delta table; on any other error, the write that creates the table fails, too
            )

    def _rows(self) -> DataFrame:
        reader = self._spark.read.format("delta")
        return reader.load(self._table) if self._is_path else reader.table(self._table)

    def _save(self, writer: DataFrameWriter) -> None:
        if self._is_path:
            writer.save(self._table)
        else:
            writer.saveAsTable(self._table)

    def _labelled(self, writer: DataFrameWriter, mode: str, this_try: str | None = None) -> DataFrameWriter:
        note = {**self._label.note, "mode": mode, **({"try": this_try} if this_try else {})}
        return writer.option("userMetadata", json.dumps(note))

    def _notes(self, most: int = _LOOK_BACK) -> list[dict[str, Any]]:
        rows = self._spark.sql(f"DESCRIBE HISTORY {self.name} LIMIT {most}").select("userMetadata").collect()
        return [note for row in rows for note in [read_note(row[0])] if note is not None]

    def _of_window(self, notes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the notes of windows of this id."""
        return [note for note in notes if note.get("window_id") == self._label.window_id]


def check_options(mode: str, options: Mapping[str, Any]) -> None:
    """Refuse a mode or option with which a rerun could double or lose rows.

    Raises:
        WriteOptionError: it is one of these.
    """
    if mode not in (REPLACE, APPEND):
        raise WriteOptionError(f"mode must be {REPLACE} or {APPEND}, got {mode!r}")
    refuse_options(options, _FIXED, "the window sets it")


def _refuse_session_transactions(spark: SparkSession) -> None:
    for name in ("spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"):
        if spark.conf.get(name, None) is not None:
            raise WriteOptionError(f"Unset {name}: with it, Delta would skip writes")
