"""An Iceberg table: a window's rows are replaced in one snapshot, or merged by key."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.spark.errors import WriteOptionError
from airflow_kafka_offsets.spark.sinks.tables import WINDOW_ID, with_window_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PROPERTY = "snapshot-property.kafka-"


class IcebergTable:
    """A table, by its name.

    Args:
        spark: the session.
        table: a name as in SQL.
        label: what a snapshot's summary says of the window; has `window_id`.
    """

    def __init__(self, spark: SparkSession, table: str, label: Mapping[str, Any]) -> None:
        self._spark = spark
        self._label = label
        self.name = table

    def replace(self, frame: DataFrame, partition_by: Sequence[Any], options: Mapping[str, Any]) -> None:
        """Put the frame in the place of the window's rows, in one snapshot; also when there are none on either side."""
        from pyspark.sql import functions as F

        window_id = self._label["window_id"]
        rows = with_window_id(frame, window_id)
        partitions = self._create(rows, partition_by)
        writer = rows.writeTo(self.name)
        # Iceberg would shuffle all rows by their partition, and a window is one.
        usual = {"distribution-mode": "none"} if partitions == [WINDOW_ID] else {}
        for name, value in {**usual, **options, **self._properties()}.items():
            writer = writer.option(name, value)
        writer.overwrite(F.col(WINDOW_ID) == F.lit(window_id))

    def merge(
        self, frame: DataFrame, keys: Sequence[str], order_by: Sequence[str], partition_by: Sequence[Any]
    ) -> None:
        """Update and insert the frame's rows by key, and delete what the window brought earlier and no more."""
        rows = with_window_id(_one_row_a_key(frame, keys, order_by), self._label["window_id"])
        self._create(rows, partition_by)
        view = f"kafka_window_{uuid.uuid4().hex}"
        rows.createOrReplaceTempView(view)
        try:
            self._spark.sql(merge_statement(self.name, view, self._label["window_id"], keys, order_by)).collect()
        finally:
            self._spark.catalog.dropTempView(view)

    def _create(self, rows: DataFrame, partition_by: Sequence[Any]) -> list[str]:
        """Make the table if there is none, and return its partition columns.

        Raises:
            WriteOptionError: it is there and not partitioned by the window.
        """
        if not self._spark.catalog.tableExists(self.name):
            self._create_new(rows, partition_by)
        partitions = self._partitions()
        if WINDOW_ID not in partitions:
            raise WriteOptionError(
                f"{self.name} is not partitioned by {WINDOW_ID}: Iceberg replaces whole files only, so no window could be "
                f"replaced by itself. ALTER TABLE {self.name} ADD COLUMN {WINDOW_ID} string (if it has none), ALTER TABLE "
                f"{self.name} ADD PARTITION FIELD {WINDOW_ID}; or let this write make a new table"
            )
        return partitions

    def _create_new(self, rows: DataFrame, partition_by: Sequence[Any]) -> None:
        from pyspark.sql import functions as F

        columns = [F.col(column) if isinstance(column, str) else column for column in [WINDOW_ID, *partition_by]]
        empty = self._spark.createDataFrame([], rows.schema)
        try:
            empty.writeTo(self.name).using("iceberg").partitionedBy(*columns).create()
        except Exception:
            # Two jobs that make it at the same moment: only one of them can.
            if not self._spark.catalog.tableExists(self.name):
                raise

    def _partitions(self) -> list[str]:
        rows = [(row[0], row[1]) for row in self._spark.sql(f"DESCRIBE TABLE {self.name}").collect()]
        heads = [number for number, (name, _) in enumerate(rows) if name.startswith("# Partition")]
        below = rows[heads[0] + 1 :] if heads else []
        # By column, or numbered ("Part 0") with the transform beside it.
        named = [kind if name.startswith("Part ") else name for name, kind in below]
        return [name for name in named if name and not name.startswith("#")]

    def _properties(self) -> dict[str, str]:
        return {f"{_PROPERTY}{name.replace('_', '-')}": str(value) for name, value in self._label.items()}


def merge_statement(table: str, view: str, window_id: str, keys: Sequence[str], order_by: Sequence[str]) -> str:
    """Return the MERGE. A key that is null is a key like others; a row that is older than the table's leaves that alone.

    >>> print(merge_statement("t", "v", "lake-000001", ["k"], []))
    MERGE INTO t AS t USING v AS s ON s.`k` <=> t.`k`
    WHEN MATCHED THEN UPDATE SET *
    WHEN NOT MATCHED THEN INSERT *
    WHEN NOT MATCHED BY SOURCE AND t.window_id = 'lake-000001' THEN DELETE
    """
    on = " AND ".join(f"s.{_quoted(key)} <=> t.{_quoted(key)}" for key in keys)
    newer = f" AND {_struct('s', order_by)} >= {_struct('t', order_by)}" if order_by else ""
    return (
        f"MERGE INTO {table} AS t USING {view} AS s ON {on}\n"
        f"WHEN MATCHED{newer} THEN UPDATE SET *\n"
        "WHEN NOT MATCHED THEN INSERT *\n"
        f"WHEN NOT MATCHED BY SOURCE AND t.{WINDOW_ID} = '{window_id}' THEN DELETE"
    )


def _one_row_a_key(frame: DataFrame, keys: Sequence[str], order_by: Sequence[str]) -> DataFrame:
    """Return the newest row of each key; without an order, fail when a key has two."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    number = f"kafka_window_{uuid.uuid4().hex}"
    of_key = Window.partitionBy(*map(_column, keys))
    if order_by:
        newest_first = of_key.orderBy(*(_column(column).desc() for column in order_by))
        return frame.withColumn(number, F.row_number().over(newest_first)).filter(F.col(number) == 1).drop(number)
    two = F.raise_error(
        F.lit(
            f"Two rows have the same {', '.join(keys)}: say which is newer with order_by, or make them one before the write"
        )
    )
    counted = frame.withColumn(number, F.count(F.lit(1)).over(of_key))
    return counted.filter(F.when(F.col(number) > 1, two.cast("boolean")).otherwise(F.lit(True))).drop(number)


def _column(name: str) -> Any:
    from pyspark.sql import functions as F

    return F.col(_quoted(name))


def _struct(alias: str, columns: Sequence[str]) -> str:
    # A struct, even of one column: null is then less than any value, and not unknown.
    return f"struct({', '.join(f'{alias}.{_quoted(column)}' for column in columns)})"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
