"""The other way: a Structured Streaming query with Trigger.AvailableNow and a checkpoint.

Arguments: path or `noop`, result, checkpoint, options of the reader as JSON.
"""

import json
import os
import sys
import time

import psutil
from pyspark.sql import SparkSession

path, result, checkpoint, options = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
jvm = psutil.Process(os.getppid())  # spark-submit has started this process
start, cpu = time.perf_counter(), sum(jvm.cpu_times()[:2])
frame = spark.readStream.format("kafka").options(**json.loads(options)).load()
if path == "noop":
    writer = frame.writeStream.format("noop")
else:
    writer = frame.select("key", "value").writeStream.format("parquet").option("path", path)
query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
query.awaitTermination()
with open(result, "w") as file:
    records = sum(progress["numInputRows"] for progress in query.recentProgress)
    json.dump(
        {"seconds": time.perf_counter() - start, "cpu": sum(jvm.cpu_times()[:2]) - cpu, "records": records},
        file,
    )
