"""Windows over Spark Connect, one after the other in one process. Arguments: address, path, result, then files of windows."""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from airflow_kafka_offsets.spark import KafkaWindow
from airflow_kafka_offsets.spark.handoff import Handoff

url, path, result, *files = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()
seconds, records = [], 0
for file in files:
    start = time.perf_counter()
    window = KafkaWindow(spark, Handoff.from_json(Path(file).read_text()))
    window.read().select("key", "value").write.mode("overwrite").parquet(f"{path}/window_id={window.id}")
    window.check()
    records += window.records or 0
    seconds.append(time.perf_counter() - start)
Path(result).write_text(json.dumps({"seconds": sum(seconds), "cpu": 0, "records": records}))
