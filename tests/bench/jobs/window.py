"""This package's way: the window that the job was started with, to Parquet or to nowhere. Arguments: path or `noop`, result."""

import json
import os
import sys
import time

import psutil
from pyspark.sql import SparkSession

from airflow_kafka_offsets.spark import current_window

spark = SparkSession.builder.getOrCreate()
window = current_window(spark)
jvm = psutil.Process(os.getppid())  # spark-submit has started this process
start, cpu = time.perf_counter(), sum(jvm.cpu_times()[:2])
if sys.argv[1] == "noop":
    window.read().write.format("noop").mode("overwrite").save()
    window.check()
else:
    window.write_parquet(window.read().select("key", "value"), sys.argv[1])
with open(sys.argv[2], "w") as file:
    json.dump(
        {
            "seconds": time.perf_counter() - start,
            "cpu": sum(jvm.cpu_times()[:2]) - cpu,
            "records": window.records,
        },
        file,
    )
