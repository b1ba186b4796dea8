"""The Spark job of the DAG `orders`: one window of the topic to Parquet. Runs on the cluster.

Arguments: the directory to write to.
"""

import sys

from pyspark.sql import SparkSession

from airflow_kafka_offsets.spark import current_window

spark = SparkSession.builder.getOrCreate()
window = current_window(spark)
orders = window.read().selectExpr("partition", "offset", "cast(value as string) as json")
window.write_parquet(orders, sys.argv[1])
