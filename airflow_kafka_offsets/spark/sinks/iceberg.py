"""An Iceberg table: a window's rows are replaced in one snapshot, or merged by key."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from airflow_kafka_offsets.spark.errors import WriteOptionError
from airflow_kafka_offsets.spark.label import Label
from airflow_kafka_offsets.spark.sinks.tables import WINDOW_ID, with_window_id
from airflow_kafka_offsets.spark.source import empty_frame

_PROPERTY = "snapshot-property.kafka-"
_GONE = "kafka_window_gone"


class IcebergTable:
    """A table, by its name.

    Args:
        spark: the session.
        table: a name as in SQL.
        label: the note in the summary of each snapshot.
    """

    def __init__(self, spark: SparkSession, table: str, label: Label) -> None:
        self._spark = spark
        self._label = label
        self.name = table

    def replace(self, frame: DataFrame, partition_by: Sequence[Any], options: Mapping[str, Any]) -> None:
        """Replace the window's rows by the frame, in one snapshot; either may be empty.

        Raises:
            WriteOptionError: the table is not partitioned by the window's column.
            OtherWindowError: another window wrote the old rows.
        """
        window_id = self._label.window_id
        rows = with_window_id(frame, window_id)
        is_new = self._create(rows, [WINDOW_ID, *partition_by])
        partitions = self._partitions()
        if WINDOW_ID not in partitions:
            raise self._without_window_id("partition", self._add_column() + self._alter("PARTITION FIELD"))
        if not is_new:
            self._refuse_other()
        # Iceberg would shuffle all rows by their partition, and a window is one partition.
        usual = {"distribution-mode": "none"} if partitions == [WINDOW_ID] else {}
        writer = rows.writeTo(self.name).options(**{**usual, **options, **self._properties()})
        writer.overwrite(F.col(WINDOW_ID) == F.lit(window_id))

    def merge(
        self, frame: DataFrame, keys: Sequence[str], order_by: Sequence[str], partition_by: Sequence[Any]
    ) -> None:
        """Update and insert the frame's rows by key, and delete the window's rows of keys that it no longer has.

        Raises:
            WriteOptionError: the table has no column for the window's id.
            OtherWindowError: another window wrote the old rows.
        """
        window_id = self._label.window_id
        rows = with_window_id(_one_row_a_key(frame, keys, order_by), window_id)
        is_new = self._create(rows, partition_by)
        if statement := self._add_column():
            raise self._without_window_id("column", statement)
        if not is_new:
            self._refuse_other()
        self._announce()
        view = f"kafka_window_{uuid.uuid4().hex}"
        # By its name: the client of Spark Connect 4.0 can't join a counted frame with itself.
        rows.createOrReplaceTempView(view)
        self._with_gone(self._spark.table(view), keys).createOrReplaceTempView(f"{view}_all")
        try:
            self._spark.sql(merge_statement(self.name, f"{view}_all", window_id, keys, order_by))
        finally:
            self._spark.catalog.dropTempView(f"{view}_all")
            self._spark.catalog.dropTempView(view)

    def _with_gone(self, rows: DataFrame, keys: Sequence[str]) -> DataFrame:
        """Return the rows, and marked by a column, the keys that the window has only in the table.

        For WHEN NOT MATCHED BY SOURCE, Spark would rewrite the whole table.
        """
        ours = self._spark.table(self.name).filter(F.col(WINDOW_ID) == self._label.window_id).alias("t")
        same = [_column("t", key).eqNullSafe(_column("s", key)) for key in keys]
        gone = ours.join(rows.alias("s"), same, "left_anti").select(*(_column("t", key) for key in keys)).distinct()
        marked = gone.withColumn(_GONE, F.lit(True))
        return rows.withColumn(_GONE, F.lit(False)).unionByName(marked, allowMissingColumns=True)

    def _newest_note(self, name: str, value: str) -> dict[str, str] | None:
        snapshot = (
            self._spark.table(f"{self._full_name}.snapshots")
            .filter(F.col("summary")[name] == value)
            .orderBy(F.col("committed_at").desc())
            .select("summary")
            .first()
        )
        return None if snapshot is None else {name[len("kafka-") :]: value for name, value in snapshot[0].items()}

    def _refuse_other(self) -> None:
        of_group = self._newest_note("kafka-group", self._label.group) or {}
        self._label.must_mark(self.name, of_group.get("ledger"))
        if self._spark.table(self.name).filter(F.col(WINDOW_ID) == self._label.window_id).isEmpty():
            return
        self._label.refuse_other(self.name, self._newest_note("kafka-window-id", self._label.window_id))

    @property
    def _full_name(self) -> str:
        # For a name without a namespace, Spark would look for `orders.snapshots` in a namespace `orders`.
        if "." in self.name:
            return self.name
        catalog = self._spark.catalog
        return f"{catalog.currentCatalog()}.{catalog.currentDatabase()}.{self.name}"

    def _announce(self) -> None:
        """Make an empty snapshot with the label: a MERGE has no properties."""
        nothing = empty_frame(self._spark, self._spark.table(self.name).schema)
        nothing.writeTo(self.name).options(**self._properties()).append()

    def _add_column(self) -> str:
        """Return the statement that adds the window's column, as a line of an error; empty if the table has it."""
        names = map(str.lower, self._spark.table(self.name).columns)
        return "" if WINDOW_ID in names else self._alter("COLUMN", " string")

    def _alter(self, what: str, kind: str = "") -> str:
        return f"\n    ALTER TABLE {self.name} ADD {what} {WINDOW_ID}{kind}"

    def _without_window_id(self, what: str, statements: str) -> WriteOptionError:
        return WriteOptionError(f"{self.name} has no {what} {WINDOW_ID}. Add it:{statements}")

    def _create(self, rows: DataFrame, partition_by: Sequence[Any]) -> bool:
        """Create a table for these rows if none exists, and return whether this call did so."""
        if self._spark.catalog.tableExists(self.name):
            return False
        columns = [F.col(column) if isinstance(column, str) else column for column in partition_by]
        writer = empty_frame(self._spark, rows.schema).writeTo(self.name).using("iceberg")
        try:
            (writer.partitionedBy(*columns) if columns else writer).create()
        except Exception:
            # If two jobs create it at the same moment, one of them fails.
            if not self._spark.catalog.tableExists(self.name):
                raise
            return False
        return True

    def _partitions(self) -> list[str]:
        rows = [(row[0], row[1]) for row in self._spark.sql(f"DESCRIBE TABLE {self.name}").collect()]
        heads = [number for number, (name, _) in enumerate(rows) if name.startswith("# Partition")]
        below = rows[heads[0] + 1 :] if heads else []
        # By column, or numbered ("Part 0") with the transform beside it.
        named = [kind if name.startswith("Part ") else name for name, kind in below]
        return [name for name in named if name and not name.startswith("#")]

    def _properties(self) -> dict[str, str]:
        return {f"{_PROPERTY}{name.replace('_', '-')}": str(value) for name, value in self._label.note.items()}


def merge_statement(table: str, view: str, window_id: str, keys: Sequence[str], order_by: Sequence[str]) -> str:
    """Return the MERGE. A null key is a key like others. A row never replaces a newer row of another window.

    If two rows are equally new, the later window's row stays, so the replay of the earlier window changes nothing.

    >>> print(merge_statement("t", "v", "lake-000001", ["k"], ["version"]))
    MERGE INTO t AS t USING v AS s ON s.`k` <=> t.`k`
    WHEN MATCHED AND s.kafka_window_gone AND t.window_id = 'lake-000001' THEN DELETE
    WHEN MATCHED AND NOT s.kafka_window_gone AND (t.window_id = 'lake-000001' OR struct(s.`version`) > struct(t.`version`)
      OR (struct(s.`version`) >= struct(t.`version`) AND NOT coalesce(startswith(t.window_id, 'lake-') AND try_cast(substr(t.window_id, 6) AS BIGINT) > 1, false))) THEN UPDATE SET *
    WHEN NOT MATCHED AND NOT s.kafka_window_gone THEN INSERT *
    """
    on = " AND ".join(f"s.{_quoted(key)} <=> t.{_quoted(key)}" for key in keys)
    return (
        f"MERGE INTO {table} AS t USING {view} AS s ON {on}\n"
        # The window is compared again: another window may have replaced the row since the keys were looked up.
        f"WHEN MATCHED AND s.{_GONE} AND t.{WINDOW_ID} = '{window_id}' THEN DELETE\n"
        f"WHEN MATCHED AND NOT s.{_GONE}{_newer(window_id, order_by) if order_by else ''} THEN UPDATE SET *\n"
        f"WHEN NOT MATCHED AND NOT s.{_GONE} THEN INSERT *"
    )


def _newer(window_id: str, order_by: Sequence[str]) -> str:
    """Return the condition that a row replaces another one of its key."""
    group, _, seq = window_id.rpartition("-")
    ours, theirs = _struct("s", order_by), _struct("t", order_by)
    number = f"try_cast(substr(t.{WINDOW_ID}, {len(group) + 2}) AS BIGINT)"
    # By the number: after the millionth window, names do not sort like windows.
    is_later = f"coalesce(startswith(t.{WINDOW_ID}, '{group}-') AND {number} > {int(seq)}, false)"
    return f" AND (t.{WINDOW_ID} = '{window_id}' OR {ours} > {theirs}\n  OR ({ours} >= {theirs} AND NOT {is_later}))"


def _one_row_a_key(frame: DataFrame, keys: Sequence[str], order_by: Sequence[str]) -> DataFrame:
    """Return the newest row of each key; without an order, a key with two rows is an error."""
    number = "kafka_window_number"
    of_key = Window.partitionBy(*(F.col(_quoted(key)) for key in keys))
    if order_by:
        newest_first = of_key.orderBy(*(F.col(_quoted(column)).desc() for column in order_by))
        return frame.withColumn(number, F.row_number().over(newest_first)).filter(F.col(number) == 1).drop(number)
    two = F.raise_error(F.lit(f"Two rows have the same {', '.join(keys)}: set order_by"))
    counted = frame.withColumn(number, F.count(F.lit(1)).over(of_key))
    return counted.filter(F.when(F.col(number) > 1, two.cast("boolean")).otherwise(F.lit(True))).drop(number)


def _column(alias: str, name: str) -> Any:
    return F.col(f"{alias}.{_quoted(name)}")


def _struct(alias: str, columns: Sequence[str]) -> str:
    # Also for one column: in a struct, null is less than any value, and not unknown.
    return f"struct({', '.join(f'{alias}.{_quoted(column)}' for column in columns)})"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
