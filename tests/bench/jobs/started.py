"""The window's job, which notes when it got where: what `tests.bench.start` shows. Arguments: lake, notes, Kafka."""

import json
import os
import sys
import time

FIRST = (time.time(), time.process_time())

import psutil  # noqa: E402

notes = []
jvm = psutil.Process(os.getppid())  # spark-submit has started this process


def note(step, at=None):
    wall, own = at or (time.time(), time.process_time())
    notes.append({"step": step, "at": wall, "python": own, "jvm": sum(jvm.cpu_times()[:2])})


note("Python of the driver starts", FIRST)
from pyspark.sql import SparkSession  # noqa: E402

note("import pyspark")
spark = SparkSession.builder.getOrCreate()
note("session")
from airflow_kafka_offsets.spark import current_window  # noqa: E402

window = current_window(spark)
note("import the job side, take the window")
# Not of the window itself: that has to be read as a whole.
options = {"kafka.bootstrap.servers": sys.argv[3], "subscribe": "start"}
frame = spark.read.format("kafka").options(**options).load().select("key", "value")
note("the frame of a topic")
frame.limit(1).collect()
note("first record (look at Kafka, plan, code, first task)")
window.write_parquet(window.read().select("key", "value"), sys.argv[1])
note("the whole window to Parquet, and its check")
started = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getStartTime() / 1000
with open(sys.argv[2], "w") as file:
    json.dump(
        {"notes": notes, "submitted": jvm.create_time(), "jvm": started, "python": psutil.Process().create_time()}, file
    )
spark.stop()
