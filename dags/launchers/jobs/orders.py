"""The Spark job of the examples beside this folder: one window of the topic to an Iceberg table. Runs on the cluster.

Arguments: what the plan task returned as `exchange`, and the table.
"""

import sys

from pyspark.sql import SparkSession

from airflow_kafka_offsets.spark import current_window


def main() -> None:
    """Read the window, write it, and report what was read; the entry point of a wheel."""
    uri, table = sys.argv[1:3]
    spark = SparkSession.builder.getOrCreate()
    window = current_window(spark, uri)
    orders = window.read().selectExpr("partition", "offset", "cast(value as string) as json")
    window.write_iceberg(orders, table)


if __name__ == "__main__":
    main()
