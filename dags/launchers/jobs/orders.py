"""The Spark job of the examples beside this folder: one window of the topic to an Iceberg table, or to a Delta table. Runs on the cluster.

Arguments: what the plan task returned as `exchange`, and the table.
"""

import sys

from pyspark.sql import SparkSession

from airflow_kafka_offsets.spark import current_window

COLUMNS = ("partition", "offset", "cast(value as string) as json")


def to_iceberg() -> None:
    """Read the window, write it, and report what was read."""
    uri, table = sys.argv[1:3]
    window = current_window(SparkSession.builder.getOrCreate(), uri)
    window.write_iceberg(window.read().selectExpr(*COLUMNS), table)


def to_delta() -> None:
    """Do the same with a Delta table: the entry point of a wheel for Databricks."""
    uri, table = sys.argv[1:3]
    window = current_window(SparkSession.builder.getOrCreate(), uri)
    window.write_delta(window.read().selectExpr(*COLUMNS), table, check_first=True)


if __name__ == "__main__":
    to_iceberg()
