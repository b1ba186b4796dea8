"""The other way: a Structured Streaming query with Trigger.AvailableNow and a checkpoint.

Arguments: path or `noop`, result, checkpoint, options of the reader as JSON.
"""

import json
import sys
import time

from pyspark.sql import SparkSession

path, result, checkpoint, options = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
start = time.perf_counter()
frame = spark.readStream.format("kafka").options(**json.loads(options)).load()
if path == "noop":
    writer = frame.writeStream.format("noop")
else:
    writer = frame.select("key", "value").writeStream.format("parquet").option("path", path)
query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
query.awaitTermination()
with open(result, "w") as file:
    records = sum(progress["numInputRows"] for progress in query.recentProgress)
    json.dump({"seconds": time.perf_counter() - start, "records": records}, file)
