"""A job that knows nothing of airflow_kafka_offsets: all it has are its arguments."""

import sys

from pyspark.sql import SparkSession

servers, assign, start, end, window_id, lake = sys.argv[1:]
reader = SparkSession.builder.getOrCreate().read.format("kafka").option("kafka.bootstrap.servers", servers)
records = (
    reader.option("assign", assign)
    .option("startingOffsets", start)
    .option("endingOffsets", end)
    .option("failOnDataLoss", "true")
    .load()
)
records.select("partition", "offset").write.mode("overwrite").parquet(f"{lake}/window_id={window_id}")
