"""A Delta table: a window's rows are replaced in one commit, or appended once."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F

from airflow_kafka_offsets.spark.errors import OtherWindowError, WriteOptionError
from airflow_kafka_offsets.spark.label import Label, read_note
from airflow_kafka_offsets.spark.sinks.tables import WINDOW_ID, delete_rows, refuse_options, with_window_id
from airflow_kafka_offsets.spark.source import empty_frame

REPLACE = "replace"
APPEND = "append"

_FIXED = ("replaceWhere", "partitionOverwriteMode", "overwriteSchema", "txnAppId", "txnVersion", "userMetadata")

_LOOK_BACK = 1000
"""In how many commits to look for an earlier run of the window. Delta itself finds an older one, after the read."""

_JUST_NOW = 10
"""In how many commits to look first for one that was just made: Delta reads a file for each."""


class DeltaTable:
    """A table, by its name or its path.

    Args:
        spark: the session.
        table: a name as in SQL; with a ``/`` in it, it is a path.
        label: what each of our commits notes in the table's history.

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
        # With partitions by it, windows that are written at the same time share no file.
        if not self.create(rows, [WINDOW_ID, *partition_by]):
            self._refuse_other()
        writer = rows.write.format("delta").mode("overwrite").options(**options)
        self._save(self._labelled(writer, REPLACE).option("replaceWhere", f"{WINDOW_ID} = '{window_id}'"))

    def append(self, frame: DataFrame, options: Mapping[str, Any]) -> bool:
        """Append the frame to the existing table, once; False: an earlier run of the window did, and nothing was written.

        Each window is a transaction application of its own, with one version. One application with the windows' numbers as
        versions is not enough: Delta silently skips a version that is not above the last, and windows may be committed in any
        order. The window's id alone is not enough either: Delta remembers it forever, and a ledger that was created again gives
        it to another window.
        """
        this_try = uuid.uuid4().hex
        writer = frame.write.format("delta").mode("append").options(**options)
        application = f"{self._label.window_id} {self._label.digest}"
        writer = writer.option("txnAppId", application).option("txnVersion", 0)
        self._save(self._labelled(writer, APPEND, this_try))
        # If it is not among the newest, others may have made more since, or Delta has skipped it.
        return any(note.get("try") == this_try for most in (_JUST_NOW, _LOOK_BACK) for note in self._notes(most))

    def refuse_replaced(self) -> None:
        """Refuse to append to the existing table if its windows are replaced: an append could write this one twice.

        Raises:
            WriteOptionError: they are.
        """
        if WINDOW_ID in map(str.lower, self._rows().columns):
            raise WriteOptionError(
                f"{self.name} has a column {WINDOW_ID}: write it with mode='{REPLACE}', or append to another table"
            )

    def has_appended(self) -> bool:
        """Tell whether the newest commits of the existing table say that the window was appended.

        Raises:
            OtherWindowError: another window has this id there, so Delta would skip this one.
        """
        named = self._notes_of_window()
        if not all(self._label.is_of(note) for note in named if "digest" in note):
            raise OtherWindowError(
                f"{self.name} has another window {self._label.window_id}, so Delta would skip this one. See "
                "docs/reference/errors.md#otherwindowerror"
            )
        return bool(named)

    def _refuse_other(self) -> None:
        table = self._rows()
        if WINDOW_ID not in map(str.lower, table.columns):
            return  # Delta's own error says that
        # The rows first: a window that is written for the first time has none, and the history need not be read.
        if table.filter(F.col(WINDOW_ID) == self._label.window_id).isEmpty():
            return
        remove = delete_rows(self.name, self._label.window_id)
        self._label.refuse_other(self.name, next(iter(self._notes_of_window()), None), remove)

    def create(self, frame: DataFrame, partition_by: Sequence[str]) -> bool:
        """Create the table, for frames like this one, if it does not exist.

        Returns:
            Whether this call created it, so that no window was in it then.
        """
        writer = empty_frame(self._spark, frame.schema).write.format("delta").partitionBy(*partition_by)
        if self._is_there():
            return False
        try:
            self._save(writer.mode("error"))
        except Exception:
            # If jobs create it at the same moment, Delta refuses all but one, also those that would leave it alone. They find it then.
            # If it can't be created, the error of the last try names those before it.
            try:
                self._save(writer.mode("ignore"))
            except Exception:
                self._save(writer.mode("ignore"))
            return False
        return True

    def _is_there(self) -> bool:
        try:
            return bool(self._spark.catalog.tableExists(self.name))
        except Exception:
            # So it is with a path that has no Delta table. If Spark can't tell for another reason, the write that creates the table tells.
            return False

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

    def _notes_of_window(self) -> list[dict[str, Any]]:
        """Return what the newest commits note of windows of this id, newest first."""
        return [note for note in self._notes() if note.get("window_id") == self._label.window_id]


def check_options(mode: str, options: Mapping[str, Any]) -> None:
    """Refuse a mode or option with which a rerun could double or lose rows.

    Raises:
        WriteOptionError: with what to do instead.
    """
    if mode not in (REPLACE, APPEND):
        raise WriteOptionError(f"mode must be '{REPLACE}' or '{APPEND}', got {mode!r}")
    refuse_options(options, _FIXED, "the window sets these; leave them out")


def _refuse_session_transactions(spark: SparkSession) -> None:
    for name in ("spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"):
        if spark.conf.get(name, None) is not None:
            raise WriteOptionError(
                f"{name} is set in the session, so Delta would skip writes of this window. Unset it, and use "
                f"write_delta(mode='{APPEND}')"
            )
