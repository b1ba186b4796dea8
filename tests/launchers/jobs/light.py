"""A job that needs no Spark of its own, so that its driver is there in seconds: waits while the hold file is there.

Arguments: where to note that it ran, the hold file, the window's id, its first offsets and its ends; and `session` for a cluster
that insists on one. Fails while a file `<hold>.fail` is there.
"""

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
from airflow_kafka_offsets.spark.parent import die_with_jvm

die_with_jvm()  # as current_window() does
ran, hold, window, starts, ends, *more = sys.argv[1:]
assert json.loads(starts).keys() == json.loads(ends).keys()
if "session" in more:
    from pyspark.sql import SparkSession

    SparkSession.builder.getOrCreate()
if os.path.exists(hold):
    with open(hold + ".reached", "a"):
        pass
    while os.path.exists(hold):
        time.sleep(0.1)
with open(ran, "a") as file:
    print(window, file=file)
if os.path.exists(f"{hold}.fail"):
    sys.exit("told to fail")
