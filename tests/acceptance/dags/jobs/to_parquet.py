"""Write the window to Parquet; while the hold file is there, stop in the middle of the write; or fail once, when told to.

Arguments: the directory to write to, the hold file.
"""

import os
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_kafka_offsets.spark import current_window

lake, hold = sys.argv[1:]
window = current_window(SparkSession.builder.getOrCreate())
fails = f"{hold}.fail-{window.id}"
if os.path.exists(fails):
    os.unlink(fails)
    sys.exit(f"{window.id} is told to fail")


@F.udf("string")
def slowly(value: bytes) -> str:
    if os.path.exists(hold):
        with open(hold + ".reached", "a"):
            pass
        while os.path.exists(hold):
            time.sleep(0.1)
    return bytes(value).decode()


# Only who may have to wait pays for a Python beside Spark.
value = slowly("value") if os.path.exists(hold) else F.col("value").cast("string")
records = window.read().select("partition", "offset", value.alias("value"))
window.write_parquet(records, lake)
