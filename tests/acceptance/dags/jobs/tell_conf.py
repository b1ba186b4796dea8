"""Write the window to Parquet, and the job's Spark properties beside the lake; or fail once, when told to.

Arguments: the directory to write to, the hold file.
"""

import json
import os
import sys

from pyspark.sql import SparkSession

from airflow_kafka_offsets.spark import current_window

lake, hold = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
window = current_window(spark)
with open(f"{lake}.{window.id}.conf", "w") as file:
    json.dump(dict(spark.sparkContext.getConf().getAll()), file)
fails = f"{hold}.fail-{window.id}"
if os.path.exists(fails):
    os.unlink(fails)
    sys.exit(f"{window.id} is told to fail")
window.write_parquet(window.read().select("partition", "offset"), lake)
